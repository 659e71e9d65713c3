//! A worker: claims jobs that it can run, executes them with warm agents, and commits their results.

mod abilities;
mod claim_pauses;
mod directory;
mod identity;
mod job;
mod lease_book;
mod lease_keeper;
mod policy;
#[cfg(test)]
mod tests;

pub use policy::WorkerPolicy;
pub(super) use policy::beyond_mode;

use super::DistributedError;
use super::control;
use super::spec::{ExperimentRecord, ExperimentState, FORMAT, RunningJob, WORKERS, WorkerStatus};
use super::unpack::WorkerFiles;
use crate::execute::covers::Covers;
use crate::execute::lane::Lanes;
use crate::execute::limits::Totals;
use crate::execute::{BatchError, BatchEvent, BatchOptions, BatchShutdown, Shared, now_ms};
use crate::store::Experiment;
use crate::suite::BatchLimits;
use abilities::Abilities;
use agentline::admission::AdmissionControl;
use agentline::isolate::IsolationMethod;
use agentline::{Agentline, Pool, PoolOptions};
use agentline_core::error_chain;
use agentline_queue::{Clock, JobRoute, Lease, Queue, QueueError, SystemClock, check_part};
use claim_pauses::ClaimPauses;
use directory::WorkerDirectory;
use job::{JobEnd, JobTask};
use lease_book::LeaseBook;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::num::NonZero;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

/// How often a worker looks for new experiments, and for jobs whose lease has ended.
const POLL: Duration = Duration::from_secs(1);

/// How long a request of a worker that was told to stop may take. The server may not answer.
const FAREWELL: Duration = Duration::from_secs(2);

/// How often a worker reports what it does.
const REPORT: Duration = Duration::from_secs(5);

/// How a worker works.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct WorkerOptions {
    /// The name, unique in the queue.
    pub name: String,
    /// The number of runs at a time.
    pub jobs: usize,
    /// How long a claim lasts unless it is renewed.
    pub lease: Duration,
    /// The labels that jobs may demand.
    pub labels: Vec<String>,
    /// What jobs may do here.
    pub policy: WorkerPolicy,
    /// Where files of experiments are kept. By default, it is a temporary directory.
    pub dir: Option<PathBuf>,
    /// How workspaces are isolated. By default, they are overlays where this is possible, and copies otherwise.
    pub isolate: Option<IsolationMethod>,
    /// How long runs may still take after the worker was told to stop; then they are returned to the queue.
    pub drain: Option<Duration>,
}

impl WorkerOptions {
    /// Creates the options of a worker with this name.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            jobs: BatchOptions::default().jobs,
            lease: Duration::from_secs(30),
            labels: Vec::new(),
            policy: WorkerPolicy::default(),
            dir: None,
            isolate: None,
            drain: None,
        }
    }
}

/// What happens on a worker.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum WorkerEvent {
    /// The worker waits for jobs.
    Ready {
        /// The agents that it can run.
        agents: Vec<String>,
    },
    /// A run has begun.
    Began(RunningJob),
    /// The result of a run was committed.
    Committed {
        /// The run.
        run: RunningJob,
        /// The class of the result.
        class: crate::class::Class,
    },
    /// A run waits because artifacts or the queue cannot be reached; the worker tries again.
    Delayed {
        /// The run.
        run: RunningJob,
        /// Why.
        reason: String,
    },
    /// The files of a run could not be stored. Its result is committed without them.
    NotStored {
        /// The run.
        run: RunningJob,
        /// Why.
        reason: String,
    },
    /// A run ended without a result of this worker.
    Dropped {
        /// The run.
        run: RunningJob,
        /// Why.
        reason: String,
    },
    /// The jobs of an experiment cannot be claimed, and are left out.
    Skipped {
        /// The name of the experiment in the queue.
        experiment: String,
        /// Why.
        reason: String,
    },
    /// The queue cannot be reached; the worker tries again.
    Unreachable(String),
    /// The queue can be reached again.
    Reconnected,
}

