//! Compares the workspace before and after a run, and detects other runs in it.

pub(crate) mod change_in_copy;
pub(crate) mod config_file;
pub(crate) mod copy;
mod diff;
pub mod files;
pub(crate) mod git;
pub(crate) mod overlay;
#[cfg(feature = "diffs")]
pub(crate) mod patch;
pub(crate) mod restore;
pub mod snapshot;
pub(crate) mod tree;
pub mod trust;
pub mod worktree;
pub(crate) mod write_back;

use crate::fs::disk_fs::canonicalize;
use crate::fs::private_dir::PRIVATE;
use crate::process::{OverlayLayers, mounts};
use crate::workspace::{
    diff::Differ,
    snapshot::{
        ActiveRuns, ActiveWorkspace, ChangeKind, Snapshot, SnapshotChange, SnapshotOptions,
        memo::SnapshotMemo, shared_walk::SharedWalks,
    },
};
use agentline_core::{Diff, DiskChange, DiskReport, FileChangeKind, Redactor};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The maximum time to compare two snapshots.
const COMPARISON: Duration = Duration::from_secs(5);

/// The workspace as it was before a run.
pub(crate) struct WorkspaceBefore {
    cwd: PathBuf,
    /// Empty if the workspace is an overlay that nothing has changed yet.
    snapshot: Snapshot,
    /// The layers of such an overlay. The upper one will have what the run changes, so nothing else is looked at.
    overlay: Option<OverlayLayers>,
    options: SnapshotOptions,
    walks: Arc<SharedWalks>,
    /// Detects other runs in the workspace; `None` if the registration failed.
    active: Option<ActiveWorkspace>,
    /// Directories in which runs and agents store their own files, each with the prefix of those files' names.
    own: Vec<(PathBuf, &'static str)>,
    /// Whether the changes have diffs.
    has_diffs: bool,
}

impl WorkspaceBefore {
    /// Takes a snapshot of the workspace, whose links are resolved, within `time`. `stores` are the directories in
    /// which the agent keeps its sessions. Blocks.
    pub(crate) fn take(
        snapshots: &SnapshotMemo,
        active_runs: &ActiveRuns,
        cwd: &Path,
        runtime_dir: &Path,
        temp_dir: &Path,
        stores: &[PathBuf],
        time: Duration,
    ) -> Self {
        let active = active_runs.enter(runtime_dir, cwd).ok();
        let options = SnapshotOptions::default();
        let longest = options.max_time;
        let options = options.max_time(time.min(longest));
        let own = stores.iter().map(|store| (store.clone(), ""));
        let own = own.chain([(runtime_dir.to_owned(), ""), (temp_dir.to_owned(), PRIVATE)]).collect();
        let overlay = mounts::layers(cwd).filter(OverlayLayers::is_untouched);
        let snapshot = if overlay.is_some() { Snapshot::empty(cwd) } else { snapshots.take(cwd, &options) };
        Self {
            cwd: cwd.to_owned(),
            snapshot,
            overlay,
            options,
            walks: Arc::clone(&snapshots.walks),
            active,
            own,
            has_diffs: false,
        }
    }

    /// Sets whether the changes have diffs.
    pub(crate) fn with_diffs(self, has_diffs: bool) -> Self {
        Self { has_diffs, ..self }
    }

    /// Returns the path prefixes, in the workspace, of files that the agent or agentline stores about the run. The
    /// workspace may be the user's home or contain the temporary directory.
    fn own_paths(&self) -> Vec<String> {
        let inside = |(path, rest): &(PathBuf, &str)| {
            let real = canonicalize(path).unwrap_or_else(|_| path.clone());
            Some(real.strip_prefix(&self.cwd).ok()?.join(rest).to_string_lossy().into_owned())
        };
        // A directory that is the workspace itself would match everything.
        self.own.iter().filter_map(inside).filter(|own| !own.is_empty()).collect()
    }

    fn exists(&self, path: &str) -> bool {
        self.cwd.join(path).symlink_metadata().is_ok()
    }

    /// Returns whether the workspace is small and nothing has changed in it.
    pub(crate) fn is_small_and_unchanged(&self) -> bool {
        match &self.overlay {
            Some(layers) => layers.is_untouched(),
            None => self.snapshot.is_small_and_current(),
        }
    }

    /// Returns the result for a workspace in which nothing has changed.
    pub(crate) fn unchanged(self) -> DiskReport {
        let mut disk = DiskReport::default();
        disk.shared = self.active.is_some_and(ActiveWorkspace::leave);
        disk
    }

    /// Takes another snapshot and compares. `edits` are the changes that tools reported, and `secrets` are redacted in
    /// diffs. Blocks.
    pub(crate) fn compare(
        mut self,
        reported: &[String],
        edits: &[Diff],
        secrets: &BTreeSet<String>,
    ) -> DiskReport {
        let paths: Vec<PathBuf> = reported.iter().map(PathBuf::from).collect();
        let after = if let Some(layers) = &self.overlay {
            let (before, after) =
                Snapshot::of_overlay(&self.cwd, layers, self.snapshot.began(), &self.options);
            self.snapshot = before;
            after
        } else {
            let key = self.options.walk_key(&self.cwd, false);
            self.walks.take(key, || self.snapshot.take_again(&self.options))
        };
        let mut disk = DiskReport::default();
        disk.spelled = reported
            .iter()
            .zip(&paths)
            .map(|(reported, path)| (reported.clone(), self.snapshot.spell(path)))
            .collect();
        let is_reported = |path: &String| disk.spelled.values().any(|spelled| spelled == path);
        let deadline = Instant::now() + COMPARISON;
        let (changes, is_complete) = self.snapshot.compare_until(&after, &paths, deadline);
        let own = if changes.is_empty() { Vec::new() } else { self.own_paths() };
        let is_own = |path: &String| own.iter().any(|own| path.starts_with(own)) && !is_reported(path);
        let redactor = self.has_diffs.then(|| Redactor::new(secrets));
        let mut differ =
            redactor.as_ref().map(|redactor| Differ::new(&self.snapshot, edits, redactor, deadline));
        disk.changes = changes
            .into_iter()
            .filter(|change| !is_own(&change.path))
            .map(|change| {
                let diff = differ.as_mut().and_then(|differ| differ.diff(&change));
                into_core(change, diff)
            })
            .collect();
        let unchanged: Vec<DiskChange> = disk
            .spelled
            .values()
            .filter(|path| !disk.changes.iter().any(|c| c.path == **path) && self.exists(path))
            .map(|path| {
                // The file existed before and is unchanged, so a tool cannot have created it.
                let mut same = DiskChange::new(path.clone(), FileChangeKind::Modified);
                (same.added, same.removed, same.verified) = (Some(0), Some(0), false);
                same
            })
            .collect();
        disk.changes.extend(unchanged);
        disk.shared = self.active.is_some_and(ActiveWorkspace::leave);
        disk.unknown = self.snapshot.truncated() || after.truncated() || !is_complete;
        disk
    }
}

fn into_core(change: SnapshotChange, diff: Option<String>) -> DiskChange {
    let kind = match change.kind {
        ChangeKind::Created => FileChangeKind::Created,
        ChangeKind::Modified => FileChangeKind::Modified,
        ChangeKind::Deleted => FileChangeKind::Deleted,
    };
    let verified = change.verified();
    let mut out = DiskChange::new(change.path, kind);
    (out.added, out.removed, out.verified, out.diff) = (change.added, change.removed, verified, diff);
    out
}
