//! One job on a worker, from its claim to its end.

use super::WorkerShared;
use crate::class::Class;
use crate::distributed::DistributedError;
use crate::distributed::budget::{self, micros};
use crate::distributed::spec::{ExperimentRecord, JobPayload, JobResult, RunningJob};
use crate::distributed::unpack::UnpackedRun;
use crate::execute::attempt::{Attempt, Ended, RunSpec};
use crate::execute::{BatchShutdown, now_ms};
use crate::result::RunResult;
use agentline::{FailureKind, Signal};
use agentline_core::error_chain;
use agentline_fs::remove::remove_tree;
use agentline_queue::{
    CommitResult, Lease, LeaseState, LeaseTimer, QueueError, TreeError, TreeLimits, TreeRef, upload_tree,
};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Duration;
use tokio::sync::{Mutex, watch};

/// The longest pause between two looks at the clock, which also counts while the machine is suspended.
const TICK: Duration = Duration::from_millis(250);

/// The size of what one run leaves in its directory, in bytes.
const LARGEST_RESULT: u64 = 512 << 20;

/// How a job ended on this worker.
pub(super) enum JobEnd {
    /// Its result was committed.
    Committed { run: RunningJob, class: Class },
    /// It has no result of this worker.
    Dropped { run: RunningJob, reason: String, is_returned: bool },
}

/// A job on a worker.
pub(super) struct JobTask {
    shared: Arc<WorkerShared>,
    experiment: Arc<ExperimentRecord>,
    /// The lease as it was renewed last.
    lease: Mutex<Lease>,
    /// The name of the experiment and of the job.
    names: (String, String),
    claims: u32,
    payload: Vec<u8>,
    requested_at: Duration,
    stop: watch::Sender<BatchShutdown>,
    stopped: watch::Receiver<BatchShutdown>,
    /// Whether the claim has ended, so that nothing is tried again.
    is_lost: AtomicBool,
    /// What the job is, as far as it is known.
    run: std::sync::Mutex<RunningJob>,
}

