//! Runs a suite: whatever has no result yet, with warm agents, and commits each result once.

mod attempt;
mod checking;
mod commands;
mod covers;
mod forecast;
mod grade;
mod host_failure;
mod lane;
mod limits;
mod rerun;
mod run_tasks;

pub use forecast::{BatchForecast, PriceRange};
pub use grade::{grade, load_for_grading};
pub use limits::BatchLimitReached;
pub use rerun::Rerun;

use crate::check::Condition;
use crate::class::Class;
use crate::key::{self, RunKey};
use crate::result::RunResult;
use crate::sequence::{PairSequence, grouped};
use crate::store::{Experiment, StoreError};
use crate::suite::{RunIndex, Suite, WorkspaceSource};
use crate::{template, worktree};
use agentline::admission::AdmissionControl;
use agentline::config::Settings;
use agentline::isolate::{IsolationMethod, fits_overlay};
use agentline::{Agentline, Pool, PoolOptions, Problem, Problems, RunRequest, Signal};
use agentline_core::Layer;
use attempt::{Attempt, Ended};
use covers::Covers;
use lane::Lanes;
use limits::Totals;
use rerun::RerunPlan;
use run_tasks::RunTasks;
use serde_json::{Map, Value};
use std::collections::{HashMap, HashSet, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
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
}

/// How to stop a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Do not stop.
    No,
    /// Start no further runs, and finish those in progress.
    Finish(Signal),
    /// Cancel the runs in progress.
    Now(Signal),
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
    pub(crate) suite: Suite,
    pub(crate) experiment: Mutex<Experiment>,
    pub(crate) agentline: Agentline,
    pub(crate) pool: Pool,
    pub(crate) admission: Arc<AdmissionControl>,
    pub(crate) lanes: Lanes,
    pub(crate) options: BatchOptions,
    /// The handle and the request for each set of settings.
    pub(crate) requests: HashMap<String, (Agentline, RunRequest)>,
    totals: Mutex<Totals>,
    pub(crate) stop: watch::Receiver<Stop>,
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

    /// Returns the handle and the request for settings.
    pub(crate) fn request(&self, settings: &Map<String, Value>) -> Option<&(Agentline, RunRequest)> {
        self.requests.get(&settings_key(settings))
    }
}

fn settings_key(settings: &Map<String, Value>) -> String {
    serde_json::to_string(settings).unwrap_or_default()
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
    stop: watch::Receiver<Stop>,
    events: mpsc::UnboundedSender<BatchEvent>,
) -> Result<BatchSummary, BatchError> {
    if options.until_decided && suite.variants.len() != 2 {
        let problem = Problem::new("--until-decided", "needs exactly two variants");
        return Err(BatchError::Invalid(problem.hint("use a suite with two variants").into()));
    }
    let requests = requests(agentline, &suite)?;
    template::pin_revisions(&mut suite)
        .map_err(|error| BatchError::Io("a workspace cannot be read".into(), error))?;
    let keys = run_keys(agentline, &suite)?;
    let home = &agentline.host_env().home;
    check_isolation(&suite, options.isolate, home)?;
    let covers = Covers::of(&suite, experiment.dir());
    let lanes = Lanes::create(&experiment, home, options.isolate, &covers)?;
    store_suite(agentline, &suite, &keys, &experiment)?;
    let jobs = options.jobs.max(1);
    let mut pool_options = PoolOptions::default();
    pool_options.max_processes = jobs;
    let shared = Arc::new(Shared {
        agentline: agentline.clone(),
        pool: Pool::new(agentline.clone(), pool_options),
        admission: AdmissionControl::new(jobs),
        experiment: Mutex::new(experiment),
        totals: Mutex::new(Totals::new(suite.limits.clone())),
        requests,
        lanes,
        options,
        suite,
        stop,
        events,
    });
    let keys = keys.into_iter().map(|(run, key)| (run, key.key)).collect();
    let summary = Batch::new(Arc::clone(&shared), keys)?.run(jobs).await;
    shared.pool.close().await;
    shared.lanes.remove(&shared.experiment());
    summary
}

