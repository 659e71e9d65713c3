//! The events of sessions: messages and their parts, states and errors.

use super::{
    super::{
        failures,
        session_message::{ErrorWire, TokensWire, dollars, tokens},
    },
    Call, Reply, Serve, ServeSession,
    turn::{MessageRole, ServeStep, TextPart},
};
use crate::{
    ContextWindow, CountScope, Event, FailureKind, RunId, Sink, TokenCount, UsageSource,
    rpc::Present,
    wire::{List, Num, Str, wire},
};
use serde_json::value::RawValue;

wire! { struct GlobalEvent<'a> { payload: Payload<'a> = "payload" } }
wire! { struct Payload<'a> { kind: Str<'a> = "type", properties: Option<&'a RawValue> = "properties" } }
wire! { struct Properties<'a> {
    session: Str<'a> = "sessionID", info: Option<&'a RawValue> = "info", part: Option<&'a RawValue> = "part",
    message: Str<'a> = "messageID", part_id: Str<'a> = "partID", field: Str<'a> = "field", delta: Str<'a> = "delta",
    status: Status<'a> = "status", error: Option<ErrorWire<'a>> = "error", id: Str<'a> = "id",
    request: Str<'a> = "requestID", todos: Option<&'a RawValue> = "todos",
} }
wire! { struct Status<'a> { kind: Str<'a> = "type", attempt: Num = "attempt", message: Str<'a> = "message" } }
wire! { struct NewSession<'a> { id: Str<'a> = "id", parent: Str<'a> = "parentID" } }
wire! { struct MessageInfo<'a> {
    id: Str<'a> = "id", role: Str<'a> = "role", session: Str<'a> = "sessionID", summary: Str<'a> = "summary",
    provider: Str<'a> = "providerID", model: Str<'a> = "modelID", finish: Str<'a> = "finish",
    error: Option<ErrorWire<'a>> = "error", structured: Present<'a> = "structured",
} }
wire! { struct Part<'a> {
    id: Str<'a> = "id", session: Str<'a> = "sessionID", message: Str<'a> = "messageID", kind: Str<'a> = "type",
    text: Str<'a> = "text", synthetic: Str<'a> = "synthetic", tokens: Option<TokensWire<'a>> = "tokens",
    cost: Option<&'a RawValue> = "cost", reason: Str<'a> = "reason", call: Str<'a> = "callID",
    state: TaskState<'a> = "state",
} }
wire! { struct TaskState<'a> { metadata: TaskMetadata<'a> = "metadata" } }
wire! { struct TaskMetadata<'a> { session: Str<'a> = "sessionId" } }
wire! { struct MessageId<'a> { info: NewSession<'a> = "info" } }
wire! { struct WholeMessage<'a> { info: Option<&'a RawValue> = "info", parts: List<&'a RawValue> = "parts" } }

/// The most requests in a row that may be too long for the model. After the first one, OpenCode compacts the session.
const MAX_OVERFLOWS: u32 = 1;
/// The deepest nesting of sub-agents that is followed.
const MAX_DEPTH: usize = 8;

impl Serve {
    /// Handles an event.
    pub(super) fn event(&mut self, raw: &RawValue, sink: &mut Sink) {
        let event = serde_json::from_str::<GlobalEvent<'_>>(raw.get()).unwrap_or_default().payload;
        // Heartbeats and events of other sessions are no activity of a run.
        let Some(raw) = event.properties else { return sink.idle_line() };
        let properties = serde_json::from_str::<Properties<'_>>(raw.get()).unwrap_or_default();
        if &*event.kind == "session.created" {
            sink.idle_line();
            return self.session_created(properties.info);
        }
        let Some((run, is_root)) = self.run_of(&properties.session) else { return sink.idle_line() };
        let is_working = self.turns.get(&run).is_some_and(|turn| turn.step == ServeStep::Working);
        match &*event.kind {
            "permission.asked" => return self.permission_asked(run, raw, sink),
            "permission.replied" => return self.permission_replied(&properties.request, sink),
            // There is no user to answer questions.
            "question.asked" => {
                let path = format!("/question/{}/reject", &*properties.id);
                return self.request(run, Call::Other, ("POST", &path), None, sink);
            }
            // The turn is over, or has not begun.
            _ if !is_working => return sink.idle_line(),
            "message.updated" => self.message_updated(run, is_root, properties.info, sink),
            "message.part.updated" => self.part_updated(run, is_root, properties.part, sink),
            "message.part.delta" => self.text_added(run, &properties, sink),
            "session.status" if is_root => self.status(run, &properties.status, sink),
            "session.error" if is_root => {
                if let Some(error) = &properties.error {
                    self.session_failed(run, error, sink);
                }
            }
            "todo.updated" if is_root => {
                let entries = properties.todos.unwrap_or(RawValue::NULL).to_owned();
                sink.event(run, Event::Plan { entries });
            }
            "session.compacted" => sink.event(run, Event::agent(raw.get())),
            _ => {}
        }
        sink.alive(run);
    }

    /// Returns the run in a session or in the session that started it, and whether it is the run's own session.
    fn run_of(&self, session: &str) -> Option<(RunId, bool)> {
        let mut current = self.sessions.get(session)?;
        for depth in 0..MAX_DEPTH {
            if let Some(run) = current.run {
                return Some((run, depth == 0));
            }
            current = self.sessions.get(&current.parent.as_ref()?.0)?;
        }
        None
    }

    /// Registers the session of a sub-agent.
    fn session_created(&mut self, info: Option<&RawValue>) {
        let info =
            serde_json::from_str::<NewSession<'_>>(info.map_or("null", RawValue::get)).unwrap_or_default();
        if !info.parent.is_empty() && self.sessions.contains_key(&*info.parent) {
            let session = ServeSession { parent: Some((info.parent.own(), None)), ..ServeSession::default() };
            self.sessions.entry(info.id.own()).or_insert(session);
        }
    }

    fn message_updated(&mut self, run: RunId, is_root: bool, info: Option<&RawValue>, sink: &mut Sink) {
        let info =
            serde_json::from_str::<MessageInfo<'_>>(info.map_or("null", RawValue::get)).unwrap_or_default();
        let Some(turn) = self.turns.get_mut(&run) else { return };
        let is_old = turn.session.as_ref().and_then(|id| self.sessions.get(id));
        if is_old.is_some_and(|session| session.old_messages.contains(&*info.id)) {
            return;
        }
        // The summary of a compaction is context for the model.
        let is_answer = is_root && &*info.role == "assistant" && &*info.summary != "true";
        let role = if is_answer { MessageRole::Answer } else { MessageRole::Other };
        let is_new = turn.messages.insert(info.id.to_string(), role).is_none();
        if is_answer && is_new && !info.model.is_empty() {
            turn.used_model = format!("{}/{}", &*info.provider, &*info.model);
            sink.model(run, turn.used_model.clone());
        }
        if let Some(value) = info.structured.0.filter(|value| is_answer && value.get() != "null") {
            sink.value(run, value);
        }
    }

    fn part_updated(&mut self, run: RunId, is_root: bool, raw: Option<&RawValue>, sink: &mut Sink) {
        let Some(raw) = raw else { return };
        let part = serde_json::from_str::<Part<'_>>(raw.get()).unwrap_or_default();
        let Some(turn) = self.turns.get_mut(&run) else { return };
        // Parts of messages of earlier runs have no role here.
        let Some(role) = turn.messages.get(&*part.message).copied() else { return };
        match &*part.kind {
            "text" | "reasoning" if role == MessageRole::Answer && &*part.synthetic != "true" => {
                let is_thought = &*part.kind == "reasoning";
                let text = TextPart { is_thought, shown: 0 };
                let known = turn.texts.entry(part.id.to_string()).or_insert(text);
                let added = part.text.get(known.shown..).unwrap_or_default().to_owned();
                self.show_text(run, &part.id, added, sink);
            }
            "tool" => {
                let parent = self.sessions.get(&*part.session).and_then(|session| session.parent.clone());
                let parent = parent.and_then(|(_, call)| call);
                let is_stopping = turn.stopping || turn.given_up.is_some();
                let _ = turn.calls.update(run, raw, &part.message, parent.as_deref(), is_stopping, sink);
                // A call that starts a sub-agent names its session.
                if let Some(session) = self.sessions.get_mut(&*part.state.metadata.session)
                    && let Some((_, call)) = &mut session.parent
                {
                    *call = Some(part.call.own());
                }
                self.ask_early_requests(run, sink);
            }
            "step-finish" if turn.steps.insert(part.id.to_string()) => {
                turn.answers += 1;
                turn.overflows = 0;
                if let Some(counted) = part.tokens.map(tokens) {
                    if is_root {
                        let window = self.windows.as_ref().and_then(|windows| windows.get(&turn.used_model));
                        sink.context(run, ContextWindow::new(counted.sum(), window.copied()));
                    }
                    let mut count =
                        TokenCount::new(UsageSource::Stream, CountScope::Call(part.id.to_string()), counted);
                    count.requests = Some(1);
                    count.model = Some(turn.used_model.clone()).filter(|model| !model.is_empty());
                    sink.count(run, count);
                }
                if let Some(usd) = part.cost.and_then(dollars) {
                    sink.cost(run, usd);
                }
                // After the answer of a sub-agent, the agent that started it continues.
                if !is_root || &*part.reason == "tool-calls" {
                    sink.next_request(run);
                }
            }
            _ => {}
        }
    }

    fn text_added(&mut self, run: RunId, properties: &Properties<'_>, sink: &mut Sink) {
        let Some(turn) = self.turns.get(&run) else { return };
        // Only texts of the answer are known, and a delta of another field is not text.
        if turn.texts.contains_key(&*properties.part_id) && &*properties.field == "text" {
            self.show_text(run, &properties.part_id, properties.delta.to_string(), sink);
        }
    }

    fn show_text(&mut self, run: RunId, part: &str, text: String, sink: &mut Sink) {
        let Some(turn) = self.turns.get_mut(&run) else { return };
        let Some(known) = turn.texts.get_mut(part).filter(|_| !text.is_empty()) else { return };
        known.shown += text.len();
        if known.is_thought {
            return sink.event(run, Event::Thinking { text });
        }
        turn.has_text |= !text.trim().is_empty();
        sink.event(run, Event::Text { text });
    }

    fn status(&mut self, run: RunId, status: &Status<'_>, sink: &mut Sink) {
        let Some(turn) = self.turns.get_mut(&run) else { return };
        match &*status.kind {
            "busy" => {
                turn.is_busy = true;
                // The request to stop may have arrived before the prompt.
                if turn.stopping && !std::mem::replace(&mut turn.is_aborted_again, true) {
                    self.abort(run, sink);
                }
            }
            "idle" if turn.is_busy => {
                turn.is_idle = true;
                self.end_if_over(run, sink);
            }
            "retry" => {
                let attempt = status.attempt.0.and_then(|attempt| u32::try_from(attempt).ok()).unwrap_or(1);
                let failure = failures::of_text(&status.message);
                if attempt > failures::MAX_RETRIES {
                    return self.give_up(run, failure, sink);
                }
                sink.retry_with_warning(run, failure, attempt, failures::MAX_RETRIES);
            }
            _ => {}
        }
    }

    fn session_failed(&mut self, run: RunId, error: &ErrorWire<'_>, sink: &mut Sink) {
        let failure = failures::failure(error);
        let Some(turn) = self.turns.get_mut(&run) else { return };
        turn.error = Some(failure.clone());
        if failure.kind != FailureKind::ContextOverflow {
            return;
        }
        turn.overflows += 1;
        let is_new = matches!(turn.spec.session, crate::SessionTarget::New | crate::SessionTarget::Named(_));
        // There is nothing to compact before the first answer: OpenCode would replace the prompt itself.
        if turn.overflows > MAX_OVERFLOWS || (is_new && turn.answers == 0) {
            self.give_up(run, failure, sink);
        }
    }

    /// Handles the response to a prompt: the last message of the turn.
    pub(super) fn answered(&mut self, run: RunId, reply: &Reply<'_>, sink: &mut Sink) {
        let Some(turn) = self.turns.get_mut(&run).filter(|turn| turn.step == ServeStep::Working) else {
            return;
        };
        if !reply.is_ok() {
            let failure = turn.given_up.take().or_else(|| turn.error.take());
            let failure = failure.unwrap_or_else(|| reply.failure("answer the prompt"));
            return self.fail(run, Some(failure), sink);
        }
        turn.reply = Some(reply.body.to_owned());
        self.end_if_over(run, sink);
    }

    /// Ends the turn if its response has arrived and the session is idle.
    fn end_if_over(&mut self, run: RunId, sink: &mut Sink) {
        let Some(turn) = self.turns.get_mut(&run).filter(|turn| turn.is_idle) else { return };
        let Some(reply) = turn.reply.take() else { return };
        self.take_message(run, &reply, sink);
        let message = serde_json::from_str::<WholeMessage<'_>>(&reply).unwrap_or_default();
        let info = message.info.map_or("null", RawValue::get);
        let info = serde_json::from_str::<MessageInfo<'_>>(info).unwrap_or_default();
        let error = info.error.as_ref().filter(|error| !error.name.is_empty()).map(failures::failure);
        let Some(turn) = self.turns.get_mut(&run) else { return };
        turn.step = ServeStep::Answered;
        let end = turn.end(error, &info.finish);
        sink.end(run, end);
    }

    /// Handles a whole message. Some of its parts may be known already.
    fn take_message(&mut self, run: RunId, text: &str, sink: &mut Sink) {
        let message = serde_json::from_str::<WholeMessage<'_>>(text).unwrap_or_default();
        self.message_updated(run, true, message.info, sink);
        for part in message.parts.0 {
            self.part_updated(run, true, Some(part), sink);
        }
    }

    /// Reads the messages of a session again, because events may have been lost.
    pub(super) fn read_again(&mut self, run: RunId, sink: &mut Sink) {
        let Some(session) = self.turns.get(&run).and_then(|turn| turn.session.clone()) else { return };
        self.request(run, Call::Messages, ("GET", &format!("/session/{session}/message")), None, sink);
    }

    pub(super) fn read_messages(&mut self, run: RunId, reply: &Reply<'_>, sink: &mut Sink) {
        let is_working = self.turns.get(&run).is_some_and(|turn| turn.step == ServeStep::Working);
        if !is_working || !reply.is_ok() {
            return;
        }
        // The ids of messages ascend, so that older ones belong to earlier prompts.
        let first = self.turns.get(&run).and_then(|turn| turn.messages.keys().next().cloned());
        let messages = serde_json::from_str::<List<&RawValue>>(reply.body).unwrap_or_default();
        for message in messages.0 {
            let id = serde_json::from_str::<MessageId<'_>>(message.get()).unwrap_or_default().info.id;
            if first.as_deref().is_some_and(|first| *id >= *first) {
                self.take_message(run, message.get(), sink);
            }
        }
        // The event that reports the end may be lost, so the response to the prompt decides alone.
        if let Some(turn) = self.turns.get_mut(&run) {
            (turn.is_busy, turn.is_idle) = (true, true);
        }
        self.end_if_over(run, sink);
    }
}
