//! The decision that an agent makes about a tool use by itself.

use super::changes_files;
use crate::ToolKind;
use crate::{PermissionRequest, PolicyDecision};

/// An agent's own decision about a tool use, before it asks for permission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NativeDecision {
    /// The agent asks for permission, and agentline's answer applies.
    Asks,
    /// The agent runs the tool without asking, for this reason.
    Runs(&'static str),
    /// The agent refuses, or does not offer the tool to its model, for this reason.
    Refuses(&'static str),
    /// It is not known whether the agent asks. If it does, agentline's answer applies.
    Unknown,
}

/// A possible tool use, for which an agent reports its own decision.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct ToolUseContext<'a> {
    /// The tool use.
    pub ask: &'a PermissionRequest,
    /// The policy's decision about it.
    pub decision: &'a PolicyDecision,
    /// Whether all files that it names are in the workspace or an included directory.
    pub inside: bool,
}

impl ToolUseContext<'_> {
    /// Returns whether a rule decides.
    #[must_use]
    pub fn by_rule(&self) -> bool {
        self.decision.ruling().by == "rule"
    }

    /// Returns whether the use changes files.
    #[must_use]
    pub fn changes_files(&self) -> bool {
        changes_files(self.ask)
    }

    /// Returns whether the use only reads or searches files.
    #[must_use]
    pub fn looks_at_files(&self) -> bool {
        matches!(self.ask.kind, ToolKind::Read | ToolKind::Search)
    }
}
