//! What daemon and caller say to each other, a line each. Events travel as the lines that `--output events` prints.

use crate::{detect::Here, pool::PoolStatus, run::Launched};
use agentline_core::{Isolation, PriceTable, Problem, RunRequest, config::AgentSettings};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, path::PathBuf};

/// Caller and daemon must be of one make: requests grow with each version.
pub(super) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// What a caller says.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ToDaemon {
    Run(Box<RunOrder>),
    /// Stop the run of this connection, by this signal.
    Cancel(i32),
    Status,
    /// Let all agents go and end.
    Stop,
}

/// One run, and whose it is.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct RunOrder {
    pub(super) env: BTreeMap<String, String>,
    pub(super) home: PathBuf,
    pub(super) cwd: PathBuf,
    pub(super) project: PathBuf,
    pub(super) cache: PathBuf,
    pub(super) programs: BTreeMap<String, PathBuf>,
    /// The agents that the caller's configuration adds.
    pub(super) agents: BTreeMap<String, AgentSettings>,
    /// Where they are not those that come with this version.
    pub(super) prices: Option<PriceTable>,
    /// Whether the agent gets a pid namespace.
    #[serde(default)]
    pub(super) isolation: Isolation,
    pub(super) request: RunRequest,
}

impl RunOrder {
    pub(super) fn here(&self) -> Here {
        let mut here = Here::new(self.env.clone(), &self.home, &self.cwd);
        here.project.clone_from(&self.project);
        here.cache.clone_from(&self.cache);
        here
    }
}

/// What the daemon says besides events.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum FromDaemon {
    /// Said first on every connection.
    Hello {
        version: String,
        pid: u32,
    },
    /// The run has begun, or has its place in the queue.
    Begun {
        run_id: String,
        launched: Launched,
    },
    /// What was asked for is wrong.
    Usage(Vec<Problem>),
    Failed(String),
    Status(Box<DaemonStatus>),
    Stopping,
}

/// How the daemon stands.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct DaemonStatus {
    /// Its version.
    pub version: String,
    /// Its process.
    pub pid: u32,
    /// Where it listens.
    pub socket: PathBuf,
    /// Since it was started.
    pub age_ms: u64,
    /// After how long without work it ends.
    pub idle_exit_ms: u64,
    /// Its agents.
    pub pool: PoolStatus,
}