/// What all jobs of a worker share.
pub(super) struct WorkerShared {
    pub(super) queue: Arc<dyn Queue>,
    pub(super) agentline: Agentline,
    pub(super) options: WorkerOptions,
    pub(super) files: WorkerFiles,
    pub(super) run: Arc<Shared>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) leases: Arc<LeaseBook>,
    pub(super) events: mpsc::UnboundedSender<WorkerEvent>,
    /// The revision of the worker's own record, and what its runs have cost.
    pub(super) totals: Mutex<WorkerTotals>,
}

/// What a worker has done.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct WorkerTotals {
    pub(super) committed: u64,
    pub(super) spent_usd: f64,
}

/// Executes jobs until `stop` says otherwise.
///
/// # Errors
/// Fails if the worker cannot start. A queue that cannot be reached is no error: the worker tries again.
pub async fn run_worker(
    agentline: &Agentline,
    queue: Arc<dyn Queue>,
    options: WorkerOptions,
    stop: watch::Receiver<BatchShutdown>,
    events: mpsc::UnboundedSender<WorkerEvent>,
) -> Result<(), DistributedError> {
    let started_ms = now_ms();
    identity::check_unique(&*queue, &options.name, started_ms).await?;
    let directory = WorkerDirectory::open(options.dir.as_deref()).map_err(no_directory)?;
    let root = directory.path();
    let state = root.join(directory::STATE);
    let experiment = Experiment::open(&state).map_err(BatchError::from)?;
    // What a killed worker left behind is of no use: its jobs are claimed again.
    agentline_fs::remove::remove_tree(&state.join("runs"));
    let files = WorkerFiles::new(root, queue.artifacts()).map_err(no_directory)?;
    let covers = Covers { covered: vec![files.hidden(), state], templates: vec![files.templates()] };
    let leases = Arc::new(LeaseBook::new().map_err(no_directory)?);
    let lanes = Lanes::create(&experiment, &agentline.host_env().home, options.isolate, &covers)?;
    let lanes = lanes.with_kill_deadline(leases.deadline());
    let agentline = leases.watch(agentline.clone());
    let mut pool_options = PoolOptions::default();
    pool_options.max_processes = options.jobs;
    pool_options.concurrent_starts = Some(std::thread::available_parallelism().map_or(1, NonZero::get));
    let (run_events, ignored) = mpsc::unbounded_channel::<BatchEvent>();
    drop(ignored);
    let limits = BatchLimits { infrastructure_in_a_row: None, ..BatchLimits::default() };
    let run = Arc::new(Shared {
        redactor: agentline.redactor(),
        pool: Pool::new(agentline.clone(), pool_options),
        admission: AdmissionControl::new(options.jobs),
        experiment: Mutex::new(experiment),
        totals: Mutex::new(Totals::new(limits)),
        lanes,
        options: BatchOptions { isolate: options.isolate, ..BatchOptions::default() },
        events: run_events,
    });
    let shared = Arc::new(WorkerShared {
        agentline,
        files,
        run,
        clock: Arc::new(SystemClock),
        leases,
        events,
        totals: Mutex::default(),
        queue,
        options,
    });
    let abilities = Abilities::new(&shared);
    let mut worker = Worker {
        shared: Arc::clone(&shared),
        stop,
        abilities,
        experiments: BTreeMap::new(),
        running: HashMap::new(),
        tasks: JoinSet::new(),
        started_ms,
        skipped: BTreeSet::new(),
        record: (0, None),
        is_reachable: true,
        has_news: true,
        reported: Vec::new(),
        next: 0,
        pauses: ClaimPauses::default(),
    };
    worker.work().await;
    shared.run.pool.close().await;
    shared.run.lanes.remove(&shared.run.experiment());
    // A record that cannot be removed now is removed when it is old.
    let name = format!("{WORKERS}.{}", shared.options.name);
    let _ = tokio::time::timeout(FAREWELL, shared.queue.remove_record(&name)).await;
    drop(directory);
    Ok(())
}

fn no_directory(error: std::io::Error) -> DistributedError {
    DistributedError::Batch(BatchError::Io("the worker's directory cannot be used".into(), error))
}

