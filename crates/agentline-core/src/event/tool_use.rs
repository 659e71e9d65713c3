//! A tool call that a model requests.

use crate::{Diff, ToolKind};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// A tool call requested by the model.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ToolUse {
    /// The agent's id for the call.
    pub id: String,
    /// The canonical name.
    pub name: String,
    /// The agent's own name for the tool.
    pub native_name: String,
    /// The arguments in canonical form.
    pub input: Option<Box<RawValue>>,
    /// The arguments as the agent sent them.
    pub raw_input: Option<Box<RawValue>>,
    /// The id of the call that started the sub-agent which makes this one, if the agent says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_tool_use_id: Option<String>,
    /// The agent's title for the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The files that the call works on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub locations: Vec<ToolLocation>,
    /// The changes to files that the call proposes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub diffs: Vec<Diff>,
    /// The kind of the tool.
    #[serde(skip)]
    pub kind: ToolKind,
    /// The file that the call would write.
    #[serde(skip)]
    pub path: Option<String>,
}

impl ToolUse {
    /// Creates a tool call.
    #[must_use]
    pub fn new(
        id: impl Into<String>,
        name: impl Into<String>,
        native_name: impl Into<String>,
        kind: ToolKind,
    ) -> Self {
        Self { id: id.into(), name: name.into(), native_name: native_name.into(), kind, ..Self::default() }
    }
}

/// A file that a tool call works on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ToolLocation {
    /// The path of the file, as the agent sent it.
    pub path: String,
    /// The line in the file, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u64>,
}

impl ToolLocation {
    /// Creates a location.
    #[must_use]
    pub fn new(path: impl Into<String>, line: Option<u64>) -> Self {
        Self { path: path.into(), line }
    }
}
