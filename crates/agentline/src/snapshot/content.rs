//! Reads the contents of files, where names and times are not enough: fingerprints and line counts.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::path::Path;

use sha2::{Digest, Sha256};

/// Larger files are not counted or fingerprinted: reading them would cost more than the answer is worth.
const LARGEST: u64 = 16 * 1024 * 1024;
const CHUNK: usize = 64 * 1024;

/// The first half of a SHA-256 digest.
pub(super) type Fingerprint = [u8; 16];

/// How many bytes may still be read.
#[derive(Debug)]
pub(super) struct Allowance(u64);

impl Allowance {
    pub(super) fn new(bytes: u64) -> Self {
        Self(bytes)
    }

    /// Takes what a file of this size needs, or says that too little is left.
    pub(super) fn spend(&mut self, size: u64) -> Option<()> {
        self.0 = self.0.checked_sub(size)?;
        Some(())
    }
}

/// Counts the lines of a text file: a last line without a line end counts too.
///
/// There is no count for what is not a regular file, has a NUL byte, is larger than 16 MiB or cannot be read.
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

/// The fingerprint of a regular file's content.
pub(super) fn of_file(path: &Path) -> Option<Fingerprint> {
    let mut hash = Sha256::new();
    read_whole(path, |chunk| hash.update(chunk)).ok()?;
    Some(first_half(hash))
}

/// The fingerprint of the text that a symbolic link holds; the link is not followed.
pub(super) fn of_link(path: &Path) -> Option<Fingerprint> {
    let target = fs::read_link(path).ok()?;
    let mut hash = Sha256::new();
    hash.update(target.as_os_str().as_encoded_bytes());
    Some(first_half(hash))
}

fn first_half(hash: Sha256) -> Fingerprint {
    let digest = hash.finalize();
    std::array::from_fn(|place| digest[place])
}

fn read_whole(path: &Path, mut take: impl FnMut(&[u8])) -> io::Result<()> {
    let file = open_regular(path)?;
    let mut rest = file.take(LARGEST + 1);
    let mut chunk = vec![0; CHUNK];
    loop {
        match rest.read(&mut chunk) {
            Ok(0) if rest.limit() == 0 => return Err(io::ErrorKind::FileTooLarge.into()),
            Ok(0) => return Ok(()),
            Ok(length) => take(&chunk[..length]),
            Err(why) if why.kind() == io::ErrorKind::Interrupted => {}
            Err(why) => return Err(why),
        }
    }
}

/// Opens a regular file. A pipe that took its place since we looked must not make us wait for a writer.
fn open_regular(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::custom_flags(
        &mut options,
        libc::O_NONBLOCK | libc::O_NOFOLLOW | libc::O_NOCTTY,
    );
    let file = options.open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(io::ErrorKind::InvalidInput.into()) }
}
