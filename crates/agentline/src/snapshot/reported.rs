//! Looks at paths that a tool reported and that the snapshots do not cover: ignored ones and ones outside.

use std::ffi::OsString;
use std::fs::{self, Metadata};
use std::path::{Component, Path, PathBuf};
use std::time::SystemTime;

use super::stamp::{self, is_since};
use super::{ChangeKind, Evidence};

/// Where a reported path leads once the links among its folders are resolved.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Place {
    /// In the workspace: the bytes of the path relative to it, with `/`.
    Inside(Vec<u8>),
    /// Elsewhere: the absolute path.
    Outside(PathBuf),
}

impl Place {
    /// The last part is not resolved: a link is a file of its own.
    pub(super) fn of(root: &Path, path: &Path) -> Self {
        let path = without_dots(&root.join(path));
        let mut existing = path.parent().unwrap_or(&path);
        let mut rest: Vec<OsString> = path.file_name().map(OsString::from).into_iter().collect();
        let folder = loop {
            if let Ok(folder) = existing.canonicalize() {
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
                stamp::push_path_bytes(inside.as_os_str(), &mut bytes);
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

/// Removes `.` and `..` the way that agents do before they hand a path to a tool: by its text.
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

/// What a file's own times say about the time since `began`.
pub(super) fn by_times(about: &Metadata, began: SystemTime) -> Option<ChangeKind> {
    // Not every file system keeps the time of birth; there a new file looks modified.
    if about.created().is_ok_and(|born| is_since(born, began)) {
        return Some(ChangeKind::Created);
    }
    about.modified().is_ok_and(|written| is_since(written, began)).then_some(ChangeKind::Modified)
}

/// What the disk says about a path of which nothing is known from before.
pub(super) fn look(path: &Path, began: SystemTime) -> Option<(ChangeKind, Evidence)> {
    match path.symlink_metadata() {
        Ok(about) if about.is_dir() => None,
        Ok(about) => {
            let own = by_times(&about, began);
            let kind = if about.is_symlink() { own.or_else(|| through_link(path, began)) } else { own };
            Some((kind?, Evidence::Times))
        }
        Err(why) if is_gone(&why) => {
            folder_changed(path, began).then_some((ChangeKind::Deleted, Evidence::Missing))
        }
        Err(_) => None,
    }
}

/// A tool that writes to a link writes to the file behind it.
pub(super) fn through_link(link: &Path, began: SystemTime) -> Option<ChangeKind> {
    let about = fs::metadata(link).ok().filter(Metadata::is_file)?;
    by_times(&about, began)
}

/// Whether an error in looking at a path means that there is nothing.
pub(super) fn is_gone(why: &std::io::Error) -> bool {
    matches!(why.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory)
}

/// Nothing was deleted from a folder that has not been written to.
fn folder_changed(path: &Path, began: SystemTime) -> bool {
    let nearest = path.ancestors().skip(1).find_map(|folder| folder.metadata().ok());
    nearest.and_then(|about| about.modified().ok()).is_some_and(|written| is_since(written, began))
}
