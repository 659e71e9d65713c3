//! The recorded metadata of a session file, which changes when the file does.

use std::{
    fs::{self, Metadata},
    path::Path,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// Metadata that changes when a file changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct SessionStamp {
    /// The size in bytes.
    pub(crate) size: u64,
    /// The later of modification time and status change time, in nanoseconds since 1970.
    pub(crate) changed: u64,
    /// The inode number, or 0 where the system has none.
    pub(crate) inode: u64,
}

/// The minimum age of a change. Two writes within one tick of the file system's clock have the same time.
const SETTLED: Duration = Duration::from_secs(2);

impl SessionStamp {
    pub(crate) fn of(metadata: &Metadata) -> Self {
        let modified = metadata.modified().unwrap_or(UNIX_EPOCH);
        let (inode, status) = system_side(metadata);
        Self { size: metadata.len(), changed: nanos(modified).max(status), inode }
    }

    /// Combines the stamps of several files. The result changes when any of them changes.
    pub(crate) fn with(self, other: Self) -> Self {
        Self {
            size: self.size.wrapping_add(other.size),
            changed: self.changed.max(other.changed),
            inode: self
                .inode
                .wrapping_mul(31)
                .wrapping_add(other.inode ^ other.changed.rotate_left(7) ^ other.size),
        }
    }

    /// Returns the current stamp of the file at a path.
    pub(crate) fn at(path: &Path) -> Option<Self> {
        fs::metadata(path).ok().filter(Metadata::is_file).map(|m| Self::of(&m))
    }

    /// Returns whether a later change is sure to change the stamp.
    pub(crate) fn is_settled(self, now: SystemTime) -> bool {
        now.checked_sub(SETTLED).is_some_and(|then| self.changed < nanos(then))
    }
}

fn nanos(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// Returns the inode and the status change time, which programs cannot set back, unlike the modification time.
#[cfg(unix)]
fn system_side(metadata: &Metadata) -> (u64, u64) {
    use std::os::unix::fs::MetadataExt;
    let seconds = u64::try_from(metadata.ctime()).unwrap_or(0);
    let nanos = u64::try_from(metadata.ctime_nsec()).unwrap_or(0);
    (metadata.ino(), seconds.saturating_mul(1_000_000_000).saturating_add(nanos))
}

#[cfg(not(unix))]
fn system_side(_metadata: &Metadata) -> (u64, u64) {
    (0, 0)
}
