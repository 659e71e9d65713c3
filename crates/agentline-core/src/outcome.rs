//! All that a run came to. This is what `--output json` prints.

use crate::{
    CacheMark, CostSource, Failure, FileRow, Kind, Millis, Notice, Phase, Surface, Usage, Verdict, Who,
};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// The name of this format; fields may be added, none is ever renamed or removed.
pub const OUTCOME_SCHEMA: &str = "agentline.outcome/1";

/// All that a run came to.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Outcome {
    /// The format's name.
    #[serde(skip_deserializing, default = "schema")]
    pub schema: &'static str,
    /// The id of this run.
    pub run_id: String,
    /// Which agent.
    pub agent: String,
    /// Its version, where it could be read.
    pub agent_version: Option<String>,
    /// Over which surface.
    pub surface: Option<Surface>,
    /// Which model, as far as the agent said.
    pub model: Option<String>,
    /// The agent's own session.
    pub session_id: Option<String>,
    /// The workspace.
    pub cwd: String,
    /// The caller's name for this prompt.
    pub name: Option<String>,
    /// Whether it worked.
    pub verdict: Verdict,
    /// What went wrong.
    pub error: Option<RunError>,
    /// The text of the last turn that has any.
    pub text: String,
    /// The structured value, where one was asked for.
    pub output: Option<Box<RawValue>>,
    /// Which files really changed.
    pub files: Vec<FileRow>,
    /// Which tools were refused or not offered.
    pub denied: Vec<Denial>,
    /// Tokens.
    pub usage: Usage,
    /// US dollars; null where a model's price is not known.
    pub cost_usd: Option<f64>,
    /// Whose word that is: the dated price table's or the agent's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_source: Option<CostSource>,
    /// Turns of the model.
    pub turns: u32,
    /// Calls of tools.
    pub tool_calls: u32,
    /// Why the last turn ended, where the surface can know.
    pub stop_reason: Option<String>,
    /// From the start of the agent to the outcome.
    pub duration_ms: Millis,
    /// Until the first event.
    pub first_event_ms: Option<Millis>,
    /// What the caller should know.
    pub warnings: Vec<Notice>,
    /// Lines that could not be read.
    pub unreadable_lines: u32,
    /// The agent's exit code; null where a signal ended it.
    pub agent_exit_code: Option<i32>,
    /// The end of the agent's standard error, known noise left out.
    pub stderr_tail: String,
    /// Where the tape was written.
    pub tape: Option<String>,
    /// What the cache had to do with it, where it was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache: Option<CacheMark>,
}

fn schema() -> &'static str {
    OUTCOME_SCHEMA
}

impl Outcome {
    /// The outcome of a run that could not begin.
    #[must_use]
    pub fn not_begun(who: &Who, verdict: Verdict, failure: Failure) -> Self {
        Self {
            schema: OUTCOME_SCHEMA,
            run_id: who.run_id.clone(),
            agent: who.agent.clone(),
            agent_version: who.agent_version.clone(),
            surface: who.surface,
            model: who.model.clone(),
            session_id: None,
            cwd: who.cwd.clone(),
            name: who.name.clone(),
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
        }
    }

    /// Whether the agent finished and answered, and nothing that it tried was refused.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.verdict == Verdict::Done
    }
}

/// What went wrong, for programs (`kind`, `phase`) and for people (`message`, `hint`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RunError {
    /// A stable word.
    pub kind: Kind,
    /// In which part of the run.
    pub phase: Phase,
    /// What happened.
    pub message: String,
    /// What to type next.
    pub hint: Option<String>,
    /// The end of the agent's standard error.
    pub stderr_tail: String,
    /// Whether trying again can help.
    pub retryable: bool,
    /// How long the service asked to be left in peace, in milliseconds, where it said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
}

impl RunError {
    /// What went wrong, with the end of the agent's standard error.
    #[must_use]
    pub fn new(failure: Failure, stderr_tail: String) -> Self {
        let mut retryable = failure.kind.retryable() && !refused_for_good(failure.status);
        let asked = || asked_to_wait(&failure.message).or_else(|| asked_to_wait(&stderr_tail));
        let asked = retryable.then(asked).flatten();
        if failure.kind == Kind::RateLimited && asked.is_none() && is_used_up(&failure.message) {
            retryable = false;
        }
        Self {
            retry_after_ms: asked,
            kind: failure.kind,
            phase: failure.kind.phase(),
            message: failure.message,
            hint: failure.hint,
            stderr_tail,
            retryable,
        }
    }
}

/// A service that finds a request wrong finds it wrong again; one that is slow or busy does not.
fn refused_for_good(status: Option<u16>) -> bool {
    status.is_some_and(|s| (400..500).contains(&s) && !matches!(s, 408 | 409 | 425 | 429))
}

/// How services say that a quota is used up for longer than anybody waits. One that names a time to wait means that.
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
    USED_UP.iter().any(|words| message.contains(words))
}

/// The last time that a text asks to wait before another try, as services say it: `Please retry in 2.5s.`, `retry after 30
/// seconds`, `"retryDelay": "41s"`.
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
    /// The agent's own name.
    pub native_tool: String,
    /// Which call.
    pub tool_use_id: String,
    /// Why.
    pub reason: String,
    /// The rule that refused it, where it is known.
    pub rule: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quota_that_is_used_up_is_not_waited_for() {
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
    fn the_time_that_a_service_asks_for_is_read() {
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
