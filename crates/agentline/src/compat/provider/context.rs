//! The context of one call: the project, the prompt file and the timeouts.

use crate::compat::provider::ProviderError;
use agentline_core::{Problem, Problems, RunRequest};
use serde_json::{Map, Value};
use std::{
    path::{Path, PathBuf},
    time::Duration,
};

/// The settings of one call, as opposed to those of the provider.
///
/// ```
/// use agentline::provider::CallContext;
/// let context = CallContext::default().project_root("/srv/project").prompt_file("prompts/plan.md");
/// let map = serde_json::json!({"project_root": "/srv/project", "prompt_file": "prompts/plan.md", "phase": "plan"});
/// assert_eq!(CallContext::from_map(map.as_object().unwrap()).unwrap(), context);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CallContext {
    /// The working directory, unless the configuration has a `working_dir`.
    pub project_root: Option<PathBuf>,
    /// A file that the agent is instructed to read instead of receiving the prompt.
    pub prompt_file: Option<PathBuf>,
    /// The time limit for the agent's first output; overrides `startup_timeout`.
    pub connection_timeout: Option<Duration>,
    /// The time limit for the whole call; overrides `timeout`.
    pub response_timeout: Option<Duration>,
}

impl CallContext {
    /// Reads `project_root` and `prompt_file` from an engine's map and ignores all other keys.
    ///
    /// # Errors
    /// Returns an error if one of the two is not a string.
    pub fn from_map(map: &Map<String, Value>) -> Result<Self, ProviderError> {
        let mut problems = Vec::new();
        let mut path = |key: &str| match map.get(key) {
            None | Some(Value::Null) => None,
            Some(Value::String(text)) => Some(PathBuf::from(text)),
            Some(_) => {
                problems.push(
                    Problem::new(key, format!("{key} must be a string")).hint("pass the path as a string"),
                );
                None
            }
        };
        let (project_root, prompt_file) = (path("project_root"), path("prompt_file"));
        Problems(problems).into_result()?;
        Ok(Self { project_root, prompt_file, ..Self::default() })
    }

    /// Sets the working directory, unless the configuration has a `working_dir`.
    #[must_use]
    pub fn project_root(mut self, folder: impl Into<PathBuf>) -> Self {
        self.project_root = Some(folder.into());
        self
    }

    /// Makes the agent read this file, resolved against the workspace, then against the project.
    #[must_use]
    pub fn prompt_file(mut self, file: impl Into<PathBuf>) -> Self {
        self.prompt_file = Some(file.into());
        self
    }

    /// Sets the time limit for the agent's first output.
    #[must_use]
    pub fn connection_timeout(mut self, time: Duration) -> Self {
        self.connection_timeout = Some(time);
        self
    }

    /// Sets the time limit for the whole call.
    #[must_use]
    pub fn response_timeout(mut self, time: Duration) -> Self {
        self.response_timeout = Some(time);
        self
    }

    /// Builds the request of one call.
    pub(super) fn apply(
        &self,
        mut request: RunRequest,
        prompt: &str,
        system_prompt: Option<&str>,
        cwd: &Path,
    ) -> RunRequest {
        request.working_dir = request.working_dir.or_else(|| self.project_root.clone());
        request.timeout = self.response_timeout.unwrap_or(request.timeout);
        request.startup_timeout = self.connection_timeout.unwrap_or(request.startup_timeout);
        if let Some(system) = system_prompt {
            request.system_prompt = Some(system.to_owned());
        }
        match &self.prompt_file {
            Some(file) => request.prompt_file = Some(self.find(file, request.working_dir.as_deref(), cwd)),
            None => prompt.clone_into(&mut request.prompt),
        }
        request
    }

    /// Resolves the prompt file. Engines name it relative to the project, agents relative to the workspace; usually
    /// both are the same directory.
    fn find(&self, file: &Path, workspace: Option<&Path>, cwd: &Path) -> PathBuf {
        let workspace = cwd.join(workspace.unwrap_or(Path::new("")));
        let project = self.project_root.iter().map(|root| cwd.join(root).join(file));
        let mut candidates = std::iter::once(workspace.join(file)).chain(project);
        candidates.find(|path| path.is_file()).unwrap_or_else(|| workspace.join(file))
    }
}
