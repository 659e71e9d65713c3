//! Reads a directory or a file and packs it.

use super::error::at;
use super::format::{END, HEADER, LONGEST_PATH, TreeEntry, TreeEntryKind, mode, relative_path, to_bytes};
use super::pieces::{PieceWriter, WriteError};
use super::{TreeError, TreeLimits};
use std::fs::{File, FileType, Metadata, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

/// The size from which a file has pieces of its own. They are the same in every tree that contains the file, and so are
/// stored once.
const LARGE_FILE: u64 = 1 << 20;

/// Packs a directory or a file.
pub(super) fn pack(root: &Path, limits: TreeLimits, writer: &mut PieceWriter) -> Result<(), TreeError> {
    let entries = scan(root, limits)?;
    writer.write(HEADER)?;
    for entry in &entries {
        writer.write(&entry.encode())?;
        if let TreeEntryKind::File(size) = entry.kind {
            pack_file(root, entry, size, writer)?;
        }
    }
    writer.write(&[END])
}

/// Packs the content of a file.
fn pack_file(root: &Path, entry: &TreeEntry, size: u64, writer: &mut PieceWriter) -> Result<(), TreeError> {
    let path = full_path(root, &entry.path);
    let mut file = open(&path, entry.path.is_empty()).map_err(at(&path))?;
    let found = file.metadata().map_err(at(&path))?;
    let is_large = size >= LARGE_FILE;
    if is_large {
        writer.cut()?;
    }
    let written = if found.is_file() { writer.write_from(&mut file, size) } else { Ok(0) };
    let written = written.map_err(|error| match error {
        WriteError::Read(source) => at(&path)(source),
        WriteError::Send(error) => error,
    })?;
    let has_more = io::Read::read(&mut file, &mut [0]).map_err(at(&path))? > 0;
    if !found.is_file() || written < size || has_more {
        return Err(TreeError::Changed { path });
    }
    if is_large { writer.cut() } else { Ok(()) }
}

/// Returns the entries of a tree in the order of their paths.
fn scan(root: &Path, limits: TreeLimits) -> Result<Vec<TreeEntry>, TreeError> {
    let found = root.metadata().map_err(at(root))?;
    let mut entries = vec![entry(root.to_owned(), Vec::new(), &found, limits)?];
    let mut size = (HEADER.len() + 1) as u64 + entries[0].packed_size();
    let mut directories = Vec::new();
    directories.extend(found.is_dir().then(Vec::new));
    while let Some(directory) = directories.pop() {
        let path = full_path(root, &directory);
        for child in path.read_dir().map_err(at(&path))? {
            let child = child.map_err(at(&path))?;
            let found = child.metadata().map_err(at(&child.path()))?;
            let entry = entry(child.path(), child_path(&directory, &child.path())?, &found, limits)?;
            size = size.saturating_add(entry.packed_size());
            directories.extend(found.is_dir().then(|| entry.path.clone()));
            entries.push(entry);
            if entries.len() > limits.files {
                return Err(TreeError::TooManyFiles { path: root.to_owned(), limit: limits.files });
            }
        }
    }
    if size > limits.size {
        return Err(TreeError::TooLarge { path: root.to_owned(), size, limit: limits.size });
    }
    entries.sort_unstable_by(|one, other| one.path.cmp(&other.path));
    Ok(entries)
}

/// Returns the entry of a file, a directory or a link.
fn entry(
    at_path: PathBuf,
    path: Vec<u8>,
    found: &Metadata,
    limits: TreeLimits,
) -> Result<TreeEntry, TreeError> {
    if found.is_dir() {
        return Ok(TreeEntry { path, mode: mode(found), kind: TreeEntryKind::Directory });
    }
    if found.is_symlink() {
        let target = at_path.read_link().map_err(at(&at_path))?;
        let target = to_bytes(target.as_os_str()).filter(|target| target.len() <= LONGEST_PATH);
        let target = target.ok_or(TreeError::InvalidName { path: at_path, longest: LONGEST_PATH })?;
        return Ok(TreeEntry { path, mode: 0, kind: TreeEntryKind::Link(target) });
    }
    if !found.is_file() {
        return Err(TreeError::SpecialFile { path: at_path, kind: special_kind(found.file_type()) });
    }
    if found.len() > limits.file_size {
        let (size, limit) = (found.len(), limits.file_size);
        return Err(TreeError::FileTooLarge { path: at_path, size, limit });
    }
    Ok(TreeEntry { path, mode: mode(found), kind: TreeEntryKind::File(found.len()) })
}

/// Returns the packed path of a directory's child.
fn child_path(directory: &[u8], child: &Path) -> Result<Vec<u8>, TreeError> {
    let joined = child.file_name().and_then(to_bytes).map(|name| {
        let separator: &[u8] = if directory.is_empty() { b"" } else { b"/" };
        [directory, separator, &name].concat()
    });
    let usable = joined.filter(|path| path.len() <= LONGEST_PATH && relative_path(path).is_some());
    usable.ok_or_else(|| TreeError::InvalidName { path: child.to_owned(), longest: LONGEST_PATH })
}

/// Returns where a packed path is. Packed paths of a scan are valid.
fn full_path(root: &Path, path: &[u8]) -> PathBuf {
    if path.is_empty() {
        return root.to_owned();
    }
    root.join(relative_path(path).unwrap_or_default())
}

/// Opens a file that was a regular one, without waiting for a pipe that has replaced it since.
fn open(path: &Path, follow: bool) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true);
    #[cfg(unix)]
    {
        use rustix::fs::OFlags;
        let links = if follow { OFlags::empty() } else { OFlags::NOFOLLOW };
        let flags = OFlags::NONBLOCK | OFlags::NOCTTY | links;
        std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, flags.bits().cast_signed());
    }
    #[cfg(not(unix))]
    let _ = follow;
    options.open(path)
}

/// Returns what a file is that is neither regular nor a directory or a link.
#[cfg(unix)]
fn special_kind(kind: FileType) -> &'static str {
    use std::os::unix::fs::FileTypeExt as _;
    match kind {
        kind if kind.is_fifo() => "a pipe",
        kind if kind.is_socket() => "a socket",
        _ => "a device",
    }
}

/// Returns what a file is that is neither regular nor a directory or a link.
#[cfg(not(unix))]
fn special_kind(_: FileType) -> &'static str {
    "not a regular file"
}
