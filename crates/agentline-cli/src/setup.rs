//! What is known before a run: who asks, from where, and the settings of all layers.

use crate::stop::Stop;
use agentline::{
    Agentline, Config, Layer, Problems, RunRequest, core::agents, process::Supervisor, settings,
};
use std::path::{Path, PathBuf};

/// Who asks, and the layers of settings that count here.
#[derive(Debug)]
pub(crate) struct Setup {
    agentline: Agentline,
    layers: Vec<Layer>,
    /// The workspace's file, where there is one.
    pub(crate) workspace_file: Option<PathBuf>,
}

impl Setup {
    /// Reads the layers that count for a workspace, with what was typed on top.
    pub(crate) fn read(workspace: Option<&Path>, flags: Option<Layer>) -> Result<Self, Stop> {
        let agentline = Agentline::from_env()?;
        let here = agentline.here();
        let (home, cwd) = (here.home.clone(), here.cwd.clone());
        let workspace = workspace.map_or_else(|| cwd.clone(), |dir| cwd.join(dir));
        let mut layers = settings::find_layers(&workspace, Some(&home), std::env::vars_os());
        layers.extend(flags.map(|flags| flags.base(cwd)));
        let workspace_file = settings::workspace_file(&workspace, Some(&home));
        Ok(Self { agentline, layers, workspace_file })
    }

    /// The settings that are in force.
    pub(crate) fn config(&self) -> Result<Config, Problems> {
        Config::build(&self.layers)
    }

    /// The handle that starts runs, with what the settings say about this machine.
    pub(crate) fn agentline(&self, config: &Config) -> Agentline {
        let mut here = self.agentline.here().clone();
        if let Some(folder) = self.workspace_file.as_deref().and_then(Path::parent) {
            here.project = folder.to_owned();
        }
        let mut agentline = Agentline::new(here).prices(config.prices.clone());
        for (agent, settings) in &config.agents {
            if let Some(program) = &settings.program {
                agentline = agentline.program(agent, program);
            }
        }
        if let Some(program) = &config.supervisor {
            agentline = agentline.supervisor(Supervisor::Path(program.clone()));
        }
        agentline
    }

    /// What a run is like, with what the settings say about its agent.
    pub(crate) fn request(&self, config: &Config) -> RunRequest {
        let mut request = config.request.clone();
        let id = agents::find(&request.agent).map_or(request.agent.as_str(), |agent| agent.card().id);
        if let Some(settings) = config.agents.get(id) {
            for (name, value) in &settings.env {
                request.env.entry(name.clone()).or_insert_with(|| value.clone());
            }
            request.surface = request.surface.or(settings.surface);
        }
        request
    }
}
