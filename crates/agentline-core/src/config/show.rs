//! Shows the effective settings, each with its source and with secrets redacted.

use super::{BUILT_IN, Config, keys};
use crate::secret::redacted;
use serde::Serialize;
use serde_json::Value;

/// One line of `config show`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ConfigRow {
    /// The key; each entry of a table has its own row (`env.NODE_ENV`).
    pub key: String,
    /// The redacted value; null if it is not set.
    pub value: Value,
    /// The layer that the value comes from.
    pub source: String,
}

impl Config {
    /// Returns every setting, in the order of the documentation.
    #[must_use]
    pub fn show(&self) -> Vec<ConfigRow> {
        let rows = |key: &super::ConfigKey| {
            let (is_secret, depth) = (key.is_secret, key.depth);
            leaves(key.name, &key.get(self), depth).into_iter().filter_map(move |(name, value)| {
                let origin = self.origins.get(&name);
                // Tables show only entries that a layer sets; `agentline prices` shows the built-in rows.
                if depth > 0 && origin.is_none() {
                    return None;
                }
                let value = if is_secret || depth > 0 { redacted(last_part(&name), value) } else { value };
                Some(ConfigRow { source: origin.map_or(BUILT_IN, |o| o).to_owned(), key: name, value })
            })
        };
        keys().iter().filter(|key| key.name != "agent_bin").flat_map(rows).collect()
    }
}

/// Returns the settings inside a value down to a depth, with their names.
pub(super) fn leaves(name: &str, value: &Value, depth: usize) -> Vec<(String, Value)> {
    match value {
        Value::Object(table) if depth > 0 => {
            let quoted = |part: &str| {
                let is_plain = part.chars().all(|c| c.is_alphanumeric() || c == '-' || c == '_');
                if is_plain { part.to_owned() } else { format!("{part:?}") }
            };
            table
                .iter()
                .flat_map(|(part, value)| leaves(&format!("{name}.{}", quoted(part)), value, depth - 1))
                .collect()
        }
        _ => vec![(name.to_owned(), value.clone())],
    }
}

fn last_part(name: &str) -> &str {
    name.rsplit('.').next().unwrap_or(name)
}
