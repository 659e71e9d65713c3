//! A live agent process before its event loop starts, and what the loop reports about it.

use crate::{
    fs::private_dir::PrivateDir,
    process::{Process, temp_dir::ProcessTemp},
    resolve::integrity::Integrity,
    run::{
        abandoned_session::AbandonedSession,
        active_run::{Submission, UnavailableReason},
        channel::Wakeup,
        client_port::ClientPort,
        tape_file::TapeFile,
    },
};
use agentline_core::{Connection, UsageTotals};
use std::{path::PathBuf, sync::Arc, time::Instant};
use tokio::sync::{mpsc::UnboundedReceiver, watch};

/// A live process before its event loop starts.
pub(crate) struct SpawnedProcess {
    pub(crate) process: Process,
    pub(crate) connection: Connection,
    /// The client of the agent, if it has one.
    pub(crate) client: Option<ClientPort>,
    /// Secrets that are redacted in the output of every run.
    pub(crate) secrets: Vec<String>,
    pub(crate) tape: Option<TapeFile>,
    pub(crate) max_line: usize,
    pub(crate) started_at: Instant,
    /// Directories that are removed after the process: its private directory, and its temporary workspace if it has
    /// one.
    pub(crate) private: (PrivateDir, Option<Arc<PrivateDir>>),
    /// The state of the files that enforce the policy.
    pub(crate) integrity: Arc<Integrity>,
    /// Files to copy from the private directory back to the user's home.
    pub(crate) copy_back: Vec<(PathBuf, PathBuf)>,
    /// Submitted runs. When all senders are dropped, the process is retired.
    pub(crate) submissions: UnboundedReceiver<Submission>,
    pub(crate) wakeup: Wakeup,
    pub(crate) state: watch::Sender<ProcessLoad>,
    pub(crate) unavailable: UnavailableReason,
    /// Whether the process outlives its runs.
    pub(crate) lives_on: bool,
    /// A session that the agent opens by itself when it starts.
    pub(crate) abandoned: Option<AbandonedSession>,
    pub(crate) temp: ProcessTemp,
}

/// The state of a live process, as its loop reports it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ProcessLoad {
    /// Whether the agent has answered.
    pub(crate) ready: bool,
    /// Whether the process accepts no more runs.
    pub(crate) closed: bool,
    /// The number of runs on the process.
    pub(crate) active_runs: usize,
    /// The number of runs so far.
    pub(crate) served: u32,
    /// The reported usage of all runs together.
    pub(crate) spent: UsageTotals,
}
