//! Notifications of a turn: text, reasoning, tool calls, usage, failed requests and the end.

use super::{AppServer, AppServerRun, Step};
use crate::{
    ContextWindow, CountScope, Event, Failure, FailureKind, RunId, Sink, TokenCount, Tokens, ToolResult,
    ToolStatus, ToolUse, TurnEnd, UsageSource,
    agents::codex::{
        failures::{self, CodexError, FailedRequests},
        items::ThreadItem,
    },
    wire::{Flag, Num, Str, wire},
};
use serde_json::value::RawValue;
use std::collections::{BTreeMap, BTreeSet};

wire! { struct Params<'a> {
    thread: Str<'a> = "threadId", turn_id: Str<'a> = "turnId", turn: TurnResult<'a> = "turn",
    item: ThreadItem<'a> = "item", item_id: Str<'a> = "itemId", delta: Str<'a> = "delta", index: Num = "summaryIndex",
    usage: ThreadUsage<'a> = "tokenUsage", plan: Option<&'a RawValue> = "plan", error: Option<&'a RawValue> = "error",
    retries: Flag = "willRetry", message: Str<'a> = "message", summary: Str<'a> = "summary", name: Str<'a> = "name",
    status: Option<&'a RawValue> = "status", to_model: Str<'a> = "toModel", request: Option<&'a RawValue> = "requestId",
} }
wire! { struct TurnResult<'a> { id: Str<'a> = "id", status: Str<'a> = "status", error: CodexError<'a> = "error" } }
wire! { struct ThreadUsage<'a> {
    total: Breakdown<'a> = "total", last: Breakdown<'a> = "last", window: Num = "modelContextWindow",
} }
wire! { struct Breakdown<'a> {
    total: Num = "totalTokens", input: Num = "inputTokens", cached: Num = "cachedInputTokens",
    written: Num = "cacheWriteInputTokens", output: Num = "outputTokens", reasoning: Num = "reasoningOutputTokens",
} }

/// Notifications that say nothing about a run beyond that it is alive.
const QUIET: &[&str] = &[
    "thread/started",
    "thread/status/changed",
    "thread/settings/updated",
    "thread/name/updated",
    "thread/readState/changed",
    "item/fileChange/outputDelta",
    "item/fileChange/patchUpdated",
    "turn/diff/updated",
    "account/rateLimits/updated",
];

/// The tool calls of a run.
#[derive(Debug, Default)]
pub(super) struct Calls {
    /// The open calls by id, with the reason of the host if it denied the call.
    open: BTreeMap<String, OpenItem>,
    closed: BTreeSet<String>,
    /// Items whose text arrived in pieces.
    streamed: BTreeSet<String>,
    pub(super) any_refused: bool,
}

/// A call that has not ended.
#[derive(Debug)]
pub(super) struct OpenItem {
    pub(super) tool: ToolUse,
    pub(super) server: Option<String>,
    pub(super) paths: Vec<String>,
    refused: Option<String>,
}

impl Calls {
    /// Announces a call, once.
    pub(super) fn announce(&mut self, run: RunId, item: &ThreadItem<'_>, sink: &mut Sink) {
        let id = item.id.to_string();
        if self.open.contains_key(&id) || self.closed.contains(&id) {
            return;
        }
        let Some(tool) = item.call() else { return };
        sink.event(run, tool.clone());
        if let Some(fact) = item.more_files() {
            sink.tool_fact(run, fact);
        }
        let call = OpenItem { tool, server: item.mcp_server(), paths: item.paths(), refused: None };
        self.open.insert(id, call);
    }

    /// Closes a call.
    /// `stopping` says whether the run is being cancelled, so that a failed call counts as cancelled.
    fn close(&mut self, run: RunId, item: &ThreadItem<'_>, stopping: bool, sink: &mut Sink) {
        let Some(call) = self.open.remove(&*item.id) else { return };
        self.closed.insert(item.id.to_string());
        self.any_refused |= &*item.status == "declined";
        let mut result = item.ended(call.refused);
        if result.status == ToolStatus::Error && stopping {
            result.status = ToolStatus::Cancelled;
        }
        sink.event(run, result);
    }

    /// Records that the host denied a call.
    pub(super) fn refuse(&mut self, id: &str, reason: String) {
        self.any_refused = true;
        if let Some(call) = self.open.get_mut(id) {
            call.refused = Some(reason);
        }
    }

    pub(super) fn get(&self, id: &str) -> Option<&OpenItem> {
        self.open.get(id)
    }

    /// Returns the open call of a server with these arguments, or else any open call of the server.
    pub(super) fn of_server(&self, server: &str, arguments: Option<&str>) -> Option<&OpenItem> {
        let of_server = || self.open.values().filter(|call| call.server.as_deref() == Some(server));
        let input = |call: &&OpenItem| call.tool.input.as_deref().map(RawValue::get) == arguments;
        of_server().find(input).or_else(|| of_server().next())
    }

