//! Starts runs: plans them, looks them up in the cache, and starts them on a process of their own or in a pool.
//! `retry.rs` starts further attempts.

pub(crate) mod retry;

use crate::{
    agentline::{Agentline, Inner},
    cache::{self, Lookup, Recorder},
    error::Error,
    pool::{Pool, plan_warm},
    resolve::{PlannedRun, StartFailure, not_started, stopped_before},
    run::{
        Launched, Run,
        active_run::CompletionTiming,
        channel::{Wakeup, channel},
        live_process::ProcessHandle,
        options::RunOptions,
        resolved::{PendingStart, ResolvedStart},
    },
};
use agentline_core::{Limits, Millis, Notice, Redactor, RunRequest};
use retry::{OpenGate, Retries};
use std::{sync::Arc, time::Instant};

impl Agentline {
    /// Starts a run.
    ///
    /// Once the request is accepted, all failures are reported by the outcome of the run.
    ///
    /// # Errors
    /// Fails if the request is invalid or the run cannot be prepared. No process is started in that case.
    pub async fn run(&self, request: RunRequest) -> Result<Run, Error> {
        self.run_with(request, RunOptions::default()).await
    }

    /// Starts a run with the caller's tools, permission callback, schema and completion check.
    ///
    /// # Errors
    /// Fails like [`run`](Self::run).
    pub async fn run_with(&self, request: RunRequest, options: RunOptions) -> Result<Run, Error> {
        let names = request.problem_names();
        let started = async { look_up(self, None, request, options).await?.start().await };
        started.await.map_err(|error| error.with_problems(names))
    }

    /// Starts a run on a process of its own.
    async fn start_cold(&self, start: PendingStart) -> Result<Run, Error> {
        let started_at = Instant::now();
        let (time, late) = start.limit();
        let prepared = self.blocking_within(time, move |inner| inner.prepare(*start.resolve(inner)?));
        let mut ready = match prepared.await {
            None => return Ok(Run::over(late)),
            Some(Ok(ready)) => *ready,
            Some(Err(StartFailure::Over(outcome))) => return Ok(Run::over(*outcome)),
            Some(Err(StartFailure::Error(error))) => return Err(error),
        };
        ready.prepared_run.spec.timeouts.spent =
            Millis::try_from(started_at.elapsed().as_millis()).unwrap_or(Millis::MAX);
        let wait = match ready.wait_before_start() {
            Ok(wait) => wait,
            Err(outcome) => return Ok(Run::over(*outcome)),
        };
        let (info, agent) = (ready.prepared_run.spec.info.clone(), Arc::clone(&ready.process.agent));
        if wait.is_zero() {
            return Ok(match ProcessHandle::start(&self.inner, ready.process, &info.run_id, started_at) {
                // The handle is dropped after this call, so no other run can share the process.
                Ok(live) => live.run(ready.prepared_run, CompletionTiming::AfterExit),
                Err(error) => Run::over(not_started(&info, &*agent, &error)),
            });
        }
        // Return the run before the wait is over, so that the caller can cancel it.
        let wakeup = Wakeup::default();
        let (sender, receiver) = channel(Wakeup::clone(&wakeup));
        let redactor = Redactor::new(&ready.process.process.secrets);
        let launched = Launched::of(&ready.process.process, &redactor);
        let run = Run::new(info.run_id.clone(), receiver, launched).redacted(redactor);
        let inner = Arc::clone(&self.inner);
        tokio::spawn(async move {
            let stopped = tokio::select! {
                () = tokio::time::sleep(wait) => None,
                signal = sender.stopped() => Some(signal),
            };
            if let Some(signal) = stopped {
                drop(ready);
                return sender.finish(stopped_before(&info, signal));
            }
            match ProcessHandle::start_by(wakeup, &inner, ready.process, &info.run_id, started_at) {
                Ok(live) => {
                    live.take(ready.prepared_run.into_submission(sender, CompletionTiming::AfterExit))
                }
                Err(error) => sender.finish(not_started(&info, &*agent, &error)),
            }
        });
        Ok(run)
    }
}

impl Pool {
    /// Runs a prompt on a warm agent, and starts one if necessary.
    ///
    /// A request that a warm agent cannot serve runs like [`Agentline::run`]: one that resumes or names a session,
    /// records a tape, uses a sandbox or requests another surface.
    ///
    /// # Errors
    /// Fails like [`Agentline::run`].
    pub async fn run(&self, request: RunRequest) -> Result<Run, Error> {
        self.run_with(request, RunOptions::default()).await
    }

    /// Runs a prompt with the caller's tools, permission callback, schema and completion check.
    ///
    /// # Errors
    /// Fails like [`Agentline::run`].
    pub async fn run_with(&self, request: RunRequest, options: RunOptions) -> Result<Run, Error> {
        self.run_as(self.agentline(), request, options).await
    }

