//! The surface `app-server` of Codex: JSON-RPC over standard input and output, with many threads in one process.
//!
//! A thread is a session. Request ids are derived from the run, so that one run extracted from a shared tape replays
//! identically.

mod approval;
mod opening;
mod progress;

use super::failures::{self, FailedRequests};
use crate::{
    Concurrency, Dialogue, DialogueConfig, Failure, HostRequestId, HostResponse, InputLine, ModelInfo, RunId,
    SideChannel, Sink, Stream, TurnEnd, TurnSpec,
    hosted_tools::HostedTools,
    rpc::{self, PendingCalls, RpcMessage, RpcResult},
    wire::{Str, wire},
};
use approval::PendingApproval;
use progress::Calls;
use serde_json::{Value, json, value::RawValue};
use std::collections::BTreeMap;

/// The kind of a pending request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    Initialize,
    /// The list of models.
    Models,
    /// `thread/start` or `thread/resume`.
    Open,
    Turn,
    /// A request whose response is ignored.
    Other,
}

impl Call {
    /// Returns the number of the request within its run. At most one request of each kind is pending at a time.
    fn number(self, turn: u32) -> u64 {
        match self {
            Self::Initialize => 0,
            Self::Models => 1,
            Self::Open => 3,
            Self::Other => 4,
            Self::Turn => 16 + u64::from(turn % 4000),
        }
    }
}

/// The state of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Waiting for the process to be initialized.
    Waiting,
    /// Opening the thread.
    Opening,
    /// Waiting for the agent to list the tools that the host serves.
    Listing,
    /// The agent is working on a prompt.
    Working,
    /// The turn has ended.
    Answered,
}

/// One run on this connection.
#[derive(Debug)]
struct AppServerRun {
    spec: TurnSpec,
    thread: Option<String>,
    step: Step,
    /// Whether the run is being cancelled.
    stopping: bool,
    turns: u32,
    /// The id of the current turn, which `turn/interrupt` needs.
    turn: Option<String>,
    calls: Calls,
    hosted: HostedTools,
    /// Whether text has arrived since the last prompt.
    has_text: bool,
    /// The id of a message whose text has begun.
    unfinished: Option<String>,
    /// Whether a message was interrupted and sent again.
    is_repeated: bool,
    failed_requests: FailedRequests,
    /// Why the turn was interrupted although the agent would have tried again.
    gave_up: Option<Failure>,
}

/// A thread that is open on this connection.
#[derive(Debug, Default)]
struct CodexThread {
    run: Option<RunId>,
    model: Option<String>,
    /// The id of the last turn of an earlier run. A command of a cancelled turn may be reported long after its end.
    ended_turn: Option<String>,
}

/// The dialogue with one process.
pub(super) struct AppServer {
    version: Option<String>,
    ready: bool,
    /// Why the agent is unusable, if it is.
    broken: Option<Failure>,
    pending: PendingCalls<Call>,
    runs: BTreeMap<RunId, AppServerRun>,
    threads: BTreeMap<String, CodexThread>,
    models: Option<Vec<ModelInfo>>,
    approvals: BTreeMap<HostRequestId, PendingApproval>,
}

wire! { struct Addressed<'a> { thread: Str<'a> = "threadId" } }

impl AppServer {
    pub(super) fn new(config: &DialogueConfig) -> Self {
        Self {
            version: config.version.map(|version| version.to_string()),
            ready: false,
            broken: None,
            pending: PendingCalls::default(),
            runs: BTreeMap::new(),
            threads: BTreeMap::new(),
            models: None,
            approvals: BTreeMap::new(),
        }
    }

    fn call(&mut self, run: RunId, call: Call, method: &str, params: &Value, sink: &mut Sink) {
        let turn = self.runs.get(&run).map_or(0, |run| run.turns);
        sink.frame(self.pending.request(run, call, call.number(turn), method, params));
    }

    /// Ends a run whose turn was not started or cannot be.
    fn fail(&mut self, run: RunId, failure: Option<Failure>, sink: &mut Sink) {
        self.end(run, TurnEnd::failed(failure), sink);
    }

    fn end(&mut self, run: RunId, end: TurnEnd, sink: &mut Sink) {
        if let Some(state) = self.runs.get_mut(&run).filter(|run| run.step != Step::Answered) {
            state.step = Step::Answered;
            sink.end(run, end);
        }
    }

    fn stdout(&mut self, text: &str, sink: &mut Sink) {
        sink.read_objects(None, text, |object, sink| {
            rpc::read(object).map(|message| self.message(message, object, sink)).is_some()
        });
    }

