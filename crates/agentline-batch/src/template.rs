//! Workspaces before a run: a directory, or a revision of a Git repository.

use crate::suite::WorkspaceSource;
use agentline::isolate::{git, git_with_remote};
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};

/// Returns the commit of a revision.
///
/// # Errors
/// Fails if Git is missing, or if the repository or the revision does not exist.
pub(crate) fn commit(repository: &str, revision: &str) -> io::Result<String> {
    if Path::new(repository).exists() {
        let name = format!("{revision}^{{commit}}");
        let words = ["rev-parse", "--verify", &name].map(OsStr::new);
        return git(Path::new(repository), &words, &[]);
    }
    let is_commit = revision.len() == 40 && revision.bytes().all(|byte| byte.is_ascii_hexdigit());
    if is_commit {
        return Ok(revision.to_owned());
    }
    let words = ["ls-remote", "--", repository, revision].map(OsStr::new);
    // The current directory may be in a repository, whose settings could name a command.
    let listed = git_with_remote(Path::new("/"), &words)?;
    let first = listed.split_whitespace().next().filter(|commit| !commit.is_empty());
    first
        .map(str::to_owned)
        .ok_or_else(|| io::Error::other(format!("`{repository}` has no revision `{revision}`")))
}

/// Returns the directory of a workspace; a Git revision is checked out below `cache` first.
///
/// # Errors
/// Fails if the revision cannot be checked out.
pub(crate) fn directory(source: &WorkspaceSource, cache: &Path) -> io::Result<PathBuf> {
    let (repository, revision) = match source {
        WorkspaceSource::Directory(path) => return std::fs::canonicalize(path),
        WorkspaceSource::Git { repository, revision } => (repository, revision),
    };
    let commit = commit(repository, revision)?;
    let dir = cache.join(&commit);
    if dir.is_dir() {
        return Ok(dir);
    }
    let unfinished = cache.join(format!("{commit}.tmp"));
    std::fs::create_dir_all(&unfinished)?;
    let in_checkout = |words: &[&str]| {
        let words: Vec<&OsStr> = words.iter().map(OsStr::new).collect();
        git_with_remote(&unfinished, &words)
    };
    // A relative path of a repository starts from the directory of the program.
    let local = std::fs::canonicalize(repository).ok();
    let from = local.as_deref().map_or(repository.into(), Path::to_string_lossy);
    in_checkout(&["init", "--quiet"])?;
    in_checkout(&["fetch", "--quiet", "--depth=1", "--", &from, &commit])?;
    in_checkout(&["checkout", "--quiet", "--detach", &commit])?;
    std::fs::rename(&unfinished, &dir)?;
    Ok(dir)
}
