//! Every session that the agents of a user have saved: found, listed, read, searched, counted and followed.
//!
//! Nothing here writes to an agent's files. What is read once is remembered in one file of our own cache folder, which is
//! believed only as long as the files that it tells about are the same (see `index.rs`). All functions block.

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

pub use filter::Filter;
pub use find::{Found, Place};
pub use list::Summary;
pub use search::{Case, Hit, HitPlace, Query, SearchResult};
pub use usage::{UsageBy, UsageRow};
pub use watch::{Change, Watch};

use crate::{Agentline, look::DiskLook};
use agentline_core::{Agent, PriceTable, Secrets, Veil};
use std::{
    collections::BTreeMap,
    fmt,
    path::{Path, PathBuf},
};

/// The name of the index in our cache folder.
const INDEX: &str = "sessions.index";

/// The saved sessions of one user. Cheap to clone; it holds nothing of them in memory.
#[derive(Clone)]
pub struct Store {
    agents: Vec<&'static dyn Agent>,
    env: BTreeMap<String, String>,
    home: PathBuf,
    prices: PriceTable,
    index: Option<PathBuf>,
    threads: usize,
    east_of_utc: i32,
    veil: Option<Veil>,
}

impl Store {
    /// The sessions of these agents, kept where this environment and home say. Nothing is remembered between calls until
    /// [`index`](Self::index) names a place for it.
    #[must_use]
    pub fn new(
        agents: impl IntoIterator<Item = &'static dyn Agent>,
        env: BTreeMap<String, String>,
        home: impl Into<PathBuf>,
    ) -> Self {
        // Reading waits for the disk and parsing for the processor: two are faster than one even on one core.
        let threads = std::thread::available_parallelism().map_or(2, usize::from).clamp(2, 8);
        Self {
            agents: agents.into_iter().collect(),
            env,
            home: home.into(),
            prices: PriceTable::built_in(),
            index: None,
            threads,
            east_of_utc: 0,
            veil: None,
        }
    }

    /// Prices tokens by this table.
    #[must_use]
    pub fn prices(mut self, prices: PriceTable) -> Self {
        self.prices = prices;
        self
    }

    /// Remembers what was read in this folder. The folder is made when there is something to remember.
    #[must_use]
    pub fn index(mut self, folder: &Path) -> Self {
        self.index = Some(folder.join(INDEX));
        self
    }

    /// Reads everything anew, and remembers nothing.
    #[must_use]
    pub fn no_index(mut self) -> Self {
        self.index = None;
        self
    }

    /// Redacts these secrets, and keys of well-known shapes, in everything that is read. A search does not find them.
    #[must_use]
    pub fn redact(mut self, veil: Veil) -> Self {
        self.veil = Some(veil);
        self
    }

    /// Shows what the agents saved as it is.
    #[must_use]
    pub fn unredacted(mut self) -> Self {
        self.veil = None;
        self
    }

    /// Days begin at midnight so many seconds east of Greenwich.
    #[must_use]
    pub fn east_of_utc(mut self, seconds: i32) -> Self {
        self.east_of_utc = seconds;
        self
    }

    /// Reads with so many threads; at least one.
    #[must_use]
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = threads.max(1);
        self
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let agents: Vec<&str> = self.agents.iter().map(|agent| agent.card().id).collect();
        f.debug_struct("Store")
            .field("agents", &agents)
            .field("home", &self.home)
            .field("index", &self.index)
            .finish_non_exhaustive()
    }
}

impl Agentline {
    /// Knows the secrets of this user: those in the caller's environment and in the agents' own files.
    #[must_use]
    pub fn redactor(&self) -> Veil {
        let (here, agents) = (self.here(), self.inner().roster.all());
        let stored =
            agents.into_iter().flat_map(|agent| agent.stored_secrets(&here.env, &here.home, &DiskLook));
        let mut secrets = Secrets::default();
        secrets.add_variables(&here.env);
        stored.for_each(|secret| secrets.add(&secret));
        Veil::new(secrets.into_vec())
    }

    /// The sessions that this user's agents have saved, with the index in our cache folder. Secrets are redacted.
    #[must_use]
    pub fn sessions(&self) -> Store {
        let inner = self.inner();
        Store::new(inner.roster.all(), inner.here.env.clone(), inner.here.home.clone())
            .prices(PriceTable::clone(&inner.prices))
            .index(&inner.here.cache)
            .redact(self.redactor())
    }
}

#[cfg(test)]
mod tests;
