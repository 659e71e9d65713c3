//! Limits how many runs start at once, in order of arrival. The limit falls while the model's service refuses requests
//! and rises again when it accepts them.

use crate::api::retry::{LONGEST_WAIT, backoff};
use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};
use tokio::sync::oneshot;

/// Decides which runs may start, and when.
#[derive(Debug)]
pub struct AdmissionControl {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// The limit that the host has set.
    max_runs: usize,
    /// The number of concurrent runs that the service currently accepts. Grows by one after as many successes.
    accepted: f64,
    active: usize,
    /// No run starts before this time.
    not_before: Instant,
    waiting: VecDeque<oneshot::Sender<AdmissionPermit>>,
}

/// A slot for one attempt of a run. Dropping it admits the next run.
#[derive(Debug)]
pub struct AdmissionPermit {
    admission: Arc<AdmissionControl>,
}

/// The service's response to an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttemptResult {
    /// The service answered.
    Answered,
    /// The service refused because of load or quota.
    Refused,
    /// The run failed for another reason.
    Unknown,
}

impl AdmissionControl {
    /// Creates a control that admits at most this many runs at once.
    #[must_use]
    pub fn new(max_runs: usize) -> Arc<Self> {
        let max_runs = max_runs.max(1);
        Arc::new(Self {
            state: Mutex::new(State {
                max_runs,
                accepted: as_limit(max_runs),
                active: 0,
                not_before: Instant::now(),
                waiting: VecDeque::new(),
            }),
        })
    }

    /// Changes the maximum number of concurrent runs.
    pub fn set_limit(self: &Arc<Self>, max_runs: usize) {
        let mut state = self.lock();
        let was_full = state.accepted >= as_limit(state.max_runs);
        state.max_runs = max_runs.max(1);
        if was_full || state.accepted > as_limit(state.max_runs) {
            state.accepted = as_limit(state.max_runs);
        }
        drop(state);
        self.admit();
    }

    /// Waits for a slot, in order of arrival. Dropping the future leaves the queue.
    pub async fn acquire(self: &Arc<Self>) -> AdmissionPermit {
        let (give, take) = oneshot::channel();
        self.lock().waiting.push_back(give);
        self.admit();
        match take.await {
            Ok(permit) => permit,
            // The queue never drops a sender. If it did, it would be better to admit one run too many than to
            // block one.
            Err(_) => {
                self.lock().active += 1;
                AdmissionPermit { admission: Arc::clone(self) }
            }
        }
    }

    /// Records how the service responded to an attempt, and returns how long to wait before the next attempt of the
    /// same run.
    pub fn record_result(
        self: &Arc<Self>,
        attempt_result: AttemptResult,
        attempt: u32,
        retry_after: Option<Duration>,
    ) -> Duration {
        let mut state = self.lock();
        match attempt_result {
            AttemptResult::Unknown => return Duration::ZERO,
            AttemptResult::Answered => {
                state.accepted = (state.accepted + 1.0 / state.accepted).min(as_limit(state.max_runs));
                drop(state);
                self.admit();
                return Duration::ZERO;
            }
            AttemptResult::Refused => {}
        }
        state.accepted = (state.accepted / 2.0).max(1.0);
        let wait = backoff(attempt, retry_after);
        let pause = match retry_after {
            // A quota is exhausted. Other runs do not wait; they start and report the error themselves.
            Some(retry_after) if retry_after > LONGEST_WAIT => Duration::ZERO,
            // The service has said how long to wait.
            Some(retry_after) => retry_after,
            // The service has just begun to refuse: other runs wait for a part of the time.
            None => wait / 4,
        };
        state.not_before = state.not_before.max(Instant::now() + pause);
        wait
    }

