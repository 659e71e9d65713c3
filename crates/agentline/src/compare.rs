//! Runs one prompt with several agents side by side, each in its own copy of the workspace, and keeps one result.
//!
//! ```no_run
//! use agentline::{Agentline, RunRequest};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let request = RunRequest::new("Fix the failing test").working_dir("/srv/project");
//! let requests = ["gemini", "claude"].map(|agent| request.clone().agent(agent));
//! let mut comparison = Agentline::from_env()?.compare(requests.to_vec()).await?;
//! while let Some((index, record)) = comparison.next().await {
//!     println!("{}: {:?}", comparison.competitors()[index].agent, record.event);
//! }
//! let results = comparison.finish().await;
//! for result in results.rows() {
//!     println!("{}: {}", result.competitor.agent, result.outcome.text);
//! }
//! results.apply("claude").await?;
//! # Ok(())
//! # }
//! ```

mod results;

pub use crate::workspace::copy::ApplyError;
pub use results::{ComparedRun, ComparisonResults};

use crate::{
    Agentline, Error,
    fs::{disk_fs::canonicalize, private_dir::create_dir_all},
    resolve::stopped_before,
    run::Canceller,
    workspace::copy::WorkspaceCopy,
};
use agentline_core::{
    AgentId, CachePolicy, Event, Failure, FailureKind, Notice, Outcome, Problem, Problems, Record, RunInfo,
    RunRequest, Signal, Verdict, error_chain,
};
use results::CopyDir;
use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex, OnceLock, PoisonError},
};
use tokio::{sync::mpsc, task::JoinSet};

/// The number of events that are buffered before the runs wait for the caller to read them.
const BUFFERED_EVENTS: usize = 256;

/// One agent of a comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Competitor {
    /// The id of the agent.
    pub agent: AgentId,
    /// The requested model.
    pub model: Option<String>,
}

/// The runs of a comparison in progress. Dropping it ends all agents and removes the copies.
#[derive(Debug)]
pub struct Comparison {
    competitors: Vec<Competitor>,
    records: mpsc::Receiver<(usize, Record)>,
    tasks: JoinSet<(usize, ComparedRun)>,
    stop: Arc<StopAll>,
    dir: CopyDir,
    active_runs: PathBuf,
}

impl Agentline {
    /// Starts these requests at the same time, each for another agent, and each in its own copy of the workspace.
    ///
    /// The outcome of an agent that is not installed reports that, and the others run.
    ///
    /// # Errors
    /// Fails with all problems if an agent is unknown or listed twice, if a request is not valid for its agent, or if
    /// the workspaces differ. Fails if no directory for the copies can be created. Nothing is started in these cases.
    pub async fn compare(&self, requests: Vec<RunRequest>) -> Result<Comparison, Error> {
        self.compare_with(requests, false).await
    }

    /// Starts a comparison like [`compare`](Self::compare), and keeps the copies if `keep` is set.
    ///
    /// # Errors
    /// Fails like [`compare`](Self::compare).
    pub async fn compare_with(&self, requests: Vec<RunRequest>, keep: bool) -> Result<Comparison, Error> {
        let names = requests.first().map(RunRequest::problem_names);
        self.start_comparison(requests, keep).map_err(|error| match names {
            Some(names) => error.with_problems(names),
            None => error,
        })
    }

    fn start_comparison(&self, mut requests: Vec<RunRequest>, keep: bool) -> Result<Comparison, Error> {
        let competitors = self.competitors(&mut requests)?;
        let host_env = self.host_env();
        let original = match requests.first().and_then(|request| request.working_dir.as_deref()) {
            Some(dir) => host_env.cwd.join(dir),
            None => host_env.cwd.clone(),
        };
        let original = canonicalize(&original).ok().filter(|dir| dir.is_dir()).ok_or_else(|| {
            let problem = Problem::new("working_dir", format!("`{}` is not a directory", original.display()));
            Error::Usage(problem.hint("pass an existing directory with `--cwd`").into())
        })?;
        let parent = host_env.cache.join("compare");
        create_dir_all(&parent).map_err(Error::io("create", &parent))?;
        let dir = CopyDir::create(&parent, keep).map_err(Error::io("create a directory in", &parent))?;
        let (sender, records) = mpsc::channel(BUFFERED_EVENTS);
        let stop = Arc::new(StopAll::default());
        let name = original.file_name().map_or_else(|| "workspace".into(), PathBuf::from);
        let mut tasks = JoinSet::new();
        for (index, (competitor, request)) in competitors.iter().cloned().zip(requests).enumerate() {
            let task = CompetitorTask {
                index,
                agentline: self.clone(),
                original: original.clone(),
                root: dir.path().join(&*competitor.agent).join(&name),
                parent: parent.clone(),
                competitor,
                request,
                records: sender.clone(),
                stop: Arc::clone(&stop),
            };
            tasks.spawn(task.run());
        }
        Ok(Comparison { competitors, records, tasks, stop, dir, active_runs: self.inner().active_runs() })
    }

