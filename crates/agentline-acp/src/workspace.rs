//! The settings that apply in the directories that a client names.

use crate::failure::{ErrorResponse, INVALID_PARAMS};
use agentline::{Agent, Agentline, Problems, RunRequest};
use std::{fmt, path::Path, sync::Arc};

/// The settings that apply in one workspace.
#[derive(Clone, Debug)]
pub struct Workspace {
    pub(crate) agentline: Agentline,
    pub(crate) request: RunRequest,
}

impl Workspace {
    /// Creates the settings of a workspace: its agents, and the request that applies to each prompt. The request names the
    /// agent, the directory, rules, mode and limits; its prompt is ignored.
    #[must_use]
    pub fn new(agentline: Agentline, request: RunRequest) -> Self {
        Self { agentline, request }
    }

    pub(crate) fn find_agent(&self) -> Option<Arc<dyn Agent>> {
        self.agentline.registry().find(&self.request.agent).ok()
    }
}

type Configure = dyn Fn(&Path) -> Result<Workspace, Problems> + Send + Sync;

/// Returns the settings for a directory, or the reason why a client cannot use it.
#[derive(Clone)]
pub(crate) struct WorkspaceSettings(Arc<Configure>);

impl fmt::Debug for WorkspaceSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkspaceSettings").finish_non_exhaustive()
    }
}

impl WorkspaceSettings {
    pub(crate) fn new(
        configure: impl Fn(&Path) -> Result<Workspace, Problems> + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(configure))
    }

    pub(crate) fn of(&self, directory: &Path) -> Result<Workspace, Problems> {
        (self.0)(directory)
    }

    /// Returns the settings for a directory that a client names.
    pub(crate) fn of_client(&self, directory: &Path) -> Result<Workspace, ErrorResponse> {
        if !directory.is_absolute() {
            let message = format!("the directory `{}` is not absolute", directory.display());
            return Err(ErrorResponse::new(INVALID_PARAMS, message));
        }
        Ok(self.of(directory)?)
    }
}
