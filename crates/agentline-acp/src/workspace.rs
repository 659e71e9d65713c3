//! The settings that apply in the directories that a client names.

use crate::failure::{ErrorResponse, INVALID_PARAMS};
use agentline::{Agent, Agentline, Problems, RunRequest};
use agentline_core::{Redactor, Secrets};
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

    /// Returns a redactor of the secrets in the settings and in the caller's environment. Blocks.
    pub(crate) fn redactor(&self) -> Redactor {
        let mut secrets = Secrets::default();
        secrets.add_variables(&self.request.env);
        secrets.add_servers(self.request.mcp_servers.values());
        self.agentline.redactor().and(&secrets.into_vec())
    }

    /// Gives each process of a connection a tape of its own: the second one of `a.tape.jsonl` is `a.2.tape.jsonl`.
    pub(crate) fn number_tape(&mut self, number: u32) {
        let Some(path) = self.request.record.as_mut().filter(|_| number > 1) else { return };
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let end = [".tape.jsonl", ".jsonl"].into_iter().find(|end| name.ends_with(end)).unwrap_or_default();
        let stem = name.strip_suffix(end).unwrap_or(&name);
        path.set_file_name(format!("{stem}.{number}{end}"));
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

#[cfg(test)]
mod tests {
    use super::*;
    use agentline::detect::HostEnv;

    #[test]
    fn every_process_has_its_own_tape() {
        let agentline = Agentline::new(HostEnv::new(Default::default(), "/home", "/"));
        for (path, expected) in
            [("/a/s.tape.jsonl", "/a/s.2.tape.jsonl"), ("s.jsonl", "s.2.jsonl"), ("a.b/tape", "a.b/tape.2")]
        {
            let mut request = RunRequest::default();
            request.record = Some(path.into());
            let mut workspace = Workspace::new(agentline.clone(), request);
            workspace.number_tape(1);
            assert_eq!(workspace.request.record.as_deref(), Some(Path::new(path)));
            workspace.number_tape(2);
            assert_eq!(workspace.request.record.as_deref(), Some(Path::new(expected)));
        }
    }
}
