//! The result of a tool call.

use super::ToolLocation;
use crate::{Diff, ToolStatus};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// The result of a tool call.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ToolResult {
    /// The id of the call.
    pub tool_use_id: String,
    /// The status of the call.
    pub status: ToolStatus,
    /// The output of the tool, as far as the surface shows it.
    pub content: Option<String>,
    /// Whether the call failed, was refused or was cancelled.
    pub is_error: bool,
    /// Why the call was refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The agent's last title for the call, if it differs from that of the `tool_use`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The files that the call worked on, if they differ from those of the `tool_use`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub locations: Vec<ToolLocation>,
    /// The output as the agent sent it, where it is more than text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub raw_output: Option<Box<RawValue>>,
    /// The changes to files that the tool reports.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub diffs: Vec<Diff>,
}

impl ToolResult {
    /// Creates the result of a tool call.
    #[must_use]
    pub fn new(id: impl Into<String>, status: ToolStatus, content: Option<String>) -> Self {
        Self {
            tool_use_id: id.into(),
            status,
            content,
            is_error: status.is_error(),
            reason: None,
            title: None,
            locations: Vec::new(),
            raw_output: None,
            diffs: Vec::new(),
        }
    }

    /// Creates the result of a refused tool call.
    #[must_use]
    pub fn refused(id: impl Into<String>, reason: impl Into<String>, content: Option<String>) -> Self {
        Self { reason: Some(reason.into()), ..Self::new(id, ToolStatus::Denied, content) }
    }
}