    /// Returns the number of active runs, of waiting runs, and the current limit.
    pub fn counts(&self) -> (usize, usize, usize) {
        let state = self.lock();
        (state.active, state.waiting.len(), state.allowed())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Admits the waiting runs that may start now.
    fn admit(self: &Arc<Self>) {
        loop {
            let mut state = self.lock();
            let now = Instant::now();
            if state.waiting.is_empty() || state.active >= state.allowed() {
                return;
            }
            if now < state.not_before {
                let (later, wait) = (Arc::clone(self), state.not_before - now);
                drop(state);
                tokio::spawn(async move {
                    tokio::time::sleep(wait).await;
                    later.admit();
                });
                return;
            }
            let Some(next) = state.waiting.pop_front() else { return };
            state.active += 1;
            drop(state);
            // If the receiver is gone, the slot is dropped, which releases it.
            drop(next.send(AdmissionPermit { admission: Arc::clone(self) }));
        }
    }
}

impl State {
    fn allowed(&self) -> usize {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "the value is clamped to 1..=max_runs"
        )]
        let accepted = self.accepted as usize;
        accepted.clamp(1, self.max_runs)
    }
}

impl Drop for AdmissionPermit {
    fn drop(&mut self) {
        self.admission.lock().active -= 1;
        self.admission.admit();
    }
}

#[expect(clippy::cast_precision_loss, reason = "the number of agents is far below 2^52")]
fn as_limit(max_runs: usize) -> f64 {
    max_runs as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The wait after the first refusal.
    const FIRST_WAIT: Duration = Duration::from_secs(1);

    #[tokio::test]
    async fn slots_are_granted_in_order_up_to_the_limit() {
        let admission = AdmissionControl::new(2);
        let (one, two) = (admission.acquire().await, admission.acquire().await);
        let mut third = Box::pin(admission.acquire());
        let fourth = Box::pin(admission.acquire());
        assert!(tokio::time::timeout(Duration::from_millis(20), &mut third).await.is_err());
        assert_eq!(admission.counts().0, 2);
        drop(fourth);
        drop(one);
        let third = third.await;
        assert_eq!(admission.counts(), (2, 0, 2), "a run that left the queue gets no slot");
        drop((two, third));
        assert_eq!(admission.counts().0, 0);
    }

    #[tokio::test]
    async fn rate_limits_reduce_and_success_restores_concurrency() {
        let admission = AdmissionControl::new(8);
        let wait = admission.record_result(AttemptResult::Refused, 1, None);
        assert!(wait >= FIRST_WAIT && wait <= FIRST_WAIT * 2, "{wait:?}");
        assert_eq!(admission.counts().2, 4);
        let later = admission.record_result(AttemptResult::Refused, 3, Some(Duration::from_secs(20)));
        assert!(later >= Duration::from_secs(20), "{later:?}");
        assert_eq!(admission.counts().2, 2);
        for _ in 0..100 {
            admission.record_result(AttemptResult::Answered, 1, None);
        }
        assert_eq!(admission.counts().2, 8);
        let far = admission.record_result(AttemptResult::Refused, 30, None);
        assert!(far <= LONGEST_WAIT * 2, "{far:?}");
        assert_eq!(admission.record_result(AttemptResult::Unknown, 1, None), Duration::ZERO);
    }

    #[tokio::test]
    async fn no_run_starts_during_a_short_retry_delay() {
        let admission = AdmissionControl::new(2);
        admission.record_result(AttemptResult::Refused, 1, Some(Duration::from_millis(80)));
        let started_at = Instant::now();
        let permit = admission.acquire().await;
        assert!(started_at.elapsed() >= Duration::from_millis(75), "{:?}", started_at.elapsed());
        // A wait of one day does not block other runs.
        let wait = admission.record_result(AttemptResult::Refused, 1, Some(Duration::from_secs(86_400)));
        assert!(wait >= Duration::from_secs(86_400), "{wait:?}");
        let next = tokio::time::timeout(Duration::from_millis(20), admission.acquire()).await;
        assert!(next.is_err(), "only one run at a time is admitted now");
        drop(permit);
        assert!(tokio::time::timeout(Duration::from_secs(20), admission.acquire()).await.is_ok());
    }
}
