//! Checks paths that a tool reported and that the snapshots do not cover because they are ignored or outside.

use crate::fs::disk_fs::canonicalize;
use std::ffi::OsString;
use std::fs::{self, Metadata};
use std::path::{Component, Path, PathBuf};
use std::time::SystemTime;

use crate::fs::{path_bytes, stamp::is_since};
use crate::workspace::snapshot::{ChangeKind, Evidence};

/// The location of a reported path after the links among its directories are resolved.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ReportedPath {
    /// In the workspace: the bytes of the relative path, with `/`.
    Inside(Vec<u8>),
    /// Elsewhere: the absolute path.
    Outside(PathBuf),
}

impl ReportedPath {
    /// Resolves the directories of a path. The last component is not resolved, because a link is a file of its own.
    pub(super) fn of(root: &Path, path: &Path) -> Self {
        let path = without_dots(&root.join(path));
        let mut existing = path.parent().unwrap_or(&path);
        let mut rest: Vec<OsString> = path.file_name().map(OsString::from).into_iter().collect();
        let folder = loop {
            if let Ok(folder) = canonicalize(existing) {
                break folder;
            }
            let (Some(name), Some(parent)) = (existing.file_name(), existing.parent()) else {
                break existing.to_path_buf();
            };
            rest.push(name.to_os_string());
            existing = parent;
        };
        let resolved: PathBuf =
            std::iter::once(folder.into_os_string()).chain(rest.into_iter().rev()).collect();
        match resolved.strip_prefix(root) {
            Ok(inside) => {
                let mut bytes = Vec::new();
                path_bytes::push_path_bytes(inside.as_os_str(), &mut bytes);
                Self::Inside(bytes)
            }
            Err(_) => Self::Outside(resolved),
        }
    }

    pub(super) fn spelled(&self) -> String {
        match self {
            Self::Inside(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            Self::Outside(path) => path.to_string_lossy().into_owned(),
        }
    }
}

/// Removes `.` and `..` lexically, as agents do before they pass a path to a tool.
fn without_dots(path: &Path) -> PathBuf {
    let mut clean = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => {
                clean.pop();
            }
            part => clean.push(part),
        }
    }
    clean
}

/// Returns the change since `began` that a file's own times show.
pub(super) fn by_times(metadata: &Metadata, began: SystemTime) -> Option<ChangeKind> {
    // Not every file system stores creation times; without them, a new file is reported as modified.
    if metadata.created().is_ok_and(|born| is_since(born, began)) {
        return Some(ChangeKind::Created);
    }
    metadata.modified().is_ok_and(|written| is_since(written, began)).then_some(ChangeKind::Modified)
}

/// Returns the change of a path whose earlier state is unknown.
pub(super) fn change_of(path: &Path, began: SystemTime) -> Option<(ChangeKind, Evidence)> {
    match path.symlink_metadata() {
        Ok(metadata) if metadata.is_dir() => None,
        Ok(metadata) => {
            let own = by_times(&metadata, began);
            let kind = if metadata.is_symlink() { own.or_else(|| through_link(path, began)) } else { own };
            Some((kind?, Evidence::Times))
        }
        Err(error) if is_missing(&error) => {
            parent_changed(path, began).then_some((ChangeKind::Deleted, Evidence::Missing))
        }
        Err(_) => None,
    }
}

/// Returns the change of a link's target, because a tool that writes to a link writes to its target.
pub(super) fn through_link(link: &Path, began: SystemTime) -> Option<ChangeKind> {
    let metadata = fs::metadata(link).ok().filter(Metadata::is_file)?;
    by_times(&metadata, began)
}

/// Returns whether an error means that the path does not exist.
pub(super) fn is_missing(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory)
}

/// Returns whether the nearest existing directory was modified. Otherwise nothing was deleted from it.
fn parent_changed(path: &Path, began: SystemTime) -> bool {
    let nearest = path.ancestors().skip(1).find_map(|folder| folder.metadata().ok());
    nearest.and_then(|metadata| metadata.modified().ok()).is_some_and(|written| is_since(written, began))
}
