//! Lists sessions, newest first.

use crate::{
    error::SessionError, filter::SessionFilter, gather::StoredSession, location::SessionLocation,
    store::SessionStore,
};
use agentline_core::{CostSource, PriceTable, RootFormat, SessionInfo, UsageEntry};
use agentline_fs::{disk_fs::DiskFs, regular_file::open_regular};
use serde::{Serialize, Serializer};
use std::{
    collections::{BTreeMap, HashSet},
    io::{self, Read},
    path::Path,
};

/// One session in a list.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Summary {
    /// The metadata of the session.
    pub info: SessionInfo,
    /// The agent's title, or else the first prompt, shortened.
    pub title: Option<String>,
    /// The number of prompts.
    pub prompts: u64,
    /// The number of answers from a model. Each is one turn.
    pub answers: u64,
    /// The number of tool calls.
    pub tool_calls: u64,
    /// Tokens and cost.
    pub used: UsageEntry,
    /// Tokens and cost by model.
    pub by_model: BTreeMap<String, UsageEntry>,
    /// The locations of the session.
    pub locations: Vec<SessionLocation>,
    /// The total size in bytes.
    pub size: u64,
    /// The number of places that could not be read.
    pub damage: u64,
}

impl SessionStore {
    /// Lists sessions, newest first.
    ///
    /// # Errors
    /// Fails if the filter names an unknown agent.
    pub fn list(&self, filter: &SessionFilter) -> Result<Vec<Summary>, SessionError> {
        let stored = self.gather(filter)?;
        let mut all: Vec<Summary> =
            stored.into_iter().map(|stored| Summary::of(stored, &self.prices)).collect();
        all.sort_by(|a, b| {
            newest(&a.info).cmp(&newest(&b.info)).reverse().then_with(|| a.info.id.cmp(&b.info.id))
        });
        if let Some(redactor) = &self.redactor {
            for summary in &mut all {
                redactor.session_info(&mut summary.info);
                summary.title = summary.title.take().map(|title| redactor.text(&title).into_owned());
            }
        }
        Ok(all)
    }
}

impl SessionStore {
    /// Returns a message for each session directory and database that cannot be read.
    ///
    /// Their sessions are missing from lists, searches and counts.
    ///
    /// # Errors
    /// Fails if the filter names an unknown agent.
    pub fn unreadable(&self, filter: &SessionFilter) -> Result<Vec<String>, SessionError> {
        let mut all = Vec::new();
        for agent in self.agents_of(filter)? {
            for root in agent.sessions().roots(&self.env, &self.home, &DiskFs) {
                let opened = match root.form {
                    RootFormat::Database => looks_like_a_database(&root.path),
                    _ => std::fs::read_dir(&root.path).map(drop),
                };
                // An agent that was never used has no session directory.
                let fault = opened.err().filter(|error| error.kind() != io::ErrorKind::NotFound);
                all.extend(fault.map(|error| SessionError::io("read", &root.path)(error).to_string()));
            }
        }
        Ok(all)
    }
}

/// Checks that a file starts like an SQLite database or is empty, as a new database is. This is faster than opening it.
fn looks_like_a_database(path: &Path) -> io::Result<()> {
    const BEGINNING: &[u8] = b"SQLite format 3\0";
    let mut head = Vec::new();
    open_regular(path, u64::MAX)?.take(BEGINNING.len() as u64).read_to_end(&mut head)?;
    match head.is_empty() || head == BEGINNING {
        true => Ok(()),
        false => Err(io::Error::new(io::ErrorKind::InvalidData, "it is not a database")),
    }
}

/// Returns the time of the last entry of a session.
pub(crate) fn newest(info: &SessionInfo) -> Option<u64> {
    info.updated.or(info.started)
}

impl Summary {
    fn of(stored: StoredSession, prices: &PriceTable) -> Self {
        let StoredSession { facts, parts, size, .. } = stored;
        let mut summary = Self {
            title: facts.info.title.clone().or_else(|| facts.prompt.clone()),
            prompts: facts.prompts,
            answers: facts.answers,
            tool_calls: facts.tool_calls,
            locations: parts.into_iter().map(|part| part.location).collect(),
            size,
            damage: facts.damage,
            ..Self::default()
        };
        let mut seen = HashSet::new();
        for used in facts.used.iter().filter(|used| seen.insert(used.key)) {
            let row = facts.row(used, prices);
            summary.used.add(&row);
            add_to(&mut summary.by_model, facts.model(used), &row);
        }
        if summary.used.cost_usd.is_none()
            && let Some(reported) = facts.info.cost_usd.filter(|usd| usd.is_finite() && *usd > 0.0)
        {
            summary.used.cost_usd = Some(reported);
            summary.used.known_cost_usd = reported;
            summary.used.cost_source = Some(CostSource::Agent);
        }
        summary.info = facts.info;
        summary
    }
}

/// Adds a row to the row with this name.
pub(crate) fn add_to(rows: &mut BTreeMap<String, UsageEntry>, name: &str, row: &UsageEntry) {
    match rows.get_mut(name) {
        Some(sum) => sum.add(row),
        None => _ = rows.insert(name.to_owned(), *row),
    }
}

/// Serialized as one flat object; `title` and cost are those of the summary, not of `info`.
impl Serialize for Summary {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Flat<'a> {
            agent: &'a str,
            id: &'a str,
            project: &'a Option<String>,
            title: &'a Option<String>,
            started: Option<u64>,
            updated: Option<u64>,
            agent_version: &'a Option<String>,
            model: &'a Option<String>,
            parent: &'a Option<String>,
            prompts: u64,
            answers: u64,
            tool_calls: u64,
            #[serde(flatten)]
            used: &'a UsageEntry,
            by_model: &'a BTreeMap<String, UsageEntry>,
            places: &'a [SessionLocation],
            size: u64,
            damage: u64,
        }
        let info = &self.info;
        let flat = Flat {
            agent: &info.agent,
            id: &info.id,
            project: &info.project,
            title: &self.title,
            started: info.started,
            updated: info.updated,
            agent_version: &info.agent_version,
            model: &info.model,
            parent: &info.parent,
            prompts: self.prompts,
            answers: self.answers,
            tool_calls: self.tool_calls,
            used: &self.used,
            by_model: &self.by_model,
            places: &self.locations,
            size: self.size,
            damage: self.damage,
        };
        flat.serialize(serializer)
    }
}
