//! The messages of lookups: agents, saved sessions and values in texts.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// `detect` and `capabilities`: selects an agent.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct AgentQuery {
    /// The id of the agent. Default: the agent that runs use by default.
    pub agent: Option<String>,
}

/// The response to `detect`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct Detected {
    /// The id of the agent.
    pub agent: String,
    /// The path of the agent's own CLI; null if it was not found.
    pub path: Option<String>,
    /// The program and the first arguments with which agentline starts the agent: the CLI itself, Node.js with a
    /// script, or an adapter. Null if the agent cannot be started.
    pub launcher: Option<Vec<String>>,
}

/// `sessions/list` and `sessions/search`: selects saved sessions.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct SessionsQuery {
    /// Only sessions of this agent.
    pub agent: Option<String>,
    /// Only sessions of this directory.
    pub project: Option<String>,
    /// Only sessions from this time on, in milliseconds since the Unix epoch.
    pub since: Option<u64>,
    /// Only sessions up to this time, in milliseconds since the Unix epoch.
    pub until: Option<u64>,
    /// The maximum number of results.
    pub limit: Option<usize>,
    /// The words to search for. All of them must match.
    pub words: Vec<String>,
    /// Whether the words are regular expressions.
    pub regex: bool,
    /// Whether the search is case-sensitive.
    pub case_sensitive: bool,
    /// The number of lines of context around a match.
    pub context_lines: usize,
}

/// `sessions/load`: loads one saved session and its messages.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct SessionsLoad {
    /// The id of the session, a prefix of it, `latest`, or the path of a file. Default: the latest session of the
    /// project.
    pub session: Option<String>,
    /// Only sessions of this agent.
    pub agent: Option<String>,
    /// The directory that `latest` refers to. Default: the working directory of the host.
    pub project: Option<String>,
    /// `unified` (the default) or `claude`.
    pub view: Option<String>,
    /// `turn` keeps the original order of blocks in the unified view.
    pub order: Option<String>,
    /// Whether to include context that the agent added for the model.
    pub context: bool,
}

/// `sessions/parse`: converts one record of a saved session, or one line that an agent printed, to a message.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct SessionsParse {
    /// The id of the agent that wrote the record. Default: the agent that runs use by default.
    pub agent: Option<String>,
    /// The record: an object, or the text of a line.
    pub record: Value,
}

/// `extract`: finds the JSON value in a text. The response is `{"value"}`, or `{}` if there is none.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct Extract {
    /// The text, such as an answer.
    pub text: String,
}
