//! A tool call by an agent, as far as its updates describe it.

use crate::{Diff, ToolLocation};
use serde_json::value::RawValue;

/// Everything known about a call so far.
#[derive(Debug, Default)]
pub(crate) struct AcpToolCall {
    /// The agent's id for the call, or a generated one.
    pub(crate) id: String,
    /// The agent's own name for the tool, if it sends one.
    pub(crate) name: Option<String>,
    /// The first title.
    pub(crate) first_title: String,
    /// The current title.
    pub(crate) title: String,
    /// The protocol's kind of tool.
    pub(crate) kind: String,
    /// The arguments.
    pub(crate) raw_input: Option<Box<RawValue>>,
    /// The raw output.
    pub(crate) raw_output: Option<Box<RawValue>>,
    /// The `_meta` field, with the agent's extensions.
    pub(crate) meta: Option<Box<RawValue>>,
    /// The texts of the content.
    pub(crate) text: String,
    /// The output that was streamed while the tool ran.
    pub(crate) streamed: String,
    /// The diffs.
    pub(crate) diffs: Vec<Diff>,
    /// The files that the call works on.
    pub(crate) locations: Vec<ToolLocation>,
    /// Whether `text` is output that was reported while the tool ran.
    pub(super) is_live: bool,
    /// The title and locations of the announcement.
    pub(super) announced_as: (String, Vec<ToolLocation>),
    /// Whether the agent has reported the end of the call.
    pub(crate) is_over: bool,
    /// Whether the call has not started yet.
    pub(super) pending: bool,
    pub(super) announced: bool,
    pub(super) closed: bool,
    /// Whether the call changes files. `claimed` has the files that were already reported.
    pub(super) writes: bool,
    pub(super) claimed: Vec<String>,
    /// Why the host refused the call.
    pub(super) refused: Option<String>,
}

impl AcpToolCall {
    /// Returns the first path that the call refers to.
    pub(crate) fn first_path(&self) -> Option<String> {
        self.paths().into_iter().next()
    }

    /// Returns the paths that the call refers to: those of its diffs, then its locations.
    pub(crate) fn paths(&self) -> Vec<String> {
        let mut paths: Vec<String> = Vec::new();
        let locations = self.locations.iter().map(|location| &location.path);
        for path in self.diffs.iter().map(|diff| &diff.path).chain(locations) {
            if !path.is_empty() && !paths.contains(path) {
                paths.push(path.clone());
            }
        }
        paths
    }
}
