//! A session as an agent saved it, in one shape for all agents: what was said, in its true order, with every tool beside
//! its result. The two views of messages are made of it (`view.rs`); the readers are in the agents' folders.

mod content;

pub use content::{ContentStore, HELD_CONTENT};
pub(crate) use content::{LOST_CONTENT, Stored, read_content, write_content};

use crate::{Millis, RawJson, Role, Tokens, ToolStatus, ToolUse};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::{path::PathBuf, sync::Arc};

/// A session that was read, as far as it could be.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct SavedSession {
    /// Whose it is and when it was.
    pub info: SessionInfo,
    /// What was said, oldest first.
    pub entries: Vec<Entry>,
    /// What was said on branches that an edit or a rewind left behind, oldest first: no part of the conversation any
    /// more, but its tokens were used.
    pub abandoned: Vec<Entry>,
    /// What could not be read.
    pub damage: Vec<Damage>,
}

/// Whose a session is and when it was.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct SessionInfo {
    /// The agent's id.
    pub agent: String,
    /// The agent's id of the session.
    pub id: String,
    /// The folder it was about.
    pub project: Option<String>,
    /// The title or summary that the agent gave it; not the first prompt.
    pub title: Option<String>,
    /// When it began, in milliseconds since 1970.
    pub started: Option<Millis>,
    /// When something was last said.
    pub updated: Option<Millis>,
    /// The version of the agent that wrote it.
    pub agent_version: Option<String>,
    /// The last model.
    pub model: Option<String>,
    /// The session that started it, for one of a sub-agent.
    pub parent: Option<String>,
    /// What it cost by the agent's own word, in US dollars.
    pub cost_usd: Option<f64>,
}

/// One record of a session: a prompt, an answer of the model, or a word of the agent itself.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Entry {
    /// The agent's id of it, or one made from its place.
    pub id: String,
    /// Who speaks; `system` for words of the agent itself.
    pub role: Role,
    /// When, in milliseconds since 1970.
    pub timestamp: Option<Millis>,
    /// The model that answered.
    pub model: Option<String>,
    /// What was said, in its true order.
    pub parts: Vec<Part>,
    /// Tokens of the requests that this answer took.
    pub usage: Option<Tokens>,
    /// How many requests those were, where it is known.
    pub requests: Option<u64>,
    /// The name of those requests that is the same in every copy of this entry, such as one that a forked session took
    /// along: tokens of one name are counted once. Without it they are this session's alone.
    pub counted_as: Option<String>,
    /// What it cost by the agent's own word, in US dollars.
    pub cost_usd: Option<f64>,
    /// Why the model stopped, in Claude's words (`end_turn`, `tool_use`, `max_tokens`, …).
    pub stop_reason: Option<String>,
    /// The agent put it there itself for the model to read; people do not want to see it.
    pub context: bool,
    /// It belongs to a side chain: work of a sub-agent, told in the same file.
    pub sidechain: bool,
    /// The agent's own records that it was made from. What came as a line is there byte for byte.
    pub originals: Vec<RawJson>,
    /// Where the parts and the records are, if they are not in memory.
    content: Option<content::StoredContent>,
}

impl Entry {
    /// An entry that says nothing yet.
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
            originals: Vec::new(),
            content: None,
        }
    }

    /// Everything said in plain text, joined.
    #[must_use]
    pub fn text(&self) -> String {
        let pieces = self.parts.iter().filter_map(|part| match part {
            Part::Text { text } => Some(text.as_str()),
            _ => None,
        });
        pieces.collect::<Vec<_>>().join("\n")
    }

    /// The tools that were called.
    pub fn tools(&self) -> impl Iterator<Item = &SavedTool> {
        self.parts.iter().filter_map(|part| match part {
            Part::Tool(tool) => Some(&**tool),
            _ => None,
        })
    }

    /// Whether it is what a person asked.
    #[must_use]
    pub fn is_prompt(&self) -> bool {
        self.role == Role::User && !self.context && !self.sidechain && !self.is_empty()
    }
}

/// One piece of an entry.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Part {
    /// Plain text.
    Text {
        /// All of it.
        text: String,
    },
    /// Reasoning.
    Thinking {
        /// All of it, as `subject: description` where the agent has both.
        text: String,
        /// The maker's proof, which Claude wants back.
        signature: Option<String>,
    },
    /// A tool and what came of it.
    Tool(Box<SavedTool>),
    /// An image, a sound or another file.
    Media(Media),
}

impl Part {
    /// Plain text.
    #[must_use]
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text { text: text.into() }
    }

    /// Reasoning without a proof.
    #[must_use]
    pub fn thinking(text: impl Into<String>) -> Self {
        Self::Thinking { text: text.into(), signature: None }
    }
}

