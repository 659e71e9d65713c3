//! The surface `stream-json` of Claude Code in both directions: one process with one session, and one message per line.
//!
//! The process is initialized before it has a prompt, so that it can be kept for a later run. Requests and responses in
//! both directions are *control* messages (`control.rs`). Everything else reports the work on a prompt (`messages.rs`)
//! and its end (`result.rs`).

mod control;
mod messages;
mod result;

use super::failures::{self, ReportedError};
use crate::{
    Concurrency, Dialogue, DialogueConfig, Event, Failure, FailureKind, HostRequestId, HostResponse,
    InputLine, McpServer, ModelInfo, RunId, SessionTarget, SideChannel, Sink, Started, Stream, TurnEnd,
    TurnSpec,
    hosted_tools::HostedTools,
    wire::{Str, Tolerant as _, wire},
};
use control::{ControlCall, PendingPermission};
use messages::StreamedMessage;
use result::SessionTotals;
use std::collections::BTreeMap;

wire! { struct Line<'a> { kind: Str<'a> = "type", subtype: Str<'a> = "subtype" } }

wire! { struct Init<'a> {
    session: Str<'a> = "session_id", model: Str<'a> = "model", version: Str<'a> = "claude_code_version",
} }

/// The state of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Waiting until the process is initialized.
    Waiting,
    /// Setting the mode, the model and the MCP servers.
    Configuring,
    /// Waiting for the agent to list the tools that the host serves.
    Listing,
    /// The agent is working on a prompt.
    Working,
    /// The agent has answered, or the run failed before its prompt.
    Answered,
}

/// The current run.
#[derive(Debug)]
struct Turn {
    run: RunId,
    spec: TurnSpec,
    step: Step,
    /// Whether the run is being cancelled.
    stopping: bool,
    /// Whether the prompt has been sent, so that the agent works or has answered.
    prompts: u32,
    has_started: bool,
    hosted: HostedTools,
    /// The open tool calls: their native names and, if the host has refused them, the reasons.
    calls: BTreeMap<String, OpenCall>,
    /// The last message of the model, for the main agent and for each sub-agent.
    messages: BTreeMap<String, StreamedMessage>,
    /// Whether text has arrived since the last prompt.
    has_text: bool,
    /// Whether the model began a message again after part of it was shown.
    is_repeated: bool,
    /// The last error of the model's service.
    error: Option<ReportedError>,
    /// The tokens of all prompts of the run, by model.
    models: BTreeMap<String, crate::Tokens>,
}

/// An open tool call.
#[derive(Debug, Default)]
struct OpenCall {
    native: String,
    /// Why the call was refused.
    refused: Option<String>,
}

/// The dialogue with one process.
#[derive(Debug)]
pub(super) struct ClaudeStream {
    config: DialogueConfig,
    is_ready: bool,
    /// Why the agent is unusable, if it is.
    broken: Option<Failure>,
    models: Vec<ModelInfo>,
    /// The settings that are in force.
    mode: Option<String>,
    model: Option<String>,
    servers: BTreeMap<String, McpServer>,
    /// Whether the session has had a prompt.
    is_used: bool,
    turn: Option<Turn>,
    pending: BTreeMap<String, ControlCall>,
    last_request: u32,
    questions: BTreeMap<HostRequestId, PendingPermission>,
    totals: SessionTotals,
}

impl ClaudeStream {
    pub(super) fn new(config: &DialogueConfig) -> Self {
        Self {
            config: config.clone(),
            is_ready: false,
            broken: None,
            models: Vec::new(),
            mode: None,
            model: config.model.clone(),
            servers: BTreeMap::new(),
            is_used: false,
            turn: None,
            pending: BTreeMap::new(),
            last_request: 0,
            questions: BTreeMap::new(),
            totals: SessionTotals::new(config.resumes),
        }
    }

    /// Returns the run that the agent works for.
    fn working(&self) -> Option<RunId> {
        self.turn.as_ref().filter(|turn| turn.step == Step::Working).map(|turn| turn.run)
    }

    /// Ends the run without an answer from the agent.
    fn fail(&mut self, failure: Option<Failure>, sink: &mut Sink) {
        self.end(TurnEnd::failed(failure), sink);
    }

    fn end(&mut self, end: TurnEnd, sink: &mut Sink) {
        if let Some(turn) = self.turn.as_mut().filter(|turn| turn.step != Step::Answered) {
            turn.step = Step::Answered;
            sink.end(turn.run, end);
        }
    }

    /// Marks the agent as unusable.
    fn fail_all(&mut self, failure: Failure, sink: &mut Sink) {
        self.broken = Some(failure.clone());
        self.fail(Some(failure), sink);
        sink.shut();
    }

    /// Returns why this process cannot serve the session that a run requests.
    fn refuses(&self, target: &SessionTarget) -> Option<Failure> {
        let own = self.config.session_id.as_ref();
        let (fits, wanted) = match target {
            SessionTarget::New | SessionTarget::Named(_) => {
                (!self.is_used && !self.config.resumes, "a new session")
            }
            SessionTarget::Open(id) | SessionTarget::Load(id) => (own == Some(id), id.as_str()),
        };
        (!fits).then(|| {
            let text = format!("this process has a session of its own and cannot open {wanted}");
            Failure::new(FailureKind::SessionNotFound, text)
        })
    }

    fn stdout(&mut self, text: &str, sink: &mut Sink) {
        sink.read_objects(None, text, |object, sink| {
            let line = serde_json::from_str::<Line<'_>>(object).ok().filter(|line| line.is_object());
            line.map(|line| self.message(&line, object, sink)).is_some()
        });
    }

