//! Unpacks a tree into a new directory.
//!
//! The content comes from whoever may write to the store, so nothing in it is trusted. Every entry lies in a directory that
//! was unpacked before, files are created new, and links are created last; so nothing is written through a link, and
//! nothing outside the new directory.

use super::error::at;
use super::format::{
    DIRECTORY, END, FILE, HEADER, LINK, LONGEST_PATH, MODE, TreeEntry, TreeEntryKind, from_bytes,
    relative_path,
};
use super::pieces::PieceReader;
use super::{TreeError, TreeLimits};
use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Component, Path, PathBuf};

/// The permission bits of a directory while its content is written.
const WRITABLE: u16 = 0o700;

/// Returns whether there is something at a path, and not just an empty directory.
pub(super) fn is_occupied(path: &Path) -> bool {
    match path.symlink_metadata() {
        Ok(found) if found.is_dir() => path.read_dir().is_ok_and(|mut children| children.next().is_some()),
        Ok(_) => true,
        Err(_) => false,
    }
}

/// Unpacks a tree, checks it and moves it to `target`.
pub(super) fn unpack(mut reader: PieceReader, target: &Path, limits: TreeLimits) -> Result<(), TreeError> {
    let parent = match target.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    fs::create_dir_all(parent).map_err(at(parent))?;
    if reader.read_array()? != *HEADER {
        return Err(reader.invalid("it is not in a known format"));
    }
    let temporary = tempfile::Builder::new().prefix(".tree-").tempdir_in(parent).map_err(at(parent))?;
    let mut unpacker = Unpacker {
        root: temporary.keep(),
        directories: BTreeMap::new(),
        links: Vec::new(),
        last: None,
        is_moved: false,
    };
    let mut files = 0;
    while let Some(entry) = read_entry(&mut reader)? {
        files += 1;
        if files > limits.files {
            return Err(TreeError::TooManyFiles { path: target.to_owned(), limit: limits.files });
        }
        unpacker.add(entry, &mut reader, limits)?;
    }
    if files == 0 {
        return Err(reader.invalid("it is empty"));
    }
    reader.finish()?;
    unpacker.complete()?;
    unpacker.move_to(target)
}

/// Reads the next entry without the content of a file; `None` after the last one.
fn read_entry(reader: &mut PieceReader) -> Result<Option<TreeEntry>, TreeError> {
    let [kind] = reader.read_array()?;
    if kind == END {
        return Ok(None);
    }
    let mode = u16::from_be_bytes(reader.read_array()?);
    let path = reader.read_with_length(LONGEST_PATH)?;
    let kind = match kind {
        DIRECTORY => TreeEntryKind::Directory,
        FILE => TreeEntryKind::File(u64::from_be_bytes(reader.read_array()?)),
        LINK => TreeEntryKind::Link(reader.read_with_length(LONGEST_PATH)?),
        _ => return Err(reader.invalid("an entry has an unknown kind")),
    };
    Ok(Some(TreeEntry { path, mode, kind }))
}

/// A tree that is being unpacked. Removes it, unless it was moved to its place.
#[derive(Debug)]
struct Unpacker {
    /// The new directory, or the new file that has taken its place.
    root: PathBuf,
    /// The directories with the permission bits that they get.
    directories: BTreeMap<Vec<u8>, u16>,
    links: Vec<(PathBuf, Vec<u8>)>,
    /// The packed path of the last entry.
    last: Option<Vec<u8>>,
    is_moved: bool,
}

impl Unpacker {
    /// Adds the next entry.
    fn add(
        &mut self,
        entry: TreeEntry,
        reader: &mut PieceReader,
        limits: TreeLimits,
    ) -> Result<(), TreeError> {
        let refuse = |reason: &str| {
            let path = String::from_utf8_lossy(&entry.path).into_owned();
            Err(reader.invalid(&format!("the entry {path:?} {reason}")))
        };
        let Some(relative) = relative_path(&entry.path) else {
            return refuse("has a path that is not below the root");
        };
        if self.last.as_ref().is_some_and(|last| *last >= entry.path) {
            return refuse("is there twice or out of order");
        }
        let is_first = self.last.is_none();
        if is_first != entry.path.is_empty() || !(is_first || self.has_parent(&entry.path)) {
            return refuse("is not in a directory of the tree");
        }
        if entry.mode > MODE {
            return refuse("has an invalid mode");
        }
        // Joining an empty path would append a separator.
        let path = if is_first { self.root.clone() } else { self.root.join(relative) };
        match &entry.kind {
            TreeEntryKind::Directory if is_first => {}
            TreeEntryKind::Directory => fs::create_dir(&path).map_err(at(&path))?,
            TreeEntryKind::Link(_) if is_first => return refuse("is a link"),
            TreeEntryKind::Link(target) if target.is_empty() || target.contains(&0) => {
                return refuse("is a link without a valid target");
            }
            TreeEntryKind::Link(target) if !limits.outer_links && !stays_inside(&entry.path, target) => {
                return refuse("is a link that leads out of the tree");
            }
            TreeEntryKind::Link(target) => self.links.push((path, target.clone())),
            TreeEntryKind::File(size) if *size > limits.file_size => {
                return Err(TreeError::FileTooLarge { path, size: *size, limit: limits.file_size });
            }
            TreeEntryKind::File(size) if *size > reader.left() => {
                return refuse("is larger than the tree");
            }
            TreeEntryKind::File(size) => {
                if is_first {
                    fs::remove_dir(&path).map_err(at(&path))?;
                }
                unpack_file(&path, *size, entry.mode, reader)?;
            }
        }
        if entry.kind == TreeEntryKind::Directory {
            self.directories.insert(entry.path.clone(), entry.mode);
        }
        self.last = Some(entry.path);
        Ok(())
    }

