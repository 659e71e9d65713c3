//! The cost limit of an experiment across workers: what is spent, and what is reserved for runs in progress.

use super::spec::CostLimit;
use agentline_queue::{Queue, QueueError};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// The prefix of the records of budgets.
pub(crate) const BUDGETS: &str = "budget";

/// What an experiment has used. Amounts are in millionths of a US dollar, so that sums are exact.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Budget {
    /// What finished and lost runs cost.
    pub(crate) spent: u64,
    /// What is reserved for each job in progress.
    pub(crate) reserved: BTreeMap<String, Reservation>,
    /// The highest cost of a run so far.
    pub(crate) highest: u64,
    /// The number of executions beside the one with the result.
    pub(crate) duplicates: u64,
    /// What they cost, as far as it is known or was reserved.
    pub(crate) duplicates_cost: u64,
    /// How many executions of a job are counted in `duplicates`, while it has no result.
    #[serde(default)]
    repeated: BTreeMap<String, u32>,
    /// What was reserved for executions that were lost, the latest ones, until their cost is known.
    #[serde(default)]
    lost_reservations: Vec<LostReservation>,
    /// Whether a run did not fit although none was in progress. Then the limit is reached.
    #[serde(default)]
    pub(crate) is_full: bool,
}

/// The most executions that were lost and whose cost may still become known. Beyond them, the oldest ones count with what
/// was reserved.
const MOST_LOST: usize = 256;

/// What was reserved for an execution that was lost. It is part of what is spent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct LostReservation {
    job: String,
    claim: u32,
    /// In millionths of a US dollar.
    amount: u64,
}

/// What is reserved for one claim of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Reservation {
    /// The number of the claim. Only the worker that has this claim can settle it.
    pub(crate) claim: u32,
    /// In millionths of a US dollar.
    pub(crate) amount: u64,
}

/// Returns an amount in millionths of a US dollar, rounded up.
pub(crate) fn micros(usd: f64) -> u64 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "amounts are small and positive"
    )]
    let micros = (usd.max(0.0) * 1e6).ceil() as u64;
    micros
}

/// Returns an amount in US dollars.
pub(crate) fn dollars(micros: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "amounts are small")]
    let micros = micros as f64;
    micros / 1e6
}

impl Budget {
    /// Returns what a run reserves whose own limits say `reserve`: without them, the highest cost so far.
    fn amount(&self, reserve: Option<u64>) -> u64 {
        reserve.unwrap_or(self.highest)
    }

    /// Returns what is reserved in all.
    pub(crate) fn reserved(&self) -> u64 {
        self.reserved.values().map(|reservation| reservation.amount).sum()
    }

    /// Returns whether a run may begin beside those in progress.
    fn fits(&self, limit: CostLimit, reserve: Option<u64>) -> bool {
        let limit_micros = micros(limit.usd);
        let used = self.spent + self.reserved();
        // Without a strict limit, the last run may exceed it by what it reserves.
        if limit.is_strict { used + self.amount(reserve) <= limit_micros } else { used < limit_micros }
    }

    /// Returns whether no run can ever begin again. What is reserved may turn out to be lost, or to cost less, so it does
    /// not count.
    pub(crate) fn is_exhausted(&self, limit: CostLimit) -> bool {
        self.is_full || self.spent >= micros(limit.usd)
    }

    /// Counts what was reserved for a job as spent, because the execution was lost.
    pub(crate) fn lose(&mut self, job: &str) {
        if let Some(lost) = self.reserved.remove(job) {
            self.spent += lost.amount;
            self.duplicates_cost += lost.amount;
            let Reservation { claim, amount } = lost;
            self.lost_reservations.push(LostReservation { job: job.to_owned(), claim, amount });
            let most = self.lost_reservations.len().saturating_sub(MOST_LOST);
            self.lost_reservations.drain(..most);
        }
    }

    /// Counts the executions before this claim of a job as lost, and as duplicates if the job is executed again. A claim
    /// that was returned has the number of the next one, so each number counts once.
    pub(crate) fn count_lost(&mut self, job: &str, claim: u32, is_repeated: bool) {
        self.lose(job);
        let counted = self.repeated.get(job).copied().unwrap_or(0);
        let lost = claim.saturating_sub(1);
        if is_repeated && lost > counted {
            self.duplicates += u64::from(lost - counted);
            self.repeated.insert(job.to_owned(), lost);
        }
    }

