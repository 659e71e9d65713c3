//! Reads YAML 1.2, and JSON as a part of it.

use super::{DocumentNode, MAX_DEPTH, MAX_NODES, NodeValue, SyntaxError, TableEntry};
use saphyr_parser::{Event, Parser, ScalarStyle, Span, Tag};
use serde_json::{Number, Value};
use std::collections::HashMap;

pub(super) fn parse(text: &str) -> Result<DocumentNode, SyntaxError> {
    let mut reader = Reader { parser: Parser::new_from_str(text), anchors: HashMap::new(), nodes: 0 };
    let mut document = None;
    while let Some((event, line)) = reader.next()? {
        match event {
            Event::DocumentStart(_) if document.is_some() => {
                return Err(SyntaxError { line, message: "a second document begins here".into() });
            }
            Event::DocumentStart(_) => {
                let (event, line) = reader.expect()?;
                document = Some(reader.node(event, line, 0)?);
            }
            _ => {}
        }
    }
    Ok(document.unwrap_or_else(|| DocumentNode::scalar(1, Value::Null)))
}

struct Reader<'a> {
    parser: Parser<'a, saphyr_parser::StrInput<'a>>,
    /// The values with an anchor, and how many values each of them has.
    anchors: HashMap<usize, (DocumentNode, usize)>,
    nodes: usize,
}

impl<'a> Reader<'a> {
    fn next(&mut self) -> Result<Option<(Event<'a>, usize)>, SyntaxError> {
        match self.parser.next() {
            None => Ok(None),
            Some(Ok((event, Span { start, .. }))) => Ok(Some((event, start.line()))),
            Some(Err(error)) => {
                Err(SyntaxError { line: error.marker().line(), message: error.info().to_owned() })
            }
        }
    }

    fn expect(&mut self) -> Result<(Event<'a>, usize), SyntaxError> {
        self.next()?.ok_or_else(|| SyntaxError { line: 1, message: "the document ends too early".into() })
    }

    fn node(&mut self, event: Event<'a>, line: usize, depth: usize) -> Result<DocumentNode, SyntaxError> {
        let first = self.nodes;
        self.count(1, line)?;
        if depth > MAX_DEPTH {
            return Err(SyntaxError { line, message: "the values are nested too deeply".into() });
        }
        let (anchor, content) = match event {
            Event::Alias(anchor) => {
                let Some((node, count)) = self.anchors.get(&anchor).cloned() else {
                    return Err(SyntaxError { line, message: "the alias has no anchor".into() });
                };
                self.count(count, line)?;
                return Ok(node);
            }
            Event::Scalar(text, style, anchor, tag) => {
                (anchor, NodeValue::Scalar(scalar(&text, style, tag.as_deref())))
            }
            Event::SequenceStart(anchor, _) => (anchor, self.list(depth)?),
            Event::MappingStart(anchor, _) => (anchor, self.table(depth)?),
            _ => return Err(SyntaxError { line, message: "a value was expected here".into() }),
        };
        let node = DocumentNode { line, content };
        if anchor != 0 {
            self.anchors.insert(anchor, (node.clone(), self.nodes - first));
        }
        Ok(node)
    }

    fn count(&mut self, nodes: usize, line: usize) -> Result<(), SyntaxError> {
        self.nodes += nodes;
        if self.nodes > MAX_NODES {
            return Err(SyntaxError { line, message: format!("too many values (more than {MAX_NODES})") });
        }
        Ok(())
    }

    fn list(&mut self, depth: usize) -> Result<NodeValue, SyntaxError> {
        let mut list = Vec::new();
        loop {
            match self.expect()? {
                (Event::SequenceEnd, _) => return Ok(NodeValue::List(list)),
                (event, line) => list.push(self.node(event, line, depth + 1)?),
            }
        }
    }

    fn table(&mut self, depth: usize) -> Result<NodeValue, SyntaxError> {
        let mut entries: Vec<TableEntry> = Vec::new();
        loop {
            let (key, line) = match self.expect()? {
                (Event::MappingEnd, _) => return Ok(NodeValue::Table(entries)),
                (Event::Scalar(key, ..), line) => (key.into_owned(), line),
                (_, line) => {
                    return Err(SyntaxError { line, message: "a key must be text".into() });
                }
            };
            if entries.iter().any(|entry| entry.key == key) {
                return Err(SyntaxError { line, message: format!("the key `{key}` is repeated") });
            }
            let (event, value_line) = self.expect()?;
            let node = self.node(event, value_line, depth + 1)?;
            entries.push(TableEntry { key, line, node });
        }
    }
}

/// Returns the value of a scalar. A plain one follows YAML's core schema.
fn scalar(text: &str, style: ScalarStyle, tag: Option<&Tag>) -> Value {
    let is_text = tag.is_some_and(|tag| tag.suffix == "str");
    if style != ScalarStyle::Plain || is_text {
        return text.into();
    }
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Value::Null,
        "true" | "True" | "TRUE" => return true.into(),
        "false" | "False" | "FALSE" => return false.into(),
        _ => {}
    }
    number(text).map_or_else(|| text.into(), Value::Number)
}

fn number(text: &str) -> Option<Number> {
    if let Some(digits) = text.strip_prefix("0x") {
        return u64::from_str_radix(digits, 16).ok().map(Number::from);
    }
    if let Some(digits) = text.strip_prefix("0o") {
        return u64::from_str_radix(digits, 8).ok().map(Number::from);
    }
    // `nan`, `inf` and `_` are no numbers here, and a leading zero is no octal number.
    let is_number = text.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'+' | b'-' | b'.' | b'e' | b'E'))
        && text.bytes().any(|b| b.is_ascii_digit());
    if !is_number {
        return None;
    }
    let unsigned = text.strip_prefix('+').unwrap_or(text);
    unsigned
        .parse::<i64>()
        .map(Number::from)
        .ok()
        .or_else(|| unsigned.parse::<u64>().map(Number::from).ok())
        .or_else(|| unsigned.parse::<f64>().ok().and_then(Number::from_f64))
}
