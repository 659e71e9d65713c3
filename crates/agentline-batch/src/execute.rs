//! Runs a suite: whatever has no result yet, with warm agents, and commits each result once.

pub(crate) mod attempt;
mod batch;
mod checking;
mod commands;
pub(crate) mod covers;
mod disk_space;
mod forecast;
mod grade;
mod host_failure;
mod isolation;
pub(crate) mod lane;
mod lane_files;
pub(crate) mod ledger;
pub(crate) mod limits;
pub(crate) mod requests;
pub(crate) mod rerun;
mod run_files;
mod run_tasks;
pub(crate) mod suite_runs;

pub use forecast::{BatchForecast, PriceRange};
pub use grade::{grade, load_for_grading};
pub use limits::BatchLimitReached;
pub use requests::validate;
pub use rerun::Rerun;

use crate::class::Class;
use crate::result::RunResult;
use crate::store::{Experiment, StoreError};
use crate::suite::{RunIndex, Suite};
use crate::template;
use agentline::admission::AdmissionControl;
use agentline::isolate::IsolationMethod;
use agentline::{Agentline, Pool, PoolOptions, Problem, Problems, Signal};
use agentline_core::Redactor;
use batch::Batch;
use covers::Covers;
use isolation::check_isolation;
use lane::Lanes;
use limits::Totals;
use requests::requests;
use std::collections::HashMap;
use std::num::NonZero;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use suite_runs::{run_keys, store_suite};
use tokio::sync::{mpsc, watch};

/// How a batch is run.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct BatchOptions {
    /// The number of runs at a time.
    pub jobs: usize,
    /// Which runs with a result are executed again.
    pub rerun: Rerun,
    /// How often a run is executed again after an infrastructure failure that a retry can cure.
    pub retries: u32,
    /// Whether the workspaces of failed runs are kept in the experiment's directory.
    pub keep_failed: bool,
    /// How workspaces are isolated. By default, they are overlays where this is possible, and copies otherwise.
    pub isolate: Option<IsolationMethod>,
    /// Whether the batch ends as soon as the comparison of its two variants is decided.
    pub until_decided: bool,
}

impl Default for BatchOptions {
    fn default() -> Self {
        let jobs = std::thread::available_parallelism().map_or(2, usize::from);
        Self { jobs, rerun: Rerun::None, retries: 3, keep_failed: false, isolate: None, until_decided: false }
    }
}

/// What happens while a batch runs.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum BatchEvent {
    /// The batch has begun.
    Began {
        /// The number of all runs.
        runs: usize,
        /// The results from earlier batches.
        results: Vec<RunResult>,
    },
    /// A run has begun.
    RunBegan(RunIndex),
    /// A run is executed again after an infrastructure failure.
    Retried {
        /// The run.
        run: RunIndex,
        /// Why.
        message: String,
    },
    /// A run has ended; `None` if it was stopped before it had a result.
    RunEnded {
        /// The run.
        run: RunIndex,
        /// Its result, already committed.
        result: Option<Box<RunResult>>,
    },
    /// What the workers of a queue do.
    Workers {
        /// The number of workers.
        count: usize,
        /// The runs in progress.
        runs: Vec<RunIndex>,
        /// Whether the experiment is paused.
        is_paused: bool,
    },
    /// The queue cannot be reached, and is tried again.
    Unreachable(String),
    /// The queue can be reached again.
    Reconnected,
}

/// How a batch ended.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct BatchSummary {
    /// The number of runs in each class, with those of earlier batches.
    pub counts: HashMap<Class, usize>,
    /// The number of runs without a result.
    pub remaining: usize,
    /// The limit that ended the batch.
    pub limit: Option<BatchLimitReached>,
    /// The signal that ended the batch.
    pub stopped_by: Option<Signal>,
    /// Whether the batch ended early because its comparison is decided.
    pub is_decided: bool,
    /// Whether somebody cancelled the experiment in its queue.
    pub is_cancelled: bool,
}

