//! A saved session in a common form for all agents: entries in order, with each tool call next to its result.
//!
//! `view.rs` builds the message views from it. The readers are in the agents' directories.

pub(crate) mod content;

pub use content::{ContentStore, MAX_CONTENT_IN_MEMORY};
pub(crate) use content::{LOST_CONTENT, Stored, read_content, write_content};

use crate::SavedDiff;
use crate::{AgentId, Millis, RawJson, Role, Tokens, ToolStatus, ToolUse};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::{path::PathBuf, sync::Arc};

/// A session, as far as it could be read.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct SavedSession {
    /// The metadata of the session.
    pub info: SessionInfo,
    /// The entries of the conversation, oldest first.
    pub entries: Vec<Entry>,
    /// The entries of branches that an edit or a rewind abandoned, oldest first. They are not part of the conversation,
    /// but their tokens were used.
    pub abandoned: Vec<Entry>,
    /// The parts that could not be read.
    pub damage: Vec<ReadError>,
}

/// The metadata of a session.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct SessionInfo {
    /// The id of the agent.
    pub agent: AgentId,
    /// The agent's id for the session.
    pub id: String,
    /// The directory of the project.
    pub project: Option<String>,
    /// The title or summary that the agent assigned. Not the first prompt.
    pub title: Option<String>,
    /// The start time, in milliseconds since 1970.
    pub started: Option<Millis>,
    /// The time of the last entry, in milliseconds since 1970.
    pub updated: Option<Millis>,
    /// The version of the agent that wrote the session.
    pub agent_version: Option<String>,
    /// The model used last.
    pub model: Option<String>,
    /// The session that started this one, if it belongs to a sub-agent.
    pub parent: Option<String>,
    /// The cost that the agent reported, in US dollars.
    pub cost_usd: Option<f64>,
}

/// One entry of a session: a prompt, an answer from the model, or a message from the agent itself.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Entry {
    /// The agent's id for the entry, or one derived from its position.
    pub id: String,
    /// The author. `system` stands for messages from the agent itself.
    pub role: Role,
    /// The time, in milliseconds since 1970.
    pub timestamp: Option<Millis>,
    /// The model that answered.
    pub model: Option<String>,
    /// The content, in its original order.
    pub parts: Vec<EntryPart>,
    /// The tokens of the requests behind this answer.
    pub usage: Option<Tokens>,
    /// The number of these requests, if known.
    pub requests: Option<u64>,
    /// An id of these requests that is the same in every copy of this entry, such as the copy in a forked session.
    ///
    /// Tokens with the same id are counted once. Without an id, they belong to this session alone.
    pub counted_as: Option<String>,
    /// The cost that the agent reported, in US dollars.
    pub cost_usd: Option<f64>,
    /// Why the model stopped, in the terms of the Claude API (`end_turn`, `tool_use`, `max_tokens`, …).
    pub stop_reason: Option<String>,
    /// Whether the agent added the entry as context for the model, so that it is not shown to users.
    pub context: bool,
    /// Whether the entry belongs to a side chain: the work of a sub-agent, stored in the same file.
    pub sidechain: bool,
    /// The slash command that the user typed, whose text is the only text of the entry.
    pub command: Option<SlashCommand>,
    /// Whether the entry has only results of tools whose calls are not in the session.
    pub results_only: bool,
    /// The agent's own records behind this entry. Records that were lines are kept byte for byte.
    pub originals: Vec<RawJson>,
    /// The location of the parts and records, if they are not in memory.
    content: Option<content::StoredContent>,
}

impl Entry {
    /// Creates an empty entry.
    #[must_use]
    pub fn new(id: impl Into<String>, role: Role) -> Self {
        Self {
            id: id.into(),
            role,
            timestamp: None,
            model: None,
            parts: Vec::new(),
            usage: None,
            requests: None,
            counted_as: None,
            cost_usd: None,
            stop_reason: None,
            context: false,
            sidechain: false,
            command: None,
            results_only: false,
            originals: Vec::new(),
            content: None,
        }
    }

    /// Returns all plain text, joined by line breaks.
    #[must_use]
    pub fn text(&self) -> String {
        let pieces = self.parts.iter().filter_map(|part| match part {
            EntryPart::Text { text } => Some(text.as_str()),
            _ => None,
        });
        pieces.collect::<Vec<_>>().join("\n")
    }

    /// Returns the tool calls.
    pub fn tools(&self) -> impl Iterator<Item = &SavedTool> {
        self.parts.iter().filter_map(|part| match part {
            EntryPart::Tool(tool) => Some(&**tool),
            _ => None,
        })
    }

    /// Returns whether the entry is a prompt from the user.
    #[must_use]
    pub fn is_prompt(&self) -> bool {
        let typed = !self.context && !self.sidechain && !self.results_only;
        self.role == Role::User && typed && !self.is_empty()
    }
}

/// A slash command that the user typed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SlashCommand {
    /// The command with its slash, such as `/clear`.
    pub name: String,
    /// The agent's description of the command.
    pub message: Option<String>,
    /// The arguments.
    pub args: Option<String>,
}

impl SlashCommand {
    /// Returns the command as the user typed it.
    #[must_use]
    pub fn text(&self) -> String {
        match self.args.as_deref() {
            None | Some("") => self.name.clone(),
            Some(args) => format!("{} {args}", self.name),
        }
    }
}

/// One part of an entry.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub enum EntryPart {
    /// Plain text.
    Text {
        /// The text.
        text: String,
    },
    /// Reasoning.
    Thinking {
        /// The text, as `subject: description` if the agent has both.
        text: String,
        /// The provider's signature, which Claude requires to be sent back.
        signature: Option<String>,
    },
    /// A tool call with its result.
    Tool(Box<SavedTool>),
    /// An image, audio or another file.
    Media(Media),
}

