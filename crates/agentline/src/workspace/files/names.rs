//! Finds the other names of a hard-linked file, so that a rule for one name cannot be evaded through another.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// The maximum number of directory entries to examine.
const MAX_ENTRIES: usize = 200_000;

/// The other names of a file.
#[derive(Debug)]
pub(super) struct Names {
    /// The names in the directories that were searched.
    pub(super) found: Vec<PathBuf>,
    /// Whether all names were found.
    pub(super) complete: bool,
}

/// Returns the other names of a file in these directories; `None` if it has only one name.
pub(super) fn other_names<'a>(path: &Path, dirs: impl Iterator<Item = &'a Path>) -> Option<Names> {
    let (id, links) = identity(path)?;
    if links < 2 {
        return None;
    }
    let mut found = Vec::new();
    let mut left = MAX_ENTRIES;
    let mut open: Vec<PathBuf> = dirs.map(Path::to_owned).collect();
    while let Some(dir) = open.pop() {
        for entry in fs::read_dir(&dir).into_iter().flatten().flatten() {
            left = left.saturating_sub(1);
            let Ok(kind) = entry.file_type() else { continue };
            if kind.is_dir() {
                open.push(entry.path());
            } else if kind.is_file() {
                let name = entry.path();
                if name != path
                    && !found.contains(&name)
                    && identity(&name).is_some_and(|(other, _)| other == id)
                {
                    found.push(name);
                }
            }
        }
        if left == 0 || u64::try_from(found.len()).unwrap_or(u64::MAX) + 1 >= links {
            break;
        }
    }
    let complete = u64::try_from(found.len()).unwrap_or(u64::MAX) + 1 >= links;
    Some(Names { found, complete })
}

/// Returns the identity of a file and its number of links.
#[cfg(unix)]
fn identity(path: &Path) -> Option<((u64, u64), u64)> {
    use std::os::unix::fs::MetadataExt;
    let meta = fs::symlink_metadata(path).ok().filter(fs::Metadata::is_file)?;
    Some(((meta.dev(), meta.ino()), meta.nlink()))
}

#[cfg(not(unix))]
fn identity(_path: &Path) -> Option<((u64, u64), u64)> {
    None
}
