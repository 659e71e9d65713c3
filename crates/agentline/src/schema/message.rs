//! Describes validation errors as sentences, and summarizes schemas.

use crate::text::shortened;
use boon::{ErrorKind, ValidationError};
use serde_json::Value;
use std::fmt::{Display, Write};

/// The maximum number of sentences.
const MAX_SENTENCES: usize = 20;
/// The maximum number of errors that are counted.
const MAX_COUNTED: usize = 100_000;
/// The maximum length of a sentence, in characters.
const LONGEST_SENTENCE: usize = 600;
/// The maximum length of a displayed value, in characters.
const LONGEST_VALUE: usize = 120;
/// The maximum number of alternatives that are described one by one.
const MAX_ALTERNATIVES: usize = 6;

/// Describes all errors, one sentence each, up to a limit.
pub(super) fn sentences(error: &ValidationError<'_, '_>, root: &Value, at: &str) -> Vec<String> {
    let mut found = Vec::new();
    describe_error(error, root, at, &mut found);
    let is_cut = found.len() > MAX_SENTENCES;
    found.truncate(MAX_SENTENCES);
    if is_cut {
        let more = count(error).saturating_sub(MAX_SENTENCES);
        found.push(format!("and {more} more"));
    }
    found
}

/// Returns the number of sentences for all errors, up to [`MAX_COUNTED`].
fn count(error: &ValidationError<'_, '_>) -> usize {
    if is_reported_as_one(error) {
        return 1;
    }
    let mut all = 0;
    for cause in &error.causes {
        all += count(cause);
        if all > MAX_COUNTED {
            return MAX_COUNTED;
        }
    }
    all
}

/// Returns whether an error is described by one sentence; other errors are described by their causes.
fn is_reported_as_one(error: &ValidationError<'_, '_>) -> bool {
    error.causes.is_empty() || matches!(error.kind, ErrorKind::AnyOf | ErrorKind::OneOf(None))
}

/// Shortens a sentence to the maximum length.
pub(super) fn bounded(sentence: &str) -> String {
    shortened(sentence, LONGEST_SENTENCE)
}

fn describe_error(error: &ValidationError<'_, '_>, root: &Value, at: &str, found: &mut Vec<String>) {
    if found.len() > MAX_SENTENCES {
        return;
    }
    let alternatives = matches!(error.kind, ErrorKind::AnyOf | ErrorKind::OneOf(None));
    if !is_reported_as_one(error) {
        error.causes.iter().for_each(|cause| describe_error(cause, root, at, found));
        return;
    }
    let inside = error.instance_location.to_string();
    let location = format!("{at}{inside}");
    let location = if location.is_empty() { "at the root".into() } else { format!("at `{location}`") };
    let value = root.pointer(&inside).unwrap_or(&Value::Null);
    let message = if alternatives { none_of(error, root, at) } else { one(&error.kind, value) };
    found.push(bounded(&format!("{location}: {message}")));
}

fn none_of(error: &ValidationError<'_, '_>, root: &Value, at: &str) -> String {
    let value = root.pointer(&error.instance_location.to_string()).unwrap_or(&Value::Null);
    let mut text = format!("expected one of {} alternatives, found {}", error.causes.len(), shown(value));
    for (i, cause) in error.causes.iter().take(MAX_ALTERNATIVES).enumerate() {
        if text.len() > 4 * LONGEST_SENTENCE {
            // The rest would be cut off, and nested alternatives could expand without bound.
            break;
        }
        let mut wrong = Vec::new();
        describe_error(cause, root, at, &mut wrong);
        let _ = write!(text, "; ({}) {}", i + 1, wrong.join(", "));
    }
    text
}