impl EntryPart {
    /// Creates a plain-text part.
    #[must_use]
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text { text: text.into() }
    }

    /// Creates a reasoning part without a signature.
    #[must_use]
    pub fn thinking(text: impl Into<String>) -> Self {
        Self::Thinking { text: text.into(), signature: None }
    }
}

/// An image, audio or another file, in a prompt or a result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Media {
    /// The media type, such as `image/png`.
    pub mime_type: String,
    /// The content in base64, or `None` if it is stored elsewhere.
    pub data: Option<String>,
    /// The location of the content.
    pub uri: Option<String>,
}

impl Media {
    /// Creates media of this type, with its content in base64 or its location.
    #[must_use]
    pub fn new(mime_type: impl Into<String>, data: Option<String>, uri: Option<String>) -> Self {
        Self { mime_type: mime_type.into(), data, uri }
    }
}

/// A tool call with its result.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SavedTool {
    /// The call, with its canonical and native names and inputs.
    #[serde(with = "content::call")]
    pub call: ToolUse,
    /// The result, or `None` if the session ended before it.
    pub result: Option<SavedResult>,
    /// The change to a file, if the agent stored it.
    pub diff: Option<SavedDiff>,
}

impl SavedTool {
    /// Creates a call without a result.
    #[must_use]
    pub fn new(call: ToolUse) -> Self {
        Self { call, result: None, diff: None }
    }

    /// Creates the result of a call that is not in the session.
    #[must_use]
    pub fn without_call(id: impl Into<String>, result: SavedResult) -> Self {
        let call = ToolUse { id: id.into(), ..ToolUse::default() };
        Self { call, result: Some(result), diff: None }
    }

    /// Returns whether the call itself is known, and not only its result.
    #[must_use]
    pub fn has_call(&self) -> bool {
        !(self.call.name.is_empty() && self.call.native_name.is_empty())
    }
}

/// The result of a tool call.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SavedResult {
    /// How the call ended.
    pub status: ToolStatus,
    /// The text of the result. Several results are concatenated.
    pub content: String,
    /// The parts of the result that are not text.
    pub media: Vec<Media>,
    /// The result as the agent wrote it, if it was neither a string nor a list of texts.
    pub raw: Option<Box<RawValue>>,
    /// The time, in milliseconds since 1970.
    pub timestamp: Option<Millis>,
    /// The record that contains the result, if it has a record of its own.
    #[serde(with = "content::record")]
    pub original: Option<RawJson>,
}

impl SavedResult {
    /// Creates a result in plain text.
    #[must_use]
    pub fn new(status: ToolStatus, content: impl Into<String>) -> Self {
        Self {
            status,
            content: content.into(),
            media: Vec::new(),
            raw: None,
            timestamp: None,
            original: None,
        }
    }
}

/// A part of a session that could not be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ReadError {
    /// The line number, starting at 1, or `None` for the whole session.
    pub line: Option<u64>,
    /// What is wrong.
    pub message: String,
}

impl ReadError {
    /// Creates a description of a damaged line, or of the whole session.
    #[must_use]
    pub fn new(line: Option<u64>, message: impl Into<String>) -> Self {
        Self { line, message: message.into() }
    }
}

/// The storage format of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SessionFormat {
    /// A file that grows by one line per record.
    Lines,
    /// A single JSON value that is rewritten as a whole.
    Whole,
    /// A database with many sessions, which the shell reads row by row.
    Database,
}

/// Builds a session from an agent's records.
///
/// A file that is read as a whole and one that is followed while it grows use the same calls and give the
/// same session.
pub trait SessionReader: Send {
    /// Adds one record: a line without its line break, the value of a whole file, or a row of a database as the agent's
    /// reader defines it. Unreadable records are noted as damage.
    fn take(&mut self, record: RawJson);

    /// Moves held content to a store. It may be called between any two records and does not change the session.
    ///
    /// The default implementation keeps everything in memory.
    fn offload(&mut self, _store: &Arc<dyn ContentStore>) {}

    /// Returns the session so far.
    ///
    /// Adding records is cheap, but this call may take time proportional to the length of the session. Call it after
    /// adding all available records.
    fn session(&self) -> &SavedSession;

    /// Returns the complete session.
    fn finish(self: Box<Self>) -> SavedSession;
}

/// A directory or database file in which an agent stores sessions.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SessionRoot {
    /// The directory to walk, or the database file.
    pub path: PathBuf,
    /// The kind of content at the path.
    pub form: RootFormat,
}

/// The kind of content of a session root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RootFormat {
    /// Files in nested directories. [`SessionSource::file`](crate::SessionSource::file) determines which are sessions.
    Files {
        /// The maximum directory depth below the root.
        depth: usize,
    },
    /// One database with all sessions.
    Database,
}

impl SessionRoot {
    /// Creates a root for files below a directory.
    #[must_use]
    pub fn files(path: PathBuf, depth: usize) -> Self {
        Self { path, form: RootFormat::Files { depth } }
    }

    /// Creates a root for a database.
    #[must_use]
    pub fn database(path: PathBuf) -> Self {
        Self { path, form: RootFormat::Database }
    }
}

/// A file whose name identifies it as a session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SessionFile {
    /// The storage format, or `None` if the name does not show it.
    pub form: Option<SessionFormat>,
    /// The id of the session or a prefix of it, as far as the name contains it.
    pub id: Option<String>,
    /// The session that started this one, if it belongs to a sub-agent.
    pub parent: Option<String>,
}

/// The project that the location of a file refers to.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProjectRef {
    /// The path of the project.
    Path(PathBuf),
    /// The SHA-256 of the path in hex. The path itself can only be found among known paths.
    Sha256(String),
}
