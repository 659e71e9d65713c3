//! What agents in overlays must not see: hidden files, the suite, the experiment, and Git's copies of them.

use crate::suite::{Suite, WorkspaceSource};
use agentline::isolate::git;
use agentline_fs::regular_file::read_regular;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};

/// The largest file of Git that names another directory.
const MAX_LINK: u64 = 64 << 10;

/// What agents in overlays must not see, and what they must not change.
#[derive(Debug, Default)]
pub(crate) struct Covers {
    /// The paths that are empty for an agent.
    pub(crate) covered: Vec<PathBuf>,
    /// The directories that are the templates of workspaces.
    pub(crate) templates: Vec<PathBuf>,
}

impl Covers {
    /// Finds the paths of a suite. All of them exist.
    pub(crate) fn of(suite: &Suite, experiment: &Path) -> Self {
        let real = |path: &Path| std::fs::canonicalize(path).ok();
        let mut covered: BTreeSet<PathBuf> = suite.files.iter().filter_map(|path| real(path)).collect();
        let (mut templates, mut repositories) = (BTreeSet::new(), BTreeSet::new());
        for case in suite.cases.iter().chain(&suite.unselected) {
            covered.extend(case.hidden.iter().filter_map(|path| real(path)));
            match &case.workspace {
                Some(WorkspaceSource::Directory(path)) => templates.extend(real(path)),
                Some(WorkspaceSource::Git { repository, .. }) => {
                    repositories.extend(real(Path::new(repository)));
                }
                None => {}
            }
        }
        let owners: Vec<&PathBuf> = covered.iter().chain(&templates).chain(&repositories).collect();
        let git_dirs: Vec<PathBuf> = owners.into_iter().flat_map(|path| git_dirs(path)).collect();
        covered.extend(git_dirs);
        covered.extend(real(experiment));
        Self { covered: covered.into_iter().collect(), templates: templates.into_iter().collect() }
    }
}

/// Returns the directories in which Git stores the objects of the repositories around a path.
fn git_dirs(path: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for dir in path.ancestors() {
        let git = dir.join(".git");
        if git.is_dir() {
            found.push(git);
        } else if let Some(target) = linked(&git, "gitdir:", dir) {
            // A worktree or submodule.
            found.extend(linked(&target.join("commondir"), "", &target));
            found.push(target);
        } else if dir.join("HEAD").is_file() && dir.join("objects").is_dir() {
            found.push(dir.to_owned());
        }
    }
    found
}

/// Returns the directory that a file of Git names after a prefix.
fn linked(file: &Path, prefix: &str, base: &Path) -> Option<PathBuf> {
    let text = String::from_utf8(read_regular(file, MAX_LINK).ok()?).ok()?;
    let target = text.trim().strip_prefix(prefix)?.trim();
    std::fs::canonicalize(base.join(target)).ok().filter(|dir| dir.is_dir())
}

/// Returns whether the repository in a template has one of the hidden files in its history, where the agent finds it.
///
/// # Errors
/// Fails if Git is missing, or if a file cannot be read.
pub(crate) fn is_in_history(template: &Path, hidden: &[PathBuf]) -> io::Result<bool> {
    if !template.join(".git").exists() {
        return Ok(false);
    }
    let mut names = Vec::new();
    let mut waiting = hidden.iter().map(std::fs::canonicalize).collect::<io::Result<Vec<_>>>()?;
    while let Some(path) = waiting.pop() {
        if std::fs::symlink_metadata(&path)?.is_dir() {
            for entry in std::fs::read_dir(&path)? {
                waiting.push(entry?.path());
            }
        } else if std::fs::metadata(&path).is_ok_and(|file| file.is_file() && file.len() > 0) {
            // An empty file tells nothing, and every repository may have one.
            names.extend(path.as_os_str().as_encoded_bytes());
            names.push(b'\n');
        }
    }
    let hash = ["hash-object", "--no-filters", "--stdin-paths"].map(OsStr::new);
    let hashes = git(template, &hash, &names)?;
    let check = ["cat-file", "--batch-check"].map(OsStr::new);
    let found = git(template, &check, hashes.as_bytes())?;
    Ok(found.lines().any(|line| !line.ends_with("missing")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use agentline::isolate::git_with_remote;

    fn run(dir: &Path, words: &[&str]) {
        let identity = ["-c", "user.name=x", "-c", "user.email=x@localhost"];
        let words: Vec<&OsStr> = identity.iter().chain(words).map(OsStr::new).collect();
        git_with_remote(dir, &words).expect("git works");
    }

    #[test]
    fn git_directories_of_repositories_and_worktrees_are_found() {
        let dir = tempfile::tempdir().expect("a directory");
        let root = std::fs::canonicalize(dir.path()).expect("a path");
        let (main, tree, bare) = (root.join("main"), root.join("tree"), root.join("bare"));
        std::fs::create_dir_all(main.join("hidden")).expect("a directory");
        std::fs::write(main.join("hidden/answer.txt"), "42\n").expect("a file");
        run(&main, &["init", "--quiet"]);
        run(&main, &["add", "."]);
        run(&main, &["commit", "--quiet", "-m", "x"]);
        run(&main, &["worktree", "add", "--quiet", "--detach", &tree.to_string_lossy()]);
        run(&root, &["clone", "--quiet", "--bare", "main", "bare"]);
        // The temporary directory may itself be in a repository.
        let inside = |path: &Path| -> Vec<PathBuf> {
            git_dirs(path).into_iter().filter(|dir| dir.starts_with(&root)).collect()
        };
        assert_eq!(inside(&main.join("hidden")), [main.join(".git")]);
        assert!(inside(&tree.join("hidden")).contains(&main.join(".git")));
        assert_eq!(inside(&bare), [bare]);
        assert!(inside(&root.join("elsewhere")).is_empty());
    }

    #[test]
    fn hidden_files_in_the_history_of_a_template_are_found() {
        let dir = tempfile::tempdir().expect("a directory");
        let (template, hidden) = (dir.path().join("template"), dir.path().join("hidden"));
        for path in [&template, &hidden] {
            std::fs::create_dir(path).expect("a directory");
        }
        std::fs::write(hidden.join("answer.txt"), "42\n").expect("a file");
        std::fs::write(hidden.join("empty"), "").expect("a file");
        let is_found = || is_in_history(&template, std::slice::from_ref(&hidden)).expect("git works");
        assert!(!is_found(), "there is no repository");
        run(&template, &["init", "--quiet"]);
        std::fs::write(template.join("empty"), "").expect("a file");
        run(&template, &["add", "."]);
        run(&template, &["commit", "--quiet", "-m", "x"]);
        assert!(!is_found());
        std::fs::write(template.join("solution.txt"), "42\n").expect("a file");
        run(&template, &["add", "."]);
        run(&template, &["commit", "--quiet", "-m", "x"]);
        run(&template, &["rm", "--quiet", "solution.txt"]);
        run(&template, &["commit", "--quiet", "-m", "x"]);
        assert!(is_found(), "the file is in an earlier commit");
    }
}
