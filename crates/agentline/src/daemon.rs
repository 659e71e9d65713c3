//! A small daemon that keeps a pool between programs: a shell loop of runs is then as fast as one program with a pool.
//!
//! It listens on a socket that only its user can open, in the user's runtime folder. Each connection is one run: the
//! request and the caller's environment go in, events come out as lines. A caller that goes away stops its run. Without
//! work it ends after a while.

mod client;
mod messages;
mod server;

pub use client::{Client, NoDaemon};
pub use messages::DaemonStatus;
pub use server::{DaemonOptions, serve};

use crate::detect::Here;
use std::path::PathBuf;
use tokio::net::UnixStream;

/// The socket of this user's daemon.
#[must_use]
pub fn socket(here: &Here) -> PathBuf {
    let set = |name: &str| here.env.get(name).map(PathBuf::from).filter(|dir| dir.is_absolute());
    // A cache folder of one's own is a world of its own: tests and sandboxes do not meet the user's daemon.
    let runtime = set("XDG_RUNTIME_DIR").filter(|_| set("AGENTLINE_CACHE_DIR").is_none());
    runtime.map_or_else(|| here.cache.join("run"), |dir| dir.join("agentline")).join("pool.sock")
}

/// Whether the other end is a process of the user who runs this one.
fn is_ours(stream: &UnixStream) -> bool {
    let theirs = stream.peer_cred().ok().map(|peer| peer.uid());
    theirs.is_some() && theirs == own_uid()
}

/// The user who runs this process.
fn own_uid() -> Option<u32> {
    let (here, _there) = UnixStream::pair().ok()?;
    Some(here.peer_cred().ok()?.uid())
}
