//! Redacts secrets in settings, arguments and URLs, recognized by their names.

use crate::looks_secret;
use serde::Serialize;
use serde_json::{Map, Value};
use std::fmt;

/// The replacement for a secret.
pub const MARK: &str = "[redacted]";

/// The minimum length of a secret in characters. Shorter values are too common to be redacted everywhere.
pub const SHORTEST_SECRET: usize = 8;

/// The minimum number of bytes of an incomplete secret that count as significant.
pub(crate) const SIGNIFICANT_LENGTH: usize = 4;

/// Redacts every secret in the value of the setting `name`.
pub(crate) fn redacted(name: &str, value: Value) -> Value {
    match value {
        Value::Object(table) if name == "headers" => {
            table.into_iter().map(|(name, _)| (name, MARK.into())).collect::<Map<_, _>>().into()
        }
        Value::Object(table) => table
            .into_iter()
            .map(|(name, value)| (name.clone(), redacted(&name, value)))
            .collect::<Map<_, _>>()
            .into(),
        Value::Array(arguments) => redacted_arguments(arguments).into(),
        Value::String(url) if name == "url" => redacted_url(&url).into(),
        Value::Null => Value::Null,
        _ if looks_secret(name) => MARK.into(),
        value => value,
    }
}

/// Redacts the values of flags such as `--api-key` in a list of arguments.
fn redacted_arguments(arguments: Vec<Value>) -> Vec<Value> {
    let mut is_after_secret_flag = false;
    arguments
        .into_iter()
        .map(|word| {
            let Value::String(text) = &word else { return word };
            let (flag, value) = text.split_once('=').map_or((text.as_str(), None), |(f, v)| (f, Some(v)));
            let names_secret = looks_secret(flag.trim_start_matches('-'));
            let hidden = std::mem::replace(
                &mut is_after_secret_flag,
                names_secret && value.is_none() && flag.starts_with('-'),
            );
            match value {
                _ if hidden => MARK.into(),
                Some(_) if names_secret => format!("{flag}={MARK}").into(),
                _ => word,
            }
        })
        .collect()
}

/// Redacts everything but the scheme and host of a URL, since user info, path and query may contain a key.
fn redacted_url(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let host = rest[..end].rsplit('@').next().unwrap_or_default();
    let behind = if rest[end..].len() > 1 { format!("/{MARK}") } else { rest[end..].to_owned() };
    format!("{scheme}://{host}{behind}")
}

/// Formats a value as JSON without its secrets.
pub(crate) fn debug_without_secrets(value: &impl Serialize, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let shown = serde_json::to_value(value).map(|value| redacted("", value)).unwrap_or_default();
    f.write_str(&shown.to_string())
}
