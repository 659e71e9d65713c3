//! A deadline that the host must extend: when it passes, the supervisors kill their agents, even while the host is
//! stopped.
//!
//! The deadline is in an unnamed file that the host, the supervisors and their inits have open. One write extends the
//! deadline of all of them.

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// The longest time between two looks at a deadline. A deadline may be set or moved forward at any time, and waits do
/// not count the time in which the system is suspended.
#[cfg(unix)]
const CHECK_INTERVAL: Duration = Duration::from_millis(500);

/// The size of the file: the deadline in milliseconds, and its complement.
const SIZE: usize = 2 * 8;

/// The time at which the supervisors kill all agents that were started with this deadline, unless it is extended.
///
/// For programs that may work on something only for a limited time, such as the holder of a lease. A program that is
/// stopped, or whose machine was suspended, cannot end its agents in time. Their supervisors can: each reads the
/// deadline twice per second, and again when it has passed.
///
/// ```
/// use agentline::supervisor::KillDeadline;
/// use std::time::Duration;
///
/// let deadline = KillDeadline::new()?;
/// deadline.set(Some(KillDeadline::now() + Duration::from_secs(30)))?;
/// // … pass it to `Agentline::kill_deadline`, and set a later time before the deadline passes …
/// deadline.set(None)?;
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// A deadline has no effect on agents without a [supervisor](super::Supervisor), nor on Windows. Clones share the
/// deadline.
#[derive(Debug, Clone)]
pub struct KillDeadline {
    file: Arc<File>,
}

impl KillDeadline {
    /// Creates a deadline that is not set.
    ///
    /// # Errors
    /// Fails if a temporary file cannot be created.
    pub fn new() -> io::Result<Self> {
        let deadline = Self { file: Arc::new(tempfile::tempfile()?) };
        deadline.set(None)?;
        Ok(deadline)
    }

    /// Returns the current time of the clock on which deadlines are set.
    ///
    /// It counts from the start of the system and includes the time in which the system is suspended. It never jumps.
    #[must_use]
    pub fn now() -> Duration {
        clock()
    }

    /// Sets the deadline for all agents that were started with it, or removes it. Costs one small write.
    ///
    /// # Errors
    /// Fails if the file cannot be written. The deadline is unchanged then.
    pub fn set(&self, deadline: Option<Duration>) -> io::Result<()> {
        let millis = deadline.map_or(0, |time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX).max(1));
        let mut bytes = [0; SIZE];
        bytes[..8].copy_from_slice(&millis.to_le_bytes());
        bytes[8..].copy_from_slice(&(!millis).to_le_bytes());
        write(&self.file, &bytes)
    }
}

impl PartialEq for KillDeadline {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.file, &other.file)
    }
}

impl Eq for KillDeadline {}

#[cfg(unix)]
impl KillDeadline {
    /// Returns the handle to the file, which another process may get.
    pub(super) fn descriptor(&self) -> std::os::fd::BorrowedFd<'_> {
        std::os::fd::AsFd::as_fd(&*self.file)
    }

    /// Returns the time until the deadline must be checked again, at `grace` after it at the latest. Zero means that
    /// the deadline and the grace period have passed.
    pub(super) fn next_check(&self, grace: Duration) -> Duration {
        // Whole milliseconds, so that a wait that counts them does not end just before the deadline.
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        self.read().map_or(CHECK_INTERVAL, |deadline| {
            let end = deadline.saturating_add(millis(grace));
            Duration::from_millis(end.saturating_sub(millis(Self::now()))).min(CHECK_INTERVAL)
        })
    }

    /// Returns the deadline in milliseconds. A file that cannot be read, or that is just being written, has none.
    fn read(&self) -> Option<u64> {
        let mut bytes = [0; SIZE];
        std::os::unix::fs::FileExt::read_exact_at(&*self.file, &mut bytes, 0).ok()?;
        let (millis, complement) = bytes.split_at(8);
        let [millis, complement] =
            [millis, complement].map(|half| half.try_into().map_or(0, u64::from_le_bytes));
        (millis == !complement && millis > 0).then_some(millis)
    }
}

#[cfg(unix)]
impl From<std::os::fd::OwnedFd> for KillDeadline {
    fn from(descriptor: std::os::fd::OwnedFd) -> Self {
        Self { file: Arc::new(descriptor.into()) }
    }
}

#[cfg(unix)]
fn clock() -> Duration {
    super::unix::time_since_boot()
}

#[cfg(unix)]
fn write(file: &File, bytes: &[u8]) -> io::Result<()> {
    std::os::unix::fs::FileExt::write_all_at(file, bytes, 0)
}

/// Returns the time since the first call, because nothing reads the deadline on this system.
#[cfg(windows)]
fn clock() -> Duration {
    static START: std::sync::LazyLock<std::time::Instant> = std::sync::LazyLock::new(std::time::Instant::now);
    START.elapsed()
}

#[cfg(windows)]
fn write(file: &File, bytes: &[u8]) -> io::Result<()> {
    std::os::windows::fs::FileExt::seek_write(file, bytes, 0).map(drop)
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn check_is_due_at_the_deadline_and_again_and_again_before_it() {
        let deadline = KillDeadline::new().expect("a file");
        let seen_elsewhere =
            KillDeadline::from(deadline.descriptor().try_clone_to_owned().expect("a handle"));
        let check = || seen_elsewhere.next_check(Duration::ZERO);
        let set = |time| deadline.set(time).expect("a written file");
        assert_eq!(check(), CHECK_INTERVAL, "no deadline");
        set(Some(KillDeadline::now() + Duration::from_secs(60)));
        assert_eq!(check(), CHECK_INTERVAL);
        set(Some(KillDeadline::now()));
        assert_eq!(check(), Duration::ZERO);
        assert!(!seen_elsewhere.next_check(Duration::from_secs(60)).is_zero(), "the grace period");
        set(Some(Duration::ZERO));
        assert_eq!(check(), Duration::ZERO);
        set(Some(Duration::MAX));
        assert_eq!(check(), CHECK_INTERVAL);
        set(None);
        assert_eq!(check(), CHECK_INTERVAL);
    }

    #[test]
    fn damaged_file_has_no_deadline() {
        let deadline = KillDeadline::new().expect("a file");
        deadline.set(Some(Duration::from_secs(1))).expect("a written file");
        assert_eq!(deadline.read(), Some(1_000));
        write(&deadline.file, &[1; 8]).expect("a written file");
        assert_eq!(deadline.read(), None);
        deadline.file.set_len(3).expect("a shorter file");
        assert_eq!(deadline.read(), None);
    }
}
