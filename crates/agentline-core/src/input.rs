//! All that can happen to a connection. The tape is the list of these.

use crate::{
    AskId, DiskChange, Failure, Limits, McpServer, Millis, Notice, PriceTable, Proof, RunId, Surface, Tokens,
    ToolKind,
};
use serde::{Deserialize, Serialize};
use std::{borrow::Cow, collections::BTreeMap, sync::Arc};

/// Something happened, and when.
#[derive(Clone, Debug)]
pub struct Input<'a> {
    /// When, since the connection began.
    pub at: Millis,
    /// What.
    pub what: What<'a>,
}

/// What can happen to a connection.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum What<'a> {
    /// The process runs.
    Up,
    /// A whole line came.
    Line {
        /// From where.
        stream: Stream,
        /// The line, without its end.
        text: Cow<'a, str>,
    },
    /// A line came that is longer than the cap; the rest goes on.
    TooLong {
        /// From where.
        stream: Stream,
        /// Its beginning.
        text: Cow<'a, str>,
        /// Its whole length in bytes.
        length: u64,
    },
    /// Bytes came, but no whole line yet.
    Pulse {
        /// From where.
        stream: Stream,
    },
    /// The agent has closed its standard output and lives on: it can say nothing any more.
    Mute,
    /// A run begins.
    Prompt {
        /// Its number.
        run: RunId,
        /// What it wants.
        order: Box<Order>,
    },
    /// The host answered a question.
    Answer {
        /// Which one.
        ask: AskId,
        /// With what.
        answer: Answer,
    },
    /// The caller wants a run stopped.
    Cancel {
        /// Which one.
        run: RunId,
        /// By which signal: 2 or 15.
        signal: i32,
    },
    /// The caller should know something about a run.
    Notice {
        /// Which run.
        run: RunId,
        /// What.
        notice: Notice,
    },
    /// No more runs: say goodbye and stop.
    Retire,
    /// Time passed.
    Tick,
    /// The process ended and everything it wrote has been handed in.
    Exit(Exit),
}

/// Where a line came from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Stream {
    /// The agent's standard output.
    Stdout,
    /// The agent's standard error.
    Stderr,
    /// Something beside the process that belongs to one run.
    Side(RunId, Side),
}

/// What lies beside the process.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Side {
    /// The session file that the agent writes.
    SessionFile,
    /// The host's own tools.
    ToolHost,
}

/// How a process ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Exit {
    /// By itself.
    Code(i32),
    /// By a signal.
    Signal(i32),
    /// Nobody knows.
    Lost,
}

/// What one run wants.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Order {
    /// The words that go to the agent.
    pub prompt: String,
    /// In which session.
    pub session: Want,
    /// Who runs what where: told in events and outcome.
    pub who: Who,
    /// How long each wait may take.
    pub clocks: Clocks,
    /// What stops it.
    pub limits: Limits,
    /// Whether the disk is looked at when it is over.
    pub settle: bool,
    /// Whether the session file is followed.
    pub follow: bool,
    /// What the session had used before.
    pub before: Tokens,
    /// What a million tokens cost: a long table, which all runs share.
    #[serde(with = "shared")]
    pub prices: Arc<PriceTable>,
    /// How the agent shows that it holds the rules that it was given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proof: Option<Proof>,
    /// Files of the workspace that configure the agent. It must confirm that it ignores them before the run begins.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub must_ignore: Vec<String>,
    /// Files that go with the prompt.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub attachments: Vec<Attachment>,
    /// MCP servers that the session is opened with, by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub servers: BTreeMap<String, McpServer>,
    /// The mode that the session shall be in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<ModeWish>,
    /// The model that the session shall use, where the surface sets it for each session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<ModelWish>,
    /// What the session is opened with beyond the protocol, as JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub meta: Option<String>,
    /// The workspace as the session is opened with it, where that is another spelling of the same directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_cwd: Option<String>,
    /// Tools of the host that the agent must have listed before it is prompted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hosted: Vec<String>,
    /// The host judges each answer before the run is over, and may send the agent on.
    pub review: bool,
    /// Nothing is prompted: the run is over when its session is open.
    pub only_open: bool,
    /// Nobody will use the session after this run, so that an agent that can close it is told to.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub ends_session: bool,
    /// The answer is to hold a JSON value, which is what the run is for.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub extract_json: bool,
}

