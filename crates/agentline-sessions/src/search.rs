//! Searches the text of all sessions. Files are scanned as bytes first; only those that may contain a match are parsed,
//! and matches are located in their entries. An agent's internal records are not searched.

mod locate;
mod needle;

use crate::{
    candidate::SessionCandidate,
    database::{self, Databases},
    error::SessionError,
    facts::SessionFacts,
    filter::SessionFilter,
    gather::{Titles, in_parallel},
    list::newest,
    load::read_all,
    location::{FoundSession, SessionLocation, SessionPart},
    project::{Digests, ProjectFilter, RealPaths},
    scan::DatabaseRoot,
    store::SessionStore,
};
use agentline_core::{
    Agent, AgentId, Millis, Problem, Problems, ProjectRef, Redactor, Role, SavedSession, SessionInfo,
};
use agentline_fs::regular_file::open_regular;
use needle::Needle;
use serde::Serialize;
use std::{
    cell::RefCell,
    collections::{HashMap, HashSet},
    ops::Range,
    path::{Path, PathBuf},
};

/// The comparison of letter case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Case {
    /// Case-sensitive only if the query contains an uppercase letter.
    #[default]
    Smart,
    /// Always case-sensitive.
    Sensitive,
    /// Never case-sensitive.
    Insensitive,
}

/// A search query.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Query {
    /// Words or phrases that one message must all contain. With `regex`, regular expressions.
    pub words: Vec<String>,
    /// Whether the words are regular expressions.
    pub regex: bool,
    /// The comparison of letter case.
    pub case: Case,
    /// The number of lines of context before and after a hit.
    pub context: usize,
    /// Whether to search context that the agent itself added to the prompt.
    pub hidden: bool,
    /// The sessions to search. [`Query::new`] includes those of sub-agents.
    pub filter: SessionFilter,
}

impl Query {
    /// Creates a query for messages that contain all these words or phrases, in any order.
    #[must_use]
    pub fn new(words: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let words = words.into_iter().map(Into::into).collect();
        Self { words, filter: SessionFilter::new().sub_agents(true), ..Self::default() }
    }

    /// Sets whether the words are regular expressions.
    #[must_use]
    pub fn regex(mut self, regex: bool) -> Self {
        self.regex = regex;
        self
    }

    /// Sets how letter case is compared.
    #[must_use]
    pub fn case(mut self, case: Case) -> Self {
        self.case = case;
        self
    }

    /// Sets the number of lines of context before and after a hit.
    #[must_use]
    pub fn context(mut self, lines: usize) -> Self {
        self.context = lines;
        self
    }

    /// Sets whether context that the agent itself added to the prompt is searched.
    #[must_use]
    pub fn hidden(mut self, with: bool) -> Self {
        self.hidden = with;
        self
    }

    /// Sets the sessions to search.
    #[must_use]
    pub fn filter(mut self, filter: SessionFilter) -> Self {
        self.filter = filter;
        self
    }
}

/// A session with hits.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct SearchResult {
    /// The metadata of the session.
    #[serde(flatten)]
    pub info: SessionInfo,
    /// The agent's title, or else the first prompt, shortened.
    pub title: Option<String>,
    /// The location of the file or row with the hits.
    pub place: SessionLocation,
    /// The hits, in the order of the session.
    pub hits: Vec<Hit>,
}

/// A line with one or more matches.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Hit {
    /// The position of the entry in the session, from 0.
    pub entry: usize,
    /// The id of the entry.
    pub entry_id: String,
    /// The role of the entry.
    pub role: Role,
    /// The time of the entry.
    pub timestamp: Option<Millis>,
    /// The kind of text that contains the match.
    pub place: HitPlace,
    /// The canonical name of the tool, for tool input and results.
    pub tool: Option<String>,
    /// The line number within the text, from 1.
    pub line: usize,
    /// The line, or the part of a very long line around the first match.
    pub text: String,
    /// The byte ranges of the matches in `text`.
    pub spans: Vec<Range<usize>>,
    /// The lines before the hit.
    pub before: Vec<String>,
    /// The lines after the hit.
    pub after: Vec<String>,
}

