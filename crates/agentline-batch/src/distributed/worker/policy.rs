//! What jobs may do on a worker. A job can never widen it.

use crate::distributed::DistributedError;
use agentline::request::{Sandbox, Trust};
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

    /// Returns whether another job may begin when runs have cost this much, with what is reserved for those in progress.
    pub(super) fn allows_cost(&self, usd: f64) -> bool {
        self.max_cost_usd.is_none_or(|most| usd < most)
    }

    /// Returns whether jobs may have every mode, and settings that allow more than their mode.
    pub(super) fn allows_everything(&self) -> bool {
        self.allows_mode(PermissionMode::Bypass)
    }

    /// Checks the request of a job. `own` is a request with the settings of the worker alone.
    pub(in super::super) fn check(
        &self,
        agentline: &Agentline,
        request: &RunRequest,
        own: &RunRequest,
    ) -> Result<(), DistributedError> {
        let refused = |key: &str, message: String| {
            let problem = Problem::new(key, message).hint("run it on a worker that allows this");
            Err(DistributedError::Refused(problem.into()))
        };
        if !self.allows_agent(agentline, &request.agent) {
            return refused("agent", format!("this worker does not run `{}`", request.agent));
        }
        if !self.allows_mode(request.permission_mode) {
            let mode = request.permission_mode.name();
            return refused("permission_mode", format!("this worker does not allow the mode `{mode}`"));
        }
        if !self.allows_everything() {
            if let Some(key) = beyond_mode(request) {
                return refused(key, "may allow more than the mode, which this worker limits".into());
            }
            if own.sandbox != Sandbox::Off && request.sandbox != own.sandbox {
                return refused("sandbox", "is not that of the worker, which limits modes".into());
            }
        }
        if request.pass_env.iter().any(|name| name == "*") {
            return refused("pass_env", "a job cannot pass all variables of a worker to its agent".into());
        }
        Ok(())
    }
}

/// Returns the name of a setting with which a request may allow an agent more than its permission mode does.
pub(in super::super) fn beyond_mode(request: &RunRequest) -> Option<&'static str> {
    let writes =
        request.allow_file_writes && request.permission_mode.is_stricter_than(PermissionMode::AcceptEdits);
    let settings = [
        ("mode_id", request.mode_id.is_some()),
        ("agent_args", request.agent_args.is_some()),
        ("allow", !request.allow.is_empty()),
        ("allow_file_writes", writes),
        ("trust", request.trust == Trust::Full),
        ("sandbox_profile", request.sandbox_profile.is_some()),
    ];
    settings.into_iter().find_map(|(name, is_set)| is_set.then_some(name))
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
        let check = |request: RunRequest| policy.check(&agentline, &request, &RunRequest::new("")).is_ok();
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

    #[test]
    fn settings_that_allow_more_than_a_mode_need_a_worker_without_a_limit() {
        let agentline = Agentline::new(agentline::HostEnv::new([].into(), "/", "/"));
        let key = |max_mode: PermissionMode, settings: serde_json::Value, own: &RunRequest| {
            let policy = WorkerPolicy { max_mode: Some(max_mode), ..WorkerPolicy::default() };
            let request: RunRequest = serde_json::from_value(settings).expect("a request");
            match policy.check(&agentline, &request, own) {
                Ok(()) => "",
                Err(DistributedError::Refused(problems)) => match problems.0[0].key.as_str() {
                    "sandbox" => "sandbox",
                    _ => beyond_mode(&request).expect("a setting"),
                },
                Err(error) => panic!("{error}"),
            }
        };
        let own = RunRequest::new("");
        for (name, settings) in [
            ("mode_id", serde_json::json!({"mode_id": "yolo"})),
            ("agent_args", serde_json::json!({"agent_args": ["--yolo"]})),
            ("allow", serde_json::json!({"allow": ["Bash"]})),
            ("allow_file_writes", serde_json::json!({"allow_file_writes": true})),
            ("trust", serde_json::json!({"trust": "full"})),
            ("sandbox_profile", serde_json::json!({"sandbox_profile": "open"})),
        ] {
            assert_eq!(key(PermissionMode::AcceptEdits, settings.clone(), &own), name);
            assert_eq!(key(PermissionMode::Bypass, settings, &own), "");
        }
        let mut sandboxed = RunRequest::new("");
        sandboxed.sandbox = Sandbox::On;
        assert_eq!(key(PermissionMode::Default, serde_json::json!({}), &sandboxed), "sandbox");
        assert_eq!(key(PermissionMode::Default, serde_json::json!({"sandbox": "on"}), &sandboxed), "");
        let edits = serde_json::json!({"permission_mode": "accept-edits", "allow_file_writes": true});
        assert_eq!(key(PermissionMode::AcceptEdits, edits, &own), "");
    }
}
