//! The recorded metadata of a file, on each operating system.

use std::fs::Metadata;
use std::path::Path;
use std::time::{Duration, SystemTime};

/// The maximum lag of the file system's clock, which ticks at least every 10 ms, behind the system clock.
const CLOCK_LAG: Duration = Duration::from_millis(10);
/// How long a time is ambiguous on file systems that store fractions of a second, in nanoseconds.
const FINE_WINDOW: i64 = 100_000_000;
/// How long a time is ambiguous on file systems with whole seconds. The coarsest (FAT) counts in steps of two.
const COARSE_WINDOW: i64 = 2_000_000_000;
const SECOND: i64 = 1_000_000_000;

/// The type of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileKind {
    /// A regular file.
    File,
    /// A symbolic link.
    Link,
    /// A pipe, socket or device, which is never opened, or a directory in a list of directories.
    Other,
}

/// The metadata of a file that reveals a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileStamp {
    /// The type.
    pub kind: FileKind,
    /// The size in bytes.
    pub size: u64,
    /// The modification time in nanoseconds since 1970. Fields that a system does not have are 0 and so never differ.
    pub modified: i64,
    /// The time of the last change of content or metadata, in nanoseconds since 1970.
    pub changed: i64,
    /// The inode number.
    pub inode: u64,
}

impl FileStamp {
    /// Returns the stamp of anything but a directory. `metadata` must be that of the path itself, not of a
    /// link's target.
    #[must_use]
    pub fn of(metadata: &Metadata) -> Option<Self> {
        (!metadata.is_dir()).then(|| Self::of_any(metadata))
    }

    /// Returns the stamp of the file that a path leads to, if it exists.
    #[must_use]
    pub fn of_path(path: &Path) -> Option<Self> {
        path.metadata().ok().map(|metadata| Self::of_any(&metadata))
    }

    /// Returns the stamp of a file of any type.
    #[must_use]
    pub fn of_any(metadata: &Metadata) -> Self {
        let kind = match metadata.file_type() {
            kind if kind.is_file() => FileKind::File,
            kind if kind.is_symlink() => FileKind::Link,
            _ => FileKind::Other,
        };
        let (modified, changed, inode) = times_and_inode(metadata);
        Self { kind, size: metadata.len(), modified, changed, inode }
    }

    /// Returns whether a write soon after `moment` could leave the same times.
    #[must_use]
    pub fn is_racy(&self, moment: SystemTime) -> bool {
        let latest = self.modified.max(self.changed);
        let window = if latest % SECOND == 0 { COARSE_WINDOW } else { FINE_WINDOW };
        latest > nanoseconds(moment).saturating_sub(window)
    }
}

/// Returns whether `time`, from a file, is at or after `moment`, from the system clock.
#[must_use]
pub fn is_since(time: SystemTime, moment: SystemTime) -> bool {
    time >= moment.checked_sub(CLOCK_LAG).unwrap_or(moment)
}

fn nanoseconds(moment: SystemTime) -> i64 {
    match moment.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(since) => i64::try_from(since.as_nanos()).unwrap_or(i64::MAX),
        Err(before) => i64::try_from(before.duration().as_nanos()).map_or(i64::MIN, |before| -before),
    }
}

#[cfg(unix)]
fn times_and_inode(metadata: &Metadata) -> (i64, i64, u64) {
    use std::os::unix::fs::MetadataExt;

    let join = |seconds: i64, nanoseconds: i64| seconds.saturating_mul(SECOND).saturating_add(nanoseconds);
    (
        join(metadata.mtime(), metadata.mtime_nsec()),
        join(metadata.ctime(), metadata.ctime_nsec()),
        metadata.ino(),
    )
}

#[cfg(not(unix))]
fn times_and_inode(metadata: &Metadata) -> (i64, i64, u64) {
    (metadata.modified().map_or(0, nanoseconds), 0, 0)
}
