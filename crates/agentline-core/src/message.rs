//! A finished message in the form of Claude's API, whichever agent spoke, live or saved.

use crate::{Millis, Origin, RawJson, Tokens, ToolStatus, ToolUse};
use serde::{Serialize, Serializer, ser::SerializeMap as _};
use serde_json::value::RawValue;
use std::borrow::Cow;

mod block;
mod counts;
mod hide;

pub use block::{Block, BlockDiff, Content, ImageSource};
pub(crate) use block::{Said, image_block};
pub(crate) use counts::{ClaudeCounts, UnifiedCounts};

/// Who speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Role {
    /// The model.
    Assistant,
    /// The person, or the tools on their side of the conversation.
    User,
    /// The agent itself: a notice, a warning, an error.
    System,
}

/// The two ways to tell a conversation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum View {
    /// One message a record, each tool beside its result; tokens as agentline counts them.
    #[default]
    Unified,
    /// As Claude tells it: results in messages of the user, every field of its API, tokens as Claude counts them.
    Claude,
}

/// A finished message. It borrows from the session that it shows; [`into_owned`](Message::into_owned) lets it go.
///
/// As JSON, in either view: `id`, `type` (`message`, on the assistant's as in Claude's API), `role`, `model`, `content`,
/// `stop_reason`, `usage`, `timestamp` (milliseconds since 1970), `tool` (the agent's id) and `_original`.
///
/// | `usage` | `unified` | `claude` |
/// |---|---|---|
/// | `input_tokens` | cached ones included | cached ones excluded |
/// | `cache_read_input_tokens` | those of the input that were cached | the same |
/// | `cache_creation_input_tokens` | those of the input that were written to the cache | the same |
/// | `output_tokens` | thoughts apart | thoughts included |
/// | `reasoning_tokens` | thoughts | `output_tokens_details.thinking_tokens` |
/// | `total_tokens` | all together | absent |
/// | not known | absent | 0, because Claude's types want a number |
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Message<'a> {
    /// In which form it is written.
    pub view: View,
    /// The agent's id of it, or one made from its place; results have none in the form of Claude.
    pub id: Option<Cow<'a, str>>,
    /// Who speaks.
    pub role: Role,
    /// The model, where it is known.
    pub model: Option<Cow<'a, str>>,
    /// What was said.
    pub content: Content<'a>,
    /// Why the model stopped.
    pub stop_reason: Option<Cow<'a, str>>,
    /// Tokens of the requests that it took.
    pub usage: Option<Tokens>,
    /// When, in milliseconds since 1970.
    pub timestamp: Option<Millis>,
    /// The agent's id.
    pub tool: Cow<'a, str>,
    /// It belongs to a side chain: work of a sub-agent, told in the same file.
    pub sidechain: bool,
    /// The way back to the agent's own words.
    pub original: Option<Original>,
}

impl<'a> Message<'a> {
    /// A message that says nothing yet.
    #[must_use]
    pub fn new(view: View, role: Role, tool: impl Into<Cow<'a, str>>) -> Self {
        Self {
            view,
            id: None,
            role,
            model: None,
            content: Content::Blocks(Vec::new()),
            stop_reason: None,
            usage: None,
            timestamp: None,
            tool: tool.into(),
            sidechain: false,
            original: None,
        }
    }

    /// The blocks; none where the content is plain text.
    #[must_use]
    pub fn blocks(&self) -> &[Block<'a>] {
        match &self.content {
            Content::Blocks(blocks) => blocks,
            Content::Text(_) => &[],
        }
    }

    /// The same, with a copy of all that it borrowed.
    #[must_use]
    pub fn into_owned(self) -> Message<'static> {
        Message {
            view: self.view,
            id: self.id.map(owned),
            role: self.role,
            model: self.model.map(owned),
            content: self.content.into_owned(),
            stop_reason: self.stop_reason.map(owned),
            usage: self.usage,
            timestamp: self.timestamp,
            tool: owned(self.tool),
            sidechain: self.sidechain,
            original: self.original,
        }
    }
}

