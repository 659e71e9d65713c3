//! Takes one run through the pool: waits for its slot, forwards its events, and retries if the agent dies before its
//! first output.

use crate::pool::{
    key::PoolRequest,
    state::{Allocation, CLOSED, PoolState, Slot, SlotUser, StartPermit},
};
use crate::{
    agentline::{Agentline, Inner},
    error::Error,
    resolve::{not_ready_in_time, not_started, stopped_before},
    run::{
        active_run::CompletionTiming,
        channel::{RunItem, RunReceiver, RunSender, Wakeup},
        live_process::ProcessHandle,
        prepare::PreparedRun,
        services::ServedTools,
        session_follower::AgentHome,
    },
};
use agentline_core::{Event, Failure, FailureKind, Millis, Outcome, Record, SessionTarget, Verdict};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

/// The maximum number of attempts of a run.
const TRIES: u32 = 2;

/// A run that has requested its slot.
pub(super) struct PendingRun {
    pub(super) pool_request: Arc<PoolRequest>,
    /// What the run was given without waiting.
    pub(super) allocation: Option<ImmediateGrant>,
}

/// A slot with a prepared run, or the permission to start a process.
pub(super) enum ImmediateGrant {
    Slot(Slot, Result<Box<PreparedRun>, Error>),
    Start(StartPermit),
}

impl PendingRun {
    /// Requests a slot without waiting for one. Blocks.
    pub(super) fn at_once(inner: &Inner, pool: &Arc<PoolState>, pool_request: Arc<PoolRequest>) -> Self {
        let allocation = match pool.try_acquire_slot(&pool_request) {
            Some(Allocation::Slot(slot)) => {
                let prepared_run = prepared_run(inner, &pool_request, &slot.live.agent_home).map(Box::new);
                Some(ImmediateGrant::Slot(slot, prepared_run))
            }
            Some(Allocation::Start(permit)) => Some(ImmediateGrant::Start(permit)),
            // The later request reports the reason.
            Some(Allocation::Refused(_)) | None => None,
        };
        Self { pool_request, allocation }
    }
}

/// Prepares the run for a process with this agent home. Blocks.
fn prepared_run(
    inner: &Inner,
    pool_request: &PoolRequest,
    agent_home: &Arc<AgentHome>,
) -> Result<PreparedRun, Error> {
    let launch = &pool_request.template.launch;
    let served = inner.serve(&pool_request.resolved, &pool_request.options, &launch.servers)?;
    let mut prepared_run = inner.prepared_run(
        &pool_request.resolved,
        launch,
        agent_home,
        &pool_request.options,
        ServedTools::Now(served),
    )?;
    prepared_run.say(launch, &pool_request.prompt_text);
    Ok(prepared_run)
}

/// The task of one run in the pool.
pub(super) struct RunTask {
    pub(super) agentline: Agentline,
    pub(super) pool: Arc<PoolState>,
    pub(super) pool_request: Arc<PoolRequest>,
    pub(super) allocation: Option<ImmediateGrant>,
    pub(super) channel: RunSender,
    pub(super) wakeup: Wakeup,
    /// Whether the caller has cancelled the run.
    pub(super) is_stopped: bool,
}

/// The result of an attempt.
enum AttemptEnd {
    Over(Box<Outcome>),
    /// The agent was lost before its first output.
    Unheard(Box<Outcome>),
}

impl RunTask {
    pub(super) async fn run(mut self) {
        let begun = Instant::now();
        let mut attempt = 1;
        let outcome = loop {
            let slot = match self.allocation.take() {
                Some(ImmediateGrant::Slot(slot, prepared_run)) => Ok((slot, Some(prepared_run))),
                allocation => tokio::select! {
                    slot = self.slot(allocation) => slot.map(|slot| (slot, None)),
                    signal = self.stopped() => Err(Box::new(self.cancelled(signal))),
                    () = tokio::time::sleep(self.patience(begun)) => Err(Box::new(self.waited_too_long())),
                },
            };
            let attempt_end = match slot {
                Err(outcome) => break outcome,
                // A new session may not enforce rules that were changed on disk, so the process is replaced.
                Ok((slot, _)) if !slot.live.is_intact() => {
                    slot.retire();
                    continue;
                }
                Ok((slot, prepared_run)) => self.run_to_end(slot, prepared_run, begun).await,
            };
            match attempt_end {
                AttemptEnd::Over(outcome) => break outcome,
                AttemptEnd::Unheard(outcome) if attempt >= TRIES => break outcome,
                AttemptEnd::Unheard(_) => {
                    attempt += 1;
                    self.pool.count_retry();
                }
            }
        };
        self.channel.finish(*outcome);
    }

    /// Waits for a slot on a process, and starts a process if necessary.
    async fn slot(&self, allocation: Option<ImmediateGrant>) -> Result<Slot, Box<Outcome>> {
        let grant = match allocation {
            Some(ImmediateGrant::Start(permit)) => Allocation::Start(permit),
            Some(ImmediateGrant::Slot(slot, _)) => Allocation::Slot(slot),
            None => self.pool.slot(&self.pool_request, SlotUser::Run).await,
        };
        match grant {
            Allocation::Slot(slot) => Ok(slot),
            Allocation::Start(permit) => start(&self.agentline, permit, &self.pool_request).await,
            Allocation::Refused(why) => Err(Box::new(refused(&self.pool_request, why))),
        }
    }

