//! The format of a packed tree.
//!
//! A packed tree is [`HEADER`], its entries in the order of their paths, and [`END`]. An entry is its kind (one byte), its
//! permission bits (two bytes; 0 for a link), and its path with its length (two bytes) before it. A file continues with its
//! size (eight bytes) and its content, a link with its target and its length (two bytes) before it. Numbers are
//! big-endian. A path is relative to the root and has `/` between its parts; that of the root, the first entry, is empty.
//! Times and owners are not stored, so the same content always has the same form.

use std::ffi::OsStr;
use std::fs::Metadata;
use std::path::{Path, PathBuf};

/// How a packed tree begins: the name of the format and its version.
pub(super) const HEADER: &[u8; 17] = b"agentline tree 1\n";
/// The length of the longest path or target of a link in bytes.
pub(super) const LONGEST_PATH: usize = 4096;
/// The kind of a directory.
pub(super) const DIRECTORY: u8 = b'd';
/// The kind of a file.
pub(super) const FILE: u8 = b'f';
/// The kind of a symbolic link.
pub(super) const LINK: u8 = b'l';
/// Comes after the last entry.
pub(super) const END: u8 = b'.';
/// The permission bits that are kept.
pub(super) const MODE: u16 = 0o777;

/// What an entry is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TreeEntryKind {
    /// A directory.
    Directory,
    /// A file of this size in bytes.
    File(u64),
    /// A symbolic link to this target.
    Link(Vec<u8>),
}

/// An entry of a packed tree, without the content of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TreeEntry {
    /// The path.
    pub(super) path: Vec<u8>,
    /// The permission bits.
    pub(super) mode: u16,
    /// What it is.
    pub(super) kind: TreeEntryKind,
}

impl TreeEntry {
    /// Returns the packed entry, without the content of a file.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.path.len() + 16);
        bytes.push(match self.kind {
            TreeEntryKind::Directory => DIRECTORY,
            TreeEntryKind::File(_) => FILE,
            TreeEntryKind::Link(_) => LINK,
        });
        bytes.extend(self.mode.to_be_bytes());
        push_with_length(&mut bytes, &self.path);
        match &self.kind {
            TreeEntryKind::Directory => {}
            TreeEntryKind::File(size) => bytes.extend(size.to_be_bytes()),
            TreeEntryKind::Link(target) => push_with_length(&mut bytes, target),
        }
        bytes
    }

    /// Returns the size of the packed entry with the content of a file.
    pub(super) fn packed_size(&self) -> u64 {
        let rest = match &self.kind {
            TreeEntryKind::Directory => 0,
            TreeEntryKind::File(size) => size.saturating_add(8),
            TreeEntryKind::Link(target) => 2 + target.len() as u64,
        };
        rest.saturating_add(5 + self.path.len() as u64)
    }
}

/// Appends bytes of at most [`LONGEST_PATH`].
fn push_with_length(to: &mut Vec<u8>, bytes: &[u8]) {
    to.extend((bytes.len() as u16).to_be_bytes());
    to.extend(bytes);
}

/// Returns the path of a packed entry, relative to the root; `None` if it could lead elsewhere, or if this system cannot
/// represent it.
pub(super) fn relative_path(bytes: &[u8]) -> Option<PathBuf> {
    let mut path = PathBuf::new();
    for part in bytes.split(|byte| *byte == b'/').filter(|_| !bytes.is_empty()) {
        let part = from_bytes(part).filter(|part| is_file_name(part))?;
        path.push(part);
    }
    Some(path)
}

/// Returns whether a name is that of a file in a directory, and nothing else: not empty, not `..`, not the root.
fn is_file_name(name: &OsStr) -> bool {
    use std::path::Component;
    let mut parts = Path::new(name).components();
    let is_normal = matches!(parts.next(), Some(Component::Normal(part)) if part == name);
    let has_stream = cfg!(windows) && name.as_encoded_bytes().contains(&b':');
    is_normal && parts.next().is_none() && !name.as_encoded_bytes().contains(&0) && !has_stream
}

/// Returns the bytes of a name or a link's target.
#[cfg(unix)]
pub(super) fn to_bytes(name: &OsStr) -> Option<Vec<u8>> {
    Some(std::os::unix::ffi::OsStrExt::as_bytes(name).to_vec())
}

/// Returns the name or the link's target that has these bytes.
#[cfg(unix)]
pub(super) fn from_bytes(bytes: &[u8]) -> Option<&OsStr> {
    Some(std::os::unix::ffi::OsStrExt::from_bytes(bytes))
}

/// Returns the bytes of a name or a link's target.
#[cfg(not(unix))]
pub(super) fn to_bytes(name: &OsStr) -> Option<Vec<u8>> {
    Some(name.to_str()?.as_bytes().to_vec())
}

/// Returns the name or the link's target that has these bytes.
#[cfg(not(unix))]
pub(super) fn from_bytes(bytes: &[u8]) -> Option<&OsStr> {
    std::str::from_utf8(bytes).ok().map(OsStr::new)
}

/// Returns the permission bits of a file or directory.
#[cfg(unix)]
pub(super) fn mode(found: &Metadata) -> u16 {
    let mode = std::os::unix::fs::PermissionsExt::mode(&found.permissions());
    mode as u16 & MODE
}

/// Returns the permission bits of a file or directory.
#[cfg(not(unix))]
pub(super) fn mode(found: &Metadata) -> u16 {
    if found.is_dir() { 0o755 } else { 0o644 }
}