/// How to stop a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchShutdown {
    /// Do not stop.
    None,
    /// Start no further runs, and finish those in progress.
    Graceful(Signal),
    /// Cancel the runs in progress. With [`Signal::Kill`], their agents are killed and nothing is torn down.
    Immediate(Signal),
}

/// Why a batch could not run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BatchError {
    /// The suite or its settings are invalid.
    #[error(transparent)]
    Invalid(#[from] Problems),
    /// The experiment's directory cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A file or directory cannot be used.
    #[error("{0}")]
    Io(String, #[source] std::io::Error),
    /// The library refused to start.
    #[error(transparent)]
    Agentline(#[from] agentline::Error),
}

/// What all runs of a batch share.
pub(crate) struct Shared {
    pub(crate) experiment: Mutex<Experiment>,
    /// Redacts the user's secrets.
    pub(crate) redactor: Redactor,
    pub(crate) pool: Pool,
    pub(crate) admission: Arc<AdmissionControl>,
    pub(crate) lanes: Lanes,
    pub(crate) options: BatchOptions,
    pub(crate) totals: Mutex<Totals>,
    pub(crate) events: mpsc::UnboundedSender<BatchEvent>,
}

impl Shared {
    pub(crate) fn experiment(&self) -> MutexGuard<'_, Experiment> {
        self.experiment.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns what the runs of this batch have used so far.
    fn totals(&self) -> MutexGuard<'_, Totals> {
        self.totals.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs whatever has no result yet. Events go to `events`, and `stop` ends the batch early.
///
/// # Errors
/// Fails before anything is started if the settings are invalid or the experiment's directory cannot be used.
pub async fn run_batch(
    agentline: &Agentline,
    mut suite: Suite,
    experiment: Experiment,
    options: BatchOptions,
    stop: watch::Receiver<BatchShutdown>,
    events: mpsc::UnboundedSender<BatchEvent>,
) -> Result<BatchSummary, BatchError> {
    if options.until_decided && suite.variants.len() != 2 {
        let problem = Problem::new("--until-decided", "needs exactly two variants");
        return Err(BatchError::Invalid(problem.hint("use a suite with two variants").into()));
    }
    let requests = requests(agentline, &suite)?;
    let pinned = template::pin_revisions(&mut suite)
        .map_err(|error| BatchError::Io("a workspace cannot be read".into(), error))?;
    let keys = run_keys(agentline, &suite)?;
    let home = &agentline.host_env().home;
    check_isolation(&suite, options.isolate, home)?;
    let covers = Covers::of(&suite, experiment.dir());
    let lanes = Lanes::create(&experiment, home, options.isolate, &covers)?;
    store_suite(agentline, &suite, &keys, &pinned, &experiment)?;
    let jobs = options.jobs.max(1);
    let mut pool_options = PoolOptions::default();
    pool_options.max_processes = jobs;
    // Agents need seconds of processor time to start, and many runs are shorter.
    pool_options.concurrent_starts = Some(std::thread::available_parallelism().map_or(1, NonZero::get));
    let shared = Arc::new(Shared {
        redactor: agentline.redactor(),
        pool: Pool::new(agentline.clone(), pool_options),
        admission: AdmissionControl::new(jobs),
        experiment: Mutex::new(experiment),
        totals: Mutex::new(Totals::new(suite.limits.clone())),
        lanes,
        options,
        events,
    });
    let requests = Arc::new(requests);
    let batch = Batch::new(Arc::clone(&shared), Arc::new(suite), requests, stop, keys)?;
    let summary = batch.run(jobs).await;
    shared.pool.close().await;
    shared.lanes.remove(&shared.experiment());
    summary
}

/// Returns the time since 1970 in milliseconds.
pub(crate) fn now_ms() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or(Duration::ZERO);
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}

/// Returns the directory of an experiment without `--dir`.
#[must_use]
pub fn default_dir(name: &str) -> PathBuf {
    let safe: String =
        name.chars().map(|c| if c.is_alphanumeric() || "-_.".contains(c) { c } else { '-' }).collect();
    PathBuf::from("agentline-experiments").join(safe.trim_start_matches('.'))
}
