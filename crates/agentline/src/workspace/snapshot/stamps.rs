//! The metadata of all files of a workspace by path, to find candidates for changes of any kind, including those of
//! permissions, which a [`Snapshot`](super::Snapshot) does not report.

use crate::fs::{path_bytes::path_from_bytes, stamp::FileStamp};
use crate::process::OverlayLayers;
use crate::workspace::snapshot::{Snapshot, SnapshotOptions, walk};
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

/// The metadata of the files of a workspace, by the rules of a snapshot.
#[derive(Clone, Debug, Default)]
pub(crate) struct FileStamps {
    files: BTreeMap<PathBuf, FileStamp>,
    /// Whether every file was seen.
    pub(crate) is_complete: bool,
}

impl FileStamps {
    /// Walks a workspace. Blocks.
    pub(crate) fn take(root: &Path) -> Self {
        let options = SnapshotOptions::default();
        Self::of(&walk::take(root, &options, options.deadline()))
    }

    /// Walks a workspace by the ignore rules of another directory with the same structure. Blocks.
    pub(crate) fn take_by_rules_of(original: &Path, root: &Path) -> Self {
        let options = SnapshotOptions::default();
        Self::of(&walk::take_by_rules_of(original, root, &options))
    }

    /// Walks what an overlay may have changed, in the overlay or in its template, by the ignore rules there or in another
    /// directory. Blocks.
    pub(crate) fn take_changed(root: &Path, layers: &OverlayLayers, rules_of: Option<&Path>) -> Self {
        let options = SnapshotOptions::default();
        Self::of(&walk::take_changed(root, layers, rules_of, &options, options.deadline()))
    }

    fn of(snapshot: &Snapshot) -> Self {
        let entries = snapshot.entries.iter();
        let files = entries.map(|entry| (path_from_bytes(snapshot.path(entry)), entry.stamp)).collect();
        Self { files, is_complete: !snapshot.truncated && snapshot.skipped == 0 }
    }

    /// Returns the metadata of a file.
    pub(crate) fn get(&self, path: &Path) -> Option<&FileStamp> {
        self.files.get(path)
    }

    /// Returns the paths whose metadata differs in a later walk, and those that only one of both has.
    pub(crate) fn differing<'a>(&'a self, later: &'a Self) -> impl Iterator<Item = &'a Path> {
        let changed = self.files.iter().filter(|(path, stamp)| later.files.get(*path) != Some(stamp));
        let new = later.files.keys().filter(|path| !self.files.contains_key(*path));
        changed.map(|(path, _)| path).chain(new).map(PathBuf::as_path)
    }
}
