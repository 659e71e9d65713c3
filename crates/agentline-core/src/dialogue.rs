//! The trait that each surface implements: a stateful translator.

use crate::{
    AgentProfile, ContextWindow, Diff, Event, ExitReason, Failure, FailureKind, HostRequest, HostRequestId,
    HostResponse, RequestedMode, RunId, SideChannel, Stream, TokenCount, TurnSpec,
};
use crate::{
    Surface, TurnEnd, Version,
    wire::{LinePart, mend_surrogates, parts},
};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::collections::HashMap;

/// The number of runs that an agent process can serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Concurrency {
    /// One prompt, then the process exits; its exit status is part of the result.
    Once,
    /// Several prompts, one after another.
    Turns,
    /// Several sessions at the same time.
    Sessions,
}

/// One input line.
#[derive(Clone, Copy, Debug)]
pub struct InputLine<'a> {
    /// The number of the line in its stream, from 1.
    pub no: u64,
    /// The stream of the line.
    pub stream: Stream,
    /// The text of the line.
    pub text: &'a str,
}

/// Translates between one surface of one agent and the types of the core.
///
/// It does not handle timeouts, limits, policies or verdicts.
pub trait Dialogue: Send {
    /// Returns how many runs the process can serve.
    fn room(&self) -> Concurrency;

    /// Handles the start of the process.
    fn started(&mut self, sink: &mut Sink) {
        let _ = sink;
    }

    /// Starts a run.
    fn prompt(&mut self, run: RunId, spec: &TurnSpec, sink: &mut Sink);

    /// Re-prompts the agent within the same run, session and timeouts.
    fn reprompt(&mut self, run: RunId, prompt: &str, sink: &mut Sink) {
        let _ = (run, prompt, sink);
    }

    /// Handles a line from stdout, stderr or a side file.
    fn line(&mut self, line: InputLine<'_>, sink: &mut Sink);

    /// Handles an answer from the host.
    fn answer(&mut self, ask: HostRequestId, answer: &HostResponse, sink: &mut Sink) {
        let _ = (ask, answer, sink);
    }

    /// Handles a message from a client of the agent.
    fn client_message(&mut self, text: &str, sink: &mut Sink) {
        let _ = (text, sink);
    }

    /// Passes a request of the agent on to its client, which decides.
    fn ask_client(&mut self, ask: HostRequestId, sink: &mut Sink) {
        let _ = (ask, sink);
    }

    /// Asks the agent to stop; returns false if the surface does not support this.
    fn cancel(&mut self, run: RunId, sink: &mut Sink) -> bool {
        let _ = (run, sink);
        false
    }

    /// Handles the exit of the process.
    fn exit(&mut self, exit: ExitReason, sink: &mut Sink) {
        let _ = (exit, sink);
    }

    /// Finishes a run whose side files have been read to their end; no more input follows.
    fn finish(&mut self, run: RunId, sink: &mut Sink) {
        let _ = (run, sink);
    }

    /// Returns whether the session file that the dialogue follows has the tokens of each answer.
    fn records_answers(&self) -> bool {
        true
    }

    /// Returns why no run can use this agent, if it has reported such a failure.
    fn broken(&self) -> Option<Failure> {
        None
    }
}

/// An item that a dialogue reports about a run.
#[derive(Debug)]
pub(crate) enum SinkItem {
    /// A piece of the answer. Most items are pieces, so they are not in the box of other events.
    Text(String),
    /// A piece of reasoning.
    Thinking(String),
    Event(Box<Event>),
    Count(Box<TokenCount>),
    Context(ContextWindow),
    Hint(Failure),
    Retry(Failure),
    End(Box<TurnEnd>),
    Ask(HostRequestId, HostRequest),
    Withdraw(HostRequestId),
    ClientAnswered(HostRequestId, Box<HostResponse>),
    Follow(SideChannel, String),
    Stderr(String),
    Value(Box<RawValue>),
    TurnText(String),
    ToolFact(Box<ToolFact>),
    Cost(f64),
    RecordedCost(f64),
    Model(String),
    Silent,
    Alive,
    Tally {
        turns: u32,
        tool_calls: u32,
    },
    NextRequest,
    Recorded(Option<Box<Failure>>),
    Abort(Failure),
}

impl From<Event> for SinkItem {
    fn from(event: Event) -> Self {
        match event {
            Event::Text { text } => Self::Text(text),
            Event::Thinking { text } => Self::Thinking(text),
            event => Self::Event(Box::new(event)),
        }
    }
}

// An item is moved several times. Up to 128 bytes, a move is a few instructions instead of a call of `memmove`.
const _: () = assert!(size_of::<(Option<RunId>, SinkItem)>() <= 128);

/// A fact about a tool call from outside the event stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ToolFact {
    /// The agent's id for the call.
    pub id: String,
    /// Whether the call was stopped, regardless of its result.
    pub cancelled: bool,
    /// Lines added to the file.
    pub added: Option<u64>,
    /// Lines removed from the file.
    pub removed: Option<u64>,
    /// Additional files that the call would write.
    pub paths: Vec<String>,
    /// The changes that the call made.
    pub diffs: Vec<Diff>,
}