/// Describes the expected and the actual value.
fn one(kind: &ErrorKind<'_, '_>, value: &Value) -> String {
    let found = shown(value);
    let expected = |kind: &dyn Display| format!("expected {kind}, found {found}");
    match kind {
        ErrorKind::Type { want, .. } => {
            let types: Vec<String> = want.iter().map(|kind| kind.to_string()).collect();
            expected(&types.join(" or "))
        }
        ErrorKind::Required { want } => format!("{}, found {found}", missing(want)),
        ErrorKind::Dependency { prop, missing: names }
        | ErrorKind::DependentRequired { prop, missing: names } => {
            format!("{}, which `{prop}` requires", missing(names))
        }
        ErrorKind::AdditionalProperties { got } => {
            let got: Vec<&str> = got.iter().map(|name| &**name).collect();
            format!("expected only properties of the schema, found {}", names(&got))
        }
        ErrorKind::AdditionalItems { got } => format!("expected {got} fewer items, found {found}"),
        ErrorKind::Enum { want } => {
            let values: Vec<String> = want.iter().map(shown).collect();
            expected(&format_args!("one of {}", values.join(", ")))
        }
        ErrorKind::Const { want } => expected(&shown(want)),
        ErrorKind::Format { want, err, .. } => {
            expected(&format_args!("a string of the format `{want}` ({err})"))
        }
        ErrorKind::MinProperties { want, .. } => expected(&format_args!("at least {want} properties")),
        ErrorKind::MaxProperties { want, .. } => expected(&format_args!("at most {want} properties")),
        ErrorKind::MinItems { got, want } => format!("expected at least {want} items, found {got}"),
        ErrorKind::MaxItems { got, want } => format!("expected at most {want} items, found {got}"),
        ErrorKind::UniqueItems { got: [a, b] } => {
            format!("expected unique items, found the same at {a} and {b}")
        }
        ErrorKind::MinLength { got, want } => {
            format!("expected at least {want} characters, found {got}: {found}")
        }
        ErrorKind::MaxLength { got, want } => {
            format!("expected at most {want} characters, found {got}: {found}")
        }
        ErrorKind::Pattern { want, .. } => expected(&format_args!("a string that matches `{want}`")),
        ErrorKind::Minimum { want, .. } => expected(&format_args!("at least {want}")),
        ErrorKind::Maximum { want, .. } => expected(&format_args!("at most {want}")),
        ErrorKind::ExclusiveMinimum { want, .. } => expected(&format_args!("more than {want}")),
        ErrorKind::ExclusiveMaximum { want, .. } => expected(&format_args!("less than {want}")),
        ErrorKind::MultipleOf { want, .. } => expected(&format_args!("a multiple of {want}")),
        ErrorKind::FalseSchema => format!("expected nothing here, found {found}"),
        ErrorKind::Not => format!("found {found}, which the schema excludes"),
        ErrorKind::OneOf(Some((a, b))) => {
            format!(
                "expected exactly one of the alternatives, found {found}, which matches {} and {}",
                a + 1,
                b + 1
            )
        }
        other => format!("{other}, found {found}"),
    }
}

fn missing(these: &[&str]) -> String {
    format!("{} {} missing", names(these), if these.len() == 1 { "is" } else { "are" })
}

fn names(names: &[&str]) -> String {
    let quoted: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    quoted.join(", ")
}

fn shown(value: &Value) -> String {
    shortened(&value.to_string(), LONGEST_VALUE)
}

/// Returns the schema itself, or an outline of its top level if it is longer than `most` bytes.
pub(super) fn summary(schema: &Value, most: usize) -> String {
    let whole = schema.to_string();
    if whole.len() <= most {
        return whole;
    }
    let kind = schema["type"].as_str().unwrap_or("value");
    let mut text = format!("a JSON {kind}");
    if let Some(properties) = schema["properties"].as_object() {
        let required = schema["required"].as_array();
        let is_required = |name: &str| required.is_some_and(|list| list.iter().any(|r| r == name));
        text.push_str(" with");
        for (name, property) in properties {
            let kind = property["type"].as_str().or_else(|| property["$ref"].as_str()).unwrap_or("any value");
            let need = if is_required(name) { ", required" } else { "" };
            let _ = write!(text, "\n- `{name}`: {kind}{need}");
        }
    }
    shortened(&text, most)
}
