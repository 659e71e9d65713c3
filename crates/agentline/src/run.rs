//! A run in progress: a stream of events, then an outcome.

use crate::link::{Bell, Came, Driven, Held, Stopper, link};
use agentline_core::{CacheMark, Event, Launch, Millis, Notice, Outcome, Record, Veil, Verdict};
use futures_core::Stream;
use serde::{Deserialize, Serialize};
use std::{
    pin::Pin,
    task::{Context, Poll},
};

/// A run in progress. Dropping it stops the run and everything that the agent started.
///
/// It is a [`Stream`] of [`Record`]s; the last one is [`Event::Outcome`].
#[derive(Debug)]
pub struct Run {
    run_id: String,
    batch: std::vec::IntoIter<Record>,
    state: State,
    last: (u32, u64),
    launched: Option<Launched>,
    /// Hides the secrets of the run; `None` where they are not known here.
    veil: Option<Veil>,
    /// When it began, where it is told again.
    began: Option<Millis>,
    /// Warnings about its settings, which the outcome repeats.
    notices: Vec<Notice>,
}

/// What was started, for people to look at. Secrets are hidden.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Launched {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Names of the caller's variables that the agent does not see.
    pub withheld: Vec<String>,
}

impl Launched {
    pub(crate) fn of(launch: &Launch, veil: &Veil) -> Self {
        let command =
            std::iter::once(launch.program.to_string_lossy().into_owned()).chain(launch.arguments().cloned());
        let command = command.map(|word| veil.text(&word).into_owned()).collect();
        Self { command, withheld: launch.withheld.clone() }
    }
}

#[derive(Debug)]
enum State {
    Going(Held),
    /// The outcome, once it is known, until it was told.
    Over(Option<Box<Outcome>>),
}

/// Stops a run from elsewhere.
#[derive(Clone, Debug)]
pub struct Canceller {
    stopper: Option<Stopper>,
}

impl Canceller {
    /// Stops the run as an interrupt from the keyboard would. Once is enough; a run that is over does not mind.
    pub fn cancel(&self) {
        self.cancel_by(2);
    }

    /// Stops the run for the caller's own reason: 2 for SIGINT, 15 for SIGTERM.
    pub fn cancel_by(&self, signal: i32) {
        if let Some(stopper) = &self.stopper {
            stopper.stop(signal);
        }
    }

    /// Waits until the run is over, whether or not its events are read, and says how it ended. `None` where that is not
    /// known.
    pub async fn over(&self) -> Option<Verdict> {
        match &self.stopper {
            Some(stopper) => stopper.over().await,
            None => None,
        }
    }
}

impl Run {
    pub(crate) fn new(run_id: String, held: Held, launched: Launched) -> Self {
        let state = State::Going(held);
        Self {
            run_id,
            batch: Vec::new().into_iter(),
            state,
            last: (0, 0),
            launched: Some(launched),
            veil: None,
            began: None,
            notices: Vec::new(),
        }
    }

    /// A run that was made before, at this time.
    pub(crate) fn told_again(
        records: Vec<Record>,
        outcome: Box<Outcome>,
        launched: Launched,
        began: Millis,
    ) -> Self {
        let run = Self::over(*outcome);
        Self { batch: records.into_iter(), launched: Some(launched), began: Some(began), ..run }
    }

    /// The same run, which passes by somebody on its way to the caller; one that is over gets the mark.
    pub(crate) fn past(mut self, mark: CacheMark, pass: impl FnOnce(Held, Driven, Bell)) -> Self {
        self.state = match self.state {
            State::Going(from) => {
                let bell = Bell::default();
                let (to, held) = link(Bell::clone(&bell));
                pass(from, to, bell);
                State::Going(held)
            }
            State::Over(mut outcome) => {
                if let Some(outcome) = &mut outcome {
                    outcome.cache = Some(mark);
                }
                State::Over(outcome)
            }
        };
        self
    }

    /// When it began, in milliseconds since 1970, where it is told again.
    pub(crate) fn began(&self) -> Option<Millis> {
        self.began
    }

    /// The same, with what hides its secrets.
    pub(crate) fn veiled(mut self, veil: Veil) -> Self {
        self.veil = Some(veil);
        self
    }

    /// The same, with warnings about its settings, which its outcome repeats.
    pub(crate) fn with_notices(mut self, notices: Vec<Notice>) -> Self {
        self.notices.extend(notices);
        self
    }

    /// What hides the secrets of the run; `None` where they are not known here.
    pub(crate) fn veil(&self) -> Option<&Veil> {
        self.veil.as_ref()
    }

    /// A run that was over before it began.
    pub(crate) fn over(outcome: Outcome) -> Self {
        let run_id = outcome.run_id.clone();
        let state = State::Over(Some(Box::new(outcome)));
        Self {
            run_id,
            batch: Vec::new().into_iter(),
            state,
            last: (0, 0),
            launched: None,
            veil: None,
            began: None,
            notices: Vec::new(),
        }
    }

    /// A run that its caller cancelled by this signal while it was being prepared.
    #[must_use]
    pub fn cancelled_early(signal: i32) -> Self {
        let mut who = agentline_core::Who::default();
        who.run_id = uuid::Uuid::new_v4().to_string();
        Self::over(crate::ready::stopped_before(&who, signal))
    }

    /// The id of this run, as in events and outcome.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.run_id
    }

    /// What was started; `None` where nothing could be.
    #[must_use]
    pub fn launched(&self) -> Option<&Launched> {
        self.launched.as_ref()
    }

    /// The next event; `None` after the outcome. May be dropped and called again without losing anything.
    pub async fn next(&mut self) -> Option<Record> {
        std::future::poll_fn(|cx| self.poll_record(cx)).await
    }

    /// Waits for the end; events that were not read are passed over.
    pub async fn outcome(mut self) -> Outcome {
        if let State::Going(held) = &self.state {
            held.want_outcome_only();
        }
        let mut last = None;
        while let Some(record) = self.next().await {
            if let Event::Outcome { outcome } = record.event {
                last = Some(outcome);
            }
        }
        match last {
            Some(outcome) => *outcome,
            None => vanished(&self.run_id),
        }
    }

    /// Stops the run as an interrupt from the keyboard would. Its outcome still comes.
    pub fn cancel(&self) {
        self.canceller().cancel();
    }

    /// A handle with which others can stop the run.
    #[must_use]
    pub fn canceller(&self) -> Canceller {
        let stopper = match &self.state {
            State::Going(held) => Some(held.stopper()),
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
                State::Going(held) => match held.poll(cx) {
                    Poll::Ready(Came::Batch(batch)) => self.batch = batch.into_iter(),
                    Poll::Ready(Came::Over(outcome)) => {
                        let outcome = outcome.unwrap_or_else(|| Box::new(vanished(&self.run_id)));
                        self.state = State::Over(Some(outcome));
                    }
                    Poll::Pending => return Poll::Pending,
                },
                State::Over(outcome) => {
                    let last = self.last;
                    return Poll::Ready(outcome.take().map(|mut outcome| {
                        outcome.warnings.splice(0..0, self.notices.drain(..));
                        Record::last(last, outcome)
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

/// The task of the run panicked or its runtime was shut down; its process was killed with it.
fn vanished(run_id: &str) -> Outcome {
    let mut who = agentline_core::Who::default();
    run_id.clone_into(&mut who.run_id);
    let failure =
        agentline_core::Failure::new(agentline_core::Kind::Crashed, "the run was torn down from inside");
    Outcome::not_begun(&who, Verdict::Failed, failure)
}
