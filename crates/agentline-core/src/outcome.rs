//! The outcome of a run, as printed by `--output json`.

use crate::{
    AgentId, CacheStatus, CostSource, Failure, FailureKind, FileRow, Millis, Notice, Phase, RunInfo, Surface,
    Tokens, Usage, UsageTotals, Verdict,
};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// The name of this format. Fields may be added, but are never renamed or removed.
pub const OUTCOME_SCHEMA: &str = "agentline.outcome/1";

/// The outcome of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Outcome {
    /// The name of the format.
    #[serde(skip_deserializing, default = "schema")]
    pub schema: &'static str,
    /// The id of the run.
    pub run_id: String,
    /// The id of the agent.
    pub agent: AgentId,
    /// The version of the agent, if it could be read.
    pub agent_version: Option<String>,
    /// The surface used.
    pub surface: Option<Surface>,
    /// The model, as far as the agent reported it.
    pub model: Option<String>,
    /// The agent's own session id.
    pub session_id: Option<String>,
    /// The workspace.
    pub cwd: String,
    /// The caller's name for this prompt.
    pub name: Option<String>,
    /// The verdict.
    pub verdict: Verdict,
    /// The error, if any.
    pub error: Option<RunError>,
    /// The text of the last turn that has text.
    pub text: String,
    /// The structured value, if one was requested.
    pub output: Option<Box<RawValue>>,
    /// The files that changed.
    pub files: Vec<FileRow>,
    /// The tools that were refused or not offered.
    pub denied: Vec<Denial>,
    /// The token usage.
    pub usage: Usage,
    /// The cost in US dollars; null if the price of a model is unknown.
    #[serde(serialize_with = "crate::usage::serialize_known_usd")]
    pub cost_usd: Option<f64>,
    /// The source of the cost: the dated price table or the agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_source: Option<CostSource>,
    /// The number of model turns.
    pub turns: u32,
    /// The number of tool calls.
    pub tool_calls: u32,
    /// Why the last turn ended, if the surface reports it.
    pub stop_reason: Option<String>,
    /// The time from the start of the run to the outcome.
    pub duration_ms: Millis,
    /// The time until the first event.
    pub first_event_ms: Option<Millis>,
    /// The warnings for the caller.
    pub warnings: Vec<Notice>,
    /// The number of lines that could not be parsed.
    pub unreadable_lines: u32,
    /// The agent's exit code; null if a signal ended it.
    pub agent_exit_code: Option<i32>,
    /// The tail of the agent's standard error, without known noise.
    pub stderr_tail: String,
    /// The path of the tape.
    pub tape: Option<String>,
    /// The cache status, if the cache was requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache: Option<CacheStatus>,
    /// The number of attempts, if the run was retried. Usage, cost, turns, tool calls and files are those of all
    /// attempts; everything else is that of the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempts: Option<u32>,
}

fn schema() -> &'static str {
    OUTCOME_SCHEMA
}

impl Outcome {
    /// Creates the outcome of a run that could not start.
    #[must_use]
    pub fn not_started(info: &RunInfo, verdict: Verdict, failure: Failure) -> Self {
        Self {
            schema: OUTCOME_SCHEMA,
            run_id: info.run_id.clone(),
            agent: info.agent.clone(),
            agent_version: info.agent_version.clone(),
            surface: info.surface,
            model: info.model.clone(),
            session_id: None,
            cwd: info.cwd.clone(),
            name: info.name.clone(),
            verdict,
            error: Some(RunError::new(failure, String::new())),
            text: String::new(),
            output: None,
            files: Vec::new(),
            denied: Vec::new(),
            usage: Usage::default(),
            cost_usd: None,
            cost_source: None,
            turns: 0,
            tool_calls: 0,
            stop_reason: None,
            duration_ms: 0,
            first_event_ms: None,
            warnings: Vec::new(),
            unreadable_lines: 0,
            agent_exit_code: None,
            stderr_tail: String::new(),
            tape: None,
            cache: None,
            attempts: None,
        }
    }

    /// Returns the information about the run that the outcome repeats.
    pub(crate) fn info(&self) -> RunInfo {
        RunInfo {
            run_id: self.run_id.clone(),
            agent: self.agent.clone(),
            agent_version: self.agent_version.clone(),
            surface: self.surface,
            model: self.model.clone(),
            cwd: self.cwd.clone(),
            name: self.name.clone(),
            ..RunInfo::default()
        }
    }

    /// Returns whether the agent finished and answered, and no tool call was refused.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.verdict == Verdict::Done
    }
}

/// An error, for programs (`kind`, `phase`) and users (`message`, `hint`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RunError {
    /// The stable kind.
    pub kind: FailureKind,
    /// The part of the run in which the error occurred.
    pub phase: Phase,
    /// A description of the error.
    pub message: String,
    /// A hint on what to do next.
    pub hint: Option<String>,
    /// The tail of the agent's standard error.
    pub stderr_tail: String,
    /// The last lines of the agent's standard output that are not part of its protocol.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub stdout_tail: String,
    /// Whether a retry can help.
    pub retryable: bool,
    /// The agent's own name for its error, if it reported one.
    #[serde(default)]
    pub agent_type: Option<String>,
    /// How long the service asked to wait before a retry, in milliseconds, if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
}