    /// Checks all requests and returns their agents.
    fn competitors(&self, requests: &mut [RunRequest]) -> Result<Vec<Competitor>, Problems> {
        let mut problems = Vec::new();
        let mut competitors: Vec<Competitor> = Vec::new();
        let workspace = requests.first().map(|request| request.working_dir.clone());
        for request in requests.iter_mut() {
            request.diffs = cfg!(feature = "diffs");
            // A cached result would be written to the copy, but its time and cost are those of an earlier run.
            request.cache = CachePolicy::default();
            problems.extend(not_comparable(request));
            if workspace.as_ref() != Some(&request.working_dir) {
                let problem = Problem::new("working_dir", format!("differs for `{}`", request.agent));
                problems.push(problem.hint("compare agents in the same workspace"));
            }
            let mut competitor = Competitor { agent: request.agent.clone(), model: request.model.clone() };
            match self.inner().plan(request.clone()) {
                Ok(planned) => competitor.agent = planned.agent.info().id.into(),
                Err(found) => problems.extend(found.0.into_iter().map(|mut problem| {
                    if !problem.message.contains(&*request.agent) {
                        problem.message = format!("{} ({})", problem.message, request.agent);
                    }
                    problem
                })),
            }
            if competitors.iter().any(|known| known.agent == competitor.agent) {
                let problem = Problem::new("agent", format!("`{}` is listed twice", competitor.agent));
                problems.push(problem.hint("compare each agent once"));
            }
            competitors.push(competitor);
        }
        if competitors.is_empty() {
            let problem = Problem::new("agent", "no agent is named");
            problems.push(problem.hint("name each agent with `-a AGENT`"));
        }
        Problems(problems).into_result().map(|()| competitors)
    }
}

/// Returns a problem for each setting that only one run can have.
fn not_comparable(request: &RunRequest) -> impl Iterator<Item = Problem> {
    let settings = [
        ("resume", request.resume.is_some()),
        ("session_id", request.session_id.is_some()),
        ("record", request.record.is_some()),
        ("temporary_workspace", request.temporary_workspace),
    ];
    settings.into_iter().filter(|(_, is_set)| *is_set).map(|(key, _)| {
        Problem::new(key, "cannot be shared by several agents").hint("leave it out of a comparison")
    })
}

impl Comparison {
    /// Returns the competitors, by whose index events are numbered.
    #[must_use]
    pub fn competitors(&self) -> &[Competitor] {
        &self.competitors
    }

    /// Returns the next event of any run with the index of its competitor, or `None` after all runs have ended. Cancel
    /// safe.
    pub async fn next(&mut self) -> Option<(usize, Record)> {
        self.records.recv().await
    }

    /// Returns a handle that cancels all runs.
    #[must_use]
    pub fn canceller(&self) -> ComparisonCanceller {
        ComparisonCanceller { stop: Arc::clone(&self.stop) }
    }

    /// Waits for all outcomes and discards unread events.
    pub async fn finish(mut self) -> ComparisonResults {
        while self.records.recv().await.is_some() {}
        let mut rows: Vec<Option<ComparedRun>> = self.competitors.iter().map(|_| None).collect();
        while let Some(done) = self.tasks.join_next().await {
            match done {
                Ok((index, row)) => rows[index] = Some(row),
                Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
                Err(_) => {}
            }
        }
        ComparisonResults::new(rows.into_iter().flatten().collect(), self.dir, self.active_runs)
    }
}