    /// Runs a prompt for a caller whose environment, home or directory differs from the pool's own.
    ///
    /// # Errors
    /// Fails like [`Agentline::run`].
    pub async fn run_as(
        &self,
        agentline: &Agentline,
        request: RunRequest,
        options: RunOptions,
    ) -> Result<Run, Error> {
        let names = request.problem_names();
        let started = async { look_up(agentline, Some(self), request, options).await?.start().await };
        started.await.map_err(|error| error.with_problems(names))
    }
}

/// A run after its lookup in the cache.
pub(crate) enum LookedUpRun {
    /// The run is in the cache, or it could not start.
    Over(Box<Run>),
    New(Box<NewRun>),
}

/// A run that is not in the cache.
pub(crate) struct NewRun {
    agentline: Agentline,
    /// The pool whose agents serve the run; `None` for a process of its own.
    pool: Option<Pool>,
    planned: PlannedRun,
    options: RunOptions,
    /// Warnings about the settings.
    notices: Vec<Notice>,
    /// The run as it was resolved for the lookup.
    resolved: Option<Box<ResolvedStart>>,
    recorder: Option<Recorder>,
}

/// Plans a run, for a warm agent of the pool if one can serve it, and looks it up in the cache if it uses the cache.
///
/// # Errors
/// Fails if the request is invalid.
pub(crate) async fn look_up(
    agentline: &Agentline,
    pool: Option<&Pool>,
    mut request: RunRequest,
    options: RunOptions,
) -> Result<LookedUpRun, Error> {
    let notices = std::mem::take(&mut request.notices);
    let warm = pool.map(|_| plan_warm(agentline, &request)).transpose()?.flatten();
    let pool = pool.filter(|_| warm.is_some()).cloned();
    let planned = match warm {
        Some(planned) => planned,
        None => {
            request.needs_live |= options.needs_live();
            agentline.inner().plan(request)?
        }
    };
    let agentline = agentline.clone();
    let mut new = NewRun { agentline, pool, planned, options, notices, resolved: None, recorder: None };
    if new.planned.plan.request.cache.on
        && let Some(run) = new.look_up().await?
    {
        return Ok(LookedUpRun::Over(Box::new(run.with_notices(new.notices))));
    }
    Ok(LookedUpRun::New(Box::new(new)))
}

impl LookedUpRun {
    /// Starts the run, unless it has already ended.
    async fn start(self) -> Result<Run, Error> {
        match self {
            Self::Over(run) => Ok(*run),
            Self::New(new) => {
                let retries = Retries::of(new.request());
                retry::start(new, retries, OpenGate, ()).await
            }
        }
    }
}

impl NewRun {
    /// Returns the request of the next attempt.
    pub(crate) fn request(&self) -> &RunRequest {
        &self.planned.plan.request
    }

    /// Starts an attempt.
    ///
    /// # Errors
    /// Fails if the request is invalid or the run cannot be prepared.
    async fn start(&mut self) -> Result<Run, Error> {
        let start = self.pending_start();
        let run = match &self.pool {
            Some(pool) => pool.start(&self.agentline, start).await?,
            None => self.agentline.start_cold(start).await?,
        };
        let run = match &self.recorder {
            Some(recorder) => recorder.keep(run),
            None => run,
        };
        Ok(run.with_notices(self.notices.clone()))
    }

    /// Sets the model of further attempts, if it is another one, and their limits.
    fn prepare_attempt(&mut self, model: Option<String>, limits: Limits) {
        let request = &mut self.planned.plan.request;
        request.limits = limits;
        if let Some(model) = model {
            request.model = Some(model);
            // The key of the run has the original model.
            self.recorder =
                self.recorder.take().map(|recorder| recorder.unstored("a fallback model answered"));
        }
    }

    /// Uses this pool for further attempts, if the run is served by warm agents.
    fn set_pool(&mut self, pool: Pool) {
        if self.pool.is_some() {
            self.pool = Some(pool);
        }
    }

    fn pending_start(&mut self) -> PendingStart {
        match self.resolved.take() {
            Some(resolved) => PendingStart::Resolved(resolved),
            None => PendingStart::Planned(Box::new((self.planned.clone(), self.options.clone()))),
        }
    }

    /// Resolves the run and looks it up. Returns it if it is stored or cannot start.
    async fn look_up(&mut self) -> Result<Option<Run>, Error> {
        let start = self.pending_start();
        let (time, late) = start.limit();
        let resolved = match self.agentline.blocking_within(time, move |inner| start.resolve(inner)).await {
            None => return Ok(Some(Run::over(late))),
            Some(Err(StartFailure::Over(outcome))) => return Ok(Some(Run::over(*outcome))),
            Some(Err(StartFailure::Error(error))) => return Err(error),
            Some(Ok(resolved)) => resolved,
        };
        let agentline = self.agentline.clone();
        let lookup = move |_: &Inner| (cache::look_up(&agentline, &resolved), resolved);
        match self.agentline.blocking_within(time, lookup).await {
            Some((Lookup::Hit(run), _)) => return Ok(Some(*run)),
            Some((Lookup::Miss(recorder), resolved)) => {
                (self.recorder, self.resolved) = (Some(recorder), Some(resolved));
            }
            // The run starts without the cache if its workspace cannot be read in time.
            None => {}
        }
        Ok(None)
    }
}
