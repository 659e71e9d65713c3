//! The errors of operations that return no outcome. Failures of a started run are in its outcome.

use agentline_core::{Problem, Problems};
use std::path::PathBuf;

/// An error that prevents a run, a session or a lookup. Its `source` has the error of the operating system, if any.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The request is invalid: every problem, with its key and a hint.
    #[error(transparent)]
    Usage(#[from] Problems),
    /// There is no such saved session. The problem has the searched id and a hint.
    #[error(transparent)]
    NoSession(Problem),
    /// The session could not be opened; the outcome has the reason.
    #[error("cannot open the session: {}", .0.error.as_ref().map_or("", |e| e.message.as_str()))]
    NotOpened(Box<agentline_core::Outcome>),
    /// A file-system or system operation failed.
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

impl Error {
    /// Creates an I/O error with the operation and path that failed.
    pub(crate) fn io(
        operation: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { operation, path, source }
    }

    /// Replaces the problems of an invalid request.
    pub(crate) fn with_problems(self, replace: impl FnOnce(Problems) -> Problems) -> Self {
        match self {
            Self::Usage(problems) => Self::Usage(replace(problems)),
            other => other,
        }
    }
}
