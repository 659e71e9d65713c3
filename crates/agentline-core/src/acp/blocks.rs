//! Content blocks in both directions: agents send blocks, lists of blocks or bare strings; prompts consist of blocks.

use crate::{
    Attachment, AttachmentContent, Diff, TurnSpec,
    wire::{List, Str, wire},
};
use serde_json::{Value, json, value::RawValue};

wire! { struct Block<'a> {
    kind: Str<'a> = "type", text: Option<Str<'a>> = "text", content: Option<&'a RawValue> = "content",
    path: Str<'a> = "path", old: Option<Str<'a>> = "oldText", new: Str<'a> = "newText",
} }

/// A piece of the agent's output.
#[derive(Debug, PartialEq)]
pub(crate) enum ContentPiece<'a> {
    /// Text.
    Text(String),
    /// Any other block, as raw JSON.
    Other(&'a str),
}

/// Splits content into pieces. The content may be one block, a list of blocks or a bare string. Adjacent texts are
/// joined.
pub(crate) fn pieces(content: &RawValue) -> Vec<ContentPiece<'_>> {
    let mut pieces = Vec::new();
    gather(content.get(), &mut pieces);
    pieces
}

fn gather<'a>(raw: &'a str, pieces: &mut Vec<ContentPiece<'a>>) {
    match raw.as_bytes().first() {
        Some(b'"') => {
            if let Ok(text) = serde_json::from_str::<Str<'_>>(raw) {
                push(pieces, text.own());
            }
        }
        Some(b'[') => {
            for item in serde_json::from_str::<List<&RawValue>>(raw).unwrap_or_default().0 {
                // A nested list is not valid content.
                if !item.get().starts_with('[') {
                    gather(item.get(), pieces);
                }
            }
        }
        Some(b'{') => {
            let block = serde_json::from_str::<Block<'_>>(raw).unwrap_or_default();
            match (&*block.kind, block.text) {
                ("text" | "", Some(text)) => push(pieces, text.own()),
                ("text", None) => {}
                _ => pieces.push(ContentPiece::Other(raw)),
            }
        }
        _ => {}
    }
}

fn push(pieces: &mut Vec<ContentPiece<'_>>, text: String) {
    match pieces.last_mut() {
        Some(ContentPiece::Text(before)) => before.push_str(&text),
        _ => pieces.push(ContentPiece::Text(text)),
    }
}

/// The content of a tool call.
#[derive(Debug, Default)]
pub(crate) struct ToolContent {
    /// The concatenated texts.
    pub(crate) text: String,
    /// The diffs.
    pub(crate) diffs: Vec<Diff>,
}

/// Reads the content of a tool call: blocks wrapped in `content`, and diffs.
pub(crate) fn tool_content(content: &RawValue) -> ToolContent {
    let mut read = ToolContent::default();
    let items = serde_json::from_str::<List<&RawValue>>(content.get()).unwrap_or_default().0;
    let items = if items.is_empty() { vec![content] } else { items };
    for item in items {
        let block = serde_json::from_str::<Block<'_>>(item.get()).unwrap_or_default();
        match (&*block.kind, block.content) {
            ("diff", _) => read.diffs.push(Diff {
                path: block.path.own(),
                old: block.old.map(Str::own),
                new: block.new.own(),
            }),
            ("content", Some(inner)) => add_text(inner, &mut read.text),
            _ => add_text(item, &mut read.text),
        }
    }
    read
}

fn add_text(content: &RawValue, text: &mut String) {
    for piece in pieces(content) {
        if let ContentPiece::Text(more) = piece {
            text.push_str(&more);
        }
    }
}

/// The content types besides text that the agent accepts in a prompt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PromptCapabilities {
    pub(crate) image: bool,
    pub(crate) audio: bool,
    pub(crate) embedded: bool,
}

