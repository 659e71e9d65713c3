//! Evaluates checks. Commands and judges are carried out elsewhere; everything else is decided here.

use super::{Check, Condition};
use agentline::Outcome;
use agentline_fs::regular_file::{open_unlinked, read_to_limit};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// The largest file that a check reads.
const LARGEST_FILE: u64 = 16 << 20;

/// The result of a check, as reports show it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct CheckResultRow {
    /// The description of the check.
    pub check: String,
    /// Whether it passed.
    pub passed: bool,
    /// What was found instead; empty if the check passed.
    pub detail: String,
    /// For a judge, a digest of its whole rubric and its settings: the decision is about these only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub judge: Option<String>,
}

impl CheckResultRow {
    pub(crate) fn new(check: &Check, found: Result<(), String>) -> Self {
        let passed = found.is_ok() != check.is_negated;
        let detail = match found {
            Err(detail) if !check.is_negated => detail,
            Ok(()) if check.is_negated => "the condition holds".to_owned(),
            _ => String::new(),
        };
        let judge = match &check.condition {
            Condition::Judge(judge) => Some(judge.digest()),
            _ => None,
        };
        Self { check: check.label.clone(), passed, detail, judge }
    }

    /// Creates the result of a check that failed, whatever its condition is.
    pub(crate) fn failed(check: &Check, detail: String) -> Self {
        Self { check: check.label.clone(), passed: false, detail, judge: None }
    }
}

/// How often a tool was called.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ToolCount {
    /// The agent's own name of the tool.
    pub name: String,
    /// The canonical name, the same for all agents.
    pub canonical: String,
    /// The number of calls.
    pub calls: u32,
}

/// What checks look at.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct RunEvidence<'a> {
    /// The outcome of the run.
    pub outcome: &'a Outcome,
    /// The tools that the agent called.
    pub tools: &'a [ToolCount],
    /// The workspace after the run, with the hidden files.
    pub workspace: &'a Path,
    /// The changed files that the template makes Git ignore. They are not in the outcome.
    pub ignored_changes: &'a [String],
}

impl<'a> RunEvidence<'a> {
    /// Creates the evidence of a run.
    #[must_use]
    pub fn new(outcome: &'a Outcome, tools: &'a [ToolCount], workspace: &'a Path) -> Self {
        Self { outcome, tools, workspace, ignored_changes: &[] }
    }

    /// Adds the changed files that the template makes Git ignore.
    #[must_use]
    pub fn with_ignored_changes(self, ignored_changes: &'a [String]) -> Self {
        Self { ignored_changes, ..self }
    }

    /// Evaluates a check; `None` for a command or a judge, which must be run.
    #[must_use]
    pub fn evaluate(&self, check: &Check) -> Option<CheckResultRow> {
        let found = self.holds(&check.condition)?;
        Some(CheckResultRow::new(check, found))
    }

