//! The messages between a host and agentline. agentline refuses unknown keys of runs and unknown fields of queries and
//! settings; a host ignores unknown fields.

pub use crate::host::error::RpcError;
pub use crate::host::lookup_messages::{
    AgentQuery, Detected, Extract, SessionsLoad, SessionsParse, SessionsQuery,
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::{collections::BTreeMap, path::PathBuf};

/// The version of the protocol. A host that requests a newer version receives this one and may disconnect.
pub const PROTOCOL: u32 = 1;

/// Returns the JSON Schema of every message, under `$defs`.
#[must_use]
pub fn schema() -> Value {
    let mut generator = schemars::generate::SchemaSettings::draft2020_12().into_generator();
    generator.subschema_for::<Initialize>();
    generator.subschema_for::<Initialized>();
    generator.subschema_for::<RunParams>();
    generator.subschema_for::<RunEvent>();
    generator.subschema_for::<RunLaunched>();
    generator.subschema_for::<RunLine>();
    generator.subschema_for::<RunRetry>();
    generator.subschema_for::<Cancel>();
    generator.subschema_for::<Cancelled>();
    generator.subschema_for::<AgentQuery>();
    generator.subschema_for::<Detected>();
    generator.subschema_for::<PermissionQuestion>();
    generator.subschema_for::<PermissionAnswer>();
    generator.subschema_for::<ToolInvocation>();
    generator.subschema_for::<ToolAnswer>();
    generator.subschema_for::<CheckQuestion>();
    generator.subschema_for::<CheckAnswer>();
    generator.subschema_for::<SessionOpened>();
    generator.subschema_for::<SessionPrompt>();
    generator.subschema_for::<SessionClose>();
    generator.subschema_for::<SessionsQuery>();
    generator.subschema_for::<SessionsLoad>();
    generator.subschema_for::<SessionsParse>();
    generator.subschema_for::<Extract>();
    generator.subschema_for::<Prewarm>();
    generator.subschema_for::<DaemonInfo>();
    generator.subschema_for::<CacheSettings>();
    generator.subschema_for::<CacheQuery>();
    generator.subschema_for::<CacheUsage>();
    generator.subschema_for::<RpcError>();
    serde_json::json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$defs": generator.take_definitions(true),
    })
}

/// The name and version of a program.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[non_exhaustive]
pub struct Party {
    /// The name of the program.
    pub name: String,
    /// The version of the program.
    pub version: String,
}

impl Party {
    /// Creates a program description from its name and version.
    #[must_use]
    pub fn new(name: impl Into<String>, version: impl Into<String>) -> Self {
        Self { name: name.into(), version: version.into() }
    }
}

/// `initialize`: identifies the host and configures its runs. Optional: everything has a default.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[non_exhaustive]
pub struct Initialize {
    /// The version of the protocol that the host uses.
    pub protocol: Option<u32>,
    /// The program that connects.
    pub client: Option<Party>,
    /// Configuration keys for every run, unless the run overrides them.
    pub defaults: Map<String, Value>,
    /// How agents are kept warm.
    pub pool: PoolSettings,
    /// The maximum number of concurrent runs. Default: the number of slots in the pool.
    pub max_concurrent: Option<usize>,
    /// How many times a run is retried if the service refuses it because of load or quota.
    pub max_retries: Option<u32>,
    /// The maximum total wait between the attempts of a run, in seconds. Default: 300.
    pub max_retry_wait_s: Option<u64>,
    /// Only on the socket of `agentline pool start`: the caller on whose behalf this connection starts runs.
    pub caller: Option<Caller>,
}

/// A caller whose environment differs from that of the process that serves it.
///
/// It may contain secrets, so it is sent only over a socket of the same user.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct Caller {
    /// The environment variables.
    pub env: BTreeMap<String, String>,
    /// The home directory.
    pub home: PathBuf,
    /// The working directory.
    pub cwd: PathBuf,
    /// The directory of the configuration file.
    pub project: PathBuf,
    /// The cache directory of agentline.
    pub cache: PathBuf,
    /// The configured programs of agents.
    #[serde(default)]
    pub programs: BTreeMap<String, PathBuf>,
    /// The agents that the caller's configuration adds.
    #[serde(default)]
    pub agents: Map<String, Value>,
    /// The prices, if they differ from the built-in ones.
    #[serde(default)]
    pub prices: Value,
    /// Whether agents get a pid namespace.
    #[serde(default)]
    pub isolation: Value,
}

