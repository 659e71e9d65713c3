//! The cancellation of a turn.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::peer::lock;

/// Whether a turn was cancelled, with a way to wait for that.
#[derive(Debug, Default)]
pub(super) struct Control {
    cancelled: Mutex<bool>,
    changed: Condvar,
}

impl Control {
    pub(super) fn cancel(&self) {
        *lock(&self.cancelled) = true;
        self.changed.notify_all();
    }

    pub(super) fn cancelled(&self) -> bool {
        *lock(&self.cancelled)
    }

    /// Waits for a duration, or until the turn is cancelled.
    pub(super) fn wait(&self, time: Duration) {
        let until = Instant::now() + time;
        let mut cancelled = lock(&self.cancelled);
        while !*cancelled {
            let Some(left) = until.checked_duration_since(Instant::now()) else { return };
            cancelled = self.changed.wait_timeout(cancelled, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}
