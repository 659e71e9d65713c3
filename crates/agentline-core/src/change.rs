//! File changes and their sources.

use serde::{Deserialize, Serialize};

/// The kind of a file change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum FileChangeKind {
    /// The file did not exist before.
    Created,
    /// The file existed before and its content is different.
    Modified,
    /// The file no longer exists.
    Deleted,
}

/// The source of a file change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ChangeSource {
    /// A tool that reported the change.
    Tool,
    /// A shell command, as far as can be determined.
    Shell,
    /// No known source.
    Unknown,
}

/// One difference between the workspace before and after a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct DiskChange {
    /// The path, with `/` as separator; relative to the workspace if inside it.
    pub path: String,
    /// The kind of the change.
    pub change: FileChangeKind,
    /// Lines added, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub added: Option<u64>,
    /// Lines removed, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub removed: Option<u64>,
    /// Whether the disk confirms the change; false if the file does not exist and it is unknown whether it ever did.
    pub verified: bool,
    /// The change as a unified diff, if it was requested and the old content is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub diff: Option<String>,
}

impl DiskChange {
    /// Creates a verified change without line counts.
    #[must_use]
    pub fn new(path: impl Into<String>, change: FileChangeKind) -> Self {
        Self { path: path.into(), change, added: None, removed: None, verified: true, diff: None }
    }
}

/// One changed file in an outcome.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct FileRow {
    /// The path; relative to the workspace if inside it, absolute otherwise.
    pub path: String,
    /// The kind of the change.
    pub change: FileChangeKind,
    /// The source of the change.
    pub source: ChangeSource,
    /// The canonical name of the tool.
    pub tool: Option<String>,
    /// The id of the tool call that reported the change.
    pub tool_use_id: Option<String>,
    /// Whether the disk confirms the change.
    pub verified: bool,
    /// Lines added, if known.
    pub added: Option<u64>,
    /// Lines removed, if known.
    pub removed: Option<u64>,
    /// The change as a unified diff, if diffs were requested and the old content is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub diff: Option<String>,
}

/// A change without a known source.
impl From<DiskChange> for FileRow {
    fn from(change: DiskChange) -> Self {
        Self {
            path: change.path,
            change: change.change,
            source: ChangeSource::Unknown,
            tool: None,
            tool_use_id: None,
            verified: change.verified,
            added: change.added,
            removed: change.removed,
            diff: change.diff,
        }
    }
}
