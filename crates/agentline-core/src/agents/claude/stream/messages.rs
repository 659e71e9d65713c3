//! The messages of a turn: what the model writes, the tools that it calls, their results, and notices about them.
//!
//! Each block arrives twice: first in pieces (`stream_event`, the events of the model's service), then as a whole
//! (`assistant`). Text is taken from the pieces, calls and their arguments from the whole blocks. A message that was not
//! streamed, or that Claude Code wrote itself, only arrives as a whole.

use super::{ClaudeStream, OpenCall, Turn};
use crate::agents::claude::{
    failures::ReportedError,
    sessions::{
        SYNTHETIC,
        records::{ClaudeBlock, ClaudeContent, ClaudeMessage, ClaudeToolResult, ClaudeUsage},
        results::{self, ResultContext},
        tokens,
    },
    tools::{self, TOOLS},
};
use crate::{
    CountScope, Diff, Event, Failure, FailureKind, RunId, Sink, TokenCount, ToolResult, ToolStatus,
    UsageSource,
    wire::{List, Num, Str, wire},
};
use serde_json::value::RawValue;

wire! { struct AssistantLine<'a> {
    message: ClaudeMessage<'a> = "message", parent: Str<'a> = "parent_tool_use_id", error: Str<'a> = "error",
    status: Num = "api_error_status",
} }
wire! { struct UserLine<'a> {
    message: ClaudeMessage<'a> = "message", parent: Str<'a> = "parent_tool_use_id",
    outcome: Option<&'a RawValue> = "tool_use_result", meta: List<ResultMeta<'a>> = "tool_result_meta",
} }
wire! { struct ResultMeta<'a> { id: Str<'a> = "id", decision: Decision<'a> = "permission_decision" } }
wire! { struct Decision<'a> { decision: Str<'a> = "decision" } }
wire! { struct StreamLine<'a> { event: ApiEvent<'a> = "event", parent: Str<'a> = "parent_tool_use_id" } }
wire! { struct ApiEvent<'a> {
    kind: Str<'a> = "type", message: ClaudeMessage<'a> = "message", delta: Delta<'a> = "delta",
    usage: ClaudeUsage<'a> = "usage",
} }
wire! { struct Delta<'a> { kind: Str<'a> = "type", text: Str<'a> = "text", thinking: Str<'a> = "thinking" } }
wire! { struct RetryLine<'a> {
    attempt: Num = "attempt", most: Num = "max_retries", delay: Num = "retry_delay_ms", status: Num = "error_status",
    error: Str<'a> = "error",
} }
wire! { struct DeniedLine<'a> { call: Str<'a> = "tool_use_id", reason: Str<'a> = "decision_reason_type" } }
wire! { struct EditOutcome<'a> {
    path: Str<'a> = "filePath", old: Option<Str<'a>> = "oldString", new: Option<Str<'a>> = "newString",
    content: Option<Str<'a>> = "content", original: Option<&'a RawValue> = "originalFile",
} }

/// A message of the model while it is written.
#[derive(Debug, Default)]
pub(super) struct StreamedMessage {
    id: String,
    model: String,
    /// The numbers of `message_start`. Those of `message_delta` replace them.
    usage: [Option<u64>; 6],
    has_text: bool,
    is_open: bool,
    /// The tokens in the context of the model after this message.
    pub(super) context: u64,
}

impl ClaudeStream {
    /// Handles an event of the model's service.
    pub(super) fn stream_event(&mut self, run: RunId, text: &str, sink: &mut Sink) {
        let StreamLine { event, parent, .. } = serde_json::from_str(text).unwrap_or_default();
        let Some(turn) = self.turn.as_mut() else { return };
        let is_main = parent.is_empty();
        let message = turn.messages.entry(parent.own()).or_default();
        match &*event.kind {
            "message_start" => {
                turn.is_repeated |= message.is_open && message.has_text;
                *message = StreamedMessage {
                    id: event.message.id.own(),
                    model: event.message.model.own(),
                    usage: numbers(&event.message.usage),
                    is_open: true,
                    ..StreamedMessage::default()
                };
                if is_main && !message.model.is_empty() {
                    sink.model(run, message.model.clone());
                }
            }
            "content_block_delta" if is_main => match &*event.delta.kind {
                "text_delta" => {
                    message.has_text = true;
                    turn.has_text |= !event.delta.text.trim().is_empty();
                    sink.event(run, Event::Text { text: event.delta.text.own() });
                }
                "thinking_delta" => sink.event(run, Event::Thinking { text: event.delta.thinking.own() }),
                _ => {}
            },
            "message_delta" => {
                for (number, new) in message.usage.iter_mut().zip(numbers(&event.usage)) {
                    *number = new.or(*number);
                }
                count(run, message, sink);
            }
            "message_stop" => message.is_open = false,
            _ => {}
        }
        sink.alive(run);
    }

