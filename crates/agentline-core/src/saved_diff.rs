//! A change that a tool made to a file, in a saved session.

use serde::{Deserialize, Serialize};

/// A change that a tool made to a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SavedDiff {
    /// The path of the file.
    pub path: String,
    /// The old content, or `None` for a new file or if the agent did not store it.
    pub old: Option<String>,
    /// The new content.
    pub new: Option<String>,
    /// The change as a unified diff, if the agent stored that instead of the contents.
    pub unified: Option<String>,
}
