//! The canonical names of tools that every agent's own table maps onto.

use serde::{Deserialize, Serialize};

/// What a tool does to the world, as far as the ledger and the permission rules care.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ToolKind {
    /// Writes a whole file.
    Write,
    /// Changes part of a file.
    Edit,
    /// Runs a command; what it changes is not told.
    Shell,
    /// Reads files.
    Read,
    /// Searches files or lists folders.
    Search,
    /// Fetches or searches the web.
    Web,
    /// Hands work to another agent; what that changes is not told.
    Agent,
    /// A tool of an MCP server.
    Mcp,
    /// Anything else.
    #[default]
    Other,
}

/// How a tool call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ToolStatus {
    /// It did what it was asked to do.
    Ok,
    /// It failed.
    Error,
    /// It was stopped.
    Cancelled,
    /// It was refused, or not offered.
    Denied,
}

impl ToolStatus {
    /// Whether the agent did not get what it wanted.
    #[must_use]
    pub fn is_error(self) -> bool {
        self != Self::Ok
    }
}
