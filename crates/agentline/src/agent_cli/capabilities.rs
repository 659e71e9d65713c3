//! `capabilities`: what an agent can do, by its own word where it tells, else by our table.

use super::known;
use crate::{Agentline, Error};
use agentline_core::{Agent, ModelInfo, RunRequest, Surface};
use serde::Serialize;

/// Where they are known from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum CapabilitySource {
    /// The agent told its models when a session was opened.
    Agent,
    /// Our table.
    Table,
}

/// What an agent can do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Capabilities {
    /// The agent's id.
    pub agent: &'static str,
    /// It has commands that begin with a slash.
    pub supports_slash_commands: bool,
    /// A model can be chosen.
    pub supports_models: bool,
    /// Which ones.
    pub models: Vec<ModelInfo>,
    /// It searches the web.
    pub supports_web_search: bool,
    /// It tells its reasoning, live or in what it saves.
    pub supports_thinking: bool,
    /// Where the models are known from.
    pub source: CapabilitySource,
}

impl Capabilities {
    /// What our table says of an agent.
    #[must_use]
    pub fn of(agent: &dyn Agent) -> Self {
        let has = agent.repertoire();
        let models = has.models.iter().map(|(id, name)| ModelInfo::new(*id, Some((*name).to_owned())));
        Self {
            agent: agent.card().id,
            supports_slash_commands: has.slash_commands,
            supports_models: true,
            models: models.collect(),
            supports_web_search: has.web_search,
            supports_thinking: has.thinking,
            source: CapabilitySource::Table,
        }
    }
}

/// What an agent can do. It is started, asked for its models and ended; where it is not here, cannot be asked or does not
/// tell, our table speaks. It takes as long as the agent's start, up to the request's start-up timeout.
///
/// # Errors
/// We know no such agent.
pub async fn capabilities(agentline: &Agentline, agent: &str) -> Result<Capabilities, Error> {
    let known = known(agentline, agent)?;
    let mut capabilities = Capabilities::of(known);
    let mut request = RunRequest::new("open").agent(known.card().id).surface(Surface::Acp);
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
