//! Reports invalid settings: the key as the user wrote it, its value, its location and a hint.

use super::{
    findings::{one_line, shorten},
    layer::{Layer, LayerKind, VARIABLES},
};
use crate::{MARK, Problem, nearest};
use serde_json::Value;
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

/// How messages about a value refer to its key.
#[derive(Clone, Copy)]
pub(super) struct KeyFacts {
    pub(super) name: &'static str,
    pub(super) flag: Option<&'static str>,
    pub(super) example: &'static str,
    pub(super) is_secret: bool,
}

/// A value given for a key.
#[derive(Clone)]
pub(super) struct SettingValue<'a> {
    /// The path of the key as spelled, which starts messages: `timeout_ms`, `agents.gemini.program`.
    pub(super) name: String,
    pub(super) value: &'a Value,
    pub(super) layer: &'a Layer,
    pub(super) lines: &'a BTreeMap<String, usize>,
    pub(super) key: KeyFacts,
    /// Whether the value is the text of a variable, from which numbers, booleans and lists are parsed.
    pub(super) is_loose: bool,
}

impl<'a> SettingValue<'a> {
    /// Returns a value nested in this one.
    pub(super) fn part<'b>(&self, name: &str, value: &'b Value) -> SettingValue<'b>
    where
        'a: 'b,
    {
        SettingValue { name: format!("{}.{name}", self.name), value, is_loose: false, ..self.clone() }
    }

    /// Returns whether the value comes from a map of a program. Programs know the messages that the provider's
    /// documentation lists, which name the key and the Python type.
    fn is_from_program(&self) -> bool {
        self.layer.kind == LayerKind::Table && !self.layer.is_file()
    }

    /// Returns a problem with the type of the value: `must be a whole number, got a list`.
    pub(super) fn must_be(&self, kind: &str) -> Problem {
        if self.is_from_program() {
            let message = format!("{} must be {kind}, got: {}", self.name, type_name(self.value));
            return self.problem(message).value(self.shown());
        }
        let got = if self.is_secret() || matches!(self.value, Value::Array(_) | Value::Object(_)) {
            plain_type_name(self.value).to_owned()
        } else {
            format!("`{}`", self.shown())
        };
        self.problem(format!("must be {kind}, got {got}"))
    }

    /// Returns a problem with the value: `must be a duration, got "soon"`.
    pub(super) fn invalid(&self, message: &str) -> Problem {
        if self.is_from_program() {
            return self.problem(format!("{} {message}", self.name)).value(self.shown());
        }
        self.problem(format!("{message}, got `{}`", self.shown()))
    }

    /// Returns a problem whose message does not show the value.
    pub(super) fn without_value(&self, message: &str) -> Problem {
        let name = if self.is_from_program() { format!("{} ", self.name) } else { String::new() };
        self.problem(format!("{name}{message}"))
    }

    /// Returns a problem with a number that must be greater than 0.
    pub(super) fn must_be_positive(&self) -> Problem {
        self.invalid(if self.is_from_program() { "must be > 0" } else { "must be greater than 0" })
    }

    /// Returns a problem with a number that must be 0 or more.
    pub(super) fn must_not_be_negative(&self) -> Problem {
        self.invalid(if self.is_from_program() { "must be >= 0" } else { "must be 0 or more" })
    }

    /// Returns a problem for a word that is not one of `choices`, each of which is `noun`, such as `a surface`.
    pub(super) fn must_be_one_of(&self, choices: &[&str], noun: &str) -> Problem {
        let mut sorted = choices.to_vec();
        sorted.sort_unstable();
        let problem = if self.is_from_program() {
            let (choices, got) = (repr_list(&sorted), repr(self.value));
            self.problem(format!("{} must be one of {choices}, got: {got}", self.name))
        } else {
            let text = self.value.as_str().map_or_else(|| self.shown(), shorten);
            self.problem(format!("`{}` is not {noun}", one_line(&text)))
        };
        let suggestion = self.value.as_str().and_then(|word| nearest(word, sorted.iter().copied()));
        problem.hint(match suggestion {
            Some(word) => format!("did you mean `{word}`?"),
            None => format!("write one of: {}", sorted.join(", ")),
        })
    }

    /// Returns a problem with this value.
    pub(super) fn problem(&self, message: impl Into<String>) -> Problem {
        Problem::new(self.label(), message).source(self.source())
    }

    /// Returns the value as messages show it: shortened, with secrets redacted.
    pub(super) fn shown(&self) -> String {
        match self.value {
            _ if self.is_secret() => MARK.into(),
            Value::String(text) if self.is_loose || self.layer.kind == LayerKind::Flags => {
                shorten(&one_line(text))
            }
            value => shorten(&value.to_string()),
        }
    }

    fn is_secret(&self) -> bool {
        self.key.is_secret || self.name.split('.').any(|part| matches!(part, "env" | "headers"))
    }

    /// Returns the location: the layer, with the line number if known.
    pub(super) fn source(&self) -> String {
        match self.lines.get(&self.name) {
            Some(line) => format!("{}:{line}", self.layer.name),
            None => self.layer.name.clone(),
        }
    }

    /// Resolves a path relative to the base directory of the layer, expanding `~`.
    pub(super) fn path(&self, text: &str) -> PathBuf {
        let rest = text.strip_prefix('~').filter(|rest| rest.is_empty() || rest.starts_with(['/', '\\']));
        match (rest, &self.layer.home, &self.layer.base) {
            (Some(rest), Some(home), _) => home.join(rest.trim_start_matches(['/', '\\'])),
            (_, _, Some(base)) if text == "." => base.clone(),
            (_, _, Some(base)) => base.join(Path::new(text).strip_prefix("./").unwrap_or(Path::new(text))),
            _ => text.into(),
        }
    }

    /// Returns the key as the user wrote it: a flag, a variable or a key.
    pub(super) fn label(&self) -> String {
        match self.layer.kind {
            LayerKind::Flags => self.key.flag.map_or_else(|| self.name.clone(), |flag| format!("--{flag}")),
            LayerKind::Environment => {
                let key = self.name.split('.').next().unwrap_or_default();
                format!("{VARIABLES}{}", key.to_uppercase())
            }
            LayerKind::Table => self.name.clone(),
        }
    }
}

/// Returns a problem for two names of one key with different values in one layer.
pub(super) fn disagreement(one: &SettingValue<'_>, other: &SettingValue<'_>) -> Problem {
    let (a, b) = (one.label(), other.label());
    one.problem(format!("`{a}` and `{b}` have different values: `{}` and `{}`", one.shown(), other.shown()))
        .hint(format!("remove one of them: both set `{}`", one.key.name))
}

/// Returns the Python name of a value's type, as the provider's documentation uses it.
pub(super) fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "NoneType",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float",
        Value::Number(_) => "int",
        Value::String(_) => "str",
        Value::Array(_) => "list",
        Value::Object(_) => "dict",
    }
}

/// Returns the name of a value's type, with its article.
fn plain_type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "nothing",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "a table",
    }
}

/// Formats a value as it is written, with text in single quotes.
fn repr(value: &Value) -> String {
    match value {
        Value::String(word) if word.contains('\'') => shorten(&format!("{word:?}")),
        Value::String(word) => {
            let quoted = format!("{word:?}").replace("\\\"", "\"");
            shorten(&format!("'{}'", &quoted[1..quoted.len() - 1]))
        }
        other => shorten(&other.to_string()),
    }
}

fn repr_list(choices: &[&str]) -> String {
    let quoted: Vec<String> = choices.iter().map(|choice| format!("'{choice}'")).collect();
    format!("[{}]", quoted.join(", "))
}