    /// Runs one attempt on one process.
    async fn run_to_end(
        &mut self,
        mut slot: Slot,
        made: Option<Result<Box<PreparedRun>, Error>>,
        begun: Instant,
    ) -> AttemptEnd {
        let made = match made {
            Some(made) => made,
            None => {
                let (pool_request, home) =
                    (Arc::clone(&self.pool_request), Arc::clone(&slot.live.agent_home));
                let work = move |inner: &Inner| prepared_run(inner, &pool_request, &home).map(Box::new);
                match self.agentline.blocking_within(self.patience(begun), work).await {
                    Some(made) => made,
                    None => {
                        let request = &self.pool_request.resolved.plan.request;
                        return AttemptEnd::Over(Box::new(not_ready_in_time(request)));
                    }
                }
            }
        };
        let mut prepared_run = match made {
            Ok(prepared_run) => *prepared_run,
            Err(error) => {
                let outcome = self.agentline.inner().not_prepared(&self.pool_request.resolved.info, &error);
                return AttemptEnd::Over(Box::new(outcome));
            }
        };
        if let Some(session) = slot.open_session.take() {
            prepared_run.spec.session = SessionTarget::Open(session);
        }
        // The time limit of a run includes its wait, and secrets may have changed since the process was started.
        let waited = Millis::try_from(begun.elapsed().as_millis()).unwrap_or(Millis::MAX);
        prepared_run.spec.timeouts.run = prepared_run.spec.timeouts.run.saturating_sub(waited).max(1);
        prepared_run.secrets.clone_from(&self.pool_request.template.launch.secrets);
        // Each run has its own session, which ends with it.
        prepared_run.spec.ends_session = true;
        self.pool.count_run();
        let run = slot.live.board(prepared_run, CompletionTiming::AtOnce);
        let attempt_end = self.forward(&run, &mut slot).await;
        if let AttemptEnd::Unheard(_) = attempt_end {
            slot.retire();
        }
        attempt_end
    }

    /// Forwards events. Events before the agent's first output are held back, so that the run can be retried.
    async fn forward(&mut self, run: &RunReceiver, slot: &mut Slot) -> AttemptEnd {
        let mut held: Vec<Record> = Vec::new();
        let mut has_output = false;
        let stopper = run.stopper();
        loop {
            let item = tokio::select! {
                item = std::future::poll_fn(|cx| run.poll(cx)), if !self.channel.is_full() => item,
                signal = self.cancelled_or_ready() => {
                    if let Some(signal) = signal {
                        self.is_stopped = true;
                        stopper.stop(signal);
                    }
                    continue;
                }
            };
            match item {
                RunItem::Batch(mut batch) => {
                    if batch.iter().any(|record| matches!(record.event, Event::Started(_))) {
                        slot.opened();
                    }
                    has_output |= batch.iter().any(|record| rules_out_retry(&record.event));
                    if has_output {
                        held.append(&mut batch);
                        self.channel.send(std::mem::take(&mut held));
                        if self.channel.wants_outcome_only() && slot.is_opened() {
                            run.want_outcome_only();
                        }
                    } else {
                        held.append(&mut batch);
                    }
                }
                RunItem::Over(outcome) => {
                    let outcome = outcome.unwrap_or_else(|| {
                        let lost = Failure::new(
                            FailureKind::Crashed,
                            "internal error: the agent's task panicked or its runtime shut down",
                        );
                        Box::new(self.not_begun(Verdict::Failed, lost))
                    });
                    if !has_output && !self.is_stopped && lost_early(&outcome) {
                        return AttemptEnd::Unheard(outcome);
                    }
                    if !held.is_empty() {
                        self.channel.send(held);
                    }
                    return AttemptEnd::Over(outcome);
                }
            }
        }
    }

    /// Waits until the caller cancels the run.
    async fn stopped(&self) -> i32 {
        self.channel.stopped(&self.wakeup).await
    }

    /// Waits until the caller cancels the run or has made room for more events.
    async fn cancelled_or_ready(&self) -> Option<i32> {
        match self.channel.stop() {
            Some(signal) => Some(signal),
            None => {
                self.wakeup.notified().await;
                self.channel.stop()
            }
        }
    }

    /// Returns how long the run may still wait for a slot.
    fn patience(&self, begun: Instant) -> Duration {
        let request = &self.pool_request.resolved.plan.request;
        let left = request.timeout.saturating_sub(begun.elapsed());
        request.deadline.map_or(left, |when| left.min(crate::resolve::time_until(when)))
    }

    fn not_begun(&self, verdict: Verdict, failure: Failure) -> Outcome {
        Outcome::not_begun(&self.pool_request.resolved.info, verdict, failure)
    }

    fn cancelled(&self, signal: i32) -> Outcome {
        stopped_before(&self.pool_request.resolved.info, signal)
    }