/// What is shared is written as if it were not.
mod shared {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use std::sync::Arc;

    pub(super) fn serialize<T: Serialize, S: Serializer>(value: &Arc<T>, to: S) -> Result<S::Ok, S::Error> {
        T::serialize(value, to)
    }

    pub(super) fn deserialize<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Arc<T>, D::Error> {
        T::deserialize(from).map(Arc::new)
    }
}

/// A file that goes with a prompt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Attachment {
    /// Where it came from, as a `file:` address.
    pub uri: String,
    /// What it is, such as `image/png`.
    pub mime: String,
    /// Its content.
    pub content: AttachmentContent,
}

impl Attachment {
    /// A file with its address, type and content.
    #[must_use]
    pub fn new(uri: impl Into<String>, mime: impl Into<String>, content: AttachmentContent) -> Self {
        Self { uri: uri.into(), mime: mime.into(), content }
    }
}

/// What an attached file holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum AttachmentContent {
    /// Text.
    Text(String),
    /// Bytes, in base64.
    Base64(String),
}

/// The mode that a session shall be in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ModeWish {
    /// The agent's own id of it.
    pub id: String,
    /// Without it the agent would be free to do more than was asked, so the run must not go on.
    pub must: bool,
}

impl ModeWish {
    /// A mode, and whether the run may go on without it.
    #[must_use]
    pub fn new(id: impl Into<String>, must: bool) -> Self {
        Self { id: id.into(), must }
    }
}

/// The model that a session shall use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ModelWish {
    /// The agent's own id of it.
    pub id: String,
    /// One outside the agent's list fails the run; otherwise it is a warning.
    pub strict: bool,
}

impl ModelWish {
    /// A model, and whether it must be in the agent's list.
    #[must_use]
    pub fn new(id: impl Into<String>, strict: bool) -> Self {
        Self { id: id.into(), strict }
    }
}

/// Who runs what where.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Who {
    /// The id of this run.
    pub run_id: String,
    /// Which agent.
    pub agent: String,
    /// Its version.
    pub agent_version: Option<String>,
    /// Over which surface.
    pub surface: Option<Surface>,
    /// The model that was asked for.
    pub model: Option<String>,
    /// The workspace.
    pub cwd: String,
    /// The caller's name for this prompt.
    pub name: Option<String>,
    /// What to type when the sign-in is missing or refused.
    pub sign_in_hint: Option<String>,
    /// Where the tape is written.
    pub tape: Option<String>,
}

/// In which session a run wants to be.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Want {
    /// A new one.
    #[default]
    New,
    /// A new one with this id.
    Named(String),
    /// One that is open on this connection.
    Open(String),
    /// One that is stored.
    Load(String),
}

/// How long each wait may take, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Clocks {
    /// Until the agent first answers.
    pub startup: Millis,
    /// Silence with nothing pending.
    pub idle: Millis,
    /// Silence while a tool runs.
    pub idle_tool: Millis,
    /// The whole run, waiting for the host's answers left out.
    pub run: Millis,
    /// Until the host has answered a question.
    pub answer: Millis,
    /// Silence after the answer before a turn is over.
    pub quiet: Millis,
    /// Until a process that said its last word has ended.
    pub linger: Millis,
    /// One step of the closing ladder.
    pub rung: Millis,
    /// How long an agent may go on retrying.
    pub patience: Millis,
    /// The whole run, waiting for the host included: the caller's deadline.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Millis>,
    /// How much of the run's time had passed before its prompt: it was prepared meanwhile.
    #[serde(skip_serializing_if = "is_zero")]
    pub spent: Millis,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
fn is_zero(time: &Millis) -> bool {
    *time == 0
}

