//! The one list of things that happen in a run. It doubles as the documentation of `--output events`.

use crate::{Change, ChangeSource, Millis, Outcome, Surface, ToolKind, ToolStatus, Usage};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// An event with its place in the run: what `--output events` prints, one per line.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Record {
    /// Counts the events of a run, from 1.
    pub seq: u32,
    /// Milliseconds since the run began.
    pub at_ms: Millis,
    /// Where it came from.
    pub from: Origin,
    /// Which line of that stream, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u64>,
    /// What happened.
    #[serde(flatten)]
    pub event: Event,
}

impl Record {
    /// An event in its place.
    #[must_use]
    pub fn new(seq: u32, at_ms: Millis, from: Origin, line: Option<u64>, event: Event) -> Self {
        Self { seq, at_ms, from, line, event }
    }

    /// The outcome in its place: after the event with this number and time.
    #[must_use]
    pub fn last((seq, at_ms): (u32, Millis), outcome: Box<Outcome>) -> Self {
        let at_ms = at_ms.max(outcome.duration_ms);
        Self::new(seq + 1, at_ms, Origin::Agentline, None, Event::Outcome { outcome })
    }
}

/// Where an event came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Origin {
    /// A line of the agent's standard output.
    Stdout,
    /// A line of the agent's standard error.
    Stderr,
    /// A line of the session file that the agent wrote.
    SessionFile,
    /// What was found on the disk.
    Disk,
    /// agentline itself.
    Agentline,
}

/// One thing that happened in a run.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Event {
    /// The agent is up and has begun; always the first event of a run that began.
    Started(Box<Started>),
    /// A piece of the answer, as it is written.
    Text {
        /// The piece.
        text: String,
    },
    /// A piece of reasoning.
    Thinking {
        /// The piece.
        text: String,
    },
    /// The model wants a tool. It may still be refused.
    ToolUse(Box<ToolUse>),
    /// A tool call ended; each `tool_use` has exactly one.
    ToolResult {
        /// Which call.
        tool_use_id: String,
        /// How it ended.
        status: ToolStatus,
        /// What it gave back, as far as the surface shows it.
        content: Option<String>,
        /// Whether the agent did not get what it wanted.
        is_error: bool,
        /// Why it was refused.
        #[serde(skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// A file changed, as the disk shows it; these come when the run is over.
    FileChange {
        /// Relative to the workspace when inside it.
        path: String,
        /// What happened to it.
        change: Change,
        /// Who did it.
        source: ChangeSource,
        /// The call that reported it.
        tool_use_id: Option<String>,
        /// Whether the disk agrees.
        verified: bool,
    },
    /// A question of permission and what was decided.
    Permission {
        /// Which call.
        tool_use_id: String,
        /// Its canonical name.
        tool: String,
        /// What was asked.
        request: Option<Box<RawValue>>,
        /// `allow` or `deny`.
        decision: &'static str,
        /// Who decided.
        by: String,
        /// Why.
        reason: Option<String>,
        /// The rule behind it.
        #[serde(skip_serializing_if = "Option::is_none")]
        rule: Option<String>,
    },
    /// A piece of the answer that is not text, such as an image, as the agent gave it.
    Content {
        /// The block.
        block: Box<RawValue>,
    },
    /// The agent's plan, whole each time.
    Plan {
        /// Its entries, as the agent gave them.
        entries: Box<RawValue>,
    },
    /// The commands that the agent offers.
    Commands {
        /// As the agent gave them.
        commands: Box<RawValue>,
    },
    /// The session is in this mode now.
    Mode {
        /// The agent's own id of it.
        mode: String,
    },
    /// The options of the session changed.
    ConfigOption {
        /// As the agent gave them.
        options: Box<RawValue>,
    },
    /// The agent said something about the session, such as its title.
    SessionInfo {
        /// As the agent gave it.
        info: Box<RawValue>,
    },
    /// The counts so far.
    Usage(Box<Usage>),
    /// Something that the caller should know.
    Warning {
        /// A stable word.
        code: String,
        /// A sentence.
        message: String,
    },
    /// A line that could not be read; the run went on.
    Unreadable {
        /// Its beginning.
        sample: String,
        /// Its length in bytes.
        length: u64,
    },
    /// Something the agent said that has no place in this list, passed on as it came.
    Agent {
        /// The agent's own words.
        raw: Box<RawValue>,
    },
    /// The end, always last.
    Outcome {
        /// All that the run came to.
        outcome: Box<Outcome>,
    },
}

