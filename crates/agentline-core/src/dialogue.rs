//! The one trait that a surface implements: a translator with memory, and nothing more.

use crate::{Answer, Ask, AskId, Count, Event, Exit, Failure, Order, RunId, Side, Stream};
use serde_json::value::RawValue;
use std::collections::HashMap;

/// How many runs a live agent can take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Room {
    /// One prompt, then the process ends; its exit is part of the answer.
    Once,
    /// Prompts one after another.
    Turns,
    /// Sessions side by side.
    Sessions,
}

/// One line that came in.
#[derive(Clone, Copy, Debug)]
pub struct Line<'a> {
    /// Its number in its stream, from 1.
    pub no: u64,
    /// Where it came from.
    pub stream: Stream,
    /// Its text.
    pub text: &'a str,
}

/// Translates between one surface of one agent and our vocabulary. It knows no clock, limit, policy or verdict.
pub trait Dialogue: Send {
    /// How many runs it can take.
    fn room(&self) -> Room;

    /// The process runs.
    fn up(&mut self, say: &mut Say) {
        let _ = say;
    }

    /// A run begins.
    fn prompt(&mut self, run: RunId, order: &Order, say: &mut Say);

    /// The host sends the agent on, in the session and under the clocks of the same run.
    fn again(&mut self, run: RunId, prompt: &str, say: &mut Say) {
        let _ = (run, prompt, say);
    }

    /// A line came: of stdout, stderr, or something beside the process.
    fn line(&mut self, line: Line<'_>, say: &mut Say);

    /// The host answered.
    fn answer(&mut self, ask: AskId, answer: &Answer, say: &mut Say) {
        let _ = (ask, answer, say);
    }

    /// Asks the agent to stop; false where the surface has no words for it.
    fn cancel(&mut self, run: RunId, say: &mut Say) -> bool {
        let _ = (run, say);
        false
    }

    /// The process ended.
    fn exit(&mut self, exit: Exit, say: &mut Say) {
        let _ = (exit, say);
    }

    /// The side files have been read to their end; nothing more will come.
    fn settled(&mut self, run: RunId, say: &mut Say) {
        let _ = (run, say);
    }

    /// Why this agent cannot be talked with by anybody, once it has said so.
    fn broken(&self) -> Option<Failure> {
        None
    }
}

/// The agent's own last word on a turn.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct End {
    /// It says that it worked.
    pub ok: bool,
    /// Why the turn ended, where it says so.
    pub stop: Option<String>,
    /// What failed.
    pub failure: Option<Failure>,
}

impl End {
    /// It worked.
    #[must_use]
    pub fn ok() -> Self {
        Self { ok: true, stop: None, failure: None }
    }

    /// It did not.
    #[must_use]
    pub fn failed(failure: Option<Failure>) -> Self {
        Self { ok: false, stop: None, failure }
    }
}

/// What a dialogue said about one run.
#[derive(Debug)]
pub(crate) enum Said {
    Event(Event),
    Count(Count),
    Hint(Failure),
    Retry(Failure),
    End(End),
    Ask(AskId, Ask),
    Withdraw(AskId),
    Follow(Side, String),
    Stderr(String),
    Value(Box<RawValue>),
    TurnText(String),
    ToolFact(ToolFact),
    Cost(f64),
    Model(String),
    Silent,
    Alive,
    Tally { turns: u32, tool_calls: u32 },
    Abort(Failure),
}

/// Something learned about a tool call outside the stream of events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ToolFact {
    /// The agent's id of the call.
    pub id: String,
    /// The call was stopped, whatever its result said.
    pub cancelled: bool,
    /// Lines that it added to its file.
    pub added: Option<u64>,
    /// Lines that it removed from its file.
    pub removed: Option<u64>,
    /// More files that it would write.
    pub paths: Vec<String>,
}

impl ToolFact {
    /// A fact about this call.
    #[must_use]
    pub fn new(id: impl Into<String>) -> Self {
        Self { id: id.into(), ..Self::default() }
    }
}

/// Where a dialogue puts what it has to say. The forms without a run mean all runs of this connection.
#[derive(Default, Debug)]
pub struct Say {
    pub(crate) runs: Vec<(Option<RunId>, Said)>,
    pub(crate) frames: Vec<String>,
    pub(crate) shut: bool,
    pub(crate) ready: bool,
    asked: HashMap<RunId, u32>,
}

