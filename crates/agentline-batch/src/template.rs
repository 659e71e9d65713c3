//! Workspaces before a run: a directory, or a revision of a Git repository.

use crate::suite::{Suite, WorkspaceSource};
use agentline::isolate::{git, git_with_remote};
use serde::{Deserialize, Serialize};
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};

/// The commit that a revision had when a batch began. The repository has the name that the suite gives it, without
/// credentials.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PinnedRevision {
    repository: String,
    revision: String,
    commit: String,
}

impl PinnedRevision {
    fn is_of(&self, repository: &str, revision: &str) -> bool {
        // An older version has stored the credentials.
        without_credentials(&self.repository) == without_credentials(repository) && self.revision == revision
    }
}

/// Returns the URL of a repository without the user and the password.
fn without_credentials(repository: &str) -> String {
    let Some((scheme, rest)) = repository.split_once("://") else { return repository.to_owned() };
    let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    format!("{scheme}://{host}{path}")
}

/// Replaces the revisions of all cases by their commits, so that a branch that moves during a batch changes no run.
/// Returns the commits.
///
/// # Errors
/// Fails if Git is missing, or if a repository or revision does not exist that a run needs now.
pub(crate) fn pin_revisions(suite: &mut Suite) -> io::Result<Vec<PinnedRevision>> {
    let mut pinned: Vec<PinnedRevision> = Vec::new();
    let selected = suite.cases.iter().map(|case| (case, true));
    for (case, is_selected) in selected.chain(suite.unselected.iter().map(|case| (case, false))) {
        let Some(WorkspaceSource::Git { repository, name, revision }) = &case.workspace else { continue };
        if pinned.iter().any(|known| known.is_of(name, revision)) {
            continue;
        }
        match commit(repository, revision) {
            Ok(commit) => {
                let (repository, revision) = (without_credentials(name), revision.clone());
                pinned.push(PinnedRevision { repository, revision, commit });
            }
            Err(error) if is_selected => return Err(error),
            // A case that is not run now may be incomplete.
            Err(_) => {}
        }
    }
    use_pinned(suite, &pinned);
    Ok(pinned)
}

/// Replaces the revisions of all cases by known commits.
pub(crate) fn use_pinned(suite: &mut Suite, pinned: &[PinnedRevision]) {
    for case in suite.cases.iter_mut().chain(&mut suite.unselected) {
        let Some(WorkspaceSource::Git { name, revision, .. }) = &mut case.workspace else { continue };
        if let Some(known) = pinned.iter().find(|known| known.is_of(name, revision)) {
            revision.clone_from(&known.commit);
        }
    }
}

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
    // SHA-1 or SHA-256.
    let is_commit =
        matches!(revision.len(), 40 | 64) && revision.bytes().all(|byte| byte.is_ascii_hexdigit());
    if is_commit {
        return Ok(revision.to_owned());
    }
    let names = ref_names(revision);
    let mut words = vec!["ls-remote", "--", repository];
    words.extend(names.iter().map(String::as_str));
    let words: Vec<&OsStr> = words.into_iter().map(OsStr::new).collect();
    // The current directory may be in a repository, whose settings could name a command.
    let listed = git_with_remote(Path::new("/"), &words)?;
    find_ref(&listed, &names)
        .map(str::to_owned)
        .ok_or_else(|| io::Error::other(format!("`{repository}` has no branch or tag `{revision}`")))
}

/// Returns the full names of a revision, in the order in which Git looks for them. That of the commit of an annotated tag
/// precedes that of the tag.
fn ref_names(revision: &str) -> Vec<String> {
    let short = revision.strip_prefix("refs/").unwrap_or(revision);
    let full = ["refs/", "refs/tags/", "refs/heads/"].map(|prefix| format!("{prefix}{short}"));
    let full = full.into_iter().flat_map(|name| [format!("{name}^{{}}"), name]);
    std::iter::once(revision.to_owned()).filter(|name| name == "HEAD").chain(full).collect()
}

