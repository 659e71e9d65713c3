//! Clocks that measure how long a lease lasts.

use std::fmt::Debug;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A clock that never goes back.
pub trait Clock: Debug + Send + Sync {
    /// Returns the time since some moment in the past, such as the start of the machine.
    fn now(&self) -> Duration;
}

/// The clock of the machine. It does not depend on the date, and the time for which the machine is suspended counts
/// where the system can tell.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    fn now(&self) -> Duration {
        since_boot(rustix::time::ClockId::Boottime)
    }

    #[cfg(all(unix, not(any(target_os = "linux", target_os = "android"))))]
    fn now(&self) -> Duration {
        // On macOS, this clock counts while the machine sleeps.
        since_boot(rustix::time::ClockId::Monotonic)
    }

    #[cfg(not(unix))]
    fn now(&self) -> Duration {
        static START: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
        START.get_or_init(std::time::Instant::now).elapsed()
    }
}

#[cfg(unix)]
fn since_boot(clock: rustix::time::ClockId) -> Duration {
    let time = rustix::time::clock_gettime(clock);
    let (seconds, nanoseconds) = (u64::try_from(time.tv_sec), u32::try_from(time.tv_nsec));
    Duration::new(seconds.unwrap_or(0), nanoseconds.unwrap_or(0))
}

/// A clock that tests set.
#[derive(Debug, Default)]
pub struct TestClock(AtomicU64);

impl TestClock {
    /// Moves the clock forward.
    pub fn advance(&self, time: Duration) {
        self.0.fetch_add(u64::try_from(time.as_millis()).unwrap_or(u64::MAX), Ordering::SeqCst);
    }
}

impl Clock for TestClock {
    fn now(&self) -> Duration {
        Duration::from_millis(self.0.load(Ordering::SeqCst))
    }
}
