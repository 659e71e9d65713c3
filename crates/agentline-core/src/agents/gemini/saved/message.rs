//! One message of a session as it stands there, and what it says in our vocabulary.

use super::super::{
    call::{Call, FunctionResponse},
    store, tools,
};
use super::result;
use crate::{
    Media, Part, SavedTool, Tokens, ToolUse,
    wire::{Flag, List, Num, Str, Tolerant, on_one_line, wire},
};
use serde::de::{MapAccess, SeqAccess};
use serde_json::value::RawValue;

wire! { pub(super) struct Message<'a> {
    kind: Str<'a> = "type", timestamp: Str<'a> = "timestamp", content: Content<'a> = "content", shown: Content<'a> = "displayContent",
    model: Option<Str<'a>> = "model", tokens: Option<Counts<'a>> = "tokens", calls: List<Call<'a>> = "toolCalls",
    thoughts: List<Thought<'a>> = "thoughts",
} }
wire! { pub(super) struct Counts<'a> {
    input: Num = "input", output: Num = "output", cached: Num = "cached", thoughts: Num = "thoughts", tool: Num = "tool", total: Num = "total",
} }
wire! { pub(super) struct Thought<'a> { subject: Str<'a> = "subject", description: Str<'a> = "description" } }
wire! { pub(super) struct Piece<'a> {
    text: Option<Str<'a>> = "text", thought: Flag = "thought", signature: Option<Str<'a>> = "thoughtSignature",
    call: Option<FunctionCall<'a>> = "functionCall", response: Option<FunctionResponse<'a>> = "functionResponse",
    inline: Option<Blob<'a>> = "inlineData", file: Option<Blob<'a>> = "fileData",
} }
wire! { pub(super) struct FunctionCall<'a> { id: Str<'a> = "id", name: Str<'a> = "name", args: Option<&'a RawValue> = "args" } }
wire! { pub(super) struct Blob<'a> {
    mime_type: Str<'a> = "mimeType", data: Option<Str<'a>> = "data", uri: Option<Str<'a>> = "fileUri",
} }

/// What is said: a string, a part, or a list of both.
#[derive(Debug, Default)]
pub(super) struct Content<'a>(pub(super) Vec<Piece<'a>>);

impl<'a> Tolerant<'a> for Content<'a> {
    fn of_borrowed(text: &'a str) -> Self {
        Self(vec![Piece::plain(Str::of_borrowed(text))])
    }
    fn of_str(text: &str) -> Self {
        Self(vec![Piece::plain(Str::of_str(text))])
    }
    fn of_map<A: MapAccess<'a>>(map: A) -> Result<Self, A::Error> {
        Piece::of_map(map).map(|piece| Self(vec![piece]))
    }
    fn of_seq<A: SeqAccess<'a>>(mut seq: A) -> Result<Self, A::Error> {
        let mut pieces = Vec::new();
        while let Some(content) = seq.next_element::<Self>()? {
            pieces.extend(content.0);
        }
        Ok(Self(pieces))
    }
}

impl<'a> serde::Deserialize<'a> for Content<'a> {
    fn deserialize<D: serde::Deserializer<'a>>(d: D) -> Result<Self, D::Error> {
        crate::wire::tolerant(d)
    }
}

impl<'a> Piece<'a> {
    fn plain(text: Str<'a>) -> Self {
        Self { text: Some(text), ..Self::default() }
    }

    /// Text that was said, not thought.
    fn said(&self) -> Option<&str> {
        self.text.as_deref().filter(|text| !self.thought.0 && !text.trim().is_empty())
    }

    pub(super) fn media(&self) -> Option<Media> {
        let blob = self.inline.as_ref().or(self.file.as_ref())?;
        let own = |text: &Option<Str<'_>>| text.as_ref().map(|t| t.to_string());
        Some(Media::new(&*blob.mime_type, own(&blob.data), own(&blob.uri)))
    }
}

impl Counts<'_> {
    pub(super) fn tokens(&self) -> Tokens {
        Tokens {
            input: self.input.0,
            output: self.output.0,
            cached: self.cached.0,
            thoughts: self.thoughts.0,
            tool: self.tool.0.filter(|n| *n > 0),
            total: self.total.0,
            ..Tokens::default()
        }
    }
}

impl<'a> Message<'a> {
    /// Takes over what was known before this was written anew.
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

    /// What a person said: what was shown of it where that differs from what the model got, and every file.
    pub(super) fn prompt(&self) -> Vec<Part> {
        let shown = self.shown.0.iter().any(|piece| piece.said().is_some());
        let spoken = if shown { &self.shown.0 } else { &self.content.0 };
        let texts = spoken.iter().filter_map(Piece::said).map(Part::text);
        let files = self.content.0.iter().filter_map(Piece::media).map(Part::Media);
        if shown {
            return texts.chain(files).collect();
        }
        // Without a form for people the order is that of the parts.
        let part =
            |piece: &Piece<'_>| piece.said().map(Part::text).or_else(|| piece.media().map(Part::Media));
        self.content.0.iter().filter_map(part).collect()
    }

    /// Whether the agent put it there for the model to read.
    pub(super) fn is_context(&self) -> bool {
        let mut texts = self.content.0.iter().filter_map(Piece::said);
        texts.next().is_some_and(store::is_own_text) && texts.next().is_none()
    }