impl Default for Clocks {
    fn default() -> Self {
        Self {
            startup: 60_000,
            idle: 120_000,
            idle_tool: 600_000,
            run: 600_000,
            answer: 3_600_000,
            quiet: 0,
            linger: 5_000,
            rung: 2_000,
            patience: 90_000,
            deadline: None,
            spent: 0,
        }
    }
}

/// A question to the host.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Ask {
    /// May this tool run?
    Permission(Box<PermissionAsk>),
    /// Read a file for the agent.
    ReadFile {
        /// Which.
        path: String,
        /// From this line, counted from 1.
        line: Option<u64>,
        /// This many lines.
        limit: Option<u64>,
    },
    /// Write a file for the agent.
    WriteFile {
        /// Which.
        path: String,
        /// With what.
        text: String,
    },
    /// The agent has ended its turn well: is that what was wanted?
    Review {
        /// The text of the last turn.
        text: String,
        /// The value that the agent handed in by the tool for it, as JSON.
        value: Option<String>,
    },
    /// The run is over: drain its side files into lines, compare the workspace, then answer.
    Settle {
        /// Paths that tools reported, which are looked at wherever they lie.
        reported: Vec<String>,
    },
}

/// A tool that the agent wants to use, with what is to be judged.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct PermissionAsk {
    /// The agent's id of the call.
    pub tool_use_id: String,
    /// Canonical name.
    pub tool: String,
    /// The agent's own name.
    pub native_tool: String,
    /// What the agent calls this use of it.
    pub title: String,
    /// What it does to the world.
    pub kind: ToolKind,
    /// Its arguments.
    pub input: Option<Box<serde_json::value::RawValue>>,
    /// The command that it would run.
    pub command: Option<String>,
    /// The files that it would touch, as the agent spells them.
    pub paths: Vec<String>,
    /// What it would change.
    pub diffs: Vec<Diff>,
    /// The MCP server whose tool it is.
    pub server: Option<String>,
}

/// A change of one file that is to be judged.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Diff {
    /// Which file.
    pub path: String,
    /// What it holds; `None` for a new one.
    pub old: Option<String>,
    /// What it would hold.
    pub new: String,
}

/// The host's answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Answer {
    /// Whether a tool may run.
    Ruled(Ruling),
    /// Here is the text.
    Text(String),
    /// It is done.
    Done,
    /// It could not be done.
    Error(String),
    /// The answer is what was wanted, with this value (JSON) where one was asked for.
    Accept {
        /// The value.
        value: Option<String>,
    },
    /// Not yet: the agent is sent on with these words.
    Again(String),
    /// It is not what was wanted, and that is the end of it.
    Reject(Failure),
    /// What is different on the disk.
    Settled(Disk),
}

/// Whether a tool may run, who said so and why.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Ruling {
    /// It may.
    pub allow: bool,
    /// Who decided: `mode`, `rule`, `callback`, `terminal`, `clock`, `agentline`.
    pub by: String,
    /// Why: a stable word where it was refused, such as `rule`, `outside_workspace`, `mode`.
    pub reason: Option<String>,
    /// The rule behind it, as it was written.
    pub rule: Option<String>,
}

impl Ruling {
    /// It may run.
    #[must_use]
    pub fn allow(by: impl Into<String>) -> Self {
        Self { allow: true, by: by.into(), ..Self::default() }
    }

    /// It may not run.
    #[must_use]
    pub fn deny(by: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { by: by.into(), reason: Some(reason.into()), ..Self::default() }
    }

    /// Names the rule behind it.
    #[must_use]
    pub fn rule(mut self, rule: impl Into<String>) -> Self {
        self.rule = Some(rule.into());
        self
    }
}

/// What the shell found on the disk when a run was over.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Disk {
    /// The differences.
    pub changes: Vec<DiskChange>,
    /// How the disk spells the paths that tools reported, where links or `..` make a difference.
    pub spelled: BTreeMap<String, String>,
    /// Another run was active in the same workspace, so nobody can say who did what.
    pub shared: bool,
    /// The disk could not be compared at all.
    pub unknown: bool,
    /// A file that safety rests on, such as the agent's rules, was changed while the agent ran: which one, and how.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tampered: Option<String>,
}
