//! The limits of a whole batch.

use crate::class::Class;
use crate::result::RunResult;
use crate::suite::BatchLimits;
use std::time::Instant;

/// A limit that ended a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BatchLimitReached {
    /// The cost of all runs.
    Cost,
    /// The tokens of all runs.
    Tokens,
    /// The number of failed runs.
    Failures,
    /// The number of infrastructure failures in a row.
    InfrastructureInARow,
    /// The time that the batch took.
    Time,
}

impl BatchLimitReached {
    /// Returns the key of the limit in a suite.
    #[must_use]
    pub fn key(self) -> &'static str {
        match self {
            Self::Cost => "cost",
            Self::Tokens => "tokens",
            Self::Failures => "failures",
            Self::InfrastructureInARow => "infrastructure_in_a_row",
            Self::Time => "time",
        }
    }
}

/// What the runs of this batch have used so far.
#[derive(Debug)]
pub(crate) struct Totals {
    limits: BatchLimits,
    began: Instant,
    cost_usd: f64,
    tokens: u64,
    failures: u32,
    infrastructure_in_a_row: u32,
}

impl Totals {
    pub(crate) fn new(limits: BatchLimits) -> Self {
        Self {
            limits,
            began: Instant::now(),
            cost_usd: 0.0,
            tokens: 0,
            failures: 0,
            infrastructure_in_a_row: 0,
        }
    }

    /// Adds a try that is no result, because it is repeated or was cancelled.
    pub(crate) fn add_try(&mut self, cost_usd: Option<f64>, tokens: Option<u64>) {
        self.cost_usd += cost_usd.unwrap_or(0.0);
        self.tokens += tokens.unwrap_or(0);
    }

    pub(crate) fn add(&mut self, result: &RunResult) {
        if !result.is_cached {
            self.add_try(result.cost_usd, result.tokens);
        }
        self.cost_usd += result.judge_cost_usd.unwrap_or(0.0);
        match result.class {
            Class::Infrastructure => self.infrastructure_in_a_row += 1,
            Class::Failed => {
                self.failures += 1;
                self.infrastructure_in_a_row = 0;
            }
            Class::Passed => self.infrastructure_in_a_row = 0,
        }
    }

    /// Returns a limit that has been reached.
    pub(crate) fn reached(&self) -> Option<BatchLimitReached> {
        let limits = &self.limits;
        let rows = [
            (limits.cost_usd.is_some_and(|limit| self.cost_usd >= limit), BatchLimitReached::Cost),
            (limits.tokens.is_some_and(|limit| self.tokens >= limit), BatchLimitReached::Tokens),
            (limits.failures.is_some_and(|limit| self.failures >= limit), BatchLimitReached::Failures),
            (
                limits.infrastructure_in_a_row.is_some_and(|limit| self.infrastructure_in_a_row >= limit),
                BatchLimitReached::InfrastructureInARow,
            ),
        ];
        rows.into_iter().find(|(is_reached, _)| *is_reached).map(|(_, limit)| limit)
    }

    /// Waits until the time of the batch is over; forever without a limit.
    pub(crate) fn out_of_time(&self) -> impl Future<Output = ()> + use<> {
        let end = self.limits.time.map(|time| self.began + time);
        async move {
            match end {
                Some(end) => tokio::time::sleep_until(end.into()).await,
                None => std::future::pending().await,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tries_without_a_result_count_and_cached_runs_cost_nothing() {
        let limits = BatchLimits { cost_usd: Some(1.0), tokens: Some(100), ..BatchLimits::default() };
        let mut totals = Totals::new(limits);
        let result = RunResult {
            cost_usd: Some(5.0),
            tokens: Some(500),
            is_cached: true,
            ..RunResult::example("00", "c", "v", "passed")
        };
        totals.add(&result);
        totals.add_try(Some(0.5), Some(10));
        assert_eq!(totals.reached(), None);
        totals.add_try(Some(0.5), None);
        assert_eq!(totals.reached(), Some(BatchLimitReached::Cost));
        totals.limits.cost_usd = None;
        totals.add_try(None, Some(90));
        assert_eq!(totals.reached(), Some(BatchLimitReached::Tokens));
    }
}
