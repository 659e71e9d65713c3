//! Git worktrees as workspaces of runs.

use crate::suite::WorkspaceSource;
use agentline::isolate::worktree;
use std::io;
use std::path::{Path, PathBuf};

/// Returns the repository and the revision of a worktree.
///
/// # Errors
/// Fails if the workspace is not a clean Git repository on this machine.
pub(crate) fn repository(source: &WorkspaceSource) -> io::Result<(&Path, &str)> {
    match source {
        WorkspaceSource::Directory(path) => worktree::check(path).map(|()| (path.as_path(), "HEAD")),
        WorkspaceSource::Git { repository, revision, .. } if Path::new(repository).is_dir() => {
            Ok((Path::new(repository), revision))
        }
        WorkspaceSource::Git { repository, .. } => Err(io::Error::other(format!(
            "`{repository}` is not on this machine, so it cannot have a worktree"
        ))),
    }
}

/// Fills an empty directory with a worktree, and returns its repository.
///
/// # Errors
/// Fails if the repository cannot have one.
pub(crate) fn add(source: &WorkspaceSource, at: &Path) -> io::Result<PathBuf> {
    let (repository, revision) = repository(source)?;
    worktree::add(repository, revision, at)?;
    Ok(repository.to_owned())
}

/// Makes Git forget worktrees that have been removed.
///
/// # Errors
/// Fails if Git refuses it.
pub(crate) fn prune(repository: &Path) -> io::Result<()> {
    worktree::prune(repository)
}
