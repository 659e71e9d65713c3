//! When a worker renews a lease, and when it must have ended its work.

use std::time::Duration;

/// What a worker does about a lease at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseState {
    /// Nothing until this moment.
    WaitUntil(Duration),
    /// Renew it.
    Renew,
    /// End the work, because the lease ends soon and could not be renewed.
    Expired,
}

/// Decides when a lease is renewed, by the clock of the worker.
///
/// All times are those of one [`Clock`](crate::Clock). A lease counts from the moment at which the request was sent that
/// obtained or renewed it, so it never ends later for the worker than for the queue.
#[derive(Clone, Copy, Debug)]
pub struct LeaseTimer {
    length: Duration,
    /// When the last request that succeeded was sent.
    valid_from: Duration,
    /// When the last request was sent, whether it succeeded or not.
    tried_at: Duration,
}

impl LeaseTimer {
    /// Begins a lease whose request was sent at `requested_at`.
    #[must_use]
    pub fn new(length: Duration, requested_at: Duration) -> Self {
        Self { length, valid_from: requested_at, tried_at: requested_at }
    }

    /// Returns the moment at which the work must have ended. A tenth of the lease is left for ending it.
    #[must_use]
    pub fn deadline(&self) -> Duration {
        self.valid_from + self.length - self.length / 10
    }

    /// Returns what to do now. A lease is renewed at a third of its time; after a failure, it is tried again soon.
    #[must_use]
    pub fn state(&self, now: Duration) -> LeaseState {
        if now >= self.deadline() {
            return LeaseState::Expired;
        }
        let has_failed = self.tried_at > self.valid_from;
        let pause = if has_failed { self.length / 20 } else { self.length / 3 };
        let next = (self.tried_at + pause).min(self.deadline());
        if now >= next { LeaseState::Renew } else { LeaseState::WaitUntil(next) }
    }

    /// Notes a request to renew the lease that was sent at `requested_at`.
    pub fn record(&mut self, requested_at: Duration, succeeded: bool) {
        self.tried_at = requested_at;
        if succeeded {
            self.valid_from = requested_at;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn lease_is_renewed_at_a_third_and_the_work_ends_before_it_does() {
        let mut timer = LeaseTimer::new(seconds(30), seconds(100));
        assert_eq!(timer.state(seconds(100)), LeaseState::WaitUntil(seconds(110)));
        assert_eq!(timer.state(seconds(110)), LeaseState::Renew);
        timer.record(seconds(110), true);
        assert_eq!(timer.deadline(), seconds(137));
        assert_eq!(timer.state(seconds(115)), LeaseState::WaitUntil(seconds(120)));
        timer.record(seconds(120), false);
        assert_eq!(timer.state(seconds(121)), LeaseState::WaitUntil(Duration::from_millis(121_500)));
        assert_eq!(timer.state(seconds(122)), LeaseState::Renew);
        assert_eq!(timer.state(seconds(137)), LeaseState::Expired);
        // The machine was suspended.
        assert_eq!(timer.state(seconds(10_000)), LeaseState::Expired);
    }
}
