//! Hands settings to where they count: to the machine's handle, and to the request of a run.

use crate::{agentline::Agentline, process::Supervisor};
use agentline_core::{Config, RunRequest, agents};

impl Agentline {
    /// Gives the handle what the settings say about this machine, and returns with it the run that they describe, with
    /// what they say about its agent.
    #[must_use]
    pub fn equip(mut self, config: &Config) -> (Self, RunRequest) {
        let mut request = config.request.clone();
        for (agent, settings) in &config.agents {
            if let Some(program) = &settings.program {
                self = self.program(agent, program);
            }
        }
        let id = agents::find(&request.agent).map_or(request.agent.as_str(), |agent| agent.card().id);
        if let Some(settings) = config.agents.get(id) {
            for (name, value) in &settings.env {
                request.env.entry(name.clone()).or_insert_with(|| value.clone());
            }
            request.surface = request.surface.or(settings.surface);
        }
        if let Some(program) = &config.supervisor {
            self = self.supervisor(Supervisor::Path(program.clone()));
        }
        // The caller's own prices stand unless the settings have some.
        if config.origins.keys().any(|key| key.starts_with("prices.")) {
            self = self.prices(config.prices.clone());
        }
        (self, request)
    }
}
