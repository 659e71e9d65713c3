//! What jobs may do on a worker. A job can never widen it.

use crate::distributed::DistributedError;
use agentline::{Agentline, PermissionMode, Problem, RunRequest};
use agentline_core::agents::split_version;

/// What jobs may do on a worker.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct WorkerPolicy {
    /// The agents that jobs may use; all that are ready if it is absent.
    pub agents: Option<Vec<String>>,
    /// The loosest permission mode that jobs may have.
    pub max_mode: Option<PermissionMode>,
    /// What all runs of this worker may cost in US dollars, after which it claims nothing more.
    pub max_cost_usd: Option<f64>,
}

impl WorkerPolicy {
    /// Returns whether jobs may use an agent.
    pub(super) fn allows_agent(&self, agentline: &Agentline, name: &str) -> bool {
        let id = |name: &str| {
            let bare = split_version(name).0;
            agentline
                .registry()
                .find(bare)
                .map_or_else(|_| bare.to_owned(), |agent| agent.info().id.to_owned())
        };
        self.agents.as_ref().is_none_or(|agents| agents.iter().any(|agent| id(agent) == id(name)))
    }

    /// Returns whether jobs may have a mode.
    pub(super) fn allows_mode(&self, mode: PermissionMode) -> bool {
        self.max_mode.is_none_or(|most| mode == most || mode.is_stricter_than(most))
    }

    /// Checks the request of a job.
    pub(in super::super) fn check(
        &self,
        agentline: &Agentline,
        request: &RunRequest,
    ) -> Result<(), DistributedError> {
        let refused = |key: &str, message: String| {
            let problem = Problem::new(key, message).hint("run it on a worker that allows this");
            Err(DistributedError::Invalid(problem.into()))
        };
        if !self.allows_agent(agentline, &request.agent) {
            return refused("agent", format!("this worker does not run `{}`", request.agent));
        }
        if !self.allows_mode(request.permission_mode) {
            let mode = request.permission_mode.name();
            return refused("permission_mode", format!("this worker does not allow the mode `{mode}`"));
        }
        if request.pass_env.iter().any(|name| name == "*") {
            return refused("pass_env", "a job cannot pass all variables of a worker to its agent".into());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn job_cannot_widen_the_policy() {
        let agentline = Agentline::new(agentline::HostEnv::new([].into(), "/", "/"));
        let policy = WorkerPolicy {
            agents: Some(vec!["gemini".into()]),
            max_mode: Some(PermissionMode::AcceptEdits),
            max_cost_usd: None,
        };
        let check = |request: RunRequest| policy.check(&agentline, &request).is_ok();
        assert!(check(RunRequest::new("")));
        assert!(check(RunRequest::new("").permission_mode(PermissionMode::Plan)));
        assert!(!check(RunRequest::new("").permission_mode(PermissionMode::Bypass)));
        let mut claude = RunRequest::new("");
        claude.agent = "claude@2.1.0".into();
        assert!(!check(claude));
        let mut all = RunRequest::new("");
        all.pass_env = vec!["*".into()];
        assert!(!check(all));
    }
}