/// The agent is up.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Started {
    /// The id of this run.
    pub run_id: String,
    /// Which agent.
    pub agent: String,
    /// Its version.
    pub agent_version: Option<String>,
    /// Over which surface.
    pub surface: Option<Surface>,
    /// Which model, as far as the agent says.
    pub model: Option<String>,
    /// The agent's own session.
    pub session_id: Option<String>,
    /// The workspace.
    pub cwd: String,
    /// The caller's name for this prompt.
    pub name: Option<String>,
    /// The models that the agent offers, told where a session is only opened.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub models: Vec<ModelInfo>,
}

/// A model that an agent offers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ModelInfo {
    /// What it is asked for by.
    pub id: String,
    /// What people call it.
    pub name: String,
}

impl ModelInfo {
    /// A model; without a name its id is one.
    #[must_use]
    pub fn new(id: impl Into<String>, name: Option<String>) -> Self {
        let id = id.into();
        Self { name: name.filter(|name| !name.is_empty()).unwrap_or_else(|| id.clone()), id }
    }
}

/// The model wants a tool.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ToolUse {
    /// The agent's id of the call.
    pub id: String,
    /// The canonical name.
    pub name: String,
    /// The agent's own name.
    pub native_name: String,
    /// The arguments in canonical form.
    pub input: Option<Box<RawValue>>,
    /// The arguments as the agent gave them.
    pub raw_input: Option<Box<RawValue>>,
    /// What it does to the world.
    #[serde(skip)]
    pub kind: ToolKind,
    /// The file that it would write.
    #[serde(skip)]
    pub path: Option<String>,
}

impl ToolUse {
    /// A call of a tool.
    #[must_use]
    pub fn new(
        id: impl Into<String>,
        name: impl Into<String>,
        native_name: impl Into<String>,
        kind: ToolKind,
    ) -> Self {
        Self { id: id.into(), name: name.into(), native_name: native_name.into(), kind, ..Self::default() }
    }
}

impl Event {
    /// The word that stands under `type` in its JSON.
    #[must_use]
    pub fn type_word(&self) -> &'static str {
        match self {
            Self::Started(_) => "started",
            Self::Text { .. } => "text",
            Self::Thinking { .. } => "thinking",
            Self::ToolUse(_) => "tool_use",
            Self::ToolResult { .. } => "tool_result",
            Self::FileChange { .. } => "file_change",
            Self::Permission { .. } => "permission",
            Self::Content { .. } => "content",
            Self::Plan { .. } => "plan",
            Self::Commands { .. } => "commands",
            Self::Mode { .. } => "mode",
            Self::ConfigOption { .. } => "config_option",
            Self::SessionInfo { .. } => "session_info",
            Self::Usage(_) => "usage",
            Self::Warning { .. } => "warning",
            Self::Unreadable { .. } => "unreadable",
            Self::Agent { .. } => "agent",
            Self::Outcome { .. } => "outcome",
        }
    }

    /// A warning.
    #[must_use]
    pub fn warning(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Warning { code: code.into(), message: message.into() }
    }

    /// The end of a tool call.
    #[must_use]
    pub fn tool_result(id: impl Into<String>, status: ToolStatus, content: Option<String>) -> Self {
        Self::ToolResult {
            tool_use_id: id.into(),
            status,
            content,
            is_error: status.is_error(),
            reason: None,
        }
    }

    /// A tool call that was refused.
    #[must_use]
    pub fn refused(id: impl Into<String>, reason: impl Into<String>, content: Option<String>) -> Self {
        Self::ToolResult {
            tool_use_id: id.into(),
            status: ToolStatus::Denied,
            content,
            is_error: true,
            reason: Some(reason.into()),
        }
    }

    /// The agent's own words, when they are JSON; anything else is told as text of a JSON string.
    #[must_use]
    pub fn agent(raw: &str) -> Self {
        let raw = serde_json::from_str::<Box<RawValue>>(raw)
            .or_else(|_| serde_json::value::to_raw_value(raw))
            .unwrap_or_else(|_| RawValue::NULL.to_owned());
        Self::Agent { raw }
    }

    /// A line that could not be read.
    #[must_use]
    pub fn unreadable(text: &str, length: u64) -> Self {
        Self::Unreadable { sample: sample(text), length }
    }
}

/// The beginning of a text, short enough for a log.
#[must_use]
pub fn sample(text: &str) -> String {
    const MOST: usize = 200;
    let mut end = text.len().min(MOST);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].to_owned()
}
