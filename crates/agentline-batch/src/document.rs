//! A structured document (YAML, JSON, TOML) with the source line of every value.

mod toml;
mod yaml;

use serde_json::{Map, Value};

/// A value of a document.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct DocumentNode {
    /// The line of the value, from 1.
    pub(crate) line: usize,
    /// The value itself.
    pub(crate) content: NodeValue,
}

/// The content of a [`DocumentNode`].
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum NodeValue {
    /// Null, a boolean, a number or a string.
    Scalar(Value),
    /// A list.
    List(Vec<DocumentNode>),
    /// A table, in the order of the document.
    Table(Vec<TableEntry>),
}

/// A key of a table, and its value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TableEntry {
    /// The key.
    pub(crate) key: String,
    /// The line of the key.
    pub(crate) line: usize,
    /// The value.
    pub(crate) node: DocumentNode,
}

/// A document that cannot be parsed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SyntaxError {
    /// The line of the mistake.
    pub(crate) line: usize,
    /// What is wrong.
    pub(crate) message: String,
}

/// The maximum number of values in a document, with those that YAML aliases repeat.
const MAX_NODES: usize = 2_000_000;

/// The maximum depth of a document.
const MAX_DEPTH: usize = 100;

impl DocumentNode {
    /// Parses YAML; JSON is a part of it.
    pub(crate) fn yaml(text: &str) -> Result<Self, SyntaxError> {
        yaml::parse(text)
    }

    /// Parses TOML.
    pub(crate) fn toml(text: &str) -> Result<Self, SyntaxError> {
        toml::parse(text)
    }

    /// Returns a value all of whose parts are on one line.
    pub(crate) fn at_line(line: usize, value: Value) -> Self {
        let content = match value {
            Value::Array(list) => {
                NodeValue::List(list.into_iter().map(|value| Self::at_line(line, value)).collect())
            }
            Value::Object(table) => {
                let entries = table.into_iter();
                let entries =
                    entries.map(|(key, value)| TableEntry { key, line, node: Self::at_line(line, value) });
                NodeValue::Table(entries.collect())
            }
            value => NodeValue::Scalar(value),
        };
        Self { line, content }
    }

    pub(crate) fn scalar(line: usize, value: impl Into<Value>) -> Self {
        Self { line, content: NodeValue::Scalar(value.into()) }
    }

    /// Returns the text of a string.
    pub(crate) fn text(&self) -> Option<&str> {
        match &self.content {
            NodeValue::Scalar(Value::String(text)) => Some(text),
            _ => None,
        }
    }

    /// Returns the entries of a table.
    pub(crate) fn entries(&self) -> Option<&[TableEntry]> {
        match &self.content {
            NodeValue::Table(entries) => Some(entries),
            _ => None,
        }
    }

    /// Returns the elements of a list.
    pub(crate) fn list(&self) -> Option<&[Self]> {
        match &self.content {
            NodeValue::List(list) => Some(list),
            _ => None,
        }
    }

    /// Returns the value of a key of a table.
    pub(crate) fn get(&self, key: &str) -> Option<&Self> {
        self.entries()?.iter().find(|entry| entry.key == key).map(|entry| &entry.node)
    }

    pub(crate) fn is_null(&self) -> bool {
        self.content == NodeValue::Scalar(Value::Null)
    }

    /// Returns the value without its lines.
    pub(crate) fn value(&self) -> Value {
        match &self.content {
            NodeValue::Scalar(value) => value.clone(),
            NodeValue::List(list) => list.iter().map(Self::value).collect(),
            NodeValue::Table(_) => Value::Object(self.map()),
        }
    }

    /// Returns a table without its lines; an empty map for any other value.
    pub(crate) fn map(&self) -> Map<String, Value> {
        let entries = self.entries().unwrap_or_default();
        entries.iter().map(|entry| (entry.key.clone(), entry.node.value())).collect()
    }

    /// Describes the kind of the value, for messages.
    pub(crate) fn kind(&self) -> &'static str {
        match &self.content {
            NodeValue::Scalar(Value::Null) => "nothing",
            NodeValue::Scalar(Value::Bool(_)) => "a boolean",
            NodeValue::Scalar(Value::Number(_)) => "a number",
            NodeValue::Scalar(_) => "text",
            NodeValue::List(_) => "a list",
            NodeValue::Table(_) => "a table",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn formats_agree_and_keep_lines() {
        let yaml = "name: a\ncases:\n  - id: x\n    vars: {n: 2, f: 1.5, on: true, none: ~}\n";
        let json = "{\"name\": \"a\",\n\"cases\": [\n  {\"id\": \"x\",\n\"vars\": {\"n\": 2, \"f\": 1.5, \"on\": true, \"none\": null}}]}";
        let expected = json!({"name": "a", "cases": [{"id": "x", "vars": {"n": 2, "f": 1.5, "on": true, "none": null}}]});
        for text in [yaml, json] {
            let node = DocumentNode::yaml(text).expect(text);
            assert_eq!(node.value(), expected);
            let case = &node.get("cases").and_then(DocumentNode::list).expect("a list")[0];
            assert_eq!((case.line, case.entries().map(|entries| entries[1].line)), (3, Some(4)), "{text}");
        }
        let toml =
            DocumentNode::toml("name = \"a\"\n\n[[cases]]\nid = \"x\"\nvars = { n = 2 }\n").expect("TOML");
        assert_eq!(toml.value(), json!({"name": "a", "cases": [{"id": "x", "vars": {"n": 2}}]}));
        let case = &toml.get("cases").and_then(DocumentNode::list).expect("a list")[0];
        assert_eq!(case.entries().map(|entries| entries[1].line), Some(5));
    }

    #[test]
    fn syntax_errors_name_the_line() {
        for (parsed, line) in [
            (DocumentNode::yaml("a: 1\nb: [1\nc: 2\n"), 3),
            (DocumentNode::yaml("a: 1\na: 2\n"), 2),
            (DocumentNode::yaml("a: *x\n"), 1),
            (DocumentNode::yaml("a: 1\n---\nb: 2\n"), 2),
            (DocumentNode::toml("a = 1\nb = = 2\n"), 2),
            (DocumentNode::toml("a = 1\na = 2\n"), 2),
        ] {
            assert_eq!(parsed.clone().expect_err("a syntax error").line, line, "{parsed:?}");
        }
    }

    #[test]
    fn plain_scalars_follow_the_core_schema() {
        for (text, value) in [
            ("yes", json!("yes")),
            ("'2'", json!("2")),
            ("0x1F", json!(31)),
            ("0o17", json!(15)),
            ("-7", json!(-7)),
            ("1e3", json!(1000.0)),
            ("1.2.3", json!("1.2.3")),
            ("Null", json!(null)),
            ("!!str 12", json!("12")),
            ("18446744073709551615", json!(u64::MAX)),
        ] {
            assert_eq!(DocumentNode::yaml(text).map(|node| node.value()), Ok(value), "{text}");
        }
    }

    #[test]
    fn repeated_aliases_are_bounded() {
        let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for level in 1..9 {
            let alias = format!("*a{}", level - 1);
            text += &format!("a{level}: &a{level} [{}]\n", [alias.as_str(); 10].join(", "));
        }
        assert!(DocumentNode::yaml(&text).expect_err("too large").message.contains("too many values"));
    }
}