/// Returns the names of each run of a suite, with the settings of the user's configuration and environment.
///
/// # Errors
/// Fails if a workspace, or a file that the settings name, cannot be read.
fn run_keys(agentline: &Agentline, suite: &Suite) -> Result<HashMap<RunIndex, RunKey>, BatchError> {
    let mut known: HashMap<String, Option<String>> = HashMap::new();
    let resolved = |settings: &Map<String, Value>| {
        let name = settings_key(settings);
        if let Some(digest) = known.get(&name) {
            return Ok(digest.clone());
        }
        // Invalid settings are reported where they are validated.
        let digest = match resolve(agentline, settings) {
            Ok((_, request)) => Some(key::settings_digest(&request, &agentline.host_env().cwd)?),
            Err(_) => None,
        };
        known.insert(name, digest.clone());
        Ok(digest)
    };
    key::keys(suite, resolved)
        .map_err(|error| BatchError::Io("a workspace or a file of the settings cannot be read".into(), error))
}

/// Stores what the suite is now. Reports are about its runs only, whatever else was run in this directory.
fn store_suite(
    agentline: &Agentline,
    suite: &Suite,
    keys: &HashMap<RunIndex, RunKey>,
    experiment: &Experiment,
) -> Result<(), BatchError> {
    let mut runs: HashMap<String, String> =
        keys.values().map(|key| (key.identity.clone(), key.key.clone())).collect();
    if !suite.unselected.is_empty() {
        // A case that is not run now may be incomplete. Then it has no results in the report.
        let rest = run_keys(agentline, &suite.rest()).unwrap_or_default();
        runs.extend(rest.into_values().map(|key| (key.identity, key.key)));
    }
    let list = |ids: &[&String]| serde_json::to_string(ids).unwrap_or_default();
    let variants: Vec<&String> = suite.variants.iter().map(|variant| &variant.id).collect();
    let values = [
        ("name", suite.name.clone()),
        ("cases", list(&suite.case_ids.iter().collect::<Vec<_>>())),
        ("variants", list(&variants)),
        ("repeat", suite.repeat.to_string()),
        (DEFAULTS, serde_json::to_string(&suite.below).unwrap_or_default()),
    ];
    let values: Vec<(&str, &str)> = values.iter().map(|(name, value)| (*name, value.as_str())).collect();
    Ok(experiment.set_suite(&runs, &values)?)
}

/// The name of the stored settings below those of the suite.
const DEFAULTS: &str = "defaults";

/// Checks that every workspace can be isolated by the method that the caller demands.
fn check_isolation(suite: &Suite, method: Option<IsolationMethod>, home: &Path) -> Result<(), Problems> {
    let temporary = std::env::temp_dir();
    let mut problems = Vec::new();
    let mut seen = HashSet::new();
    for case in &suite.cases {
        let Some(source) = case.workspace.as_ref().filter(|source| seen.insert(format!("{source:?}"))) else {
            continue;
        };
        let refusal = match (method, source) {
            (Some(IsolationMethod::Worktree), source) => {
                worktree::repository(source).err().map(|error| error.to_string())
            }
            (Some(IsolationMethod::Overlay), WorkspaceSource::Directory(path)) => {
                match fits_overlay(path, &[home, &temporary]) {
                    Ok(true) => None,
                    Ok(false) => Some(lane::unfit(path)),
                    Err(error) => Some(format!("`{}` cannot be read: {error}", path.display())),
                }
            }
            _ => None,
        };
        problems.extend(refusal.map(|message| {
            Problem::new("isolate", message).source(case.source.clone()).hint("use `--isolate copy`")
        }));
    }
    Problems(problems).into_result()
}

