//! Finds, lists, reads, searches, counts and follows the sessions that a user's agents have saved.
//!
//! Nothing here writes to an agent's files. Facts about sessions are kept in one index file in the cache directory. An
//! index entry is valid only while the files it describes are unchanged (see `index.rs`). All functions block.

mod database;
mod facts;
mod filter;
mod find;
mod gather;
mod index;
mod lines;
mod list;
mod load;
mod project;
mod scan;
mod search;
pub mod sqlite;
mod temporary_store;
mod usage;
mod watch;

pub use filter::SessionFilter;
pub use find::{FoundSession, SessionLocation};
pub use list::Summary;
pub use search::{Case, Hit, HitPlace, Query, SearchResult};
pub use usage::{UsageBy, UsageRow};
pub use watch::{SessionChange, SessionWatch};

use crate::{Agentline, fs::disk_fs::DiskFs};
use agentline_core::{Agent, PriceTable, Redactor, Secrets};
use std::{
    collections::BTreeMap,
    fmt,
    path::{Path, PathBuf},
};

/// The file name of the index in the cache directory.
const INDEX: &str = "sessions.index";

/// The saved sessions of one user.
///
/// Cheap to clone: a store holds no session in memory.
#[derive(Clone)]
pub struct SessionStore {
    agents: Vec<&'static dyn Agent>,
    env: BTreeMap<String, String>,
    home: PathBuf,
    prices: PriceTable,
    index: Option<PathBuf>,
    threads: usize,
    east_of_utc: i32,
    redactor: Option<Redactor>,
}

impl SessionStore {
    /// Creates a store for these agents, whose sessions are located through `env` and `home`.
    ///
    /// The store has no index until [`index`](Self::index) sets its directory.
    #[must_use]
    pub fn new(
        agents: impl IntoIterator<Item = &'static dyn Agent>,
        env: BTreeMap<String, String>,
        home: impl Into<PathBuf>,
    ) -> Self {
        // Reading is bound by the disk and parsing by the processor, so two threads are faster than one even on one
        // core.
        let threads = std::thread::available_parallelism().map_or(2, usize::from).clamp(2, 8);
        Self {
            agents: agents.into_iter().collect(),
            env,
            home: home.into(),
            prices: PriceTable::built_in(),
            index: None,
            threads,
            east_of_utc: 0,
            redactor: None,
        }
    }

    /// Sets the price table for tokens.
    #[must_use]
    pub fn prices(mut self, prices: PriceTable) -> Self {
        self.prices = prices;
        self
    }

    /// Keeps an index in this directory, which is created when the index is first written.
    #[must_use]
    pub fn index(mut self, folder: &Path) -> Self {
        self.index = Some(folder.join(INDEX));
        self
    }

    /// Disables the index: every call reads all files.
    #[must_use]
    pub fn no_index(mut self) -> Self {
        self.index = None;
        self
    }

    /// Redacts these secrets, and keys of well-known formats, in everything that is read. A search does not find them.
    #[must_use]
    pub fn redact(mut self, redactor: Redactor) -> Self {
        self.redactor = Some(redactor);
        self
    }

    /// Disables redaction.
    #[must_use]
    pub fn unredacted(mut self) -> Self {
        self.redactor = None;
        self
    }

    /// Sets the offset from UTC, in seconds to the east, at which days begin.
    #[must_use]
    pub fn east_of_utc(mut self, seconds: i32) -> Self {
        self.east_of_utc = seconds;
        self
    }

    /// Sets the number of threads that read files, at least one.
    #[must_use]
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = threads.max(1);
        self
    }
}

impl fmt::Debug for SessionStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let agents: Vec<&str> = self.agents.iter().map(|agent| agent.info().id).collect();
        f.debug_struct("SessionStore")
            .field("agents", &agents)
            .field("home", &self.home)
            .field("index", &self.index)
            .finish_non_exhaustive()
    }
}

impl Agentline {
    /// Returns a redactor of this user's secrets: those in the caller's environment and in the agents' own files.
    #[must_use]
    pub fn redactor(&self) -> Redactor {
        let (host_env, agents) = (self.host_env(), self.inner().registry.all());
        let stored =
            agents.into_iter().flat_map(|agent| agent.stored_secrets(&host_env.env, &host_env.home, &DiskFs));
        let mut secrets = Secrets::default();
        secrets.add_variables(&host_env.env);
        stored.for_each(|secret| secrets.add(&secret));
        Redactor::new(secrets.into_vec())
    }

    /// Returns the saved sessions of this user's agents, with an index in the cache directory and secrets redacted.
    #[must_use]
    pub fn sessions(&self) -> SessionStore {
        let inner = self.inner();
        SessionStore::new(inner.registry.all(), inner.host_env.env.clone(), inner.host_env.home.clone())
            .prices(PriceTable::clone(&inner.prices))
            .index(&inner.host_env.cache)
            .redact(self.redactor())
    }
}

#[cfg(test)]
mod tests;
