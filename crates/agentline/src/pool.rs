//! Warm agents: started and initialised once, used by many runs, one session each.
//!
//! A cold agent costs seconds before it thinks; a session on one that is up costs tenths of that. The pool keeps agents
//! apart that differ in anything that a process is started with (program, version, settings, environment, rules), and
//! gives every run a session of its own, so that nothing is carried over from one run to the next.

mod carry;
pub(crate) mod key;
mod lanes;
mod launches;
mod seating;
mod upkeep;

use crate::{
    agentline::Agentline,
    cache::{self, Looked},
    error::Error,
    finds::Finds,
    link::{Bell, link},
    options::RunOptions,
    ready::{not_ready_in_time, preparation_time},
    run::Run,
};
use agentline_core::{RunRequest, Surface};
use lanes::Lanes;
use launches::Launches;
use serde::{Deserialize, Serialize};
use std::{sync::Arc, time::Duration};

/// How a pool behaves.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct PoolOptions {
    /// How many agents are alive at once, at most.
    pub max_processes: usize,
    /// How many sessions are on one process at once, where runs can share one.
    pub lanes: usize,
    /// How many sessions may be being opened on one process at once: some agents stall over many.
    pub opening: usize,
    /// How many runs may wait for a place, at most.
    pub max_queue: usize,
    /// A process is replaced when it is older than this …
    pub max_age: Duration,
    /// … or has had this many sessions …
    pub max_sessions: u32,
    /// … or takes more memory than this, in bytes.
    pub max_memory: u64,
    /// A process that nobody used for this long is let go.
    pub idle: Duration,
}

impl Default for PoolOptions {
    fn default() -> Self {
        Self {
            max_processes: 4,
            lanes: 4,
            opening: 2,
            max_queue: 10_000,
            max_age: Duration::from_secs(3600),
            max_sessions: 50,
            max_memory: 700 << 20,
            idle: Duration::from_secs(600),
        }
    }
}

/// Agents that are kept warm. Dropping it lets them go when their runs are over.
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
    lanes: Arc<Lanes>,
    known: Arc<KnownThings>,
}

/// What a pool need not find out again for each run.
#[derive(Debug, Default)]
struct KnownThings {
    finds: Finds,
    launches: Launches,
}

/// How a pool stands.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PoolStatus {
    /// The agents that are alive.
    pub processes: Vec<ProcessStatus>,
    /// Runs that wait for a place.
    pub queued: usize,
    /// Runs that were given a place.
    pub runs: u64,
    /// Agents that were started.
    pub started: u64,
    /// Runs that were tried again because their agent died before it had said anything.
    pub retried: u64,
    /// Agents that were let go because of their age, sessions or memory.
    pub recycled: u64,
}

/// How one warm agent stands.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ProcessStatus {
    /// Which agent.
    pub agent: String,
    /// Its version.
    pub version: Option<String>,
    /// Its process.
    pub pid: Option<u32>,
    /// It has answered.
    pub ready: bool,
    /// Runs on it now.
    pub active: usize,
    /// Sessions that it has had.
    pub sessions: u32,
    /// Since it was started.
    pub age_ms: u64,
    /// Its memory and that of all that it started, in bytes, where the system says so.
    pub memory: Option<u64>,
}

impl Pool {
    /// A pool without agents yet. Call it inside a tokio runtime.
    #[must_use]
    pub fn new(agentline: Agentline, options: PoolOptions) -> Self {
        let lanes = Arc::new(Lanes::new(options));
        upkeep::begin(&lanes);
        Self { agentline, lanes, known: Arc::default() }
    }

    /// Runs a prompt on a warm agent, or on one that is started for it. A request that a warm agent cannot serve (one
    /// that resumes a stored session, records a tape, or asks for another surface) is run as [`Agentline::run`] does.
    ///
    /// # Errors
    /// As [`Agentline::run`].
    pub async fn run(&self, request: RunRequest) -> Result<Run, Error> {
        self.run_with(request, RunOptions::default()).await
    }

    /// Runs a prompt with what the program gives it: tools, somebody to be asked, a schema, a check.
    ///
    /// # Errors
    /// As [`Agentline::run`].
    pub async fn run_with(&self, request: RunRequest, options: RunOptions) -> Result<Run, Error> {
        self.run_as(&self.agentline, request, options).await
    }

    /// Runs a prompt for another user's environment, home or folder than the pool's own.
    ///
    /// # Errors
    /// As [`Agentline::run`].
    pub async fn run_as(
        &self,
        agentline: &Agentline,
        mut request: RunRequest,
        options: RunOptions,
    ) -> Result<Run, Error> {
        let notices = std::mem::take(&mut request.notices);
        let run = match self.look_up(agentline, &request, &options).await {
            Some(Looked::Hit(run)) => *run,
            Some(Looked::Miss(keeper)) => keeper.keep(self.make(agentline, request, options).await?),
            Some(Looked::Unclear) | None => self.make(agentline, request, options).await?,
        };
        Ok(run.with_notices(notices))
    }

