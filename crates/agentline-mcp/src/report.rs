//! The results of the tools: an object for programs and a text for models and users.

use crate::{
    outputs::{DeniedTool, ReportedFile, RunFailure, RunReport, RunStatus, TokenCounts},
    run_table::{AgentRun, RunPhase},
};
use agentline::{Outcome, Verdict};
use rmcp::model::{CallToolResult, ContentBlock};
use serde::Serialize;
use serde_json::json;

/// The maximum length of a part of an answer, in bytes. Clients limit what a tool may return.
const LONGEST_PART: usize = 48 << 10;
/// How many files and denials the readable text lists.
const LISTED: usize = 50;

/// Returns the result of a tool.
pub(crate) fn result(text: String, structured: &impl Serialize, is_error: bool) -> CallToolResult {
    let mut result = failed(text);
    // The object has only texts, numbers and lists, which can always be written.
    result.structured_content = serde_json::to_value(structured).ok();
    result.is_error = Some(is_error);
    result
}

/// Returns the result of a call without an object that failed.
pub(crate) fn failed(text: String) -> CallToolResult {
    CallToolResult::error(vec![ContentBlock::text(text)])
}

/// Returns the result of a call about a run that was not carried out, for these reasons.
pub(crate) fn refused(reason: &str) -> CallToolResult {
    let report = RunReport { reason: Some(reason.to_owned()), ..RunReport::default() };
    result(format!("refused: {reason}"), &report, true)
}

/// Describes a run: its result if it is over, otherwise its progress. The text of the answer begins at `offset`.
pub(crate) fn run(run: &AgentRun, offset: usize) -> CallToolResult {
    let view = run.view().borrow().clone();
    match &view.phase {
        RunPhase::Over(outcome) => finished(run, outcome, offset),
        RunPhase::Refused(reason) => result(format!("{} could not start: {reason}", run.id), &row(run), true),
        RunPhase::Starting | RunPhase::Running => {
            let row = row(run);
            let text = format!(
                "{} is still running after {} s: {}\n{}",
                run.id,
                row.age_s.unwrap_or_default(),
                view.progress.line(),
                row.next.as_deref().unwrap_or_default(),
            );
            result(text, &row, false)
        }
    }
}

/// Returns a short description of a run, as in a list.
pub(crate) fn row(run: &AgentRun) -> RunReport {
    let view = run.view().borrow().clone();
    let age = run.age().as_secs();
    let mut row = RunReport {
        run: Some(run.id.clone()),
        agent: Some(run.agent.clone()),
        cwd: Some(run.workspace.to_string_lossy().into_owned()),
        prompt: Some(run.title.clone()),
        age_s: Some(age),
        ..RunReport::default()
    };
    match view.phase {
        RunPhase::Starting => row.status = RunStatus::Starting,
        RunPhase::Running => row.status = RunStatus::Running,
        RunPhase::Over(outcome) => {
            row.status = RunStatus::Over;
            row.verdict = Some(outcome.verdict);
            return row;
        }
        RunPhase::Refused(reason) => {
            row.reason = Some(reason.to_string());
            return row;
        }
    }
    row.progress = Some(view.progress);
    // Some clients show their model only the object.
    row.next = Some(format!(
        "Call agent_wait with run `{}` and since_s {age} for the result, or agent_cancel to stop it.",
        run.id
    ));
    row
}

fn finished(run: &AgentRun, outcome: &Outcome, offset: usize) -> CallToolResult {
    let (part, next) = part(&outcome.text, offset);
    let tokens = &outcome.usage.tokens;
    let file = |file: &agentline::outcome::FileRow| ReportedFile {
        path: file.path.clone(),
        change: file.change,
        verified: file.verified,
    };
    let denied = |denied: &agentline::outcome::Denial| DeniedTool {
        tool: denied.tool.clone(),
        reason: denied.reason.clone(),
    };
    let report = RunReport {
        text: Some(part.to_owned()),
        next_offset: next,
        next: next.map(|next| rest(run, next)),
        files: Some(outcome.files.iter().map(file).collect()),
        denied: Some(outcome.denied.iter().map(denied).collect()),
        error: outcome.error.as_ref().map(|error| RunFailure {
            kind: error.kind,
            message: error.message.clone(),
            hint: error.hint.clone(),
            retryable: error.retryable,
        }),
        cost_usd: outcome.cost_usd,
        tokens: Some(TokenCounts {
            input: tokens.input,
            output: tokens.output,
            cached: tokens.cached,
            total: tokens.total,
        }),
        session_id: outcome.session_id.clone(),
        model: outcome.model.clone(),
        run_id: Some(outcome.run_id.clone()),
        turns: Some(outcome.turns),
        tool_calls: Some(outcome.tool_calls),
        duration_ms: Some(outcome.duration_ms),
        warnings: Some(outcome.warnings.iter().map(|warning| warning.message.clone()).collect()),
        ..row(run)
    };
    let succeeded = matches!(outcome.verdict, Verdict::Done | Verdict::DoneWithDenials);
    result(readable(run, outcome, part, next), &report, !succeeded)
}

fn rest(run: &AgentRun, next: usize) -> String {
    format!("The answer is longer. Call agent_result with run `{}` and offset {next} for the rest.", run.id)
}

fn readable(run: &AgentRun, outcome: &Outcome, part: &str, next: Option<usize>) -> String {
    let mut facts = vec![outcome.agent.to_string(), format!("{:.1} s", outcome.duration_ms as f64 / 1000.0)];
    facts.extend(outcome.cost_usd.map(|cost| format!("${cost:.4}")));
    facts.extend(outcome.usage.tokens.total.map(|tokens| format!("{tokens} tokens")));
    let mut text = format!("{}: {} ({})\n", run.id, outcome.verdict.name(), facts.join(", "));
    if let Some(error) = &outcome.error {
        text.push_str(&format!("error: {}\n", error.message));
        text.extend(error.hint.iter().map(|hint| format!("hint: {hint}\n")));
    }
    if !part.is_empty() {
        text.push_str(&format!("\n{part}\n"));
    }
    if let Some(next) = next {
        text.push_str(&format!("\n{}\n", rest(run, next)));
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
