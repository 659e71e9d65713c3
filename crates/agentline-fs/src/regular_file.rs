//! Opens files found in a workspace or a store without ever blocking on a pipe or a device.
//!
//! A user who controls a directory can put a FIFO, a device or a link to `/dev/zero` where a file is expected. Every
//! path that the user did not type is opened through this module. Paths that the user typed may be pipes and are read
//! with a size limit and a time limit.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::path::Path;
use std::time::Duration;

/// The maximum buffer size reserved in advance, because a sparse file can claim any length.
const MOST_ROOM: usize = 1 << 20;
/// The spare room below which the standard library first probes with a small read.
const SPARE_ROOM: usize = 32;

/// Opens a regular file of at most `limit` bytes. Symbolic links are followed.
///
/// # Errors
/// Fails if the file cannot be opened, is not a regular file, or is longer than `limit`.
pub fn open_regular(path: &Path, limit: u64) -> io::Result<File> {
    // Checked before the open, because opening a device can have side effects.
    check_allowed(&path.metadata()?, limit)?;
    Ok(open(path, limit, true)?.0)
}

/// Opens a regular file of at most `limit` bytes that is not a symbolic link.
///
/// # Errors
/// As [`open_regular`], and if the path is a symbolic link.
pub fn open_unlinked(path: &Path, limit: u64) -> io::Result<File> {
    check_allowed(&path.symlink_metadata()?, limit)?;
    Ok(open(path, limit, false)?.0)
}

/// Opens a file and returns it with its length.
fn open(path: &Path, limit: u64, follow: bool) -> io::Result<(File, u64)> {
    let mut options = OpenOptions::new();
    options.read(true);
    // A pipe may have replaced the file since the check.
    #[cfg(unix)]
    {
        let flags = libc::O_NONBLOCK | libc::O_NOCTTY | if follow { 0 } else { libc::O_NOFOLLOW };
        std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, flags);
    }
    #[cfg(not(unix))]
    let _ = follow;
    let file = options.open(path)?;
    let found = file.metadata()?;
    check_allowed(&found, limit)?;
    Ok((file, found.len()))
}

/// Reads a regular file of at most `limit` bytes. Symbolic links are followed.
///
/// # Errors
/// As [`open_regular`], and if the file grows past `limit` while it is read.
pub fn read_regular(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    check_allowed(&path.metadata()?, limit)?;
    let (file, length) = open(path, limit, true)?;
    // With room for all of it and a little more, two calls read the whole file; otherwise many small reads are needed.
    let room = usize::try_from(length).unwrap_or(MOST_ROOM).min(MOST_ROOM) + SPARE_ROOM;
    read_into(Vec::with_capacity(room), file, limit)
}

/// Reads a regular file of at most `limit` bytes that is not a symbolic link.
///
/// # Errors
/// As [`open_unlinked`], and if the file grows past `limit` while it is read.
pub fn read_unlinked(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    read_to_limit(open_unlinked(path, limit)?, limit)
}

/// Reads at most `limit` bytes within `time` from a path that the user typed, which may be a pipe or a device.
///
/// # Errors
/// Fails if the path cannot be read, contains more than `limit` bytes, or does not end in time. In the last case, the
/// reading thread is abandoned.
pub fn read_within(path: &Path, limit: u64, time: Duration) -> io::Result<Vec<u8>> {
    if path.metadata()?.is_file() {
        return read_regular(path, limit);
    }
    let (send, receive) = std::sync::mpsc::channel();
    let path = path.to_owned();
    let read = move || {
        // The caller may have stopped waiting.
        let _ = send.send(File::open(path).and_then(|file| read_to_limit(file, limit)));
    };
    std::thread::Builder::new().name("agentline-read".into()).spawn(read)?;
    receive.recv_timeout(time).unwrap_or_else(|_| {
        Err(io::Error::new(io::ErrorKind::TimedOut, format!("input did not end within {} s", time.as_secs())))
    })
}

/// Reads everything from a source, up to `limit` bytes.
///
/// # Errors
/// Fails if the source cannot be read or contains more than `limit` bytes.
pub fn read_to_limit(source: impl Read, limit: u64) -> io::Result<Vec<u8>> {
    read_into(Vec::new(), source, limit)
}

fn read_into(mut bytes: Vec<u8>, source: impl Read, limit: u64) -> io::Result<Vec<u8>> {
    source.take(limit.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit { Err(too_large(limit)) } else { Ok(bytes) }
}

fn check_allowed(found: &std::fs::Metadata, limit: u64) -> io::Result<()> {
    if !found.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    if found.len() > limit { Err(too_large(limit)) } else { Ok(()) }
}

fn too_large(limit: u64) -> io::Error {
    io::Error::new(io::ErrorKind::FileTooLarge, format!("larger than {limit} bytes"))
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::{fs, os::unix::fs::symlink, process::Command};

    #[test]
    fn only_regular_files_up_to_the_limit_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::write(at("file"), "hello").unwrap();
        symlink("file", at("link")).unwrap();
        symlink("/dev/zero", at("zero")).unwrap();
        assert!(Command::new("mkfifo").arg(at("pipe")).status().unwrap().success());
        assert_eq!(read_regular(&at("file"), 5).unwrap(), b"hello");
        assert_eq!(read_regular(&at("link"), 5).unwrap(), b"hello");
        let kind = |name: &str, limit| read_regular(&at(name), limit).unwrap_err().kind();
        assert_eq!(kind("file", 4), io::ErrorKind::FileTooLarge);
        for name in ["zero", "pipe", "."] {
            assert_eq!(kind(name, 5), io::ErrorKind::InvalidInput, "{name}");
        }
        assert_eq!(kind("none", 5), io::ErrorKind::NotFound);
        assert_eq!(read_to_limit(io::repeat(0), 5).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
    }
}