    /// Whether the agent put it there in the model's name.
    pub(super) fn takes_summary(&self) -> bool {
        let mut texts = self.content.0.iter().filter_map(Piece::said);
        self.tokens.is_none() && texts.next() == Some(store::SUMMARY_TAKEN) && texts.next().is_none()
    }

    /// What the model said and did: its thoughts, then text and calls in the order of the record.
    pub(super) fn answer(&self) -> Vec<Part> {
        let mut parts: Vec<Part> = self.thoughts.0.iter().filter_map(Thought::part).collect();
        let listed = !parts.is_empty();
        let mut left: Vec<&Call<'_>> = self.calls.0.iter().collect();
        for piece in &self.content.0 {
            if piece.thought.0 {
                // A record that was written anew tells its thoughts in both places.
                parts.extend(piece.thinking().filter(|_| !listed));
            } else if let Some(called) = &piece.call {
                let of_it = |call: &&Call<'_>| {
                    if called.id.is_empty() { *call.name == *called.name } else { *call.id == *called.id }
                };
                let tool = match left.iter().position(of_it) {
                    Some(at) => saved_tool(left.remove(at)),
                    None => SavedTool::new(use_of(&called.id, &called.name, called.args)),
                };
                parts.push(Part::Tool(Box::new(tool)));
            } else {
                parts.extend(piece.said().map(Part::text));
                parts.extend(piece.media().map(Part::Media));
            }
        }
        parts.extend(left.into_iter().map(|call| Part::Tool(Box::new(saved_tool(call)))));
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

impl Piece<'_> {
    fn thinking(&self) -> Option<Part> {
        let text = thought_text(self.text.as_deref()?);
        let signature = self.signature.as_ref().map(|s| s.to_string());
        (!text.is_empty()).then_some(Part::Thinking { text, signature })
    }
}

impl Thought<'_> {
    fn part(&self) -> Option<Part> {
        let text = joined(&self.subject, &self.description);
        (!text.is_empty()).then(|| Part::thinking(text))
    }
}

/// `**Subject** description`, as the model writes it, without the stars; the subject may be empty.
fn thought_text(raw: &str) -> String {
    let Some((before, subject, after)) =
        raw.split_once("**").and_then(|(b, rest)| rest.split_once("**").map(|(s, a)| (b, s, a)))
    else {
        return raw.trim().to_owned();
    };
    joined(subject, &format!("{before}{after}"))
}

/// `subject: description`, or the one of them that says something.
fn joined(subject: &str, description: &str) -> String {
    let parts = [subject.trim().trim_matches('*').trim(), without_stars(description)];
    let parts: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    parts.join(": ")
}

/// A description may begin with the stars of an empty subject.
fn without_stars(description: &str) -> &str {
    let text = description.trim();
    text.strip_prefix("****").map_or(text, str::trim_start)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thoughts_are_subject_and_description() {
        for (subject, description, text) in [
            ("Plan", "do it", "Plan: do it"),
            ("", "do it", "do it"),
            (" ", " ", ""),
            ("Plan", "", "Plan"),
            ("", "****\ndo it", "do it"),
            ("**Plan**", "do it", "Plan: do it"),
        ] {
            assert_eq!(joined(subject, description), text);
        }
        for (raw, text) in [
            ("**Plan** do it", "Plan: do it"),
            ("****\nthinking", "thinking"),
            ("only words", "only words"),
            ("half **a subject", "half **a subject"),
            ("first **Plan** then", "Plan: first  then"),
        ] {
            assert_eq!(thought_text(raw), text);
        }
    }

    fn read(text: &str) -> Message<'_> {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn a_part_stands_for_itself_and_strings_stand_among_parts() {
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
    fn what_was_shown_stands_for_what_the_model_got_and_files_stay() {
        let message = read(
            r#"{"content":[{"text":"look at @a.png"},{"text":"--- a.png ---"},{"inlineData":{"mimeType":"image/png","data":"AA=="}}],
                "displayContent":[{"text":"look at @a.png"}]}"#,
        );
        let parts = message.prompt();
        assert!(matches!(&parts[..], [Part::Text { text }, Part::Media(file)]
            if text == "look at @a.png" && file.mime_type == "image/png" && file.data.as_deref() == Some("AA==")));
    }

    #[test]
    fn a_call_that_is_told_twice_is_one() {
        let message = read(
            r#"{"content":[{"text":"**Plan** it","thought":true,"thoughtSignature":"s"},{"functionCall":{"name":"glob","args":{"pattern":"*"}}},{"text":"now"},{"functionCall":{"id":"2","name":"made_up"}}],
                "toolCalls":[{"id":"1","name":"glob","args":{"pattern":"*"},"status":"success","result":"a"}]}"#,
        );
        let parts = message.answer();
        let [Part::Thinking { text, signature }, Part::Tool(glob), Part::Text { .. }, Part::Tool(other)] =
            &parts[..]
        else {
            panic!("{parts:?}")
        };
        assert_eq!((text.as_str(), signature.as_deref()), ("Plan: it", Some("s")));
        assert_eq!((glob.call.id.as_str(), glob.result.as_ref().unwrap().content.as_str()), ("1", "a"));
        assert!(other.result.is_none());
    }
}
