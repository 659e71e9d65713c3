//! Takes one run through the pool: waits for its slot, forwards its events, and retries if the agent dies before its
//! first output.

use crate::pool::{
    key::PoolRequest,
    state::{Allocation, CLOSED, PoolState, Slot, SlotUser, StartPermit},
};
use crate::{
    agentline::{Agentline, Inner},
    error::Error,
    resolve::{not_ready_in_time, not_started, spec::ProcessSpec, stopped_before},
    run::{
        active_run::CompletionTiming,
        channel::{ForwardedRun, RunItem, RunReceiver, RunSender, forward},
        live_process::ProcessHandle,
        prepare::PreparedRun,
        services::ServedTools,
        session_follower::AgentHome,
    },
};
use agentline_core::{Event, Failure, FailureKind, Millis, Outcome, Record, SessionTarget, Signal, Verdict};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

/// The maximum number of attempts of a run.
const TRIES: u32 = 2;

/// A run that has requested its slot.
pub(super) struct PendingRun {
    pub(super) pool_request: Arc<PoolRequest>,
    /// The allocation that the run received without waiting.
    pub(super) allocation: Option<ImmediateAllocation>,
}

/// A slot with a prepared run, or the permission to start a process.
pub(super) enum ImmediateAllocation {
    Slot(Slot, Result<Box<PreparedRun>, Error>),
    Start(StartPermit, Box<ProcessSpec>),
}

impl PendingRun {
    /// Requests a slot without waiting for one. Blocks.
    pub(super) fn at_once(
        inner: &Inner,
        pool: &Arc<PoolState>,
        pool_request: Arc<PoolRequest>,
        process: ProcessSpec,
    ) -> Self {
        let allocation = match pool.try_acquire_slot(&pool_request, SlotUser::Run) {
            Some(Allocation::Slot(slot)) => {
                let prepared_run =
                    prepared_run(inner, pool, &pool_request, &slot.live.agent_home).map(Box::new);
                Some(ImmediateAllocation::Slot(slot, prepared_run))
            }
            Some(Allocation::Start(permit)) => Some(ImmediateAllocation::Start(permit, Box::new(process))),
            // The later request reports the reason. The run may wait long, so it does not keep its process part.
            Some(Allocation::Refused(_)) | None => None,
        };
        Self { pool_request, allocation }
    }
}

/// Prepares the run for a process with this agent home. Blocks.
fn prepared_run(
    inner: &Inner,
    pool: &PoolState,
    pool_request: &PoolRequest,
    agent_home: &Arc<AgentHome>,
) -> Result<PreparedRun, Error> {
    let PoolRequest { run, options, .. } = pool_request;
    let served = inner.serve(&*run.agent, &run.session.cwd, options, &run.session.servers)?;
    inner.prepared_run(run, agent_home, options, ServedTools::Now(served), &pool.active_runs)
}

