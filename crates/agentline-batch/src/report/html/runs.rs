//! The runs of a report, as data for the script of its page.

use crate::class::Class;
use crate::report::ExperimentReport;
use crate::result::{MESSAGES, RunResult};
use agentline::Outcome;
use serde_json::{Value, json};
use std::path::Path;

/// The longest text of a run in the page; the run's directory has the rest.
const LONGEST_TEXT: usize = 4_000;
/// The longest diff of a file in the page.
const LONGEST_DIFF: usize = 4_000;
/// The longest message in the page, and the maximum number of messages of a run.
const LONGEST_MESSAGE: usize = 1_000;
const MOST_MESSAGES: usize = 60;
/// The total size of texts, messages and diffs in the page. Runs that did not pass come first.
const LARGEST_DETAILS: usize = 24 << 20;

/// Returns the runs as data for the script, those that did not pass first.
pub(super) fn runs(report: &ExperimentReport) -> Vec<Value> {
    let mut all: Vec<&RunResult> = report.cases.iter().flat_map(|case| &case.runs).collect();
    all.sort_by_key(|run| match run.class {
        Class::Failed => 0,
        Class::Infrastructure => 1,
        Class::Passed => 2,
    });
    let mut size = 0;
    all.iter()
        .map(|run| {
            let is_shown = size <= LARGEST_DETAILS;
            let detail = report.run_dir(run).filter(|_| is_shown).and_then(|dir| detail(&dir));
            size += detail.as_ref().map_or(0, |detail| detail.to_string().len());
            json!({
                "case": run.case, "variant": run.variant, "attempt": run.attempt, "class": run.class,
                "verdict": run.verdict, "message": run.message, "checks": run.checks, "cost": run.cost_usd, "judges": run.judge_cost_usd,
                "tokens": run.tokens, "ms": run.duration_ms, "turns": run.turns, "tries": run.tries,
                "dir": run.dir, "detail": detail,
            })
        })
        .collect()
}

/// Returns the prompt, the answer, the messages and the changes of a run, cut to a readable size.
fn detail(dir: &Path) -> Option<Value> {
    let bytes = agentline_fs::regular_file::read_unlinked(&dir.join("outcome.json"), 64 << 20).ok()?;
    let outcome: Outcome = serde_json::from_slice(&bytes).ok()?;
    let files: Vec<Value> = outcome
        .files
        .iter()
        .map(|row| {
            let diff = row.diff.as_deref().map(|diff| cut(diff, LONGEST_DIFF));
            json!({"path": row.path, "change": row.change, "diff": diff})
        })
        .collect();
    let mut messages = messages(dir);
    let begins_with_prompt = messages.first().is_some_and(|row| row["by"] == "user");
    let prompt = begins_with_prompt.then(|| messages.remove(0)["text"].take());
    if let [only] = messages.as_slice()
        && only["by"] == "assistant"
    {
        // It is the answer.
        messages.clear();
    }
    Some(json!({
        "prompt": prompt, "text": cut(&outcome.text, LONGEST_TEXT), "files": files, "messages": messages,
    }))
}

/// Returns the messages of a run, cut to a readable size: their author (`user`, `assistant`, `thinking`, `tool` or
/// `result`) and text.
fn messages(dir: &Path) -> Vec<Value> {
    let bytes = agentline_fs::regular_file::read_unlinked(&dir.join(MESSAGES), 64 << 20).unwrap_or_default();
    let mut rows = Vec::new();
    for line in bytes.split(|byte| *byte == b'\n') {
        let Ok(message) = serde_json::from_slice::<Value>(line) else { continue };
        let content = message.get("content").cloned().unwrap_or_default();
        let blocks = match content {
            Value::Array(blocks) => blocks,
            Value::String(text) => vec![json!({"type": "text", "text": text})],
            _ => continue,
        };
        for block in blocks {
            if rows.len() == MOST_MESSAGES {
                rows.push(json!({"by": "", "text": "… more messages are in the run's directory"}));
                return rows;
            }
            let (by, text) = match block["type"].as_str() {
                Some("text") => (message["role"].clone(), shown(&block["text"])),
                Some("thinking") => ("thinking".into(), shown(&block["thinking"])),
                Some("tool_use") => {
                    ("tool".into(), format!("{} {}", shown(&block["name"]), shown(&block["input"])))
                }
                Some("tool_result") => ("result".into(), shown(&block["content"])),
                _ => continue,
            };
            rows.push(json!({"by": by, "text": cut(&text, LONGEST_MESSAGE)}));
        }
    }
    rows
}

/// Returns a value as text: a string as it is, the texts of a list of blocks, and anything else as JSON.
pub(super) fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(blocks) if blocks.iter().all(|block| block["text"].is_string()) => {
            blocks.iter().filter_map(|block| block["text"].as_str()).collect::<Vec<_>>().join("\n")
        }
        other => other.to_string(),
    }
}

pub(super) fn cut(text: &str, longest: usize) -> String {
    if text.len() <= longest {
        return text.to_owned();
    }
    let end = (0..=longest).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    format!("{}\n… {} more bytes are in the run's directory", &text[..end], text.len() - end)
}