impl ToolFact {
    /// Creates a fact about a call.
    #[must_use]
    pub fn new(id: impl Into<String>) -> Self {
        Self { id: id.into(), ..Self::default() }
    }
}

/// Collects the reports of a dialogue. Methods without a run apply to all runs of the connection.
#[derive(Default, Debug)]
pub struct Sink {
    pub(crate) items: Vec<(Option<RunId>, SinkItem)>,
    pub(crate) frames: Vec<String>,
    pub(crate) client_messages: Vec<String>,
    pub(crate) shut: bool,
    pub(crate) ready: bool,
    pub(crate) is_idle_line: bool,
    asked: HashMap<RunId, u32>,
}

impl Sink {
    /// Reports an event of a run.
    pub fn event(&mut self, run: RunId, event: impl Into<Event>) {
        self.items.push((Some(run), event.into().into()));
    }

    /// Reports an event to all runs.
    pub fn event_all(&mut self, event: Event) {
        self.items.push((None, event.into()));
    }

    /// Passes each JSON object in a line of output to `read`, which returns whether it understood it. Everything else is
    /// reported as unreadable, to one run or to all of them. A line is nearly always one object.
    pub(crate) fn read_objects(
        &mut self,
        run: Option<RunId>,
        text: &str,
        mut read: impl FnMut(&str, &mut Self) -> bool,
    ) {
        // An unpaired surrogate fails when its text is read, which may be later, and the text would be lost.
        let mended =
            if text.contains("\\ud") || text.contains("\\uD") { mend_surrogates(text) } else { None };
        let text = mended.as_deref().unwrap_or(text);
        if read(text, self) {
            return;
        }
        for part in parts(text) {
            let (LinePart::Object(rest) | LinePart::Noise(rest)) = part;
            if matches!(part, LinePart::Noise(_)) || !read(rest, self) {
                let event = Event::unreadable(rest, rest.len() as u64);
                self.items.push((run, event.into()));
            }
        }
    }

    /// Reports a token count.
    pub fn count(&mut self, run: RunId, count: TokenCount) {
        self.items.push((Some(run), SinkItem::Count(Box::new(count))));
    }

    /// Reports how full the model's context window is.
    pub fn context(&mut self, run: RunId, context: ContextWindow) {
        self.items.push((Some(run), SinkItem::Context(context)));
    }

    /// Reports a failure observed during the run. It has an effect only if the run fails.
    pub fn hint(&mut self, run: Option<RunId>, failure: Failure) {
        self.items.push((run, SinkItem::Hint(failure)));
    }

    /// Reports that the agent retries a refused request. The retry timeout runs until the agent makes progress.
    pub fn retry(&mut self, failure: Failure) {
        self.items.push((None, SinkItem::Retry(failure)));
    }

    /// Reports that the agent retries a refused request of one run, as [`Sink::retry`] does for all runs.
    pub fn retry_of(&mut self, run: RunId, failure: Failure) {
        self.items.push((Some(run), SinkItem::Retry(failure)));
    }

    /// Reports one of several retries of a refused request of a run, with a warning.
    pub(crate) fn retry_with_warning(&mut self, run: RunId, failure: Failure, attempt: u32, most: u32) {
        let code = if failure.kind == FailureKind::RateLimited { "rate_limited" } else { "retry" };
        let text = format!("{}; retry {attempt} of {most}", failure.message);
        self.event(run, Event::warning(code, text));
        self.retry_of(run, failure);
    }

    /// Reports the agent's own result of a turn.
    pub fn end(&mut self, run: RunId, end: TurnEnd) {
        self.items.push((Some(run), SinkItem::End(Box::new(end))));
    }

    /// Sends a request to the host and returns its id.
    pub fn ask(&mut self, run: RunId, ask: HostRequest) -> HostRequestId {
        let count = self.asked.entry(run).or_default();
        *count += 1;
        // The ids above these are reserved for the connection.
        let id = HostRequestId(run.0 << 8 | ((*count - 1) % 253 + 1));
        self.items.push((Some(run), SinkItem::Ask(id, ask)));
        id
    }

    /// Withdraws a request.
    pub fn withdraw(&mut self, run: RunId, id: HostRequestId) {
        self.items.push((Some(run), SinkItem::Withdraw(id)));
    }

    /// Reports how the client of the agent has answered a request that the host has left to it.
    pub(crate) fn client_answered(&mut self, run: RunId, ask: HostRequestId, answer: HostResponse) {
        self.items.push((Some(run), SinkItem::ClientAnswered(ask, Box::new(answer))));
    }

    /// Sends a message to the client of the agent.
    pub(crate) fn client(&mut self, message: &str) {
        self.client_messages.push(message.trim_end_matches('\n').to_owned());
    }

    /// Asks for the lines of a side file from now on.
    pub fn follow(&mut self, run: RunId, side: SideChannel, name: &str) {
        self.items.push((Some(run), SinkItem::Follow(side, name.to_owned())));
    }

    /// Reports a line of stderr to keep.
    pub fn stderr(&mut self, text: &str) {
        self.items.push((None, SinkItem::Stderr(text.to_owned())));
    }

