//! Finds one session by its id, a prefix of its id, `latest`, or a file.

use crate::{
    database::Databases,
    error::SessionError,
    filter::SessionFilter,
    gather::StoredSession,
    index::Index,
    list::newest,
    load::{beginning, head_of},
    location::{FoundSession, SessionLocation, SessionPart},
    store::SessionStore,
};
use agentline_core::{Agent, Problem, Problems, SessionFormat, SessionInfo};
use std::{path::Path, sync::Arc};

/// The shortest accepted prefix of an id.
const SHORTEST_PREFIX: usize = 4;
/// The number of candidates that an error message lists.
const NAMED: usize = 5;

impl SessionStore {
    /// Finds a session by its id, a prefix of its id of at least four characters, `latest` (of the project in `cwd`),
    /// the name of its file, or the path of a session file of any agent.
    ///
    /// # Errors
    /// Fails if no session or more than one matches. The problem lists the matches and has a hint.
    pub fn find(&self, session_id: &str, cwd: &Path) -> Result<FoundSession, SessionError> {
        self.find_of(session_id, cwd, &SessionFilter::new())
    }

    /// Finds a session like [`find`](Self::find), among the sessions that match a filter.
    ///
    /// # Errors
    /// Fails like [`find`](Self::find).
    pub fn find_of(
        &self,
        session_id: &str,
        cwd: &Path,
        filter: &SessionFilter,
    ) -> Result<FoundSession, SessionError> {
        if session_id == "latest" {
            return self.latest(cwd, filter);
        }
        let path = cwd.join(session_id);
        if looks_like_a_path(session_id) || path.is_file() {
            return self.find_file(&path, filter);
        }
        let filter = filter.clone().sub_agents(true).empty(true);
        let long_enough = session_id.chars().count() >= SHORTEST_PREFIX;
        let matches = |all: Vec<StoredSession>| matching(all, session_id, long_enough);
        let mut all = matches(self.gather_where(&filter, |candidate| candidate.may_be(session_id))?);
        if all.is_empty() {
            // A file that was copied or renamed need not be named after its session.
            all = matches(self.gather(&filter)?);
        }
        match all.len() {
            1 => Ok(all.swap_remove(0).into()),
            0 => Err(none(session_id, long_enough)),
            many => {
                let names: Vec<String> = all.iter().take(NAMED).map(name_of).collect();
                let more = if many > NAMED { ", …" } else { "" };
                let message = format!("`{session_id}` matches {many} sessions: {}{more}", names.join(", "));
                Err(problem(message, "use more characters of the id"))
            }
        }
    }

    fn latest(&self, cwd: &Path, filter: &SessionFilter) -> Result<FoundSession, SessionError> {
        let filter = match filter.project {
            Some(_) => filter.clone(),
            None => filter.clone().project(cwd),
        };
        let all = self.gather(&filter)?;
        let last = all.into_iter().max_by_key(|stored| newest(stored.info()));
        last.map(FoundSession::from).ok_or_else(|| {
            let project = filter.project.as_deref().unwrap_or(cwd).display();
            let whose = if filter.agents.is_empty() {
                String::new()
            } else {
                format!(" of {}", filter.agents.join(" or "))
            };
            no_session(
                format!("no session{whose} found for `{project}`"),
                "use an id from `agentline sessions list`, which shows all projects",
            )
        })
    }

    /// Returns the sessions of the sub-agents that a session started, oldest first.
    ///
    /// # Errors
    /// Currently never fails.
    pub fn children(&self, found: &FoundSession) -> Result<Vec<FoundSession>, SessionError> {
        let filter = SessionFilter::new().agent(found.agent.info().id).sub_agents(true).empty(true);
        let mut all = self.gather(&filter)?;
        all.retain(|stored| stored.info().parent.as_deref() == Some(found.info.id.as_str()));
        all.sort_by_key(|stored| stored.info().started);
        Ok(all.into_iter().map(FoundSession::from).collect())
    }