    fn message(&mut self, message: RpcMessage<'_>, text: &str, sink: &mut Sink) {
        match message {
            RpcMessage::Notification { method, params } => self.notification(&method, params, text, sink),
            RpcMessage::Request { id, method, params } => self.request(id, &method, params, sink),
            RpcMessage::Response { id, result } => {
                if let Some((run, call)) = self.pending.take(id) {
                    self.reply(run, call, result, sink);
                }
            }
        }
    }

    fn reply(&mut self, run: RunId, call: Call, result: RpcResult<'_>, sink: &mut Sink) {
        match call {
            Call::Initialize => self.initialized(result, sink),
            Call::Models => self.models_listed(run, result, sink),
            Call::Open => self.opened(run, result, sink),
            Call::Turn => self.turn_accepted(run, result, sink),
            Call::Other => {}
        }
    }

    /// Returns the run in the thread that a message refers to.
    fn addressee(&self, params: &RawValue) -> Option<RunId> {
        let thread = serde_json::from_str::<Addressed<'_>>(params.get()).unwrap_or_default().thread;
        self.threads.get(&*thread)?.run
    }

    /// Interrupts the current turn of a run, as soon as its id is known.
    fn interrupt(&mut self, run: RunId, sink: &mut Sink) {
        let Some(state) = self.runs.get(&run).filter(|run| run.step == Step::Working) else { return };
        if let (Some(thread), Some(turn)) = (&state.thread, &state.turn) {
            let params = json!({"threadId": thread, "turnId": turn});
            self.call(run, Call::Other, "turn/interrupt", &params, sink);
        }
    }
}

impl Dialogue for AppServer {
    fn room(&self) -> Concurrency {
        Concurrency::Sessions
    }

    fn started(&mut self, sink: &mut Sink) {
        self.initialize(sink);
    }

    fn prompt(&mut self, run: RunId, spec: &TurnSpec, sink: &mut Sink) {
        let state = AppServerRun {
            spec: spec.clone(),
            thread: None,
            step: Step::Waiting,
            stopping: false,
            turns: 0,
            turn: None,
            calls: Calls::default(),
            hosted: HostedTools::default(),
            has_text: false,
            unfinished: None,
            is_repeated: false,
            failed_requests: FailedRequests::default(),
            gave_up: None,
        };
        self.runs.insert(run, state);
        if let Some(failure) = self.broken.clone() {
            self.fail(run, Some(failure), sink);
        } else if self.ready {
            self.open(run, sink);
        }
    }

    fn reprompt(&mut self, run: RunId, prompt: &str, sink: &mut Sink) {
        self.start_turn(run, prompt, false, sink);
    }

    fn line(&mut self, line: InputLine<'_>, sink: &mut Sink) {
        match line.stream {
            Stream::Stdout => self.stdout(line.text, sink),
            Stream::Stderr => failures::stderr_line(line.text, sink),
            Stream::Side(run, SideChannel::ToolHost) => {
                if let Some(state) = self.runs.get_mut(&run)
                    && state.hosted.line(run, line.text, sink)
                    && state.step == Step::Listing
                {
                    self.wait_for_tools(run, sink);
                }
            }
            Stream::Side(..) => {}
        }
    }

    fn answer(&mut self, ask: HostRequestId, answer: &HostResponse, sink: &mut Sink) {
        if let Some(approval) = self.approvals.remove(&ask) {
            self.answer_approval(approval, answer, sink);
        }
    }

    fn cancel(&mut self, run: RunId, sink: &mut Sink) -> bool {
        let Some(state) = self.runs.get_mut(&run) else { return true };
        state.stopping = true;
        if state.step == Step::Working {
            self.interrupt(run, sink);
            self.cancel_approvals(run, sink);
        } else {
            // No turn was started, so the run can end immediately.
            self.fail(run, None, sink);
        }
        true
    }

    fn finish(&mut self, run: RunId, sink: &mut Sink) {
        self.approvals.retain(|_, approval| approval.run != run);
        let Some(state) = self.runs.remove(&run) else { return };
        let Some(thread) = state.thread else { return };
        if let Some(open) = self.threads.get_mut(&thread).filter(|open| open.run == Some(run)) {
            open.run = None;
            open.ended_turn = state.turn.or(open.ended_turn.take());
        }
        if state.spec.ends_session && self.threads.remove(&thread).is_some() {
            // A thread keeps its MCP servers running until it has no subscribers.
            self.call(run, Call::Other, "thread/unsubscribe", &json!({"threadId": thread}), sink);
        }
    }

    fn broken(&self) -> Option<Failure> {
        self.broken.clone()
    }
}