/// The kind of text that contains a hit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum HitPlace {
    /// The title that the agent gave the session. It belongs to no entry: `entry` is 0 and `entry_id` is empty.
    Title,
    /// The text of a message.
    Text,
    /// Reasoning.
    Thinking,
    /// The input of a tool call.
    ToolInput,
    /// The result of a tool call.
    ToolResult,
}

impl SessionStore {
    /// Searches sessions and returns those with hits, newest first.
    ///
    /// # Errors
    /// Fails if the query is empty, a regular expression is invalid, or the filter names an unknown agent.
    pub fn search(&self, query: &Query) -> Result<Vec<SearchResult>, SessionError> {
        let needle = Needle::new(query).map_err(|problem| SessionError::Usage(Problems::from(problem)))?;
        let project_filter = query.filter.project.as_deref().map(ProjectFilter::new);
        let agents = self.agents_of(&query.filter)?;
        let (mut files, databases) = self.scan_files(&agents);
        let digests = Digests::of(&files);
        let mut real = RealPaths::default();
        files.retain(|file| {
            let both = project_filter.as_ref().zip(file.project.as_ref());
            both.is_none_or(|(project_filter, project)| project_filter.is(project, &mut real))
        });
        let files = works_of(files).into_iter().map(Item::Files);
        // A database is one unit of work, and the slowest, so databases are first.
        let items: Vec<Item> = databases.into_iter().map(Item::Database).chain(files).collect();
        let redactor = self.redactor.as_ref();
        let search =
            Search { redactor, needle, query, project_filter, digests, titles: self.titles(&agents) };
        let found = in_parallel(self.threads, &items, |item| match item {
            Item::Files(candidates) => search.in_files(candidates).into_iter().collect(),
            Item::Database((agent, path)) => search.in_database(&**agent, path),
        });
        Ok(in_order(found.into_iter().flatten().collect()))
    }

    /// Returns the session of a search result.
    ///
    /// # Errors
    /// Fails if the session no longer exists.
    pub fn found(&self, result: &SearchResult) -> Result<FoundSession, SessionError> {
        let filter = SessionFilter::new().agent(&result.info.agent);
        self.find_of(&result.info.id, &self.home, &filter)
    }
}

/// Sorts results, newest first, and removes copies of entries that another file of the same session contains.
fn in_order(mut all: Vec<SearchResult>) -> Vec<SearchResult> {
    all.sort_by(|a, b| newest(&a.info).cmp(&newest(&b.info)).reverse().then_with(|| a.place.cmp(&b.place)));
    let mut sessions: HashSet<(AgentId, String, String)> = HashSet::new();
    for result in &mut all {
        let (agent, id) = (&result.info.agent, &result.info.id);
        let of_others: Vec<bool> = result
            .hits
            .iter()
            .map(|hit| sessions.contains(&(agent.clone(), id.clone(), hit.entry_id.clone())))
            .collect();
        sessions.extend(result.hits.iter().map(|hit| (agent.clone(), id.clone(), hit.entry_id.clone())));
        let mut is_copy = of_others.into_iter();
        result.hits.retain(|_| !is_copy.next().unwrap_or(false));
    }
    all.retain(|result| !result.hits.is_empty());
    all
}

/// A unit of work of one thread.
enum Item {
    /// One file, or several that continue each other.
    Files(Vec<SessionCandidate>),
    Database(DatabaseRoot),
}

/// Groups files that are read together, largest group first.
fn works_of(files: Vec<SessionCandidate>) -> Vec<Vec<SessionCandidate>> {
    let mut works: Vec<Vec<SessionCandidate>> = Vec::new();
    let mut groups: HashMap<(String, String), usize> = HashMap::new();
    for file in files {
        let id = file.name.id.clone().filter(|_| file.agent.sessions().files_continue());
        let at = match id {
            Some(id) => *groups.entry((file.agent.info().id.to_owned(), id)).or_insert(works.len()),
            None => works.len(),
        };
        match works.get_mut(at) {
            Some(work) => work.push(file),
            None => works.push(vec![file]),
        }
    }
    works.sort_by_key(|work| std::cmp::Reverse(work.iter().map(|file| file.stamp.size).sum::<u64>()));
    works
}

