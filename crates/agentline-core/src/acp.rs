//! The dialogue for the Agent Client Protocol: many sessions over one process, with requests in both directions.
//!
//! This module contains nothing specific to one agent. Each agent's directory provides an [`AcpProfile`]
//! value with its deviations. Request ids are derived from the run, so that one run extracted from a shared
//! tape replays identically.

mod answer;
pub(crate) mod blocks;
mod client_link;
mod handshake;
mod held_text;
mod opening;
pub(crate) mod profile;
mod question;
mod session;
pub(crate) mod tool_call;
mod tools;
mod update;

use crate::{
    Concurrency, Dialogue, DialogueConfig, Event, ExitReason, Failure, HostRequestId, HostResponse,
    InputLine, RunId, SideChannel, Sink, Stream, TurnEnd, TurnSpec,
    hosted_tools::HostedTools,
    rpc::{self, PendingCalls, RpcMessage},
    wire::{Str, wire},
};
use answer::PromptUsage;
use client_link::ClientLink;
use handshake::AgentCapabilities;
use held_text::HeldText;
use profile::{AcpProfile, PlainProfile, UnreportedCall};
use question::PendingRequest;
use serde_json::{Value, json, value::RawValue};
use session::AcpSession;
use std::collections::BTreeMap;
use tools::AcpToolCalls;

pub(crate) use tools::added_text;

/// The kind of a pending request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    Initialize,
    Authenticate,
    /// `session/new` or `session/load`.
    Open,
    /// `session/list`, to find the newest session.
    List,
    /// A request that only detects the end of the replayed history.
    Probe,
    Mode,
    Model,
    /// The fallback for setting the model, if the agent does not have the first method.
    ModelByOption,
    Prompt,
    /// `session/close`, whose response is ignored.
    Close,
    /// `session/set_title`, whose response is ignored.
    Title,
}

impl Call {
    /// Returns the number of the request within its run. At most one request of each kind is pending at a time.
    fn number(self, turn: u32) -> u64 {
        match self {
            Self::Initialize => 0,
            Self::Authenticate | Self::Open => 1,
            Self::Probe => 2,
            Self::Mode => 3,
            Self::Model => 4,
            Self::ModelByOption => 5,
            Self::Close => 6,
            Self::Title => 7,
            Self::List => 8,
            Self::Prompt => 16 + u64::from(turn % 4000),
        }
    }
}

/// The state of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Waiting for the agent's capabilities.
    Waiting,
    /// Opening and configuring the session.
    Opening,
    /// The agent is still replaying the history of the session. `quiet` is the number of consecutive probes during
    /// which no history arrived.
    Draining { quiet: u8, got_history: bool },
    /// Waiting for the agent to list the tools that the host serves.
    Listing,
    /// The agent is working on a prompt.
    Working,
    /// The agent has answered.
    Answered,
}

/// One run on this connection.
#[derive(Debug)]
struct Turn {
    spec: TurnSpec,
    session: Option<String>,
    step: Step,
    /// Whether the run is being cancelled.
    stopping: bool,
    prompts: u32,
    tools: AcpToolCalls,
    spent: PromptUsage,
    hosted: HostedTools,
    is_late_reported: bool,
    /// Whether text has arrived since the last prompt.
    has_text: bool,
    /// The last text, if it may report an error.
    held: HeldText,
    replayed: u32,
    /// Calls that are known only from the session file, held back until the agent has answered.
    unreported: Vec<UnreportedCall>,
    /// Why the turn was cancelled although the agent would have tried again.
    gave_up: Option<Failure>,
    /// The failed requests to the model's service since the last tool call, as far as the agent logs them.
    failed_requests: u32,
    /// The denials after which the agent was prompted to continue.
    continued_after: u32,
    /// The denials before the last text.
    denials_before_text: u32,
}

impl Turn {
    fn new(spec: &TurnSpec) -> Self {
        Self {
            spec: spec.clone(),
            session: None,
            step: Step::Waiting,
            stopping: false,
            prompts: 0,
            tools: AcpToolCalls::default(),
            spent: PromptUsage::default(),
            hosted: HostedTools::default(),
            is_late_reported: false,
            has_text: false,
            held: HeldText::default(),
            replayed: 0,
            unreported: Vec::new(),
            gave_up: None,
            failed_requests: 0,
            continued_after: 0,
            denials_before_text: 0,
        }
    }

