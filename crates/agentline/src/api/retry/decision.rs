//! Decides after each attempt whether a run is retried, when, and with which model.

use crate::resolve::time_until;
use agentline_core::{Event, FailureKind, Outcome, RunRequest, Verdict};
use std::{
    collections::VecDeque,
    time::{Duration, SystemTime},
};

/// The maximum total wait between the attempts of a run, by default.
pub(crate) const MAX_WAIT: Duration = Duration::from_secs(300);
/// The wait before the first retry; it doubles with each further one.
const FIRST_WAIT: Duration = Duration::from_secs(1);
/// The maximum wait, unless the service itself asks for a longer one.
pub(crate) const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// The warning of a run whose changes are not known.
const CHANGES_UNKNOWN: &str = "workspace_not_compared";

/// The retries that a run has left.
#[derive(Clone, Debug)]
pub(crate) struct Retries {
    /// How many times a model is tried again after a failure that a retry can help.
    retries: u32,
    /// How many times a model is tried again if its service refuses the run because of load or quota.
    refusals: u32,
    /// The models that are tried next.
    fallback_models: VecDeque<String>,
    /// Whether the run may be retried after it changed files.
    after_changes: bool,
    /// The total wait that is left.
    wait: Duration,
    deadline: Option<SystemTime>,
    /// The number of attempts so far.
    attempts: u32,
    /// The number of retries of the current model so far.
    of_model: u32,
}

/// The next attempt of a run.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct NextAttempt {
    /// The number of the attempt, starting at 2.
    pub(super) number: u32,
    pub(super) wait: Duration,
    /// The model, if it is another one.
    pub(super) model: Option<String>,
    /// Why the last attempt failed.
    pub(super) reason: String,
}

impl NextAttempt {
    pub(super) fn event(&self) -> Event {
        Event::Retry {
            attempt: self.number,
            wait_ms: u64::try_from(self.wait.as_millis()).unwrap_or(u64::MAX),
            reason: self.reason.clone(),
            model: self.model.clone(),
        }
    }
}

impl Retries {
    /// Returns the retries that a request asks for.
    pub(crate) fn of(request: &RunRequest) -> Self {
        Self {
            retries: request.retries.unwrap_or(0),
            refusals: 0,
            fallback_models: request.fallback_models.iter().cloned().collect(),
            // A temporary workspace is created again for each attempt.
            after_changes: request.retry_after_changes || request.temporary_workspace,
            wait: MAX_WAIT,
            deadline: request.deadline,
            attempts: 1,
            of_model: 0,
        }
    }

    /// Sets how many times a model is tried again if its service refuses the run because of load or quota, and the
    /// maximum total wait.
    #[cfg(feature = "host")]
    pub(crate) fn refusals(mut self, refusals: u32, wait: Duration) -> Self {
        (self.refusals, self.wait) = (refusals, wait);
        self
    }

    /// Returns whether the run is never retried.
    pub(super) fn is_off(&self) -> bool {
        self.retries.max(self.refusals) == 0 && self.fallback_models.is_empty()
    }

    /// Returns the number of retries of the current model so far.
    pub(super) fn of_model(&self) -> u32 {
        self.of_model
    }

    /// Returns the attempt that follows one with this outcome. `wait` overrides the default wait.
    pub(super) fn next(&mut self, outcome: &Outcome, wait: Option<Duration>) -> Option<NextAttempt> {
        let error = outcome.error.as_ref()?;
        let unknown = || outcome.warnings.iter().any(|warning| warning.code == CHANGES_UNKNOWN);
        if !self.after_changes && (!outcome.files.is_empty() || unknown()) {
            return None;
        }
        let left = self.deadline.map_or(self.wait, |when| self.wait.min(time_until(when)));
        let is_refusal = outcome.verdict == Verdict::RateLimited;
        let most = if is_refusal { self.retries.max(self.refusals) } else { self.retries };
        let retry_after = error.retry_after_ms.map(Duration::from_millis);
        let wait = wait.unwrap_or_else(|| backoff(self.of_model + 1, retry_after));
        // A model whose quota is exhausted, or that does not exist, can only be replaced.
        let is_about_model = matches!(error.kind, FailureKind::RateLimited | FailureKind::UnknownModel);
        let (wait, model) = if error.retryable && self.of_model < most && wait <= left {
            self.of_model += 1;
            (wait, None)
        } else if error.retryable || is_about_model {
            self.of_model = 0;
            (Duration::ZERO, Some(self.fallback_models.pop_front()?))
        } else {
            return None;
        };
        self.wait -= wait;
        self.attempts += 1;
        Some(NextAttempt { number: self.attempts, wait, model, reason: error.message.clone() })
    }
}

/// Returns the maximum number of attempts of a request.
#[cfg(all(feature = "host", unix))]
pub(crate) fn max_attempts(request: &RunRequest) -> u32 {
    let models = u32::try_from(request.fallback_models.len()).unwrap_or(u32::MAX).saturating_add(1);
    request.retries.unwrap_or(0).saturating_add(1).saturating_mul(models)
}