    /// Finds the session in a file by detecting the agent from the file's content.
    fn find_file(&self, path: &Path, filter: &SessionFilter) -> Result<FoundSession, SessionError> {
        let agents = self.agents_of(filter)?;
        // A directory has no content, and a pipe could be read only once.
        if std::fs::metadata(path).is_ok_and(|metadata| !metadata.is_file()) {
            return Err(problem(
                format!("`{}` is not a file", path.display()),
                "use a session file of an agent, or an id from `agentline sessions list`",
            ));
        }
        let head = head_of(path).map_err(SessionError::io("read", path))?;
        let detected = agents.iter().find_map(|agent| Some((agent, agent.sessions().format(&head)?)));
        let Some((agent, form)) = detected else {
            let names: Vec<&str> = agents.iter().map(|agent| agent.info().title).collect();
            return Err(problem(
                format!("`{}` is not a session of {}", path.display(), names.join(", ")),
                "use a session file of an agent, or an id from `agentline sessions list`",
            ));
        };
        if form == SessionFormat::Database {
            return self.find_in_database(agent, path);
        }
        let location = SessionLocation::File(path.to_owned());
        let mut info = beginning(&**agent, form, &head);
        info.agent = agent.info().id.into();
        if info.id.is_empty() {
            info.id = location.name();
        }
        Ok(FoundSession {
            info,
            agent: Arc::clone(agent),
            parts: vec![SessionPart { location, form: Some(form) }],
            is_whole: false,
        })
    }
}

impl SessionStore {
    /// Returns the session of a database that contains exactly one.
    fn find_in_database(&self, agent: &Arc<dyn Agent>, path: &Path) -> Result<FoundSession, SessionError> {
        let mut index = Index::open(None);
        let mut all = Databases::default().candidates(agent, path, &mut index);
        all.sort_by_key(|candidate| std::cmp::Reverse(candidate.stamp.changed));
        let ids: Vec<&str> = all.iter().take(NAMED).filter_map(|one| one.name.id.as_deref()).collect();
        match all.len() {
            1 => {
                let candidate = all.swap_remove(0);
                let mut info = SessionInfo::default();
                candidate.complete(&mut info);
                Ok(FoundSession {
                    info,
                    agent: Arc::clone(agent),
                    parts: vec![candidate.part()],
                    is_whole: false,
                })
            }
            0 => Err(problem(
                format!("`{}` contains no session", path.display()),
                "use an id from `agentline sessions list`",
            )),
            many => Err(problem(
                format!("`{}` contains {many} sessions; the newest are {}", path.display(), ids.join(", ")),
                "use the id of one of them",
            )),
        }
    }
}

/// Returns the session with this id, else the one in a file of this name, else those whose id begins with it, newest
/// first.
fn matching(mut all: Vec<StoredSession>, session_id: &str, long_enough: bool) -> Vec<StoredSession> {
    let has_name =
        |stored: &StoredSession| stored.parts.iter().any(|part| part.location.name() == session_id);
    let exact = all.iter().position(|stored| stored.info().id == session_id);
    if let Some(at) = exact.or_else(|| all.iter().position(has_name)) {
        return vec![all.swap_remove(at)];
    }
    all.retain(|stored| long_enough && stored.info().id.starts_with(session_id));
    all.sort_by_key(|stored| std::cmp::Reverse(newest(stored.info())));
    all
}

fn looks_like_a_path(session_id: &str) -> bool {
    session_id.contains(std::path::is_separator)
        || session_id.ends_with(".json")
        || session_id.ends_with(".jsonl")
}

fn name_of(stored: &StoredSession) -> String {
    let info = stored.info();
    let title = info.title.as_ref().or(stored.facts.prompt.as_ref());
    let title = title.map(|title| format!(", “{}”", title.chars().take(30).collect::<String>()));
    format!("{} ({}{})", info.id, info.agent, title.unwrap_or_default())
}

fn none(session_id: &str, long_enough: bool) -> SessionError {
    let hint = if long_enough {
        "use an id from `agentline sessions list`, or the path of a session file"
    } else {
        "use at least four characters of an id from `agentline sessions list`"
    };
    no_session(format!("no session `{session_id}` found"), hint)
}

fn no_session(message: String, hint: &str) -> SessionError {
    SessionError::NoSession(Problem::new("session", message).hint(hint))
}

fn problem(message: String, hint: &str) -> SessionError {
    SessionError::Usage(Problems::from(Problem::new("session", message).hint(hint)))
}
