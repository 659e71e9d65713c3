//! The places where runs happen. Each lane has one workspace path, which a warm agent keeps, and one run at a time.

use super::BatchError;
use crate::store::Experiment;
use crate::suite::WorkspaceSource;
use crate::template;
use agentline::isolate::WorkspaceCopy;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// The name of the stored path of the lanes, so that the next batch removes what a killed one left behind.
const META: &str = "lanes";

/// The file in the directory of the lanes that names the experiment to which they belong.
const OWNER: &str = "experiment";

/// Removes the lanes of a killed batch. The path comes from the database, which may be the work of somebody else, so
/// only a directory that names this experiment is removed.
fn remove_lanes(root: &Path, experiment: &Path) {
    let owner = agentline_fs::regular_file::read_regular(&root.join(OWNER), 64 << 10);
    let is_ours = owner.is_ok_and(|owner| owner == experiment.as_os_str().as_encoded_bytes());
    if is_ours {
        remove_tree(root);
    }
}

/// The lanes of a batch.
#[derive(Debug)]
pub(crate) struct Lanes {
    root: PathBuf,
    state: Mutex<LaneNumbers>,
}

#[derive(Debug, Default)]
struct LaneNumbers {
    free: Vec<usize>,
    count: usize,
}

/// A lane that a run uses. Dropping it frees the lane.
#[derive(Debug)]
pub(crate) struct Lane<'a> {
    lanes: &'a Lanes,
    number: usize,
}

impl Lanes {
    /// Creates the directory of the lanes, outside the experiment's directory: an agent must not find results.
    pub(crate) fn create(experiment: &Experiment) -> Result<Self, BatchError> {
        let dir = std::fs::canonicalize(experiment.dir()).unwrap_or_else(|_| experiment.dir().to_owned());
        if let Some(left) = experiment.meta(META)? {
            remove_lanes(Path::new(&left), &dir);
        }
        let wrong = |error| BatchError::Io("a temporary directory cannot be created".into(), error);
        let root = tempfile::Builder::new().prefix("agentline-batch-").tempdir().map_err(wrong)?.keep();
        let root = std::fs::canonicalize(&root).map_err(wrong)?;
        std::fs::write(root.join(OWNER), dir.as_os_str().as_encoded_bytes()).map_err(wrong)?;
        experiment.set_meta(META, &root.to_string_lossy())?;
        Ok(Self { root, state: Mutex::default() })
    }

    /// Returns a free lane.
    pub(crate) fn take(&self) -> Lane<'_> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        // The last used lane first: its agent is warm.
        let number = state.free.pop().unwrap_or(state.count);
        state.count = state.count.max(number + 1);
        Lane { lanes: self, number }
    }

    /// Removes everything.
    pub(crate) fn remove(&self, experiment: &Experiment) {
        remove_tree(&self.root);
        let _ = experiment.set_meta(META, "");
    }

    fn templates(&self) -> PathBuf {
        self.root.join("templates")
    }
}

impl Lane<'_> {
    /// Returns the path of the workspace.
    pub(crate) fn workspace(&self) -> PathBuf {
        self.dir().join("workspace")
    }

    fn dir(&self) -> PathBuf {
        self.lanes.root.join(format!("lane-{}", self.number))
    }

    /// Fills the workspace with the files of a case. The directory itself stays, because a warm agent is in it.
    pub(crate) fn fill(&self, source: Option<&WorkspaceSource>) -> io::Result<Option<WorkspaceCopy>> {
        let workspace = self.workspace();
        clear(&workspace)?;
        let Some(source) = source else { return Ok(None) };
        let template = template::directory(source, &self.lanes.templates())?;
        WorkspaceCopy::make(&template, &workspace, &self.lanes.root, &|| false).map(Some)
    }

    /// Returns a directory for checks: the workspace of the run itself, or a copy of it with the hidden files.
    pub(crate) fn for_checks(&self, workspace: &Path, hidden: &[PathBuf]) -> io::Result<PathBuf> {
        if hidden.is_empty() {
            return Ok(workspace.to_owned());
        }
        let checked = self.dir().join("checked");
        clear(&checked)?;
        WorkspaceCopy::make(workspace, &checked, &self.lanes.root, &|| false)?;
        for source in hidden {
            copy_hidden(source, &checked)?;
        }
        Ok(checked)
    }

    /// Removes what the checks saw, so that the next run in this lane cannot find it.
    pub(crate) fn forget_checks(&self) {
        remove_tree(&self.dir().join("checked"));
    }

    /// Keeps the workspace of a run.
    pub(crate) fn keep(&self, target: &Path) -> io::Result<()> {
        WorkspaceCopy::make(&self.workspace(), target, &self.lanes.root, &|| false).map(|_| ())
    }

    /// Returns an empty directory for a judge.
    pub(crate) fn for_judge(&self) -> io::Result<PathBuf> {
        let dir = self.dir().join("judge");
        clear(&dir)?;
        Ok(dir)
    }
}

