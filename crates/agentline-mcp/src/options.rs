//! The options of a server.

use serde_json::{Map, Value};
use std::{path::PathBuf, time::Duration};

/// The options of an [`AgentToolServer`](crate::AgentToolServer).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct AgentToolOptions {
    /// The directories in which agents may work. Empty for the current directory alone.
    pub roots: Vec<PathBuf>,
    /// The agents that may be started, by id or alias; all if absent.
    pub agents: Option<Vec<String>>,
    /// Keys of the configuration that take precedence over the user's files and variables.
    pub settings: Map<String, Value>,
    /// What all runs together may cost in US dollars.
    pub max_cost_usd: Option<f64>,
    /// How deep agents may be nested. The agents of the client have depth 1.
    pub max_depth: u32,
    /// How many runs of all clients may be in progress at the same time.
    pub max_runs: usize,
    /// How long one call of a tool takes at most. Many clients give up after 60 seconds.
    pub max_wait: Duration,
    /// How long the client has to answer a permission request.
    pub ask_timeout: Duration,
    /// Over HTTP: how long a client may have no request and no open stream before its runs end.
    pub idle_end: Duration,
    /// The command that starts an inner server. Without it, agents of this server cannot start others.
    pub inner_command: Vec<String>,
}

impl Default for AgentToolOptions {
    fn default() -> Self {
        Self {
            roots: Vec::new(),
            agents: None,
            settings: Map::new(),
            max_cost_usd: None,
            max_depth: 1,
            max_runs: 8,
            max_wait: Duration::from_secs(45),
            ask_timeout: Duration::from_secs(30),
            idle_end: Duration::from_secs(120),
            inner_command: Vec::new(),
        }
    }
}
