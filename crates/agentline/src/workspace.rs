//! What the disk says about a run: a look before, a look after, and whether others were there.

use crate::private_dir::PRIVATE;
use crate::snapshot::{ActiveRun, ChangeKind, Snapshot, SnapshotOptions, again::Snapshots};
use agentline_core::{Change, Disk, DiskChange};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long two snapshots may be compared.
const COMPARISON: Duration = Duration::from_secs(5);

/// The workspace as it was before a run.
pub(crate) struct Before {
    cwd: PathBuf,
    snapshot: Snapshot,
    options: SnapshotOptions,
    /// Tells whether another run was active here; not known where the record could not be written.
    active: Option<ActiveRun>,
    /// Folders in which runs and agents keep what is their own, each with how the names in it begin.
    own: Vec<(PathBuf, &'static str)>,
}

impl Before {
    /// Looks at the workspace, whose links are resolved, for at most `time`. `stores` are folders in which the agent keeps
    /// its sessions. Blocks.
    pub(crate) fn look(
        snapshots: &Snapshots,
        cwd: &Path,
        runtime_dir: &Path,
        temp_dir: &Path,
        stores: &[PathBuf],
        time: Duration,
    ) -> Self {
        let active = ActiveRun::enter_resolved(runtime_dir, cwd).ok();
        let options = SnapshotOptions::default();
        let longest = options.max_time;
        let options = options.max_time(time.min(longest));
        let own = stores.iter().map(|store| (store.clone(), ""));
        let own = own.chain([(runtime_dir.to_owned(), ""), (temp_dir.to_owned(), PRIVATE)]).collect();
        Self { cwd: cwd.to_owned(), snapshot: snapshots.take(cwd, &options), options, active, own }
    }

    /// How the paths begin, in the workspace, of what is no work of the agent's, but what it or we keep about the run: a
    /// workspace may be the user's home, or have the temporary folder in it.
    fn own_paths(&self) -> Vec<String> {
        let inside = |(path, rest): &(PathBuf, &str)| {
            let real = path.canonicalize().unwrap_or_else(|_| path.clone());
            Some(real.strip_prefix(&self.cwd).ok()?.join(rest).to_string_lossy().into_owned())
        };
        // A folder that is the workspace itself would hide everything.
        self.own.iter().filter_map(inside).filter(|own| !own.is_empty()).collect()
    }

    fn is_there(&self, path: &str) -> bool {
        self.cwd.join(path).symlink_metadata().is_ok()
    }

    /// Whether a comparison will find nothing, and that at once.
    pub(crate) fn is_small_and_unchanged(&self) -> bool {
        self.snapshot.is_small_and_still_true()
    }

    /// What is told of a workspace in which nothing has changed.
    pub(crate) fn unchanged(self) -> Disk {
        let mut disk = Disk::default();
        disk.shared = self.active.is_some_and(ActiveRun::leave);
        disk
    }

    /// Looks again and compares. Blocks.
    pub(crate) fn compare(self, reported: &[String]) -> Disk {
        let paths: Vec<PathBuf> = reported.iter().map(PathBuf::from).collect();
        let after = self.snapshot.take_again(&self.options);
        let mut disk = Disk::default();
        disk.spelled = reported
            .iter()
            .zip(&paths)
            .map(|(said, path)| (said.clone(), self.snapshot.spell(path)))
            .collect();
        let said = |path: &String| disk.spelled.values().any(|spelled| spelled == path);
        let deadline = Instant::now() + COMPARISON;
        let (changes, is_complete) = self.snapshot.compare_until(&after, &paths, deadline);
        let own = if changes.is_empty() { Vec::new() } else { self.own_paths() };
        let is_own = |path: &String| own.iter().any(|own| path.starts_with(own)) && !said(path);
        disk.changes = changes.into_iter().map(into_core).filter(|change| !is_own(&change.path)).collect();
        let unchanged: Vec<DiskChange> = disk
            .spelled
            .values()
            .filter(|path| !disk.changes.iter().any(|c| c.path == **path) && self.is_there(path))
            .map(|path| {
                // It was there before and is as it was: nothing that a tool could have created.
                let mut same = DiskChange::new(path.clone(), Change::Modified);
                (same.added, same.removed, same.verified) = (Some(0), Some(0), false);
                same
            })
            .collect();
        disk.changes.extend(unchanged);
        disk.shared = self.active.is_some_and(ActiveRun::leave);
        disk.unknown = self.snapshot.truncated() || after.truncated() || !is_complete;
        disk
    }
}

fn into_core(change: crate::snapshot::Change) -> DiskChange {
    let kind = match change.kind {
        ChangeKind::Created => Change::Created,
        ChangeKind::Modified => Change::Modified,
        ChangeKind::Deleted => Change::Deleted,
    };
    let verified = change.verified();
    let mut out = DiskChange::new(change.path, kind);
    (out.added, out.removed, out.verified) = (change.added, change.removed, verified);
    out
}
