//! Warm agents: started and initialized once and used by many runs, each in its own session.
//!
//! A cold agent takes seconds to start; a new session on a running agent takes a fraction of that. Agents that differ
//! in anything they are started with (program, version, settings, environment, rules) are kept separate.
//! Every run has a session of its own, so that nothing carries over from one run to the next.

pub(crate) mod key;
mod maintenance;
mod run_task;
mod scheduler;
mod state;

use crate::pool::state::PoolState;
use crate::{
    agentline::Agentline,
    error::Error,
    resolve::{PlannedRun, StartFailure},
    run::{
        Run,
        channel::{Wakeup, channel},
        options::RunOptions,
        resolved::PendingStart,
    },
};
use agentline_core::{AgentId, RunRequest};
use serde::{Deserialize, Serialize};
use std::{sync::Arc, time::Duration};

/// The options of a pool.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct PoolOptions {
    /// The maximum number of agent processes.
    pub max_processes: usize,
    /// The maximum number of concurrent sessions on one process, if its runs can share it.
    pub concurrent_sessions: usize,
    /// The maximum number of sessions that are opened concurrently on one process. Some agents stall if it is high.
    pub concurrent_openings: usize,
    /// The maximum number of processes that start at a time. If it is set, a run also waits for a busy process as long as
    /// a start takes before it starts another one: that saves processor time if many short runs are queued, but delays a
    /// run that finds all processes busy.
    pub concurrent_starts: Option<usize>,
    /// The maximum number of runs that wait for a slot.
    pub max_queue: usize,
    /// The age at which a process is replaced.
    pub max_age: Duration,
    /// The number of sessions after which a process is replaced.
    pub max_sessions: u32,
    /// The memory use above which a process is replaced, in bytes.
    pub max_memory: u64,
    /// The idle time after which a process is stopped.
    pub idle_timeout: Duration,
}

impl Default for PoolOptions {
    fn default() -> Self {
        Self {
            max_processes: 4,
            concurrent_sessions: 4,
            concurrent_openings: 2,
            concurrent_starts: None,
            max_queue: 10_000,
            max_age: Duration::from_secs(3600),
            max_sessions: 50,
            // Some agents need 660 MB for their first session.
            max_memory: 1500 << 20,
            idle_timeout: Duration::from_secs(600),
        }
    }
}

/// A pool of warm agents. Dropping it ends each agent when its runs have ended.
///
/// ```no_run
/// # async fn show() -> Result<(), Box<dyn std::error::Error>> {
/// use agentline::{Agentline, Pool, PoolOptions, RunRequest};
/// let pool = Pool::new(Agentline::from_env()?, PoolOptions::default());
/// for prompt in ["one", "two", "three"] {
///     let outcome = pool.run(RunRequest::new(prompt)).await?.outcome().await;
///     println!("{}", outcome.text);
/// }
/// pool.close().await;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Pool {
    agentline: Agentline,
    pool: Arc<PoolState>,
}

/// The status of a pool.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PoolStatus {
    /// The agent processes.
    pub processes: Vec<ProcessStatus>,
    /// The number of runs that wait for a slot.
    pub queued: usize,
    /// The number of runs that have been given a slot.
    pub runs: u64,
    /// The number of agents that have been started.
    pub started: u64,
    /// The number of runs that were retried because their agent died before its first output.
    pub retried: u64,
    /// The number of agents that were retired because of their age, sessions or memory.
    pub recycled: u64,
}

/// The status of one warm agent.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ProcessStatus {
    /// The id of the agent.
    pub agent: AgentId,
    /// The version of the agent.
    pub version: Option<String>,
    /// The process id.
    pub pid: Option<u32>,
    /// Whether the agent has answered.
    pub ready: bool,
    /// The number of active runs.
    pub active: usize,
    /// The number of sessions so far.
    pub sessions: u32,
    /// The time since the start.
    pub age_ms: u64,
    /// The memory use of the process and its descendants in bytes, if the system reports it.
    pub memory: Option<u64>,
}

impl Pool {
    /// Creates an empty pool. Must be called inside a tokio runtime.
    #[must_use]
    pub fn new(agentline: Agentline, options: PoolOptions) -> Self {
        let pool = Arc::new(PoolState::new(options));
        maintenance::begin(&pool);
        Self { agentline, pool }
    }

    /// Returns the instance that the pool was created with.
    pub(crate) fn agentline(&self) -> &Agentline {
        &self.agentline
    }