/// The settings of the pool of warm agents. Omitted fields have the default of the pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct PoolSettings {
    /// The maximum number of agent processes.
    pub max_processes: Option<usize>,
    /// The maximum number of concurrent sessions on one process, if its runs can share it.
    pub lanes: Option<usize>,
    /// The maximum number of runs that wait for a slot.
    pub max_queue: Option<usize>,
    /// The number of sessions after which a process is replaced.
    pub max_sessions: Option<u32>,
    /// The memory use above which a process is replaced, in megabytes.
    pub max_memory_mb: Option<u64>,
    /// The age at which a process is replaced, in seconds.
    pub max_age_s: Option<u64>,
    /// The idle time after which a process is stopped, in seconds.
    pub idle_s: Option<u64>,
}

/// The response to `initialize`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct Initialized {
    /// The version of the protocol that agentline uses.
    pub protocol: u32,
    /// The name and version of agentline.
    pub server: Party,
    /// The methods that a host may call.
    pub methods: Vec<String>,
    /// The methods that agentline calls on the host, if a run requests them.
    pub callbacks: Vec<String>,
    /// The agents that a run may name.
    pub agents: Vec<String>,
}

/// `run`: runs one prompt and returns its outcome. Also accepts every configuration key: `prompt`,
/// `agent`, `model`, `working_dir`, `permission_mode`, `timeout`, `deadline`, …
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[non_exhaustive]
pub struct RunParams {
    /// The host's name for this run in notifications, callbacks and `cancel`. Default: the id of the request as text.
    pub run: Option<String>,
    /// Which events are sent during the run.
    pub events: EventFilter,
    /// Functions of the host that the agent may call through `tool/call`.
    pub tools: Vec<ToolSpec>,
    /// The name of the server of these functions, as the agent sees it.
    pub tool_server: Option<String>,
    /// The schema of the answer. The key `output_schema` may also be the path of a file.
    pub output_schema: Option<Value>,
    /// Whether to send `permission/ask` to the host if no rule decides.
    pub ask_permission: bool,
    /// Whether to send `check` to the host after each answer, to ask if the task is complete.
    pub check: bool,
    /// The time limit in milliseconds for the host's answer to `permission/ask` and `check`. After that, the permission
    /// is denied, or the run fails. Default: two minutes.
    pub answer_timeout_ms: Option<u64>,
    /// Whether to use a warm agent if possible. Default: true.
    pub warm: Option<bool>,
    /// Whether a run without `working_dir` gets an empty temporary workspace, which is removed after the run.
    pub temporary_workspace: bool,
    /// Whether the outcome includes the messages of the run.
    pub messages: bool,
    /// The view of the messages. Default: `claude`.
    pub view: Option<ViewName>,
    /// Whether to send `run/line` for each line that Claude Code would print.
    pub lines: bool,
    /// How many times this run is retried if the service refuses it because of load or quota. The key `retries` covers
    /// every failure that a retry can help.
    pub max_retries: Option<u32>,
    /// The maximum total wait between the attempts of this run, in seconds.
    pub max_retry_wait_s: Option<u64>,
    /// Whether pieces of text may be merged while the host reads slowly. Default: true. With false, the run waits for
    /// the host instead.
    pub merge_events: Option<bool>,
    /// Keys that may belong to another program, because the host passes on settings of its own user: one that resembles
    /// no known key is ignored with a warning.
    pub ignore_unknown: Vec<String>,
    /// Whether to send `run/launched` when the run has started or is in the queue.
    pub report_launch: bool,
    /// Only on the socket of `agentline pool start`, and only between the same versions: the complete request, instead
    /// of configuration keys.
    pub request: Option<Value>,
    /// The configuration keys of the run.
    #[serde(flatten)]
    pub keys: Map<String, Value>,
}

