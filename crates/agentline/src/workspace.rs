//! What the disk says about a run: a look before, a look after, and whether others were there.

use crate::prepare::PRIVATE;
use crate::snapshot::{ActiveRun, ChangeKind, Snapshot, SnapshotOptions};
use agentline_core::{Change, Disk, DiskChange};
use std::path::{Path, PathBuf};

/// The workspace as it was before a run.
pub(crate) struct Before {
    cwd: PathBuf,
    snapshot: Snapshot,
    options: SnapshotOptions,
    /// Tells whether another run was active here; not known where the record could not be written.
    active: Option<ActiveRun>,
    /// How the paths begin, in the workspace, of what runs and agents keep for themselves.
    own: Vec<String>,
}

impl Before {
    /// Looks at the workspace. `stores` are folders in which the agent keeps its sessions. Blocks.
    pub(crate) fn look(cwd: &Path, runtime_dir: &Path, temp_dir: &Path, stores: &[PathBuf]) -> Self {
        let active = ActiveRun::enter(runtime_dir, cwd).ok();
        let options = SnapshotOptions::default();
        let inside = |path: &Path, rest: &str| {
            let real = path.canonicalize().unwrap_or_else(|_| path.to_owned());
            Some(real.strip_prefix(cwd).ok()?.join(rest).to_string_lossy().into_owned())
        };
        let own = stores.iter().filter_map(|store| inside(store, ""));
        let own = own.chain(inside(runtime_dir, "")).chain(inside(temp_dir, PRIVATE));
        // A folder that is the workspace itself would hide everything.
        let own = own.filter(|own| !own.is_empty()).collect();
        Self { cwd: cwd.to_owned(), snapshot: Snapshot::take(cwd, &options), options, active, own }
    }

    /// Whether a path is no work of the agent's, but what it or we keep about the run: a workspace may be the user's home,
    /// or have the temporary folder in it.
    fn is_own(&self, path: &str) -> bool {
        self.own.iter().any(|own| path.starts_with(own))
    }

    fn is_there(&self, path: &str) -> bool {
        self.cwd.join(path).symlink_metadata().is_ok()
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
        let changes = self.snapshot.compare(&after, &paths).into_iter().map(into_core);
        disk.changes = changes.filter(|change| !self.is_own(&change.path) || said(&change.path)).collect();
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
        disk.shared = self.active.is_some_and(|a| a.overlapped());
        disk.unknown = self.snapshot.truncated() || after.truncated();
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
