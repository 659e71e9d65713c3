//! A daemon that keeps a pool alive between programs, so that a shell loop of runs is as fast as one program with a
//! pool.
//!
//! The daemon listens on a socket in the user's runtime directory that only this user can open. Each connection carries
//! one run: the request and the caller's environment are sent to the daemon, and the events are sent back as lines. If
//! the caller disconnects, its run is cancelled. The daemon exits after a period without work.

mod client;
mod messages;
mod server;

pub use crate::host::daemon::client::{Client, NoDaemon};
pub use crate::host::daemon::messages::DaemonStatus;
pub use crate::host::daemon::server::{DaemonOptions, serve};

use crate::detect::HostEnv;
use std::path::PathBuf;
use tokio::net::UnixStream;

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
    let (host_env, _there) = UnixStream::pair().ok()?;
    Some(host_env.peer_cred().ok()?.uid())
}
