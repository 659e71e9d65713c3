//! A run in progress: a stream of events that ends with an outcome.

pub(crate) mod abandoned_session;
pub(crate) mod acp_process;
pub(crate) mod active_run;
pub(crate) mod channel;
pub(crate) mod client_port;
pub mod completion;
pub(crate) mod conversion;
pub(crate) mod driver;
pub(crate) mod live_process;
pub(crate) mod messages;
pub(crate) mod options;
pub(crate) mod permission_handler;
pub(crate) mod prepare;
pub(crate) mod requests;
pub(crate) mod resolved;
pub(crate) mod screening;
pub(crate) mod services;
pub(crate) mod session;
pub(crate) mod session_cleanup;
pub(crate) mod session_follower;
pub(crate) mod spawned_process;
pub(crate) mod tape_file;
pub(crate) mod tool_server;
#[cfg(feature = "schema")]
pub(crate) mod typed;
pub mod validate;
pub(crate) mod watchdog;

use crate::resolve::spec::ProcessSpec;
use crate::run::channel::{RunItem, RunReceiver, RunSender, Stopper, Wakeup, channel};
use agentline_core::{CacheStatus, Event, Millis, Notice, Outcome, Record, Redactor, Signal, Verdict};
use futures_core::Stream;
use serde::{Deserialize, Serialize};
use std::{
    pin::Pin,
    task::{Context, Poll},
};

/// A run in progress: a [`Stream`] of [`Record`]s, the last of which is [`Event::Outcome`].
///
/// Dropping it stops the run and everything that the agent started.
#[derive(Debug)]
pub struct Run {
    run_id: String,
    batch: std::vec::IntoIter<Record>,
    state: State,
    last: (u32, u64),
    launched: Option<Launched>,
    /// Redacts the secrets of the run; `None` if they are not known to this process.
    redactor: Option<Redactor>,
    /// When the run originally began, if it is replayed from the cache.
    began: Option<Millis>,
    /// Warnings about the settings, which are added to the outcome.
    notices: Vec<Notice>,
}

/// The command that was started, for display. Secrets are redacted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Launched {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// The names of the caller's variables that are hidden from the agent.
    pub withheld: Vec<String>,
}

impl Launched {
    /// Describes the command of a process.
    pub(crate) fn of(process: &ProcessSpec, redactor: &Redactor) -> Self {
        let command = process.command().map(|word| redactor.text(&word).into_owned()).collect();
        Self { command, withheld: process.withheld.clone() }
    }

    /// Describes the command of any process that serves the run, with a placeholder for the private directory.
    pub(crate) fn of_any(process: &ProcessSpec, redactor: &Redactor) -> Self {
        let command = process.command().map(|word| process.placeholders.text(word));
        let command = command.map(|word| redactor.text(&word).into_owned()).collect();
        Self { command, withheld: process.withheld.clone() }
    }
}

#[derive(Debug)]
enum State {
    Running(RunReceiver),
    /// The outcome, until it has been returned.
    Over(Option<Box<Outcome>>),
}

/// A handle that stops a run from elsewhere.
#[derive(Clone, Debug)]
pub struct Canceller {
    stopper: Option<Stopper>,
}

impl Canceller {
    /// Stops the run like a keyboard interrupt. No-op on a finished run.
    pub fn cancel(&self) {
        self.cancel_with(Signal::Interrupt);
    }

    /// Stops the run with this signal, which its outcome reports. No-op on a finished run.
    pub fn cancel_with(&self, signal: Signal) {
        if let Some(stopper) = &self.stopper {
            stopper.stop(signal);
        }
    }

    /// Waits until the run is over, whether or not its events are read, and returns its verdict, or `None` if it is not
    /// known.
    pub async fn over(&self) -> Option<Verdict> {
        match &self.stopper {
            Some(stopper) => stopper.over().await,
            None => None,
        }
    }
}

impl Run {
    pub(crate) fn new(run_id: String, receiver: RunReceiver, launched: Launched) -> Self {
        let state = State::Running(receiver);
        Self {
            run_id,
            batch: Vec::new().into_iter(),
            state,
            last: (0, 0),
            launched: Some(launched),
            redactor: None,
            began: None,
            notices: Vec::new(),
        }
    }

    /// Creates a run that replays an earlier one, which began at this time.
    pub(crate) fn replayed(
        records: Vec<Record>,
        outcome: Outcome,
        launched: Launched,
        began: Millis,
    ) -> Self {
        let run = Self::over(outcome);
        Self { batch: records.into_iter(), launched: Some(launched), began: Some(began), ..run }
    }

    /// Routes the events of the run through `pass` on their way to the caller. A finished run stays as it is.
    pub(crate) fn forwarded(mut self, pass: impl FnOnce(RunReceiver, RunSender)) -> Self {
        if let State::Running(from) = self.state {
            let (to, receiver) = channel(Wakeup::default());
            pass(from, to);
            self.state = State::Running(receiver);
        }
        self
    }

    /// Routes the events of the run through `pass` like [`forwarded`](Self::forwarded). A finished run only gets the
    /// cache status.
    pub(crate) fn intercept(mut self, mark: CacheStatus, pass: impl FnOnce(RunReceiver, RunSender)) -> Self {
        if let State::Over(Some(outcome)) = &mut self.state {
            outcome.cache = Some(mark);
        }
        self.forwarded(pass)
    }

