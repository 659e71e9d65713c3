//! The entry point: which agents' sessions are read, for which user, and how.

use crate::error::SessionError;
use agentline_core::{Agent, PriceTable, Redactor, agents::AgentRegistry};
use agentline_fs::{
    disk_fs::DiskFs,
    user_dirs::{cache_dir, home_dir, process_env},
};
use std::{
    collections::BTreeMap,
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
};

/// The file name of the index in the cache directory.
pub(crate) const INDEX: &str = "sessions.index";

/// The saved sessions of one user.
///
/// Cheap to clone: a store holds no session in memory.
#[derive(Clone)]
pub struct SessionStore {
    pub(crate) agents: Vec<Arc<dyn Agent>>,
    pub(crate) env: BTreeMap<String, String>,
    pub(crate) home: PathBuf,
    pub(crate) prices: PriceTable,
    pub(crate) index: Option<PathBuf>,
    pub(crate) threads: usize,
    pub(crate) east_of_utc: i32,
    pub(crate) redactor: Option<Redactor>,
}

impl SessionStore {
    /// Creates a store for the built-in agents from the environment and home directory of this process. It has an index
    /// in agentline's cache directory and redacts secrets.
    ///
    /// # Errors
    /// Fails if there is no home directory.
    pub fn from_env() -> Result<Self, SessionError> {
        let env = process_env();
        let home = home_dir(&env).map_err(|problem| SessionError::Usage(problem.into()))?;
        let registry = AgentRegistry::default();
        let redactor = registry.redactor(&env, &home, &DiskFs);
        let cache = cache_dir(&env, &home);
        Ok(Self::new(registry.all().iter().cloned(), env, home).index(&cache).redact(redactor))
    }

    /// Creates a store for these agents, whose sessions are located through `env` and `home`.
    ///
    /// The store has no index until [`index`](Self::index) sets its directory.
    #[must_use]
    pub fn new(
        agents: impl IntoIterator<Item = Arc<dyn Agent>>,
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

#[cfg(test)]
mod tests;
