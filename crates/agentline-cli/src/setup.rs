//! The environment of a command: the `Agentline` handle and the settings of all layers.

use crate::error::CommandError;
use agentline::{
    Agentline, Problems, RunRequest,
    config::{ChangedTrust, Settings},
    trust::TRUST_CHANGED,
};
use agentline_core::{Config, Layer};
use std::path::Path;

/// Returns the `--prices` flag as a layer of settings.
pub(crate) fn prices_flag(file: Option<&Path>) -> Option<Layer> {
    let file = file?.to_string_lossy().into_owned();
    Some(Layer::flags([("prices_file".to_owned(), file.into())].into_iter().collect()))
}

/// The `Agentline` handle and the settings that apply here.
#[derive(Debug)]
pub(crate) struct Setup {
    agentline: Agentline,
    settings: Settings,
}

impl Setup {
    /// Reads the settings for a workspace, with the flags as the top layer.
    pub(crate) fn read(workspace: Option<&Path>, flags: Option<Layer>) -> Result<Self, CommandError> {
        let agentline = Agentline::from_env()?;
        let host_env = agentline.host_env();
        let above = flags.into_iter().map(|flags| flags.base(host_env.cwd.clone())).collect();
        let settings =
            Settings::find(&host_env.cwd, workspace, Some(&host_env.home), std::env::vars_os(), above);
        Ok(Self { agentline, settings })
    }

    /// Returns the effective settings.
    pub(crate) fn config(&self) -> Result<Config, Problems> {
        self.settings.build()
    }

    /// Returns the changes since the user trusted the workspace, unless the settings set its trust explicitly.
    pub(crate) fn changed_trust(&self, config: &Config) -> Option<&ChangedTrust> {
        let is_lost = config.notices.iter().any(|notice| notice.code == TRUST_CHANGED);
        self.settings.changed.as_ref().filter(|_| is_lost)
    }

    /// Returns a handle and a run request with the settings applied.
    pub(crate) fn with_config(&self, config: &Config) -> (Agentline, RunRequest) {
        let mut host_env = self.agentline.host_env().clone();
        if let Some(folder) = self.settings.workspace_file.as_deref().and_then(Path::parent) {
            host_env.project = folder.to_owned();
        }
        Agentline::new(host_env).with_config(config)
    }
}