    /// Starts a run that was planned for a warm agent.
    pub(crate) async fn start(&self, agentline: &Agentline, start: PendingStart) -> Result<Run, Error> {
        let (time, late) = start.limit();
        let pool = Arc::clone(&self.pool);
        let prepared = agentline.blocking_within(time, move |inner| {
            let (pool_request, process) = key::prepare(inner, start)?;
            // Try to get a slot on the same thread: each switch to a blocking thread costs more than most of the work
            // there.
            Ok(run_task::PendingRun::at_once(inner, &pool, Arc::new(*pool_request), process))
        });
        let prepared = match prepared.await {
            None => return Ok(Run::over(late)),
            Some(Ok(prepared)) => prepared,
            Some(Err(StartFailure::Over(outcome))) => return Ok(Run::over(*outcome)),
            Some(Err(StartFailure::Error(error))) => return Err(error),
        };
        let (sender, receiver) = channel(Wakeup::default());
        let pool_request = &prepared.pool_request;
        let run_id = pool_request.run.turn.info.run_id.clone();
        let (redactor, launched) = (pool_request.redactor.clone(), pool_request.launched.clone());
        let task = run_task::RunTask {
            agentline: agentline.clone(),
            pool: Arc::clone(&self.pool),
            pool_request: prepared.pool_request,
            allocation: prepared.allocation,
            channel: sender,
            is_stopped: false,
        };
        tokio::spawn(task.run());
        Ok(Run::new(run_id, receiver, launched).redacted(redactor))
    }

    /// Prepares for `runs` runs with this request, and returns how many sessions are ready.
    ///
    /// Starts the agents, opens a session in the workspace for each run, and waits until the sessions are open. Such a
    /// session uses the files that the agent reads when a session is opened (for example its instructions) as they were
    /// at that time.
    ///
    /// # Errors
    /// Fails like [`Agentline::run`].
    pub async fn prewarm(&self, request: RunRequest, runs: usize) -> Result<usize, Error> {
        self.prewarm_by(&self.agentline, request, runs).await
    }

    /// Prepares for runs like [`prewarm`](Self::prewarm), with the agents and programs of this instance.
    pub(crate) async fn prewarm_by(
        &self,
        agentline: &Agentline,
        request: RunRequest,
        runs: usize,
    ) -> Result<usize, Error> {
        let Some(mut request) = warm(agentline, &request) else { return Ok(0) };
        if request.prompt.trim().is_empty() {
            request.prompt = "open".into();
        }
        let start =
            PendingStart::Planned(Box::new((agentline.inner().plan(request)?, RunOptions::default())));
        let pool_request = match agentline.blocking(move |inner| key::prepare(inner, start)).await {
            Ok((pool_request, _)) => pool_request,
            Err(StartFailure::Over(_)) => return Ok(0),
            Err(StartFailure::Error(error)) => return Err(error),
        };
        Ok(run_task::prewarm(agentline, &self.pool, &Arc::new(*pool_request), runs).await)
    }

    /// Returns the status of the pool.
    #[must_use]
    pub fn status(&self) -> PoolStatus {
        self.pool.status()
    }

    /// Closes the pool: ends each agent when its runs have ended, and waits until all have exited. Waiting and new runs
    /// are refused.
    pub async fn close(&self) {
        self.pool.close().await;
    }
}

/// Plans a run for a warm agent; `None` if no warm agent can serve it.
///
/// # Errors
/// Fails if the request is invalid and names the surface itself. Otherwise it may be valid on another surface.
pub(crate) fn plan_warm(agentline: &Agentline, request: &RunRequest) -> Result<Option<PlannedRun>, Error> {
    let Some(warm) = warm(agentline, request) else { return Ok(None) };
    match agentline.inner().plan(warm) {
        Ok(planned) => Ok(Some(planned)),
        Err(_) if request.surface.is_none() => Ok(None),
        Err(problems) => Err(problems.into()),
    }
}

/// Returns the request for a warm agent, or `None` if no warm agent can serve it.
pub(crate) fn warm(agentline: &Agentline, request: &RunRequest) -> Option<RunRequest> {
    let is_plain = request.resume.is_none()
        && request.session_id.is_none()
        && request.record.is_none()
        && request.sandbox == agentline_core::Sandbox::Off;
    if !is_plain {
        return None;
    }
    let agent = agentline.registry().find(&request.agent).ok()?;
    let surface = match request.surface {
        Some(surface) => Some(surface).filter(|surface| agent.is_live(*surface)),
        None => agentline.inner().live_surface(&*agent, &request.agent),
    };
    let mut request = request.clone();
    request.surface = Some(surface?);
    request.needs_live = true;
    Some(request)
}
