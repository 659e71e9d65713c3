//! A batch on this machine: starts the runs that wait, and commits their results.

use super::attempt::{Attempt, Ended, RunSpec};
use super::ledger::Ledger;
use super::limits::BatchLimitReached;
use super::requests::RequestTable;
use super::run_tasks::RunTasks;
use super::{BatchError, BatchEvent, BatchOptions, BatchShutdown, BatchSummary, Shared};
use crate::key::RunKeys;
use crate::result::RunResult;
use crate::suite::{RunIndex, Suite};
use std::sync::Arc;
use tokio::sync::watch;

/// The runs of a batch on this machine.
pub(super) struct Batch {
    shared: Arc<Shared>,
    suite: Arc<Suite>,
    requests: Arc<RequestTable>,
    stop: watch::Receiver<BatchShutdown>,
    ledger: Ledger,
}

impl Batch {
    pub(super) fn new(
        shared: Arc<Shared>,
        suite: Arc<Suite>,
        requests: Arc<RequestTable>,
        stop: watch::Receiver<BatchShutdown>,
        keys: RunKeys,
    ) -> Result<Self, BatchError> {
        let BatchOptions { rerun, until_decided, .. } = shared.options;
        let mut ledger = Ledger::begin(&shared.experiment(), Arc::clone(&suite), keys, rerun, until_decided)?;
        let _ = shared.events.send(ledger.began());
        let mut batch = Self { shared, suite, requests, stop, ledger };
        // The limits of this batch do not count what an earlier one did.
        for (run, result) in batch.ledger.commit_interrupted(&batch.shared.experiment())? {
            let result = Some(Box::new(result));
            let _ = batch.shared.events.send(BatchEvent::RunEnded { run, result });
        }
        Ok(batch)
    }

    /// Executes the runs that wait, and commits each result.
    pub(super) async fn run(mut self, jobs: usize) -> Result<BatchSummary, BatchError> {
        let mut active = RunTasks::default();
        let mut stop = self.stop.clone();
        let mut limit = None;
        let out_of_time = self.shared.totals().out_of_time();
        tokio::pin!(out_of_time);
        loop {
            let stopping = *stop.borrow_and_update() != BatchShutdown::None
                || limit.is_some()
                || self.ledger.is_decided();
            while !stopping && active.len() < jobs {
                let Some(run) = self.ledger.next_waiting() else { break };
                let attempt = self.attempt(run);
                let _ = self.shared.events.send(BatchEvent::RunBegan(run));
                active.spawn(run, attempt.execute());
            }
            if active.is_empty() {
                break;
            }
            tokio::select! {
                ended = active.next() => {
                    let Some((run, ended)) = ended else { continue };
                    let ended = ended.unwrap_or_else(|message| self.broken(run, message));
                    let result = self.commit(ended)?;
                    limit = limit.or_else(|| self.shared.totals().reached());
                    let result = result.map(Box::new);
                    let _ = self.shared.events.send(BatchEvent::RunEnded { run, result });
                }
                _ = stop.changed() => {}
                () = &mut out_of_time, if limit.is_none() => limit = Some(BatchLimitReached::Time),
            }
        }
        let stop = *stop.borrow();
        self.ledger.summary(&self.shared.experiment(), limit, stop)
    }

    fn attempt(&self, run: RunIndex) -> Attempt {
        let spec = RunSpec {
            suite: Arc::clone(&self.suite),
            run,
            key: self.ledger.keys().key(run),
            requests: Arc::clone(&self.requests),
            stop: self.stop.clone(),
            retries: self.shared.options.retries,
        };
        Attempt::new(Arc::clone(&self.shared), spec)
    }

    /// Commits the result of a run, if it has one.
    fn commit(&mut self, ended: Ended) -> Result<Option<RunResult>, BatchError> {
        let result = match ended {
            Ended::Result(result) => *result,
            Ended::NotCommitted => return Ok(None),
            Ended::Store(error) => return Err(error.into()),
        };
        self.ledger.commit(&self.shared.experiment(), &result)?;
        self.shared.totals().add(&result);
        Ok(Some(result))
    }

    /// Returns the end of a run whose task panicked. The error is ours, so the run says nothing about the agent.
    fn broken(&self, run: RunIndex, message: String) -> Ended {
        let number = self.shared.experiment().last_try(&self.ledger.keys().key(run));
        match number {
            Ok(number) => Ended::Result(Box::new(self.attempt(run).broken(number.max(1), message))),
            Err(error) => Ended::Store(error),
        }
    }
}