/// A handle that cancels all runs of a comparison.
#[derive(Clone, Debug)]
pub struct ComparisonCanceller {
    stop: Arc<StopAll>,
}

impl ComparisonCanceller {
    /// Cancels all runs with this signal, which their outcomes report. Copies in progress are abandoned.
    pub fn cancel_with(&self, signal: Signal) {
        // A later signal does not change the first.
        let _ = self.stop.signal.set(signal);
        for run in self.stop.runs().iter() {
            run.cancel_with(signal);
        }
    }
}

/// The runs that a signal cancels, and the signal.
#[derive(Debug, Default)]
struct StopAll {
    signal: OnceLock<Signal>,
    runs: Mutex<Vec<Canceller>>,
}

impl StopAll {
    fn runs(&self) -> std::sync::MutexGuard<'_, Vec<Canceller>> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, run: Canceller) {
        let mut runs = self.runs();
        runs.push(run.clone());
        if let Some(signal) = self.signal.get() {
            run.cancel_with(*signal);
        }
    }
}

/// The work for one competitor: copies the workspace, and runs the agent in the copy.
struct CompetitorTask {
    index: usize,
    agentline: Agentline,
    competitor: Competitor,
    request: RunRequest,
    original: PathBuf,
    root: PathBuf,
    /// The directory of all copies, which is not copied.
    parent: PathBuf,
    records: mpsc::Sender<(usize, Record)>,
    stop: Arc<StopAll>,
}

impl CompetitorTask {
    async fn run(self) -> (usize, ComparedRun) {
        let index = self.index;
        let competitor = self.competitor.clone();
        let (outcome, copy) = match self.copy().await {
            Err(outcome) => (*outcome, None),
            Ok(copy) => {
                let mut outcome = self.outcome(copy.root()).await;
                let left_out = copy.left_out.iter();
                outcome
                    .warnings
                    .extend(left_out.map(|file| Notice::new("not_copied", format!("not copied: {file}"))));
                (outcome, Some(copy))
            }
        };
        (index, ComparedRun::new(competitor, outcome, copy))
    }

    fn info(&self) -> RunInfo {
        let mut info = RunInfo::of_request(&self.request);
        info.run_id = uuid::Uuid::new_v4().to_string();
        info.cwd = self.root.to_string_lossy().into_owned();
        info
    }

    async fn copy(&self) -> Result<WorkspaceCopy, Box<Outcome>> {
        let (original, root, parent) = (self.original.clone(), self.root.clone(), self.parent.clone());
        let stop = Arc::clone(&self.stop);
        let work = move || WorkspaceCopy::make(&original, &root, &parent, &|| stop.signal.get().is_some());
        let copied = self.agentline.blocking(move |_| work()).await;
        copied.map_err(|error| {
            Box::new(match self.stop.signal.get() {
                Some(signal) => stopped_before(&self.info(), *signal),
                None => {
                    let message = format!("cannot copy the workspace: {error}");
                    let failure = Failure::new(FailureKind::Spawn, message);
                    Outcome::not_started(&self.info(), Verdict::Failed, failure)
                }
            })
        })
    }

    async fn outcome(&self, root: &Path) -> Outcome {
        let mut request = self.request.clone();
        request.working_dir = Some(root.to_owned());
        let mut run = match self.agentline.run(request).await {
            Ok(run) => run,
            Err(error) => {
                let failure = Failure::new(FailureKind::Spawn, error_chain(&error));
                return Outcome::not_started(&self.info(), Verdict::Failed, failure);
            }
        };
        self.stop.add(run.canceller());
        let mut last = None;
        while let Some(record) = run.next().await {
            if let Event::Outcome { outcome } = &record.event {
                last = Some((**outcome).clone());
            }
            // The caller may have stopped reading; the run continues to its end.
            let _ = self.records.send((self.index, record)).await;
        }
        last.unwrap_or_else(|| {
            let failure = Failure::new(FailureKind::NoResult, "the run ended without an outcome");
            Outcome::not_started(&self.info(), Verdict::Failed, failure)
        })
    }
}