impl Say {
    /// Something happened in a run.
    pub fn event(&mut self, run: RunId, event: Event) {
        self.runs.push((Some(run), Said::Event(event)));
    }

    /// Something happened that concerns all runs.
    pub fn event_all(&mut self, event: Event) {
        self.runs.push((None, Said::Event(event)));
    }

    /// The agent said something about tokens.
    pub fn count(&mut self, run: RunId, count: Count) {
        self.runs.push((Some(run), Said::Count(count)));
    }

    /// A failure seen on the way. It decides nothing unless the run fails.
    pub fn hint(&mut self, run: Option<RunId>, failure: Failure) {
        self.runs.push((run, Said::Hint(failure)));
    }

    /// The agent tries a refused request again: the patience clock runs until it gets on.
    pub fn retry(&mut self, failure: Failure) {
        self.runs.push((None, Said::Retry(failure)));
    }

    /// The agent's own last word on a turn.
    pub fn end(&mut self, run: RunId, end: End) {
        self.runs.push((Some(run), Said::End(end)));
    }

    /// Asks the host.
    pub fn ask(&mut self, run: RunId, ask: Ask) -> AskId {
        let count = self.asked.entry(run).or_default();
        *count += 1;
        // The numbers above these are the connection's own.
        let id = AskId(run.0 << 8 | ((*count - 1) % 253 + 1));
        self.runs.push((Some(run), Said::Ask(id, ask)));
        id
    }

    /// A question is void.
    pub fn withdraw(&mut self, run: RunId, id: AskId) {
        self.runs.push((Some(run), Said::Withdraw(id)));
    }

    /// Lines of this are wanted from now on.
    pub fn follow(&mut self, run: RunId, side: Side, name: &str) {
        self.runs.push((Some(run), Said::Follow(side, name.to_owned())));
    }

    /// A line of stderr that is worth keeping.
    pub fn stderr(&mut self, text: &str) {
        self.runs.push((None, Said::Stderr(text.to_owned())));
    }

    /// The structured answer, by whatever way it came.
    pub fn value(&mut self, run: RunId, value: &RawValue) {
        self.runs.push((Some(run), Said::Value(value.to_owned())));
    }

    /// The recorded text of a turn, which is right where the stream may have repeated itself.
    pub fn turn_text(&mut self, run: RunId, text: impl Into<String>) {
        self.runs.push((Some(run), Said::TurnText(text.into())));
    }

    /// Something learned about a tool call outside the stream of events.
    pub fn tool_fact(&mut self, run: RunId, fact: ToolFact) {
        self.runs.push((Some(run), Said::ToolFact(fact)));
    }

    /// The agent's own price in US dollars for what was used since it last said one.
    pub fn cost(&mut self, run: RunId, usd: f64) {
        self.runs.push((Some(run), Said::Cost(usd)));
    }

    /// The model that really answered.
    pub fn model(&mut self, run: RunId, model: impl Into<String>) {
        self.runs.push((Some(run), Said::Model(model.into())));
    }

    /// Nothing will be heard before the end of this run: only the clock of the whole run can mean something.
    pub fn silent(&mut self, run: RunId) {
        self.runs.push((Some(run), Said::Silent));
    }

    /// A line belonged to this run, though there is nothing to tell: the agent is alive.
    pub fn alive(&mut self, run: RunId) {
        self.runs.push((Some(run), Said::Alive));
    }

    /// What the agent itself counted, for a surface that does not show each turn and call.
    pub fn tally(&mut self, run: RunId, turns: u32, tool_calls: u32) {
        self.runs.push((Some(run), Said::Tally { turns, tool_calls }));
    }

    /// Something that a promise rests on does not hold: the run must not go on.
    pub fn abort(&mut self, failure: Failure) {
        self.runs.push((None, Said::Abort(failure)));
    }

    /// Bytes for the agent's standard input.
    pub fn frame(&mut self, frame: String) {
        self.frames.push(frame);
    }

    /// No more frames will follow: close the agent's standard input.
    pub fn shut(&mut self) {
        self.shut = true;
    }

    /// The agent is up and can take a prompt.
    pub fn ready(&mut self) {
        self.ready = true;
    }

    /// A run is over: its questions need no numbers any more.
    pub(crate) fn forget(&mut self, run: RunId) {
        self.asked.remove(&run);
    }
}
