//! Everything below a directory, whatever Git ignores: files, links, directories and repositories.

use crate::fs::stamp::FileStamp;
use crate::process::{OverlayLayers, mounts};
use std::{
    collections::BTreeMap,
    fs::{self, Metadata},
    io,
    path::{Path, PathBuf},
};

/// The maximum number of files and directories.
const MAX_ENTRIES: usize = 500_000;

/// The metadata of everything below a directory.
#[derive(Clone, Debug, Default)]
pub(crate) struct TreeStamps {
    entries: BTreeMap<PathBuf, EntryStamp>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EntryStamp {
    Directory { mode: Option<u32> },
    File(FileStamp),
}

impl TreeStamps {
    /// Walks a directory, or what an overlay may have changed, in the overlay or in its template. Blocks.
    ///
    /// # Errors
    /// Fails if a directory cannot be read, or if there are too many files.
    pub(crate) fn take(root: &Path, layers: Option<&OverlayLayers>) -> io::Result<Self> {
        let mut entries = BTreeMap::new();
        let mut waiting = vec![(PathBuf::new(), layers.map(|layers| layers.upper.clone()))];
        while let Some((dir, upper)) = waiting.pop() {
            for entry in fs::read_dir(root.join(&dir))? {
                let entry = entry?;
                // Whatever is not in the upper layer is as in the template.
                let in_upper = upper.as_ref().map(|upper| upper.join(entry.file_name()));
                if in_upper.as_ref().is_some_and(|path| path.symlink_metadata().is_err()) {
                    continue;
                }
                let metadata = match entry.metadata() {
                    // The file vanished after the directory was listed.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                    metadata => metadata?,
                };
                let path = dir.join(entry.file_name());
                let stamp = match FileStamp::of(&metadata) {
                    Some(stamp) => EntryStamp::File(stamp),
                    None => {
                        let in_upper = in_upper.filter(|path| path.is_dir() && !mounts::is_opaque(path));
                        waiting.push((path.clone(), in_upper));
                        EntryStamp::Directory { mode: mode(&metadata) }
                    }
                };
                entries.insert(path, stamp);
                if entries.len() > MAX_ENTRIES {
                    return Err(io::Error::other(format!("it has more than {MAX_ENTRIES} files")));
                }
            }
        }
        Ok(Self { entries })
    }

    /// Returns whether a path is as in another walk.
    pub(crate) fn has_same(&self, other: &Self, path: &Path) -> bool {
        self.entries.get(path) == other.entries.get(path)
    }

    /// Returns the paths whose metadata differs in a later walk, and those that only one of both has, directories before
    /// what they contain.
    pub(crate) fn differing<'a>(&'a self, later: &'a Self) -> Vec<&'a Path> {
        let all = self.entries.keys().chain(later.entries.keys());
        let mut paths: Vec<&Path> =
            all.filter(|path| !self.has_same(later, path)).map(PathBuf::as_path).collect();
        paths.sort();
        paths.dedup();
        paths
    }
}

/// Returns the permission bits, where the system has them.
#[cfg(unix)]
pub(crate) fn mode(metadata: &Metadata) -> Option<u32> {
    Some(std::os::unix::fs::PermissionsExt::mode(&metadata.permissions()) & 0o777)
}

#[cfg(not(unix))]
pub(crate) fn mode(_metadata: &Metadata) -> Option<u32> {
    None
}