/// The format of messages: as in Claude's API, or one message per record of the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ViewName {
    /// As in Claude's API.
    Claude,
    /// One message per record, with each result next to its call.
    Unified,
}

impl From<ViewName> for agentline_core::View {
    fn from(name: ViewName) -> Self {
        match name {
            ViewName::Claude => Self::Claude,
            ViewName::Unified => Self::Unified,
        }
    }
}

/// The object form of `cache` in a run or in `initialize.defaults`, instead of `true` or `false`. It turns the cache
/// on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct CacheSettings {
    /// Set to false to turn the cache off.
    pub on: Option<bool>,
    /// The directory, relative to the host's working directory. Default: a directory in agentline's cache directory.
    pub dir: Option<String>,
    /// The maximum age of a stored run in seconds; older runs are not reused.
    pub max_age_s: Option<f64>,
    /// Whether to also store runs that use MCP servers, the web, or functions, checks or permission answers of the
    /// host.
    pub impure: Option<bool>,
    /// The maximum size of the directory in megabytes.
    pub max_mb: Option<u64>,
}

/// `cache/stats` and `cache/clear`: selects a cache. Default: the cache that runs use by default.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct CacheQuery {
    /// The directory, relative to the host's working directory.
    pub dir: Option<String>,
}

/// The response to `cache/stats` and `cache/clear`: the size of the cache before it was cleared.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct CacheUsage {
    /// The directory.
    pub dir: String,
    /// The number of stored runs.
    pub entries: u64,
    /// The size of the stored runs in bytes.
    pub bytes: u64,
    /// The maximum size in bytes.
    pub max_bytes: u64,
}

impl From<crate::cache::CacheStats> for CacheUsage {
    fn from(stats: crate::cache::CacheStats) -> Self {
        let dir = stats.folder.to_string_lossy().into_owned();
        Self { dir, entries: stats.entries, bytes: stats.bytes, max_bytes: stats.max_bytes }
    }
}

/// Which events of a run are sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
#[non_exhaustive]
pub enum EventFilter {
    /// All events, or none.
    All(bool),
    /// The events of these types: `text`, `tool_use`, …
    Types(Vec<String>),
}

impl Default for EventFilter {
    fn default() -> Self {
        Self::All(true)
    }
}

/// A function of the host.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct ToolSpec {
    /// The name of the function: letters, digits, `-` and `_`.
    pub name: String,
    /// A description of the function for the model.
    pub description: String,
    /// A JSON Schema of type `object` for the arguments.
    pub input_schema: Option<Value>,
    /// The time limit of a call in milliseconds. Default: one minute.
    pub timeout_ms: Option<u64>,
}

/// `run/event`: reports an event of a run.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct RunEvent {
    /// The host's name for the run.
    pub run: String,
    /// The event, as `--output events` prints it.
    pub event: Value,
    /// How many events of the same kind were merged into this one because the host read slowly.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub joined: Option<u64>,
}

/// `run/launched`: reports the command of a run that has started or is in the queue, if the run requests it.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct RunLaunched {
    /// The host's name for the run.
    pub run: String,
    /// The id of the run, as in its events and outcome.
    pub run_id: String,
    /// The program and its arguments. Secrets are redacted.
    pub command: Vec<String>,
    /// The names of the caller's variables that are hidden from the agent.
    pub withheld: Vec<String>,
}

/// `run/line`: reports a line as `--output claude` prints it, if the run requests it: `system`, `assistant`, `user`,
/// `result`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct RunLine {
    /// The host's name for the run.
    pub run: String,
    /// The text of the line, which is a JSON object.
    pub line: String,
}

/// `run/retry`: reports that an attempt failed and that the run will be retried. The event `retry` has the same fields.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct RunRetry {
    /// The host's name for the run.
    pub run: String,
    /// The number of the next attempt, starting at 2.
    pub attempt: u32,
    /// The wait before the next attempt in milliseconds.
    pub wait_ms: u64,
    /// Why the last attempt failed.
    pub reason: String,
    /// The model of the next attempt, if it is another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
}

