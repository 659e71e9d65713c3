//! Collects sessions from files. The facts of each file come from the index or are read, on several threads, and the
//! files of one session are merged.

use crate::{
    candidate::SessionCandidate,
    database::Databases,
    error::SessionError,
    facts::SessionFacts,
    filter::SessionFilter,
    index::Index,
    load::{read, read_all},
    location::{FoundSession, SessionLocation, SessionPart},
    project::{Digests, ProjectFilter, RealPaths},
    stamp::SessionStamp,
    store::SessionStore,
};
use agentline_core::{Agent, AgentId, Problems, ProjectRef, SavedSession, SessionInfo, agents::find_among};
use agentline_fs::disk_fs::DiskFs;
use std::{
    collections::{BTreeMap, HashMap, HashSet},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::SystemTime,
};

/// Titles by agent and id.
pub(crate) type Titles = HashMap<String, BTreeMap<String, String>>;

/// A saved session with the facts that a list needs.
#[derive(Clone)]
pub(crate) struct StoredSession {
    pub(crate) agent: Arc<dyn Agent>,
    pub(crate) facts: SessionFacts,
    /// The project named in the session and those derived from its locations. They differ if the project or the session
    /// was moved.
    pub(crate) projects: Vec<ProjectRef>,
    /// The locations of the session, oldest first.
    pub(crate) parts: Vec<SessionPart>,
    /// The total size in bytes.
    pub(crate) size: u64,
}

impl StoredSession {
    pub(crate) fn info(&self) -> &SessionInfo {
        &self.facts.info
    }
}

impl From<StoredSession> for FoundSession {
    fn from(stored: StoredSession) -> Self {
        Self { info: stored.facts.info, agent: stored.agent, parts: stored.parts, is_whole: true }
    }
}

impl SessionStore {
    /// Returns the sessions that match a filter, in no particular order.
    pub(crate) fn gather(&self, filter: &SessionFilter) -> Result<Vec<StoredSession>, SessionError> {
        self.gather_where(filter, |_| true)
    }

    /// Returns the sessions that match a filter and consist of candidates that `accepts` selects.
    pub(crate) fn gather_where(
        &self,
        filter: &SessionFilter,
        accepts: impl Fn(&SessionCandidate) -> bool,
    ) -> Result<Vec<StoredSession>, SessionError> {
        let agents = self.agents_of(filter)?;
        let project_filter = filter.project.as_deref().map(ProjectFilter::new);
        let mut real = RealPaths::default();
        let mut index = Index::open(self.index.as_deref());
        let databases = Databases::default();
        let mut candidates = self.scan(&agents, &mut index, &databases);
        let mut digests = Digests::of(&candidates);
        candidates.retain(|candidate| {
            let both = project_filter.as_ref().zip(candidate.project.as_ref());
            accepts(candidate)
                && both.is_none_or(|(project_filter, project)| project_filter.is(project, &mut real))
        });
        let parts = self.facts_of(&candidates, &mut index, &databases);
        let mut all = sessions_of(candidates, parts, &mut index, &databases);
        index.close();
        name_projects(&mut all, filter.project.as_deref(), &mut digests);
        let titles = self.titles(&agents);
        for stored in &mut all {
            let title = titles.get(stored.agent.info().id).and_then(|titles| titles.get(&stored.info().id));
            stored.facts.info.title = title.cloned().or_else(|| stored.facts.info.title.take());
        }
        all.retain(|stored| {
            let in_project = project_filter.as_ref().is_none_or(|project_filter| {
                stored.projects.iter().any(|project| project_filter.is(project, &mut real))
            });
            in_project
                && filter.in_time(stored.info())
                && (filter.sub_agents || stored.info().parent.is_none())
                && (filter.empty || stored.facts.has_content())
        });
        Ok(all)
    }

    /// Returns the titles that agents store separately from their sessions, by agent and id.
    pub(crate) fn titles(&self, agents: &[Arc<dyn Agent>]) -> Titles {
        let of = |agent: &Arc<dyn Agent>| {
            (agent.info().id.to_owned(), agent.sessions().titles(&self.env, &self.home, &DiskFs))
        };
        agents.iter().map(of).filter(|(_, titles)| !titles.is_empty()).collect()
    }

    /// Returns the agents that a filter selects.
    pub(crate) fn agents_of(&self, filter: &SessionFilter) -> Result<Vec<Arc<dyn Agent>>, SessionError> {
        if filter.agents.is_empty() {
            return Ok(self.agents.clone());
        }
        let named = |name: &AgentId| {
            find_among(&self.agents, name).map_err(|problem| SessionError::Usage(Problems::from(problem)))
        };
        filter.agents.iter().map(named).collect()
    }

    /// Returns the facts of each candidate, in the order of the candidates.
    fn facts_of(
        &self,
        candidates: &[SessionCandidate],
        index: &mut Index,
        databases: &Databases,
    ) -> Vec<SessionFacts> {
        let known = in_parallel(self.threads, candidates, |candidate| {
            index.get(&candidate.location.key(), candidate.stamp)
        });
        let mut missing: Vec<usize> = (0..candidates.len()).filter(|at| known[*at].is_none()).collect();
        // Largest files first, so that no thread starts a large file when the others are done.
        missing.sort_by_key(|at| std::cmp::Reverse(candidates[*at].stamp.size));
        let read_now = in_parallel(self.threads, &missing, |at| {
            let candidate = &candidates[*at];
            let now = SystemTime::now();
            let session = read_candidate(candidate, databases);
            // A file that changed while it was read is not put in the index.
            (SessionFacts::of(&session), candidate.is_lasting(now))
        });
        let mut known: Vec<SessionFacts> = known.into_iter().map(Option::unwrap_or_default).collect();
        for (at, (facts, lasts)) in missing.into_iter().zip(read_now) {
            if lasts {
                index.put(candidates[at].location.key(), candidates[at].stamp, &facts);
            }
            known[at] = facts;
        }
        known
    }
}

