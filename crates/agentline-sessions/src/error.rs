//! The errors of finding and reading saved sessions.

use agentline_core::{Problem, Problems};
use std::path::PathBuf;

/// An error that prevents a lookup of saved sessions. Damage in a session is part of the session instead.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// The request is invalid: every problem, with its key and a hint.
    #[error(transparent)]
    Usage(#[from] Problems),
    /// There is no such saved session. The problem has the searched id and a hint.
    #[error(transparent)]
    NoSession(Problem),
    /// A file or database cannot be read.
    #[error("cannot {operation} {}", .path.display())]
    Io {
        /// The operation, as a verb.
        operation: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
}

impl SessionError {
    /// Creates an I/O error with the operation and path that failed.
    pub(crate) fn io(
        operation: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { operation, path, source }
    }
}
