//! The inputs of a connection. A tape is a list of these.

use crate::{
    AgentId, DiskChange, Failure, HostRequestId, Limits, McpServer, Millis, Notice, PriceTable, RunId,
    RunRequest, Signal, Surface, Tokens, ToolKind,
};
use serde::{Deserialize, Serialize};
use std::{borrow::Cow, collections::BTreeMap, path::PathBuf, sync::Arc};

/// An input with its time.
#[derive(Clone, Debug)]
pub struct Input<'a> {
    /// The time since the start of the connection.
    pub at: Millis,
    /// The kind of input.
    pub kind: InputKind<'a>,
}

/// The kinds of input of a connection.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum InputKind<'a> {
    /// The process has started.
    Started,
    /// A complete line arrived.
    Line {
        /// The stream of the line.
        stream: Stream,
        /// The line without its line ending.
        text: Cow<'a, str>,
    },
    /// A line arrived that exceeds the length limit; later lines are unaffected.
    TooLong {
        /// The stream of the line.
        stream: Stream,
        /// The start of the line.
        text: Cow<'a, str>,
        /// The length of the whole line in bytes.
        length: u64,
    },
    /// Bytes arrived, but no complete line yet.
    Activity {
        /// The stream of the bytes.
        stream: Stream,
    },
    /// The agent closed its standard output but still runs, so it can report nothing more.
    StdoutClosed,
    /// A run starts.
    Prompt {
        /// The id of the run.
        run: RunId,
        /// The specification of the run.
        spec: Box<TurnSpec>,
    },
    /// The host answered a request.
    Answer {
        /// The id of the request.
        ask: HostRequestId,
        /// The answer.
        answer: HostResponse,
    },
    /// The caller cancels a run.
    Cancel {
        /// The id of the run.
        run: RunId,
        /// The signal.
        signal: Signal,
    },
    /// A warning for the caller of a run.
    Notice {
        /// The id of the run.
        run: RunId,
        /// The warning.
        notice: Notice,
    },
    /// The client of an agent that speaks ACP sent a message, which is not a prompt.
    ClientMessage {
        /// The message.
        text: Cow<'a, str>,
    },
    /// No more runs follow: the process is closed after the current ones.
    Retire,
    /// Time has passed.
    Tick,
    /// The process has exited, and all of its output has been passed in.
    Exit(ExitReason),
}

/// The origin of a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Stream {
    /// The agent's standard output.
    Stdout,
    /// The agent's standard error.
    Stderr,
    /// A side file or service that belongs to one run.
    Side(RunId, SideChannel),
}

/// A source of lines other than the process.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum SideChannel {
    /// The session file that the agent writes.
    SessionFile,
    /// The tools served by the host.
    ToolHost,
}

/// The exit status of a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ExitReason {
    /// An exit code.
    Code(i32),
    /// A signal.
    Signal(i32),
    /// Unknown.
    Lost,
}

/// The specification of one run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct TurnSpec {
    /// The prompt for the agent.
    pub prompt: String,
    /// The session to use.
    pub session: SessionTarget,
    /// The identity of the run, reported in events and outcome.
    #[serde(rename = "who")]
    pub info: RunInfo,
    /// The timeouts.
    #[serde(rename = "clocks")]
    pub timeouts: Timeouts,
    /// The limits.
    pub limits: Limits,
    /// Whether the changes of the workspace are collected at the end.
    #[serde(rename = "settle")]
    pub collect_changes: bool,
    /// Whether the changes have diffs.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub diffs: bool,
    /// Whether the session file is followed.
    pub follow: bool,
    /// The tokens that the session used before this run.
    pub before: Tokens,
    /// The token prices: a long table, which all runs share.
    #[serde(with = "shared")]
    pub prices: Arc<PriceTable>,
    /// How the agent confirms that the given rules are in force.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proof: Option<PolicyAck>,
    /// Files of the workspace that could configure the agent. Before the run starts, the agent must confirm that it
    /// ignores them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub must_ignore: Vec<String>,
    /// Files sent with the prompt.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub attachments: Vec<Attachment>,
    /// MCP servers to open the session with, by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub servers: BTreeMap<String, McpServer>,
    /// The mode of the session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<RequestedMode>,
    /// The model of the session, if the surface sets it per session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<RequestedModel>,
    /// Extensions of the protocol for opening the session, as JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub meta: Option<String>,
    /// The workspace path for opening the session, if it is another spelling of the same directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_cwd: Option<String>,
    /// Tools of the host that the agent must have listed before it is prompted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hosted: Vec<String>,
    /// The message with which a client of the agent sends the prompt. It is passed on as it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_message: Option<String>,
    /// Whether the host validates each answer before the run ends, and may re-prompt the agent.
    #[serde(rename = "review")]
    pub validate: bool,
    /// Whether the run only opens a session, without a prompt.
    pub only_open: bool,
    /// Whether this is the last run of the session. If so, the session is closed after the run where the agent supports
    /// that.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub ends_session: bool,
    /// Whether to extract a JSON value from the answer. An answer without one is invalid.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub extract_json: bool,
}