/// Returns a message about the first attachment that the agent does not accept.
pub(crate) fn unsupported_attachment(spec: &TurnSpec, takes: PromptCapabilities) -> Option<String> {
    spec.attachments.iter().find_map(|file| {
        let (taken, kind_name) = match kind(file) {
            "image" => (takes.image, "images"),
            "audio" => (takes.audio, "audio"),
            _ => (takes.embedded, "embedded files"),
        };
        (!taken).then(|| {
            format!("`attachments`: the agent does not accept {kind_name}, so {} cannot be sent", file.uri)
        })
    })
}

/// Builds the blocks of a prompt with its attachments. `apart` means that the agent loses images and audio next to an
/// embedded file; then nothing is embedded if there are images or audio.
pub(crate) fn prompt(text: &str, attachments: &[Attachment], apart: bool) -> Value {
    let mut blocks = vec![json!({"type": "text", "text": text})];
    let is_media = |file: &Attachment| matches!(kind(file), "image" | "audio");
    let make = if apart && attachments.iter().any(is_media) { plain_block } else { block };
    blocks.extend(attachments.iter().map(make));
    Value::Array(blocks)
}

fn kind(file: &Attachment) -> &str {
    file.mime.split('/').next().unwrap_or_default()
}

/// Builds a block without embedding: text as text, everything else as media, which such an agent passes on by its MIME
/// type.
fn plain_block(file: &Attachment) -> Value {
    match &file.content {
        AttachmentContent::Text(text) => {
            json!({"type": "text", "text": format!("\n--- Content of {} ---\n{text}\n", file.uri)})
        }
        AttachmentContent::Base64(data) => {
            let kind = if kind(file) == "audio" { "audio" } else { "image" };
            json!({"type": kind, "mimeType": file.mime, "data": data})
        }
    }
}

fn block(file: &Attachment) -> Value {
    let kind = kind(file);
    match (&file.content, kind) {
        (AttachmentContent::Base64(data), "image" | "audio") => {
            json!({"type": kind, "mimeType": file.mime, "data": data})
        }
        (AttachmentContent::Base64(blob), _) => {
            json!({"type": "resource", "resource": {"uri": file.uri, "mimeType": file.mime, "blob": blob}})
        }
        (AttachmentContent::Text(text), _) => {
            json!({"type": "resource", "resource": {"uri": file.uri, "mimeType": file.mime, "text": text}})
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(raw: &str) -> String {
        let raw = RawValue::from_string(raw.to_owned()).unwrap();
        format!("{:?}", pieces(&raw))
    }

    #[test]
    fn text_is_read_from_blocks_lists_and_strings() {
        assert_eq!(read(r#"{"type":"text","text":"a\n"}"#), r#"[Text("a\n")]"#);
        assert_eq!(read(r#""bare""#), r#"[Text("bare")]"#);
        assert_eq!(read(r#"{"text":"untyped"}"#), r#"[Text("untyped")]"#);
        assert_eq!(
            read(
                r#"[{"type":"text","text":"a"},"b",{"type":"image","data":"x"},{"type":"text","text":"c"}]"#
            ),
            r#"[Text("ab"), Other("{\"type\":\"image\",\"data\":\"x\"}"), Text("c")]"#
        );
        for odd in ["null", "7", "[]", "{}", r#"{"type":"text"}"#, "[[1]]", r#"{"type":"text","text":{}}"#] {
            assert!(!read(odd).contains("Text(\"a"), "{odd}");
        }
    }

    #[test]
    fn tool_content_is_read_as_text_and_diffs() {
        let raw = r#"[{"type":"content","content":{"type":"text","text":"out"}},
            {"type":"diff","path":"/a","oldText":null,"newText":"x\n"},{"type":"terminal","terminalId":"t"}]"#;
        let raw = RawValue::from_string(raw.to_owned()).unwrap();
        let read = tool_content(&raw);
        assert_eq!(read.text, "out");
        assert_eq!(read.diffs, [Diff { path: "/a".into(), old: None, new: "x\n".into() }]);
    }
}