/// Returns the commit of the first of these names in the output of `git ls-remote`, which also lists refs whose names
/// only end like them.
fn find_ref<'a>(listed: &'a str, names: &[String]) -> Option<&'a str> {
    let find = |name: &String| {
        listed.lines().find_map(|line| line.split_once('\t').filter(|(_, found)| found == name))
    };
    names.iter().find_map(find).map(|(commit, _)| commit)
}

/// Returns the directory of a workspace; a Git revision is checked out below `cache` first.
///
/// # Errors
/// Fails if the revision cannot be checked out.
pub(crate) fn directory(source: &WorkspaceSource, cache: &Path) -> io::Result<PathBuf> {
    let (repository, revision) = match source {
        WorkspaceSource::Directory(path) => return std::fs::canonicalize(path),
        WorkspaceSource::Git { repository, revision, .. } => (repository, revision),
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

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use crate::suite::{SuiteInput, load};

    #[test]
    fn pinned_revisions_have_no_credentials_and_are_found_with_others() {
        let suite = |repository: &str| {
            let commit = "0123456789abcdef0123456789abcdef01234567";
            let text = format!(
                "name: s\ncases: [{{id: a, prompt: x, workspace: {{git: '{repository}', rev: {commit}}}}}]\n"
            );
            let input = SuiteInput::Text { name: "suite.yaml".into(), text, base: std::env::temp_dir() };
            load(&input, &serde_json::Map::new()).expect("a suite")
        };
        for (written, stored) in [
            ("https://x:TOKEN@host/r", "https://host/r"),
            ("https://TOKEN@host:8443/r?a=b@c", "https://host:8443/r?a=b@c"),
            ("git@host:r", "git@host:r"),
        ] {
            let pinned = pin_revisions(&mut suite(written)).expect("commits");
            let text = serde_json::to_string(&pinned).expect("JSON");
            assert_eq!(pinned[0].repository, stored);
            assert!(!text.contains("TOKEN"), "{text}");
            let old = PinnedRevision { repository: written.to_owned(), ..pinned[0].clone() };
            for known in [&pinned[0], &old] {
                assert!(known.is_of(written, &known.revision), "{known:?}");
            }
        }
    }

    #[test]
    fn revision_of_a_remote_repository_is_found_by_its_exact_name() {
        let dir = tempfile::tempdir().expect("a directory");
        let run = |words: &[&str]| {
            let identity = ["-c", "user.name=x", "-c", "user.email=x@localhost"];
            let words: Vec<&OsStr> = identity.iter().chain(words).map(OsStr::new).collect();
            git(dir.path(), &words, &[]).expect("git works")
        };
        run(&["init", "--quiet", "--initial-branch=main"]);
        run(&["commit", "--quiet", "--allow-empty", "-m", "1"]);
        run(&["branch", "a/main"]);
        run(&["commit", "--quiet", "--allow-empty", "-m", "2"]);
        run(&["tag", "-a", "-m", "x", "v1"]);
        run(&["tag", "b/v1", "HEAD~1"]);
        run(&["commit", "--quiet", "--allow-empty", "-m", "3"]);
        let url = format!("file://{}", dir.path().display());
        for (revision, local) in [
            ("main", "main"),
            ("a/main", "a/main"),
            ("refs/heads/main", "main"),
            ("heads/main", "main"),
            ("HEAD", "HEAD"),
            ("v1", "v1^{commit}"),
            ("b/v1", "b/v1"),
        ] {
            assert_eq!(commit(&url, revision).expect("a commit"), run(&["rev-parse", local]), "{revision}");
        }
        for missing in ["mai", "v", "1", "heads"] {
            let error = commit(&url, missing).expect_err("no revision");
            assert!(error.to_string().contains(&format!("no branch or tag `{missing}`")), "{error}");
        }
    }
}