/// Serializes a shared value like the value itself.
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

/// A file sent with a prompt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Attachment {
    /// The origin, as a `file:` URL.
    pub uri: String,
    /// The media type, such as `image/png`.
    pub mime: String,
    /// The content.
    pub content: AttachmentContent,
}

impl Attachment {
    /// Creates an attachment.
    #[must_use]
    pub fn new(uri: impl Into<String>, mime: impl Into<String>, content: AttachmentContent) -> Self {
        Self { uri: uri.into(), mime: mime.into(), content }
    }
}

/// The content of an attached file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum AttachmentContent {
    /// Text.
    Text(String),
    /// Bytes, encoded as base64.
    Base64(String),
}

/// The mode requested for a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RequestedMode {
    /// The agent's own id for the mode.
    pub id: String,
    /// Whether the run must fail without the mode, because the agent could then do more than requested.
    pub must: bool,
}

impl RequestedMode {
    /// Creates a requested mode; `must` says whether the run fails without it.
    #[must_use]
    pub fn new(id: impl Into<String>, must: bool) -> Self {
        Self { id: id.into(), must }
    }
}

/// The model requested for a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RequestedModel {
    /// The agent's own id for the model.
    pub id: String,
    /// Whether a model outside the agent's list fails the run instead of causing a warning.
    pub strict: bool,
}

impl RequestedModel {
    /// Creates a requested model; `strict` says whether it must be in the agent's list.
    #[must_use]
    pub fn new(id: impl Into<String>, strict: bool) -> Self {
        Self { id: id.into(), strict }
    }
}

/// The identity of a run: agent, surface, workspace and names.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct RunInfo {
    /// The id of the run.
    pub run_id: String,
    /// The id of the agent.
    pub agent: AgentId,
    /// The version of the agent.
    pub agent_version: Option<String>,
    /// The surface in use.
    pub surface: Option<Surface>,
    /// The requested model.
    pub model: Option<String>,
    /// The workspace.
    pub cwd: String,
    /// The caller's name for this prompt.
    pub name: Option<String>,
    /// The hint for missing or rejected credentials.
    pub sign_in_hint: Option<String>,
    /// The path of the tape.
    pub tape: Option<String>,
}

impl RunInfo {
    /// Creates the information about a run that is known from its request alone.
    #[must_use]
    pub fn of_request(request: &RunRequest) -> Self {
        let text = |path: &PathBuf| path.to_string_lossy().into_owned();
        Self {
            agent: request.agent.clone(),
            model: request.model.clone(),
            cwd: request.working_dir.as_ref().map(text).unwrap_or_default(),
            name: request.name.clone(),
            tape: request.record.as_ref().map(text),
            ..Self::default()
        }
    }
}

/// The session that a run uses.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum SessionTarget {
    /// A new session.
    #[default]
    New,
    /// A new session with this id.
    Named(String),
    /// A session that is open on this connection.
    Open(String),
    /// A stored session.
    Load(String),
}

/// The timeouts of a run, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Timeouts {
    /// Until the agent first answers.
    pub startup: Millis,
    /// Silence with nothing pending.
    pub idle: Millis,
    /// Silence while a tool runs.
    pub idle_tool: Millis,
    /// The whole run, without the time spent waiting for the host.
    pub run: Millis,
    /// Until the host answers a request.
    pub answer: Millis,
    /// Silence after the answer before a turn ends.
    pub quiet: Millis,
    /// Until a process exits after it has reported its result.
    pub linger: Millis,
    /// One step of the shutdown ladder.
    #[serde(rename = "rung")]
    pub shutdown_step: Millis,
    /// How long an agent may keep retrying a request.
    pub patience: Millis,
    /// The whole run, including the time spent waiting for the host: the caller's deadline.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Millis>,
    /// The time of the run spent on preparation before the prompt.
    #[serde(skip_serializing_if = "is_zero")]
    pub spent: Millis,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
fn is_zero(time: &Millis) -> bool {
    *time == 0
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            startup: 60_000,
            idle: 120_000,
            idle_tool: 600_000,
            run: 600_000,
            answer: 3_600_000,
            quiet: 0,
            linger: 5_000,
            shutdown_step: 2_000,
            patience: 90_000,
            deadline: None,
            spent: 0,
        }
    }
}