    /// Makes held text part of the answer, because the agent continues after it.
    fn restore_held(&mut self, run: RunId, sink: &mut Sink) {
        if self.held.restore(run, sink) {
            self.note_text();
        }
    }

    /// Records that the answer has text.
    fn note_text(&mut self) {
        self.has_text = true;
        self.denials_before_text = self.tools.refusals();
    }

    fn report_unreported(&mut self, run: RunId, profile: &dyn AcpProfile, sink: &mut Sink) {
        for call in std::mem::take(&mut self.unreported) {
            self.tools.unreported(run, call, profile, sink);
        }
    }
}

/// The dialogue with one agent process.
pub(crate) struct Acp {
    config: DialogueConfig,
    profile: Box<dyn AcpProfile>,
    capabilities: Option<AgentCapabilities>,
    /// Why the agent is unusable, if it is.
    broken: Option<Failure>,
    pending: PendingCalls<Call>,
    turns: BTreeMap<RunId, Turn>,
    sessions: BTreeMap<String, AcpSession>,
    questions: BTreeMap<HostRequestId, PendingRequest>,
    /// The client whose messages are passed on, if there is one.
    link: Option<ClientLink>,
}

/// Creates a dialogue with an agent that is only known to speak ACP.
#[must_use]
pub fn acp_dialogue(config: &DialogueConfig) -> Box<dyn Dialogue> {
    Box::new(Acp::new(config, Box::new(PlainProfile)))
}

wire! { struct Addressed<'a> { session: Str<'a> = "sessionId" } }

impl Acp {
    /// Creates a dialogue with an agent that has this profile.
    pub(crate) fn new(config: &DialogueConfig, profile: Box<dyn AcpProfile>) -> Self {
        let mut config = config.clone();
        let link = config.client.take().map(|sessions| ClientLink::new(*sessions));
        if link.is_some() {
            // The client signs in, and the host decides on access to files.
            (config.read_files, config.write_files, config.authenticate) = (true, true, None);
        }
        Self {
            config,
            profile,
            capabilities: None,
            broken: None,
            pending: PendingCalls::default(),
            turns: BTreeMap::new(),
            sessions: BTreeMap::new(),
            questions: BTreeMap::new(),
            link,
        }
    }

    fn call(&mut self, run: RunId, call: Call, method: &str, params: &Value, sink: &mut Sink) {
        let turn = self.turns.get(&run).map_or(0, |turn| turn.prompts);
        sink.frame(self.pending.request(run, call, call.number(turn), method, params));
    }

    /// Ends a run without an answer from the agent.
    fn fail(&mut self, run: RunId, failure: Option<Failure>, sink: &mut Sink) {
        self.end(run, TurnEnd::failed(failure), sink);
    }

    fn end(&mut self, run: RunId, end: TurnEnd, sink: &mut Sink) {
        if let Some(turn) = self.turns.get_mut(&run).filter(|turn| turn.step != Step::Answered) {
            turn.step = Step::Answered;
            turn.held.restore(run, sink);
            sink.end(run, end);
        }
    }

    fn stdout(&mut self, text: &str, sink: &mut Sink) {
        sink.read_objects(None, text, |object, sink| {
            let Some(message) = rpc::read(object) else { return false };
            if self.link.is_some() {
                self.message_for_client(message, object, sink);
            } else {
                self.message(message, object, sink);
            }
            true
        });
    }

    fn message(&mut self, message: RpcMessage<'_>, text: &str, sink: &mut Sink) {
        match message {
            RpcMessage::Notification { method, params } if &*method == "session/update" => {
                self.update(params, sink)
            }
            // A notification without a known session is not reported to any run, so that a run replays alone as it does
            // beside others. The connection still counts it as activity.
            RpcMessage::Notification { method, params } => {
                self.profile.notification(&method);
                match (self.profile.retried(text), self.addressee(params)) {
                    // An event would count as progress and restart the retry timeout.
                    (Some(failure), Some(run)) => self.request_retried(run, failure, sink),
                    (Some(failure), None) => sink.retry(failure),
                    (None, Some(run)) => sink.event(run, Event::agent(text)),
                    (None, None) => {}
                }
            }
            RpcMessage::Request { id, method, params } => {
                self.question(id, &method, params, sink);
            }
            RpcMessage::Response { id, result } => {
                // A response to an unknown request, such as an error about an unreadable line, is ignored.
                if let Some((run, call)) = self.pending.take(id) {
                    self.reply(run, call, result, sink);
                }
            }
        }
    }

