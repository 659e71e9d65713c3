//! The table of keys for the documentation.

use super::{Config, keys};
use serde_json::Value;
use std::fmt::Write;

/// Returns the keys as a Markdown table: names, flag, value, default, use in an untrusted workspace, and meaning.
#[must_use]
pub fn key_table() -> String {
    let defaults = Config::blank();
    let mut table = String::from(
        "| key | aliases | flag | value | default | untrusted | description |\n|---|---|---|---|---|---|---|\n",
    );
    for key in keys() {
        let aliases: Vec<String> = key.aliases.iter().map(|alias| format!("`{alias}`")).collect();
        let flag = key.flag.map(|flag| format!("`--{flag}`")).unwrap_or_default();
        let default = match key.get(&defaults) {
            Value::Null => String::new(),
            Value::Array(list) if list.is_empty() => String::new(),
            Value::Object(_) => String::new(),
            Value::String(text) if text.is_empty() => String::new(),
            value => format!("`{value}`"),
        };
        let acp = if key.is_for_acp { " (ACP only)" } else { "" };
        // Writing to a string cannot fail.
        let _ = writeln!(
            table,
            "| `{}` | {} | {flag} | {} | {default} | {} | {}{acp} |",
            key.name,
            aliases.join(", "),
            key.takes(),
            key.untrusted.label(),
            key.doc,
        );
    }
    table
}