/// The task of one run in the pool.
pub(super) struct RunTask {
    pub(super) agentline: Agentline,
    pub(super) pool: Arc<PoolState>,
    pub(super) pool_request: Arc<PoolRequest>,
    pub(super) allocation: Option<ImmediateAllocation>,
    pub(super) channel: RunSender,
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
        let started_at = Instant::now();
        let mut attempt = 1;
        let outcome = loop {
            let slot = match self.allocation.take() {
                Some(ImmediateAllocation::Slot(slot, prepared_run)) => Ok((slot, Some(prepared_run))),
                Some(ImmediateAllocation::Start(permit, process)) => {
                    self.slot_in_time(Some((permit, process)), started_at).await
                }
                None => self.slot_in_time(None, started_at).await,
            };
            let attempt_end = match slot {
                Err(outcome) => break outcome,
                // A new session may not enforce rules that were changed on disk, so the process is replaced.
                Ok((slot, _)) if !slot.live.is_intact() => {
                    slot.retire();
                    continue;
                }
                Ok((slot, prepared_run)) => self.run_to_end(slot, prepared_run, started_at).await,
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

    /// Waits for a slot until the run is cancelled or out of time. The run has yet to be prepared then.
    async fn slot_in_time(
        &self,
        permitted: Option<(StartPermit, Box<ProcessSpec>)>,
        started_at: Instant,
    ) -> Result<(Slot, Option<Result<Box<PreparedRun>, Error>>), Box<Outcome>> {
        tokio::select! {
            slot = self.slot(permitted) => slot.map(|slot| (slot, None)),
            signal = self.stopped() => Err(Box::new(self.cancelled(signal))),
            () = tokio::time::sleep(self.patience(started_at)) => Err(Box::new(self.waited_too_long())),
        }
    }

    /// Waits for a slot on a process, and starts a process if necessary.
    async fn slot(&self, permitted: Option<(StartPermit, Box<ProcessSpec>)>) -> Result<Slot, Box<Outcome>> {
        if let Some((permit, process)) = permitted {
            return start(&self.agentline, permit, &self.pool_request, Some(process)).await;
        }
        match self.pool.slot(&self.pool_request, SlotUser::Run).await {
            Allocation::Slot(slot) => Ok(slot),
            Allocation::Start(permit) => start(&self.agentline, permit, &self.pool_request, None).await,
            Allocation::Refused(reason) => Err(Box::new(refused(&self.pool_request, reason))),
        }
    }

    /// Runs one attempt on one process.
    async fn run_to_end(
        &mut self,
        mut slot: Slot,
        prepared: Option<Result<Box<PreparedRun>, Error>>,
        started_at: Instant,
    ) -> AttemptEnd {
        let prepared = match prepared {
            Some(prepared) => prepared,
            None => {
                let (pool_request, home) =
                    (Arc::clone(&self.pool_request), Arc::clone(&slot.live.agent_home));
                let pool = Arc::clone(&self.pool);
                let work =
                    move |inner: &Inner| prepared_run(inner, &pool, &pool_request, &home).map(Box::new);
                match self.agentline.blocking_within(self.patience(started_at), work).await {
                    Some(prepared) => prepared,
                    None => {
                        let request = &self.pool_request.run.plan.request;
                        return AttemptEnd::Over(Box::new(not_ready_in_time(request)));
                    }
                }
            }
        };
        let mut prepared_run = match prepared {
            Ok(prepared_run) => *prepared_run,
            Err(error) => {
                let outcome = self.agentline.inner().not_prepared(&self.pool_request.run.turn.info, &error);
                return AttemptEnd::Over(Box::new(outcome));
            }
        };
        if let Some(session) = slot.open_session.take() {
            prepared_run.spec.session = SessionTarget::Open(session);
        }
        // The time limit of a run includes its wait, and secrets may have changed since the process was started.
        let waited = Millis::try_from(started_at.elapsed().as_millis()).unwrap_or(Millis::MAX);
        prepared_run.spec.timeouts.spent = waited;
        prepared_run.secrets.clone_from(&self.pool_request.secrets);
        // Each run has its own session, which ends with it.
        prepared_run.spec.ends_session = true;
        self.pool.count_run();
        let mut run = slot.live.submit(prepared_run, CompletionTiming::AtOnce);
        let attempt_end = self.forward(&mut run, &mut slot).await;
        if let AttemptEnd::Unheard(_) = attempt_end {
            slot.retire();
        }
        attempt_end
    }

    /// Forwards the events of an attempt to the caller.
    async fn forward(&mut self, run: &mut RunReceiver, slot: &mut Slot) -> AttemptEnd {
        let mut attempt = Attempt {
            agentline: &self.agentline,
            pool: &self.pool,
            pool_request: &self.pool_request,
            run,
            slot,
            caller: &self.channel,
            buffered: Vec::new(),
            has_output: false,
            is_stopped: &mut self.is_stopped,
        };
        let outcome = forward(&mut attempt, &self.channel).await;
        let outcome = outcome.unwrap_or_else(|| {
            let lost = Failure::new(
                FailureKind::Crashed,
                "internal error: the agent's task panicked or its runtime shut down",
            );
            Box::new(Outcome::not_started(&attempt.pool_request.run.turn.info, Verdict::Failed, lost))
        });
        if !attempt.has_output {
            if !*attempt.is_stopped && lost_early(&outcome) {
                return AttemptEnd::Unheard(outcome);
            }
            attempt.replace_used_process();
        }
        if !attempt.buffered.is_empty() {
            self.channel.send(attempt.buffered);
        }
        AttemptEnd::Over(outcome)
    }

    /// Waits until the caller cancels the run.
    async fn stopped(&self) -> Signal {
        self.channel.stopped().await
    }

    /// Returns how long the run may still wait for a slot.
    fn patience(&self, started_at: Instant) -> Duration {
        let request = &self.pool_request.run.plan.request;
        let left = request.timeout.saturating_sub(started_at.elapsed());
        request.deadline.map_or(left, |when| left.min(crate::resolve::time_until(when)))
    }

    fn not_started(&self, verdict: Verdict, failure: Failure) -> Outcome {
        Outcome::not_started(&self.pool_request.run.turn.info, verdict, failure)
    }

    fn cancelled(&self, signal: Signal) -> Outcome {
        stopped_before(&self.pool_request.run.turn.info, signal)
    }

    fn waited_too_long(&self) -> Outcome {
        let failure = Failure::new(FailureKind::TimeoutRun, "timed out waiting for a pool slot");
        self.not_started(Verdict::TimedOut, failure.hint("raise `--timeout`, or the number of processes of the pool (`agentline pool start --processes`, `PoolOptions::max_processes`)"))
    }
}

/// An attempt at a run. Its events before the agent's first output are held back, so that the run can be retried.
struct Attempt<'a> {
    agentline: &'a Agentline,
    pool: &'a Arc<PoolState>,
    pool_request: &'a Arc<PoolRequest>,
    run: &'a mut RunReceiver,
    slot: &'a mut Slot,
    caller: &'a RunSender,
    buffered: Vec<Record>,
    has_output: bool,
    is_stopped: &'a mut bool,
}

impl Attempt<'_> {
    /// Starts the process for the next run, if the process of this one cannot have another session.
    fn replace_used_process(&self) {
        let request = self.pool_request;
        if request.max_sessions != Some(1)
            || request.run.session.temporary.is_some()
            || !self.pool.lacks_spare(request)
        {
            return;
        }
        let (agentline, pool, request) = (self.agentline.clone(), Arc::clone(self.pool), Arc::clone(request));
        tokio::spawn(async move {
            if let Some(allocation) = pool.try_acquire_slot(&request, SlotUser::Opening) {
                open_spare(&agentline, allocation, &request).await;
            }
        });
    }
}

