//! The dialogue for `opencode serve`: requests over HTTP, and one stream of events for all sessions of the process.
//!
//! A prompt is a request whose response is the last message of its turn. Everything before it arrives as events. A turn
//! has ended when its response has arrived and its session is idle, because then all of its events have arrived too.

mod calls;
mod events;
mod opening;
mod permission;
mod turn;

use super::failures;
use crate::{
    Concurrency, Dialogue, Event, ExitReason, Failure, FailureKind, HostRequestId, HostResponse, InputLine,
    McpServer, RunId, SideChannel, Sink, Stream, TurnEnd, TurnSpec,
    wire::{Num, Str, wire},
};
use permission::Question;
use serde_json::{Value, json, value::RawValue};
use std::collections::{BTreeMap, BTreeSet};
use turn::{ServeStep, ServeTurn};

wire! { struct Message<'a> {
    stream: Str<'a> = "stream", event: Option<&'a RawValue> = "event", id: Num = "id", status: Num = "status",
    body: Option<&'a RawValue> = "body", error: Option<Str<'a>> = "error",
} }

/// A request whose response matters.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Call {
    /// Creates or reads the session.
    Open,
    /// Lists the sessions of the workspace, newest first.
    Latest,
    /// Lists the providers and their models.
    Models,
    /// Adds an MCP server.
    Server(String),
    Prompt,
    /// Reads the messages of the session after events may have been lost.
    Messages,
    /// Any other request, whose response is ignored.
    Other,
}

impl Call {
    /// Returns the number of the request within its run. `count` distinguishes requests of the same kind.
    fn number(&self, count: u16) -> u64 {
        let kind = match self {
            Self::Open => 1,
            Self::Latest => 2,
            Self::Models => 3,
            Self::Server(_) => 4,
            Self::Prompt => 5,
            Self::Messages => 6,
            Self::Other => 7,
        };
        kind << 16 | u64::from(count)
    }
}

/// The response to a request.
struct Reply<'a> {
    /// The HTTP status, or `None` if there is no response.
    status: Option<u64>,
    body: &'a str,
    error: Option<String>,
}

wire! { struct ErrorBody<'a> {
    name: Str<'a> = "name", tag: Str<'a> = "_tag", message: Str<'a> = "message", data: ErrorText<'a> = "data",
} }
wire! { struct ErrorText<'a> { message: Str<'a> = "message" } }

impl Reply<'_> {
    fn is_ok(&self) -> bool {
        self.status.is_some_and(|status| (200..300).contains(&status))
    }

    /// Returns why the request failed. No request has reached a model, so this is never an error of its service.
    fn failure(&self, action: &str) -> Failure {
        let Some(status) = self.status else {
            let error = self.error.as_deref().unwrap_or("no response");
            return Failure::new(FailureKind::Crashed, format!("OpenCode did not answer: {error}"));
        };
        let body = serde_json::from_str::<ErrorBody<'_>>(self.body).unwrap_or_default();
        let texts = [&body.data.message, &body.message, &body.name, &body.tag];
        let text = texts.into_iter().find(|text| !text.is_empty()).map_or("no reason", |text| text);
        let message = format!("OpenCode refused to {action} (status {status}): {text}");
        match failures::kind_of(text) {
            Some(kind) => Failure::new(kind, message),
            None => Failure::new(FailureKind::Input, message),
        }
    }
}

/// A session on this connection.
#[derive(Debug, Default)]
struct ServeSession {
    /// The last run in the session, until that run is finished.
    run: Option<RunId>,
    /// The session that started this one for a sub-agent, and the call that did so.
    parent: Option<(String, Option<String>)>,
    /// Whether a run has opened the session.
    is_open: bool,
    /// Whether it has a title. Without one, OpenCode asks the model for it.
    has_title: bool,
    servers: BTreeMap<String, McpServer>,
    /// The messages of earlier runs.
    old_messages: BTreeSet<String>,
}

/// The dialogue with one process.
#[derive(Debug, Default)]
pub(super) struct Serve {
    /// Whether the event stream is open.
    is_ready: bool,
    broken: Option<Failure>,
    /// The version that OpenCode reports.
    version: Option<String>,
    pending: BTreeMap<u64, (RunId, Call)>,
    turns: BTreeMap<RunId, ServeTurn>,
    sessions: BTreeMap<String, ServeSession>,
    questions: BTreeMap<HostRequestId, Question>,
    /// The sizes of the context windows, by provider and model, once they are known.
    windows: Option<BTreeMap<String, u64>>,
}

impl Serve {
    /// Sends a request for a run.
    fn request(
        &mut self,
        run: RunId,
        call: Call,
        (method, path): (&str, &str),
        body: Option<Value>,
        sink: &mut Sink,
    ) {
        let Some(turn) = self.turns.get_mut(&run) else { return };
        turn.requests = turn.requests.wrapping_add(1);
        let id = u64::from(run.0) << 20 | call.number(turn.requests);
        let join = if path.contains('?') { '&' } else { '?' };
        let path = format!("{path}{join}directory={}", encoded(turn.directory()));
        let mut frame = json!({"id": id, "method": method, "path": path});
        body.into_iter().for_each(|body| frame["body"] = body);
        self.pending.insert(id, (run, call));
        sink.frame(format!("{frame}\n"));
    }