    /// Handles a whole block of an answer.
    pub(super) fn assistant(&mut self, run: RunId, text: &str, sink: &mut Sink) {
        let line = serde_json::from_str::<AssistantLine<'_>>(text).unwrap_or_default();
        let Some(turn) = self.turn.as_mut() else { return };
        let AssistantLine { message, parent, error, status, .. } = line;
        sink.alive(run);
        let is_main = parent.is_empty();
        let was_streamed = turn.messages.values().any(|streamed| streamed.id == *message.id);
        let blocks = match message.content {
            ClaudeContent::Blocks(blocks) => blocks,
            ClaudeContent::Text(_) | ClaudeContent::None => Vec::new(),
        };
        if !error.is_empty() {
            // The text is a notice of Claude Code, not an answer.
            let texts = blocks.iter().filter(|block| &*block.kind == "text");
            let message = texts.map(|block| &*block.text).collect::<Vec<_>>().join("\n");
            let status = status.0.and_then(|status| u16::try_from(status).ok());
            turn.error = Some(ReportedError { names: vec![error.own()], status, message });
            return;
        }
        // The numbers of a sub-agent are not final; the result has them.
        if is_main && !was_streamed && &*message.model != SYNTHETIC {
            let (id, model) = (message.id.to_string(), message.model.to_string());
            let mut whole =
                StreamedMessage { id, model, usage: numbers(&message.usage), ..StreamedMessage::default() };
            count(run, &mut whole, sink);
            turn.messages.insert(String::new(), whole);
        }
        for block in blocks {
            match &*block.kind {
                "tool_use" => turn.call(run, block, &parent, sink),
                "text" | "thinking" if was_streamed && is_main => {}
                "text" if is_main => {
                    turn.has_text |= !block.text.trim().is_empty();
                    sink.event(run, Event::Text { text: block.text.own() });
                }
                "thinking" if is_main => sink.event(run, Event::Thinking { text: block.thinking.own() }),
                // The work of a sub-agent, and tools that the model's service runs itself.
                _ => return sink.event(run, Event::agent(text)),
            }
        }
    }

    /// Handles the results of tools, which arrive as messages of the user.
    pub(super) fn user(&mut self, run: RunId, text: &str, sink: &mut Sink) {
        let line = serde_json::from_str::<UserLine<'_>>(text).unwrap_or_default();
        let Some(turn) = self.turn.as_mut() else { return };
        sink.alive(run);
        let ClaudeContent::Blocks(blocks) = line.message.content else { return };
        for block in blocks.iter().filter(|block| &*block.kind == "tool_result") {
            let meta = line.meta.0.iter().find(|meta| meta.id == block.call);
            let is_rejected = meta.is_some_and(|meta| &*meta.decision.decision == "reject");
            turn.close_call(run, block, line.outcome, is_rejected, sink);
        }
    }

    /// Handles a notice that a request to the model's service failed and is sent again.
    pub(super) fn api_retry(&mut self, run: RunId, text: &str, sink: &mut Sink) {
        let line = serde_json::from_str::<RetryLine<'_>>(text).unwrap_or_default();
        let number = |number: Num| number.0.unwrap_or_default();
        let status = line.status.0.and_then(|status| u16::try_from(status).ok());
        let what = match status {
            Some(status) => format!("the model's service returned HTTP status {status} ({})", &*line.error),
            None => "the connection to the model's service failed".to_owned(),
        };
        let error = ReportedError { names: vec![line.error.to_string()], status, message: what.clone() };
        let mut failure = error.failure();
        if status.is_none() && failure.kind == FailureKind::ApiError {
            failure = Failure { kind: FailureKind::Network, ..failure };
        }
        let (attempt, most) = (number(line.attempt), number(line.most));
        let message = format!("{what}; retry {attempt} of {most} in {} ms", number(line.delay));
        let code = if failure.kind == FailureKind::RateLimited { "rate_limited" } else { "retry" };
        sink.event(run, Event::warning(code, message));
        sink.retry(failure);
    }

