//! The entry point of the library: describes the caller's machine and starts runs.

use crate::{
    cache::{self, CacheMemory, Lookup},
    error::Error,
    process::{Isolation, Supervisor},
    resolve::{
        detect::{Detection, HostEnv},
        not_ready_in_time, not_started, preparation_time, stopped_before,
    },
    run::{
        Launched, Run,
        active_run::CompletionTiming,
        channel::{Wakeup, link},
        live_process::ProcessHandle,
        options::RunOptions,
        typed::{Typed, TypedError, run_typed},
    },
};
use agentline_core::{
    Agent, Millis, PriceTable, Problem, Problems, Redactor, RunRequest, agents::AgentRegistry,
};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

/// Starts runs of agents on this machine. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Agentline {
    inner: Arc<Inner>,
}

#[derive(Clone, Debug)]
pub(crate) struct Inner {
    pub(crate) here: HostEnv,
    pub(crate) programs: BTreeMap<String, PathBuf>,
    pub(crate) registry: AgentRegistry,
    pub(crate) prices: Arc<PriceTable>,
    pub(crate) supervisor: Supervisor,
    pub(crate) isolation: Isolation,
    /// Caches that are shared between runs.
    pub(crate) memory: Arc<CacheMemory>,
}

impl Agentline {
    /// Creates an instance from the environment, home and current directory of this process.
    ///
    /// # Errors
    /// Fails if there is no home directory or the current directory cannot be read.
    pub fn from_env() -> Result<Self, Error> {
        let env: BTreeMap<String, String> = std::env::vars_os()
            .filter_map(|(k, v)| Some((k.into_string().ok()?, v.into_string().ok()?)))
            .collect();
        let home = env.get("HOME").or_else(|| env.get("USERPROFILE")).filter(|h| !h.is_empty()).cloned();
        let home = home.ok_or_else(|| {
            let problem = Problem::new("HOME", "not set, so your sign-in and settings cannot be found");
            Error::Usage(Problems::from(problem.hint("set HOME to a writable directory")))
        })?;
        let cwd = std::env::current_dir().map_err(Error::io("read", "the current directory"))?;
        Ok(Self::new(HostEnv::new(env, home, cwd)))
    }