impl Drop for Lane<'_> {
    fn drop(&mut self) {
        let mut state = self.lanes.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.free.push(self.number);
    }
}

/// Copies hidden files over a workspace: the content of a directory, or one file. Whatever the agent put in their place,
/// such as a link to another directory, is removed first.
fn copy_hidden(source: &Path, target: &Path) -> io::Result<()> {
    if !source.is_dir() {
        let name = source.file_name().ok_or(io::ErrorKind::InvalidInput)?;
        remove_tree(&target.join(name));
        std::fs::copy(source, target.join(name))?;
        return Ok(());
    }
    let mut waiting = vec![PathBuf::new()];
    while let Some(dir) = waiting.pop() {
        let inside = target.join(&dir);
        if !std::fs::symlink_metadata(&inside).is_ok_and(|metadata| metadata.is_dir()) {
            remove_tree(&inside);
            std::fs::create_dir(&inside)?;
        }
        for entry in std::fs::read_dir(source.join(&dir))? {
            let entry = entry?;
            let path = dir.join(entry.file_name());
            if entry.file_type()?.is_dir() {
                waiting.push(path);
                continue;
            }
            remove_tree(&target.join(&path));
            std::fs::copy(entry.path(), target.join(&path))?;
        }
    }
    Ok(())
}

/// Empties a directory and creates it if necessary.
fn clear(dir: &Path) -> io::Result<()> {
    agentline_fs::private_file::create_dir_all(dir)?;
    for entry in std::fs::read_dir(dir)? {
        remove_tree(&entry?.path());
    }
    match std::fs::read_dir(dir)?.next() {
        None => Ok(()),
        Some(_) => Err(io::Error::other(format!("`{}` cannot be emptied", dir.display()))),
    }
}

/// Removes a file or a directory, also one whose files are write-protected.
fn remove_tree(path: &Path) {
    let is_dir = std::fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_dir());
    if !is_dir {
        let _ = std::fs::remove_file(path);
        return;
    }
    if std::fs::remove_dir_all(path).is_ok() {
        return;
    }
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let _ = std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o700));
        for entry in std::fs::read_dir(path).into_iter().flatten().flatten() {
            remove_tree(&entry.path());
        }
    }
    let _ = std::fs::remove_dir(path);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(unix)]
    #[test]
    fn hidden_files_stay_in_the_workspace() {
        let dir = tempfile::tempdir().expect("a directory");
        let at = |name: &str| dir.path().join(name);
        for name in ["hidden/tests", "workspace/one.txt", "elsewhere"] {
            std::fs::create_dir_all(at(name)).expect("a directory");
        }
        std::fs::write(at("hidden/tests/answer.txt"), "42").expect("a file");
        std::fs::write(at("hidden/one.txt"), "1").expect("a file");
        // The agent put a link and a directory in the place of the hidden files.
        std::os::unix::fs::symlink(at("elsewhere"), at("workspace/tests")).expect("a link");
        copy_hidden(&at("hidden"), &at("workspace")).expect("copied");
        assert_eq!(std::fs::read_to_string(at("workspace/tests/answer.txt")).expect("a file"), "42");
        assert_eq!(std::fs::read_to_string(at("workspace/one.txt")).expect("a file"), "1");
        assert_eq!(std::fs::read_dir(at("elsewhere")).expect("a directory").count(), 0);
    }

    #[test]
    fn only_lanes_of_this_experiment_are_removed() {
        let dir = tempfile::tempdir().expect("a directory");
        let experiment = dir.path().join("experiment");
        for (name, owner, is_kept) in [
            ("ours", Some(experiment.clone()), false),
            ("other", Some("/x".into()), true),
            ("home", None, true),
        ] {
            let root = dir.path().join(name);
            std::fs::create_dir(&root).expect("a directory");
            if let Some(owner) = owner {
                std::fs::write(root.join(OWNER), owner.as_os_str().as_encoded_bytes()).expect("a file");
            }
            remove_lanes(&root, &experiment);
            assert_eq!(root.exists(), is_kept, "{name}");
        }
    }
}
