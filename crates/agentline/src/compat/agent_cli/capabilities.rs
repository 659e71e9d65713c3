//! `capabilities`: what an agent supports, as reported by the agent or by the built-in table.

use crate::compat::agent_cli::known;
use crate::{Agentline, Error};
use agentline_core::{Agent, AgentId, ModelInfo, RunRequest};
use serde::Serialize;

/// The source of the model list in [`CliCapabilities`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum CapabilitySource {
    /// The agent reported its models when a session was opened.
    Agent,
    /// The built-in table of the agent.
    Table,
}

/// The features that an agent supports.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct CliCapabilities {
    /// The id of the agent.
    pub agent: AgentId,
    /// Whether the agent has slash commands.
    pub supports_slash_commands: bool,
    /// Whether a model can be selected.
    pub supports_models: bool,
    /// The models that can be selected.
    pub models: Vec<ModelInfo>,
    /// Whether the agent can search the web.
    pub supports_web_search: bool,
    /// Whether the agent reports its reasoning, live or in saved sessions.
    pub supports_thinking: bool,
    /// Where `models` comes from.
    pub source: CapabilitySource,
}

impl CliCapabilities {
    /// Returns the capabilities listed in the built-in table of an agent.
    #[must_use]
    pub fn of(agent: &dyn Agent) -> Self {
        let has = agent.features();
        let models = has.models.iter().map(|(id, name)| ModelInfo::new(*id, Some((*name).to_owned())));
        Self {
            agent: agent.info().id.into(),
            supports_slash_commands: has.slash_commands,
            supports_models: true,
            models: models.collect(),
            supports_web_search: has.web_search,
            supports_thinking: has.thinking,
            source: CapabilitySource::Table,
        }
    }
}

/// Returns the capabilities of an agent, with the models that the agent itself reports.
///
/// Starts the agent, opens a session to read its models, and closes it. If the agent cannot be started or reports no
/// models, the built-in table is used. Takes as long as the agent's start, up to the start-up timeout of the request.
///
/// # Errors
/// Fails if the agent is unknown.
pub async fn capabilities(agentline: &Agentline, agent: &str) -> Result<CliCapabilities, Error> {
    let known = known(agentline, agent)?;
    let mut capabilities = CliCapabilities::of(&*known);
    let mut request = RunRequest::new("open").agent(known.info().id);
    request.temporary_workspace = true;
    if let Ok(session) = agentline.session(request).await {
        if !session.models().is_empty() {
            capabilities.models = session.models().to_vec();
            capabilities.source = CapabilitySource::Agent;
        }
        session.close().await;
    }
    Ok(capabilities)
}
