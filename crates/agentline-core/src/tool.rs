//! The canonical kinds and results of tools, which every agent's tool table uses.

use serde::{Deserialize, Serialize};

/// The kind of a tool, as far as it matters for changed files and permission rules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ToolKind {
    /// Writes a whole file.
    Write,
    /// Changes part of a file.
    Edit,
    /// Runs a command. What it changes is not reported.
    Shell,
    /// Reads files.
    Read,
    /// Searches files or lists directories.
    Search,
    /// Fetches or searches the web.
    Web,
    /// Delegates work to another agent. What that agent changes is not reported.
    Agent,
    /// A tool of an MCP server.
    Mcp,
    /// Any other tool.
    #[default]
    Other,
}

/// The status of a finished tool call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ToolStatus {
    /// The tool succeeded.
    Ok,
    /// The tool failed.
    Error,
    /// The tool was cancelled.
    Cancelled,
    /// The tool was denied, or not offered to the model.
    Denied,
}

impl ToolStatus {
    /// Returns whether the call did not succeed.
    #[must_use]
    pub fn is_error(self) -> bool {
        self != Self::Ok
    }
}
