//! What a host and agentline say to each other. Fields that are not known are passed over on both sides.

use agentline_core::Problem;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The version of the protocol. A host that asks for a newer one is told this one, and may leave.
pub const PROTOCOL: u32 = 1;

/// The JSON Schema of every message, under `$defs`.
#[must_use]
pub fn schema() -> Value {
    let mut generator = schemars::generate::SchemaSettings::draft2020_12().into_generator();
    generator.subschema_for::<Initialize>();
    generator.subschema_for::<Initialized>();
    generator.subschema_for::<RunParams>();
    generator.subschema_for::<RunEvent>();
    generator.subschema_for::<RunRetry>();
    generator.subschema_for::<Cancel>();
    generator.subschema_for::<Cancelled>();
    generator.subschema_for::<AboutAgent>();
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
    generator.subschema_for::<Prewarm>();
    generator.subschema_for::<CacheSettings>();
    generator.subschema_for::<CacheAbout>();
    generator.subschema_for::<CacheTold>();
    generator.subschema_for::<RpcError>();
    serde_json::json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$defs": generator.take_definitions(true),
    })
}

/// Who speaks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[non_exhaustive]
pub struct Party {
    /// The program's name.
    pub name: String,
    /// Its version.
    pub version: String,
}

impl Party {
    /// A program by its name and version.
    #[must_use]
    pub fn new(name: impl Into<String>, version: impl Into<String>) -> Self {
        Self { name: name.into(), version: version.into() }
    }
}

/// `initialize`: who the host is, and how all of its runs are to be kept. It may be left out: everything has a default.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[non_exhaustive]
pub struct Initialize {
    /// The version of the protocol that the host speaks.
    pub protocol: Option<u32>,
    /// Who the host is.
    pub client: Option<Party>,
    /// Keys of the contract that hold for every run unless it says otherwise.
    pub defaults: Map<String, Value>,
    /// How agents are kept warm.
    pub pool: PoolSettings,
    /// How many runs go on at once, at most; without it as many as the pool has places.
    pub max_concurrent: Option<usize>,
    /// How often a run that was refused for load or quota is tried again.
    pub max_retries: Option<u32>,
    /// How long all waits between the attempts of a run may be together, in seconds; 300 when nothing is said.
    pub max_retry_wait_s: Option<u64>,
}

/// How agents are kept warm. What is not said is the default of the pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[non_exhaustive]
pub struct PoolSettings {
    /// How many agents are alive at once, at most.
    pub max_processes: Option<usize>,
    /// How many sessions are on one process at once, where runs can share one.
    pub lanes: Option<usize>,
    /// How many runs may wait for a place, at most.
    pub max_queue: Option<usize>,
    /// A process is replaced when it has had this many sessions …
    pub max_sessions: Option<u32>,
    /// … or takes more memory than this, in megabytes …
    pub max_memory_mb: Option<u64>,
    /// … or is older than this, in seconds.
    pub max_age_s: Option<u64>,
    /// A process that nobody used for this long is let go, in seconds.
    pub idle_s: Option<u64>,
}

/// The answer to `initialize`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct Initialized {
    /// The version of the protocol that is spoken.
    pub protocol: u32,
    /// Who we are.
    pub server: Party,
    /// The methods that a host may call.
    pub methods: Vec<String>,
    /// The methods that a host may be called by, when a run asked for them.
    pub callbacks: Vec<String>,
    /// The agents that a run may name.
    pub agents: Vec<String>,
}

/// `run`: one prompt. Every key of the contract may stand beside these fields: `prompt`, `agent`, `model`, `working_dir`,
/// `permission_mode`, `timeout`, `deadline`, … The answer is the outcome.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[non_exhaustive]
pub struct RunParams {
    /// The host's name for this run in notifications, callbacks and `cancel`; without it the id of the request as text.
    pub run: Option<String>,
    /// Which events are told while it goes on.
    pub events: EventsWanted,
    /// Functions of the host that the agent may call, by `tool/call`.
    pub tools: Vec<ToolSpec>,
    /// What the agent is told that the server of those functions is called.
    pub tool_server: Option<String>,
    /// The schema that the answer must fit; the key `output_schema` may also name a file.
    pub output_schema: Option<Value>,
    /// Ask the host by `permission/ask` about what no rule decides.
    pub ask_permission: bool,
    /// Ask the host by `check` after each answer whether the task is complete.
    pub check: bool,
    /// How long the host may take to answer a question of this run, in milliseconds; then it has refused.
    pub answer_timeout_ms: Option<u64>,
    /// Use a warm agent where that is possible; that is the default.
    pub warm: Option<bool>,
    /// Without a `working_dir`, the run gets an empty workspace of its own, which is removed afterwards.
    pub temporary_workspace: bool,
    /// The outcome holds the messages of the run, in Claude's format.
    pub messages: bool,
    /// How often this run is tried again when it was refused for load or quota.
    pub max_retries: Option<u32>,
    /// How long all waits between the attempts of this run may be together, in seconds.
    pub max_retry_wait_s: Option<u64>,
    /// The keys of the contract.
    #[serde(flatten)]
    pub keys: Map<String, Value>,
}

