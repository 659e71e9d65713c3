//! The content blocks of a message.

use super::{Role, owned};
use crate::ToolStatus;
use serde::{Serialize, Serializer, ser::SerializeSeq as _};
use serde_json::value::RawValue;
use std::borrow::Cow;

/// The content of a message: blocks, or plain text.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
#[non_exhaustive]
pub enum Content<'a> {
    /// Plain text.
    Text(Cow<'a, str>),
    /// Blocks.
    Blocks(Vec<Block<'a>>),
}

impl Content<'_> {
    /// Converts the content to one that owns all its data.
    #[must_use]
    pub fn into_owned(self) -> Content<'static> {
        match self {
            Self::Text(text) => Content::Text(owned(text)),
            Self::Blocks(blocks) => Content::Blocks(blocks.into_iter().map(Block::into_owned).collect()),
        }
    }
}

/// One complete block of a message.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Block<'a> {
    /// Reasoning.
    Thinking {
        /// The complete text.
        thinking: Cow<'a, str>,
        /// The provider's signature; empty if there is none, because Claude's types require one.
        signature: Cow<'a, str>,
    },
    /// Part of the answer or of the prompt.
    Text {
        /// The complete text.
        text: Cow<'a, str>,
    },
    /// An image.
    Image {
        /// The source of the image.
        source: ImageSource<'a>,
    },
    /// A document, such as a PDF.
    Document {
        /// The source of the document.
        source: ImageSource<'a>,
    },
    /// A slash command that the user typed, in the view `unified`. In the view `claude` it is text.
    SlashCommand {
        /// The command with its slash.
        command: Cow<'a, str>,
        /// The agent's description of the command.
        #[serde(skip_serializing_if = "Option::is_none")]
        message: Option<Cow<'a, str>>,
        /// The arguments.
        #[serde(skip_serializing_if = "Option::is_none")]
        args: Option<Cow<'a, str>>,
    },
    /// A tool call by the model.
    ToolUse {
        /// The agent's id for the call.
        id: Cow<'a, str>,
        /// The canonical name.
        name: Cow<'a, str>,
        /// The arguments in canonical form.
        input: Cow<'a, RawValue>,
        /// The agent's own name, if it differs.
        #[serde(skip_serializing_if = "Option::is_none")]
        native_name: Option<Cow<'a, str>>,
        /// The arguments as the agent sent them, if they differ.
        #[serde(skip_serializing_if = "Option::is_none")]
        raw_input: Option<Cow<'a, RawValue>>,
    },
    /// The result of a tool call.
    ToolResult {
        /// The id of the call.
        tool_use_id: Cow<'a, str>,
        /// The output of the tool, as far as the surface shows it.
        content: Content<'a>,
        /// Whether the call failed, was refused or was cancelled.
        is_error: bool,
        /// `cancelled` or `denied`, if the call was stopped or refused.
        #[serde(skip_serializing_if = "Option::is_none")]
        status: Option<ToolStatus>,
        /// The change to a file, if the agent reported it.
        #[serde(skip_serializing_if = "Option::is_none")]
        diff: Option<BlockDiff<'a>>,
    },
}

impl Block<'_> {
    /// Returns the role of the message that the block belongs to, if a model or a tool created it.
    #[must_use]
    pub fn role(&self) -> Role {
        match self {
            Self::ToolResult { .. } => Role::User,
            _ => Role::Assistant,
        }
    }

    /// Converts the block to one that owns all its data.
    #[must_use]
    pub fn into_owned(self) -> Block<'static> {
        match self {
            Self::Thinking { thinking, signature } => {
                Block::Thinking { thinking: owned(thinking), signature: owned(signature) }
            }
            Self::Text { text } => Block::Text { text: owned(text) },
            Self::Image { source } => Block::Image { source: source.into_owned() },
            Self::Document { source } => Block::Document { source: source.into_owned() },
            Self::SlashCommand { command, message, args } => Block::SlashCommand {
                command: owned(command),
                message: message.map(owned),
                args: args.map(owned),
            },
            Self::ToolUse { id, name, input, native_name, raw_input } => Block::ToolUse {
                id: owned(id),
                name: owned(name),
                input: Cow::Owned(input.into_owned()),
                native_name: native_name.map(owned),
                raw_input: raw_input.map(|raw| Cow::Owned(raw.into_owned())),
            },
            Self::ToolResult { tool_use_id, content, is_error, status, diff } => Block::ToolResult {
                tool_use_id: owned(tool_use_id),
                content: content.into_owned(),
                is_error,
                status,
                diff: diff.map(BlockDiff::into_owned),
            },
        }
    }
}

