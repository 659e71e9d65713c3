//! Reads checks from a suite.

use super::{Check, Condition, JudgeSpec};
use agentline::{Schema, Verdict};
use agentline_core::nearest;
use globset::{Glob, GlobSet, GlobSetBuilder};
use regex::Regex;
use serde_json::{Map, Value};
use serde_json_path::JsonPath;
use std::time::Duration;

/// The names of all checks.
pub(crate) const NAMES: &[&str] = &[
    "contains",
    "icontains",
    "equals",
    "regex",
    "json_schema",
    "json_path",
    "file_exists",
    "file_equals",
    "file_contains",
    "unchanged",
    "only_changed",
    "command",
    "tool_used",
    "tool_not_used",
    "verdict",
    "max_cost",
    "max_tokens",
    "max_turns",
    "max_time",
    "judge",
    "not",
];

/// The time that a command of a check may take, unless the suite says otherwise.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(60);

/// A mistake in a check: what is wrong, and what to write instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CheckProblem {
    pub(crate) message: String,
    pub(crate) hint: String,
}

fn problem(message: impl Into<String>, hint: impl Into<String>) -> CheckProblem {
    CheckProblem { message: message.into(), hint: hint.into() }
}

impl Check {
    /// Reads a check: a table with one key, its name, such as `contains: done`.
    pub(crate) fn read(value: &Value) -> Result<Self, CheckProblem> {
        let names = || format!("the checks are {}", NAMES.join(", "));
        let written = value.clone();
        let Some(table) = value.as_object() else {
            return Err(problem("is not a table with one check", "write `- contains: \"…\"`"));
        };
        let mut keys = table.iter();
        let (Some((name, value)), None) = (keys.next(), keys.next()) else {
            return Err(problem("must have exactly one check", "begin each check with its own `-`"));
        };
        if name == "not" {
            let inner = Self::read(value)?;
            if matches!(inner.condition, Condition::Judge(_)) {
                return Err(problem("`not` cannot be applied to a judge", "write the rubric the other way"));
            }
            return Ok(Self {
                label: format!("not {}", inner.label),
                is_negated: !inner.is_negated,
                condition: inner.condition,
                written,
            });
        }
        let condition = read_condition(name, value).unwrap_or_else(|| {
            let near = nearest(name, NAMES.iter().copied());
            let hint = near.map_or_else(names, |near| format!("did you mean `{near}`?"));
            Err(problem(format!("`{name}` is not a check"), hint))
        })?;
        let is_negated = name == "tool_not_used";
        Ok(Self { label: label(name, value), is_negated, condition, written })
    }
}

/// Describes a check in one short line.
fn label(name: &str, value: &Value) -> String {
    const LONGEST: usize = 80;
    let text = match value {
        Value::Object(table) if name == "command" => {
            table.get("run").map(Value::to_string).unwrap_or_default()
        }
        Value::Object(table) if name == "judge" => {
            table.get("rubric").map(Value::to_string).unwrap_or_default()
        }
        value => value.to_string(),
    };
    let short: String = text.chars().take(LONGEST).collect();
    let more = if short.len() < text.len() { "…" } else { "" };
    format!("{name} {short}{more}")
}

/// Reads the condition with this name; `None` if there is none.
fn read_condition(name: &str, value: &Value) -> Option<Result<Condition, CheckProblem>> {
    Some(match name {
        "contains" => text(value).map(Condition::Contains),
        "icontains" => text(value).map(Condition::ContainsIgnoringCase),
        "equals" => Ok(Condition::Equals(value.clone())),
        "regex" => text(value).and_then(|text| {
            let error = |error: regex::Error| problem(error.to_string(), "write a regular expression");
            Regex::new(&text).map(Condition::Regex).map_err(error)
        }),
        "json_schema" => Schema::from_value(value.clone()).map(Condition::JsonSchema).map_err(|problems| {
            let message = problems.0.first().map_or_else(String::new, |problem| problem.message.clone());
            problem(message, "write a JSON Schema")
        }),
        "json_path" => json_path(value),
        "file_exists" => path(value).map(Condition::FileExists),
        "file_equals" => file_text(value).map(|(path, text)| Condition::FileEquals { path, text }),
        "file_contains" => file_text(value).map(|(path, text)| Condition::FileContains { path, text }),
        "unchanged" => globs(value).map(Condition::Unchanged),
        "only_changed" => globs(value).map(Condition::OnlyChanged),
        "command" => command(value),
        "tool_used" | "tool_not_used" => text(value).map(Condition::ToolUsed),
        "verdict" => verdicts(value).map(Condition::Verdict),
        "max_cost" => number(value).map(Condition::MaxCost),
        "max_tokens" => whole(value).map(Condition::MaxTokens),
        "max_turns" => {
            whole(value).map(|turns| Condition::MaxTurns(u32::try_from(turns).unwrap_or(u32::MAX)))
        }
        "max_time" => seconds(value).map(Condition::MaxTime),
        "judge" => judge(value).map(Condition::Judge),
        _ => return None,
    })
}

