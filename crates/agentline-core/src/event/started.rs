//! The first event of a run.

use crate::{AgentId, Outcome, RunInfo, Surface};
use serde::{Deserialize, Serialize};

/// The version of the format of events, which `started`, the first event of a run, contains. Events and fields may be
/// added, but are never renamed or removed.
pub const EVENTS_SCHEMA: &str = "agentline.events/1";

/// The start of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Started {
    /// The version of the format of events.
    #[serde(skip_deserializing, default = "events_schema")]
    pub schema: &'static str,
    /// The id of this run.
    pub run_id: String,
    /// The id of the agent.
    pub agent: AgentId,
    /// The version of the agent.
    pub agent_version: Option<String>,
    /// The surface in use.
    pub surface: Option<Surface>,
    /// The model, as far as the agent reports it.
    pub model: Option<String>,
    /// The agent's own session id.
    pub session_id: Option<String>,
    /// The workspace.
    pub cwd: String,
    /// The caller's name for this prompt.
    pub name: Option<String>,
    /// The models that the agent offers; set only for runs that just open a session.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub models: Vec<ModelInfo>,
}

fn events_schema() -> &'static str {
    EVENTS_SCHEMA
}

impl Default for Started {
    fn default() -> Self {
        Self {
            schema: EVENTS_SCHEMA,
            run_id: String::new(),
            agent: AgentId::default(),
            agent_version: None,
            surface: None,
            model: None,
            session_id: None,
            cwd: String::new(),
            name: None,
            models: Vec::new(),
        }
    }
}

impl Started {
    /// Describes a run by its outcome.
    pub(super) fn of(outcome: &Outcome) -> Self {
        Self { session_id: outcome.session_id.clone(), ..Self::from(&outcome.info()) }
    }
}

impl From<&RunInfo> for Started {
    fn from(info: &RunInfo) -> Self {
        Self {
            run_id: info.run_id.clone(),
            agent: info.agent.clone(),
            agent_version: info.agent_version.clone(),
            surface: info.surface,
            model: info.model.clone(),
            cwd: info.cwd.clone(),
            name: info.name.clone(),
            ..Self::default()
        }
    }
}

/// A model that an agent offers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ModelInfo {
    /// The id used to select the model.
    pub id: String,
    /// The display name.
    pub name: String,
}

impl ModelInfo {
    /// Creates a model; its name defaults to its id.
    #[must_use]
    pub fn new(id: impl Into<String>, name: Option<String>) -> Self {
        let id = id.into();
        Self { name: name.filter(|name| !name.is_empty()).unwrap_or_else(|| id.clone()), id }
    }
}
