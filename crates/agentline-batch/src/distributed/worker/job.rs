//! One job on a worker, from its claim to its end.

use super::WorkerShared;
use super::lease_keeper::{LeaseKeeper, TICK};
use crate::class::Class;
use crate::distributed::DistributedError;
use crate::distributed::budget::{self, micros};
use crate::distributed::spec::{ExperimentRecord, JobPayload, JobResult, RunningJob};
use crate::distributed::unpack::UnpackedRun;
use crate::execute::attempt::{Attempt, Ended, RunSpec};
use crate::execute::{BatchShutdown, now_ms};
use crate::result::{RunResult, run_dir};
use agentline::{FailureKind, Signal};
use agentline_core::error_chain;
use agentline_fs::remove::remove_tree;
use agentline_queue::{CommitResult, Lease, QueueError, TreeError, TreeLimits, TreeRef, upload_tree};
use std::sync::{Arc, PoisonError};
use std::time::Duration;
use tokio::sync::watch;

/// The size of what one run leaves in its directory, in bytes.
const LARGEST_RESULT: u64 = 512 << 20;

/// How long a worker claims nothing of an experiment after it has returned a job, which it could claim again at once.
const PAUSE: Duration = Duration::from_secs(1);

/// The same after an error of this worker, which probably recurs here, but not on other workers.
const LONG_PAUSE: Duration = Duration::from_secs(30);

/// How a job ended on this worker.
pub(super) enum JobEnd {
    /// Its result was committed.
    Committed { run: RunningJob, class: Class },
    /// It has no result of this worker, which claims nothing of the experiment for the time of the pause.
    Dropped { run: RunningJob, reason: String, pause: Duration },
}

/// A job on a worker.
pub(super) struct JobTask {
    shared: Arc<WorkerShared>,
    experiment: Arc<ExperimentRecord>,
    lease: Arc<LeaseKeeper>,
    /// The names of the experiment and of the job.
    names: (String, String),
    claims: u32,
    payload: Vec<u8>,
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
    Returned { reason: String, pause: Duration },
}

impl NoResult {
    fn returned(reason: impl Into<String>) -> Self {
        Self::Returned { reason: reason.into(), pause: PAUSE }
    }