/// An image, a sound or another file, in the prompt or in a result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Media {
    /// Such as `image/png`.
    pub mime_type: String,
    /// The content in base64; `None` when it lies elsewhere.
    pub data: Option<String>,
    /// Where it lies.
    pub uri: Option<String>,
}

impl Media {
    /// A file of this type, with its content in base64 or the place where it lies.
    #[must_use]
    pub fn new(mime_type: impl Into<String>, data: Option<String>, uri: Option<String>) -> Self {
        Self { mime_type: mime_type.into(), data, uri }
    }
}

/// A call of a tool and what came of it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SavedTool {
    /// The call, with its canonical and its own name and input.
    #[serde(with = "content::call")]
    pub call: ToolUse,
    /// What came of it; `None` when the session ended before.
    pub result: Option<SavedResult>,
    /// The change of a file, where the agent kept it.
    pub diff: Option<SavedDiff>,
}

impl SavedTool {
    /// A call of which nothing is known to have come.
    #[must_use]
    pub fn new(call: ToolUse) -> Self {
        Self { call, result: None, diff: None }
    }
}

/// What came of a call.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SavedResult {
    /// How it ended.
    pub status: ToolStatus,
    /// What it gave back, as text. Several results stand one after the other.
    pub content: String,
    /// What it gave back that is not text.
    pub media: Vec<Media>,
    /// What it gave back, as the agent wrote it, where that was neither a string nor a list of texts.
    pub raw: Option<Box<RawValue>>,
    /// When, in milliseconds since 1970.
    pub timestamp: Option<Millis>,
    /// The record that told it, where that is one of its own.
    #[serde(with = "content::record")]
    pub original: Option<RawJson>,
}

impl SavedResult {
    /// A result in plain text.
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

/// The change of a file by a tool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SavedDiff {
    /// Which file.
    pub path: String,
    /// What was in it before; `None` for a new file, or where the agent did not keep it.
    pub old: Option<String>,
    /// What was in it after.
    pub new: Option<String>,
    /// The change as a unified diff, where the agent kept that and not the texts.
    pub unified: Option<String>,
}

/// Something that could not be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Damage {
    /// Which line, from 1; `None` where the whole is meant.
    pub line: Option<u64>,
    /// What is wrong with it.
    pub message: String,
}

impl Damage {
    /// Something wrong with a line, or with the whole.
    #[must_use]
    pub fn new(line: Option<u64>, message: impl Into<String>) -> Self {
        Self { line, message: message.into() }
    }
}

/// How a session is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SavedForm {
    /// A file that grows by a line a record.
    Lines,
    /// One JSON value, written anew as a whole.
    Whole,
    /// A database of many sessions, which the shell reads row by row.
    Database,
}

/// Folds what an agent wrote into a session. A file that is read at once and one that is followed while it grows go
/// through the same calls and give the same session.
pub trait SessionFold: Send {
    /// Takes one record: a line without its end, or the one value of a whole file, or a row of a database as the agent's
    /// reader defines it. What cannot be read is noted as damage.
    fn take(&mut self, record: RawJson);

    /// Moves the content that it holds to a store. It may be called between any two records and changes nothing of the
    /// session. A fold that cannot do it keeps everything in memory.
    fn offload(&mut self, _store: &Arc<dyn ContentStore>) {}

    /// The session so far. Taking is cheap, looking may cost as much as the session is long: look when all that is
    /// there was taken.
    fn session(&self) -> &SavedSession;

    /// The session, complete.
    fn finish(self: Box<Self>) -> SavedSession;
}

/// A folder, or a file of a database, where an agent keeps sessions.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SessionRoot {
    /// The folder to walk; the file itself for a database.
    pub path: PathBuf,
    /// What lies there.
    pub form: RootForm,
}

/// What lies in a root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RootForm {
    /// Files, at most so many folders deep; [`Agent::session_file`](crate::Agent::session_file) tells which are sessions.
    Files {
        /// How many folders below the root a session may lie.
        depth: usize,
    },
    /// One database of all sessions.
    Database,
}

impl SessionRoot {
    /// Files below a folder.
    #[must_use]
    pub fn files(path: PathBuf, depth: usize) -> Self {
        Self { path, form: RootForm::Files { depth } }
    }

    /// A database.
    #[must_use]
    pub fn database(path: PathBuf) -> Self {
        Self { path, form: RootForm::Database }
    }
}

/// A file that its name says to be a session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SessionFile {
    /// How it is stored; `None` where the name does not tell.
    pub form: Option<SavedForm>,
    /// The id of the session, or the beginning of it, as far as the name tells.
    pub id: Option<String>,
    /// The session that started it, for one of a sub-agent.
    pub parent: Option<String>,
}

/// The project that the place of a file stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProjectRef {
    /// Its path.
    Path(PathBuf),
    /// The SHA-256 of its path in hex: the path itself is only found among those that are known.
    Sha256(String),
}
