//! The directory of a worker.

use crate::execute::lane::Lanes;
use crate::store::Experiment;
use agentline_fs::remove::remove_tree;
use std::io;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// How the names of temporary directories begin.
const PREFIX: &str = "agentline-temporary-worker-";

/// The worker's own store, in its directory. It is locked while the worker runs.
pub(super) const STATE: &str = "state";

/// The directory of a worker. A temporary one is removed when this is dropped.
#[derive(Debug)]
pub(super) struct WorkerDirectory {
    path: PathBuf,
    _temporary: Option<TempDir>,
}

impl WorkerDirectory {
    /// Uses a directory, and creates it if necessary; `None` for a temporary one. What killed workers of this user left
    /// in theirs, hidden files above all, is removed then.
    pub(super) fn open(dir: Option<&Path>) -> io::Result<Self> {
        let temporary = match dir {
            Some(_) => None,
            None => {
                remove_left(&std::env::temp_dir());
                Some(tempfile::Builder::new().prefix(PREFIX).tempdir()?)
            }
        };
        let path = dir.or_else(|| temporary.as_ref().map(TempDir::path)).unwrap_or(Path::new("."));
        agentline_fs::private_file::create_dir_all(path)?;
        Ok(Self { path: std::fs::canonicalize(path)?, _temporary: temporary })
    }

    /// Returns the path, with links resolved.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

/// Removes the temporary directories of workers that have ended.
fn remove_left(parent: &Path) {
    let Ok(entries) = std::fs::read_dir(parent) else { return };
    let is_left = |entry: &std::fs::DirEntry| {
        entry.file_name().to_string_lossy().starts_with(PREFIX) && is_own_directory(&entry.path())
    };
    for entry in entries.flatten().filter(is_left) {
        let state = entry.path().join(STATE);
        // The store of a worker that is starting is created after its lock was taken.
        if Experiment::read(&state).is_ok()
            && let Ok(experiment) = Experiment::open(&state)
        {
            let _ = Lanes::remove_left(&experiment);
            remove_tree(&entry.path());
        }
    }
}

/// Returns whether a path is a directory of this user.
fn is_own_directory(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_ok_and(|file| file.is_dir() && is_own(&file))
}

#[cfg(unix)]
fn is_own(file: &std::fs::Metadata) -> bool {
    std::os::unix::fs::MetadataExt::uid(file) == rustix::process::getuid().as_raw()
}

/// On this system, each user has a temporary directory.
#[cfg(not(unix))]
fn is_own(_: &std::fs::Metadata) -> bool {
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_of_workers_that_have_ended_are_removed() {
        let parent = tempfile::tempdir().expect("a directory");
        let dir = |name: &str| parent.path().join(format!("{PREFIX}{name}"));
        let open = |name: &str| Experiment::open(&dir(name).join(STATE)).expect("a store");
        drop(open("killed"));
        std::fs::create_dir(dir("killed").join("hidden")).expect("a directory");
        let alive = open("alive");
        std::fs::create_dir(dir("starting")).expect("a directory");
        std::fs::create_dir(parent.path().join("other")).expect("a directory");
        remove_left(parent.path());
        assert!(!dir("killed").exists());
        assert!(dir("alive").join(STATE).exists() && dir("starting").exists());
        assert!(parent.path().join("other").exists());
        drop(alive);
        remove_left(parent.path());
        assert!(!dir("alive").exists());
    }
}