/// Groups the files of each session.
fn sessions_of(
    candidates: Vec<SessionCandidate>,
    parts: Vec<SessionFacts>,
    index: &mut Index,
    databases: &Databases,
) -> Vec<StoredSession> {
    let mut groups: Vec<Vec<(SessionCandidate, SessionFacts)>> = Vec::new();
    let mut positions: HashMap<(String, String), usize> = HashMap::new();
    for (candidate, mut facts) in candidates.into_iter().zip(parts) {
        candidate.complete(&mut facts.info);
        let at = *positions
            .entry((candidate.agent.info().id.to_owned(), facts.info.id.clone()))
            .or_insert_with(|| {
                groups.push(Vec::new());
                groups.len() - 1
            });
        groups[at].push((candidate, facts));
    }
    groups.into_iter().filter_map(|group| session_of(group, index, databases)).collect()
}

fn session_of(
    mut group: Vec<(SessionCandidate, SessionFacts)>,
    index: &mut Index,
    databases: &Databases,
) -> Option<StoredSession> {
    group.sort_by(|(a, x), (b, y)| (x.info.started, &a.location).cmp(&(y.info.started, &b.location)));
    let speaking: Vec<&(SessionCandidate, SessionFacts)> =
        group.iter().filter(|(_, f)| f.has_content()).collect();
    let facts = match speaking.as_slice() {
        [] => group.first()?.1.clone(),
        [(_, facts)] => facts.clone(),
        many => merged(many, index, databases),
    };
    let recorded = facts.info.project.as_ref().map(|path| ProjectRef::Path(PathBuf::from(path)));
    let mut projects: Vec<ProjectRef> = recorded.into_iter().collect();
    for project in group.iter().filter_map(|(candidate, _)| candidate.project.as_ref()) {
        if !projects.contains(project) {
            projects.push(project.clone());
        }
    }
    let size = group.iter().map(|(candidate, _)| candidate.stamp.size).sum();
    let agent = Arc::clone(&group.first()?.0.agent);
    let parts = group.into_iter().map(|(candidate, _)| candidate.part()).collect();
    Some(StoredSession { agent, facts, projects, parts, size })
}

/// Reads a candidate. A session that cannot be opened is returned empty.
fn read_candidate(candidate: &SessionCandidate, databases: &Databases) -> SavedSession {
    let mut session =
        read(&*candidate.agent, &candidate.location, candidate.form, databases).unwrap_or_default();
    candidate.complete(&mut session.info);
    session
}

/// Returns the facts of a session that several files describe.
fn merged(
    group: &[&(SessionCandidate, SessionFacts)],
    index: &mut Index,
    databases: &Databases,
) -> SessionFacts {
    let keys: Vec<String> = group.iter().map(|(candidate, _)| candidate.location.key()).collect();
    let key = keys.join("\n");
    let stamp = group.iter().fold(SessionStamp::default(), |sum, (candidate, _)| sum.with(candidate.stamp));
    if let Some(facts) = index.get(&key, stamp) {
        return facts;
    }
    let now = SystemTime::now();
    let parts: Vec<SessionPart> = group.iter().map(|(candidate, _)| candidate.clone().part()).collect();
    let first = &group[0].0;
    let mut session = read_all(&*first.agent, &parts, databases).unwrap_or_default();
    first.complete(&mut session.info);
    let facts = SessionFacts::of(&session);
    if group.iter().all(|(c, _)| c.is_lasting(now)) {
        index.put(key, stamp, &facts);
    }
    facts
}

/// Sets the project path of sessions that only have a digest of it, if another session or the filter has a path with
/// this digest.
fn name_projects(all: &mut [StoredSession], project: Option<&Path>, digests: &mut Digests) {
    let is_nameless =
        |stored: &StoredSession| stored.facts.info.project.is_none() && !stored.projects.is_empty();
    if !all.iter().any(is_nameless) {
        return;
    }
    project.into_iter().for_each(|path| digests.add(path));
    let mut seen = HashSet::new();
    for project in all.iter().flat_map(|stored| &stored.projects) {
        if let ProjectRef::Path(path) = project
            && seen.insert(path)
        {
            digests.add(path);
        }
    }
    for stored in all.iter_mut().filter(|stored| is_nameless(stored)) {
        let path = stored.projects.iter().find_map(|project| match project {
            ProjectRef::Sha256(digest) => digests.path(digest),
            _ => None,
        });
        stored.facts.info.project = path.map(|path| path.to_string_lossy().into_owned());
    }
}

/// Calls `work` for every item on several threads and returns the results in the order of the items.
pub(crate) fn in_parallel<T: Sync, R: Send>(
    threads: usize,
    items: &[T],
    work: impl Fn(&T) -> R + Sync,
) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let one = || {
        let mut done = Vec::new();
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(at) else { return done };
            done.push((at, work(item)));
        }
    };
    let mut done = std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads.min(items.len())).map(|_| scope.spawn(one)).collect();
        let mut done = one();
        for other in others {
            match other.join() {
                Ok(more) => done.extend(more),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        done
    });
    done.sort_by_key(|(at, _)| *at);
    done.into_iter().map(|(_, result)| result).collect()
}

impl SessionLocation {
    /// Returns the key of this location in the index.
    fn key(&self) -> String {
        match self {
            Self::File(path) => path.to_string_lossy().into_owned(),
            Self::Row { database, session } => format!("{}\n#{session}", database.to_string_lossy()),
        }
    }
}
