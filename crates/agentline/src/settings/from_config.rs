//! Applies a configuration to an [`Agentline`] and to the request of a run.

use crate::{agentline::Agentline, process::Supervisor};
use agentline_core::{Config, RunRequest, agents};
use std::path::PathBuf;

impl Agentline {
    /// Applies the machine's settings to this instance, and returns it with the configured run request, including the
    /// settings of its agent. Configured agents are added to those that the instance already has.
    #[must_use]
    pub fn with_config(mut self, config: &Config) -> (Self, RunRequest) {
        let mut request = config.request.clone();
        request.notices.clone_from(&config.notices);
        let registry = self.registry().clone().with_settings(&config.agents);
        for (agent, settings) in &config.agents {
            let found = registry.find(agent).ok();
            let named_by_variable = found.is_some_and(|found| {
                let info = found.info();
                let variables =
                    info.surfaces_by_program().map(|surface| info.for_surface(surface).path_variable);
                let env = &self.host_env().env;
                variables.into_iter().any(|name| env.get(name).is_some_and(|path| !path.is_empty()))
            });
            if named_by_variable && config.is_from_file(&format!("agents.{agent}.program")) {
                // The environment variable takes precedence over a program from a file.
                continue;
            }
            // Agents with a package are searched for; any other agent, and a path, is where its command says.
            let has_package = registry.find(agent).is_ok_and(|agent| !agent.info().package.is_empty());
            let is_built_in = agents::find(agent).is_ok();
            let is_named =
                |program: &&String| !is_built_in && (!has_package || program.contains(['/', '\\']));
            let command = settings.command.as_ref().and_then(|command| command.first()).filter(is_named);
            if let Some(program) = command.map(PathBuf::from).or_else(|| settings.program.clone()) {
                self = self.program(agent, program);
            }
        }
        let agent = registry.find(&request.agent);
        let id = agent.as_ref().map_or(request.agent.as_str(), |agent| agent.info().id);
        if let Some(settings) = config.agents.get(id) {
            for (name, value) in &settings.env {
                request.env.entry(name.clone()).or_insert_with(|| value.clone());
            }
            request.surface = request.surface.or(settings.surface);
            if agents::find(id).is_ok() {
                request.agent_args = request.agent_args.or_else(|| settings.args.clone());
            }
        }
        self = self.agents(registry);
        if let Some(program) = &config.supervisor {
            self = self.supervisor(Supervisor::Path(program.clone()));
        }
        if config.origins.get("isolation").is_some_and(|origin| origin != "default") {
            self = self.isolation(config.isolation);
        }
        // The caller's prices stay in effect unless the configuration has some.
        if config.origins.keys().any(|key| key.starts_with("prices.")) {
            self = self.prices(config.prices());
        }
        (self, request)
    }
}