    /// Returns whether the directory of a packed path has been unpacked.
    fn has_parent(&self, path: &[u8]) -> bool {
        let end = path.iter().rposition(|byte| *byte == b'/').unwrap_or_default();
        self.directories.contains_key(&path[..end])
    }

    /// Creates the links and sets the permission bits of directories, from the deepest up.
    fn complete(&self) -> Result<(), TreeError> {
        for (path, target) in &self.links {
            create_link(path, target).map_err(at(path))?;
        }
        self.set_modes(self.directories.iter().rev().map(|(path, mode)| (path, *mode)))
    }

    fn set_modes<'a>(&self, modes: impl Iterator<Item = (&'a Vec<u8>, u16)>) -> Result<(), TreeError> {
        for (path, mode) in modes {
            let path = self.root.join(relative_path(path).unwrap_or_default());
            set_mode(&path, mode).map_err(at(&path))?;
        }
        Ok(())
    }

    /// Moves the tree to its place, unless another process was faster.
    fn move_to(&mut self, target: &Path) -> Result<(), TreeError> {
        // Elsewhere than on Unix an empty directory is not replaced.
        #[cfg(not(unix))]
        let _ = fs::remove_dir(target);
        match fs::rename(&self.root, target) {
            Ok(()) => self.is_moved = true,
            Err(_) if is_occupied(target) => {}
            Err(error) => return Err(at(target)(error)),
        }
        Ok(())
    }
}

impl Drop for Unpacker {
    fn drop(&mut self) {
        if self.is_moved {
            return;
        }
        if fs::remove_dir_all(&self.root).is_ok() || fs::remove_file(&self.root).is_ok() {
            return;
        }
        // Some directories may be write-protected.
        let _ = self.set_modes(self.directories.keys().map(|path| (path, WRITABLE)));
        let _ = fs::remove_dir_all(&self.root);
    }
}

/// Returns whether a link at a path leads to something in its tree: not absolute, no further up than the root, and only
/// down after that. A part of the way down may be another link, for which the same holds.
fn stays_inside(path: &[u8], target: &[u8]) -> bool {
    let mut left = path.iter().filter(|byte| **byte == b'/').count();
    let Some(target) = from_bytes(target).map(Path::new) else { return false };
    let mut goes_down = false;
    target.components().all(|part| match part {
        Component::CurDir => true,
        Component::Normal(_) => {
            goes_down = true;
            true
        }
        Component::ParentDir if !goes_down && left > 0 => {
            left -= 1;
            true
        }
        Component::ParentDir | Component::RootDir | Component::Prefix(_) => false,
    })
}

/// Writes a new file.
fn unpack_file(path: &Path, size: u64, mode: u16, reader: &mut PieceReader) -> Result<(), TreeError> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(path).map_err(at(path))?;
    let mut left = size;
    while left > 0 {
        let part = reader.read(left)?;
        file.write_all(part).map_err(at(path))?;
        left -= part.len() as u64;
    }
    drop(file);
    set_mode(path, mode).map_err(at(path))
}

/// Sets the permission bits of a file or directory that was unpacked, where the system has them.
fn set_mode(path: &Path, mode: u16) -> io::Result<()> {
    #[cfg(unix)]
    fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(mode.into()))?;
    #[cfg(not(unix))]
    let _ = (path, mode);
    Ok(())
}

#[cfg(unix)]
fn create_link(path: &Path, target: &[u8]) -> io::Result<()> {
    std::os::unix::fs::symlink(from_bytes(target).unwrap_or_default(), path)
}

#[cfg(windows)]
fn create_link(path: &Path, target: &[u8]) -> io::Result<()> {
    let target = from_bytes(target).ok_or(io::ErrorKind::InvalidFilename)?;
    let is_directory = path.parent().is_some_and(|parent| parent.join(target).is_dir());
    if is_directory {
        std::os::windows::fs::symlink_dir(target, path)
    } else {
        std::os::windows::fs::symlink_file(target, path)
    }
}