    fn reply(&mut self, run: RunId, call: Call, result: rpc::RpcResult<'_>, sink: &mut Sink) {
        match call {
            Call::Initialize => self.initialized(result, sink),
            Call::Authenticate => self.authenticated(result, sink),
            Call::Open => self.opened(run, result, sink),
            Call::List => self.listed(run, result, sink),
            Call::Probe => self.probed(run, sink),
            Call::Mode => self.mode_set(run, result.err(), sink),
            Call::Model | Call::ModelByOption => self.model_set(run, call, result.err(), sink),
            Call::Prompt => self.answered(run, result, sink),
            // A session that cannot be closed ends with the process.
            Call::Close | Call::Title => {}
        }
    }

    /// Returns the run in the session that a message refers to.
    fn addressee(&self, params: &RawValue) -> Option<RunId> {
        let session = serde_json::from_str::<Addressed<'_>>(params.get()).unwrap_or_default().session;
        self.sessions.get(&*session)?.run
    }

    /// Closes a session that is no longer needed, if the agent supports it. Some agents keep a process per session.
    fn close(&mut self, run: RunId, session: &str, sink: &mut Sink) {
        let is_closed = self.capabilities.as_ref().is_some_and(|can| can.closes)
            && self.sessions.remove(session).is_some_and(|session| session.open);
        if is_closed {
            self.call(run, Call::Close, "session/close", &json!({"sessionId": session}), sink);
        }
    }

    /// Handles a failed request to the model's service that the agent has logged and retries. After too many retries, the
    /// turn is cancelled.
    fn request_failed(&mut self, session: &str, failure: Failure, sink: &mut Sink) {
        // Sessions of sub-agents are unknown.
        let only = if self.sessions.contains_key(session) { None } else { self.only_session() };
        let run = self.sessions.get(only.as_deref().unwrap_or(session)).and_then(|session| session.run);
        let max_retries = self.profile.max_retries();
        let Some((run, turn)) = run.and_then(|run| Some((run, self.turns.get_mut(&run)?))) else { return };
        if turn.step != Step::Working || turn.stopping || turn.gave_up.is_some() {
            return;
        }
        turn.failed_requests += 1;
        if turn.failed_requests > max_retries {
            turn.gave_up = Some(failure);
            return self.stop_session(run, sink);
        }
        sink.retry_with_warning(run, failure, turn.failed_requests, max_retries);
    }

    /// Handles a failed request to the model's service that the agent has reported in its session file or outside the
    /// protocol. After too many retries, the turn is cancelled.
    fn request_retried(&mut self, run: RunId, failure: Failure, sink: &mut Sink) {
        let max_retries = self.profile.max_retries();
        let Some(turn) = self.turns.get_mut(&run) else { return };
        if turn.step == Step::Working && !turn.stopping && turn.gave_up.is_none() {
            turn.failed_requests += 1;
            if turn.failed_requests > max_retries {
                turn.gave_up = Some(failure);
                return self.stop_session(run, sink);
            }
        }
        sink.retry_of(run, failure);
    }

    /// Tells the agent to cancel the current turn.
    fn stop_session(&mut self, run: RunId, sink: &mut Sink) {
        let Some(session) = self.turns.get(&run).and_then(|turn| turn.session.clone()) else { return };
        if self.link.as_mut().is_some_and(|link| link.take_cancelled(&session)) {
            return;
        }
        sink.frame(rpc::notification("session/cancel", &json!({"sessionId": session})));
    }
}

impl Dialogue for Acp {
    fn room(&self) -> Concurrency {
        Concurrency::Sessions
    }

    fn started(&mut self, sink: &mut Sink) {
        if self.link.is_some() {
            return sink.ready();
        }
        self.initialize(sink);
    }

