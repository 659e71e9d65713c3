//! A complete message in the format of Claude's API, for any agent, live or saved.

use crate::{Millis, Origin, RawJson, Tokens, ToolStatus, ToolUse};
use serde::{Serialize, Serializer, ser::SerializeMap as _};
use serde_json::value::RawValue;
use std::borrow::Cow;

mod block;
mod counts;

pub use block::{Block, BlockDiff, Content, ImageSource};
pub(crate) use block::{ModelBlock, image_block};
pub(crate) use counts::{ClaudeCounts, UnifiedCounts};

/// The author of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Role {
    /// The model.
    Assistant,
    /// The user, or the tools on the user's side of the conversation.
    User,
    /// The agent itself: a notice, a warning, an error.
    System,
}

/// The two formats of a conversation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum View {
    /// One message per record, each tool call next to its result, with token counts as agentline defines them.
    #[default]
    Unified,
    /// As in Claude's API: results in user messages, every field present, token counts as Claude defines them.
    Claude,
}

/// A complete message. It borrows from its session; [`into_owned`](Message::into_owned) copies the borrowed data.
///
/// Its JSON has in both views: `id`, `type` (`message`, for the assistant as in Claude's API), `role`, `model`,
/// `content`, `stop_reason`, `usage`, `timestamp` (milliseconds since 1970), `tool` (the agent's id) and `_original`.
///
/// | `usage` | `unified` | `claude` |
/// |---|---|---|
/// | `input_tokens` | includes cached tokens | excludes cached tokens |
/// | `cache_read_input_tokens` | input tokens read from the cache | same |
/// | `cache_creation_input_tokens` | input tokens written to the cache | same |
/// | `output_tokens` | excludes reasoning | includes reasoning |
/// | `reasoning_tokens` | reasoning tokens | `output_tokens_details.thinking_tokens` |
/// | `total_tokens` | sum of all tokens | absent |
/// | unknown values | absent | 0, because Claude's types require a number |
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Message<'a> {
    /// The format of the message.
    pub view: View,
    /// The agent's id for the message, or one derived from its position; results in the Claude format have none.
    pub id: Option<Cow<'a, str>>,
    /// The author.
    pub role: Role,
    /// The model, if known.
    pub model: Option<Cow<'a, str>>,
    /// The content.
    pub content: Content<'a>,
    /// Why the model stopped.
    pub stop_reason: Option<Cow<'a, str>>,
    /// The tokens of the requests for this message.
    pub usage: Option<Tokens>,
    /// The time, in milliseconds since 1970.
    pub timestamp: Option<Millis>,
    /// The agent's id.
    pub tool: Cow<'a, str>,
    /// Whether the message belongs to a side chain: the work of a sub-agent in the same file.
    pub sidechain: bool,
    /// The source of the message in the agent's own format.
    pub original: Option<Original>,
}

impl<'a> Message<'a> {
    /// Creates an empty message.
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

    /// Returns the blocks; empty if the content is plain text.
    #[must_use]
    pub fn blocks(&self) -> &[Block<'a>] {
        match &self.content {
            Content::Blocks(blocks) => blocks,
            Content::Text(_) => &[],
        }
    }

    /// Converts the message to one that owns all its data.
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
            map.serialize_entry("content", &ModelBlock(self.blocks()))?;
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

/// The model name for unknown models, because Claude's types require one.
pub(crate) const UNKNOWN_MODEL: &str = "unknown";

/// The source of a message in the agent's own format.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
#[non_exhaustive]
pub enum Original {
    /// Lines of one of the agent's streams, as on a tape.
    Lines(StreamLines),
    /// The record that the message was created from.
    Record(RawJson),
    /// The records that the message was created from.
    Records(Vec<RawJson>),
}

impl Original {
    /// Creates a source from records; `None` if there are none.
    #[must_use]
    pub fn records(mut records: Vec<RawJson>) -> Option<Self> {
        match records.len() {
            0 | 1 => records.pop().map(Self::Record),
            _ => Some(Self::Records(records)),
        }
    }
}

/// A range of lines of one of the agent's streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct StreamLines {
    /// The stream.
    pub from: Origin,
    /// The first line, from 1.
    pub first_line: u64,
    /// The last line.
    pub last_line: u64,
}

impl StreamLines {
    /// Creates a range of one line.
    #[must_use]
    pub fn one(from: Origin, line: u64) -> Self {
        Self { from, first_line: line, last_line: line }
    }
}

/// Returns the status of a call if it was cancelled or denied, for the `status` field of its result.
pub(crate) fn marker(status: ToolStatus) -> Option<ToolStatus> {
    matches!(status, ToolStatus::Cancelled | ToolStatus::Denied).then_some(status)
}

/// Creates the block of a call. It includes the agent's own name and arguments only if they differ.
pub(crate) fn tool_use(call: &ToolUse) -> Block<'_> {
    let kept = call.without_foreign_arguments();
    let all = call.input.as_deref();
    let raw = call.raw_input.as_deref().or(all.filter(|_| kept.is_some()));
    let input = match kept {
        Some(kept) => Cow::Owned(kept),
        None => all.or(raw).map_or_else(|| Cow::Owned(no_arguments()), Cow::Borrowed),
    };
    let raw_input = raw.filter(|raw| raw.get() != input.get()).map(Cow::Borrowed);
    Block::ToolUse {
        id: Cow::Borrowed(&call.id),
        name: Cow::Borrowed(&call.name),
        input,
        native_name: (call.native_name != call.name && !call.native_name.is_empty())
            .then_some(Cow::Borrowed(&*call.native_name)),
        raw_input,
    }
}

fn no_arguments() -> Box<RawValue> {
    RawValue::from_string("{}".into()).unwrap_or_else(|_| RawValue::NULL.to_owned())
}