/// What may stand under `cache` in a run or in `initialize.defaults` instead of `true` or `false`; it is then on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[non_exhaustive]
pub struct CacheSettings {
    /// False switches it off all the same.
    pub on: Option<bool>,
    /// The folder, from the folder of the host; without it the one in agentline's cache folder.
    pub dir: Option<String>,
    /// A run that is older is made again, in seconds.
    pub max_age_s: Option<f64>,
    /// Also keep runs with MCP servers, functions, checks or answers of the host, or the web.
    pub impure: Option<bool>,
    /// The folder holds no more than this, in megabytes.
    pub max_mb: Option<u64>,
}

/// `cache/stats` and `cache/clear`: which cache; without `dir` the one of the defaults.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[non_exhaustive]
pub struct CacheAbout {
    /// Its folder, from the folder of the host.
    pub dir: Option<String>,
}

/// The answer to `cache/stats`, and to `cache/clear`: what was in it.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct CacheTold {
    /// The folder.
    pub dir: String,
    /// How many runs are kept.
    pub entries: u64,
    /// How many bytes they take.
    pub bytes: u64,
    /// How many bytes they may take.
    pub max_bytes: u64,
}

impl From<crate::cache::CacheStats> for CacheTold {
    fn from(stats: crate::cache::CacheStats) -> Self {
        let dir = stats.folder.to_string_lossy().into_owned();
        Self { dir, entries: stats.entries, bytes: stats.bytes, max_bytes: stats.max_bytes }
    }
}

/// Which events of a run are told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
#[non_exhaustive]
pub enum EventsWanted {
    /// All of them, or none.
    All(bool),
    /// Those of these types: `text`, `tool_use`, …
    Types(Vec<String>),
}

impl Default for EventsWanted {
    fn default() -> Self {
        Self::All(true)
    }
}

/// A function of the host.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[non_exhaustive]
pub struct ToolSpec {
    /// Its name: letters, digits, `-` and `_`.
    pub name: String,
    /// What it does, for the model.
    pub description: String,
    /// A JSON Schema of type `object` for its arguments.
    pub input_schema: Option<Value>,
    /// How long it may take, in milliseconds; a minute when nothing is said.
    pub timeout_ms: Option<u64>,
}

/// `run/event`: something happened in a run.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct RunEvent {
    /// The host's name for the run.
    pub run: String,
    /// The event as `--output events` prints it.
    pub event: Value,
    /// How many events of the same kind were joined into this one because the host read slowly.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub joined: Option<u64>,
}

/// `run/retry`: a run was refused for load or quota and will be tried again.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct RunRetry {
    /// The host's name for the run.
    pub run: String,
    /// Which attempt comes next, from 2.
    pub attempt: u32,
    /// After how long, in milliseconds.
    pub wait_ms: u64,
    /// Why the last one failed.
    pub reason: String,
}

/// `cancel`: stops a run with everything that it started. Its outcome still comes.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct Cancel {
    /// The host's name for the run.
    pub run: String,
}

/// The answer to `cancel`.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct Cancelled {
    /// Whether there was such a run.
    pub found: bool,
}

/// `permission/ask`, sent to the host: may this tool run?
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct PermissionQuestion {
    /// The host's name for the run.
    pub run: String,
    /// What is to be judged: `tool`, `native_tool`, `title`, `command`, `paths`, `diffs`, `input`, `server`.
    pub ask: Value,
}

/// The host's answer to `permission/ask`. Anything else than `allow` refuses.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[non_exhaustive]
pub struct PermissionAnswer {
    /// `allow` or `deny`.
    pub decision: String,
    /// Why, for the agent and the outcome.
    pub reason: Option<String>,
}

/// `tool/call`, sent to the host: a function of the host is to run. `tool/cancel` with the same fields says that nobody wants
/// the answer any more.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct ToolInvocation {
    /// The host's name for the run.
    pub run: String,
    /// The number of the call in its run, from 1.
    pub call: u64,
    /// Which function.
    pub tool: String,
    /// Its arguments.
    pub input: Value,
}

/// The host's answer to `tool/call`. A JSON-RPC error is told to the agent as a failure of the tool.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[non_exhaustive]
pub struct ToolAnswer {
    /// What the function gave back: text as it stands, all else as JSON.
    pub output: Value,
    /// Whether it failed.
    pub is_error: bool,
}

/// `check`, sent to the host after each answer: is the task complete?
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct CheckQuestion {
    /// The host's name for the run.
    pub run: String,
    /// The text of the last turn.
    pub text: String,
    /// The value, where a schema was given; it fits.
    pub output: Value,
    /// Where the agent worked.
    pub working_dir: String,
}

