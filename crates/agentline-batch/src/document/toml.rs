//! Reads TOML.

use super::{DocumentNode, NodeValue, SyntaxError, TableEntry};
use serde_json::{Number, Value};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

pub(super) fn parse(text: &str) -> Result<DocumentNode, SyntaxError> {
    let lines = Lines::of(text);
    let table = DeTable::parse(text).map_err(|error| SyntaxError {
        line: error.span().map_or(1, |span| lines.line(span.start)),
        message: error.message().to_owned(),
    })?;
    Ok(DocumentNode { line: 1, content: lines.table(table.get_ref()) })
}

/// The positions at which the lines of a text begin.
struct Lines(Vec<usize>);

impl Lines {
    fn of(text: &str) -> Self {
        Self(std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect())
    }

    fn line(&self, at: usize) -> usize {
        self.0.partition_point(|start| *start <= at)
    }

    fn table(&self, table: &DeTable<'_>) -> NodeValue {
        let mut entries: Vec<TableEntry> = table
            .iter()
            .map(|(key, value)| TableEntry {
                key: key.get_ref().clone().into_owned(),
                line: self.line(key.span().start),
                node: self.node(value),
            })
            .collect();
        // The parser sorts by name.
        entries.sort_by_key(|entry| entry.line);
        NodeValue::Table(entries)
    }

    fn node(&self, value: &Spanned<DeValue<'_>>) -> DocumentNode {
        let content = match value.get_ref() {
            DeValue::Table(table) => self.table(table),
            DeValue::Array(list) => NodeValue::List(list.iter().map(|value| self.node(value)).collect()),
            DeValue::String(text) => NodeValue::Scalar(text.as_ref().into()),
            DeValue::Boolean(value) => NodeValue::Scalar((*value).into()),
            DeValue::Integer(value) => {
                let number = i64::from_str_radix(value.as_str(), value.radix()).map(Number::from);
                NodeValue::Scalar(number.map_or_else(|_| value.as_str().into(), Value::Number))
            }
            DeValue::Float(value) => {
                let number = value.as_str().parse().ok().and_then(Number::from_f64);
                NodeValue::Scalar(number.map_or_else(|| value.as_str().into(), Value::Number))
            }
            DeValue::Datetime(value) => NodeValue::Scalar(value.to_string().into()),
        };
        DocumentNode { line: self.line(value.span().start), content }
    }
}
