//! A connection between a client and an agent that both speak ACP. Frames pass through it unchanged, and the dialogue
//! observes them: it opens no session and sends no prompt of its own.
//!
//! The host decides first on what the agent asks the client for. Where an agent deviates from the protocol, its profile
//! says how, and the frame is repaired.

use super::{
    Acp, Step, Turn,
    profile::Chunk,
    question::{RequestKind, is_missing_file},
};
use crate::{
    ClientSessions, Failure, FailureKind, HostRequest, HostRequestId, HostResponse, PermissionDecision,
    PermissionRequest, RunId, SessionTarget, Sink, ToolKind, TurnSpec,
    rpc::{self, INTERNAL_ERROR, RpcMessage, RpcResult},
    wire::{List, Str, wire},
};
use serde_json::{json, value::RawValue};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// The prefix of the ids of requests that this module sends to the agent.
const OWN_ID: &str = "agentline-";

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
    /// Sessions whose opening the client learns about once they are configured.
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

#[derive(Debug)]
struct HeldRequest {
    id: String,
    frame: String,
}

/// A response to `session/new` that waits until the session has its mode and model.
#[derive(Debug)]
struct OpeningSession {
    id: String,
    frame: String,
    waits_for: u32,
    failure: Option<String>,
}

wire! { struct OpenedSession<'a> { session: Str<'a> = "sessionId" } }
wire! { struct ModeParams<'a> { session: Str<'a> = "sessionId", mode: Str<'a> = "modeId" } }
wire! { struct UpdateParams<'a> { session: Str<'a> = "sessionId", update: UpdateChunk<'a> = "update" } }
wire! { struct UpdateChunk<'a> { kind: Str<'a> = "sessionUpdate", content: TextContent<'a> = "content" } }
wire! { struct TextContent<'a> { text: Option<Str<'a>> = "text" } }
wire! { struct Picked<'a> { outcome: PickedOption<'a> = "outcome" } }
wire! { struct PickedOption<'a> { option: Option<Str<'a>> = "optionId" } }
wire! { struct Terminal<'a> { command: Str<'a> = "command", args: List<Str<'a>> = "args" } }

impl ClientLink {
    pub(super) fn new(sessions: ClientSessions) -> Self {
        Self { sessions, ..Self::default() }
    }

    fn own_id(&mut self) -> String {
        self.last_own += 1;
        format!("\"{OWN_ID}{}\"", self.last_own)
    }

    /// Notes that the client has cancelled a session, so that the agent is not told twice. Returns whether it has.
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

    /// Handles a response of the client.
    fn client_answered(&mut self, id: &RawValue, result: RpcResult<'_>, text: &str, sink: &mut Sink) {
        let Some(link) = &mut self.link else { return };
        let Some(ask) = link.asked.remove(&rpc::id_key(id)) else { return sink.frame(line(text)) };
        // A request that is no longer open has its answer, for example because the prompt was cancelled.
        let Some(question) = self.questions.get(&ask) else { return };
        let answer = match (&question.kind, &result) {
            (RequestKind::Tool { options, .. }, Ok(result)) => {
                let picked =
                    serde_json::from_str::<Picked<'_>>(result.get()).unwrap_or_default().outcome.option;
                let kind = picked.and_then(|picked| options.iter().find(|(id, _)| *id == *picked));
                let allows = kind.is_some_and(|(_, kind)| kind.starts_with("allow"));
                decided(allows)
            }
            (RequestKind::Tool { .. } | RequestKind::Terminal, _) => decided(result.is_ok()),
            (RequestKind::Read, Ok(_)) => HostResponse::Text(String::new()),
            (RequestKind::Write, Ok(_)) => HostResponse::Done,
            (RequestKind::Read | RequestKind::Write, Err(error)) => {
                HostResponse::Error(error.message.to_string())
            }
        };
        let needs_empty = self.profile.quirks().empty_content_for_missing_files;
        let reply = match (&question.kind, &result) {
            (RequestKind::Read, Err(error)) if needs_empty && is_missing_file(error) => {
                rpc::response(id, &json!({"content": ""}))
            }
            _ => line(text),
        };
        link.replies.insert(ask, reply);
        sink.client_answered(question.run, ask, answer);
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
                if let Some(ask) = self.question(id, &method, params, sink)
                    && let Some(link) = &mut self.link
                {
                    let held = HeldRequest { id: rpc::id_key(id), frame: text.to_owned() };
                    link.held.insert(ask, held);
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

    /// Returns a notification for the client, or `None` if it is noise of the agent.
    fn repaired(&self, method: &str, params: &RawValue, text: &str) -> Option<String> {
        let same = || Some(text.to_owned());
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

    /// Registers a session that the client has opened, and sets the mode and the model that the host requires.
    fn opened_for_client(
        &mut self,
        loaded: Option<String>,
        result: RpcResult<'_>,
        text: &str,
        sink: &mut Sink,
    ) {
        let Ok(result) = result else { return sink.client(text) };
        let is_new = loaded.is_none();
        let opened = || super::session::id_of(result.get());
        let Some(id) = loaded.or_else(opened) else { return sink.client(text) };
        let session = self.sessions.entry(id.clone()).or_default();
        session.opened(result.get());
        session.stray = 0;
        // What a stored session has used before is unknown.
        session.cost = is_new.then_some(0.0);
        session.spent = is_new.then(Default::default);
        let (modes, models) = (session.modes.clone(), session.models.clone());
        let Some(link) = &mut self.link else { return };
        let mut frames = Vec::new();
        if let Some(wish) = link.sessions.mode.clone().filter(|wish| modes.current.as_ref() != Some(&wish.id))
        {
            let (method, params) = super::opening::mode_request(&id, &modes, &wish.id);
            frames.push((method, params, wish.must.then(|| wish.id.clone())));
            session.modes.current = Some(wish.id);
        }
        if let Some(model) =
            link.sessions.model.clone().filter(|model| models.current.as_ref() != Some(model))
        {
            let (method, params) = super::opening::model_request(&id, &models, &model);
            frames.push((method, params, None));
        }
        if frames.is_empty() {
            return sink.client(text);
        }
        let request = rpc::read(text);
        let Some(RpcMessage::Response { id: request, .. }) = request else { return };
        let waits_for = u32::try_from(frames.len()).unwrap_or(1);
        let waiting =
            OpeningSession { id: request.get().to_owned(), frame: text.to_owned(), waits_for, failure: None };
        link.opening.insert(id.clone(), waiting);
        for (method, params, must) in frames {
            let own = link.own_id();
            link.calls.insert(own.clone(), ClientCall::Configure { opening: id.clone(), must });
            if let Ok(own) = serde_json::from_str::<&RawValue>(&own) {
                sink.frame(rpc::request_with_id(own, method, &params));
            }
        }
    }

    /// Handles the response to a request that configures a new session. After the last one, the client gets the session.
    fn configured(&mut self, opening: &str, must: Option<String>, result: RpcResult<'_>, sink: &mut Sink) {
        let Some(link) = &mut self.link else { return };
        let Some(waiting) = link.opening.get_mut(opening) else { return };
        if let (Err(error), Some(mode)) = (result, must) {
            waiting.failure = Some(format!("the agent rejected the mode `{mode}`: {}", error.message));
        }
        waiting.waits_for -= 1;
        if waiting.waits_for > 0 {
            return;
        }
        let Some(OpeningSession { id, frame, failure, .. }) = link.opening.remove(opening) else { return };
        match (failure, serde_json::from_str::<&RawValue>(&id)) {
            (Some(failure), Ok(id)) => {
                self.sessions.remove(opening);
                sink.client(&rpc::refuse(id, INTERNAL_ERROR, &failure));
            }
            _ => sink.client(&frame),
        }
    }

    /// Passes a request of the agent on to the client, because the host leaves the decision to it.
    pub(super) fn pass_to_client(&mut self, ask: HostRequestId, sink: &mut Sink) {
        let Some(link) = &mut self.link else { return };
        let Some(HeldRequest { id, frame }) = link.held.remove(&ask) else { return };
        link.asked.insert(id, ask);
        sink.client(&frame);
    }

    /// Sends the answer to a request of the agent, which the host or the client has decided.
    pub(super) fn answer_of_link(&mut self, ask: HostRequestId, answer: &HostResponse, sink: &mut Sink) {
        let Some(question) = self.questions.remove(&ask) else { return };
        let Some(link) = &mut self.link else { return };
        let (held, reply) = (link.held.remove(&ask), link.replies.remove(&ask));
        let is_allowed = matches!(answer, HostResponse::PermissionDecided(ruling) if ruling.allow);
        if let (RequestKind::Terminal, true, None, Some(held)) = (&question.kind, is_allowed, &reply, held) {
            return sink.client(&held.frame);
        }
        let closes = self.silently_refused(&question.kind, question.run, is_allowed);
        let sent = sink.frames.len();
        self.answer_question(question, answer, sink);
        if let Some(reply) = reply {
            sink.frames.truncate(sent);
            sink.frame(reply);
        }
        if let Some(update) = closes {
            sink.client(&update);
        }
    }

    /// Returns the update that ends a refused call, for an agent that sends none.
    fn silently_refused(&self, kind: &RequestKind, run: RunId, is_allowed: bool) -> Option<String> {
        let RequestKind::Tool { tool, .. } = kind else { return None };
        if is_allowed || !self.profile.quirks().silent_refusal {
            return None;
        }
        let session = self.turns.get(&run)?.session.as_ref()?;
        let update = json!({"sessionUpdate": "tool_call_update", "toolCallId": tool, "status": "failed"});
        Some(rpc::notification("session/update", &json!({"sessionId": session, "update": update})))
    }

    /// Returns the request to decide about a command that the agent wants to run in a terminal of the client.
    pub(super) fn terminal(params: &RawValue) -> HostRequest {
        let terminal = serde_json::from_str::<Terminal<'_>>(params.get()).unwrap_or_default();
        let mut ask = PermissionRequest::default();
        let words: Vec<&str> = terminal.args.0.iter().map(|word| &**word).collect();
        ask.command = Some(if words.is_empty() {
            terminal.command.to_string()
        } else {
            format!("{} {}", &*terminal.command, quoted(&words))
        });
        (ask.tool, ask.native_tool) = ("Bash".to_owned(), "terminal/create".to_owned());
        ask.kind = ToolKind::Shell;
        HostRequest::Permission(Box::new(ask))
    }
}

fn decided(allows: bool) -> HostResponse {
    HostResponse::PermissionDecided(if allows {
        PermissionDecision::allow("client")
    } else {
        PermissionDecision::deny("client", "rejected")
    })
}

/// Joins the words of a command, each quoted for a shell.
fn quoted(words: &[&str]) -> String {
    words.iter().map(|word| format!("'{}'", word.replace('\'', "'\\''"))).collect::<Vec<_>>().join(" ")
}

fn line(frame: &str) -> String {
    format!("{frame}\n")
}

/// Adds extensions to the parameters of a request. The other parameters stay as they were written.
fn with_meta(text: &str, meta: Option<&str>) -> Option<String> {
    let meta: BTreeMap<String, &RawValue> = serde_json::from_str(meta?).ok()?;
    let mut request: BTreeMap<String, &RawValue> = serde_json::from_str(text).ok()?;
    let mut params: BTreeMap<String, &RawValue> = serde_json::from_str(request.get("params")?.get()).ok()?;
    let theirs = params.get("_meta").and_then(|meta| serde_json::from_str(meta.get()).ok());
    let mut all: BTreeMap<String, &RawValue> = theirs.unwrap_or_default();
    // What the host requires overrides what the client asks for.
    all.extend(meta);
    let all = serde_json::value::to_raw_value(&all).ok()?;
    params.insert("_meta".to_owned(), &all);
    let params = serde_json::value::to_raw_value(&params).ok()?;
    request.insert("params".to_owned(), &params);
    serde_json::to_string(&request).ok()
}

/// Returns a response with the number as its id that the agent has returned as a string.
fn with_unquoted_id(text: &str, id: &RawValue) -> Option<String> {
    let at = (id.get().as_ptr() as usize).checked_sub(text.as_ptr() as usize)?;
    let (before, after) = (text.get(..at)?, text.get(at + id.get().len()..)?);
    Some(format!("{before}{}{after}", id.get().trim_matches('"')))
}