/// A search in progress.
struct Search<'a> {
    redactor: Option<&'a Redactor>,
    needle: Needle,
    query: &'a Query,
    project_filter: Option<ProjectFilter>,
    digests: Digests,
    titles: Titles,
}

impl Search<'_> {
    fn in_files(&self, candidates: &[SessionCandidate]) -> Option<SearchResult> {
        // One buffer for each thread, which most files do not fill.
        thread_local!(static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) });
        let may_be_in = |candidate: &&SessionCandidate| {
            let file = open_regular(candidate.location.path(), u64::MAX);
            let read =
                file.and_then(|file| BUFFER.with_borrow_mut(|buffer| self.needle.may_be_in(file, buffer)));
            read.unwrap_or(false)
        };
        let title = candidates.first().and_then(|first| self.title_of(first));
        let is_in_title =
            title.is_some_and(|title| self.needle.words.iter().all(|word| word.is_match(title)));
        let candidate = if is_in_title { candidates.first() } else { candidates.iter().find(may_be_in) }?;
        let parts: Vec<SessionPart> = candidates.iter().map(|candidate| candidate.clone().part()).collect();
        let mut session = read_all(&*candidate.agent, &parts, &Databases::default()).ok()?;
        candidate.complete(&mut session.info);
        session.info.title = title.cloned().or_else(|| session.info.title.take());
        self.in_session(session, candidate.location.clone(), candidate.project.as_ref())
    }

    /// Returns the title that an agent stores separately from the session.
    fn title_of(&self, candidate: &SessionCandidate) -> Option<&String> {
        self.titles.get(candidate.agent.info().id)?.get(candidate.name.id.as_ref()?)
    }

    fn in_database(&self, agent: &dyn Agent, path: &Path) -> Vec<SearchResult> {
        let Ok(database) = database::open(agent, path) else { return Vec::new() };
        let holding = database.holding(|row| self.needle.may_be_partly_in(row));
        let ids = holding.map(|read| read.value).unwrap_or_default();
        let in_one = |id: String| {
            let mut session = database.load(&id).ok()??;
            session.info.agent = agent.info().id.into();
            let location = SessionLocation::Row { database: path.to_owned(), session: id };
            self.in_session(session, location, None)
        };
        ids.into_iter().filter_map(in_one).collect()
    }

    fn in_session(
        &self,
        mut session: SavedSession,
        location: SessionLocation,
        project: Option<&ProjectRef>,
    ) -> Option<SearchResult> {
        // Redacted text must not match: otherwise a search could reveal the beginning of a key.
        if let Some(redactor) = self.redactor {
            redactor.session(&mut session);
        }
        let session = &session;
        let (info, filter) = (&session.info, &self.query.filter);
        let recorded = info.project.as_ref().map(|path| ProjectRef::Path(PathBuf::from(path)));
        let mut projects = recorded.as_ref().into_iter().chain(project);
        let in_project = self.project_filter.as_ref().is_none_or(|project_filter| {
            projects.any(|project| project_filter.is(project, &mut RealPaths::default()))
        });
        if !in_project || !filter.in_time(info) || (info.parent.is_some() && !filter.sub_agents) {
            return None;
        }
        let hits = locate::hits(session, &self.needle, self.query);
        if hits.is_empty() {
            return None;
        }
        let mut facts = SessionFacts::of(session);
        if let (None, Some(ProjectRef::Sha256(digest))) = (&facts.info.project, project) {
            let path = self.digests.path(digest);
            facts.info.project = path.map(|path| path.to_string_lossy().into_owned());
        }
        let title = facts.info.title.clone().or(facts.prompt);
        Some(SearchResult { info: facts.info, title, place: location, hits })
    }
}
