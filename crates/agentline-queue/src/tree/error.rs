//! Errors of sending a tree.

use crate::QueueError;
use std::io;
use std::path::{Path, PathBuf};

/// An error of sending a directory or a file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TreeError {
    /// A file or directory cannot be read or written.
    #[error("`{}`: {source}", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// What the operating system says.
        source: io::Error,
    },
    /// The tree contains something that cannot be sent.
    #[error("`{}` is {kind}: only files, directories and links can be sent", path.display())]
    SpecialFile {
        /// The file.
        path: PathBuf,
        /// What it is.
        kind: &'static str,
    },
    /// A path cannot be sent because it is too long, or because its name is not Unicode on a system where it has to be.
    #[error("the name of `{}` cannot be sent: it is longer than {longest} bytes, or not Unicode", path.display())]
    InvalidName {
        /// The path.
        path: PathBuf,
        /// The length of the longest path in bytes.
        longest: usize,
    },
    /// The tree is too large.
    #[error("`{}` has {size} bytes; at most {limit} can be sent", path.display())]
    TooLarge {
        /// The directory.
        path: PathBuf,
        /// The size of its files and their names in bytes.
        size: u64,
        /// The largest possible size in bytes.
        limit: u64,
    },
    /// The tree contains too many files.
    #[error("`{}` has more than {limit} files", path.display())]
    TooManyFiles {
        /// The directory.
        path: PathBuf,
        /// The largest possible number of files, directories and links.
        limit: usize,
    },
    /// A file of the tree is too large.
    #[error("the file `{}` has {size} bytes; at most {limit} can be sent", path.display())]
    FileTooLarge {
        /// The file.
        path: PathBuf,
        /// Its size in bytes.
        size: u64,
        /// The largest possible size in bytes.
        limit: u64,
    },
    /// A file changed while it was read.
    #[error("`{}` changed while it was read", path.display())]
    Changed {
        /// The file.
        path: PathBuf,
    },
    /// The store does not have a piece of the tree.
    #[error("the artifact `{0}` is missing")]
    Missing(String),
    /// The downloaded content is not a tree that may be unpacked.
    #[error("the tree `{name}` is invalid: {reason}")]
    Invalid {
        /// The name of the tree.
        name: String,
        /// What is wrong.
        reason: String,
    },
    /// The store failed.
    #[error(transparent)]
    Queue(#[from] QueueError),
}

/// Adds a path to an error of the operating system.
pub(super) fn at(path: &Path) -> impl Fn(io::Error) -> TreeError + '_ {
    |source| TreeError::Io { path: path.to_owned(), source }
}