    /// Returns whether a condition holds, or what was found instead.
    fn holds(&self, condition: &Condition) -> Option<Result<(), String>> {
        let outcome = self.outcome;
        let text = outcome.text.as_str();
        Some(match condition {
            Condition::Contains(part) => ensure(text.contains(part), || answer(text)),
            Condition::ContainsIgnoringCase(part) => {
                ensure(text.to_lowercase().contains(&part.to_lowercase()), || answer(text))
            }
            Condition::Equals(Value::String(expected)) => {
                ensure(text.trim() == expected.trim(), || answer(text))
            }
            Condition::Equals(expected) => self.json().and_then(|found| {
                ensure(equal(&found, expected), || format!("the value is {}", short(&found.to_string())))
            }),
            Condition::Regex(regex) => ensure(regex.is_match(text), || answer(text)),
            Condition::JsonSchema(schema) => {
                self.json().and_then(|found| schema.check(&found).map_err(|errors| errors.join("; ")))
            }
            Condition::JsonPath { path, equals } => self.json().and_then(|found| {
                let values = path.query(&found).all();
                match equals {
                    None => ensure(!values.is_empty(), || "the path has no value".into()),
                    Some(expected) => ensure(values.iter().any(|value| equal(value, expected)), || {
                        let values: Vec<String> = values.iter().map(ToString::to_string).collect();
                        format!("the path has {}", short(&listed(&values)))
                    }),
                }
            }),
            Condition::FileExists(path) => {
                let found = std::fs::symlink_metadata(self.workspace.join(path));
                ensure(found.is_ok(), || format!("`{path}` does not exist"))
            }
            Condition::FileEquals { path, text } => self.file(path).and_then(|found| {
                ensure(found == *text, || format!("`{path}` contains {}", short(&format!("{found:?}"))))
            }),
            Condition::FileContains { path, text } => self.file(path).and_then(|found| {
                ensure(found.contains(text.as_str()), || {
                    format!("`{path}` contains {}", short(&format!("{found:?}")))
                })
            }),
            // A file that the suite names counts, ignored or not. Others that Git ignores are by-products, as of a build.
            Condition::Unchanged(globs) => self.changed(self.ignored_changes, |path| globs.is_match(path)),
            Condition::OnlyChanged(globs) => self.changed(&[], |path| !globs.is_match(path)),
            Condition::ToolUsed(name) => {
                let used = self.tools.iter().any(|tool| tool.name == *name || tool.canonical == *name);
                ensure(used, || {
                    let names: Vec<String> = self.tools.iter().map(|tool| tool.name.clone()).collect();
                    format!("the agent called {}", listed(&names))
                })
            }
            Condition::Verdict(verdicts) => ensure(verdicts.contains(&outcome.verdict), || {
                format!("the verdict is {}", outcome.verdict.name())
            }),
            Condition::MaxCost(limit) => match outcome.cost_usd {
                Some(cost) => ensure(cost <= *limit, || format!("the run cost ${cost}")),
                None => Err("the cost is not known".into()),
            },
            Condition::MaxTokens(limit) => match outcome.usage.tokens.total {
                Some(tokens) => ensure(tokens <= *limit, || format!("the run used {tokens} tokens")),
                None => Err("the number of tokens is not known".into()),
            },
            Condition::MaxTurns(limit) => {
                ensure(outcome.turns <= *limit, || format!("the run took {} turns", outcome.turns))
            }
            Condition::MaxTime(limit) => ensure(u128::from(outcome.duration_ms) <= limit.as_millis(), || {
                format!("the run took {} ms", outcome.duration_ms)
            }),
            Condition::Command { .. } | Condition::Judge(_) => return None,
        })
    }

    /// Returns the structured value, or else the answer as JSON, with or without a code fence.
    fn json(&self) -> Result<Value, String> {
        if let Some(output) = &self.outcome.output {
            return serde_json::from_str(output.get()).map_err(|error| error.to_string());
        }
        let text = self.outcome.text.trim();
        let inner = text.strip_prefix("```").and_then(|text| text.strip_suffix("```")).map(|text| {
            let (_, text) = text.split_once('\n').unwrap_or(("", text));
            text
        });
        serde_json::from_str(inner.unwrap_or(text)).map_err(|_| format!("is not JSON: {}", answer(text)))
    }

    /// Reads a file of the workspace. The agent wrote it, so a link must not lead outside.
    fn file(&self, path: &str) -> Result<String, String> {
        let cannot = |error: std::io::Error| format!("`{path}` cannot be read: {error}");
        let root = std::fs::canonicalize(self.workspace).map_err(cannot)?;
        let full: PathBuf = std::fs::canonicalize(root.join(path)).map_err(cannot)?;
        if !full.starts_with(&root) {
            return Err(format!("`{path}` is a link to a file outside the workspace"));
        }
        let file = open_unlinked(&full, LARGEST_FILE).map_err(cannot)?;
        let bytes = read_to_limit(file, LARGEST_FILE).map_err(cannot)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Returns whether no changed file is one that must not change.
    fn changed(&self, ignored: &[String], is_forbidden: impl Fn(&str) -> bool) -> Result<(), String> {
        let paths = self.outcome.files.iter().map(|row| row.path.as_str());
        let paths = paths.chain(ignored.iter().map(String::as_str));
        let changed: Vec<String> = paths.filter(|path| is_forbidden(path)).map(str::to_owned).collect();
        ensure(changed.is_empty(), || format!("{} changed", listed(&changed)))
    }
}

fn ensure(holds: bool, detail: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(detail()) }
}

/// Compares JSON values; 2 and 2.0 are equal.
fn equal(found: &Value, expected: &Value) -> bool {
    match (found, expected) {
        (Value::Number(a), Value::Number(b)) => a == b || a.as_f64() == b.as_f64(),
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| equal(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(key, a)| b.get(key).is_some_and(|b| equal(a, b)))
        }
        (a, b) => a == b,
    }
}

fn answer(text: &str) -> String {
    if text.trim().is_empty() {
        "there is no answer".into()
    } else {
        format!("the answer is {}", short(&format!("{text:?}")))
    }
}