/// Awaits a request, but not longer than [`FAREWELL`] after the worker was told to stop.
async fn until_farewell<T>(
    stop: &watch::Receiver<BatchShutdown>,
    request: impl Future<Output = T>,
) -> Option<T> {
    let mut stop = stop.clone();
    let farewell = async {
        if stop.wait_for(|stop| *stop != BatchShutdown::None).await.is_err() {
            std::future::pending::<()>().await;
        }
        tokio::time::sleep(FAREWELL).await;
    };
    tokio::select! {
        value = request => Some(value),
        () = farewell => None,
    }
}

struct RunningTask {
    job: RunningJob,
    /// What the run may cost in US dollars, as far as it is known.
    reserved_usd: f64,
    stop: watch::Sender<BatchShutdown>,
}

struct Worker {
    shared: Arc<WorkerShared>,
    stop: watch::Receiver<BatchShutdown>,
    abilities: Abilities,
    /// The experiments in the queue.
    experiments: BTreeMap<String, Arc<ExperimentRecord>>,
    running: HashMap<tokio::task::Id, RunningTask>,
    tasks: JoinSet<JobEnd>,
    /// The experiments whose jobs cannot be claimed, as they were reported.
    skipped: BTreeSet<String>,
    started_ms: u64,
    /// The revision of the worker's record, and when it was written.
    record: (u64, Option<Instant>),
    is_reachable: bool,
    /// Whether something has changed since the last report.
    has_news: bool,
    /// The runs of the last report.
    reported: Vec<RunningJob>,
    /// The route from which the next claim begins, so that every experiment has its turn.
    next: usize,
    pauses: ClaimPauses,
}

impl Worker {
    async fn work(&mut self) {
        let agents = self.abilities.agents();
        let _ = self.shared.events.send(WorkerEvent::Ready { agents });
        let mut stop = self.stop.clone();
        let mut refreshed: Option<Instant> = None;
        let mut drained_at: Option<Instant> = None;
        loop {
            let shutdown = *stop.borrow_and_update();
            if shutdown != BatchShutdown::None && drained_at.is_none() {
                drained_at = Some(Instant::now());
                if !self.tasks.is_empty() {
                    until_farewell(&stop, self.report(true)).await;
                }
            }
            let is_over =
                drained_at.zip(self.shared.options.drain).is_some_and(|(at, time)| at.elapsed() >= time);
            if is_over || matches!(shutdown, BatchShutdown::Immediate(_)) {
                self.stop_runs(|_| true);
            }
            if drained_at.is_some() && self.tasks.is_empty() {
                return;
            }
            if refreshed.is_none_or(|at| at.elapsed() >= POLL) {
                until_farewell(&stop, self.refresh()).await;
                refreshed = Some(Instant::now());
            }
            while drained_at.is_none() && self.tasks.len() < self.shared.options.jobs {
                match until_farewell(&stop, self.claim()).await.flatten() {
                    Some((lease, requested_at)) => {
                        self.has_news = true;
                        self.begin(lease, requested_at);
                    }
                    None => break,
                }
            }
            until_farewell(&stop, self.report(false)).await;
            let has_slot = drained_at.is_none() && self.tasks.len() < self.shared.options.jobs;
            let queue = Arc::clone(&self.shared.queue);
            let is_reachable = self.is_reachable;
            tokio::select! {
                ended = self.tasks.join_next_with_id(), if !self.tasks.is_empty() => {
                    self.ended(ended);
                    self.has_news = true;
                }
                _ = stop.changed() => {}
                () = async {
                    if has_slot && is_reachable {
                        let _ = tokio::time::timeout(POLL, queue.wait(POLL)).await;
                    } else {
                        tokio::time::sleep(POLL).await;
                    }
                } => {}
            }
        }
    }

    /// Cancels the runs that `which` selects.
    fn stop_runs(&self, which: impl Fn(&RunningJob) -> bool) {
        for task in self.running.values().filter(|task| which(&task.job)) {
            task.stop.send_if_modified(|stop| {
                let is_new = !matches!(stop, BatchShutdown::Immediate(_));
                if is_new {
                    *stop = BatchShutdown::Immediate(agentline::Signal::Terminate);
                }
                is_new
            });
        }
    }

