//! Retries a run: starts further attempts, after a wait or with another model, and joins all attempts to one run.
//!
//! An attempt is a complete run of its own. Only the caller's handle is shared: it has the events of all attempts with a
//! `retry` event between two of them, and the outcome of the last attempt with the usage and files of all.

mod attempts;
mod decision;

#[cfg(feature = "host")]
pub(crate) use decision::MAX_WAIT;
pub(crate) use decision::Retries;
#[cfg(all(feature = "host", unix))]
pub(crate) use decision::max_attempts;
pub(crate) use decision::{LONGEST_WAIT, backoff};

use crate::{
    api::NewRun,
    error::Error,
    pool::Pool,
    run::{
        Run,
        channel::{ForwardedRun, RunItem, RunReceiver, RunSender, forward},
    },
    trace,
};
use agentline_core::{
    Event, Failure, FailureKind, Millis, Notice, Origin, Outcome, Record, RunError, Signal, Verdict,
};
use attempts::EarlierAttempts;
use decision::NextAttempt;
use std::{
    future::Future,
    time::{Duration, Instant},
};

/// Decides when an attempt may start, and learns how it ended.
pub(crate) trait AttemptGate: Send + Sync + 'static {
    /// Held while an attempt runs.
    type Permit: Send + 'static;

    /// Whether every outcome must be reported, even if the run is never retried.
    const REPORTS_ALL: bool;

    /// Waits until the next attempt may start.
    fn admit(&self) -> impl Future<Output = Self::Permit> + Send;

    /// Reports the outcome of an attempt, and how many retries of its model preceded it. Returns how long to wait before
    /// the next attempt, if this gate decides that.
    fn ended(&self, outcome: &Outcome, retries: u32) -> Option<Duration>;

    /// Returns the pool for the next attempt, if it may have been replaced.
    fn pool(&self) -> Option<Pool>;
}

/// Admits every attempt at once.
pub(crate) struct OpenGate;

impl AttemptGate for OpenGate {
    type Permit = ();

    const REPORTS_ALL: bool = false;

    async fn admit(&self) {}

    fn ended(&self, _: &Outcome, _: u32) -> Option<Duration> {
        None
    }

    fn pool(&self) -> Option<Pool> {
        None
    }
}

/// Starts a run with its first attempt. Must be called inside a runtime.
///
/// # Errors
/// Fails if the request is invalid or the run cannot be prepared.
pub(crate) async fn start<G: AttemptGate>(
    mut new: Box<NewRun>,
    retries: Retries,
    gate: G,
    permit: G::Permit,
) -> Result<Run, Error> {
    let started_at = Instant::now();
    if let Some(pool) = gate.pool() {
        new.set_pool(pool);
    }
    let run = new.start().await?;
    if retries.is_off() && !G::REPORTS_ALL {
        return Ok(run);
    }
    let run_id = run.id().to_owned();
    Ok(run.forwarded(move |from, to| {
        let task = RetryTask { new, retries, gate, run_id, started_at, earlier: EarlierAttempts::default() };
        tokio::spawn(task.run(from, to, permit));
    }))
}

/// The task of a run that may have several attempts.
struct RetryTask<G> {
    new: Box<NewRun>,
    retries: Retries,
    gate: G,
    /// The id of the run, which is that of its first attempt.
    run_id: String,
    started_at: Instant,
    earlier: EarlierAttempts,
}