/// `cancel`: stops a run and everything that it started. The outcome of the run is still sent.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct Cancel {
    /// The host's name for the run.
    pub run: String,
    /// The signal that the outcome reports: 2 for SIGINT (the default), 15 for SIGTERM, or 9, which kills the agent.
    #[serde(default)]
    pub signal: Option<i32>,
}

/// The response to `cancel`.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct Cancelled {
    /// Whether there was such a run.
    pub found: bool,
}

/// `permission/ask`, sent to the host: asks whether a tool may run.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct PermissionQuestion {
    /// The host's name for the run.
    pub run: String,
    /// The use of the tool: `tool`, `native_tool`, `title`, `command`, `paths`, `diffs`, `input`, `server`.
    pub ask: Value,
}

/// The host's response to `permission/ask`. Any decision other than `allow` denies the use.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[non_exhaustive]
pub struct PermissionAnswer {
    /// `allow` or `deny`.
    pub decision: String,
    /// The reason, for the agent and the outcome.
    pub reason: Option<String>,
}

/// `tool/call`, sent to the host: calls a function of the host. `tool/cancel` with the same fields reports that the
/// response is no longer needed.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct ToolInvocation {
    /// The host's name for the run.
    pub run: String,
    /// The number of the call in its run, starting at 1.
    pub call: u64,
    /// The name of the function.
    pub tool: String,
    /// The arguments.
    pub input: Value,
}

/// The host's response to `tool/call`. A JSON-RPC error is reported to the agent as a failure of the tool.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[non_exhaustive]
pub struct ToolAnswer {
    /// The result: a string is passed unchanged, any other value as JSON.
    pub output: Value,
    /// Whether the function failed.
    pub is_error: bool,
    /// A text for the model that is added to the result.
    pub note: Option<String>,
    /// Whether the run ends here, with `output` as the reason.
    pub stop: bool,
}

/// `check`, sent to the host after each answer: asks whether the task is complete.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct CheckQuestion {
    /// The host's name for the run.
    pub run: String,
    /// The text of the last turn.
    pub text: String,
    /// The value of the answer, if there is a schema. It matches the schema.
    pub output: Value,
    /// The workspace of the run.
    pub working_dir: String,
}

/// The host's response to `check`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[non_exhaustive]
pub struct CheckAnswer {
    /// Whether the task is complete.
    pub done: bool,
    /// What is missing, for the agent.
    pub message: Option<String>,
}

/// The response to `session/open`, which opens a conversation with the fields of `run` for all of its prompts.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct SessionOpened {
    /// The name of the conversation for `session/prompt` and `session/close`.
    pub session: String,
    /// The agent's own session id, for resuming the session.
    pub session_id: String,
}

/// `session/prompt`: sends one prompt in a conversation and returns its outcome.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct SessionPrompt {
    /// The name of the conversation.
    pub session: String,
    /// The text of the prompt.
    pub prompt: String,
    /// The host's name for this run.
    pub run: Option<String>,
    /// Which events are sent.
    pub events: EventFilter,
    /// Whether the outcome includes the messages of this prompt.
    pub messages: bool,
}

/// `session/close`: closes a conversation and ends its agent.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct SessionClose {
    /// The name of the conversation.
    pub session: String,
}

/// `pool/prewarm`: prepares agents for runs with these keys.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[non_exhaustive]
pub struct Prewarm {
    /// The number of runs to prepare for.
    pub runs: usize,
    /// Only on the socket of `agentline pool start`, and only between the same versions: the complete request, instead
    /// of configuration keys.
    pub request: Option<Value>,
    /// The configuration keys of the runs.
    #[serde(flatten)]
    pub keys: Map<String, Value>,
}

/// The process that serves the socket of `agentline pool start`, in the response to `pool/status` on that socket.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct DaemonInfo {
    /// The version of the daemon.
    pub version: String,
    /// The process id of the daemon.
    pub pid: u32,
    /// The socket that the daemon listens on.
    pub socket: PathBuf,
    /// The time since the daemon started.
    pub age_ms: u64,
    /// The time without work after which the daemon exits.
    pub idle_exit_ms: u64,
}
