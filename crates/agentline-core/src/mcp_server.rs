//! An MCP server as a caller configures it.

use crate::secret::debug_without_secrets;
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, fmt};

impl fmt::Debug for McpServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        debug_without_secrets(self, f)
    }
}

/// An MCP server that the agent can use in one run.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
#[non_exhaustive]
pub enum McpServer {
    /// A program that speaks MCP on its standard input and output.
    Command {
        /// The program.
        command: String,
        /// Its arguments.
        #[serde(default)]
        args: Vec<String>,
        /// Variables added to its environment.
        #[serde(default)]
        env: BTreeMap<String, String>,
    },
    /// A server reached over HTTP.
    Url {
        /// Its URL.
        url: String,
        /// Headers sent with each request. Their values are secrets.
        #[serde(default)]
        headers: BTreeMap<String, String>,
    },
}