impl<G: AttemptGate> RetryTask<G> {
    async fn run(mut self, first: RunReceiver, to: RunSender, permit: G::Permit) {
        let (mut from, mut permit) = (first, permit);
        let mut position = Position::default();
        loop {
            let mut attempt =
                Attempt { from, to: &to, position, run_id: &self.run_id, earlier: &self.earlier };
            let outcome = forward(&mut attempt, &to).await;
            position = attempt.position;
            // An attempt whose task failed has no outcome; dropping `to` reports that to the caller.
            let Some(mut outcome) = outcome else { return };
            let wait = self.gate.ended(&outcome, self.retries.of_model());
            drop(permit);
            self.earlier.join(&mut outcome, &self.run_id, position.start);
            let Some(next) = self.retries.next(&outcome, wait) else { return to.finish(*outcome) };
            // Limits hold for all attempts together.
            let Some(limits) = self.earlier.remaining(&self.new.request().limits, &outcome) else {
                return to.finish(*outcome);
            };
            let event = next.event();
            trace::retried(&self.run_id, &event);
            to.send(vec![position.record(self.elapsed(), event)]);
            let admitted = tokio::select! {
                permit = self.admitted(&next) => Ok(permit),
                signal = to.stopped() => Err(signal),
            };
            permit = match admitted {
                Ok(permit) => permit,
                Err(signal) => return to.finish(cancelled(*outcome, signal, &next)),
            };
            if let Some(pool) = self.gate.pool() {
                self.new.set_pool(pool);
            }
            self.new.prepare_attempt(next.model.clone(), limits);
            position.start = self.elapsed();
            let started = self.new.start().await;
            self.earlier.add(*outcome);
            let run = match started {
                Ok(run) => run,
                Err(error) => {
                    if let Some(outcome) = self.earlier.into_last(not_retried(&error)) {
                        to.finish(outcome);
                    }
                    return;
                }
            };
            from = match run.into_receiver() {
                Ok(receiver) => receiver,
                // The attempt was over before its agent started.
                Err(mut outcome) => {
                    self.earlier.join(&mut outcome, &self.run_id, position.start);
                    return to.finish(*outcome);
                }
            };
        }
    }

    /// Waits as long as the next attempt requires, and until it is admitted.
    async fn admitted(&self, next: &NextAttempt) -> G::Permit {
        tokio::time::sleep(next.wait).await;
        self.gate.admit().await
    }

    fn elapsed(&self) -> Millis {
        Millis::try_from(self.started_at.elapsed().as_millis()).unwrap_or(Millis::MAX)
    }
}

/// The position of the next event in the run.
#[derive(Clone, Copy, Default)]
struct Position {
    /// The number of events before the attempt.
    seq: u32,
    /// The number of the last event of the run.
    last: u32,
    /// The time of the last event.
    at: Millis,
    /// When the attempt started.
    start: Millis,
}

impl Position {
    /// Returns a record that follows the last one. The next attempt counts from here.
    fn record(&mut self, at: Millis, event: Event) -> Record {
        self.last += 1;
        self.seq = self.last;
        self.at = self.at.max(at);
        Record::new(self.last, self.at, Origin::Agentline, None, event)
    }

    /// Converts a record of the attempt to one of the run.
    fn shift(&mut self, record: &mut Record) {
        record.seq += self.seq;
        record.at_ms = self.at.max(record.at_ms + self.start);
        (self.last, self.at) = (record.seq, record.at_ms);
    }
}

/// One attempt on its way to the caller.
struct Attempt<'a> {
    from: RunReceiver,
    to: &'a RunSender,
    position: Position,
    run_id: &'a str,
    earlier: &'a EarlierAttempts,
}

impl ForwardedRun for Attempt<'_> {
    async fn next(&mut self) -> RunItem {
        self.from.next().await
    }

    async fn cancel(&mut self, signal: Signal) {
        self.from.stopper().stop(signal);
    }

    fn pass(&mut self, mut batch: Vec<Record>) -> Vec<Record> {
        if self.to.needs_outcome_only() {
            self.from.request_outcome_only();
        }
        for record in &mut batch {
            self.position.shift(record);
            match &mut record.event {
                Event::Started(started) => self.run_id.clone_into(&mut started.run_id),
                // The counts of a run never decrease.
                Event::Usage(usage) => self.earlier.add_to(usage),
                _ => {}
            }
        }
        batch
    }
}

/// Returns the outcome of a run that was cancelled between two attempts: that of the last attempt, with this verdict.
fn cancelled(mut outcome: Outcome, signal: Signal, next: &NextAttempt) -> Outcome {
    let message = format!(
        "cancelled by the caller ({}) before attempt {}; the last attempt failed: {}",
        signal.name(),
        next.number,
        next.reason
    );
    let failure = Failure::new(FailureKind::Cancelled, message);
    let stderr_tail = outcome.error.take().map(|error| error.stderr_tail).unwrap_or_default();
    outcome.verdict = Verdict::Cancelled;
    outcome.error = Some(RunError::new(failure, stderr_tail));
    outcome
}

fn not_retried(error: &Error) -> Notice {
    Notice::new("not_retried", format!("the run could not be retried: {error}"))
}
