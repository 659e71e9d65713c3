//! The end of a turn: its result, its failure, its tokens and its cost.

use super::{ClaudeStream, Step, Turn};
use crate::agents::claude::{
    failures::{MAX_OUTPUT_TOKENS, ReportedError},
    sessions::records::Cost,
};
use crate::{
    ContextWindow, CountScope, Event, Failure, FailureKind, Sink, TokenCount, Tokens, TurnEnd, UsageSource,
    rpc::Present,
    wire::{Entries, Flag, List, Num, Str, wire},
};
use std::collections::BTreeMap;

wire! { struct ResultLine<'a> {
    subtype: Str<'a> = "subtype", is_error: Flag = "is_error", status: Num = "api_error_status", text: Str<'a> = "result",
    stop: Str<'a> = "stop_reason", reason: Str<'a> = "terminal_reason", errors: List<Str<'a>> = "errors",
    startup: Str<'a> = "startup_failure_reason", value: Present<'a> = "structured_output", cost: Cost = "total_cost_usd",
    models: Entries<'a, ModelTotal<'a>> = "modelUsage",
    new: Option<Entries<'a, ModelTotal<'a>>> = "model_usage_since_last_result",
} }
wire! { struct ModelTotal<'a> {
    input: Num = "inputTokens", output: Num = "outputTokens", cache_read: Num = "cacheReadInputTokens",
    cache_write: Num = "cacheCreationInputTokens", thinking: Num = "thinkingTokens", window: Num = "contextWindow",
    hour: Num = "cacheCreationEphemeral1hInputTokens", cost: Cost = "costUSD", name: Str<'a> = "canonicalModel",
} }

/// The totals of the session that Claude Code reported last. Those of a resumed session are not known.
#[derive(Debug)]
pub(super) struct SessionTotals {
    cost: Option<f64>,
    models: Option<BTreeMap<String, Tokens>>,
}

impl SessionTotals {
    pub(super) fn new(is_resumed: bool) -> Self {
        Self { cost: (!is_resumed).then_some(0.0), models: (!is_resumed).then(BTreeMap::new) }
    }
}

impl ClaudeStream {
    pub(super) fn result(&mut self, text: &str, sink: &mut Sink) {
        let line = serde_json::from_str::<ResultLine<'_>>(text).unwrap_or_default();
        if !self.is_ready || !line.startup.is_empty() {
            // It could not start; the session or a setting is at fault.
            return self.fail_all(startup_failure(&line), sink);
        }
        let Some(turn) = self.turn.as_mut().filter(|turn| turn.step == Step::Working) else { return };
        turn.step = Step::Answered;
        let run = turn.run;
        turn.count(&line, &mut self.totals, sink);
        if let Some(value) = line.value.0 {
            sink.value(run, value);
        }
        match line.is_error.0 {
            // The answer of a command of Claude Code itself, such as `/context`, is only here.
            false if !turn.has_text && line.value.0.is_none() => {
                sink.event(run, Event::Text { text: line.text.to_string() });
            }
            false if turn.is_repeated => sink.turn_text(run, line.text.to_string()),
            _ => {}
        }
        let failure = failure(&line, turn);
        let stop = Some(line.stop.own()).filter(|stop| !stop.is_empty());
        self.questions.clear();
        sink.end(run, TurnEnd { ok: failure.is_none(), stop, failure });
    }
}

impl Turn {
    /// Reports the tokens and the cost of the prompt. They include requests of sub-agents and helpers.
    fn count(&mut self, line: &ResultLine<'_>, totals: &mut SessionTotals, sink: &mut Sink) {
        let run = self.run;
        let all: BTreeMap<String, Tokens> = by_model(&line.models);
        let before = totals.models.replace(all.clone());
        let new = match (&line.new, before) {
            (Some(new), _) => by_model(new),
            (None, Some(before)) => {
                let since = |(name, tokens): (String, Tokens)| {
                    let before = before.get(&name).copied().unwrap_or_default();
                    (name, tokens.since(before))
                };
                all.into_iter().map(since).collect()
            }
            (None, None) => BTreeMap::new(),
        };
        for (model, tokens) in new.into_iter().filter(|(_, tokens)| tokens.sum() > 0) {
            let sum = self.models.entry(model.clone()).or_default();
            *sum = sum.plus(tokens);
            let scope = CountScope::Model(model);
            sink.count(run, TokenCount::new(UsageSource::Stream, scope, *sum));
        }
        if !self.models.is_empty() {
            let all = self.models.values().fold(Tokens::default(), |sum, tokens| sum.plus(*tokens));
            sink.count(run, TokenCount::new(UsageSource::Stream, CountScope::Run, all));
        }
        let window = line.models.0.iter().filter_map(|(_, model)| model.window.0).max();
        if let Some(message) = self.messages.get("").filter(|message| message.context > 0) {
            sink.context(run, ContextWindow::new(message.context, window));
        }
        let costs =
            |new: &Entries<'_, ModelTotal<'_>>| new.0.iter().filter_map(|(_, model)| model.cost.0).sum();
        let total = line.cost.0;
        let before = std::mem::replace(&mut totals.cost, total);
        let cost: Option<f64> = match (&line.new, total, before) {
            (Some(new), ..) => Some(costs(new)),
            (None, Some(total), Some(before)) => Some(if total < before { total } else { total - before }),
            _ => None,
        };
        if let Some(cost) = cost {
            sink.cost(run, cost);
        }
    }
}