impl RunError {
    /// Creates an error from a failure and the tail of the agent's standard error.
    #[must_use]
    pub fn new(failure: Failure, stderr_tail: String) -> Self {
        let mut retryable = failure.kind.retryable() && !is_permanent_refusal(failure.status);
        let retry_after = || asked_to_wait(&failure.message).or_else(|| asked_to_wait(&stderr_tail));
        let retry_after = retryable.then(retry_after).flatten();
        if failure.kind == FailureKind::RateLimited && retry_after.is_none() && is_used_up(&failure.message) {
            retryable = false;
        }
        Self {
            retry_after_ms: retry_after,
            kind: failure.kind,
            phase: failure.kind.phase(),
            message: failure.message,
            hint: failure.hint,
            stderr_tail,
            stdout_tail: String::new(),
            retryable,
            agent_type: failure.agent_type,
        }
    }
}

/// Returns whether a retry would be refused again: true for client errors, except timeouts, conflicts and rate limits.
fn is_permanent_refusal(status: Option<u16>) -> bool {
    status.is_some_and(|s| (400..500).contains(&s) && !matches!(s, 408 | 409 | 425 | 429))
}

/// Phrases with which services report an exhausted quota, for which a retry is useless. A stated retry delay
/// takes precedence.
const USED_UP: &[&str] = &[
    "daily quota",
    "daily limit",
    "weekly limit",
    "monthly limit",
    "per day",
    "PerDay",
    "usage limit",
    "insufficient_quota",
    "credit balance is too low",
    "out of credits",
];

fn is_used_up(message: &str) -> bool {
    USED_UP.iter().any(|phrase| message.contains(phrase))
}

/// Returns the last retry delay in a text, in milliseconds, such as `Please retry in 2.5s.`, `retry after 30 seconds`
/// or `"retryDelay": "41s"`.
fn asked_to_wait(text: &str) -> Option<u64> {
    let mut found = None;
    for (i, _) in text.match_indices(['r', 'R']) {
        let Some(rest) = text.get(i + 1..).and_then(|rest| rest.strip_prefix("etry")) else { continue };
        let rest = rest.trim_start_matches([' ', '-', '_']);
        let Some(rest) =
            ["in", "after", "After", "Delay", "delay"].iter().find_map(|word| rest.strip_prefix(word))
        else {
            continue;
        };
        let rest = rest.trim_start_matches([' ', ':', '"', '=']);
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let Ok(number) = rest[..end].trim_end_matches('.').parse::<f64>() else { continue };
        let unit = rest[end..].trim_start();
        let scale = if unit.starts_with("ms") {
            1.0
        } else if unit.starts_with('m') {
            60_000.0
        } else {
            1000.0
        };
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a cast of a float saturates"
        )]
        let wait = (number * scale).ceil() as u64;
        found = Some(wait);
    }
    found
}

/// A tool that was refused or not offered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Denial {
    /// The canonical name.
    pub tool: String,
    /// The agent's own name for the tool.
    pub native_tool: String,
    /// The id of the call.
    pub tool_use_id: String,
    /// The reason for the denial.
    pub reason: String,
    /// The rule that refused the call, if known.
    pub rule: Option<String>,
}

impl UsageTotals {
    /// Adds one run.
    pub fn add(&mut self, outcome: &Outcome) {
        let usage = &outcome.usage;
        self.cost_usd = match (self.runs, self.cost_usd, outcome.cost_usd) {
            // A run without a model request costs nothing.
            (_, before, None) if usage.tokens == Tokens::default() && usage.by_model.is_empty() => before,
            (0, _, cost) => cost,
            (_, Some(sum), Some(cost)) => Some(sum + cost),
            (_, None, Some(cost)) if self.tokens == Tokens::default() => Some(cost),
            _ => None,
        };
        self.known_cost_usd += outcome.cost_usd.unwrap_or(0.0);
        self.runs += 1;
        self.requests = self.requests.saturating_add(usage.requests.unwrap_or(0));
        self.tokens = self.tokens.plus(usage.tokens);
        for (model, tokens) in &usage.by_model {
            let sum = self.by_model.entry(model.clone()).or_default();
            *sum = sum.plus(*tokens);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exhausted_quota_is_not_retryable() {
        for (status, message, retryable) in [
            (429, "Too many requests", true),
            (429, "You have exhausted your daily quota on this model.", false),
            (429, "Quota exceeded for requests per day. Please retry in 12s", true),
            (429, "You exceeded your current quota: insufficient_quota", false),
            (503, "The model is overloaded", true),
            (401, "Bad key", false),
            (400, "Bad request", false),
        ] {
            let error = RunError::new(Failure::http(status, message), String::new());
            assert_eq!(error.retryable, retryable, "{message}");
        }
    }

    #[test]
    fn requested_retry_delay_is_parsed() {
        for (text, ms) in [
            ("Please retry in 2s.", Some(2000)),
            ("quota exceeded. Please retry in 36.5s", Some(36_500)),
            ("Suggested retry after 30 seconds", Some(30_000)),
            ("{\"retryDelay\": \"41s\"}", Some(41_000)),
            ("retry-after: 7", Some(7000)),
            ("Retry after 250ms", Some(250)),
            ("retry in 2 minutes", Some(120_000)),
            ("we retry in vain", None),
            ("retried 5 times", None),
            ("", None),
        ] {
            assert_eq!(asked_to_wait(text), ms, "{text}");
        }
    }
}