/// Shortens a text for one line of a report.
fn short(text: &str) -> String {
    const LONGEST: usize = 200;
    let start: String = text.chars().take(LONGEST).collect();
    if start.len() < text.len() { format!("{start}…") } else { start }
}

fn listed(names: &[String]) -> String {
    const SHOWN: usize = 5;
    match names.len() {
        0 => "nothing".into(),
        count if count > SHOWN => format!("{} and {} more", names[..SHOWN].join(", "), count - SHOWN),
        _ => names.join(", "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn checks_pass_and_fail_with_a_reason() {
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::write(dir.path().join("out.txt"), "4\n").expect("a file");
        let info = json!({
            "run_id": "r", "agent": "fake", "agent_version": null, "surface": null, "model": null, "session_id": null,
            "cwd": "/", "name": null, "verdict": "done", "error": null, "text": "```json\n{\"n\": 4, \"list\": [1]}\n```",
            "output": null, "denied": [], "cost_usd": 0.2, "turns": 3, "tool_calls": 1, "stop_reason": null,
            "files": [{"path": "out.txt", "change": "created", "source": "tool", "tool": null, "tool_use_id": null,
                       "verified": true, "added": null, "removed": null}],
            "usage": {"requests": null, "by_model": {}, "sources": [], "total_tokens": 100}, "duration_ms": 1500,
            "first_event_ms": null, "warnings": [], "unreadable_lines": 0, "agent_exit_code": null, "stderr_tail": "",
            "tape": null,
        });
        let outcome: Outcome = serde_json::from_value(info).expect("an outcome");
        let tools = [ToolCount { name: "write_file".into(), canonical: "Write".into(), calls: 1 }];
        let ignored = ["local.log".to_owned()];
        let evidence = RunEvidence::new(&outcome, &tools, dir.path()).with_ignored_changes(&ignored);
        for (check, passed) in [
            (json!({"contains": "list"}), true),
            (json!({"contains": "missing"}), false),
            (json!({"icontains": "JSON"}), true),
            (json!({"regex": "\\d"}), true),
            (json!({"equals": {"n": 4.0, "list": [1]}}), true),
            (json!({"equals": {"n": 4}}), false),
            (json!({"json_schema": {"type": "object", "required": ["n"]}}), true),
            (json!({"json_schema": {"type": "array"}}), false),
            (json!({"json_path": "$.list[0]"}), true),
            (json!({"json_path": {"path": "$.n", "equals": 5}}), false),
            (json!({"file_exists": "out.txt"}), true),
            (json!({"not": {"file_exists": "out.txt"}}), false),
            (json!({"file_equals": {"path": "out.txt", "text": "4\n"}}), true),
            (json!({"file_contains": {"path": "none", "text": "4"}}), false),
            (json!({"only_changed": ["*.txt"]}), true),
            (json!({"unchanged": "out.*"}), false),
            (json!({"unchanged": "*.log"}), false),
            (json!({"unchanged": ["*.md", "other.log"]}), true),
            (json!({"tool_used": "Write"}), true),
            (json!({"tool_not_used": "write_file"}), false),
            (json!({"tool_not_used": "Bash"}), true),
            (json!({"verdict": ["empty", "done"]}), true),
            (json!({"verdict": "failed"}), false),
            (json!({"max_cost": 0.1}), false),
            (json!({"max_tokens": 100}), true),
            (json!({"max_turns": 2}), false),
            (json!({"max_time": 1.5}), true),
        ] {
            let read = Check::read(&check).unwrap_or_else(|problem| panic!("{check}: {problem:?}"));
            let row = evidence.evaluate(&read).expect("a result");
            assert_eq!(row.passed, passed, "{check}: {row:?}");
            assert_eq!(row.detail.is_empty(), passed, "{check}: {row:?}");
        }
        #[cfg(unix)]
        {
            std::os::unix::fs::symlink(std::env::temp_dir(), dir.path().join("link")).expect("a link");
            let outside = tempfile::NamedTempFile::new_in(std::env::temp_dir()).expect("a file");
            let name = outside.path().file_name().expect("a name").to_string_lossy().into_owned();
            let check = json!({"file_contains": {"path": format!("link/{name}"), "text": ""}});
            let row = evidence.evaluate(&Check::read(&check).expect("a check")).expect("a result");
            assert!(!row.passed && row.detail.contains("outside the workspace"), "{row:?}");
        }
    }
}
