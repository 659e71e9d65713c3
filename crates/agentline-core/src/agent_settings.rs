//! The settings of a configured agent.

mod profile;

pub use profile::{AgentProfile, ErrorPattern, ErrorPlace, ProfileMode, RecordedUsage, ReportedUsage};

use crate::Surface;
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, path::PathBuf};

/// The settings of one agent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct AgentSettings {
    /// The program to start instead of the detected one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub program: Option<PathBuf>,
    /// The arguments over ACP, instead of the built-in ones; for an agent with a `command`, the arguments after it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub args: Option<Vec<String>>,
    /// Variables added to the agent's environment; those of the run take precedence.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// The surface to use if a run does not name one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub surface: Option<Surface>,
    /// The program of an agent that agentline does not know, with its first arguments.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<Vec<String>>,
    /// What is known about an agent with a `command`.
    #[serde(flatten)]
    pub profile: AgentProfile,
}

impl AgentSettings {
    /// Overrides these settings with those of a higher layer.
    pub(crate) fn overlay(&mut self, above: &Self) {
        let above = above.clone();
        self.program = above.program.or_else(|| self.program.take());
        self.args = above.args.or_else(|| self.args.take());
        self.surface = above.surface.or(self.surface);
        self.command = above.command.or_else(|| self.command.take());
        self.env.extend(above.env);
        self.profile.overlay(above.profile);
    }
}
