//! The messages about the server, its tokens, saved sessions and experiments.

use agentline::host::messages::Party;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a client may know about the server.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct ServerInfo {
    /// The name and version of the server.
    pub server: Party,
    /// The directories in which runs may work.
    pub roots: Vec<String>,
    /// The ids of the agents.
    pub agents: Vec<String>,
    /// The permission modes.
    pub permission_modes: Vec<String>,
    /// The name of the token.
    pub user: String,
    /// What the token may do.
    pub policy: TokenPolicy,
    /// The prompt of the demo, if this server is for trying the page.
    pub demo_prompt: Option<String>,
    /// The time of the server, in milliseconds since the Unix epoch.
    pub now_ms: u64,
}

/// Names a directory.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct DirectoryQuery {
    /// The path. Default: the first root.
    pub path: Option<String>,
}

/// A directory with its subdirectories.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct Directories {
    /// The path with links resolved.
    pub path: String,
    /// The names of its subdirectories that are no links, at most 2,000.
    pub directories: Vec<String>,
}

/// How long to wait for an outcome.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct OutcomeQuery {
    /// How long to wait for the outcome. Default: 0.
    pub wait_ms: u64,
}

/// Names a file of a workspace.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct FileQuery {
    /// The path, relative to the workspace.
    pub path: String,
}

/// How a run is cancelled.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct Cancelling {
    /// The signal that the outcome reports: 2 for SIGINT (the default), 15 for SIGTERM, or 9, which kills the agent.
    pub signal: Option<i32>,
}

/// The decision on a permission request.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct Decided {
    /// `allow` or `deny`.
    pub decision: String,
}

/// A link that signs a browser in once.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct LoginLink {
    /// The path and the query of the link.
    pub path: String,
}

/// Selects sessions by fields that fit into a query.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct SessionsFilterQuery {
    /// Only sessions of this agent.
    pub agent: Option<String>,
    /// Only sessions of this directory.
    pub project: Option<String>,
    /// Only sessions from this time on, in milliseconds since the Unix epoch.
    pub since: Option<u64>,
    /// Only sessions up to this time, in milliseconds since the Unix epoch.
    pub until: Option<u64>,
    /// The maximum number of sessions. Default: 200.
    pub limit: Option<usize>,
    /// Usage: what rows are grouped by.
    pub by: UsageGrouping,
}

/// What usage is grouped by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum UsageGrouping {
    /// By day, in UTC.
    #[default]
    Day,
    /// By week as in ISO 8601.
    Week,
    /// By month.
    Month,
    /// By agent.
    Agent,
    /// By model.
    Model,
    /// By project.
    Project,
    /// By session.
    Session,
}

/// An experiment on disk.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct ExperimentInfo {
    /// The directory.
    pub dir: String,
    /// The name of its suite.
    pub name: String,
    /// When it was last written, in milliseconds since the Unix epoch.
    pub modified_at_ms: u64,
}

/// The experiments in the served directories.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct ExperimentList {
    /// The experiments, newest first.
    pub experiments: Vec<ExperimentInfo>,
}

/// Names an experiment.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct ExperimentQuery {
    /// The directory.
    pub dir: String,
    /// The format of the report.
    #[serde(default)]
    pub format: ReportType,
}

/// The format of a report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ReportType {
    /// `agentline.report/1`.
    #[default]
    Json,
    /// A page.
    Html,
}

/// The progress of an experiment.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct ExperimentProgress {
    /// The directory.
    pub dir: String,
    /// The name of its suite.
    pub name: String,
    /// The number of cases.
    pub cases: usize,
    /// The number of variants.
    pub variants: usize,
    /// The number of attempts per case and variant.
    pub repeat: usize,
    /// The number of runs.
    pub planned: usize,
    /// The number of runs with a result.
    pub finished: usize,
    /// The results by their class.
    pub classes: ClassCounts,
    /// What the runs cost in US dollars, as far as it is known.
    pub cost_usd: f64,
}

/// The number of results by their class.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct ClassCounts {
    /// Runs that passed.
    pub passed: u32,
    /// Runs that failed.
    pub failed: u32,
    /// Runs that say nothing about the agent.
    pub infrastructure: u32,
}

/// Which saved sessions a token may read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum SessionAccess {
    /// None.
    None,
    /// Those of the directories that are served.
    #[default]
    Roots,
    /// Those of all directories.
    All,
}

/// What a token may do. Null or absent means no limit.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[non_exhaustive]
pub struct TokenPolicy {
    /// The agents that runs may use.
    pub agents: Option<Vec<String>>,
    /// The permission modes that runs may have.
    pub permission_modes: Option<Vec<String>>,
    /// The maximum cost of a run in US dollars.
    pub max_cost_usd: Option<f64>,
    /// The maximum cost of the runs of the last 24 hours in US dollars.
    pub daily_cost_usd: Option<f64>,
    /// The maximum number of runs in progress.
    pub max_concurrent: Option<usize>,
    /// Whether the token may only read.
    pub read_only: bool,
    /// Whether the token sees the runs of other tokens.
    pub all_runs: bool,
    /// The saved sessions that the token may read.
    pub sessions: SessionAccess,
    /// Configuration keys that runs may have besides the ordinary ones, such as `mcp_servers` or `env`.
    pub keys: Vec<String>,
}
