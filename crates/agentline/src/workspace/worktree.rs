//! Git worktrees as workspaces.

use crate::fs::disk_fs::canonicalize;
use crate::workspace::git::git;
use std::{ffi::OsStr, io, path::Path};

/// Creates a worktree of a repository in a directory that is empty or does not exist. Worktrees share refs, the stash and
/// hooks with the repository. Blocks.
///
/// # Errors
/// Fails if Git is missing or refuses it, or if the repository defines filters.
pub fn add(repository: &Path, revision: &str, at: &Path) -> io::Result<()> {
    refuse_filters(repository)?;
    prune(repository)?;
    let words = ["worktree", "add", "--quiet", "--force", "--detach", "--no-checkout"].map(OsStr::new);
    git(repository, &[&words[..], &[at.as_os_str(), OsStr::new(revision)]].concat(), &[])?;
    // Settings may depend on the directory of Git that is used (`includeIf`), so those of the worktree count.
    let reset = ["reset", "--quiet", "--hard", "--no-recurse-submodules"].map(OsStr::new);
    let checked_out = refuse_filters(at).and_then(|()| git(at, &reset, &[]));
    if checked_out.is_err() {
        let remove = ["worktree", "remove", "--force"].map(OsStr::new);
        let _ = git(repository, &[&remove[..], &[at.as_os_str()]].concat(), &[]);
    }
    checked_out.map(drop)
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

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn filter_that_applies_only_to_worktrees_is_refused() {
        let dir = tempfile::tempdir().expect("a directory");
        let (repository, at) = (dir.path().join("repository"), dir.path().join("tree"));
        fs::create_dir(&repository).expect("a directory");
        let run = |words: &[&str]| {
            let identity = ["-c", "user.name=x", "-c", "user.email=x@localhost"];
            let words: Vec<&OsStr> = identity.iter().chain(words).map(OsStr::new).collect();
            git(&repository, &words, &[]).expect("git works")
        };
        fs::write(repository.join("a.txt"), "a").expect("a file");
        fs::write(repository.join(".gitattributes"), "*.txt filter=x\n").expect("a file");
        run(&["init", "--quiet"]);
        run(&["add", "."]);
        run(&["commit", "--quiet", "-m", "x"]);
        add(&repository, "HEAD", &at).expect("a worktree");
        assert_eq!(fs::read_to_string(at.join("a.txt")).expect("a file"), "a");
        fs::remove_dir_all(&at).expect("removed");

        let canary = dir.path().join("canary");
        let smudge = format!("touch '{}'; cat", canary.display());
        run(&["config", "--file", ".git/more", "filter.x.smudge", &smudge]);
        for condition in ["gitdir:**/worktrees/**", "gitdir/i:**/WORKTREES/**"] {
            run(&["config", &format!("includeIf.{condition}.path"), "more"]);
            let refused = add(&repository, "HEAD", &at).expect_err("a filter");
            assert!(refused.to_string().contains("`filter.x.smudge`"), "{refused}");
            assert!(!canary.exists(), "{condition}: the filter ran");
            assert!(!at.exists(), "{condition}: the worktree was kept");
            run(&["config", "--unset", &format!("includeIf.{condition}.path")]);
        }
    }
}