/// Returns the wait before a retry, by its number and by what the service asked for.
pub(crate) fn backoff(retry: u32, retry_after: Option<Duration>) -> Duration {
    let doubled = FIRST_WAIT * 2u32.saturating_pow(retry.saturating_sub(1).min(8));
    let wait = retry_after.unwrap_or(Duration::ZERO).max(doubled.min(LONGEST_WAIT));
    wait.mul_f64(1.0 + jitter() / 4.0)
}

/// Returns a number between 0 and 1, which spreads the retries of runs that were refused together.
fn jitter() -> f64 {
    let (high, _) = uuid::Uuid::new_v4().as_u64_pair();
    f64::from(u16::try_from(high >> 48).unwrap_or(0)) / f64::from(u16::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use agentline_core::{Failure, Notice, RunInfo};

    fn outcome(verdict: Verdict, failure: Failure) -> Outcome {
        Outcome::not_started(&RunInfo::default(), verdict, failure)
    }

    /// Creates the outcome as a run reports it, with the delay that the service asked for.
    fn overloaded() -> Outcome {
        outcome(Verdict::RateLimited, Failure::http(503, "The model is overloaded"))
    }

    fn crashed() -> Outcome {
        outcome(Verdict::Failed, Failure::new(FailureKind::Crashed, "it crashed"))
    }

    fn request(retries: u32, models: &[&str]) -> RunRequest {
        let request = RunRequest::new("x").retries(retries);
        models.iter().fold(request, |request, model| request.fallback_model(*model))
    }

    /// Describes each attempt: its number, whether it waits, and its model.
    fn attempts(mut retries: Retries, outcome: &Outcome) -> Vec<String> {
        std::iter::from_fn(|| retries.next(outcome, None))
            .take(20)
            .map(|next| {
                let waits = if next.wait.is_zero() { "now" } else { "later" };
                format!("{} {waits} {}", next.number, next.model.as_deref().unwrap_or("-"))
            })
            .collect()
    }

    #[test]
    fn each_model_is_retried_before_the_next_one() {
        let none: [&str; 0] = [];
        assert!(Retries::of(&RunRequest::new("x")).is_off());
        assert_eq!(attempts(Retries::of(&RunRequest::new("x")), &overloaded()), none);
        assert_eq!(attempts(Retries::of(&request(2, &[])), &overloaded()), ["2 later -", "3 later -"]);
        assert_eq!(attempts(Retries::of(&request(0, &["b", "c"])), &overloaded()), ["2 now b", "3 now c"]);
        let both = Retries::of(&request(1, &["b"]));
        assert_eq!(attempts(both, &crashed()), ["2 later -", "3 now b", "4 later -"]);
    }

    #[test]
    fn only_failures_that_a_retry_can_help_are_retried() {
        let many = || Retries::of(&request(3, &["b"]));
        for (verdict, failure, expected) in [
            (Verdict::NotAuthenticated, Failure::http(401, "bad key"), 0),
            (Verdict::Cancelled, Failure::new(FailureKind::Cancelled, "stopped"), 0),
            (Verdict::LimitReached, Failure::new(FailureKind::MaxCost, "too much"), 0),
            // Another model can help.
            (Verdict::Failed, Failure::http(404, "no such model"), 1),
            (Verdict::RateLimited, Failure::http(429, "You have exhausted your daily quota"), 1),
            // The wait would be too long.
            (Verdict::RateLimited, Failure::http(429, "Please retry in 3600s"), 1),
            (Verdict::Failed, Failure::http(500, "Internal error"), 7),
        ] {
            let outcome = outcome(verdict, failure);
            assert_eq!(attempts(many(), &outcome).len(), expected, "{:?}", outcome.error);
        }
        // A host retries only what the service refuses.
        let host = || Retries { refusals: 3, ..Retries::of(&RunRequest::new("x")) };
        assert_eq!((attempts(host(), &overloaded()).len(), attempts(host(), &crashed()).len()), (3, 0));
    }

    #[test]
    fn changes_and_the_deadline_rule_out_a_retry() {
        let mut changed = overloaded();
        changed.warnings.push(Notice::new(CHANGES_UNKNOWN, "not compared"));
        let plain = request(1, &["b"]);
        assert_eq!(attempts(Retries::of(&plain), &changed).len(), 0);
        for request in [plain.clone().retry_after_changes(true), plain.clone().temporary_workspace(true)] {
            assert_eq!(attempts(Retries::of(&request), &changed).len(), 3);
        }
        let late = plain.deadline(SystemTime::now());
        assert_eq!(attempts(Retries::of(&late), &overloaded()), ["2 now b"]);
    }

    #[test]
    fn waits_double_up_to_a_maximum_and_respect_the_service() {
        for (retry, least) in [(1, 1), (2, 2), (3, 4), (7, 60), (40, 60)] {
            let (wait, least) = (backoff(retry, None), Duration::from_secs(least));
            assert!(wait >= least && wait <= least.mul_f64(1.26), "{retry}: {wait:?}");
        }
        assert!(backoff(1, Some(Duration::from_secs(90))) >= Duration::from_secs(90));
    }
}
