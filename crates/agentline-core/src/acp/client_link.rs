//! A connection between a client and an agent that both speak ACP. Frames pass through it unchanged, and the dialogue
//! observes them: it opens no session and sends no prompt of its own.
//!
//! The host decides first on what the agent asks the client for. Where an agent deviates from the protocol, its profile
//! says how, and the frame is repaired.

mod opening;
mod questions;

use super::{Acp, Step, Turn, profile::Chunk};
use crate::{
    ClientSessions, Failure, FailureKind, HostRequestId, RunId, SessionTarget, Sink, TurnSpec,
    rpc::{self, INTERNAL_ERROR, RpcMessage, RpcResult},
    wire::{Str, wire},
};
use opening::{OpeningSession, with_meta};
use questions::HeldRequest;
use serde_json::{json, value::RawValue};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// The prefix of the ids of requests that this module sends to the agent.
const OWN_ID: &str = "agentline-";
/// The prefix of the methods of agentline's own scripts in the agent's process, which report to agentline.
const OWN_METHOD: &str = "_agentline/";

/// The state of the frames between the client and the agent.
#[derive(Debug, Default)]
pub(super) struct ClientLink {
    sessions: ClientSessions,
    /// The requests that the agent has not answered, by id as it was written.
    calls: HashMap<String, ClientCall>,
    /// The agent's requests that the host decides on, and that the client may get afterwards.
    held: BTreeMap<HostRequestId, HeldRequest>,
    /// The agent's requests that the client has got after the host has left the decision to it, by id.
    asked: HashMap<String, HostRequestId>,
    /// The client's answers to these.
    replies: BTreeMap<HostRequestId, String>,
    /// Sessions in which the client itself has cancelled the prompt.
    cancelled: BTreeSet<String>,
    /// The sessions that the client gets once they are configured.
    opening: HashMap<String, OpeningSession>,
    last_own: u64,
}

/// A request of the client, or one of our own.
#[derive(Debug)]
enum ClientCall {
    Initialize,
    Open {
        loaded: Option<String>,
    },
    SetMode {
        session: String,
        mode: String,
    },
    Prompt(RunId),
    /// A request of our own that configures this session.
    Configure {
        opening: String,
        must: Option<String>,
    },
    Other,
}