fn text(value: &Value) -> Result<String, CheckProblem> {
    match value {
        Value::String(text) => Ok(text.clone()),
        Value::Number(_) | Value::Bool(_) => Ok(value.to_string()),
        _ => Err(problem("expects text", "write the text after the name of the check")),
    }
}

/// Reads a path inside the workspace.
fn path(value: &Value) -> Result<String, CheckProblem> {
    let path = text(value)?;
    let parts = std::path::Path::new(&path).components();
    let is_inside = !path.is_empty()
        && parts
            .into_iter()
            .all(|part| matches!(part, std::path::Component::Normal(_) | std::path::Component::CurDir));
    if is_inside {
        Ok(path)
    } else {
        Err(problem(
            format!("`{path}` is not a path inside the workspace"),
            "write a relative path without `..`",
        ))
    }
}

fn number(value: &Value) -> Result<f64, CheckProblem> {
    let number = value.as_f64().filter(|number| *number >= 0.0);
    number.ok_or_else(|| problem("expects a number", "write a number such as 0.5"))
}

fn whole(value: &Value) -> Result<u64, CheckProblem> {
    value.as_u64().ok_or_else(|| problem("expects a whole number", "write a number such as 3"))
}

fn seconds(value: &Value) -> Result<Duration, CheckProblem> {
    number(value).and_then(|seconds| {
        Duration::try_from_secs_f64(seconds).map_err(|_| problem("is too long", "write a number of seconds"))
    })
}

/// Returns the fields of a table with these keys only.
fn fields<'a>(value: &'a Value, known: &[&str]) -> Result<&'a Map<String, Value>, CheckProblem> {
    let keys = || format!("the keys are {}", known.join(", "));
    let table = value.as_object().ok_or_else(|| problem("expects a table", keys()))?;
    match table.keys().find(|key| !known.contains(&key.as_str())) {
        Some(key) => Err(problem(format!("`{key}` is not a known key"), keys())),
        None => Ok(table),
    }
}

fn required<'a>(table: &'a Map<String, Value>, key: &str) -> Result<&'a Value, CheckProblem> {
    table.get(key).ok_or_else(|| problem(format!("`{key}` is missing"), format!("add `{key}: …`")))
}

fn file_text(value: &Value) -> Result<(String, String), CheckProblem> {
    let table = fields(value, &["path", "text"])?;
    Ok((path(required(table, "path")?)?, text(required(table, "text")?)?))
}

fn json_path(value: &Value) -> Result<Condition, CheckProblem> {
    let (expression, equals) = match value {
        Value::String(text) => (text.clone(), None),
        value => {
            let table = fields(value, &["path", "equals"])?;
            (text(required(table, "path")?)?, table.get("equals").cloned())
        }
    };
    let path = JsonPath::parse(&expression)
        .map_err(|error| problem(error.to_string(), "write a JSONPath such as `$.items[0].name`"))?;
    Ok(Condition::JsonPath { path, equals })
}

fn globs(value: &Value) -> Result<GlobSet, CheckProblem> {
    let patterns = match value {
        Value::Array(list) => list.iter().map(text).collect::<Result<Vec<_>, _>>()?,
        value => vec![text(value)?],
    };
    let mut set = GlobSetBuilder::new();
    let wrong = |error: globset::Error| problem(error.to_string(), "write a pattern such as `src/**/*.rs`");
    for pattern in &patterns {
        set.add(Glob::new(pattern).map_err(wrong)?);
    }
    set.build().map_err(wrong)
}

fn command(value: &Value) -> Result<Condition, CheckProblem> {
    let Value::Object(_) = value else {
        return Ok(Condition::Command { line: text(value)?, timeout: COMMAND_TIMEOUT });
    };
    let table = fields(value, &["run", "timeout"])?;
    let timeout = table.get("timeout").map_or(Ok(COMMAND_TIMEOUT), seconds)?;
    Ok(Condition::Command { line: text(required(table, "run")?)?, timeout })
}

fn verdicts(value: &Value) -> Result<Vec<Verdict>, CheckProblem> {
    let names = match value {
        Value::Array(list) => list.iter().map(text).collect::<Result<Vec<_>, _>>()?,
        value => vec![text(value)?],
    };
    names
        .iter()
        .map(|name| {
            serde_json::from_value(name.as_str().into()).map_err(|_| {
                problem(format!("`{name}` is not a verdict"), "write a verdict such as `done` or `empty`")
            })
        })
        .collect()
}

fn judge(value: &Value) -> Result<JudgeSpec, CheckProblem> {
    let Value::Object(table) = value else {
        return Ok(JudgeSpec { rubric: text(value)?, settings: Map::new() });
    };
    let mut settings = table.clone();
    let rubric = settings
        .remove("rubric")
        .ok_or_else(|| problem("`rubric` is missing", "add `rubric: what a good result is`"))?;
    Ok(JudgeSpec { rubric: text(&rubric)?, settings })
}
