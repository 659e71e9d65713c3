//! The end of the reservations that no worker settles any more.

use super::Submitter;
use crate::distributed::DistributedError;
use crate::distributed::budget::{self, Budget};
use crate::distributed::spec::CostLimit;
use crate::distributed::submission::StoredSubmission;
use crate::execute::BatchError;
use agentline_queue::QueueError;

impl Submitter {
    /// Returns whether the cost limit is reached and nothing is in progress any more. Settles what lost workers have not
    /// settled.
    pub(super) async fn is_spent(
        &mut self,
        submission: &mut StoredSubmission,
        limit: CostLimit,
    ) -> Result<bool, DistributedError> {
        let Ok((budget, _)) = budget::read(&*self.queue, &submission.id).await else { return Ok(false) };
        if !budget.is_exhausted(limit) {
            self.settle_finished(&submission.id, &budget).await?;
            return Ok(false);
        }
        Ok(budget.reserved.is_empty() || self.settle_lost(submission).await?)
    }

    /// Counts what lost runs have reserved as spent, because no worker claims them again, unless a run is in progress.
    /// Returns whether nothing is reserved any more.
    pub(super) async fn settle_lost(
        &mut self,
        submission: &mut StoredSubmission,
    ) -> Result<bool, DistributedError> {
        // Counted first: a result that is committed meanwhile is imported, and its cost is known.
        if self.claimed(&submission.id).await? > 0 {
            return Ok(false);
        }
        self.import_all(submission).await?;
        let Ok((budget, _)) = budget::read(&*self.queue, &submission.id).await else { return Ok(false) };
        self.settle_finished(&submission.id, &budget).await?;
        let settled = budget::update(&*self.queue, &submission.id, |now| {
            for (job, reservation) in &budget.reserved {
                // A reservation that was made meanwhile is that of a run in progress.
                if now.reserved.get(job) == Some(reservation) {
                    now.lose(job);
                }
            }
            now.reserved.is_empty()
        });
        unless_temporary(settled.await, false)
    }

    /// Settles the reservations of runs whose workers were lost after they had committed the results.
    async fn settle_finished(&self, id: &str, budget: &Budget) -> Result<(), DistributedError> {
        let mut costs: Vec<(&String, u32, Option<u64>)> = Vec::new();
        for (job, reservation) in &budget.reserved {
            if self.ledger.keys().find(job).is_some_and(|run| self.ledger.has_result(run)) {
                let cost = self.experiment().cost_with_tries(job).map_err(BatchError::from)?;
                costs.push((job, reservation.claim, cost.map(budget::micros)));
            }
        }
        if costs.is_empty() {
            return Ok(());
        }
        let settled = budget::update(&*self.queue, id, |budget| {
            costs.iter().for_each(|(job, claim, cost)| budget.settle(job, *claim, *cost));
        });
        unless_temporary(settled.await, ())
    }
}

/// Returns `otherwise` after a failure of the connection, because the next look repeats the request.
fn unless_temporary<T>(answer: Result<T, QueueError>, otherwise: T) -> Result<T, DistributedError> {
    match answer {
        Err(error) if error.is_temporary() => Ok(otherwise),
        answer => Ok(answer?),
    }
}