wire! { struct OpenedSession<'a> { session: Str<'a> = "sessionId" } }
wire! { struct ModeParams<'a> { session: Str<'a> = "sessionId", mode: Str<'a> = "modeId" } }
wire! { struct UpdateParams<'a> { session: Str<'a> = "sessionId", update: UpdateChunk<'a> = "update" } }
wire! { struct UpdateChunk<'a> { kind: Str<'a> = "sessionUpdate", content: TextContent<'a> = "content" } }
wire! { struct TextContent<'a> { text: Option<Str<'a>> = "text" } }

impl ClientLink {
    pub(super) fn new(sessions: ClientSessions) -> Self {
        Self { sessions, ..Self::default() }
    }

    fn own_id(&mut self) -> String {
        self.last_own += 1;
        format!("\"{OWN_ID}{}\"", self.last_own)
    }

    /// Notes that the client has cancelled a session, so that the agent gets one notification. Returns whether it has.
    pub(super) fn take_cancelled(&mut self, session: &str) -> bool {
        self.cancelled.remove(session)
    }
}

impl Acp {
    /// Handles a frame of the client. Prompts arrive as runs instead.
    pub(super) fn pass_to_agent(&mut self, text: &str, sink: &mut Sink) {
        let Some(message) = rpc::read(text) else { return };
        match message {
            RpcMessage::Request { id, method, params } => {
                let opened = || serde_json::from_str::<OpenedSession<'_>>(params.get()).unwrap_or_default();
                let call = match &*method {
                    "initialize" => ClientCall::Initialize,
                    "session/new" | "session/fork" => ClientCall::Open { loaded: None },
                    "session/load" | "session/resume" => {
                        ClientCall::Open { loaded: Some(opened().session.own()) }
                    }
                    "session/set_mode" => {
                        let params = serde_json::from_str::<ModeParams<'_>>(params.get()).unwrap_or_default();
                        ClientCall::SetMode { session: params.session.own(), mode: params.mode.own() }
                    }
                    _ => ClientCall::Other,
                };
                let opens = matches!(call, ClientCall::Open { .. });
                let Some(link) = &mut self.link else { return };
                link.calls.insert(rpc::id_key(id), call);
                let changed = if opens { with_meta(text, link.sessions.meta.as_deref()) } else { None };
                sink.frame(line(changed.as_deref().unwrap_or(text)));
            }
            RpcMessage::Notification { method, params } => {
                if method == "session/cancel" {
                    let opened = serde_json::from_str::<OpenedSession<'_>>(params.get()).unwrap_or_default();
                    self.client_cancelled(&opened.session);
                }
                sink.frame(line(text));
            }
            RpcMessage::Response { id, result } => self.client_answered(id, result, text, sink),
        }
    }

    fn client_cancelled(&mut self, session: &str) {
        let run = self.sessions.get(session).and_then(|session| session.run);
        let works = run.and_then(|run| self.turns.get(&run)).is_some_and(|turn| turn.step == Step::Working);
        if let Some(link) = self.link.as_mut().filter(|_| works) {
            link.cancelled.insert(session.to_owned());
        }
    }

    /// Sends the prompt of the client as it is.
    pub(super) fn client_prompt(&mut self, run: RunId, spec: &TurnSpec, frame: &str, sink: &mut Sink) {
        self.turns.insert(run, Turn::new(spec));
        let SessionTarget::Open(id) = &spec.session else { return self.fail(run, None, sink) };
        if let Some(failure) = self.broken.clone().or_else(|| self.profile.refuse(spec)) {
            return self.fail(run, Some(failure), sink);
        }
        // A client may know sessions that were opened with a method of a later version.
        self.sessions.entry(id.clone()).or_default().open = true;
        if self.is_in_use(id, run) {
            let text = format!("another prompt is active in the session {id}");
            return self.fail(run, Some(Failure::new(FailureKind::Input, text)), sink);
        }
        let request = match rpc::read(frame) {
            Some(RpcMessage::Request { id, .. }) => rpc::id_key(id),
            _ => return self.fail(run, None, sink),
        };
        self.enter(run, id.clone(), sink);
        if let Some(turn) = self.turns.get_mut(&run) {
            turn.step = Step::Working;
            turn.prompts += 1;
        }
        if let Some(link) = &mut self.link {
            link.cancelled.remove(id);
            link.calls.insert(request, ClientCall::Prompt(run));
        }
        sink.frame(line(frame));
    }

    /// Handles a message of the agent: observes it, and passes it on to the client.
    pub(super) fn message_for_client(&mut self, message: RpcMessage<'_>, text: &str, sink: &mut Sink) {
        match message {
            RpcMessage::Response { id, result } => self.response_for_client(id, result, text, sink),
            RpcMessage::Request { id, method, params } => {
                let asks = [
                    "session/request_permission",
                    "fs/read_text_file",
                    "fs/write_text_file",
                    "terminal/create",
                ];
                if !asks.contains(&&*method) {
                    if let Some(run) = self.addressee(params) {
                        sink.alive(run);
                    }
                    return sink.client(text);
                }
                if let Some(ask) = self.question(id, &method, params, sink) {
                    self.hold(ask, id, text);
                }
            }
            RpcMessage::Notification { method, params } => {
                if let Some(repaired) = self.repaired(&method, params, text) {
                    sink.client(&repaired);
                }
                self.message(RpcMessage::Notification { method, params }, text, sink);
            }
        }
    }

    /// Returns a notification for the client, or `None` if it is noise of the agent or not for the client.
    fn repaired(&self, method: &str, params: &RawValue, text: &str) -> Option<String> {
        let same = || Some(text.to_owned());
        if method.starts_with(OWN_METHOD) {
            return None;
        }
        if method != "session/update" {
            return same();
        }
        let params = serde_json::from_str::<UpdateParams<'_>>(params.get()).unwrap_or_default();
        let chunk = match (&*params.update.kind, params.update.content.text) {
            ("agent_message_chunk", Some(text)) => self.profile.message_chunk(&text),
            ("agent_thought_chunk", Some(text)) => self.profile.thought_chunk(&text),
            _ => Chunk::Plain,
        };
        match chunk {
            Chunk::Mode(mode) => {
                let update = json!({"sessionUpdate": "current_mode_update", "currentModeId": mode});
                let params = json!({"sessionId": &*params.session, "update": update});
                Some(rpc::notification("session/update", &params))
            }
            Chunk::Noise => None,
            Chunk::Plain | Chunk::Failed(_) => same(),
        }
    }

    fn response_for_client(&mut self, id: &RawValue, result: RpcResult<'_>, text: &str, sink: &mut Sink) {
        let Some(link) = &mut self.link else { return };
        let key = rpc::id_key(id);
        let (call, is_quoted) = match link.calls.remove(&key) {
            Some(call) => (call, false),
            // Some agents return a number as a string.
            None => match link.calls.remove(key.trim_matches('"')) {
                Some(call) => (call, true),
                None => return sink.client(text),
            },
        };
        let repaired = is_quoted.then(|| with_unquoted_id(text, id)).flatten();
        let text = repaired.as_deref().unwrap_or(text);
        match call {
            ClientCall::Initialize => self.initialized_for_client(id, result, text, sink),
            ClientCall::Open { loaded } => self.opened_for_client(loaded, result, text, sink),
            ClientCall::SetMode { session, mode } => {
                if let (Ok(_), Some(session)) = (&result, self.sessions.get_mut(&session)) {
                    session.modes.current = Some(mode);
                }
                sink.client(text);
            }
            ClientCall::Prompt(run) => {
                sink.client(text);
                self.answered(run, result, sink);
            }
            ClientCall::Configure { opening, must } => self.configured(&opening, must, result, sink),
            ClientCall::Other => sink.client(text),
        }
    }

    fn initialized_for_client(&mut self, id: &RawValue, result: RpcResult<'_>, text: &str, sink: &mut Sink) {
        if result.is_ok() {
            self.initialized(result, sink);
        }
        match self.broken.as_ref().map(|failure| failure.message.clone()) {
            Some(message) => sink.client(&rpc::refuse(id, INTERNAL_ERROR, &message)),
            None => sink.client(text),
        }
    }
}

fn line(frame: &str) -> String {
    format!("{frame}\n")
}

/// Returns a response with the number as its id that the agent has returned as a string.
fn with_unquoted_id(text: &str, id: &RawValue) -> Option<String> {
    let at = (id.get().as_ptr() as usize).checked_sub(text.as_ptr() as usize)?;
    let (before, after) = (text.get(..at)?, text.get(at + id.get().len()..)?);
    Some(format!("{before}{}{after}", id.get().trim_matches('"')))
}
