//! The messages of the HTTP interface that the host protocol does not have.

mod lookups;

pub use lookups::{
    Cancelling, ClassCounts, Decided, Directories, DirectoryQuery, ExperimentInfo, ExperimentList,
    ExperimentProgress, ExperimentQuery, FileQuery, LoginLink, OutcomeQuery, ReportType, ServerInfo,
    SessionAccess, SessionsFilterQuery, TokenPolicy, UsageGrouping,
};

use agentline::host::messages::{PermissionAnswer, RunParams};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// What happens to a run when no client follows it any more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum OnDisconnect {
    /// The run continues.
    #[default]
    Continue,
    /// The run is cancelled after a grace period.
    Cancel,
}

/// The body that starts a run or opens a conversation: the fields of `run` of the host protocol, and what happens when
/// clients disconnect.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[non_exhaustive]
pub struct StartRun {
    /// What happens to the run when no client follows it any more.
    pub on_disconnect: OnDisconnect,
    /// How long a run without clients lives if it is cancelled on disconnect. Default: 10,000.
    pub disconnect_grace_ms: Option<u64>,
    /// The fields and configuration keys of the run.
    #[serde(flatten)]
    pub params: RunParams,
}

/// The state of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ServedRunState {
    /// Waits for an earlier prompt of its conversation.
    Queued,
    /// In progress.
    #[default]
    Running,
    /// Over: the last event is its outcome.
    Ended,
}

/// A run of the server.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[non_exhaustive]
pub struct ServedRun {
    /// The id of the run.
    pub run: String,
    /// The conversation that the prompt belongs to.
    pub conversation: Option<String>,
    /// The state.
    pub state: ServedRunState,
    /// The id of the agent, if the request or the agent names it.
    pub agent: Option<String>,
    /// The model, if the request or the agent names it.
    pub model: Option<String>,
    /// The caller's name for the prompt.
    pub name: Option<String>,
    /// The workspace.
    pub working_dir: Option<String>,
    /// The prompt, shortened to 2,000 characters.
    pub prompt: String,
    /// The requested permission mode.
    pub permission_mode: Option<String>,
    /// When the run was started, in milliseconds since the Unix epoch.
    pub started_at_ms: u64,
    /// When the run ended.
    pub ended_at_ms: Option<u64>,
    /// The verdict of the outcome.
    pub verdict: Option<String>,
    /// The cost in US dollars, if it is known.
    pub cost_usd: Option<f64>,
    /// The number of the first event that is still stored; 0 if there is none.
    pub first_event: u64,
    /// The number of the last event; 0 if there is none.
    pub last_event: u64,
    /// The agent's own session id, for resuming the session.
    pub session_id: Option<String>,
    /// The number of permission requests that wait for an answer.
    pub pending_permissions: usize,
    /// What happens to the run when no client follows it any more.
    pub on_disconnect: OnDisconnect,
    /// The name of the token that started the run.
    pub started_by: String,
}

/// A list of runs.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct RunList {
    /// The runs, newest first.
    pub runs: Vec<ServedRun>,
    /// The version of the list, for `changed_since`.
    pub version: u64,
}

/// Selects runs.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct RunQuery {
    /// The maximum number of runs. Default: 50, at most 500.
    pub limit: Option<usize>,
    /// Only runs that were started before this one.
    pub before: Option<String>,
    /// Only runs in this state.
    pub state: Option<ServedRunState>,
    /// Only runs of this conversation.
    pub conversation: Option<String>,
    /// Waits until the version of the list differs from this one.
    pub changed_since: Option<u64>,
    /// How long to wait. At most 60,000.
    pub wait_ms: Option<u64>,
}

/// Where a stream of events starts.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct EventsQuery {
    /// The number of the last event that the client has. The header `Last-Event-ID` has precedence.
    pub after: Option<u64>,
    /// Long polling: how long to wait for an event. Default: 25,000, at most 60,000.
    pub wait_ms: Option<u64>,
    /// Long polling: the maximum number of events. Default: 500.
    pub limit: Option<usize>,
}

/// An event of a run with its number.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct NumberedEvent {
    /// The number, from 1, without gaps.
    pub id: u64,
    /// The type of the event.
    pub event: String,
    /// The event, as `--output events` prints it.
    pub data: Value,
}

/// Reports that events after the requested one are no longer stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct Resync {
    /// The event after which the client wanted to continue.
    pub requested: u64,
    /// The first event that is stored; the stream continues with it.
    pub first: u64,
    /// The last event.
    pub last: u64,
}

/// The response to a poll for events.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct EventBatch {
    /// The events.
    pub events: Vec<NumberedEvent>,
    /// The number of the last event of the run so far.
    pub last: u64,
    /// Set if events after the requested one are no longer stored.
    pub resync: Option<Resync>,
    /// Whether the outcome is among these events or earlier ones.
    pub ended: bool,
}

/// A permission request that waits for an answer.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct OpenPermission {
    /// The id of the request in its run.
    pub id: String,
    /// The run.
    pub run: String,
    /// The use of the tool: `tool`, `native_tool`, `title`, `command`, `paths`, `diffs`, `input`, `server`.
    pub ask: Value,
    /// When the agent asked, in milliseconds since the Unix epoch.
    pub asked_at_ms: u64,
    /// When the request is denied without an answer.
    pub expires_at_ms: u64,
}

/// The permission requests of a run that wait for an answer.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct OpenPermissions {
    /// The requests, oldest first.
    pub permissions: Vec<OpenPermission>,
}

/// The answer to a permission request.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[non_exhaustive]
pub struct PermissionReply {
    /// The decision and its reason.
    #[serde(flatten)]
    pub answer: PermissionAnswer,
    /// Whether later requests for the same tool in this run or conversation get the same answer.
    pub always: bool,
}

/// When a text reaches the agent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum SteerTime {
    /// Cancels the active prompt and sends the text as the next one.
    Now,
    /// Sends the text after the active prompt.
    #[default]
    After,
}

/// Steers a conversation while a prompt is active.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct Steer {
    /// The text.
    pub text: String,
    /// When the text reaches the agent.
    pub when: SteerTime,
}

/// The outcome of a run.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct RunOutcome {
    /// The outcome, as `--output json` prints it; null while the run is in progress.
    pub outcome: Option<Value>,
}

/// The files that a run changed.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct RunFiles {
    /// The files, as in the outcome, each with a unified `diff` if it is known.
    pub files: Vec<Map<String, Value>>,
}

/// A conversation.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct ServedConversation {
    /// The id of the conversation.
    pub conversation: String,
    /// The agent's own session id, for resuming the session.
    pub session_id: String,
    /// The id of the agent, if the request names it.
    pub agent: Option<String>,
    /// The workspace.
    pub working_dir: Option<String>,
    /// `open` or `closed`.
    pub state: String,
    /// When it was opened, in milliseconds since the Unix epoch.
    pub opened_at_ms: u64,
    /// When it was closed.
    pub closed_at_ms: Option<u64>,
    /// The runs of its prompts, oldest first.
    pub runs: Vec<String>,
    /// The run in progress.
    pub active: Option<String>,
    /// The name of the token that opened it.
    pub started_by: String,
}

/// The conversations of this server since its start.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct ConversationList {
    /// The conversations, newest first.
    pub conversations: Vec<ServedConversation>,
}

/// A prompt of a conversation.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct NextPrompt {
    /// The text of the prompt.
    pub prompt: String,
    /// Whether the outcome includes the messages of this prompt.
    pub messages: bool,
}