/// Checks the settings of a suite for its agents. Starts nothing.
///
/// # Errors
/// Returns every problem, with the place of the case and the variant.
pub fn validate(agentline: &Agentline, suite: &Suite) -> Result<(), Problems> {
    requests(agentline, suite).map(|_| ())
}

/// Builds the request for each set of settings of a suite.
fn requests(
    agentline: &Agentline,
    suite: &Suite,
) -> Result<HashMap<String, (Agentline, RunRequest)>, Problems> {
    let mut requests = HashMap::new();
    let mut problems = Vec::new();
    let (mut seen, mut judges) = (HashSet::new(), HashSet::new());
    for case in &suite.cases {
        for (variant, settings) in suite.variants.iter().zip(&case.settings) {
            let key = settings_key(settings);
            if !seen.insert(key.clone()) {
                continue;
            }
            match request(agentline, settings) {
                Ok(request) => {
                    requests.insert(key, request);
                }
                Err(found) => {
                    let source = format!("{}, variant `{}`", case.source, variant.id);
                    problems.extend(found.0.into_iter().map(|problem| problem.source(source.clone())));
                }
            }
        }
        for check in &case.checks {
            if let Condition::Judge(judge) = &check.condition
                && judges.insert(settings_key(&judge.settings))
                && let Err(found) = request(agentline, &judge.settings)
            {
                let source = format!("{}, judge", case.source);
                problems.extend(found.0.into_iter().map(|problem| problem.source(source.clone())));
            }
        }
    }
    Problems(problems).into_result().map(|()| requests)
}

/// Builds a request from the user's settings and those of a suite, and validates it.
pub(crate) fn request(
    agentline: &Agentline,
    settings: &Map<String, Value>,
) -> Result<(Agentline, RunRequest), Problems> {
    let (agentline, request) = resolve(agentline, settings)?;
    // The prompt follows for each run.
    let mut checked = request.clone();
    "ready".clone_into(&mut checked.prompt);
    agentline.validate(&checked)?;
    Ok((agentline, request))
}

/// Builds a request from the user's settings and those of a suite.
fn resolve(
    agentline: &Agentline,
    settings: &Map<String, Value>,
) -> Result<(Agentline, RunRequest), Problems> {
    let host_env = agentline.host_env();
    let layer = Layer::map("suite", settings.clone());
    let found = Settings::find(&host_env.cwd, None, Some(&host_env.home), std::env::vars_os(), vec![layer])
        .build()?;
    Ok(agentline.clone().with_config(&found))
}

struct Batch {
    shared: Arc<Shared>,
    keys: HashMap<RunIndex, String>,
    results: HashMap<String, RunResult>,
    waiting: VecDeque<RunIndex>,
    /// The runs that have a result and are executed again. The old result counts until there is a new one.
    rerun: RerunPlan,
    sequence: Option<PairSequence>,
}

impl Batch {
    fn new(shared: Arc<Shared>, keys: HashMap<RunIndex, String>) -> Result<Self, BatchError> {
        let stored = shared.experiment().results()?;
        let rerun = RerunPlan::begin(&shared.experiment(), shared.options.rerun, now_ms())?;
        let mut results = HashMap::new();
        let mut waiting = VecDeque::new();
        for run in shared.suite.runs() {
            let key = &keys[&run];
            match stored.get(key).filter(|result| !rerun.includes(result)) {
                Some(result) => {
                    results.insert(key.clone(), result.clone());
                }
                None => waiting.push_back(run),
            }
        }
        let began = BatchEvent::Began {
            runs: results.len() + waiting.len(),
            results: results.values().cloned().collect(),
        };
        let _ = shared.events.send(began);
        let mut batch = Self { shared, keys, results, waiting, rerun, sequence: None };
        if batch.shared.options.until_decided {
            batch.compare_in_order()?;
        }
        Ok(batch)
    }