    fn message(&mut self, line: &Line<'_>, text: &str, sink: &mut Sink) {
        match (&*line.kind, &*line.subtype) {
            ("control_response", _) => self.control_response(text, sink),
            ("control_request", _) => self.control_request(text, sink),
            ("control_cancel_request", _) => self.control_cancelled(text, sink),
            ("keep_alive", _) => {}
            ("result", _) => self.result(text, sink),
            _ => {
                let Some(run) = self.working() else { return };
                match (&*line.kind, &*line.subtype) {
                    ("assistant", _) => self.assistant(run, text, sink),
                    ("user", _) => self.user(run, text, sink),
                    ("stream_event", _) => self.stream_event(run, text, sink),
                    ("system", "init") => self.init(run, text, sink),
                    ("system", "api_retry") => self.api_retry(run, text, sink),
                    ("system", "permission_denied") => self.permission_denied(run, text, sink),
                    // Estimates and states that other messages report exactly.
                    ("system", "thinking_tokens" | "status" | "session_state_changed") => sink.alive(run),
                    // Hooks, compactions, background tasks, and messages of later versions.
                    _ => sink.event(run, Event::agent(text)),
                }
            }
        }
    }

    /// Handles the description of the session, which precedes every answer.
    fn init(&mut self, run: RunId, text: &str, sink: &mut Sink) {
        let init = serde_json::from_str::<Init<'_>>(text).unwrap_or_default();
        sink.alive(run);
        let filled = |text: Str<'_>| Some(text.own()).filter(|text| !text.is_empty());
        let (session, model, version) = (filled(init.session), filled(init.model), filled(init.version));
        if session.is_some() {
            self.config.session_id = session;
        }
        self.report_start(model, version, sink);
    }

    /// Reports the start of the run, once.
    fn report_start(&mut self, model: Option<String>, version: Option<String>, sink: &mut Sink) {
        let Some(turn) = self.turn.as_mut() else { return };
        if std::mem::replace(&mut turn.has_started, true) {
            return;
        }
        let started = Started {
            session_id: self.config.session_id.clone(),
            model: model.or_else(|| turn.spec.model.as_ref().map(|wish| wish.id.clone())),
            agent_version: version,
            models: if turn.spec.only_open { self.models.clone() } else { Vec::new() },
            ..Started::default()
        };
        sink.event(turn.run, started);
    }
}

impl Dialogue for ClaudeStream {
    fn room(&self) -> Concurrency {
        Concurrency::Turns
    }

    fn started(&mut self, sink: &mut Sink) {
        self.initialize(sink);
    }

    fn prompt(&mut self, run: RunId, spec: &TurnSpec, sink: &mut Sink) {
        self.turn = Some(Turn {
            run,
            spec: spec.clone(),
            step: Step::Waiting,
            stopping: false,
            prompts: 0,
            has_started: false,
            hosted: HostedTools::default(),
            calls: BTreeMap::new(),
            messages: BTreeMap::new(),
            has_text: false,
            is_repeated: false,
            error: None,
            models: BTreeMap::new(),
        });
        if let (SessionTarget::Open(_), Some(turn)) = (&spec.session, &mut self.turn)
            && !spec.servers.is_empty()
            && spec.servers != self.servers
        {
            // Setting them would remove the tools of the host.
            turn.spec.servers.clear();
            let text = "an open session keeps its MCP servers; the MCP servers of this run are ignored";
            sink.event(run, Event::warning("mcp_server", text));
        }
        if let Some(failure) = self.broken.clone().or_else(|| self.refuses(&spec.session)) {
            self.fail(Some(failure), sink);
        } else if self.is_ready {
            self.configure(sink);
        }
    }

    fn reprompt(&mut self, run: RunId, prompt: &str, sink: &mut Sink) {
        if self.turn.as_ref().is_some_and(|turn| turn.run == run) {
            self.send_prompt(prompt, false, sink);
        }
    }

    fn line(&mut self, line: InputLine<'_>, sink: &mut Sink) {
        match line.stream {
            Stream::Stdout => self.stdout(line.text, sink),
            Stream::Stderr => {
                sink.stderr(line.text);
                if let Some(failure) = failures::of_stderr(line.text) {
                    sink.hint(None, failure);
                }
            }
            Stream::Side(run, SideChannel::ToolHost) => {
                if let Some(turn) = self.turn.as_mut().filter(|turn| turn.run == run)
                    && turn.hosted.line(run, line.text, sink)
                    && turn.step == Step::Listing
                {
                    self.configure(sink);
                }
            }
            Stream::Side(..) => {}
        }
    }

    fn answer(&mut self, ask: HostRequestId, answer: &HostResponse, sink: &mut Sink) {
        if let Some(question) = self.questions.remove(&ask) {
            self.answer_question(question, answer, sink);
        }
    }

    fn cancel(&mut self, run: RunId, sink: &mut Sink) -> bool {
        let Some(turn) = self.turn.as_mut().filter(|turn| turn.run == run) else { return true };
        turn.stopping = true;
        if turn.step == Step::Working {
            self.interrupt(sink);
        } else {
            // No prompt was sent, so the run can end immediately.
            self.fail(None, sink);
        }
        true
    }

    fn finish(&mut self, run: RunId, sink: &mut Sink) {
        let _ = sink;
        self.turn = self.turn.take().filter(|turn| turn.run != run);
        self.questions.retain(|_, question| question.run != run);
    }

    fn broken(&self) -> Option<Failure> {
        self.broken.clone()
    }
}
