//! Parses one message of a session and converts it to parts.

use crate::agents::gemini::sessions::result;
use crate::agents::gemini::{
    call::Call,
    parts::{Counts, PartList, Piece, Thought},
    store, tools,
};
use crate::{
    EntryPart, SavedTool, ToolUse,
    wire::{List, Str, on_one_line, wire},
};
use serde_json::value::RawValue;

wire! { pub(super) struct Message<'a> {
    kind: Str<'a> = "type", timestamp: Str<'a> = "timestamp", content: PartList<'a> = "content", shown: PartList<'a> = "displayContent",
    model: Option<Str<'a>> = "model", tokens: Option<Counts<'a>> = "tokens", calls: List<Call<'a>> = "toolCalls",
    thoughts: List<Thought<'a>> = "thoughts",
} }

impl<'a> Message<'a> {
    /// Adds the data of an earlier version that a rewrite has dropped.
    pub(super) fn complete(&mut self, older: Self) {
        self.timestamp = older.timestamp;
        self.model = self.model.take().or(older.model);
        self.tokens = self.tokens.take().or(older.tokens);
        if self.calls.0.is_empty() {
            self.calls = older.calls;
        }
        if self.thoughts.0.is_empty() {
            self.thoughts = older.thoughts;
        }
    }

    /// Returns the parts of a prompt: the displayed text if it differs from the text for the model, and all files.
    pub(super) fn prompt(&self) -> Vec<EntryPart> {
        let shown = self.shown.0.iter().any(|piece| piece.answer_text().is_some());
        let spoken = if shown { &self.shown.0 } else { &self.content.0 };
        let texts = spoken.iter().filter_map(Piece::answer_text).map(EntryPart::text);
        let files = self.content.0.iter().filter_map(Piece::media).map(EntryPart::Media);
        if shown {
            return texts.chain(files).collect();
        }
        // Without displayed text, the order of the parts is kept.
        let part = |piece: &Piece<'_>| {
            piece.answer_text().map(EntryPart::text).or_else(|| piece.media().map(EntryPart::Media))
        };
        self.content.0.iter().filter_map(part).collect()
    }

    /// Returns whether the agent inserted the message as context for the model.
    pub(super) fn is_context(&self) -> bool {
        let mut texts = self.content.0.iter().filter_map(Piece::answer_text);
        texts.next().is_some_and(store::is_own_text) && texts.next().is_none()
    }

    /// Returns whether the agent inserted the message in the model's name, as the reply to a summary.
    pub(super) fn takes_summary(&self) -> bool {
        let mut texts = self.content.0.iter().filter_map(Piece::answer_text);
        self.tokens.is_none() && texts.next() == Some(store::SUMMARY_TAKEN) && texts.next().is_none()
    }

    /// Returns the parts of an answer: thoughts, then text and calls in the order of the record.
    pub(super) fn answer(&self) -> Vec<EntryPart> {
        let mut parts: Vec<EntryPart> = self
            .thoughts
            .0
            .iter()
            .map(Thought::text)
            .filter(|t| !t.is_empty())
            .map(EntryPart::thinking)
            .collect();
        let listed = !parts.is_empty();
        let mut left: Vec<&Call<'_>> = self.calls.0.iter().collect();
        for piece in &self.content.0 {
            if piece.thought.0 {
                // A rewritten record contains its thoughts in both places.
                parts.extend(piece.thinking().filter(|_| !listed));
            } else if let Some(called) = &piece.call {
                let of_it = |call: &&Call<'_>| {
                    if called.id.is_empty() { *call.name == *called.name } else { *call.id == *called.id }
                };
                let tool = match left.iter().position(of_it) {
                    Some(at) => saved_tool(left.remove(at)),
                    None => SavedTool::new(use_of(&called.id, &called.name, called.args)),
                };
                parts.push(EntryPart::Tool(Box::new(tool)));
            } else {
                parts.extend(piece.answer_text().map(EntryPart::text));
                parts.extend(piece.media().map(EntryPart::Media));
            }
        }
        parts.extend(left.into_iter().map(|call| EntryPart::Tool(Box::new(saved_tool(call)))));
        parts
    }
}

fn saved_tool(call: &Call<'_>) -> SavedTool {
    let mut tool = SavedTool::new(use_of(&call.id, &call.name, call.args));
    tool.result = result::of_call(call);
    tool.diff = result::diff(call);
    tool
}

fn use_of(id: &str, name: &str, args: Option<&RawValue>) -> ToolUse {
    tools::TOOLS.tool_use(id.to_owned(), name, args.map(on_one_line).as_deref())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Message<'_> {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn content_may_be_a_part_or_a_list_with_strings() {
        let texts = |text: &str| {
            read(text).prompt().iter().map(|part| format!("{part:?}")).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(texts(r#"{"content":{"text":"a"}}"#), r#"Text { text: "a" }"#);
        assert_eq!(
            texts(r#"{"content":["a",{"text":" "},{"text":"b"},7]}"#),
            r#"Text { text: "a" } Text { text: "b" }"#
        );
        assert_eq!(texts(r#"{"content":null}"#), "");
    }

    #[test]
    fn display_content_replaces_expanded_content_and_keeps_files() {
        let message = read(
            r#"{"content":[{"text":"look at @a.png"},{"text":"--- a.png ---"},{"inlineData":{"mimeType":"image/png","data":"AA=="}}],
                "displayContent":[{"text":"look at @a.png"}]}"#,
        );
        let parts = message.prompt();
        assert!(matches!(&parts[..], [EntryPart::Text { text }, EntryPart::Media(file)]
            if text == "look at @a.png" && file.mime_type == "image/png" && file.data.as_deref() == Some("AA==")));
    }

    #[test]
    fn repeated_calls_are_merged() {
        let message = read(
            r#"{"content":[{"text":"**Plan** it","thought":true,"thoughtSignature":"s"},{"functionCall":{"name":"glob","args":{"pattern":"*"}}},{"text":"now"},{"functionCall":{"id":"2","name":"made_up"}}],
                "toolCalls":[{"id":"1","name":"glob","args":{"pattern":"*"},"status":"success","result":"a"}]}"#,
        );
        let parts = message.answer();
        let [
            EntryPart::Thinking { text, signature },
            EntryPart::Tool(glob),
            EntryPart::Text { .. },
            EntryPart::Tool(other),
        ] = &parts[..]
        else {
            panic!("{parts:?}")
        };
        assert_eq!((text.as_str(), signature.as_deref()), ("Plan: it", Some("s")));
        assert_eq!((glob.call.id.as_str(), glob.result.as_ref().unwrap().content.as_str()), ("1", "a"));
        assert!(other.result.is_none());
    }
}