    /// Closes the denied calls that the agent did not close itself.
    fn turn_over(&mut self, run: RunId, sink: &mut Sink) {
        for (id, call) in &mut self.open {
            if let Some(reason) = call.refused.take() {
                self.closed.insert(id.clone());
                sink.event(run, ToolResult::refused(id, reason, None));
            }
        }
        self.open.retain(|id, _| !self.closed.contains(id));
    }
}

impl AppServer {
    pub(super) fn notification(&mut self, method: &str, params: &RawValue, text: &str, sink: &mut Sink) {
        let params = serde_json::from_str::<Params<'_>>(params.get()).unwrap_or_default();
        let Some(run) = self.threads.get(&*params.thread).and_then(|thread| thread.run) else {
            // A notice without a thread is about the process, for example its settings.
            if params.thread.is_empty() && matches!(method, "configWarning" | "deprecationNotice" | "warning")
            {
                let text = if params.summary.is_empty() { &params.message } else { &params.summary };
                sink.stderr(text);
            }
            return;
        };
        let ended = self.threads.get(&*params.thread).and_then(|thread| thread.ended_turn.as_deref());
        if ended.is_some_and(|ended| ended == &*params.turn_id || ended == &*params.turn.id) {
            return sink.alive(run);
        }
        match method {
            "turn/started" => return self.turn_begins(run, params.turn.id.own(), sink),
            "turn/completed" => return self.turn_ended(run, params.turn, sink),
            "error" => return self.request_failed(run, &params, text, sink),
            "serverRequest/resolved" => return self.resolved(run, params.request, sink),
            "model/rerouted" => {
                let message = format!("Codex used the model `{}` instead", &*params.to_model);
                sink.event(run, Event::warning("model_rerouted", message));
                if let Some(thread) = self.threads.get_mut(&*params.thread) {
                    thread.model = Some(params.to_model.to_string());
                }
                return sink.model(run, params.to_model.own());
            }
            "thread/tokenUsage/updated" => return self.used(run, &params, sink),
            _ => {}
        }
        let Some(state) = self.runs.get_mut(&run) else { return };
        match method {
            "item/agentMessage/delta" => {
                let id = params.item_id.own();
                state.progress(&params.delta);
                // A message that is not completed is sent again as another one.
                state.is_repeated |= state.unfinished.as_ref().is_some_and(|unfinished| *unfinished != id);
                state.unfinished = Some(id.clone());
                state.calls.streamed.insert(id);
                sink.event(run, Event::Text { text: params.delta.own() });
            }
            "item/reasoning/summaryTextDelta" | "item/reasoning/textDelta" => {
                state.calls.streamed.insert(params.item_id.own());
                state.failed_requests = FailedRequests::default();
                sink.event(run, Event::Thinking { text: params.delta.own() });
            }
            "item/reasoning/summaryPartAdded" => {
                if params.index.0.is_some_and(|index| index > 0) {
                    sink.event(run, Event::Thinking { text: "\n\n".into() });
                }
            }
            "item/started" => state.calls.announce(run, &params.item, sink),
            "item/completed" => state.item_completed(run, &params.item, sink),
            "item/commandExecution/outputDelta" => {
                let (tool_use_id, text) = (params.item_id.own(), params.delta.own());
                sink.event(run, Event::ToolOutput { tool_use_id, text });
            }
            "turn/plan/updated" => {
                let entries = params.plan.unwrap_or(RawValue::NULL).to_owned();
                sink.event(run, Event::Plan { entries });
            }
            "warning" | "guardianWarning" | "deprecationNotice" | "configWarning" => {
                let text = if params.summary.is_empty() { params.message } else { params.summary };
                sink.event(run, Event::warning("agent", text.own()));
            }
            "mcpServer/startupStatus/updated" => {
                let is_failed = params.status.is_some_and(|status| status.get() == "\"failed\"");
                let error = params.error.and_then(|raw| serde_json::from_str::<Str<'_>>(raw.get()).ok());
                if is_failed {
                    let error = error.unwrap_or_default();
                    let text = format!("the MCP server `{}` is unavailable: {}", &*params.name, &*error);
                    sink.event(run, Event::warning("mcp_server", text));
                }
            }
            _ if QUIET.contains(&method) => {}
            // Hooks, compaction and messages of later versions.
            _ => sink.event(run, Event::agent(text)),
        }
        sink.alive(run);
    }

    /// Handles a failed request to the model, which Codex may send again.
    fn request_failed(&mut self, run: RunId, params: &Params<'_>, text: &str, sink: &mut Sink) {
        let error = params.error.map_or("null", RawValue::get);
        let error = serde_json::from_str::<CodexError<'_>>(error).unwrap_or_default();
        let Some(state) = self.runs.get_mut(&run) else { return };
        let failure = failures::of_error(&error, state.has_text);
        sink.event(run, Event::agent(text));
        if !params.retries.0 {
            return sink.hint(Some(run), failure);
        }
        if state.gave_up.is_none() && state.failed_requests.give_up(&error.message, &failure) {
            state.gave_up = Some(failure);
            return self.interrupt(run, sink);
        }
        sink.event(run, failures::retry_warning(&error.message, &failure));
        sink.retry_of(run, failure);
    }

    /// Reports the tokens of a request to the model.
    fn used(&mut self, run: RunId, params: &Params<'_>, sink: &mut Sink) {
        let model = self.threads.get(&*params.thread).and_then(|thread| thread.model.clone());
        let Some(state) = self.runs.get_mut(&run).filter(|run| run.step == Step::Working) else { return };
        // A resumed thread reports its earlier usage again.
        if state.turn.as_deref() != Some(&*params.turn_id) {
            return;
        }
        state.failed_requests = FailedRequests::default();
        let usage = &params.usage;
        // The total of the thread identifies a request, because a report may be repeated.
        let id = usage.total.total.0.unwrap_or_default().to_string();
        let mut count = TokenCount::new(UsageSource::Stream, CountScope::Call(id), tokens(&usage.last));
        count.model = model;
        sink.count(run, count);
        if let (Some(used), Some(size)) = (usage.last.total.0, usage.window.0) {
            sink.context(run, ContextWindow::new(used, Some(size)));
        }
    }

    /// Handles the end of a turn.
    fn turn_ended(&mut self, run: RunId, turn: TurnResult<'_>, sink: &mut Sink) {
        let Some(state) = self.runs.get_mut(&run).filter(|run| run.step == Step::Working) else { return };
        if state.turn.as_deref().is_some_and(|current| current != &*turn.id) {
            return;
        }
        state.step = Step::Answered;
        state.calls.turn_over(run, sink);
        let failure = match &*turn.status {
            "completed" => None,
            "failed" => {
                Some(state.gave_up.take().unwrap_or_else(|| failures::of_error(&turn.error, state.has_text)))
            }
            "interrupted" => Some(state.interrupted()),
            other => {
                let text = format!("the agent ended the turn with an unknown status: `{other}`");
                Some(Failure::new(FailureKind::NoResult, text))
            }
        };
        self.cancel_approvals(run, sink);
        // The common name for a turn that ended normally.
        let stop = if failure.is_none() { "end_turn".to_owned() } else { turn.status.own() };
        sink.end(run, TurnEnd { ok: failure.is_none(), stop: Some(stop), failure });
    }
}

impl AppServerRun {
    /// Records that the model has answered something.
    fn progress(&mut self, text: &str) {
        self.failed_requests = FailedRequests::default();
        self.has_text |= !text.trim().is_empty();
    }