    fn of_worker(reason: impl Into<String>) -> Self {
        Self::Returned { reason: reason.into(), pause: LONG_PAUSE }
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
            payload: lease.payload.clone(),
            lease: Arc::new(LeaseKeeper::new(Arc::clone(&shared), lease, requested_at)),
            shared,
            stop,
            stopped,
            run: std::sync::Mutex::new(run),
            local_key,
        }
    }

    fn run(&self) -> RunningJob {
        self.run.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Executes the job while its lease is renewed.
    pub(super) async fn execute(self) -> JobEnd {
        let stop = self.stop.clone();
        let renewing = self.lease.keep(move || {
            let _ = stop.send(BatchShutdown::Immediate(Signal::Terminate));
        });
        let end = self.work().await;
        drop(renewing);
        self.forget_tries();
        let run = self.run();
        match (end, self.lease.lost()) {
            (Ok(class), _) => JobEnd::Committed { run, class },
            (Err(NoResult::Lost(reason)), _) | (Err(_), Some(reason)) => {
                JobEnd::Dropped { run, reason, pause: Duration::ZERO }
            }
            (Err(NoResult::Returned { reason, pause }), None) => {
                self.lease.release().await;
                JobEnd::Dropped { run, reason, pause }
            }
        }
    }

    async fn work(&self) -> Result<Class, NoResult> {
        let payload: JobPayload = match serde_json::from_slice(&self.payload) {
            Ok(payload) => payload,
            Err(error) => return self.commit_broken(0, format!("the job cannot be read: {error}")).await,
        };
        if self.claims > self.experiment.max_claims {
            self.count_lost(false).await?;
            let most = self.experiment.max_claims;
            let message = format!("claimed {most} times, and no worker could finish it");
            return self.commit_broken(payload.attempt, message).await;
        }
        let unpacked = self.retried(|| {
            let WorkerShared { files, agentline, options, .. } = &*self.shared;
            files.run(&self.names.0, &payload, agentline, &options.policy)
        });
        let unpacked = match unpacked.await {
            Ok(unpacked) => unpacked,
            Err(error) if error.is_of_worker() => return Err(NoResult::of_worker(error_chain(&error))),
            // The same error would recur on every worker.
            Err(error) => return self.commit_broken(payload.attempt, error_chain(&error)).await,
        };
        self.describe(&payload, &unpacked);
        if self.claims > 1 {
            self.count_lost(unpacked.is_repeatable).await?;
            if !unpacked.is_repeatable {
                let message = "a worker was lost while it executed the run, which is not repeatable";
                return self.commit_interrupted(&unpacked, message).await;
            }
        }
        self.reserve(&payload).await?;
        match self.attempt(&unpacked).execute().await {
            Ended::Result(result) => self.commit(*result).await,
            Ended::NotCommitted => self.end_unfinished(&unpacked).await,
            Ended::Store(error) => {
                self.settle(self.known_cost().map(micros)).await;
                Err(NoResult::of_worker(error_chain(&error)))
            }
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
            let message = "the worker was stopped, and the run is not repeatable";
            return self.commit_interrupted(unpacked, message).await;
        }
        self.add_spent(cost.unwrap_or(0.0));
        Err(NoResult::returned("the worker was stopped"))
    }

    /// Removes what the worker has stored about the run.
    fn forget_tries(&self) {
        let experiment = self.shared.run.experiment();
        let _ = experiment.forget(&self.local_key);
        let dir = experiment.dir().join(run_dir(&self.local_key));
        drop(experiment);
        tokio::task::block_in_place(|| remove_tree(&dir));
    }

    /// Repeats a request while the queue cannot be reached. The lease limits how long.
    async fn retried<T, F: Future<Output = Result<T, DistributedError>>>(
        &self,
        request: impl Fn() -> F,
    ) -> Result<T, DistributedError> {
        loop {
            let is_temporary = |error: &DistributedError| match error {
                DistributedError::Queue(error) | DistributedError::Tree(TreeError::Queue(error)) => {
                    error.is_temporary()
                }
                _ => false,
            };
            match request().await {
                Err(error) if is_temporary(&error) && self.lease.lost().is_none() => {
                    tokio::time::sleep(TICK).await;
                }
                ended => return ended,
            }
        }
    }

    async fn update_budget<T>(
        &self,
        change: impl Fn(&mut budget::Budget) -> T,
    ) -> Result<T, DistributedError> {
        let change = &change;
        self.retried(|| async move { Ok(budget::update(&*self.shared.queue, &self.names.0, change).await?) })
            .await
    }

    /// Counts the execution that an earlier claim of the job began: what it may have cost, and itself if it is repeated.
    async fn count_lost(&self, is_repeated: bool) -> Result<(), NoResult> {
        let counted = self.update_budget(|budget| {
            budget.duplicates += u64::from(is_repeated);
            budget.lose(&self.names.1);
        });
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

    fn add_spent(&self, usd: f64) {
        self.shared.totals.lock().unwrap_or_else(PoisonError::into_inner).spent_usd += usd;
    }

    /// Commits the result of a job that cannot be executed. The submitter names the run.
    async fn commit_broken(&self, attempt: u32, message: String) -> Result<Class, NoResult> {
        let mut result = RunResult::broken(&self.names.1, 1, message);
        (result.attempt, result.finished_ms) = (attempt, now_ms());
        self.commit_with(result, None, Vec::new()).await
    }

    /// Commits the result of a run that was interrupted and must not be executed again.
    async fn commit_interrupted(&self, unpacked: &UnpackedRun, message: &str) -> Result<Class, NoResult> {
        let begun = self.shared.run.experiment().begin_try(&self.local_key, now_ms());
        let number = begun.map_or(1, |(number, _)| number);
        let mut result = self.attempt(unpacked).broken(number, message.to_owned());
        result.kind = Some(FailureKind::Interrupted);
        self.commit(result).await
    }

    /// Stores the files of a run, and commits its result.
    async fn commit(&self, mut result: RunResult) -> Result<Class, NoResult> {
        let dir = self.shared.run.experiment().dir().join(&result.dir);
        let files = match self.retried(|| async { Ok(self.upload(&dir).await?) }).await {
            Ok(files) => Some(files),
            Err(error) => {
                result.not_stored = Some(error_chain(&error));
                None
            }
        };
        let tries = self.shared.run.experiment().ended_tries(&self.local_key).unwrap_or_default();
        result.key.clone_from(&self.names.1);
        self.commit_with(result, files, tries).await
    }

    async fn upload(&self, dir: &std::path::Path) -> Result<TreeRef, TreeError> {
        let mut limits = TreeLimits::default();
        limits.size = LARGEST_RESULT;
        let artifacts = self.shared.queue.artifacts();
        upload_tree(&*artifacts, &self.names.0, dir, limits).await
    }

    async fn commit_with(
        &self,
        result: RunResult,
        files: Option<TreeRef>,
        tries: Vec<(String, Option<f64>)>,
    ) -> Result<Class, NoResult> {
        let mut class = result.class;
        let spent =
            result.cost_now().unwrap_or(0.0) + tries.iter().filter_map(|(_, cost)| *cost).sum::<f64>();
        let is_known = result.cost_now().is_some() || result.turns == 0;
        self.add_spent(spent);
        let worker = self.shared.options.name.clone();
        let mut result = JobResult { result, files, tries, claims: self.claims, worker };
        let mut committed = self.commit_bytes(&result).await;
        if let Err(QueueError::TooLarge { size, most, .. }) = committed {
            let message = format!("the result has {size} bytes; the queue accepts {most}");
            result.result.reduce(message);
            class = result.result.class;
            committed = self.commit_bytes(&result).await;
        }
        if !matches!(committed, Err(ref error) if !matches!(error, QueueError::LeaseLost)) {
            self.settle(is_known.then(|| micros(spent))).await;
        }
        match committed {
            Ok(CommitResult::Committed) => {
                self.shared.totals.lock().unwrap_or_else(PoisonError::into_inner).committed += 1;
                Ok(class)
            }
            Ok(CommitResult::Duplicate) | Err(QueueError::LeaseLost) => {
                let reason = self.lease.lost();
                Err(NoResult::Lost(
                    reason.unwrap_or_else(|| "another worker has committed or claimed it".into()),
                ))
            }
            Err(error) => Err(NoResult::of_worker(error_chain(&error))),
        }
    }

    async fn commit_bytes(&self, result: &JobResult) -> Result<CommitResult, QueueError> {
        self.lease.commit(&serde_json::to_vec(result).unwrap_or_default()).await
    }
}