/// Why a job has no result of this worker.
enum NoResult {
    /// The claim has ended.
    Lost(String),
    /// The job is given back.
    Returned(String),
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
        let run = RunningJob {
            experiment: lease.experiment.clone(),
            case: lease.job.clone(),
            variant: String::new(),
            attempt: 0,
            began_ms: now_ms(),
        };
        Self {
            shared,
            experiment,
            names: (lease.experiment.clone(), lease.job.clone()),
            claims: lease.claims,
            payload: lease.payload.clone(),
            lease: Mutex::new(lease),
            requested_at,
            stop,
            stopped,
            is_lost: AtomicBool::new(false),
            run: std::sync::Mutex::new(run),
        }
    }

    fn run(&self) -> RunningJob {
        self.run.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Executes the job while its lease is renewed.
    pub(super) async fn execute(self) -> JobEnd {
        let (experiment, job) = &self.names;
        let id = format!("{experiment}.{job}");
        let renewed = self.keep_lease(&id);
        let worked = self.work(&id);
        tokio::pin!(renewed, worked);
        // The lease is noted before the work on the job begins.
        let end = tokio::select! {
            biased;
            reason = &mut renewed => {
                self.is_lost.store(true, Ordering::Relaxed);
                let _ = self.stop.send(BatchShutdown::Immediate(Signal::Terminate));
                // The run ends its agents, and its result cannot be committed any more.
                let _ = worked.await;
                Err(NoResult::Lost(reason))
            }
            end = &mut worked => end,
        };
        self.shared.leases.end(&id);
        let run = self.run();
        match end {
            Ok(class) => JobEnd::Committed { run, class },
            Err(NoResult::Lost(reason)) => JobEnd::Dropped { run, reason, is_returned: false },
            Err(NoResult::Returned(reason)) => {
                let lease = self.lease.lock().await;
                // A claim that cannot be given back ends by itself.
                let released = self.shared.queue.release(&lease);
                let _ = tokio::time::timeout(Duration::from_secs(5), released).await;
                JobEnd::Dropped { run, reason, is_returned: true }
            }
        }
    }

    /// Renews the lease until it is lost or ends, and returns why.
    async fn keep_lease(&self, id: &str) -> String {
        let length = self.shared.options.lease;
        let mut timer = LeaseTimer::new(length, self.requested_at);
        loop {
            // The supervisors act a little later than this process would.
            self.shared.leases.extend(id, timer.deadline() + length / 15);
            match timer.state(self.shared.clock.now()) {
                LeaseState::WaitUntil(moment) => {
                    let pause = moment.saturating_sub(self.shared.clock.now());
                    tokio::time::sleep(pause.min(TICK)).await;
                }
                LeaseState::Renew => {
                    let requested_at = self.shared.clock.now();
                    let left = timer.deadline().saturating_sub(requested_at);
                    let mut lease = self.lease.lock().await;
                    let renewed =
                        tokio::time::timeout(left, self.shared.queue.renew(&mut lease, length)).await;
                    drop(lease);
                    match renewed {
                        Ok(Err(QueueError::LeaseLost)) => return "another worker has claimed it".into(),
                        renewed => timer.record(requested_at, matches!(renewed, Ok(Ok(())))),
                    }
                }
                LeaseState::Expired => return "its claim could not be renewed in time".into(),
            }
        }
    }

    async fn work(&self, id: &str) -> Result<Class, NoResult> {
        let payload: JobPayload = match serde_json::from_slice(&self.payload) {
            Ok(payload) => payload,
            Err(error) => return Err(NoResult::Returned(format!("the job cannot be read: {error}"))),
        };
        let (experiment, _) = &self.names;
        let prepared = self.retried(|| {
            self.shared.files.run(experiment, &payload, &self.shared.agentline, &self.shared.options.policy)
        });
        let unpacked = prepared.await.map_err(|error| error_chain(&error));
        let run = unpacked.as_ref().ok().map(|unpacked| {
            let mut run = self.run.lock().unwrap_or_else(PoisonError::into_inner);
            run.case.clone_from(&unpacked.suite.cases[0].id);
            run.variant.clone_from(&unpacked.suite.variants[payload.variant].id);
            run.attempt = payload.attempt;
            run.clone()
        });
        if let Some(run) = run {
            self.shared.leases.describe(id, run.clone());
            let _ = self.shared.events.send(super::WorkerEvent::Began(run));
        }
        let unpacked = match unpacked {
            Ok(unpacked) => unpacked,
            // The same error would recur on every worker like this one.
            Err(message) => return self.commit_failure(None, &payload, message, None).await,
        };
        let is_poison = self.claims > self.experiment.max_claims;
        if self.claims > 1 {
            self.count_lost(!is_poison && unpacked.is_repeatable).await?;
        }
        if is_poison {
            let message =
                format!("claimed {} times, and no worker could finish it", self.experiment.max_claims);
            return self.commit_failure(Some(&unpacked), &payload, message, None).await;
        }
        if self.claims > 1 && !unpacked.is_repeatable {
            let message = "a worker was lost while it executed the run, which is not repeatable".to_owned();
            let kind = Some(FailureKind::Interrupted);
            return self.commit_failure(Some(&unpacked), &payload, message, kind).await;
        }
        self.reserve(&payload).await?;
        let ended = self.attempt(&unpacked).execute().await;
        match ended {
            Ended::Result(result) => self.commit(*result).await,
            Ended::NotCommitted if unpacked.is_repeatable || !self.had_effects() => {
                self.settle_unfinished().await;
                Err(NoResult::Returned("the worker was stopped".into()))
            }
            Ended::NotCommitted => {
                self.settle_unfinished().await;
                let message = "the worker was stopped, and the run is not repeatable".to_owned();
                self.commit_failure(Some(&unpacked), &payload, message, Some(FailureKind::Interrupted)).await
            }
            Ended::Store(error) => {
                self.settle(None).await;
                Err(NoResult::Returned(error_chain(&error)))
            }
        }
    }

    /// Returns whether the agent of the run may have started.
    fn had_effects(&self) -> bool {
        let interrupted = self.shared.run.experiment().interrupted_tries();
        interrupted.is_ok_and(|tries| tries.contains_key(&self.names.1))
    }

    fn attempt(&self, unpacked: &UnpackedRun) -> Attempt {
        let spec = RunSpec {
            suite: Arc::clone(&unpacked.suite),
            run: unpacked.run,
            key: self.names.1.clone(),
            requests: Arc::clone(&unpacked.requests),
            stop: self.stopped.clone(),
        };
        Attempt::new(Arc::clone(&self.shared.run), spec)
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
                Err(error) if is_temporary(&error) && !self.is_lost.load(Ordering::Relaxed) => {
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
        let job = &self.names.1;
        let counted = self.update_budget(|budget| {
            budget.duplicates += u64::from(is_repeated);
            budget.lose(job);
        });
        counted.await.map_err(|error| NoResult::Returned(error_chain(&error)))
    }

    /// Settles the reservation of a run that was stopped: at its full amount if its agent may have started.
    async fn settle_unfinished(&self) {
        if !self.had_effects() {
            return self.settle(Some(0)).await;
        }
        if self.experiment.cost.is_some() && !self.is_lost.load(Ordering::Relaxed) {
            let _ = self.update_budget(|budget| budget.lose(&self.names.1)).await;
        }
    }

    /// Reserves what the run may cost.
    async fn reserve(&self, payload: &JobPayload) -> Result<(), NoResult> {
        let Some(limit) = self.experiment.cost else { return Ok(()) };
        let job = &self.names.1;
        let reserved =
            self.update_budget(|budget| budget.reserve(Some(limit), job, payload.reserve_micros)).await;
        match reserved {
            Ok(true) => Ok(()),
            Ok(false) => Err(NoResult::Returned("the cost limit of the experiment is reached".into())),
            Err(error) => Err(NoResult::Returned(error_chain(&error))),
        }
    }

    /// Settles the reservation of the run; `None` if its cost is not known.
    async fn settle(&self, cost: Option<u64>) {
        // After the claim has ended, the reservation is that of another worker.
        if self.experiment.cost.is_some() && !self.is_lost.load(Ordering::Relaxed) {
            let job = &self.names.1;
            // If it cannot be settled now, the submitter settles it.
            let _ = self.update_budget(|budget| budget.settle(job, cost)).await;
        }
    }

    /// Commits a result for a job that was not executed.
    async fn commit_failure(
        &self,
        unpacked: Option<&UnpackedRun>,
        payload: &JobPayload,
        message: String,
        kind: Option<FailureKind>,
    ) -> Result<Class, NoResult> {
        let Some(unpacked) = unpacked else {
            // Without its case, the submitter names the run.
            let mut result = RunResult::broken(&self.names.1, 1, message);
            (result.attempt, result.finished_ms) = (payload.attempt, now_ms());
            return self.commit_with(result, None, Vec::new()).await;
        };
        let begun = self.shared.run.experiment().begin_try(&self.names.1, now_ms());
        let number = begun.map_or(1, |(number, _)| number);
        let mut result = self.attempt(unpacked).broken(number, message);
        result.kind = kind;
        self.commit(result).await
    }

    /// Stores the files of a run, and commits its result.
    async fn commit(&self, result: RunResult) -> Result<Class, NoResult> {
        let root = self.shared.run.experiment().dir().to_owned();
        let dir = root.join(&result.dir);
        let mut result = result;
        let files = self.retried(|| async { Ok(self.upload(&dir).await?) }).await;
        let files = match files {
            Ok(files) => Some(files),
            Err(error) => {
                result.not_stored = Some(error_chain(&error));
                None
            }
        };
        let tries = self.shared.run.experiment().ended_tries(&result.key).unwrap_or_default();
        let ended = self.commit_with(result, files, tries).await;
        let key = &self.names.1;
        remove_tree(&root.join(crate::result::run_dir(key)));
        let _ = self.shared.run.experiment().forget(key);
        ended
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
        let (class, cost) = (result.class, result.cost_now());
        let spent = cost.unwrap_or(0.0) + tries.iter().filter_map(|(_, cost)| *cost).sum::<f64>();
        let known = cost.is_some() || result.turns == 0;
        let result =
            JobResult { result, files, tries, claims: self.claims, worker: self.shared.options.name.clone() };
        let bytes = serde_json::to_vec(&result).unwrap_or_default();
        let committed = loop {
            // Renewing changes the lease, so it waits meanwhile.
            let lease = self.lease.lock().await;
            match self.shared.queue.commit(&lease, &bytes).await {
                Err(error) if error.is_temporary() && !self.is_lost.load(Ordering::Relaxed) => {
                    drop(lease);
                    tokio::time::sleep(TICK).await;
                }
                committed => break committed,
            }
        };
        {
            let mut totals = self.shared.totals.lock().unwrap_or_else(PoisonError::into_inner);
            totals.spent_usd += spent;
            totals.committed += u64::from(matches!(committed, Ok(CommitResult::Committed)));
        }
        let cost = known.then(|| micros(spent));
        match committed {
            Ok(CommitResult::Committed) => {
                self.settle(cost).await;
                Ok(class)
            }
            Ok(CommitResult::Duplicate) | Err(QueueError::LeaseLost) => {
                let job = &self.names.1;
                let _ = self.update_budget(|budget| budget.add_duplicate(job, cost)).await;
                Err(NoResult::Lost("another worker has committed or claimed it".into()))
            }
            Err(error) => {
                self.settle(cost).await;
                Err(NoResult::Returned(error_chain(&error)))
            }
        }
    }
}