    /// Reads the experiments in the queue, and stops the runs of those that were cancelled.
    async fn refresh(&mut self) {
        let records = self.shared.queue.records(super::spec::EXPERIMENTS).await;
        let Some(records) = self.reached(records) else { return };
        self.experiments.clear();
        for record in records {
            if let Some((id, experiment)) = control::parse(&record)
                && experiment.format <= FORMAT
            {
                self.experiments.insert(id.to_owned(), Arc::new(experiment));
            }
        }
        self.skipped.retain(|id| self.experiments.contains_key(id));
        self.pauses.retain(|id| self.experiments.contains_key(id));
        let experiments = &self.experiments;
        self.stop_runs(|job| {
            experiments.get(&job.experiment).is_none_or(|known| known.state == ExperimentState::Cancelled)
        });
    }

    /// Notes whether the queue could be reached, and returns the value.
    fn reached<T>(&mut self, value: Result<T, QueueError>) -> Option<T> {
        match value {
            Ok(value) => {
                if !std::mem::replace(&mut self.is_reachable, true) {
                    let _ = self.shared.events.send(WorkerEvent::Reconnected);
                }
                Some(value)
            }
            Err(error) => {
                if std::mem::replace(&mut self.is_reachable, false) {
                    let _ = self.shared.events.send(WorkerEvent::Unreachable(error_chain(&error)));
                }
                None
            }
        }
    }

    /// Claims one job, if there is one that this worker can run. Returns when the claim was requested.
    async fn claim(&mut self) -> Option<(Lease, Duration)> {
        if !self.is_reachable || self.is_out_of_budget() {
            return None;
        }
        let mut routes = Vec::new();
        let now = Instant::now();
        let experiments: Vec<_> = self
            .experiments
            .iter()
            .filter(|(id, _)| self.pauses.allow(id, now))
            .map(|(id, known)| (id.clone(), Arc::clone(known)))
            .collect();
        for (id, experiment) in experiments {
            if experiment.state != ExperimentState::Running || !self.has_budget(&id, &experiment).await {
                continue;
            }
            for (route, requirements) in &experiment.routes {
                if check_part(route).is_ok() && self.abilities.cover(requirements) {
                    routes.push(JobRoute { experiment: id.clone(), route: route.clone() });
                }
            }
        }
        if routes.is_empty() {
            return None;
        }
        self.next = (self.next + 1) % routes.len();
        routes.rotate_left(self.next);
        let requested_at = self.shared.clock.now();
        match self.shared.queue.claim(&routes, self.shared.options.lease).await {
            Err(error) if !error.is_temporary() => self.claim_separately(&routes).await,
            lease => Some((self.reached(lease)??, requested_at)),
        }
    }

    /// Claims one job, and leaves the experiments out whose jobs cannot be claimed. Each is reported once.
    async fn claim_separately(&mut self, routes: &[JobRoute]) -> Option<(Lease, Duration)> {
        let experiments: Vec<&String> = routes.iter().map(|route| &route.experiment).collect();
        for id in experiments.iter().enumerate().filter(|(at, id)| !experiments[..*at].contains(id)) {
            let id = id.1.as_str();
            let own: Vec<JobRoute> = routes.iter().filter(|route| route.experiment == id).cloned().collect();
            let requested_at = self.shared.clock.now();
            match self.shared.queue.claim(&own, self.shared.options.lease).await {
                Err(error) if !error.is_temporary() => {
                    if self.skipped.insert(id.to_owned()) {
                        let (experiment, reason) = (id.to_owned(), error_chain(&error));
                        let _ = self.shared.events.send(WorkerEvent::Skipped { experiment, reason });
                    }
                }
                lease => match self.reached(lease) {
                    Some(Some(lease)) => return Some((lease, requested_at)),
                    Some(None) => drop(self.skipped.remove(id)),
                    None => return None,
                },
            }
        }
        None
    }

    /// Returns whether the worker's own limit is reached, with what its runs in progress may cost.
    fn is_out_of_budget(&self) -> bool {
        let totals = *self.shared.totals.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let reserved: f64 = self.running.values().map(|task| task.reserved_usd).sum();
        !self.shared.options.policy.allows_cost(totals.spent_usd + reserved)
    }

