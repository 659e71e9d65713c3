//! Inner servers need Unix sockets. Without them, the agents of a server cannot start others.

pub use crate::state::PARENT_VARIABLE;
use crate::state::ServerState;
use std::{collections::BTreeMap, io, path::Path, sync::Arc};
use tokio::io::{AsyncRead, AsyncWrite};

/// The socket for inner servers, which does not exist here.
pub(crate) enum NestedListener {}

impl NestedListener {
    pub(crate) fn open() -> io::Result<Self> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(crate) fn path(&self) -> &Path {
        match *self {}
    }

    pub(crate) async fn accept(&self, _state: &Arc<ServerState>) {
        match *self {}
    }
}

/// Returns `false`: this process is an outermost server.
#[must_use]
pub fn has_parent(_env: &BTreeMap<String, String>) -> bool {
    false
}

/// Returns `false`: this process is an outermost server.
///
/// # Errors
/// Never fails.
pub async fn connect_to_parent(
    _env: &BTreeMap<String, String>,
    _input: impl AsyncRead + Unpin,
    _output: impl AsyncWrite + Unpin,
) -> io::Result<bool> {
    Ok(false)
}
