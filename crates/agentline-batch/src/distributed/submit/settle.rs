//! The end of an experiment that is replaced: what its workers have begun must have ended before anything is submitted again.

use super::{POLL, Submitter, import};
use crate::distributed::DistributedError;
use crate::distributed::control::{self, NOTICE};
use crate::distributed::spec::ExperimentRecord;
use crate::distributed::submission::StoredSubmission;
use crate::execute::BatchShutdown;
use crate::suite::RunIndex;
use agentline_queue::{JobRoute, Lease, Queue, QueueError};
use std::collections::HashSet;
use std::time::{Duration, Instant};

/// How long jobs are claimed in order to learn whether a worker has had them.
const INSPECTION: Duration = Duration::from_secs(300);

impl Submitter {
    /// Waits until no worker has a run of a cancelled experiment, imports the last results, and commits a result for
    /// runs that a worker has lost and that are not repeatable. A claim lasts as long as its lease.
    pub(super) async fn settle(
        &mut self,
        known: &mut StoredSubmission,
        record: &ExperimentRecord,
    ) -> Result<(), DistributedError> {
        if !self.ledger.runs_without_result().any(|run| !self.is_repeatable(run)) {
            let _ = remove_leftovers(&*self.queue, &known.id).await;
            return Ok(());
        }
        let begun = Instant::now();
        let mut is_settled = false;
        while !is_settled {
            while self.claimed(&known.id).await? > 0 {
                if *self.stop.borrow() != BatchShutdown::None {
                    return Ok(());
                }
                let _ = tokio::time::timeout(POLL, self.queue.wait(POLL)).await;
            }
            let leases = self.claim_all(&known.id, record).await?;
            // A worker that did not know of the end may have claimed a job meanwhile. It can claim no further one.
            is_settled = self.claimed(&known.id).await? <= leases.len() as u64;
            if is_settled {
                self.import_all(known).await?;
                self.commit_lost_runs(&leases)?;
            }
            tokio::time::sleep(NOTICE.saturating_sub(begun.elapsed())).await;
            for lease in &leases {
                // A claim that is not given back ends by itself.
                let _ = self.queue.release(lease).await;
            }
        }
        // Whatever stays is removed with the experiment.
        let _ = import::remove_orphans(&*self.queue, &known.id).await;
        Ok(())
    }

    fn is_repeatable(&self, run: RunIndex) -> bool {
        self.suite.cases[run.case].is_repeatable(run.variant)
    }

    /// Returns how many jobs workers have.
    pub(super) async fn claimed(&mut self, id: &str) -> Result<u64, DistributedError> {
        let counts = self.reached(|queue| {
            let id = id.to_owned();
            async move { queue.counts(&id).await }
        });
        Ok(counts.await?.claimed)
    }

    /// Claims all jobs of a cancelled experiment: whoever claims a job learns how often it was claimed before.
    async fn claim_all(
        &mut self,
        id: &str,
        record: &ExperimentRecord,
    ) -> Result<Vec<Lease>, DistributedError> {
        let routes: Vec<JobRoute> = record
            .routes
            .keys()
            .map(|route| JobRoute { experiment: id.to_owned(), route: route.clone() })
            .collect();
        let mut leases: Vec<Lease> = Vec::new();
        let mut jobs = HashSet::new();
        loop {
            let lease = self.reached(|queue| {
                let routes = routes.clone();
                async move { queue.claim(&routes, INSPECTION).await }
            });
            let Some(lease) = lease.await? else { return Ok(leases) };
            // A job that comes again was claimed so long ago that the claim has ended.
            if !jobs.insert(lease.job.clone()) {
                return Ok(leases);
            }
            leases.push(lease);
        }
    }

    /// Commits a result for runs that a worker had claimed and that are not repeatable.
    fn commit_lost_runs(&mut self, leases: &[Lease]) -> Result<(), DistributedError> {
        for lease in leases.iter().filter(|lease| lease.claims > 1) {
            let run = self.ledger.keys().find(&lease.job);
            if let Some(run) = run.filter(|run| !self.is_repeatable(*run) && !self.ledger.has_result(*run)) {
                let number = self.begin_try(&lease.job)?;
                let result = self.ledger.interrupted_result(run, number);
                self.commit(run, result)?;
            }
        }
        Ok(())
    }
}

/// Removes the artifacts of a cancelled experiment that no result needs, unless a worker may be storing a result.
pub(super) async fn remove_leftovers(queue: &dyn Queue, id: &str) -> Result<(), QueueError> {
    if control::read(queue, id).await?.is_some() && queue.counts(id).await?.claimed == 0 {
        import::remove_orphans(queue, id).await?;
    }
    Ok(())
}
