//! One job on a worker, from its claim to its end.

mod commit;

use super::WorkerShared;
use super::claim_pauses::ReturnCause;
use super::lease_keeper::{LeaseKeeper, TICK};
use crate::class::Class;
use crate::distributed::DistributedError;
use crate::distributed::budget::{self, dollars, micros};
use crate::distributed::spec::{ExperimentRecord, JobPayload, RunningJob};
use crate::distributed::unpack::UnpackedRun;
use crate::execute::attempt::{Attempt, Ended, RunSpec};
use crate::execute::{BatchShutdown, now_ms};
use crate::result::run_dir;
use agentline::Signal;
use agentline_core::error_chain;
use agentline_fs::remove::remove_tree;
use agentline_queue::{Lease, QueueError, TreeError};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// How long requests are repeated after the worker was told to stop its runs.
const STOP_PATIENCE: Duration = Duration::from_secs(5);

/// Why a run that is not repeatable has no other result.
const LOST: &str = "a worker was lost while it executed the run, which is not repeatable";

/// How a job ended on this worker.
pub(super) enum JobEnd {
    /// Its result was committed.
    Committed { run: RunningJob, class: Class },
    /// It has no result of this worker, which may have returned it.
    Dropped { run: RunningJob, reason: String, returned: Option<ReturnCause> },
}

/// A job on a worker.
pub(super) struct JobTask {
    shared: Arc<WorkerShared>,
    experiment: Arc<ExperimentRecord>,
    lease: Arc<LeaseKeeper>,
    /// The names of the experiment and of the job.
    names: (String, String),
    claims: u32,
    /// What to do, or why it cannot be read.
    payload: Result<JobPayload, String>,
    stop: watch::Sender<BatchShutdown>,
    stopped: watch::Receiver<BatchShutdown>,
    /// What the job is, as far as it is known.
    run: std::sync::Mutex<RunningJob>,
    /// The name of this execution in the worker's own store. At the same time, the worker may execute the same run for
    /// another experiment, or end one whose lease was lost.
    local_key: String,
}

/// Why a job has no result of this worker.
enum NoResult {
    /// The claim has ended.
    Lost(String),
    /// The job is given back.
    Returned { reason: String, cause: ReturnCause },
}

impl NoResult {
    fn returned(reason: impl Into<String>) -> Self {
        Self::Returned { reason: reason.into(), cause: ReturnCause::Experiment }
    }

    fn of_worker(error: &(dyn std::error::Error + 'static)) -> Self {
        Self::Returned { reason: error_chain(error), cause: ReturnCause::Worker }
    }

    fn stopped() -> Self {
        Self::returned("the worker was stopped")
    }
}

impl JobTask {
    pub(super) fn new(
        shared: Arc<WorkerShared>,
        experiment: Arc<ExperimentRecord>,
        lease: Lease,
        requested_at: Duration,
        stop: watch::Sender<BatchShutdown>,
        stopped: watch::Receiver<BatchShutdown>,
    ) -> Self {
        let names = (lease.experiment.clone(), lease.job.clone());
        let local_key = format!("{}-{}", lease.job, uuid::Uuid::new_v4().simple());
        let run = RunningJob {
            experiment: names.0.clone(),
            case: names.1.clone(),
            variant: String::new(),
            attempt: 0,
            began_ms: now_ms(),
        };
        Self {
            experiment,
            names,
            claims: lease.claims,
            payload: serde_json::from_slice(&lease.payload)
                .map_err(|error| format!("the job cannot be read: {error}")),
            lease: Arc::new(LeaseKeeper::new(Arc::clone(&shared), lease, requested_at)),
            shared,
            stop,
            stopped,
            run: std::sync::Mutex::new(run),
            local_key,
        }
    }

    /// Returns what the run may cost in US dollars, as far as it is known.
    pub(super) fn reserved_usd(&self) -> f64 {
        let payload = self.payload.as_ref().ok();
        payload.and_then(|payload| payload.reserve_micros).map_or(0.0, dollars)
    }

