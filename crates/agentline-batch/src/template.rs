//! Workspaces before a run: a directory, or a revision of a Git repository.

use crate::suite::WorkspaceSource;
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Returns the commit of a revision.
///
/// # Errors
/// Fails if Git is missing, or if the repository or the revision does not exist.
pub(crate) fn commit(repository: &str, revision: &str) -> io::Result<String> {
    if Path::new(repository).exists() {
        let name = format!("{revision}^{{commit}}");
        return git(&[
            "-C".as_ref(),
            repository.as_ref(),
            "rev-parse".as_ref(),
            "--verify".as_ref(),
            name.as_ref(),
        ]);
    }
    let is_commit = revision.len() == 40 && revision.bytes().all(|byte| byte.is_ascii_hexdigit());
    if is_commit {
        return Ok(revision.to_owned());
    }
    let listed = git(&["ls-remote".as_ref(), "--".as_ref(), repository.as_ref(), revision.as_ref()])?;
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
    let at: &OsStr = unfinished.as_os_str();
    git(&["init".as_ref(), "--quiet".as_ref(), at])?;
    git(&[
        "-C".as_ref(),
        at,
        "fetch".as_ref(),
        "--quiet".as_ref(),
        "--depth=1".as_ref(),
        "--".as_ref(),
        repository.as_ref(),
        commit.as_ref(),
    ])?;
    git(&["-C".as_ref(), at, "checkout".as_ref(), "--quiet".as_ref(), "--detach".as_ref(), commit.as_ref()])?;
    std::fs::rename(&unfinished, &dir)?;
    Ok(dir)
}

/// Runs Git without prompts and hooks, and returns its output.
fn git(arguments: &[&OsStr]) -> io::Result<String> {
    let output = Command::new("git")
        .args(["-c", "core.hooksPath=/dev/null", "-c", "protocol.ext.allow=never"])
        .args(arguments)
        .env("GIT_TERMINAL_PROMPT", "0")
        .stdin(Stdio::null())
        .output()
        .map_err(|error| io::Error::new(error.kind(), format!("git cannot be started: {error}")))?;
    if !output.status.success() {
        let message = String::from_utf8_lossy(&output.stderr);
        return Err(io::Error::other(format!("git failed: {}", message.trim())));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
