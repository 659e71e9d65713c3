//! The parts of Gemini CLI's records: texts, thoughts, tool calls and responses, files, and token counts.

use crate::{
    EntryPart, Media, Tokens,
    wire::{Entries, Flag, Num, Str, Tolerant, wire},
};
use serde::de::{MapAccess, SeqAccess};
use serde_json::value::RawValue;

wire! { pub(super) struct Piece<'a> {
    text: Option<Str<'a>> = "text", thought: Flag = "thought", signature: Option<Str<'a>> = "thoughtSignature",
    call: Option<FunctionCall<'a>> = "functionCall", response: Option<FunctionResponse<'a>> = "functionResponse",
    inline: Option<Blob<'a>> = "inlineData", file: Option<Blob<'a>> = "fileData",
} }
wire! { pub(super) struct FunctionCall<'a> { id: Str<'a> = "id", name: Str<'a> = "name", args: Option<&'a RawValue> = "args" } }
wire! { pub(super) struct Blob<'a> {
    mime_type: Str<'a> = "mimeType", data: Option<Str<'a>> = "data", uri: Option<Str<'a>> = "fileUri",
} }

wire! { pub(super) struct FunctionResponse<'a> {
    id: Str<'a> = "id", name: Str<'a> = "name", body: Entries<'a, &'a RawValue> = "response", parts: PartList<'a> = "parts",
} }

wire! { pub(super) struct Counts<'a> {
    input: Num = "input", output: Num = "output", cached: Num = "cached", thoughts: Num = "thoughts", tool: Num = "tool", total: Num = "total",
} }
wire! { pub(super) struct Thought<'a> { subject: Str<'a> = "subject", description: Str<'a> = "description" } }

/// The content of a message: a string, a part, or a list of both.
#[derive(Debug, Default)]
pub(super) struct PartList<'a>(pub(super) Vec<Piece<'a>>);

impl<'a> Tolerant<'a> for PartList<'a> {
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

impl<'a> serde::Deserialize<'a> for PartList<'a> {
    fn deserialize<D: serde::Deserializer<'a>>(d: D) -> Result<Self, D::Error> {
        crate::wire::tolerant(d)
    }
}

impl<'a> Piece<'a> {
    fn plain(text: Str<'a>) -> Self {
        Self { text: Some(text), ..Self::default() }
    }

    /// Returns the text, unless it is a thought.
    pub(super) fn answer_text(&self) -> Option<&str> {
        self.text.as_deref().filter(|text| !self.thought.0 && !text.trim().is_empty())
    }

    pub(super) fn media(&self) -> Option<Media> {
        let blob = self.inline.as_ref().or(self.file.as_ref())?;
        let own = |text: &Option<Str<'_>>| text.as_ref().map(|t| t.to_string());
        Some(Media::new(&*blob.mime_type, own(&blob.data), own(&blob.uri)))
    }
}

impl PartList<'_> {
    /// Returns the tool responses among the parts.
    pub(super) fn responses(&self) -> impl Iterator<Item = &FunctionResponse<'_>> {
        self.0.iter().filter_map(|piece| piece.response.as_ref())
    }
}

impl<'a> FunctionResponse<'a> {
    pub(super) fn output(&self) -> Option<&'a RawValue> {
        self.value("output")
    }

    pub(super) fn error(&self) -> Option<&'a RawValue> {
        self.value("error")
    }

    fn value(&self, name: &str) -> Option<&'a RawValue> {
        self.body
            .0
            .iter()
            .rev()
            .find(|(key, value)| &**key == name && value.get() != "null")
            .map(|(_, value)| *value)
    }

    /// Returns the whole response as JSON, for responses in an unknown form.
    pub(super) fn whole(&self) -> Option<Box<RawValue>> {
        let entry = |(key, value): &(Str<'_>, &RawValue)| {
            format!("{}:{}", serde_json::to_string(&*key.0).unwrap_or_default(), value.get())
        };
        let entries: Vec<String> = self.body.0.iter().map(entry).collect();
        let object = RawValue::from_string(format!("{{{}}}", entries.join(","))).ok();
        object.filter(|_| !entries.is_empty())
    }
}

/// Returns the text of a value, or `None` if it is not a string.
pub(super) fn text(value: &RawValue) -> Option<String> {
    value.get().starts_with('"').then(|| serde_json::from_str::<Str<'_>>(value.get()).ok().map(Str::own))?
}

impl Counts<'_> {
    /// Converts the counts to `Tokens`.
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

impl Piece<'_> {
    /// Returns the thought in this piece.
    pub(super) fn thinking(&self) -> Option<EntryPart> {
        let text = thought_text(self.text.as_deref()?);
        let signature = self.signature.as_ref().map(|s| s.to_string());
        (!text.is_empty()).then_some(EntryPart::Thinking { text, signature })
    }
}

impl Thought<'_> {
    /// Returns subject and description as one text, which may be empty.
    pub(super) fn text(&self) -> String {
        joined(&self.subject, &self.description)
    }
}

/// Formats `**Subject** description`, as the model writes it, without the asterisks. The subject may be empty.
fn thought_text(raw: &str) -> String {
    let Some((before, subject, after)) =
        raw.split_once("**").and_then(|(b, rest)| rest.split_once("**").map(|(s, a)| (b, s, a)))
    else {
        return raw.trim().to_owned();
    };
    joined(subject, &format!("{before}{after}"))
}

/// Returns `subject: description`, or only the one that is not empty.
fn joined(subject: &str, description: &str) -> String {
    let parts = [subject.trim().trim_matches('*').trim(), without_stars(description)];
    let parts: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    parts.join(": ")
}

/// Removes the asterisks of an empty subject at the beginning of a description.
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
}
