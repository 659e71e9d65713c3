//! Starts single runs: looks in the cache, prepares the process and hands out the run.

use crate::{
    agentline::Agentline,
    cache::{self, Lookup},
    error::Error,
    resolve::{StartFailure, not_ready_in_time, not_started, preparation_time, stopped_before},
    run::{
        Launched, Run,
        active_run::CompletionTiming,
        channel::{Wakeup, channel},
        live_process::ProcessHandle,
        options::RunOptions,
        typed::{Typed, TypedError, run_typed},
    },
};
use agentline_core::{Millis, Redactor, RunRequest};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
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
    pub async fn run_with(&self, mut request: RunRequest, options: RunOptions) -> Result<Run, Error> {
        request.needs_live |= options.needs_live();
        let notices = std::mem::take(&mut request.notices);
        let run = match self.look_up(&request, &options).await {
            Some(Lookup::Hit(run)) => *run,
            Some(Lookup::Miss(recorder)) => recorder.keep(self.start_uncached(request, options).await?),
            Some(Lookup::Unclear) | None => self.start_uncached(request, options).await?,
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
    pub(crate) async fn start_uncached(
        &self,
        mut request: RunRequest,
        options: RunOptions,
    ) -> Result<Run, Error> {
        let begun = Instant::now();
        request.needs_live |= options.needs_live();
        let asked = request.clone();
        let prepared =
            self.blocking_within(preparation_time(&asked), move |inner| inner.make_ready(request, &options));
        let mut ready = match prepared.await {
            None => return Ok(Run::over(not_ready_in_time(&asked))),
            Some(Ok(ready)) => *ready,
            Some(Err(StartFailure::Over(outcome))) => return Ok(Run::over(*outcome)),
            Some(Err(StartFailure::Error(error))) => return Err(error),
        };
        ready.prepared_run.spec.timeouts.spent =
            Millis::try_from(begun.elapsed().as_millis()).unwrap_or(Millis::MAX);
        let wait = match ready.must_wait() {
            Ok(wait) => wait,
            Err(outcome) => return Ok(Run::over(*outcome)),
        };
        let (info, agent) = (ready.prepared_run.spec.info.clone(), Arc::clone(&ready.start.agent));
        if wait.is_zero() {
            return Ok(match ProcessHandle::start(&self.inner, ready.start, &info.run_id, begun) {
                // The handle is dropped after this call, so no other run can share the process.
                Ok(live) => live.run(ready.prepared_run, CompletionTiming::WhenGone),
                Err(error) => Run::over(not_started(&info, &*agent, &error)),
            });
        }
        // Return the run before the wait is over, so that the caller can cancel it.
        let wakeup = Wakeup::default();
        let (sender, receiver) = channel(Wakeup::clone(&wakeup));
        let redactor = Redactor::new(&ready.start.launch.secrets);
        let launched = Launched::of(&ready.start.launch, &redactor);
        let run = Run::new(info.run_id.clone(), receiver, launched).redacted(redactor);
        let inner = Arc::clone(&self.inner);
        tokio::spawn(async move {
            let stopped = tokio::select! {
                () = tokio::time::sleep(wait) => None,
                signal = sender.stopped(&wakeup) => Some(signal),
            };
            if let Some(signal) = stopped {
                drop(ready);
                return sender.finish(stopped_before(&info, signal));
            }
            match ProcessHandle::start_by(wakeup, &inner, ready.start, &info.run_id, begun) {
                Ok(live) => live.take(ready.prepared_run.board(sender, CompletionTiming::WhenGone)),
                Err(error) => sender.finish(not_started(&info, &*agent, &error)),
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
}