    /// Whether the run is known already, where that is asked for.
    pub(crate) async fn look_up(
        &self,
        agentline: &Agentline,
        request: &RunRequest,
        options: &RunOptions,
    ) -> Option<Looked> {
        if !request.cache.on || !serves(request) {
            return agentline.look_up(request, options).await;
        }
        match cache::look(agentline, warm(request.clone()), options).await {
            // What a warm agent cannot do is done by another, which may be known.
            Looked::Unclear => agentline.look_up(request, options).await,
            looked => Some(looked),
        }
    }

    /// Makes the run, whatever is known.
    pub(crate) async fn make(
        &self,
        agentline: &Agentline,
        request: RunRequest,
        options: RunOptions,
    ) -> Result<Run, Error> {
        if !serves(&request) {
            return agentline.make(request, options).await;
        }
        let (asked, given) = (warm(request.clone()), options.clone());
        let (known, lanes) = (Arc::clone(&self.known), Arc::clone(&self.lanes));
        let prepared = agentline.blocking_within(preparation_time(&request), move |inner| {
            let wanted = key::prepare(inner, &known.finds, &known.launches, asked, &given)?;
            // Each way to a thread that may block and back costs more than most of what is done there.
            Ok(wanted.map(|wanted| carry::Begun::at_once(inner, &lanes, Arc::new(*wanted))))
        });
        let Some(prepared) = prepared.await else { return Ok(Run::over(not_ready_in_time(&request))) };
        let begun = match prepared {
            Ok(Ok(begun)) => begun,
            Ok(Err(outcome)) => return Ok(Run::over(*outcome)),
            // What cannot be had of an agent that stays alive may be had of another; else that one says why not.
            Err(Error::Usage(_)) if request.surface.is_none() => {
                return agentline.make(request, options).await;
            }
            Err(error) => return Err(error),
        };
        let bell = Bell::default();
        let (driven, held) = link(Bell::clone(&bell));
        let wanted = &begun.wanted;
        let run_id = wanted.asked.who.run_id.clone();
        let (veil, launched) = (wanted.fit.veil.clone(), wanted.fit.launched.clone());
        let carrier = carry::Carrier {
            agentline: agentline.clone(),
            lanes: Arc::clone(&self.lanes),
            wanted: begun.wanted,
            granted: begun.granted,
            link: driven,
            bell,
            is_stopped: false,
        };
        tokio::spawn(carrier.carry());
        Ok(Run::new(run_id, held, launched).veiled(veil))
    }

    /// Makes ready for this many runs like this one: starts the agents that they need and opens a session in the workspace
    /// for each, and waits until they are open. Says how many are.
    ///
    /// Such a session knows what the agent reads when a session is opened (its files of instructions, say) as it was at
    /// that moment.
    ///
    /// # Errors
    /// As [`Agentline::run`].
    pub async fn prewarm(&self, request: RunRequest, runs: usize) -> Result<usize, Error> {
        self.prewarm_by(&self.agentline, request, runs).await
    }

    /// The same with the agents and programs that this handle knows.
    pub(crate) async fn prewarm_by(
        &self,
        agentline: &Agentline,
        request: RunRequest,
        runs: usize,
    ) -> Result<usize, Error> {
        if !serves(&request) {
            return Ok(0);
        }
        let mut request = warm(request);
        if request.prompt.trim().is_empty() {
            request.prompt = "open".into();
        }
        let known = Arc::clone(&self.known);
        let prepared = agentline
            .blocking(move |inner| {
                key::prepare(inner, &known.finds, &known.launches, request, &RunOptions::default())
            })
            .await?;
        let Ok(wanted) = prepared else { return Ok(0) };
        Ok(carry::prewarm(agentline, &self.lanes, &Arc::new(*wanted), runs).await)
    }

    /// How the pool stands.
    #[must_use]
    pub fn status(&self) -> PoolStatus {
        self.lanes.status()
    }

    /// Lets each agent go when its runs are over, and waits until all are gone. Runs that wait for a place are refused,
    /// and so is everything from now on.
    pub async fn close(&self) {
        self.lanes.close().await;
    }
}

/// Whether a warm agent can serve this at all.
pub(crate) fn serves(request: &RunRequest) -> bool {
    let live = matches!(request.surface, None | Some(Surface::Acp));
    live && request.resume.is_none()
        && request.session_id.is_none()
        && request.record.is_none()
        && request.sandbox == agentline_core::Sandbox::Off
}

fn warm(mut request: RunRequest) -> RunRequest {
    request.surface = Some(Surface::Acp);
    request.needs_live = true;
    request
}