    fn prompt(&mut self, run: RunId, spec: &TurnSpec, sink: &mut Sink) {
        if let Some(message) = &spec.client_message {
            return self.client_prompt(run, spec, message, sink);
        }
        self.turns.insert(run, Turn::new(spec));
        if let Some(failure) = self.broken.clone() {
            self.fail(run, Some(failure), sink);
        } else if self.capabilities.as_ref().is_some_and(|c| c.ready) {
            self.open(run, sink);
        }
    }

    fn reprompt(&mut self, run: RunId, prompt: &str, sink: &mut Sink) {
        self.send_prompt(run, prompt, false, sink);
    }

    fn line(&mut self, line: InputLine<'_>, sink: &mut Sink) {
        match line.stream {
            Stream::Stdout => self.stdout(line.text, sink),
            Stream::Stderr => {
                if let Some((session, failure)) = self.profile.failed_request(line.text) {
                    self.request_failed(&session, failure, sink);
                }
                self.profile.stderr(line.text, sink);
            }
            Stream::Side(run, SideChannel::SessionFile) => {
                self.profile.session_line(run, line.text, sink);
                if let Some(failure) = self.profile.recorded_failure(line.text) {
                    if self.profile.records_ends() {
                        sink.recorded(run, Some(failure.clone()));
                    }
                    self.request_retried(run, failure, sink);
                }
                if let Some(turn) = self.turns.get_mut(&run) {
                    turn.unreported.extend(self.profile.unreported(line.text));
                    // The session file is read at arbitrary times, and a call in the middle of an answer would split
                    // its text.
                    if turn.step == Step::Answered {
                        turn.report_unreported(run, &*self.profile, sink);
                    }
                }
            }
            Stream::Side(run, SideChannel::ToolHost) => {
                if let Some(turn) = self.turns.get_mut(&run)
                    && turn.hosted.line(run, line.text, sink)
                    && turn.step == Step::Listing
                {
                    self.wait_for_tools(run, sink);
                }
            }
        }
    }

    fn answer(&mut self, ask: HostRequestId, answer: &HostResponse, sink: &mut Sink) {
        if self.link.is_some() {
            self.answer_of_link(ask, answer, sink);
        } else if let Some(question) = self.questions.remove(&ask) {
            self.answer_question(question, answer, sink);
        }
    }

    fn client_message(&mut self, text: &str, sink: &mut Sink) {
        self.pass_to_agent(text, sink);
    }

    fn ask_client(&mut self, ask: HostRequestId, sink: &mut Sink) {
        self.pass_to_client(ask, sink);
    }

    fn cancel(&mut self, run: RunId, sink: &mut Sink) -> bool {
        let Some(turn) = self.turns.get_mut(&run) else { return true };
        turn.stopping = true;
        turn.tools.stopping = true;
        if turn.step == Step::Working {
            self.stop_session(run, sink);
            self.answer_open_requests(run, sink);
        } else {
            // No prompt was sent, so the run can end immediately.
            self.fail(run, None, sink);
        }
        true
    }

    fn exit(&mut self, exit: ExitReason, sink: &mut Sink) {
        for (run, turn) in &mut self.turns {
            turn.held.restore(*run, sink);
        }
        self.profile.exit(exit, sink);
    }

    fn finish(&mut self, run: RunId, sink: &mut Sink) {
        let turn = self.turns.remove(&run);
        if let Some(doubt) = turn.as_ref().and_then(|turn| turn.spent.doubt())
            && !self.profile.has_recorded_usage(run)
        {
            sink.event(run, doubt);
        }
        self.profile.forget(run);
        if let Some(turn) = &turn
            && turn.spec.ends_session
            && let Some(session) = &turn.session
        {
            self.close(run, session, sink);
        }
        let left = turn.map(|turn| turn.tools.open()).unwrap_or_default();
        self.questions.retain(|_, question| question.run != run);
        for session in self.sessions.values_mut().filter(|session| session.run == Some(run)) {
            session.run = None;
            session.left.extend(left.iter().cloned());
        }
    }

    fn records_answers(&self) -> bool {
        self.profile.records_answers()
    }

    fn broken(&self) -> Option<Failure> {
        self.broken.clone()
    }
}
