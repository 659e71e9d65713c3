//! Errors of an experiment's directory.

use std::path::PathBuf;

/// An error of the experiment's directory.
#[derive(Debug)]
#[non_exhaustive]
pub enum StoreError {
    /// Another batch uses the directory.
    Locked(PathBuf),
    /// The directory was written by a newer version.
    Newer(PathBuf),
    /// There is no experiment in the directory.
    Missing(PathBuf),
    /// The run already has a result.
    Committed(String),
    /// The key of a run cannot be the name of a directory.
    InvalidKey(String),
    /// The directory cannot be used.
    Io(PathBuf, std::io::Error),
    /// The database cannot be used.
    Database(rusqlite::Error),
}

impl std::fmt::Display for StoreError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Locked(dir) => write!(f, "another batch is running in `{}`", dir.display()),
            Self::Newer(dir) => write!(f, "`{}` was written by a newer version of agentline", dir.display()),
            Self::Missing(dir) => write!(f, "there is no experiment in `{}`", dir.display()),
            Self::Committed(run) => write!(f, "the run `{run}` already has a result"),
            Self::InvalidKey(run) => write!(f, "`{run}` is not the key of a run"),
            Self::Io(path, _) => write!(f, "`{}` cannot be used", path.display()),
            Self::Database(_) => f.write_str("the database of the experiment cannot be used"),
        }
    }
}

impl std::error::Error for StoreError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io(_, error) => Some(error),
            Self::Database(error) => Some(error),
            _ => None,
        }
    }
}

impl StoreError {
    /// Returns whether there is no space left on the disk.
    #[must_use]
    pub fn is_full(&self) -> bool {
        match self {
            Self::Io(_, error) => error.kind() == std::io::ErrorKind::StorageFull,
            Self::Database(rusqlite::Error::SqliteFailure(error, _)) => {
                error.code == rusqlite::ErrorCode::DiskFull
            }
            _ => false,
        }
    }
}

impl From<rusqlite::Error> for StoreError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Database(error)
    }
}