impl ForwardedRun for Attempt<'_> {
    async fn next(&mut self) -> RunItem {
        self.run.next().await
    }

    async fn cancel(&mut self, signal: Signal) {
        *self.is_stopped = true;
        self.run.stopper().stop(signal);
    }

    fn pass(&mut self, mut batch: Vec<Record>) -> Vec<Record> {
        let has_opened = |record: &Record| matches!(&record.event, Event::Started(started) if started.session_id.is_some());
        if batch.iter().any(has_opened) {
            self.slot.opened();
        }
        if !self.has_output && batch.iter().any(|record| record.event.rules_out_retry()) {
            self.has_output = true;
            // Earlier, the start would slow down the agent, which has to prepare its first request.
            self.replace_used_process();
        }
        self.buffered.append(&mut batch);
        if !self.has_output {
            return Vec::new();
        }
        if self.caller.needs_outcome_only() && self.slot.is_opened() {
            self.run.request_outcome_only();
        }
        std::mem::take(&mut self.buffered)
    }
}

/// Starts a process for the pool. Without a process part, the launch is built again: each process has a private
/// directory of its own, and the user's files may have changed while the run waited.
async fn start(
    agentline: &Agentline,
    permit: StartPermit,
    pool_request: &Arc<PoolRequest>,
    process: Option<Box<ProcessSpec>>,
) -> Result<Slot, Box<Outcome>> {
    let started_at = Instant::now();
    let pool_request = Arc::clone(pool_request);
    let for_start = Arc::clone(&pool_request);
    let start = agentline.blocking(move |inner| {
        let run = &for_start.run;
        let process = process.map_or_else(|| inner.launch_again(run), |process| Ok(*process))?;
        inner.prepare_shared_process(run, process)
    });
    let start = start
        .await
        .map_err(|error| Box::new(agentline.inner().not_prepared(&pool_request.run.turn.info, &error)))?;
    let agent = Arc::clone(&start.agent);
    let mark = uuid::Uuid::new_v4().to_string();
    match ProcessHandle::start(agentline.inner(), start, &mark, started_at) {
        Ok(live) => {
            permit.started(live, &pool_request).ok_or_else(|| Box::new(refused(&pool_request, CLOSED)))
        }
        Err(error) => Err(Box::new(not_started(&pool_request.run.turn.info, &*agent, &error))),
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
    let batch_size = options.max_processes.saturating_mul(if pool_request.shares {
        options.concurrent_sessions
    } else {
        1
    });
    // A process is replaced after its maximum number of sessions, together with its unused ones.
    let most = pool_request.max_sessions.unwrap_or(options.max_sessions);
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    let sessions = sessions.min(options.max_processes.saturating_mul(most));
    let mut left = sessions.saturating_sub(pool.count_open_sessions(pool_request));
    let mut ready = sessions - left;
    while left > 0 {
        let batch = left.min(batch_size);
        left -= batch;
        let mut opening = tokio::task::JoinSet::new();
        for _ in 0..batch {
            let (agentline, pool, pool_request) =
                (agentline.clone(), Arc::clone(pool), Arc::clone(pool_request));
            opening.spawn(async move {
                let allocation = pool.slot(&pool_request, SlotUser::Opening).await;
                open_spare(&agentline, allocation, &pool_request).await
            });
        }
        // All slots are held until every session is open, so that the sessions are distributed like the runs will be.
        let slots = opening.join_all().await;
        ready += slots.iter().flatten().count();
    }
    ready
}

/// Opens a session for a later run.
async fn open_spare(
    agentline: &Agentline,
    allocation: Allocation,
    pool_request: &Arc<PoolRequest>,
) -> Option<Slot> {
    let mut slot = match allocation {
        Allocation::Slot(slot) => slot,
        Allocation::Start(permit) => start(agentline, permit, pool_request, None).await.ok()?,
        Allocation::Refused(_) => return None,
    };
    let (for_run, home) = (Arc::clone(pool_request), Arc::clone(&slot.live.agent_home));
    let opening = agentline.blocking(move |inner| inner.opening_run(&for_run.run, &home));
    let mut opening = opening.await;
    let is_single = pool_request.max_sessions == Some(1);
    if is_single {
        // The run that uses the session brings its own servers.
        opening.spec.servers.clear();
    }
    let mut run = slot.live.submit(opening, CompletionTiming::AtOnce);
    let outcome = loop {
        if let RunItem::Over(outcome) = run.next().await {
            break outcome;
        }
    };
    let session = outcome.filter(|outcome| outcome.error.is_none()).and_then(|outcome| outcome.session_id);
    let Some(session) = session else {
        slot.retire();
        return None;
    };
    // A session that no other run could use is not kept.
    if is_single {
        slot.keep_unused();
    } else if let Some(key) = pool_request.session {
        slot.keep_session(key, session);
    }
    slot.opened();
    Some(slot)
}

/// Returns the outcome of a run that the pool refused.
fn refused(pool_request: &PoolRequest, reason: &str) -> Outcome {
    Outcome::not_started(
        &pool_request.run.turn.info,
        Verdict::Failed,
        Failure::new(FailureKind::Spawn, reason),
    )
}

/// Returns whether the agent was lost, rather than the run refused.
fn lost_early(outcome: &Outcome) -> bool {
    outcome.error.as_ref().is_some_and(|error| {
        matches!(error.kind, FailureKind::Crashed | FailureKind::NoResult | FailureKind::TimeoutStartup)
    }) && outcome.files.is_empty()
}