/// Returns the tokens of each model. The names of models with a longer context have a suffix in brackets.
fn by_model(models: &Entries<'_, ModelTotal<'_>>) -> BTreeMap<String, Tokens> {
    let mut sums: BTreeMap<String, Tokens> = BTreeMap::new();
    for (name, model) in &models.0 {
        let plain = name.split_once('[').map_or(&**name, |(plain, _)| plain);
        let name = if model.name.is_empty() { plain } else { &*model.name };
        let sum = sums.entry(name.to_owned()).or_default();
        *sum = sum.plus(model.tokens());
    }
    sums
}

impl ModelTotal<'_> {
    /// Converts the counts. Claude Code counts cache reads and writes separately from the input, and thoughts as output.
    fn tokens(&self) -> Tokens {
        let sum = |all: &[Num]| all.iter().filter_map(|n| n.0).fold(0, u64::saturating_add);
        let input = sum(&[self.input, self.cache_read, self.cache_write]);
        let thoughts = self.thinking.0.filter(|thoughts| *thoughts > 0);
        Tokens {
            input: self.input.0.map(|_| input),
            output: self.output.0.map(|output| output.saturating_sub(thoughts.unwrap_or(0))),
            cached: self.cache_read.0,
            cache_write: self.cache_write.0.filter(|n| *n > 0),
            cache_write_long: self.hour.0.filter(|n| *n > 0),
            thoughts,
            total: self.output.0.map(|output| input.saturating_add(output)),
            ..Tokens::default()
        }
    }
}

/// Returns the failure of a turn. `None` means success.
fn failure(line: &ResultLine<'_>, turn: &mut Turn) -> Option<Failure> {
    let reason = &*line.reason;
    if turn.stopping || reason.starts_with("aborted") {
        let (kind, text) = match turn.stopping {
            true => (FailureKind::Cancelled, "the agent stopped on request"),
            false => (FailureKind::NoResult, "the agent stopped its turn without a request to cancel it"),
        };
        return Some(Failure::new(kind, text));
    }
    let error = turn.error.take();
    if &*line.stop == "refusal" {
        return Some(Failure::new(FailureKind::Blocked, "the model refused to continue"));
    }
    if !line.is_error.0 {
        return None;
    }
    let error = error.unwrap_or_default();
    if error.names.iter().any(|name| name == MAX_OUTPUT_TOKENS) {
        let (kind, text) = match turn.has_text {
            true => (FailureKind::ApiError, "the answer was truncated at the model's token limit"),
            false => (FailureKind::Empty, "the model reached its token limit before it answered"),
        };
        return Some(Failure::new(kind, text).agent_type(MAX_OUTPUT_TOKENS));
    }
    Some(reported(line, error).failure())
}

/// Joins what the result and the last message say about an error.
fn reported(line: &ResultLine<'_>, error: ReportedError) -> ReportedError {
    let texts = line.errors.0.iter().map(|error| &**error).collect::<Vec<_>>().join("\n");
    let texts = [line.text.to_string(), texts, error.message];
    let mut names = error.names;
    names.extend([line.reason.to_string(), line.subtype.to_string()]);
    let status = line.status.0.and_then(|status| u16::try_from(status).ok()).or(error.status);
    let message = texts.into_iter().find(|text| !text.trim().is_empty()).unwrap_or_default();
    ReportedError { names, status, message }
}

/// Returns why Claude Code could not start.
fn startup_failure(line: &ResultLine<'_>) -> Failure {
    let failure = reported(line, ReportedError::default()).failure();
    let kind = if failure.kind == FailureKind::ApiError { FailureKind::Settings } else { failure.kind };
    Failure { kind, ..failure }.agent_type(line.startup.to_string())
}
