//! What happened to a file, and who did it.

use serde::{Deserialize, Serialize};

/// What happened to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Change {
    /// It was not there before.
    Created,
    /// It was there and is different.
    Modified,
    /// It is gone.
    Deleted,
}

/// Who changed it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ChangeSource {
    /// A tool that said so.
    Tool,
    /// A shell command, by all appearances.
    Shell,
    /// Nobody said.
    Unknown,
}

/// One difference between the workspace before and after a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct DiskChange {
    /// Relative to the workspace when inside it, with `/` between the parts.
    pub path: String,
    /// What happened.
    pub change: Change,
    /// Lines added, where it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub added: Option<u64>,
    /// Lines removed, where it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub removed: Option<u64>,
    /// Whether the disk itself shows it; false where the file is gone and it is not known whether it ever was there.
    pub verified: bool,
}

impl DiskChange {
    /// A difference.
    #[must_use]
    pub fn new(path: impl Into<String>, change: Change) -> Self {
        Self { path: path.into(), change, added: None, removed: None, verified: true }
    }
}

/// One file in an outcome.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct FileRow {
    /// Relative to the workspace when inside it, absolute otherwise.
    pub path: String,
    /// What happened.
    pub change: Change,
    /// Who did it.
    pub source: ChangeSource,
    /// The tool's canonical name.
    pub tool: Option<String>,
    /// The call that reported it.
    pub tool_use_id: Option<String>,
    /// Whether the disk agrees.
    pub verified: bool,
    /// Lines added, where it is known.
    pub added: Option<u64>,
    /// Lines removed, where it is known.
    pub removed: Option<u64>,
}