    fn waited_too_long(&self) -> Outcome {
        let failure = Failure::new(FailureKind::TimeoutRun, "timed out waiting for a pool slot");
        self.not_begun(Verdict::TimedOut, failure.hint("raise `--timeout` or `pool.max_processes`"))
    }
}

/// Starts a process for the pool.
async fn start(
    agentline: &Agentline,
    permit: StartPermit,
    pool_request: &Arc<PoolRequest>,
) -> Result<Slot, Box<Outcome>> {
    let begun = Instant::now();
    let pool_request = Arc::clone(pool_request);
    let for_start = Arc::clone(&pool_request);
    let start = agentline.blocking(move |inner| inner.start_shared(&for_start.resolved)).await;
    let start = start
        .map_err(|error| Box::new(agentline.inner().not_prepared(&pool_request.resolved.info, &error)))?;
    let agent = Arc::clone(&start.agent);
    let mark = uuid::Uuid::new_v4().to_string();
    match ProcessHandle::start(agentline.inner(), start, &mark, begun) {
        Ok(live) => {
            permit.started(live, &pool_request).ok_or_else(|| Box::new(refused(&pool_request, CLOSED)))
        }
        Err(error) => Err(Box::new(not_started(&pool_request.resolved.info, &*agent, &error))),
    }
}

/// Opens sessions for later runs, on as many processes as those runs would need concurrently. Returns how many are
/// open.
pub(super) async fn prewarm(
    agentline: &Agentline,
    pool: &Arc<PoolState>,
    pool_request: &Arc<PoolRequest>,
    sessions: usize,
) -> usize {
    let options = &pool.options;
    let beside = options.max_processes.saturating_mul(if pool_request.template.shares {
        options.concurrent_sessions
    } else {
        1
    });
    // A process is replaced after its maximum number of sessions, together with its unused ones.
    let most = usize::try_from(options.max_sessions).unwrap_or(usize::MAX);
    let sessions = sessions.min(options.max_processes.saturating_mul(most));
    let mut left = sessions.saturating_sub(pool.count_open_sessions(pool_request));
    let mut ready = sessions - left;
    while left > 0 {
        let now = left.min(beside);
        left -= now;
        let mut opening = tokio::task::JoinSet::new();
        for _ in 0..now {
            let (agentline, pool, pool_request) =
                (agentline.clone(), Arc::clone(pool), Arc::clone(pool_request));
            opening.spawn(async move { open_spare(&agentline, &pool, &pool_request).await });
        }
        // All slots are held until every session is open, so that the sessions are distributed like the runs will be.
        let places = opening.join_all().await;
        ready += places.iter().flatten().count();
    }
    ready
}

/// Opens a session for a later run.
async fn open_spare(
    agentline: &Agentline,
    pool: &Arc<PoolState>,
    pool_request: &Arc<PoolRequest>,
) -> Option<Slot> {
    let mut slot = match pool.slot(pool_request, SlotUser::Opening).await {
        Allocation::Slot(slot) => slot,
        Allocation::Start(permit) => start(agentline, permit, pool_request).await.ok()?,
        Allocation::Refused(_) => return None,
    };
    let (for_run, home) = (Arc::clone(pool_request), Arc::clone(&slot.live.agent_home));
    let opening = agentline
        .blocking(move |inner| inner.opening_run(&for_run.resolved, &for_run.template.launch, &home));
    let run = slot.live.board(opening.await, CompletionTiming::AtOnce);
    let outcome = loop {
        if let RunItem::Over(outcome) = std::future::poll_fn(|cx| run.poll(cx)).await {
            break outcome;
        }
    };
    let session = outcome.filter(|outcome| outcome.error.is_none()).and_then(|outcome| outcome.session_id);
    let Some(session) = session else {
        slot.retire();
        return None;
    };
    // A session that no other run could use is not kept.
    if let Some(key) = pool_request.session {
        slot.keep_session(key, session);
    }
    slot.opened();
    Some(slot)
}

/// Returns the outcome of a run that the pool refused.
fn refused(pool_request: &PoolRequest, why: &str) -> Outcome {
    Outcome::not_begun(&pool_request.resolved.info, Verdict::Failed, Failure::new(FailureKind::Spawn, why))
}

/// Returns whether an event must reach the caller as soon as it arrives. After such an event the run cannot be retried.
fn rules_out_retry(event: &Event) -> bool {
    !matches!(
        event,
        Event::Started(_)
            | Event::Warning { .. }
            | Event::Unreadable { .. }
            | Event::Commands { .. }
            | Event::Mode { .. }
            | Event::ConfigOption { .. }
            | Event::SessionInfo { .. }
            | Event::Agent { .. }
    )
}

/// Returns whether the agent was lost, rather than the run refused.
fn lost_early(outcome: &Outcome) -> bool {
    outcome.error.as_ref().is_some_and(|error| {
        matches!(error.kind, FailureKind::Crashed | FailureKind::NoResult | FailureKind::TimeoutStartup)
    }) && outcome.files.is_empty()
}