/// The host's answer to `check`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[non_exhaustive]
pub struct CheckAnswer {
    /// The task is complete.
    pub done: bool,
    /// What is missing; the agent reads it.
    pub message: Option<String>,
}

/// `session/open`: a conversation; the fields of `run` hold for all of its prompts. The answer is [`SessionOpened`].
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct SessionOpened {
    /// Our name for the conversation, for `session/prompt` and `session/close`.
    pub session: String,
    /// The agent's own id, with which it can be resumed.
    pub session_id: String,
}

/// `session/prompt`: one prompt in a conversation. The answer is the outcome.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[non_exhaustive]
pub struct SessionPrompt {
    /// Which conversation.
    pub session: String,
    /// What is said.
    pub prompt: String,
    /// The host's name for this run.
    pub run: Option<String>,
    /// Which events are told.
    pub events: EventsWanted,
    /// The outcome holds the messages of this prompt.
    pub messages: bool,
}

/// `session/close`: ends a conversation and its agent.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct SessionClose {
    /// Which conversation.
    pub session: String,
}

/// `pool/prewarm`: makes ready for runs like this one.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[non_exhaustive]
pub struct Prewarm {
    /// How many.
    pub runs: usize,
    /// The keys of the contract.
    #[serde(flatten)]
    pub keys: Map<String, Value>,
}

/// `detect` and `capabilities`: about which agent.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[non_exhaustive]
pub struct AboutAgent {
    /// Its id; without it that of the defaults.
    pub agent: Option<String>,
}

/// The answer to `detect`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct Detected {
    /// The agent's id.
    pub agent: String,
    /// Where its program is; null when it is nowhere.
    pub path: Option<String>,
}

/// `sessions/list` and `sessions/search`: which saved sessions are meant.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[non_exhaustive]
pub struct SessionsQuery {
    /// Of this agent.
    pub agent: Option<String>,
    /// About this folder.
    pub project: Option<String>,
    /// Not older, in milliseconds since 1970.
    pub since: Option<u64>,
    /// Not younger.
    pub until: Option<u64>,
    /// Not more than these.
    pub limit: Option<usize>,
    /// What is searched for: all of these words.
    pub words: Vec<String>,
    /// They are regular expressions.
    pub regex: bool,
    /// Capital letters matter.
    pub case_sensitive: bool,
    /// How many lines around a hit are told.
    pub context_lines: usize,
}

/// `sessions/load`: one saved session and its messages.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[non_exhaustive]
pub struct SessionsLoad {
    /// Its id, a beginning of it, `latest`, or the path of a file; without it the latest of the project.
    pub session: Option<String>,
    /// Of this agent alone.
    pub agent: Option<String>,
    /// The folder that `latest` is about; without it the folder of the host.
    pub project: Option<String>,
    /// `unified`, which is the default, or `claude`.
    pub view: Option<String>,
    /// `turn` for the true order of blocks in the unified view.
    pub order: Option<String>,
    /// With what the agent put there itself for the model to read.
    pub context: bool,
}

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct RpcError {
    /// As JSON-RPC has them.
    pub code: i64,
    /// One sentence.
    pub message: String,
    /// More, such as `problems` with their keys and hints, or the outcome.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Value>,
}

impl RpcError {
    /// The line is not JSON.
    pub(super) const PARSE: i64 = -32700;
    /// The line is no request.
    pub(super) const INVALID: i64 = -32600;
    /// There is no such method.
    pub(super) const METHOD: i64 = -32601;
    /// What was asked for is wrong.
    pub(super) const PARAMS: i64 = -32602;
    /// The host stopped it.
    pub(super) const CANCELLED: i64 = -32800;
    /// We failed.
    pub(super) const INTERNAL: i64 = -32603;

    pub(super) fn new(code: i64, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), data: None }
    }

    /// What was asked for is wrong, with each key and the way out.
    pub(super) fn usage(problems: &[Problem]) -> Self {
        let words: Vec<String> = problems.iter().map(ToString::to_string).collect();
        let data = serde_json::json!({"problems": problems});
        Self { code: Self::PARAMS, message: words.join("\n"), data: Some(data) }
    }
}

impl From<crate::Error> for RpcError {
    fn from(error: crate::Error) -> Self {
        match error {
            crate::Error::Usage(problems) => Self::usage(&problems.0),
            crate::Error::NotOpened(outcome) => Self {
                code: Self::INTERNAL,
                message: outcome.error.as_ref().map_or_else(String::new, |error| error.message.clone()),
                data: Some(serde_json::json!({"outcome": outcome})),
            },
            crate::Error::NoSession(problem) => Self {
                code: Self::INTERNAL,
                message: problem.to_string(),
                data: Some(serde_json::json!({"kind": "no_session", "problems": [problem]})),
            },
            other => Self::new(Self::INTERNAL, other.to_string()),
        }
    }
}