    /// Returns whether the cost limit of an experiment allows another run.
    async fn has_budget(&self, id: &str, experiment: &ExperimentRecord) -> bool {
        let Some(limit) = experiment.cost else { return true };
        match super::budget::read(&*self.shared.queue, id).await {
            Ok((budget, _)) => !budget.is_exhausted(limit),
            Err(_) => false,
        }
    }

    fn begin(&mut self, lease: Lease, requested_at: Duration) {
        let Some(experiment) = self.experiments.get(&lease.experiment).cloned() else { return };
        let (stop, stopped) = watch::channel(BatchShutdown::None);
        let job = RunningJob {
            experiment: lease.experiment.clone(),
            case: lease.job.clone(),
            variant: String::new(),
            attempt: 0,
            began_ms: now_ms(),
        };
        let task =
            JobTask::new(Arc::clone(&self.shared), experiment, lease, requested_at, stop.clone(), stopped);
        let reserved_usd = task.reserved_usd();
        let handle = self.tasks.spawn(task.execute());
        self.running.insert(handle.id(), RunningTask { job, reserved_usd, stop });
    }

    fn ended(&mut self, ended: Option<Result<(tokio::task::Id, JobEnd), tokio::task::JoinError>>) {
        let (id, end) = match ended {
            None => return,
            Some(Ok((id, end))) => (id, Some(end)),
            // The lease ends by itself, and another worker claims the job.
            Some(Err(error)) => (error.id(), None),
        };
        let Some(task) = self.running.remove(&id) else { return };
        let event = match end {
            Some(JobEnd::Committed { run, class }) => {
                self.pauses.executed(&run.experiment);
                WorkerEvent::Committed { run, class }
            }
            Some(JobEnd::Dropped { run, reason, returned }) => {
                if let Some(cause) = returned {
                    self.pauses.returned(&run.experiment, cause, Instant::now());
                }
                WorkerEvent::Dropped { run, reason }
            }
            None => {
                let reason = "internal error: the task of the run failed".to_owned();
                WorkerEvent::Dropped { run: task.job, reason }
            }
        };
        let _ = self.shared.events.send(event);
    }

    /// Writes what the worker does, from time to time or `now`.
    async fn report(&mut self, now: bool) {
        let (revision, written) = self.record;
        let runs = self.shared.leases.running();
        self.has_news |= now || runs != self.reported;
        let age = written.map(|at| at.elapsed());
        if age.is_some_and(|age| age < REPORT && !(self.has_news && age >= POLL)) || !self.is_reachable {
            return;
        }
        self.has_news = false;
        let totals = *self.shared.totals.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let options = &self.shared.options;
        let status = WorkerStatus {
            host: identity::host_name(),
            pid: std::process::id(),
            started_ms: self.started_ms,
            updated_ms: now_ms(),
            slots: options.jobs,
            agents: self.abilities.agents(),
            labels: options.labels.clone(),
            runs: runs.clone(),
            committed: totals.committed,
            spent_usd: totals.spent_usd,
            is_draining: *self.stop.borrow() != BatchShutdown::None,
        };
        let name = format!("{WORKERS}.{}", options.name);
        let value = serde_json::to_vec(&status).unwrap_or_default();
        let written = match self.shared.queue.write_record(&name, &value, revision).await {
            // The record is from an earlier worker with this name.
            Err(QueueError::Conflict(_)) => match self.shared.queue.record(&name).await {
                Ok(record) => {
                    let revision = record.map_or(0, |record| record.revision);
                    self.shared.queue.write_record(&name, &value, revision).await
                }
                Err(error) => Err(error),
            },
            written => written,
        };
        let written = self.reached(written);
        self.record = (written.unwrap_or(revision), Some(Instant::now()));
        self.reported = runs;
        if written.is_some() {
            self.remove_old_records().await;
        }
    }

    /// Removes the records of workers that disappeared long ago.
    async fn remove_old_records(&self) {
        const OLD_MS: u64 = 10 * 60 * 1000;
        let Ok(workers) = control::workers(&*self.shared.queue).await else { return };
        for (name, status) in workers {
            if status.updated_ms.saturating_add(OLD_MS) < now_ms() {
                let _ = self.shared.queue.remove_record(&format!("{WORKERS}.{name}")).await;
            }
        }
    }
}