/// A request to the host.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum HostRequest {
    /// Decide whether a tool may run.
    Permission(Box<PermissionRequest>),
    /// Read a file for the agent.
    ReadFile {
        /// The path of the file.
        path: String,
        /// The first line to read, counted from 1.
        line: Option<u64>,
        /// The maximum number of lines.
        limit: Option<u64>,
    },
    /// Write a file for the agent.
    WriteFile {
        /// The path of the file.
        path: String,
        /// The new content.
        text: String,
    },
    /// Validate the answer of a successful turn.
    #[serde(rename = "review")]
    Validate {
        /// The text of the last turn.
        text: String,
        /// The value that the agent submitted through the tool for structured output, as JSON.
        value: Option<String>,
    },
    /// Finish a run: read its side files to their end, compare the workspace, then answer.
    #[serde(rename = "settle")]
    CollectChanges {
        /// Paths that tools reported, to be checked even outside the workspace.
        reported: Vec<String>,
        /// The changes to files that tools reported, in their order, if diffs are requested.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        edits: Vec<Diff>,
    },
}

/// A tool call that needs permission.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct PermissionRequest {
    /// The agent's id for the call.
    pub tool_use_id: String,
    /// The canonical name of the tool.
    pub tool: String,
    /// The agent's own name for the tool.
    pub native_tool: String,
    /// The agent's title for the call.
    pub title: String,
    /// The kind of the tool.
    pub kind: ToolKind,
    /// The arguments.
    pub input: Option<Box<serde_json::value::RawValue>>,
    /// The command that the call would run.
    pub command: Option<String>,
    /// The files that the call would touch, as the agent spells them.
    pub paths: Vec<String>,
    /// The changes that the call would make.
    pub diffs: Vec<Diff>,
    /// The MCP server that provides the tool.
    pub server: Option<String>,
}

/// A change to one file that an agent proposes or reports.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Diff {
    /// The path of the file.
    pub path: String,
    /// The old content, or the part of it that changes; `None` for a new file.
    pub old: Option<String>,
    /// The new content of the file or of that part.
    pub new: String,
}

/// The host's answer to a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum HostResponse {
    /// The decision on a tool call or file access.
    #[serde(rename = "ruled")]
    PermissionDecided(PermissionDecision),
    /// The text of a file.
    Text(String),
    /// The host leaves the decision to the client of the agent, which gets the agent's own request.
    AskClient,
    /// The operation succeeded.
    Done,
    /// The operation failed.
    Error(String),
    /// The answer is accepted, with this value (JSON) if one was requested.
    Accept {
        /// The value.
        value: Option<String>,
    },
    /// The answer is not accepted yet: re-prompt the agent with this text.
    Again(String),
    /// The answer is rejected and the run fails.
    Reject(Failure),
    /// The changes on disk.
    #[serde(rename = "settled")]
    ChangesCollected(DiskReport),
}

/// A permission decision, with its source and reason.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct PermissionDecision {
    /// Whether the call is allowed.
    pub allow: bool,
    /// Who decided: `mode`, `rule`, `callback`, `terminal`, `clock`, `agentline`.
    pub by: String,
    /// The reason; for a denial a stable word such as `rule`, `outside_workspace` or `mode`.
    pub reason: Option<String>,
    /// The rule that decided, as written.
    pub rule: Option<String>,
}

impl PermissionDecision {
    /// Allows the call.
    #[must_use]
    pub fn allow(by: impl Into<String>) -> Self {
        Self { allow: true, by: by.into(), ..Self::default() }
    }

    /// Denies the call.
    #[must_use]
    pub fn deny(by: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { by: by.into(), reason: Some(reason.into()), ..Self::default() }
    }

    /// Sets the rule that decided.
    #[must_use]
    pub fn rule(mut self, rule: impl Into<String>) -> Self {
        self.rule = Some(rule.into());
        self
    }
}

/// The state of the disk at the end of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct DiskReport {
    /// The changes.
    pub changes: Vec<DiskChange>,
    /// Canonical spellings of the paths that tools reported, where links or `..` make a difference.
    pub spelled: BTreeMap<String, String>,
    /// Whether another run was active in the same workspace, so that changes cannot be attributed.
    pub shared: bool,
    /// Whether the workspace could not be compared.
    pub unknown: bool,
    /// Which protected file, such as the agent's rules, changed while the agent ran, and how.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tampered: Option<String>,
}

/// The lines on stderr by which an agent confirms its rules before the first turn.
///
/// If `read` is missing, or `dropped` appears, the rules are not in force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PolicyAck {
    /// The prefix of the line that confirms that the rules were read.
    pub read: String,
    /// The prefix of a line that reports a dropped rule.
    pub dropped: String,
}

impl PolicyAck {
    /// Creates a value from the two prefixes.
    #[must_use]
    pub fn new(read: impl Into<String>, dropped: impl Into<String>) -> Self {
        Self { read: read.into(), dropped: dropped.into() }
    }
}
