//! The results of a comparison, and the copies behind them.

use super::{ApplyError, Competitor};
use crate::{
    blocking_work::on_blocking_thread,
    fs::private_dir::{COMPARISON, PrivateDir},
    workspace::copy::WorkspaceCopy,
};
use agentline_core::Outcome;
use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
};

/// The name prefix of directories that are kept.
const KEPT: &str = "kept-";

/// The result of one competitor.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ComparedRun {
    /// The agent and its model.
    pub competitor: Competitor,
    /// The outcome of its run. Its files and diffs are those of the copy.
    pub outcome: Outcome,
    copy: Option<Arc<WorkspaceCopy>>,
}

impl ComparedRun {
    pub(super) fn new(competitor: Competitor, outcome: Outcome, copy: Option<WorkspaceCopy>) -> Self {
        Self { competitor, outcome, copy: copy.map(Arc::new) }
    }

    /// Returns the copy of the workspace, or `None` if it could not be made.
    #[must_use]
    pub fn copy(&self) -> Option<&Path> {
        self.copy.as_deref().map(WorkspaceCopy::root)
    }
}

/// The results of all competitors, in their order. The copies are removed on drop, unless they are kept.
#[derive(Debug)]
pub struct ComparisonResults {
    rows: Vec<ComparedRun>,
    dir: CopyDir,
    active_runs: PathBuf,
}

impl ComparisonResults {
    pub(super) fn new(rows: Vec<ComparedRun>, dir: CopyDir, active_runs: PathBuf) -> Self {
        Self { rows, dir, active_runs }
    }

    /// Returns the result of each competitor.
    #[must_use]
    pub fn rows(&self) -> &[ComparedRun] {
        &self.rows
    }

    /// Applies the changes of one agent to the original workspace: all of them, or none. Changes to files that Git
    /// ignores, and to Git's own, are not applied. Returns the paths.
    ///
    /// # Errors
    /// Fails if the original workspace has changed since it was copied, or if a file cannot be written.
    pub async fn apply(&self, agent: &str) -> Result<Vec<PathBuf>, ApplyError> {
        let row = self.rows.iter().find(|row| *row.competitor.agent == *agent);
        let Some(copy) = row.and_then(|row| row.copy.clone()) else { return Ok(Vec::new()) };
        let active_runs = self.active_runs.clone();
        on_blocking_thread(move || copy.apply(&active_runs)).await
    }

    /// Keeps the copies, and returns the directory that has one subdirectory for each agent.
    ///
    /// # Errors
    /// Fails if the directory cannot be renamed. The copies are removed in that case.
    pub fn keep(self) -> io::Result<PathBuf> {
        self.dir.keep()
    }
}

/// The directory of all copies.
#[derive(Debug)]
pub(super) enum CopyDir {
    /// Removed on drop, or by the next comparison if this program is killed.
    Private(PrivateDir),
    /// Kept from the beginning.
    Kept(PathBuf),
}

impl CopyDir {
    pub(super) fn create(parent: &Path, keep: bool) -> io::Result<Self> {
        if keep {
            let path = kept_path(parent);
            crate::fs::private_dir::create_dir_all(&path)?;
            return Ok(Self::Kept(path));
        }
        PrivateDir::create(parent, COMPARISON).map(Self::Private)
    }

    pub(super) fn path(&self) -> &Path {
        match self {
            Self::Private(dir) => dir.path(),
            Self::Kept(path) => path,
        }
    }

    fn keep(self) -> io::Result<PathBuf> {
        match self {
            Self::Kept(path) => Ok(path),
            Self::Private(dir) => {
                let path = kept_path(dir.path().parent().unwrap_or(Path::new("/")));
                fs::rename(dir.path(), &path)?;
                Ok(path)
            }
        }
    }
}

fn kept_path(parent: &Path) -> PathBuf {
    let id = uuid::Uuid::new_v4().simple().to_string();
    parent.join(format!("{KEPT}{}", &id[..12]))
}