    fn item_completed(&mut self, run: RunId, item: &ThreadItem<'_>, sink: &mut Sink) {
        let is_streamed = self.calls.streamed.contains(&*item.id);
        match &*item.kind {
            "agentMessage" if is_streamed => {
                self.unfinished = None;
                if self.is_repeated {
                    sink.turn_text(run, &*item.text);
                }
            }
            "agentMessage" => {
                self.progress(&item.text);
                sink.event(run, Event::Text { text: item.text.to_string() });
            }
            "reasoning" if !is_streamed && !item.summary.0.is_empty() => {
                let parts: Vec<&str> = item.summary.0.iter().map(|part| &**part).collect();
                sink.event(run, Event::Thinking { text: parts.join("\n\n") });
            }
            _ => {
                // A call that Codex refuses by itself is reported only when it has ended.
                self.calls.announce(run, item, sink);
                self.calls.close(run, item, self.stopping, sink);
            }
        }
    }

    fn interrupted(&mut self) -> Failure {
        if let Some(failure) = self.gave_up.take() {
            return failure;
        }
        if self.stopping {
            return Failure::new(FailureKind::Cancelled, "the agent stopped on request");
        }
        if self.calls.any_refused {
            let text = "the agent ended the turn because a tool was denied";
            return Failure::new(FailureKind::NoResult, text).hint(crate::hint::PERMIT);
        }
        let text = "the agent reported the turn as interrupted without a request to interrupt it";
        Failure::new(FailureKind::NoResult, text)
    }
}

/// Converts a count. Codex includes cached tokens in the input and reasoning in the output.
fn tokens(usage: &Breakdown<'_>) -> Tokens {
    let (output, reasoning) = (usage.output.0, usage.reasoning.0);
    Tokens {
        input: usage.input.0,
        output: output.map(|output| output.saturating_sub(reasoning.unwrap_or(0))),
        cached: usage.cached.0,
        cache_write: usage.written.0.filter(|n| *n > 0),
        thoughts: reasoning,
        total: usage.total.0,
        ..Tokens::default()
    }
}
