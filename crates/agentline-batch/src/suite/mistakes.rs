//! Collects the mistakes of a suite, each with its file and line.

use crate::document::{DocumentNode, NodeValue, TableEntry};
use agentline::Problem;
use agentline_core::nearest;
use serde_json::Value;

/// The mistakes found so far, and the file being read.
#[derive(Debug, Default)]
pub(super) struct Mistakes {
    pub(super) problems: Vec<Problem>,
    pub(super) file: String,
}

impl Mistakes {
    /// Adds a mistake.
    pub(super) fn add(
        &mut self,
        line: usize,
        key: &str,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) {
        let source = self.source(line);
        self.problems.push(Problem::new(key, message).hint(hint).source(source));
    }

    /// Returns the place of a line, as messages show it.
    pub(super) fn source(&self, line: usize) -> String {
        format!("{}:{line}", self.file)
    }

    /// Returns the entries of a table; a key that is not known is a mistake.
    pub(super) fn table<'a>(
        &mut self,
        node: &'a DocumentNode,
        key: &str,
        known: &[&str],
    ) -> &'a [TableEntry] {
        let Some(entries) = node.entries() else {
            let named = if key.is_empty() { "SUITE" } else { key };
            self.add(node.line, named, format!("is {}, not a table", node.kind()), known_keys(known));
            return &[];
        };
        for entry in entries.iter().filter(|entry| !known.contains(&entry.key.as_str())) {
            let hint = match nearest(&entry.key, known.iter().copied()) {
                Some(near) => format!("did you mean `{near}`?"),
                None => known_keys(known),
            };
            self.add(entry.line, &joined(key, &entry.key), "is not a known key", hint);
        }
        entries
    }

    /// Returns the text under a key of a table, if it is there.
    pub(super) fn text(&mut self, table: &DocumentNode, parent: &str, key: &str) -> Option<String> {
        let node = table.get(key).filter(|node| !node.is_null())?;
        match &node.content {
            NodeValue::Scalar(Value::String(text)) => Some(text.clone()),
            NodeValue::Scalar(value @ (Value::Number(_) | Value::Bool(_))) => Some(value.to_string()),
            _ => {
                self.add(
                    node.line,
                    &joined(parent, key),
                    format!("is {}, not text", node.kind()),
                    "write text",
                );
                None
            }
        }
    }

    /// Returns the boolean under a key of a table, if it is there.
    pub(super) fn flag(&mut self, table: &DocumentNode, parent: &str, key: &str) -> Option<bool> {
        let node = table.get(key).filter(|node| !node.is_null())?;
        let flag = node.value().as_bool();
        if flag.is_none() {
            self.add(node.line, &joined(parent, key), "is not a boolean", "write `true` or `false`");
        }
        flag
    }

    /// Returns the whole number under a key of a table, if it is there.
    pub(super) fn count(&mut self, table: &DocumentNode, parent: &str, key: &str) -> Option<u64> {
        let node = table.get(key).filter(|node| !node.is_null())?;
        let count = match &node.content {
            NodeValue::Scalar(Value::Number(number)) => number.as_u64().filter(|count| *count > 0),
            _ => None,
        };
        if count.is_none() {
            self.add(
                node.line,
                &joined(parent, key),
                "is not a whole number above 0",
                "write a number such as 3",
            );
        }
        count
    }

    /// Returns the positive number under a key of a table, if it is there.
    pub(super) fn number(&mut self, table: &DocumentNode, parent: &str, key: &str) -> Option<f64> {
        let node = table.get(key).filter(|node| !node.is_null())?;
        let number = match &node.content {
            NodeValue::Scalar(Value::Number(number)) => number.as_f64().filter(|number| *number > 0.0),
            _ => None,
        };
        if number.is_none() {
            self.add(
                node.line,
                &joined(parent, key),
                "is not a number above 0",
                "write a number such as 2.5",
            );
        }
        number
    }

    /// Returns the texts under a key of a table, which may be a single text.
    pub(super) fn texts(&mut self, table: &DocumentNode, parent: &str, key: &str) -> Vec<String> {
        let Some(node) = table.get(key).filter(|node| !node.is_null()) else { return Vec::new() };
        let nodes = match &node.content {
            NodeValue::List(list) => list.iter().collect(),
            _ => vec![node],
        };
        let mut texts = Vec::new();
        for node in nodes {
            match node.text() {
                Some(text) => texts.push(text.to_owned()),
                None => self.add(
                    node.line,
                    &joined(parent, key),
                    format!("has {} where text is expected", node.kind()),
                    "write text, or a list of texts",
                ),
            }
        }
        texts
    }
}

/// Returns the path of a key in the suite, as messages show it: `cases[2].prompt`.
pub(super) fn joined(parent: &str, key: &str) -> String {
    if parent.is_empty() { key.to_owned() } else { format!("{parent}.{key}") }
}

fn known_keys(known: &[&str]) -> String {
    format!("the keys here are {}", known.join(", "))
}