    /// Puts the runs into the order in which the comparison looks at their cases.
    fn compare_in_order(&mut self) -> Result<(), BatchError> {
        let suite = &self.shared.suite;
        let cases = suite.cases.iter().map(|case| case.id.clone()).collect();
        let [first, second] = [0, 1].map(|variant| suite.variants[variant].id.clone());
        let sequence = PairSequence::begin(&self.shared.experiment(), cases, [first, second], suite.repeat)?;
        let rank: HashMap<&str, usize> =
            sequence.order().iter().enumerate().map(|(rank, case)| (case.as_str(), rank)).collect();
        let ranks: Vec<Option<usize>> =
            suite.cases.iter().map(|case| rank.get(case.id.as_str()).copied()).collect();
        self.waiting.make_contiguous().sort_by_key(|run| (ranks[run.case], run.attempt, run.variant));
        self.sequence = Some(sequence);
        self.advance();
        Ok(())
    }

    /// Looks at the cases that are complete.
    fn advance(&mut self) {
        if let Some(sequence) = &mut self.sequence {
            sequence.advance(&grouped(self.results.values()));
        }
    }

    fn is_decided(&self) -> bool {
        self.sequence.as_ref().is_some_and(PairSequence::is_decided)
    }

    async fn run(mut self, jobs: usize) -> Result<BatchSummary, BatchError> {
        let mut active = RunTasks::default();
        let mut stop = self.shared.stop.clone();
        let mut limit = None;
        let out_of_time = self.shared.totals().out_of_time();
        tokio::pin!(out_of_time);
        loop {
            let stopping = *stop.borrow_and_update() != Stop::No || limit.is_some() || self.is_decided();
            while !stopping && active.len() < jobs {
                let Some(run) = self.waiting.pop_front() else { break };
                let attempt = Attempt::new(Arc::clone(&self.shared), run, self.keys[&run].clone());
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
                    let result = self.commit(run, ended)?;
                    limit = limit.or_else(|| self.shared.totals().reached());
                    let result = result.map(Box::new);
                    let _ = self.shared.events.send(BatchEvent::RunEnded { run, result });
                }
                _ = stop.changed() => {}
                () = &mut out_of_time, if limit.is_none() => limit = Some(BatchLimitReached::Time),
            }
        }
        let mut counts: HashMap<Class, usize> = HashMap::new();
        for result in self.results.values() {
            *counts.entry(result.class).or_default() += 1;
        }
        let stopped_by = match *stop.borrow() {
            Stop::No => None,
            Stop::Finish(signal) | Stop::Now(signal) => Some(signal),
        };
        let remaining = self.keys.len() - self.results.len();
        if remaining == 0 {
            self.rerun.finish(&self.shared.experiment())?;
        }
        Ok(BatchSummary {
            remaining,
            counts,
            limit,
            stopped_by,
            is_decided: self.is_decided() && remaining > 0,
        })
    }

    /// Commits the result of a run, if it has one.
    fn commit(&mut self, run: RunIndex, ended: Ended) -> Result<Option<RunResult>, BatchError> {
        let result = match ended {
            Ended::Result(result) => *result,
            Ended::NotCommitted => return Ok(None),
            Ended::Store(error) => return Err(error.into()),
        };
        if self.rerun.is_active() {
            self.shared.experiment().replace(&result)?;
        } else {
            self.shared.experiment().commit(&result)?;
        }
        self.shared.totals().add(&result);
        self.results.insert(self.keys[&run].clone(), result.clone());
        self.advance();
        Ok(Some(result))
    }
}

impl Batch {
    /// Returns the end of a run whose task panicked. The error is ours, so the run says nothing about the agent.
    fn broken(&self, run: RunIndex, message: String) -> Ended {
        let key = self.keys[&run].clone();
        let number = self.shared.experiment().last_try(&key);
        match number {
            Ok(number) => {
                let attempt = Attempt::new(Arc::clone(&self.shared), run, key);
                Ended::Result(Box::new(attempt.broken(number.max(1), message)))
            }
            Err(error) => Ended::Store(error),
        }
    }
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