    /// Handles a call that Claude Code refused without asking.
    pub(super) fn permission_denied(&mut self, run: RunId, text: &str, sink: &mut Sink) {
        let line = serde_json::from_str::<DeniedLine<'_>>(text).unwrap_or_default();
        sink.alive(run);
        if let Some(call) = self.turn.as_mut().and_then(|turn| turn.calls.get_mut(&*line.call)) {
            let reason = if line.reason.is_empty() { "agent_policy" } else { &*line.reason };
            call.refused.get_or_insert_with(|| reason.to_owned());
        }
    }
}

impl Turn {
    fn call(&mut self, run: RunId, block: ClaudeBlock<'_>, parent: &str, sink: &mut Sink) {
        let mut tool = tools::tool_use(&block.id, &block.name, block.input);
        tool.parent_tool_use_id = Some(parent.to_owned()).filter(|parent| !parent.is_empty());
        let call = OpenCall { native: block.name.own(), ..OpenCall::default() };
        if self.calls.insert(block.id.own(), call).is_none() {
            sink.event(run, tool);
        }
    }

    fn close_call(
        &mut self,
        run: RunId,
        block: &ClaudeBlock<'_>,
        outcome: Option<&RawValue>,
        is_rejected: bool,
        sink: &mut Sink,
    ) {
        let id = block.call.to_string();
        let Some(call) = self.calls.remove(&id) else { return };
        let raw = outcome.map_or("null", RawValue::get);
        let details = serde_json::from_str::<ClaudeToolResult<'_>>(raw).unwrap_or_default();
        let context =
            ResultContext { outcome: Some(&details), denied: is_rejected && !self.stopping, decided: true };
        let result = results::result(block, context);
        let not_offered = result.content.contains("No such tool available");
        let status = match result.status {
            // The name of a tool that does not exist is an error of the model.
            ToolStatus::Denied if not_offered && !TOOLS.is_own(&call.native) => ToolStatus::Error,
            ToolStatus::Denied | ToolStatus::Error if self.stopping && call.refused.is_none() => {
                ToolStatus::Cancelled
            }
            status => status,
        };
        let content = Some(result.content).filter(|content| !content.is_empty());
        let mut ended = match (call.refused, status) {
            (Some(reason), ToolStatus::Denied | ToolStatus::Error) => {
                ToolResult::refused(id, reason, content)
            }
            (None, ToolStatus::Denied) if not_offered => ToolResult::refused(id, "not_offered", content),
            (None, ToolStatus::Denied) => ToolResult::refused(id, "agent_policy", content),
            (_, status) => ToolResult::new(id, status, content),
        };
        if ended.status == ToolStatus::Ok {
            ended.diffs = changes(raw);
            ended.raw_output = result.raw;
        }
        sink.event(run, ended);
    }
}

/// Returns the change that the structured result of a tool describes.
fn changes(raw: &str) -> Vec<Diff> {
    let edit = serde_json::from_str::<EditOutcome<'_>>(raw).unwrap_or_default();
    if edit.path.is_empty() {
        return Vec::new();
    }
    let text = |text: Option<Str<'_>>| text.map(Str::own);
    let original =
        edit.original.and_then(|raw| serde_json::from_str::<Option<Str<'_>>>(raw.get()).ok()).flatten();
    let (old, new) = match (edit.new, edit.content) {
        (Some(new), _) => (text(edit.old), new.own()),
        (None, Some(content)) => (text(original), content.own()),
        (None, None) => return Vec::new(),
    };
    vec![Diff { path: edit.path.own(), old, new }]
}

/// Returns the numbers of a usage that a later report may replace.
fn numbers(usage: &ClaudeUsage<'_>) -> [Option<u64>; 6] {
    let (thinking, hour) = (usage.of_output.thinking, usage.cache_creation.hour);
    [usage.input, usage.cache_read, usage.cache_write, usage.output, thinking, hour].map(|number| number.0)
}

/// Reports the tokens of a message.
fn count(run: RunId, message: &mut StreamedMessage, sink: &mut Sink) {
    let mut usage = ClaudeUsage::default();
    let [input, cache_read, cache_write, output, thinking, hour] = message.usage.map(Num);
    (usage.input, usage.cache_read, usage.cache_write, usage.output) =
        (input, cache_read, cache_write, output);
    (usage.of_output.thinking, usage.cache_creation.hour) = (thinking, hour);
    let Some(tokens) = tokens(&usage) else { return };
    message.context = tokens.sum();
    let scope = CountScope::Call(message.id.clone());
    let model = Some(message.model.clone()).filter(|model| !model.is_empty());
    sink.count(run, TokenCount { model, ..TokenCount::new(UsageSource::Stream, scope, tokens) });
}