    fn message(&mut self, text: &str, sink: &mut Sink) {
        let message = serde_json::from_str::<Message<'_>>(text).unwrap_or_default();
        match &*message.stream {
            "open" => return self.stream_opened(sink),
            "closed" => {
                let error = message.error.map(Str::own).unwrap_or_default();
                return self.fail_all(&Failure::new(FailureKind::Crashed, error), sink);
            }
            _ => {}
        }
        if let Some(event) = message.event {
            return self.event(event, sink);
        }
        let Some((run, call)) = message.id.0.and_then(|id| self.pending.remove(&id)) else { return };
        let reply = Reply {
            status: message.status.0,
            body: message.body.map_or("null", RawValue::get),
            error: message.error.map(Str::own),
        };
        sink.alive(run);
        match call {
            Call::Open => self.opened(run, &reply, sink),
            Call::Latest => self.found_latest(run, &reply, sink),
            Call::Models => self.listed_models(run, &reply, sink),
            Call::Server(name) => self.added_server(run, &name, &reply, sink),
            Call::Prompt => self.answered(run, &reply, sink),
            Call::Messages => self.read_messages(run, &reply, sink),
            Call::Other => {}
        }
    }

    /// Starts the waiting runs, or finds out what happened while the stream was broken.
    fn stream_opened(&mut self, sink: &mut Sink) {
        if !std::mem::replace(&mut self.is_ready, true) {
            sink.ready();
        }
        let runs: Vec<(RunId, ServeStep)> = self.turns.iter().map(|(run, turn)| (*run, turn.step)).collect();
        for (run, step) in runs {
            match step {
                ServeStep::Waiting => self.open(run, sink),
                ServeStep::Working => self.read_again(run, sink),
                _ => {}
            }
        }
    }

    fn fail_all(&mut self, failure: &Failure, sink: &mut Sink) {
        self.broken = Some(failure.clone());
        for run in self.turns.keys().copied().collect::<Vec<_>>() {
            self.fail(run, Some(failure.clone()), sink);
        }
        sink.shut();
    }

    /// Ends a run without an answer.
    fn fail(&mut self, run: RunId, failure: Option<Failure>, sink: &mut Sink) {
        self.end(run, TurnEnd::failed(failure), sink);
    }

    fn end(&mut self, run: RunId, end: TurnEnd, sink: &mut Sink) {
        if let Some(turn) = self.turns.get_mut(&run).filter(|turn| turn.step != ServeStep::Answered) {
            turn.step = ServeStep::Answered;
            sink.end(run, end);
        }
    }

    /// Asks OpenCode to stop the turn of a run.
    fn abort(&mut self, run: RunId, sink: &mut Sink) {
        let Some(session) = self.turns.get(&run).and_then(|turn| turn.session.clone()) else { return };
        self.request(run, Call::Other, ("POST", &format!("/session/{session}/abort")), None, sink);
    }

    /// Stops the turn of a run that cannot succeed any more.
    fn give_up(&mut self, run: RunId, failure: Failure, sink: &mut Sink) {
        let Some(turn) = self.turns.get_mut(&run).filter(|turn| turn.given_up.is_none()) else { return };
        turn.given_up = Some(failure);
        self.abort(run, sink);
    }
}

impl Dialogue for Serve {
    fn room(&self) -> Concurrency {
        Concurrency::Sessions
    }

    fn prompt(&mut self, run: RunId, spec: &TurnSpec, sink: &mut Sink) {
        self.turns.insert(run, ServeTurn::new(spec.clone()));
        if let Some(failure) = self.broken.clone() {
            self.fail(run, Some(failure), sink);
        } else if self.is_ready {
            self.open(run, sink);
        }
    }

    fn reprompt(&mut self, run: RunId, prompt: &str, sink: &mut Sink) {
        self.send_prompt(run, prompt, false, sink);
    }

    fn line(&mut self, line: InputLine<'_>, sink: &mut Sink) {
        match line.stream {
            Stream::Stdout => self.message(line.text, sink),
            Stream::Stderr => {
                if !line.text.trim().is_empty() {
                    sink.stderr(line.text);
                }
            }
            Stream::Side(run, SideChannel::ToolHost) => {
                let turn = self.turns.get_mut(&run);
                if turn.is_some_and(|turn| turn.hosted.line(run, line.text, sink)) {
                    self.wait_for_tools(run, sink);
                }
            }
            Stream::Side(..) => {}
        }
    }

    fn answer(&mut self, ask: HostRequestId, answer: &HostResponse, sink: &mut Sink) {
        if let Some(question) = self.questions.remove(&ask) {
            self.decided(question, answer, sink);
        }
    }

    fn cancel(&mut self, run: RunId, sink: &mut Sink) -> bool {
        let Some(turn) = self.turns.get_mut(&run) else { return true };
        turn.stopping = true;
        if turn.step == ServeStep::Working {
            // This also rejects the open permission requests.
            self.questions.retain(|_, question| question.run != run);
            self.abort(run, sink);
        } else {
            // No prompt was sent, so the run can end immediately.
            self.fail(run, None, sink);
        }
        true
    }

    fn exit(&mut self, exit: ExitReason, sink: &mut Sink) {
        let _ = (exit, sink);
        self.is_ready = false;
    }

    fn finish(&mut self, run: RunId, sink: &mut Sink) {
        self.questions.retain(|_, question| question.run != run);
        self.close_servers(run, sink);
        let messages = self.turns.remove(&run).map(ServeTurn::into_messages).unwrap_or_default();
        for session in self.sessions.values_mut().filter(|session| session.run == Some(run)) {
            session.run = None;
            session.old_messages.extend(messages.iter().cloned());
        }
    }

    fn broken(&self) -> Option<Failure> {
        self.broken.clone()
    }
}

/// Encodes a text for a query.
fn encoded(text: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    text.bytes().fold(String::new(), |mut encoded, byte| {
        if is_plain(byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
        encoded
    })
}

/// Creates a warning about an MCP server.
fn server_warning(name: &str, error: &str) -> Event {
    Event::warning("mcp_server", format!("the MCP server `{name}` is unavailable: {error}"))
}

#[cfg(test)]
mod tests;