/// The source of an image or document.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[non_exhaustive]
pub enum ImageSource<'a> {
    /// Embedded data.
    Base64 {
        /// The media type, such as `image/png`.
        media_type: Cow<'a, str>,
        /// The base64 data.
        data: Cow<'a, str>,
    },
    /// A URL.
    Url {
        /// The URL.
        url: Cow<'a, str>,
    },
}

impl ImageSource<'_> {
    fn into_owned(self) -> ImageSource<'static> {
        match self {
            Self::Base64 { media_type, data } => {
                ImageSource::Base64 { media_type: owned(media_type), data: owned(data) }
            }
            Self::Url { url } => ImageSource::Url { url: owned(url) },
        }
    }
}

/// Creates the block of an image or another file. Types that Claude has no block for become a text block.
pub(crate) fn image_block<'a>(media_type: &'a str, data: Option<&'a str>, uri: Option<&'a str>) -> Block<'a> {
    let source = match (data, uri) {
        (Some(data), _) => ImageSource::Base64 { media_type: media_type.into(), data: data.into() },
        (None, Some(uri)) => ImageSource::Url { url: uri.into() },
        (None, None) => return placeholder(media_type, None),
    };
    match media_type {
        "image/jpeg" | "image/png" | "image/gif" | "image/webp" => Block::Image { source },
        "application/pdf" => Block::Document { source },
        _ => placeholder(media_type, uri),
    }
}

fn placeholder(media_type: &str, uri: Option<&str>) -> Block<'static> {
    let location = uri.map(|uri| format!(": {uri}")).unwrap_or_default();
    Block::Text { text: Cow::Owned(format!("[{media_type}{location}]")) }
}

/// A file change made by a tool.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct BlockDiff<'a> {
    /// The path of the file.
    pub path: Cow<'a, str>,
    /// The content before the change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub old: Option<Cow<'a, str>>,
    /// The content after the change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub new: Option<Cow<'a, str>>,
    /// The change as a unified diff, if the agent stored that instead of the texts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unified: Option<Cow<'a, str>>,
}

impl<'a> From<&'a crate::SavedDiff> for BlockDiff<'a> {
    fn from(diff: &'a crate::SavedDiff) -> Self {
        Self {
            path: Cow::Borrowed(&diff.path),
            old: diff.old.as_deref().map(Cow::Borrowed),
            new: diff.new.as_deref().map(Cow::Borrowed),
            unified: diff.unified.as_deref().map(Cow::Borrowed),
        }
    }
}

impl<'a> From<&'a crate::Diff> for BlockDiff<'a> {
    fn from(diff: &'a crate::Diff) -> Self {
        Self {
            path: Cow::Borrowed(&diff.path),
            old: diff.old.as_deref().map(Cow::Borrowed),
            new: Some(Cow::Borrowed(&diff.new)),
            unified: None,
        }
    }
}

impl BlockDiff<'_> {
    fn into_owned(self) -> BlockDiff<'static> {
        BlockDiff {
            path: owned(self.path),
            old: self.old.map(owned),
            new: self.new.map(owned),
            unified: self.unified.map(owned),
        }
    }
}

/// Serializes the model's blocks with the `citations` field, which Claude's API has in responses but not in requests.
pub(crate) struct ModelBlock<'a, 'b>(pub(crate) &'a [Block<'b>]);

#[derive(Serialize)]
struct CitedText<'a> {
    r#type: &'static str,
    text: &'a str,
    citations: (),
}

impl Serialize for ModelBlock<'_, '_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut list = serializer.serialize_seq(Some(self.0.len()))?;
        for block in self.0 {
            match block {
                Block::Text { text } => {
                    list.serialize_element(&CitedText { r#type: "text", text, citations: () })?;
                }
                other => list.serialize_element(other)?,
            }
        }
        list.end()
    }
}
