//! Why a run could not even be tried. Everything that happens after a run has begun is in its outcome instead.

use agentline_core::{Problem, Problems};
use std::path::PathBuf;

/// Why a run could not be tried. Nothing was started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// What was asked for is wrong: every problem, with its key and the way out.
    #[error("{0}")]
    Usage(#[from] Problems),
    /// There is no such saved session; the problem says what was looked for, and the way out.
    #[error("{0}")]
    NoSession(Problem),
    /// A conversation could not be opened; the outcome says why.
    #[error("the session could not be opened: {}", .0.error.as_ref().map_or("", |e| e.message.as_str()))]
    NotOpened(Box<agentline_core::Outcome>),
    /// The machine did not let us prepare the run.
    #[error("could not {what} {}: {source}", .path.display())]
    Io {
        /// What we were about to do.
        what: &'static str,
        /// With which file or folder.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
}

impl Error {
    /// An error of the file system, with what we were about to do.
    pub(crate) fn io(what: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { what, path, source }
    }
}
