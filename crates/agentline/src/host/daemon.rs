//! A daemon that keeps a pool alive between programs, so that a shell loop of runs is as fast as one program with a
//! pool.
//!
//! The daemon listens on a socket in the user's runtime directory that only this user can open, and serves each
//! connection with the host protocol. All connections share its pool. A client sends its environment with `initialize`;
//! if it disconnects, its runs are cancelled. The daemon exits after a period without work.

mod client;
mod server;

pub use crate::host::daemon::client::{Client, NoDaemon};
pub use crate::host::daemon::server::{DaemonOptions, LastConnections, serve};

use crate::{detect::HostEnv, host::messages::DaemonInfo, pool::PoolStatus};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use tokio::net::UnixStream;

/// The version of the daemon. Complete requests change between versions, so client and daemon must have the same one.
const VERSION: &str = env!("CARGO_PKG_VERSION");

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

impl DaemonStatus {
    fn new(daemon: DaemonInfo, pool: PoolStatus) -> Self {
        let DaemonInfo { version, pid, socket, age_ms, idle_exit_ms } = daemon;
        Self { version, pid, socket, age_ms, idle_exit_ms, pool }
    }
}

/// Returns the path of the socket of this user's daemon.
#[must_use]
pub fn socket(host_env: &HostEnv) -> PathBuf {
    let set = |name: &str| host_env.env.get(name).map(PathBuf::from).filter(|dir| dir.is_absolute());
    // With a separate cache directory, tests and sandboxes do not use the user's daemon.
    let runtime = set("XDG_RUNTIME_DIR").filter(|_| set("AGENTLINE_CACHE_DIR").is_none());
    runtime.map_or_else(|| host_env.cache.join("run"), |dir| dir.join("agentline")).join("pool.sock")
}

/// Returns whether the peer process belongs to the user of this process.
fn is_ours(stream: &UnixStream) -> bool {
    let theirs = stream.peer_cred().ok().map(|peer| peer.uid());
    theirs.is_some() && theirs == own_uid()
}

/// Returns the user id of this process.
fn own_uid() -> Option<u32> {
    let (socket, _other) = UnixStream::pair().ok()?;
    Some(socket.peer_cred().ok()?.uid())
}