    /// Creates an instance for an explicit environment, home and working directory. Reads no process state.
    #[must_use]
    pub fn new(here: HostEnv) -> Self {
        let inner = Inner {
            here,
            programs: BTreeMap::new(),
            registry: AgentRegistry::default(),
            prices: Arc::new(PriceTable::built_in()),
            supervisor: Supervisor::default(),
            isolation: Isolation::default(),
            memory: Arc::default(),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Uses this program for an agent instead of searching for one.
    #[must_use]
    pub fn program(mut self, agent: impl Into<String>, path: impl Into<PathBuf>) -> Self {
        Arc::make_mut(&mut self.inner).programs.insert(agent.into(), path.into());
        self
    }

    /// Sets the price table for the cost of runs.
    #[must_use]
    pub fn prices(mut self, prices: PriceTable) -> Self {
        Arc::make_mut(&mut self.inner).prices = Arc::new(prices);
        self
    }

    /// Sets the supervisor that cleans up if this program is killed.
    #[must_use]
    pub fn supervisor(mut self, supervisor: Supervisor) -> Self {
        Arc::make_mut(&mut self.inner).supervisor = supervisor;
        self
    }

    /// Sets whether agents get a pid namespace of their own; [`Isolation::Auto`] by default.
    #[must_use]
    pub fn isolation(mut self, isolation: Isolation) -> Self {
        Arc::make_mut(&mut self.inner).isolation = isolation;
        self
    }

    /// Sets the agents that are available: the built-in ones and those of the configuration.
    #[must_use]
    pub fn agents(mut self, registry: AgentRegistry) -> Self {
        Arc::make_mut(&mut self.inner).registry = registry;
        self
    }

    /// Returns the available agents.
    #[must_use]
    pub fn registry(&self) -> &AgentRegistry {
        &self.inner.registry
    }

    /// Returns the environment and directories of the caller.
    #[must_use]
    pub fn here(&self) -> &HostEnv {
        &self.inner.here
    }

    /// Returns the program configured for an agent.
    pub(crate) fn configured(&self, agent: &str) -> Option<PathBuf> {
        self.inner.programs.get(agent).cloned()
    }

    /// Searches for an agent's program. Blocks for a few milliseconds.
    #[must_use]
    pub fn detect(&self, agent: &dyn Agent) -> Detection {
        self.inner.detect(agent)
    }

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
    pub async fn run_with(&self, mut request: RunRequest, options: RunOptions) -> Result<Run, Error> {
        request.needs_live |= options.needs_live();
        let notices = std::mem::take(&mut request.notices);
        let run = match self.look_up(&request, &options).await {
            Some(Lookup::Hit(run)) => *run,
            Some(Lookup::Miss(recorder)) => recorder.keep(self.make(request, options).await?),
            Some(Lookup::Unclear) | None => self.make(request, options).await?,
        };
        Ok(run.with_notices(notices))
    }

    /// Looks up the run in the cache; `None` if the request does not use the cache.
    pub(crate) async fn look_up(&self, request: &RunRequest, options: &RunOptions) -> Option<Lookup> {
        if !request.cache.on {
            return None;
        }
        let mut request = request.clone();
        request.needs_live |= options.needs_live();
        Some(cache::look(self, request, options).await)
    }

    /// Starts the run without consulting the cache.
    pub(crate) async fn make(&self, mut request: RunRequest, options: RunOptions) -> Result<Run, Error> {
        let begun = Instant::now();
        request.needs_live |= options.needs_live();
        let asked = request.clone();
        let prepared =
            self.blocking_within(preparation_time(&asked), move |inner| inner.make_ready(request, &options));
        let mut ready = match prepared.await {
            None => return Ok(Run::over(not_ready_in_time(&asked))),
            Some(ready) => match ready? {
                Ok(ready) => *ready,
                Err(outcome) => return Ok(Run::over(*outcome)),
            },
        };
        ready.prepared_run.order.clocks.spent =
            Millis::try_from(begun.elapsed().as_millis()).unwrap_or(Millis::MAX);
        let wait = match ready.must_wait() {
            Ok(wait) => wait,
            Err(outcome) => return Ok(Run::over(*outcome)),
        };
        let (who, agent) = (ready.prepared_run.order.who.clone(), ready.start.agent);
        if wait.is_zero() {
            return Ok(match ProcessHandle::start(&self.inner, ready.start, &who.run_id, begun) {
                // The handle is dropped after this call, so no other run can share the process.
                Ok(live) => live.run(ready.prepared_run, CompletionTiming::WhenGone),
                Err(error) => Run::over(not_started(&who, agent, &error)),
            });
        }
        // Return the run before the wait is over, so that the caller can cancel it.
        let wakeup = Wakeup::default();
        let (driven, held) = link(Wakeup::clone(&wakeup));
        let redactor = Redactor::new(&ready.start.launch.secrets);
        let launched = Launched::of(&ready.start.launch, &redactor);
        let run = Run::new(who.run_id.clone(), held, launched).redacted(redactor);
        let inner = Arc::clone(&self.inner);
        tokio::spawn(async move {
            let stopped = tokio::select! {
                () = tokio::time::sleep(wait) => None,
                signal = driven.stopped(&wakeup) => Some(signal),
            };
            if let Some(signal) = stopped {
                drop(ready);
                return driven.finish(stopped_before(&who, signal));
            }
            match ProcessHandle::start_by(wakeup, &inner, ready.start, &who.run_id, begun) {
                Ok(live) => live.take(ready.prepared_run.board(driven, CompletionTiming::WhenGone)),
                Err(error) => driven.finish(not_started(&who, agent, &error)),
            }
        });
        Ok(run)
    }

    /// Runs a prompt whose answer is a value of type `T`, and waits for the value.
    ///
    /// # Errors
    /// Fails if there is no such value. The error has the reason, and the outcome if there is one.
    pub async fn run_typed<T: DeserializeOwned + JsonSchema>(
        &self,
        request: RunRequest,
    ) -> Result<Typed<T>, TypedError> {
        self.run_typed_with(request, RunOptions::new()).await
    }

    /// Runs a prompt like [`run_typed`](Self::run_typed), with the caller's options.
    ///
    /// # Errors
    /// Fails like [`run_typed`](Self::run_typed).
    pub async fn run_typed_with<T: DeserializeOwned + JsonSchema>(
        &self,
        request: RunRequest,
        options: RunOptions,
    ) -> Result<Typed<T>, TypedError> {
        run_typed(|schema| async move {
            Ok(self.run_with(request, options.schema(schema)).await?.outcome().await)
        })
        .await
    }

    pub(crate) fn inner(&self) -> &Inner {
        &self.inner
    }

    /// Runs blocking work on a blocking thread and waits at most `limit` for it. Work that takes longer is abandoned on
    /// its thread.
    pub(crate) async fn blocking_within<T: Send + 'static>(
        &self,
        limit: Duration,
        work: impl FnOnce(&Inner) -> T + Send + 'static,
    ) -> Option<T> {
        tokio::time::timeout(limit, self.blocking(work)).await.ok()
    }

    /// Runs blocking work on a blocking thread and waits for it.
    pub(crate) async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Inner) -> T + Send + 'static,
    ) -> T {
        let inner = Arc::clone(&self.inner);
        match tokio::task::spawn_blocking(move || work(&inner)).await {
            Ok(done) => done,
            Err(panic) => std::panic::resume_unwind(panic.into_panic()),
        }
    }
}