    fn run(&self) -> RunningJob {
        self.run.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Executes the job while its lease is renewed.
    pub(super) async fn execute(self) -> JobEnd {
        let stop = self.stop.clone();
        let renewing = self.lease.keep(move || {
            // Little time is left until another worker may claim the job.
            let _ = stop.send(BatchShutdown::Immediate(Signal::Kill));
        });
        let end = self.work().await;
        drop(renewing);
        self.forget_tries();
        let run = self.run();
        match (end, self.lease.lost()) {
            (Ok(class), _) => JobEnd::Committed { run, class },
            (Err(NoResult::Lost(reason)), _) | (Err(_), Some(reason)) => {
                JobEnd::Dropped { run, reason, returned: None }
            }
            (Err(NoResult::Returned { reason, cause }), None) => {
                self.lease.release().await;
                JobEnd::Dropped { run, reason, returned: Some(cause) }
            }
        }
    }

    async fn work(&self) -> Result<Class, NoResult> {
        let payload = match &self.payload {
            Ok(payload) => payload,
            Err(message) => return self.commit_unreadable(message.clone()).await,
        };
        if self.claims > self.experiment.max_claims {
            return self.give_up(payload).await;
        }
        let unpacked = self.until_stopped(self.retried(|| {
            let WorkerShared { files, agentline, options, .. } = &*self.shared;
            files.run(&self.names.0, payload, agentline, &options.policy)
        }));
        let unpacked = match unpacked.await? {
            Ok(unpacked) => unpacked,
            Err(error) if error.is_of_worker() => return Err(NoResult::of_worker(&error)),
            // The same error would recur on every worker.
            Err(error) => return self.commit_broken(payload, error_chain(&error)).await,
        };
        self.describe(payload, &unpacked);
        if self.claims > 1 {
            self.count_lost(unpacked.is_repeatable).await?;
            if !unpacked.is_repeatable {
                return self.commit_interrupted(&unpacked, LOST).await;
            }
        }
        self.reserve(payload).await?;
        match self.attempt(&unpacked).execute().await {
            Ended::Result(result) => self.commit(*result).await,
            Ended::NotCommitted => self.end_unfinished(&unpacked).await,
            Ended::Store(error) => {
                let cost = self.known_cost();
                self.settle(cost.map(micros)).await;
                self.add_spent(cost);
                if unpacked.is_repeatable {
                    return Err(NoResult::of_worker(&error));
                }
                // A job that is given back does not count as claimed, and would be executed again.
                Err(NoResult::Lost(error_chain(&error)))
            }
        }
    }

    /// Returns whether the worker was told to stop the run.
    fn is_stopped(&self) -> bool {
        matches!(*self.stopped.borrow(), BatchShutdown::Immediate(_))
    }

    /// Waits until the worker is told to stop the run.
    async fn stopped(&self) {
        let mut stopped = self.stopped.clone();
        if stopped.wait_for(|stop| matches!(stop, BatchShutdown::Immediate(_))).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Does something that can be given up when the worker is told to stop the run.
    async fn until_stopped<T>(&self, work: impl Future<Output = T>) -> Result<T, NoResult> {
        tokio::select! {
            value = work => Ok(value),
            () = self.stopped() => Err(NoResult::stopped()),
        }
    }

    fn describe(&self, payload: &JobPayload, unpacked: &UnpackedRun) {
        let run = {
            let mut run = self.run.lock().unwrap_or_else(PoisonError::into_inner);
            run.case.clone_from(&unpacked.suite.cases[0].id);
            run.variant.clone_from(&unpacked.suite.variants[payload.variant].id);
            run.attempt = payload.attempt;
            run.clone()
        };
        self.lease.describe(run.clone());
        let _ = self.shared.events.send(super::WorkerEvent::Began(run));
    }

    fn attempt(&self, unpacked: &UnpackedRun) -> Attempt {
        // What a retry may cost is not reserved.
        let is_strict = self.experiment.cost.is_some_and(|limit| limit.is_strict);
        let spec = RunSpec {
            suite: Arc::clone(&unpacked.suite),
            run: unpacked.run,
            key: self.local_key.clone(),
            requests: Arc::clone(&unpacked.requests),
            stop: self.stopped.clone(),
            retries: if is_strict { 0 } else { self.shared.run.options.retries },
        };
        Attempt::new(Arc::clone(&self.shared.run), spec)
    }

    /// Returns whether the agent of the run may have started.
    fn had_effects(&self) -> bool {
        let interrupted = self.shared.run.experiment().interrupted_tries();
        interrupted.is_ok_and(|tries| tries.contains_key(&self.local_key))
    }

    /// Returns what the tries of the run cost, if that is known of all of them.
    fn known_cost(&self) -> Option<f64> {
        let experiment = self.shared.run.experiment();
        let ended = experiment.ended_tries(&self.local_key).ok()?;
        let begun = experiment.last_try(&self.local_key).ok()?;
        let costs = || ended.iter().map(|(_, cost)| *cost).sum();
        if u32::try_from(ended.len()).ok()? == begun { costs() } else { None }
    }

    /// Ends a run that was stopped: it is returned, unless it must not be executed again.
    async fn end_unfinished(&self, unpacked: &UnpackedRun) -> Result<Class, NoResult> {
        let had_effects = self.had_effects();
        let cost = if had_effects { self.known_cost() } else { Some(0.0) };
        self.settle(cost.map(micros)).await;
        if had_effects && !unpacked.is_repeatable {
            // The result has what is known.
            if cost.is_none() {
                self.add_spent(None);
            }
            let message = "the worker was stopped, and the run is not repeatable";
            return self.commit_interrupted(unpacked, message).await;
        }
        self.add_spent(cost);
        Err(NoResult::stopped())
    }

    /// Removes what the worker has stored about the run.
    fn forget_tries(&self) {
        let experiment = self.shared.run.experiment();
        let _ = experiment.forget(&self.local_key);
        let dir = experiment.dir().join(run_dir(&self.local_key));
        drop(experiment);
        tokio::task::block_in_place(|| remove_tree(&dir));
    }

    /// Repeats a request while it fails because of an error that may pass. Without an end of the error, the claim would
    /// never end if only the place of artifacts fails, so a request fails after the time of a lease.
    async fn retried<T, F: Future<Output = Result<T, DistributedError>>>(
        &self,
        request: impl Fn() -> F,
    ) -> Result<T, DistributedError> {
        self.retried_if(is_temporary, request).await
    }

    /// Does the same for the errors that `may_pass` selects.
    async fn retried_if<T, F: Future<Output = Result<T, DistributedError>>>(
        &self,
        may_pass: fn(&DistributedError) -> bool,
        request: impl Fn() -> F,
    ) -> Result<T, DistributedError> {
        let mut failing_since: Option<Instant> = None;
        loop {
            match request().await {
                Err(error) if may_pass(&error) && self.may_retry(failing_since) => {
                    if failing_since.is_none() {
                        failing_since = Some(Instant::now());
                        let (run, reason) = (self.run(), error_chain(&error));
                        let _ = self.shared.events.send(super::WorkerEvent::Delayed { run, reason });
                    }
                    tokio::time::sleep(TICK).await;
                }
                ended => return ended,
            }
        }
    }

    /// Returns whether a request that has failed since a moment may be repeated.
    fn may_retry(&self, failing_since: Option<Instant>) -> bool {
        let patience = self.shared.options.lease;
        let patience = if self.is_stopped() { patience.min(STOP_PATIENCE) } else { patience };
        self.lease.lost().is_none() && failing_since.is_none_or(|since| since.elapsed() < patience)
    }

    async fn update_budget<T>(
        &self,
        change: impl Fn(&mut budget::Budget) -> T,
    ) -> Result<T, DistributedError> {
        let change = &change;
        self.retried(|| async move { Ok(budget::update(&*self.shared.queue, &self.names.0, change).await?) })
            .await
    }

    /// Counts the executions that earlier claims of the job began: what they may have cost, and themselves if the run is
    /// executed again.
    async fn count_lost(&self, is_repeated: bool) -> Result<(), NoResult> {
        let counted = self.update_budget(|budget| budget.count_lost(&self.names.1, self.claims, is_repeated));
        counted.await.map_err(|error| NoResult::returned(error_chain(&error)))
    }

    /// Reserves what the run may cost.
    async fn reserve(&self, payload: &JobPayload) -> Result<(), NoResult> {
        let Some(limit) = self.experiment.cost else { return Ok(()) };
        let reserved = self.update_budget(|budget| {
            budget.reserve(Some(limit), &self.names.1, self.claims, payload.reserve_micros)
        });
        match reserved.await {
            Ok(true) => Ok(()),
            Ok(false) => Err(NoResult::returned("the cost limit of the experiment leaves no room for it")),
            Err(error) => Err(NoResult::returned(error_chain(&error))),
        }
    }

    /// Settles the reservation of the run; `None` if its cost is not known. If the queue cannot be reached, the submitter
    /// or the next claim of the job settles it.
    async fn settle(&self, cost: Option<u64>) {
        let (job, claims) = (&self.names.1, self.claims);
        if self.experiment.cost.is_some() {
            let _ = self.update_budget(|budget| budget.settle(job, claims, cost)).await;
        }
    }

    /// Counts what the run cost towards the limit of the worker. Unless that is known, it is what was reserved.
    fn add_spent(&self, usd: Option<f64>) {
        let usd = usd.unwrap_or_else(|| self.reserved_usd());
        self.shared.totals.lock().unwrap_or_else(PoisonError::into_inner).spent_usd += usd;
    }
}

/// Returns the error of the queue or of its artifacts.
fn queue_error(error: &DistributedError) -> Option<&QueueError> {
    match error {
        DistributedError::Queue(error) | DistributedError::Tree(TreeError::Queue(error)) => Some(error),
        _ => None,
    }
}

fn is_temporary(error: &DistributedError) -> bool {
    queue_error(error).is_some_and(QueueError::is_temporary)
}
