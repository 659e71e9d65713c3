//! The messages between daemon and client, one per line. Events have the format of `--output events`.

use crate::{detect::HostEnv, pool::PoolStatus, run::Launched};
use agentline_core::{Isolation, PriceTable, Problem, RunRequest, Signal, config::AgentSettings};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, path::PathBuf};

/// The version of the protocol. Client and daemon must have the same version, because requests change between versions.
pub(super) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// A message from a client.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ToDaemon {
    Run(Box<DaemonRun>),
    /// Cancels the run of this connection with this signal.
    Cancel(Signal),
    Status,
    /// Stops all agents and exits.
    Stop,
}

/// A run request with the environment of its caller.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct DaemonRun {
    pub(super) env: BTreeMap<String, String>,
    pub(super) home: PathBuf,
    pub(super) cwd: PathBuf,
    pub(super) project: PathBuf,
    pub(super) cache: PathBuf,
    pub(super) programs: BTreeMap<String, PathBuf>,
    /// The agents that the caller's configuration adds.
    pub(super) agents: BTreeMap<String, AgentSettings>,
    /// The prices, if they differ from the built-in ones.
    pub(super) prices: Option<PriceTable>,
    /// Whether the agent gets a pid namespace.
    #[serde(default)]
    pub(super) isolation: Isolation,
    pub(super) request: RunRequest,
}

impl DaemonRun {
    pub(super) fn host_env(&self) -> HostEnv {
        let mut host_env = HostEnv::new(self.env.clone(), &self.home, &self.cwd);
        host_env.project.clone_from(&self.project);
        host_env.cache.clone_from(&self.cache);
        host_env
    }
}

/// A message from the daemon other than an event.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum FromDaemon {
    /// The first message on every connection.
    Hello {
        version: String,
        pid: u32,
    },
    /// The run has started or is in the queue.
    Begun {
        run_id: String,
        launched: Launched,
    },
    /// The request is invalid.
    Usage(Vec<Problem>),
    Failed(String),
    Status(Box<DaemonStatus>),
    Stopping,
}

/// The status of the daemon.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct DaemonStatus {
    /// The version of the daemon.
    pub version: String,
    /// The process id of the daemon.
    pub pid: u32,
    /// The socket that the daemon listens on.
    pub socket: PathBuf,
    /// The time since the daemon started.
    pub age_ms: u64,
    /// The time without work after which the daemon exits.
    pub idle_exit_ms: u64,
    /// The status of the pool.
    pub pool: PoolStatus,
}