fn owned(text: Cow<'_, str>) -> Cow<'static, str> {
    Cow::Owned(text.into_owned())
}

impl Serialize for Message<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let whole = self.view == View::Claude && self.role == Role::Assistant;
        let mut map = serializer.serialize_map(None)?;
        if let Some(id) = &self.id {
            map.serialize_entry("id", id)?;
        }
        if self.role == Role::Assistant {
            map.serialize_entry("type", "message")?;
        }
        map.serialize_entry("role", &self.role)?;
        match &self.model {
            Some(model) => map.serialize_entry("model", model)?,
            None if whole => map.serialize_entry("model", UNKNOWN_MODEL)?,
            None => {}
        }
        if whole {
            map.serialize_entry("content", &Said(self.blocks()))?;
            map.serialize_entry("stop_reason", &self.stop_reason)?;
            for key in ["stop_sequence", "stop_details", "container", "context_management", "diagnostics"] {
                map.serialize_entry(key, &())?;
            }
            map.serialize_entry("usage", &ClaudeCounts::of(&self.usage.unwrap_or_default()))?;
        } else {
            map.serialize_entry("content", &self.content)?;
            if let Some(reason) = &self.stop_reason {
                map.serialize_entry("stop_reason", reason)?;
            }
            if let Some(tokens) = &self.usage {
                map.serialize_entry("usage", &UnifiedCounts::of(tokens))?;
            }
        }
        if let Some(at) = self.timestamp {
            map.serialize_entry("timestamp", &at)?;
        }
        map.serialize_entry("tool", &self.tool)?;
        if self.sidechain {
            map.serialize_entry("isSidechain", &true)?;
        }
        if let Some(original) = &self.original {
            map.serialize_entry("_original", original)?;
        }
        map.end()
    }
}

/// What stands for the model where nobody said it and Claude's types want a name.
pub(crate) const UNKNOWN_MODEL: &str = "unknown";

/// The way back to the agent's own words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
#[non_exhaustive]
pub enum Original {
    /// Lines of one of the agent's streams, as on a tape.
    Lines(Lines),
    /// The one record that it was made from.
    Record(RawJson),
    /// The records that it was made from.
    Records(Vec<RawJson>),
}

impl Original {
    /// These records; `None` when there are none.
    #[must_use]
    pub fn records(mut records: Vec<RawJson>) -> Option<Self> {
        match records.len() {
            0 | 1 => records.pop().map(Self::Record),
            _ => Some(Self::Records(records)),
        }
    }
}

/// Lines of one of the agent's streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Lines {
    /// Which stream.
    pub from: Origin,
    /// The first line, from 1.
    pub first_line: u64,
    /// The last line.
    pub last_line: u64,
}

impl Lines {
    /// One line of a stream.
    #[must_use]
    pub fn one(from: Origin, line: u64) -> Self {
        Self { from, first_line: line, last_line: line }
    }
}

/// The marker of a call that was stopped or refused rather than done or failed.
pub(crate) fn marker(status: ToolStatus) -> Option<ToolStatus> {
    matches!(status, ToolStatus::Cancelled | ToolStatus::Denied).then_some(status)
}

/// The block of a call. The agent's own name and arguments are there where they are not the same.
pub(crate) fn tool_use(call: &ToolUse) -> Block<'_> {
    let raw = call.raw_input.as_deref();
    let input = call.input.as_deref().or(raw);
    Block::ToolUse {
        id: Cow::Borrowed(&call.id),
        name: Cow::Borrowed(&call.name),
        input: input.map_or_else(|| Cow::Owned(no_arguments()), Cow::Borrowed),
        native_name: (call.native_name != call.name && !call.native_name.is_empty())
            .then_some(Cow::Borrowed(&*call.native_name)),
        raw_input: raw.filter(|raw| input.is_some_and(|i| i.get() != raw.get())).map(Cow::Borrowed),
    }
}

fn no_arguments() -> Box<RawValue> {
    RawValue::from_string("{}".into()).unwrap_or_else(|_| RawValue::NULL.to_owned())
}
