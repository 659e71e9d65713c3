//! The results of the tools: an object for programs and a text for models and users.

use crate::run_table::{AgentRun, RunPhase};
use agentline::{Outcome, Verdict};
use rmcp::model::{CallToolResult, ContentBlock};
use serde_json::{Map, Value, json};

/// The maximum length of a part of an answer, in bytes. Clients limit what a tool may return.
const LONGEST_PART: usize = 48 << 10;
/// How many files and denials the readable text lists.
const LISTED: usize = 50;

/// Returns the result of a tool.
pub(crate) fn result(text: String, structured: Value, is_error: bool) -> CallToolResult {
    let content = vec![ContentBlock::text(text)];
    let mut result = if is_error { CallToolResult::error(content) } else { CallToolResult::success(content) };
    result.structured_content = Some(structured);
    result
}

/// Returns the result of a call that was not carried out, for these reasons.
pub(crate) fn refused(reason: &str) -> CallToolResult {
    result(format!("refused: {reason}"), json!({"status": "refused", "reason": reason}), true)
}

/// Describes a run: its result if it is over, otherwise its progress. The text of the answer begins at `offset`.
pub(crate) fn run(run: &AgentRun, offset: usize) -> CallToolResult {
    let view = run.view().borrow().clone();
    match &view.phase {
        RunPhase::Over(outcome) => finished(run, outcome, offset),
        RunPhase::Refused(reason) => {
            let text = format!("{} could not start: {reason}", run.id);
            let mut object = row(run);
            object.insert("reason".into(), Value::from(&**reason));
            result(text, object.into(), true)
        }
        RunPhase::Starting | RunPhase::Running => {
            let seconds = run.age().as_secs();
            let text = format!(
                "{id} is still running after {seconds} s: {}\nCall agent_wait with run `{id}` for the result, or \
                 agent_cancel to stop it.",
                view.progress.line(),
                id = run.id,
            );
            result(text, row(run).into(), false)
        }
    }
}

/// Returns a short description of a run, as in a list.
pub(crate) fn row(run: &AgentRun) -> Map<String, Value> {
    let view = run.view().borrow().clone();
    let status = match &view.phase {
        RunPhase::Starting => "starting",
        RunPhase::Running => "running",
        RunPhase::Over(_) => "over",
        RunPhase::Refused(_) => "refused",
    };
    let verdict = match &view.phase {
        RunPhase::Over(outcome) => json!(outcome.verdict),
        _ => Value::Null,
    };
    let row = json!({
        "run": run.id,
        "status": status,
        "verdict": verdict,
        "agent": run.agent,
        "cwd": run.workspace.to_string_lossy(),
        "prompt": run.title,
        "age_s": run.age().as_secs(),
        "progress": view.progress,
    });
    match row {
        Value::Object(row) => row,
        _ => Map::new(),
    }
}

fn finished(run: &AgentRun, outcome: &Outcome, offset: usize) -> CallToolResult {
    let (part, next) = part(&outcome.text, offset);
    let tokens = &outcome.usage.tokens;
    let files: Vec<Value> = outcome
        .files
        .iter()
        .map(|file| json!({"path": file.path, "change": file.change, "verified": file.verified}))
        .collect();
    let structured = json!({
        "run": run.id,
        "status": "over",
        "verdict": outcome.verdict,
        "text": part,
        "next_offset": next,
        "files": files,
        "cost_usd": outcome.cost_usd,
        "tokens": {
            "input": tokens.input,
            "output": tokens.output,
            "cached": tokens.cached,
            "total": tokens.total,
        },
        "run_id": outcome.run_id,
        "session_id": outcome.session_id,
        "agent": outcome.agent,
        "model": outcome.model,
        "cwd": outcome.cwd,
        "denied": outcome.denied,
        "error": outcome.error.as_ref().map(|error| json!({
            "kind": error.kind, "message": error.message, "hint": error.hint, "retryable": error.retryable,
        })),
        "turns": outcome.turns,
        "tool_calls": outcome.tool_calls,
        "duration_ms": outcome.duration_ms,
        "warnings": outcome.warnings,
    });
    let succeeded = matches!(outcome.verdict, Verdict::Done | Verdict::DoneWithDenials);
    result(readable(run, outcome, part, next), structured, !succeeded)
}

fn readable(run: &AgentRun, outcome: &Outcome, part: &str, next: Option<usize>) -> String {
    let mut facts = vec![outcome.agent.to_string(), format!("{:.1} s", outcome.duration_ms as f64 / 1000.0)];
    facts.extend(outcome.cost_usd.map(|cost| format!("${cost:.4}")));
    facts.extend(outcome.usage.tokens.total.map(|tokens| format!("{tokens} tokens")));
    let verdict = json!(outcome.verdict);
    let mut text = format!("{}: {} ({})\n", run.id, verdict.as_str().unwrap_or_default(), facts.join(", "));
    if let Some(error) = &outcome.error {
        text.push_str(&format!("error: {}\n", error.message));
        text.extend(error.hint.iter().map(|hint| format!("hint: {hint}\n")));
    }
    if !part.is_empty() {
        text.push_str(&format!("\n{part}\n"));
    }
    if let Some(next) = next {
        text.push_str(&format!("\n(the answer continues: call agent_result with offset {next})\n"));
    }
    list(&mut text, "files", &outcome.files, |file| {
        format!("{} {}", json!(file.change).as_str().unwrap_or_default(), file.path)
    });
    list(&mut text, "denied", &outcome.denied, |denied| format!("{} ({})", denied.tool, denied.reason));
    text
}

fn list<T>(text: &mut String, title: &str, all: &[T], line: impl Fn(&T) -> String) {
    if all.is_empty() {
        return;
    }
    text.push_str(&format!("\n{title}:\n"));
    for one in all.iter().take(LISTED) {
        text.push_str(&format!("- {}\n", line(one)));
    }
    if all.len() > LISTED {
        text.push_str(&format!("- and {} more\n", all.len() - LISTED));
    }
}

/// Returns the part of a text that begins at this byte, and where the next part begins.
fn part(text: &str, offset: usize) -> (&str, Option<usize>) {
    let boundary =
        |at: usize| (0..=at.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    let (begin, end) = (boundary(offset), boundary(offset.saturating_add(LONGEST_PART)));
    (&text[begin..end], (end < text.len()).then_some(end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_answer_is_returned_in_parts_that_join_to_the_whole() {
        let text = "grüße".repeat(20_000);
        let (mut joined, mut next) = (String::new(), Some(0));
        while let Some(offset) = next {
            let (piece, following) = part(&text, offset);
            assert!(piece.len() <= LONGEST_PART && !piece.is_empty());
            joined.push_str(piece);
            next = following;
        }
        assert_eq!(joined, text);
        assert_eq!(part("short", 0), ("short", None));
        assert_eq!(part("short", 99), ("", None));
    }
}