    /// Forgets what is counted of a job, because it has a result and is not executed again.
    pub(crate) fn forget_repeated(&mut self, job: &str) {
        self.repeated.remove(job);
    }

    /// Reserves the cost of a claim of a job. What an earlier claim of it reserved and did not settle counts as spent.
    /// Returns whether the run may begin.
    pub(crate) fn reserve(
        &mut self,
        limit: Option<CostLimit>,
        job: &str,
        claim: u32,
        reserve: Option<u64>,
    ) -> bool {
        if self.reserved.get(job).is_some_and(|reservation| reservation.claim == claim) {
            // The request is repeated.
            return true;
        }
        self.lose(job);
        if limit.is_some_and(|limit| !self.fits(limit, reserve)) {
            // If it does not fit alone, the limit is reached.
            self.is_full |= self.reserved.is_empty();
            return false;
        }
        self.reserved.insert(job.to_owned(), Reservation { claim, amount: self.amount(reserve) });
        true
    }

    /// Settles the reservation of a claim with what the run really cost, if that is known. A reservation that counts as
    /// lost is corrected; without a reservation of this claim, nothing changes.
    pub(crate) fn settle(&mut self, job: &str, claim: u32, cost: Option<u64>) {
        let is_own = |reservation: &Reservation| reservation.claim == claim;
        if let Some(reserved) = self.reserved.get(job).copied().filter(is_own) {
            self.reserved.remove(job);
            let cost = cost.unwrap_or(reserved.amount);
            self.spent += cost;
            self.highest = self.highest.max(cost);
            return;
        }
        let Some(cost) = cost else { return };
        let is_own = |lost: &LostReservation| lost.job == job && lost.claim == claim;
        let Some(index) = self.lost_reservations.iter().position(is_own) else { return };
        let reserved = self.lost_reservations.remove(index).amount;
        self.spent = self.spent.saturating_sub(reserved) + cost;
        self.duplicates_cost = self.duplicates_cost.saturating_sub(reserved) + cost;
    }
}

/// Changes the budget of an experiment. `change` may be called several times, and returns what to return; without a
/// change, nothing is written.
///
/// # Errors
/// Fails if the queue cannot be reached.
pub(crate) async fn update<T>(
    queue: &dyn Queue,
    experiment: &str,
    change: impl Fn(&mut Budget) -> T,
) -> Result<T, QueueError> {
    let name = format!("{BUDGETS}.{experiment}");
    for turn in 0_u32.. {
        let (mut budget, revision) = read(queue, experiment).await?;
        let before = budget.clone();
        let value = change(&mut budget);
        if budget == before {
            return Ok(value);
        }
        let bytes = serde_json::to_vec(&budget).unwrap_or_default();
        match queue.write_record(&name, &bytes, revision).await {
            Ok(_) => return Ok(value),
            // Another worker was faster.
            Err(QueueError::Conflict(_)) => {
                tokio::time::sleep(Duration::from_millis(u64::from(turn.min(20)))).await;
            }
            Err(error) => return Err(error),
        }
    }
    Err(QueueError::Conflict(name))
}

