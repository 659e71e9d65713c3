//! What is known before a run: who asks, from where, and the settings of all layers.

use crate::stop::Stop;
use agentline::{Agentline, Config, Layer, Problems, RunRequest, settings};
use std::path::{Path, PathBuf};

/// What is said about prices on a command line, as a layer.
pub(crate) fn prices_flag(file: Option<&Path>) -> Option<Layer> {
    let file = file?.to_string_lossy().into_owned();
    Some(Layer::flags([("prices_file".to_owned(), file.into())].into_iter().collect()))
}

/// Who asks, and the layers of settings that count here.
#[derive(Debug)]
pub(crate) struct Setup {
    agentline: Agentline,
    layers: Vec<Layer>,
    /// The workspace's file, where there is one.
    workspace_file: Option<PathBuf>,
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
        settings::build(&self.layers)
    }

    /// The handle that starts runs and the run itself, with what the settings say about both.
    pub(crate) fn equip(&self, config: &Config) -> (Agentline, RunRequest) {
        let mut here = self.agentline.here().clone();
        if let Some(folder) = self.workspace_file.as_deref().and_then(Path::parent) {
            here.project = folder.to_owned();
        }
        Agentline::new(here).equip(config)
    }
}
