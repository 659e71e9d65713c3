//! Reads a file while another process appends to it, and frees the disk space of the part already read.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};

/// The maximum number of bytes per read. The events of one read are one batch, which should fit into the cache of a
/// processor core.
pub(super) const READ: u64 = 64 * 1024;

/// The step in which read bytes are freed: large enough to cost nothing, small enough to keep disk and memory use
/// bounded.
const RELEASE: u64 = 4 * 1024 * 1024;

/// The first byte of the file, written by this module. No text contains it, so if it is missing, the file was
/// truncated.
///
/// A script that writes to `/dev/stderr` with `>` does that: the name resolves to the file, and `>` truncates it.
const FIRST_BYTE: u8 = 0xff;

/// The size of the first page, which is not freed because it contains [`FIRST_BYTE`].
const FIRST_PAGE: u64 = 4096;

/// A file that is read from its start as it grows.
#[derive(Debug)]
pub(super) struct Tail {
    file: File,
    offset: u64,
    released: u64,
}

impl Tail {
    /// Starts to read a new, empty file. Others append to it through `writer`.
    pub(super) fn new(file: File, mut writer: &File) -> io::Result<Self> {
        writer.write_all(&[FIRST_BYTE])?;
        Ok(Self { file, offset: 1, released: FIRST_PAGE })
    }

    /// Returns the number of unread bytes.
    pub(super) fn waiting(&self) -> u64 {
        let size = self.size();
        if self.cut(size) { size } else { size - self.offset }
    }

    /// Appends unread bytes to `into`, at most [`READ`], and returns their number.
    pub(super) fn read(&mut self, into: &mut Vec<u8>) -> usize {
        let size = self.size();
        let cut = self.cut(size);
        if cut {
            (self.offset, self.released) = (0, FIRST_PAGE);
        }
        let length = (size - self.offset).min(READ);
        if length == 0 || self.file.seek(SeekFrom::Start(self.offset)).is_err() {
            return 0;
        }
        let read = append(&mut self.file, length, into);
        if cut && read > 0 {
            // The first byte has just been read, so it can be overwritten. If this fails, a file that shrinks is still
            // detected.
            let _ = write_at(&self.file, &[FIRST_BYTE], 0);
        }
        self.offset += read as u64;
        self.release();
        read
    }

    fn size(&self) -> u64 {
        self.file.metadata().map_or(self.offset, |file| file.len())
    }

    /// Returns whether the file was truncated since the last read. Bytes that were unread then are lost.
    fn cut(&self, size: u64) -> bool {
        let mut first = [FIRST_BYTE];
        size < self.offset || (read_at(&self.file, &mut first, 0).is_ok() && first != [FIRST_BYTE])
    }

    fn release(&mut self) {
        if self.offset.saturating_sub(self.released) >= RELEASE {
            let whole_steps = self.offset - self.offset % RELEASE;
            super::os::release(&self.file, self.released, whole_steps);
            self.released = whole_steps;
        }
    }
}

/// Appends up to `length` bytes without zeroing the buffer first, and returns their number.
pub(super) fn append(from: &mut impl Read, length: u64, into: &mut Vec<u8>) -> usize {
    let before = into.len();
    into.reserve(usize::try_from(length).unwrap_or(0));
    // Bytes that were read before an error are kept.
    let _ = from.take(length).read_to_end(into);
    into.len() - before
}

/// Creates a file to read from and to append to, whose name is removed immediately where the system allows it.
pub(super) fn file_with_passing_name() -> io::Result<(File, File)> {
    let (ours, path) = tempfile::NamedTempFile::new()?.into_parts();
    let theirs = File::options().append(true).open(&path)?;
    Ok((ours, theirs))
}

#[cfg(unix)]
fn read_at(file: &File, into: &mut [u8], offset: u64) -> io::Result<usize> {
    std::os::unix::fs::FileExt::read_at(file, into, offset)
}

#[cfg(unix)]
fn write_at(file: &File, bytes: &[u8], offset: u64) -> io::Result<usize> {
    std::os::unix::fs::FileExt::write_at(file, bytes, offset)
}

#[cfg(windows)]
fn write_at(file: &File, bytes: &[u8], offset: u64) -> io::Result<usize> {
    std::os::windows::fs::FileExt::seek_write(file, bytes, offset)
}

#[cfg(windows)]
fn read_at(file: &File, into: &mut [u8], offset: u64) -> io::Result<usize> {
    std::os::windows::fs::FileExt::seek_read(file, into, offset)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (File, Tail) {
        let (ours, theirs) = super::super::os::unnamed_file().unwrap();
        let tail = Tail::new(ours, &theirs).unwrap();
        (theirs, tail)
    }

    #[test]
    fn appended_data_is_read_once() {
        let (mut writer, mut tail) = pair();
        let mut bytes = Vec::new();
        assert_eq!(tail.read(&mut bytes), 0);
        writer.write_all(b"one ").unwrap();
        assert_eq!((tail.waiting(), tail.read(&mut bytes), tail.waiting()), (4, 4, 0));
        writer.write_all(b"two").unwrap();
        tail.read(&mut bytes);
        assert_eq!(bytes, b"one two");
    }

    #[test]
    fn truncated_file_is_read_from_its_new_start() {
        let (mut writer, mut tail) = pair();
        let mut bytes = Vec::new();
        // The new text is shorter than, as long as, or longer than the old one.
        for text in ["four", "one", "same", "same", "and more of it"] {
            writer.set_len(0).unwrap();
            writer.write_all(text.as_bytes()).unwrap();
            assert_eq!(tail.waiting(), text.len() as u64);
            tail.read(&mut bytes);
        }
        assert_eq!(bytes, b"fouronesamesameand more of it");
        writer.set_len(0).unwrap();
        assert_eq!((tail.waiting(), tail.read(&mut bytes)), (0, 0));
    }

    #[test]
    fn unlinked_temporary_file_works() {
        let (ours, mut writer) = file_with_passing_name().unwrap();
        let (mut tail, mut bytes) = (Tail::new(ours, &writer).unwrap(), Vec::new());
        writer.write_all(b"text").unwrap();
        assert_eq!((tail.read(&mut bytes), bytes.as_slice()), (4, b"text".as_slice()));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn space_of_read_data_is_freed() {
        use std::os::unix::fs::MetadataExt;
        let (mut writer, mut tail) = pair();
        let (block, mut bytes, mut read) = (vec![b'x'; 1 << 20], Vec::new(), 0);
        for _ in 0..32 {
            writer.write_all(&block).unwrap();
            while tail.waiting() > 0 {
                bytes.clear();
                read += tail.read(&mut bytes);
                assert!(bytes.iter().all(|byte| *byte == b'x'));
            }
            assert!(tail.file.metadata().unwrap().blocks() * 512 <= RELEASE + (2 << 20));
        }
        assert_eq!(read, 32 << 20);
    }
}
