//! Git worktrees as workspaces.

use crate::fs::disk_fs::canonicalize;
use crate::workspace::git::git;
use std::{ffi::OsStr, io, path::Path};

/// Creates a worktree of a repository in a directory that is empty or does not exist. Worktrees share refs, the stash and
/// hooks with the repository. Blocks.
///
/// # Errors
/// Fails if Git is missing or refuses it.
pub fn add(repository: &Path, revision: &str, at: &Path) -> io::Result<()> {
    refuse_filters(repository)?;
    prune(repository)?;
    let words = ["worktree", "add", "--quiet", "--force", "--detach"].map(OsStr::new);
    git(repository, &[&words[..], &[at.as_os_str(), OsStr::new(revision)]].concat(), &[]).map(drop)
}

/// Makes Git forget worktrees whose directories have been removed.
///
/// # Errors
/// Fails if Git refuses it.
pub fn prune(repository: &Path) -> io::Result<()> {
    git(repository, &["worktree".as_ref(), "prune".as_ref()], &[]).map(drop)
}

/// Checks that a directory can have a worktree with the same files.
///
/// # Errors
/// Fails if it is not the top of a Git repository, has changes, because a worktree has only what is committed, or defines
/// filters.
pub fn check(path: &Path) -> io::Result<()> {
    let top = git(path, &["rev-parse".as_ref(), "--show-toplevel".as_ref()], &[])?;
    let is_top = canonicalize(path)? == canonicalize(Path::new(&top))?;
    refuse_filters(path)?;
    let status = ["status", "--porcelain", "--ignore-submodules=all"].map(OsStr::new);
    let changes = git(path, &status, &[])?;
    if is_top && changes.is_empty() {
        return Ok(());
    }
    let reason = if is_top { "has uncommitted changes" } else { "is not the top of a Git repository" };
    Err(io::Error::other(format!("`{}` {reason}, so it cannot have a worktree", path.display())))
}

/// Refuses a repository whose own settings define filters: they are commands, which Git would run without trust in the
/// workspace. Filters in the user's settings are the user's choice.
fn refuse_filters(repository: &Path) -> io::Result<()> {
    let query = ["config", "--show-scope", "--name-only", "--get-regexp", r"^filter\."];
    // Without a match, Git fails without a message.
    let filters = match git(repository, &query.map(OsStr::new), &[]) {
        Ok(filters) => filters,
        Err(error) if error.to_string() == "git failed: " => return Ok(()),
        Err(error) => return Err(error),
    };
    match filters.lines().find(|line| line.starts_with("local") || line.starts_with("worktree")) {
        None => Ok(()),
        Some(line) => {
            let name = line.split_whitespace().last().unwrap_or_default();
            let message = format!("`{}` defines `{name}`, a command", repository.display());
            Err(io::Error::other(message))
        }
    }
}
