//! When a worker claims nothing of an experiment, because it has returned a job that it could claim again at once.

use std::collections::HashMap;
use std::time::{Duration, Instant};

/// The pause after a job was returned because of its experiment.
const SHORT: Duration = Duration::from_secs(1);

/// The pause after the first error of this worker, which probably recurs here, but not on other workers.
const LONG: Duration = Duration::from_secs(30);

/// The longest pause after further errors, each of which doubles it.
const LONGEST: Duration = Duration::from_secs(600);

/// Why a job was returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReturnCause {
    /// The experiment has no room for it, or the run was stopped.
    Experiment,
    /// This worker cannot execute it.
    Worker,
}

/// The experiments of which nothing is claimed.
#[derive(Debug, Default)]
pub(super) struct ClaimPauses(HashMap<String, ClaimPause>);

#[derive(Debug)]
struct ClaimPause {
    until: Instant,
    /// The number of errors of this worker in a row, without those during a pause.
    errors: u32,
    /// The end of the pause because of the last of them.
    errors_until: Instant,
}

impl ClaimPauses {
    /// Returns whether jobs of an experiment may be claimed.
    pub(super) fn allow(&self, experiment: &str, now: Instant) -> bool {
        self.0.get(experiment).is_none_or(|pause| pause.until <= now)
    }

    /// Notes that a job was returned. The errors of several slots at the same time count once.
    pub(super) fn returned(&mut self, experiment: &str, cause: ReturnCause, now: Instant) {
        let new = ClaimPause { until: now, errors: 0, errors_until: now };
        let pause = self.0.entry(experiment.to_owned()).or_insert(new);
        if cause == ReturnCause::Worker && pause.errors_until <= now {
            pause.errors_until = now + (LONG * (1 << pause.errors.min(5))).min(LONGEST);
            pause.errors += 1;
        }
        pause.until = pause.until.max(pause.errors_until).max(now + SHORT);
    }

    /// Notes that the worker could execute a job.
    pub(super) fn executed(&mut self, experiment: &str) {
        if let Some(pause) = self.0.get_mut(experiment) {
            pause.errors = 0;
        }
    }

    /// Forgets experiments that are no longer in the queue.
    pub(super) fn retain(&mut self, is_known: impl Fn(&str) -> bool) {
        self.0.retain(|experiment, _| is_known(experiment));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pause_grows_with_each_error_until_a_job_is_executed() {
        let mut pauses = ClaimPauses::default();
        let mut now = Instant::now();
        let mut after_error = |pauses: &mut ClaimPauses| {
            pauses.returned("e", ReturnCause::Worker, now);
            // Other slots fail at the same time.
            pauses.returned("e", ReturnCause::Worker, now);
            let begun = now;
            while !pauses.allow("e", now) {
                now += Duration::from_secs(1);
            }
            (now - begun).as_secs()
        };
        let found: Vec<u64> = (0..7).map(|_| after_error(&mut pauses)).collect();
        assert_eq!(found, [30, 60, 120, 240, 480, 600, 600]);
        pauses.executed("e");
        assert_eq!(after_error(&mut pauses), 30);
        assert!(pauses.allow("other", Instant::now()));
        pauses.retain(|_| false);
        pauses.returned("e", ReturnCause::Experiment, Instant::now());
        assert!(pauses.allow("e", Instant::now() + SHORT));
    }
}
