//! Reads the contents of files, to keep them, to compare them, or to count lines.

use std::fs;
use std::io::{self, Read};
use std::path::Path;
use std::time::Instant;

use sha2::{Digest, Sha256};

use crate::fs::regular_file::open_unlinked;
use crate::fs::stamp::{FileKind, FileStamp};
use crate::workspace::snapshot::{Entry, Snapshot};

/// The maximum size of a file whose content is read.
const MAX_FILE_BYTES: u64 = 16 * 1024 * 1024;
/// The maximum number of files and bytes of a workspace whose contents are kept.
const SMALL_FILES: usize = 500;
const SMALL_BYTES: u64 = 2 * 1024 * 1024;
/// The maximum number of bytes read for the fingerprints of one snapshot.
const FINGERPRINT_BYTES: u64 = 8 * 1024 * 1024;
const CHUNK: usize = 64 * 1024;

/// The known content of a file.
#[derive(Debug)]
pub(super) enum KnownContent {
    /// The complete content, or the target of a link.
    Whole(Box<[u8]>),
    /// The first half of the SHA-256 digest.
    Fingerprint([u8; 16]),
}

impl KnownContent {
    /// Returns whether the file has different content now, or `None` if it cannot be read.
    pub(super) fn differs(&self, kind: FileKind, on_disk: &Path) -> Option<bool> {
        Some(match self {
            Self::Whole(then) if kind == FileKind::Link => **then != *link_target(on_disk)?,
            Self::Whole(then) => **then != *whole(on_disk)?,
            Self::Fingerprint(then) => *then != fingerprint(on_disk)?,
        })
    }

    pub(super) fn memory(&self) -> usize {
        match self {
            Self::Whole(bytes) => bytes.len(),
            Self::Fingerprint(_) => 0,
        }
    }
}

impl Snapshot {
    /// Adds the contents of a small workspace, or else fingerprints of files whose times may not show a later write.
    /// Targets of links are always added. After the deadline, nothing more is read.
    pub(super) fn with_contents(mut self, deadline: Option<Instant>) -> Self {
        let files = || self.entries.iter().filter(|entry| entry.stamp.kind == FileKind::File);
        let bytes = files().map(|entry| entry.stamp.size).fold(0, u64::saturating_add);
        let is_small = self.entries.len() <= SMALL_FILES && bytes <= SMALL_BYTES;
        let mut allowance = ReadBudget::new(FINGERPRINT_BYTES);
        let mut is_late = false;
        let mut known = |stamp: &FileStamp, entry: &Entry| {
            is_late |= deadline.is_some_and(|deadline| Instant::now() > deadline);
            if is_late {
                return None;
            }
            let on_disk = || self.on_disk(self.path(entry));
            match stamp.kind {
                FileKind::Link => Some(KnownContent::Whole(link_target(&on_disk())?)),
                FileKind::File if is_small => Some(KnownContent::Whole(whole(&on_disk())?.into())),
                FileKind::File if stamp.is_racy(self.began) => {
                    allowance.spend(stamp.size)?;
                    Some(KnownContent::Fingerprint(fingerprint(&on_disk())?))
                }
                FileKind::File | FileKind::Other => None,
            }
        };
        let numbered = (0_u32..).zip(&self.entries);
        let mut contents: Vec<_> =
            numbered.filter_map(|(number, entry)| Some((number, known(&entry.stamp, entry)?))).collect();
        contents.shrink_to_fit();
        self.contents = contents.into();
        self.truncated |= is_late;
        self
    }
}

/// The number of bytes that may still be read.
#[derive(Debug)]
pub(super) struct ReadBudget(u64);

impl ReadBudget {
    pub(super) fn new(bytes: u64) -> Self {
        Self(bytes)
    }

    /// Subtracts the size of a file, or returns `None` if too little is left.
    pub(super) fn spend(&mut self, size: u64) -> Option<()> {
        self.0 = self.0.checked_sub(size)?;
        Some(())
    }
}

/// Counts the lines of a text file, including a last line without a line ending.
///
/// Returns `None` if the path is not a regular file, contains a NUL byte, is larger than 16 MiB or cannot be read.
#[must_use]
pub fn line_count(path: &Path) -> Option<u64> {
    let mut lines = 0;
    let mut last = b'\n';
    let mut is_text = true;
    read_whole(path, |chunk| {
        is_text &= !chunk.contains(&0);
        lines += chunk.iter().map(|&byte| u64::from(byte == b'\n')).sum::<u64>();
        last = *chunk.last().unwrap_or(&last);
    })
    .ok()?;
    is_text.then_some(lines + u64::from(last != b'\n'))
}

/// Returns the content of a regular file.
pub(super) fn whole(path: &Path) -> Option<Vec<u8>> {
    let mut content = Vec::new();
    read_whole(path, |chunk| content.extend_from_slice(chunk)).ok()?;
    Some(content)
}

fn fingerprint(path: &Path) -> Option<[u8; 16]> {
    let mut hash = Sha256::new();
    read_whole(path, |chunk| hash.update(chunk)).ok()?;
    let digest = hash.finalize();
    Some(std::array::from_fn(|index| digest[index]))
}

pub(super) fn link_target(path: &Path) -> Option<Box<[u8]>> {
    let target = fs::read_link(path).ok()?;
    Some(target.as_os_str().as_encoded_bytes().into())
}

fn read_whole(path: &Path, mut take: impl FnMut(&[u8])) -> io::Result<()> {
    let file = open_unlinked(path, u64::MAX)?;
    let mut rest = file.take(MAX_FILE_BYTES + 1);
    let mut chunk = vec![0; CHUNK];
    loop {
        match rest.read(&mut chunk) {
            Ok(0) if rest.limit() == 0 => return Err(io::ErrorKind::FileTooLarge.into()),
            Ok(0) => return Ok(()),
            Ok(length) => take(&chunk[..length]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}
