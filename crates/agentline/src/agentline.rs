//! The entry point of the library: describes the caller's machine and starts runs.

use crate::{
    blocking_work::on_blocking_thread,
    detect::{Detection, HostEnv, cache::DetectCache},
    error::Error,
    fs::{
        disk_fs::DiskFs,
        space::RemainingSpace,
        user_dirs::{home_dir, process_env},
    },
    process::{Isolation, KillDeadline, Supervisor},
    workspace::snapshot::{memo::SnapshotMemo, prints::PrintMemo},
};
use agentline_core::{Agent, AgentId, PriceTable, Problems, Redactor, RunRequest, agents::AgentRegistry};
use std::{collections::BTreeMap, path::PathBuf, sync::Arc, time::Duration};

/// Starts runs of agents on this machine. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Agentline {
    pub(crate) inner: Arc<Inner>,
}

#[derive(Clone, Debug)]
pub(crate) struct Inner {
    pub(crate) host_env: HostEnv,
    pub(crate) programs: BTreeMap<AgentId, PathBuf>,
    pub(crate) registry: AgentRegistry,
    pub(crate) prices: Arc<PriceTable>,
    pub(crate) supervisor: Supervisor,
    pub(crate) isolation: Isolation,
    pub(crate) kill_deadline: Option<KillDeadline>,
    /// Caches that are shared between runs.
    pub(crate) memory: Arc<SharedCaches>,
}

impl Agentline {
    /// Creates an instance from the environment, home and current directory of this process.
    ///
    /// # Errors
    /// Fails if there is no home directory or the current directory cannot be read.
    pub fn from_env() -> Result<Self, Error> {
        let env = process_env();
        let home = home_dir(&env).map_err(|problem| Error::Usage(problem.into()))?;
        let cwd = std::env::current_dir().map_err(Error::io("read", "the current directory"))?;
        Ok(Self::new(HostEnv::new(env, home, cwd)))
    }

    /// Creates an instance for an explicit environment, home and working directory. Reads no process state.
    #[must_use]
    pub fn new(host_env: HostEnv) -> Self {
        let inner = Inner {
            host_env,
            programs: BTreeMap::new(),
            registry: AgentRegistry::default(),
            prices: Arc::new(PriceTable::built_in()),
            supervisor: Supervisor::default(),
            isolation: Isolation::default(),
            kill_deadline: None,
            memory: Arc::default(),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Uses this program for an agent instead of searching for one.
    #[must_use]
    pub fn program(mut self, agent: impl Into<AgentId>, path: impl Into<PathBuf>) -> Self {
        Arc::make_mut(&mut self.inner).programs.insert(agent.into(), path.into());
        self
    }

    /// Sets the price table for the cost of runs.
    #[must_use]
    pub fn prices(mut self, prices: PriceTable) -> Self {
        Arc::make_mut(&mut self.inner).prices = Arc::new(prices);
        self
    }

    /// Returns the price table for the cost of runs.
    #[must_use]
    pub fn price_table(&self) -> &PriceTable {
        &self.inner.prices
    }

    /// Sets the supervisor that cleans up if this program is killed.
    #[must_use]
    pub fn supervisor(mut self, supervisor: Supervisor) -> Self {
        Arc::make_mut(&mut self.inner).supervisor = supervisor;
        self
    }

    /// Sets the deadline at which supervisors kill everything that runs of this instance and its pools started, unless
    /// the program extends it.
    #[must_use]
    pub fn kill_deadline(mut self, deadline: KillDeadline) -> Self {
        Arc::make_mut(&mut self.inner).kill_deadline = Some(deadline);
        self
    }

    /// Sets whether agents get a pid namespace of their own; [`Isolation::Auto`] by default.
    #[must_use]
    pub fn isolation(mut self, isolation: Isolation) -> Self {
        Arc::make_mut(&mut self.inner).isolation = isolation;
        self
    }

    /// Sets the agents that are available: the built-in ones and those of the configuration.
    #[must_use]
    pub fn agents(mut self, registry: AgentRegistry) -> Self {
        Arc::make_mut(&mut self.inner).registry = registry;
        self
    }

    /// Returns the available agents.
    #[must_use]
    pub fn registry(&self) -> &AgentRegistry {
        &self.inner.registry
    }

    /// Returns the environment and directories of the caller.
    #[must_use]
    pub fn host_env(&self) -> &HostEnv {
        &self.inner.host_env
    }

    /// Returns a redactor of this user's secrets: those in the caller's environment and in the agents' own files.
    #[must_use]
    pub fn redactor(&self) -> Redactor {
        self.inner.registry.redactor(&self.inner.host_env.env, &self.inner.host_env.home, &DiskFs)
    }

    /// Checks a request for its agent. Starts nothing.
    ///
    /// # Errors
    /// Returns all problems of the request.
    pub fn validate(&self, request: &RunRequest) -> Result<(), Problems> {
        self.inner.plan(request.clone()).map(|_| ())
    }

    /// Returns the program configured for an agent.
    pub(crate) fn configured(&self, agent: &str) -> Option<PathBuf> {
        self.inner.programs.get(agent).cloned()
    }

    /// Searches for an agent's program. Blocks for a few milliseconds.
    #[must_use]
    pub fn detect(&self, agent: &dyn Agent) -> Detection {
        self.inner.detect(agent)
    }

    pub(crate) fn inner(&self) -> &Inner {
        &self.inner
    }

    /// Runs blocking work on a blocking thread and waits at most `limit` for it. Work that takes longer is abandoned on
    /// its thread.
    pub(crate) async fn blocking_within<T: Send + 'static>(
        &self,
        limit: Duration,
        work: impl FnOnce(&Inner) -> T + Send + 'static,
    ) -> Option<T> {
        tokio::time::timeout(limit, self.blocking(work)).await.ok()
    }

    /// Runs blocking work on a blocking thread and waits for it.
    pub(crate) async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Inner) -> T + Send + 'static,
    ) -> T {
        let inner = Arc::clone(&self.inner);
        on_blocking_thread(move || work(&inner)).await
    }
}

/// The data that a process caches between runs: detections, file digests, free space and snapshots.
#[derive(Debug, Default)]
pub(crate) struct SharedCaches {
    pub(crate) finds: DetectCache,
    pub(crate) files: PrintMemo,
    pub(crate) room: RemainingSpace,
    pub(crate) snapshots: SnapshotMemo,
}