    /// Returns the channel of the run, or its outcome if it is over.
    pub(crate) fn into_receiver(self) -> Result<RunReceiver, Box<Outcome>> {
        match self.state {
            State::Running(receiver) => Ok(receiver),
            State::Over(outcome) => Err(outcome.unwrap_or_else(|| Box::new(vanished(&self.run_id)))),
        }
    }

    /// Returns when the run originally began, in milliseconds since 1970, if it is replayed.
    pub(crate) fn began(&self) -> Option<Millis> {
        self.began
    }

    /// Sets the redactor for the secrets of the run.
    pub(crate) fn redacted(mut self, redactor: Redactor) -> Self {
        self.redactor = Some(redactor);
        self
    }

    /// Adds warnings about the settings, which are added to the outcome.
    pub(crate) fn with_notices(mut self, notices: Vec<Notice>) -> Self {
        self.notices.extend(notices);
        self
    }

    /// Returns the redactor for the secrets of the run, or `None` if they are not known to this process.
    pub(crate) fn redactor(&self) -> Option<&Redactor> {
        self.redactor.as_ref()
    }

    /// Creates a run that ended before its agent started.
    pub(crate) fn over(outcome: Outcome) -> Self {
        crate::trace::ended(&outcome);
        let run_id = outcome.run_id.clone();
        let state = State::Over(Some(Box::new(outcome)));
        Self {
            run_id,
            batch: Vec::new().into_iter(),
            state,
            last: (0, 0),
            launched: None,
            redactor: None,
            began: None,
            notices: Vec::new(),
        }
    }

    /// Creates a run that its caller cancelled with this signal during preparation.
    #[must_use]
    pub fn cancelled_early(signal: Signal) -> Self {
        let mut info = agentline_core::RunInfo::default();
        info.run_id = uuid::Uuid::new_v4().to_string();
        Self::over(crate::resolve::stopped_before(&info, signal))
    }

    /// Returns the id of this run, as in its events and outcome.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.run_id
    }

    /// Returns the command that was started, or `None` if nothing was started.
    #[must_use]
    pub fn launched(&self) -> Option<&Launched> {
        self.launched.as_ref()
    }

    /// Returns the next event, or `None` after the outcome. Cancel safe.
    pub async fn next(&mut self) -> Option<Record> {
        std::future::poll_fn(|cx| self.poll_record(cx)).await
    }

    /// Waits for the outcome and discards unread events.
    pub async fn outcome(mut self) -> Outcome {
        if let State::Running(receiver) = &self.state {
            receiver.request_outcome_only();
        }
        let mut last = None;
        while let Some(record) = self.next().await {
            if let Event::Outcome { outcome } = record.event {
                last = Some(*outcome);
            }
        }
        match last {
            Some(outcome) => outcome,
            None => vanished(&self.run_id),
        }
    }

    /// Stops the run like a keyboard interrupt. The outcome is still delivered.
    pub fn cancel(&self) {
        self.canceller().cancel();
    }

    /// Stops the run with this signal, which its outcome reports. The outcome is still delivered.
    pub fn cancel_with(&self, signal: Signal) {
        self.canceller().cancel_with(signal);
    }

    /// Returns a handle that can stop the run from elsewhere.
    #[must_use]
    pub fn canceller(&self) -> Canceller {
        let stopper = match &self.state {
            State::Running(receiver) => Some(receiver.stopper()),
            State::Over(_) => None,
        };
        Canceller { stopper }
    }

    fn poll_record(&mut self, cx: &mut Context<'_>) -> Poll<Option<Record>> {
        loop {
            if let Some(record) = self.batch.next() {
                self.last = (record.seq, record.at_ms);
                return Poll::Ready(Some(record));
            }
            match &mut self.state {
                State::Running(receiver) => match receiver.poll(cx) {
                    Poll::Ready(RunItem::Batch(batch)) => self.batch = batch.into_iter(),
                    Poll::Ready(RunItem::Over(outcome)) => {
                        let outcome = outcome.unwrap_or_else(|| Box::new(vanished(&self.run_id)));
                        self.state = State::Over(Some(outcome));
                    }
                    Poll::Pending => return Poll::Pending,
                },
                State::Over(Some(outcome)) if self.last.0 == 0 => {
                    let first = Record::first(outcome);
                    self.last = (first.seq, first.at_ms);
                    return Poll::Ready(Some(first));
                }
                State::Over(outcome) => {
                    let last = self.last;
                    return Poll::Ready(outcome.take().map(|mut outcome| {
                        outcome.warnings.splice(0..0, self.notices.drain(..));
                        Record::last(last, *outcome)
                    }));
                }
            }
        }
    }
}

impl Stream for Run {
    type Item = Record;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Record>> {
        self.poll_record(cx)
    }
}

/// Returns the outcome of a run whose task panicked or whose runtime shut down, which also killed its process.
fn vanished(run_id: &str) -> Outcome {
    let mut info = agentline_core::RunInfo::default();
    run_id.clone_into(&mut info.run_id);
    let failure = agentline_core::Failure::new(
        agentline_core::FailureKind::Crashed,
        "internal error: the run's task panicked or its runtime shut down",
    );
    Outcome::not_started(&info, Verdict::Failed, failure)
}