    /// Reports the structured answer.
    pub fn value(&mut self, run: RunId, value: &RawValue) {
        self.items.push((Some(run), SinkItem::Value(value.to_owned())));
    }

    /// Reports the recorded text of a turn, which is authoritative where the stream may have repeated text.
    pub fn turn_text(&mut self, run: RunId, text: impl Into<String>) {
        self.items.push((Some(run), SinkItem::TurnText(text.into())));
    }

    /// Reports a fact about a tool call from outside the event stream.
    pub fn tool_fact(&mut self, run: RunId, fact: ToolFact) {
        self.items.push((Some(run), SinkItem::ToolFact(Box::new(fact))));
    }

    /// Reports the agent's own cost in US dollars since the last report.
    pub fn cost(&mut self, run: RunId, usd: f64) {
        self.items.push((Some(run), SinkItem::Cost(usd)));
    }

    /// Reports the cost in US dollars since the last one that the agent's session file has. It covers the same requests as
    /// [`Sink::cost`], so the larger sum counts.
    pub(crate) fn recorded_cost(&mut self, run: RunId, usd: f64) {
        self.items.push((Some(run), SinkItem::RecordedCost(usd)));
    }

    /// Reports the model that answered.
    pub fn model(&mut self, run: RunId, model: impl Into<String>) {
        self.items.push((Some(run), SinkItem::Model(model.into())));
    }

    /// Marks a run that emits nothing before its end, so startup and idle timeouts do not apply to it.
    pub fn silent(&mut self, run: RunId) {
        self.items.push((Some(run), SinkItem::Silent));
    }

    /// Records activity of a run for a line without reportable content.
    pub fn alive(&mut self, run: RunId) {
        self.items.push((Some(run), SinkItem::Alive));
    }

    /// Marks a line that shows no activity of any run, such as a heartbeat. Otherwise a line without reportable content
    /// counts as activity of every run.
    pub fn idle_line(&mut self) {
        self.is_idle_line = true;
    }

    /// Reports the agent's own counts, for a surface that does not show each turn and call.
    pub fn tally(&mut self, run: RunId, turns: u32, tool_calls: u32) {
        self.items.push((Some(run), SinkItem::Tally { turns, tool_calls }));
    }

    /// Reports that an answer of the model is complete and that the agent is about to send the next request, so that a
    /// limit on turns acts before it.
    pub(crate) fn next_request(&mut self, run: RunId) {
        self.items.push((Some(run), SinkItem::NextRequest));
    }

    /// Reports how the last answer ended that the agent has recorded in its session file: with a failure, or without.
    pub(crate) fn recorded(&mut self, run: RunId, failure: Option<Failure>) {
        self.items.push((Some(run), SinkItem::Recorded(failure.map(Box::new))));
    }

    /// Aborts all runs because a guarantee does not hold.
    pub fn abort(&mut self, failure: Failure) {
        self.items.push((None, SinkItem::Abort(failure)));
    }

    /// Queues a frame for the agent's standard input.
    pub fn frame(&mut self, frame: String) {
        self.frames.push(frame);
    }

    /// Closes the agent's standard input; no more frames follow.
    pub fn shut(&mut self) {
        self.shut = true;
    }

    /// Reports that the agent is ready for a prompt.
    pub fn ready(&mut self) {
        self.ready = true;
    }

    /// Removes the request counter of a finished run.
    pub(crate) fn forget(&mut self, run: RunId) {
        self.asked.remove(&run);
    }
}

/// The configuration of a dialogue: everything its translator must know before the first line.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct DialogueConfig {
    /// The surface of the dialogue.
    pub surface: Surface,
    /// The agent's version, if it is known before the start.
    pub version: Option<Version>,
    /// Whether the host reads files for the agent.
    pub read_files: bool,
    /// Whether the host writes files for the agent.
    pub write_files: bool,
    /// The id of the sign-in method to request, as the agent names it.
    pub authenticate: Option<String>,
    /// The turn limit in the agent's own settings, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_max_turns: Option<u32>,
    /// The directory of the user that a private directory replaces for the agent. Messages name this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub users_home: Option<String>,
    /// The only session of the process, if it has one that is known before the start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    /// Whether the process continues a stored session.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub resumes: bool,
    /// The model that the process was started with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The agent's own settings for its handshake, as JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub handshake: Option<String>,
    /// What applies to the sessions of a client, if the dialogue passes messages between the agent and a client.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client: Option<Box<ClientSessions>>,
    /// The profile of a configured agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<Box<AgentProfile>>,
}

/// What the host requires of the sessions that a client of the agent opens.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct ClientSessions {
    /// The mode in which a session starts.
    pub mode: Option<RequestedMode>,
    /// The model of a new session, as the agent names it.
    pub model: Option<String>,
    /// Extensions of the protocol for opening a session, as JSON.
    pub meta: Option<String>,
}

impl DialogueConfig {
    /// Creates a configuration for this surface with default settings.
    #[must_use]
    pub fn new(surface: Surface, version: Option<Version>) -> Self {
        Self { surface, version, ..Self::default() }
    }
}