/// Returns the budget of an experiment and the revision of its record.
///
/// # Errors
/// Fails if the queue cannot be reached.
pub(crate) async fn read(queue: &dyn Queue, experiment: &str) -> Result<(Budget, u64), QueueError> {
    let record = queue.record(&format!("{BUDGETS}.{experiment}")).await?;
    Ok(record.map_or_else(Default::default, |record| {
        (serde_json::from_slice(&record.value).unwrap_or_default(), record.revision)
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(usd: f64, is_strict: bool) -> CostLimit {
        CostLimit { usd, is_strict }
    }

    #[test]
    fn overshoot_is_at_most_what_is_reserved() {
        let one = Some(micros(1.0));
        let half_open = Some(limit(2.5, false));
        let mut budget = Budget::default();
        assert!(budget.reserve(half_open, "a", 1, one));
        assert!(budget.reserve(half_open, "a", 1, one), "a repeated request reserves once");
        assert!(budget.reserve(half_open, "b", 1, one));
        assert!(budget.reserve(half_open, "c", 1, one), "half a dollar is left");
        assert!(!budget.reserve(half_open, "d", 1, one));
        budget.settle("a", 1, Some(micros(0.2)));
        assert!(budget.reserve(half_open, "d", 1, one));
        assert_eq!(dollars(budget.spent), 0.2);
    }

    #[test]
    fn strict_limit_is_never_exceeded() {
        let mut budget = Budget::default();
        let strict = limit(2.5, true);
        let one = Some(micros(1.0));
        assert!(budget.reserve(Some(strict), "a", 1, one) && budget.reserve(Some(strict), "b", 1, one));
        assert!(!budget.reserve(Some(strict), "c", 1, one));
        assert!(!budget.is_exhausted(strict), "runs are in progress");
        budget.settle("a", 1, Some(micros(1.0)));
        budget.settle("b", 1, Some(micros(0.9)));
        assert!(!budget.reserve(Some(strict), "c", 1, one));
        assert!(budget.is_exhausted(strict));
    }

    #[test]
    fn run_that_does_not_fit_alone_reaches_the_limit() {
        let mut budget = Budget::default();
        let strict = limit(1.0, true);
        let (small, large) = (Some(micros(0.1)), Some(micros(0.95)));
        assert!(budget.reserve(Some(strict), "small", 1, small));
        assert!(!budget.reserve(Some(strict), "large", 1, large), "another run is in progress");
        assert!(!budget.is_exhausted(strict));
        budget.settle("small", 1, Some(micros(0.1)));
        assert!(!budget.reserve(Some(strict), "large", 1, large));
        assert!(budget.is_exhausted(strict));
    }

    #[test]
    fn lost_run_that_reserved_the_whole_limit_exhausts_it() {
        let mut budget = Budget::default();
        let whole = limit(1.0, false);
        assert!(budget.reserve(Some(whole), "a", 1, Some(micros(1.0))));
        assert!(!budget.is_exhausted(whole), "the run may cost less");
        assert!(!budget.reserve(Some(whole), "a", 2, Some(micros(1.0))), "the first claim was lost");
        assert!(budget.is_exhausted(whole));
    }

    #[test]
    fn execution_that_was_lost_counts_once_however_often_its_job_is_returned() {
        let mut budget = Budget::default();
        for (claim, duplicates) in [(2, 1), (2, 1), (2, 1), (3, 2), (3, 2)] {
            budget.count_lost("a", claim, true);
            assert_eq!(budget.duplicates, duplicates, "claim {claim}");
        }
        budget.count_lost("b", 2, false);
        assert_eq!(budget.duplicates, 2, "it is not executed again");
        budget.forget_repeated("a");
        assert!(budget.repeated.is_empty());
    }

    #[test]
    fn record_does_not_grow_with_the_number_of_lost_runs() {
        let mut budget = Budget::default();
        for number in 0..1000 {
            assert!(budget.reserve(None, &format!("job-{number}"), 1, Some(10)));
            budget.lose(&format!("job-{number}"));
        }
        assert_eq!((budget.spent, budget.lost_reservations.len()), (10_000, MOST_LOST));
        budget.settle("job-0", 1, Some(3));
        assert_eq!(budget.spent, 10_000, "it is too old");
        budget.settle("job-999", 1, Some(3));
        assert_eq!(budget.spent, 9_993);
    }

    #[test]
    fn lost_run_is_settled_at_its_full_amount_unless_its_usage_is_known() {
        let mut budget = Budget::default();
        assert!(budget.reserve(None, "a", 1, Some(500)));
        assert!(budget.reserve(None, "a", 2, Some(500)), "the job is claimed again");
        assert_eq!((budget.spent, budget.duplicates_cost), (500, 500));
        budget.settle("a", 1, Some(30));
        assert_eq!((budget.spent, budget.duplicates_cost), (30, 30), "the lost run ended after all");
        assert_eq!(budget.reserved["a"].claim, 2, "a lost claim does not settle a later one");
        budget.settle("a", 2, None);
        assert_eq!(budget.spent, 530);
        budget.settle("a", 2, Some(7));
        budget.settle("a", 1, Some(7));
        assert_eq!(budget.spent, 530, "a reservation is settled once");
        assert!(budget.reserve(None, "b", 1, None));
        assert_eq!(budget.reserved["b"].amount, 500, "the highest cost so far");
    }
}
