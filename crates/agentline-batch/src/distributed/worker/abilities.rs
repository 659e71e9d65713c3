//! What a worker can run: which agents are ready, in which versions, and with which labels and variables.

use super::{WorkerOptions, WorkerShared};
use crate::distributed::spec::Requirements;
use crate::execute::requests::resolve;
use agentline::detect::detect;
use agentline::{Agentline, PermissionMode, request::Trust};
use agentline_core::Version;
use agentline_core::agents::split_version;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// How long the result of looking for an agent is used. The user may install one, or sign in, while the worker runs.
const FRESH: Duration = Duration::from_secs(30);

/// What a worker can run.
pub(super) struct Abilities {
    agentline: Agentline,
    options: WorkerOptions,
    known: HashMap<String, (bool, Instant)>,
}

impl Abilities {
    pub(super) fn new(shared: &WorkerShared) -> Self {
        Self { agentline: shared.agentline.clone(), options: shared.options.clone(), known: HashMap::new() }
    }

    /// Returns the ids of the agents that are ready.
    pub(super) fn agents(&mut self) -> Vec<String> {
        let ids: Vec<String> = match &self.options.policy.agents {
            Some(agents) => agents.clone(),
            // Agents of the user's settings are in the registry with these settings only.
            None => {
                let own = resolve(&self.agentline, &serde_json::Map::new());
                let agentline = own.map_or_else(|_| self.agentline.clone(), |(agentline, _)| agentline);
                agentline.registry().all().iter().map(|agent| agent.info().id.to_owned()).collect()
            }
        };
        ids.into_iter().filter(|id| self.has_agent(id)).collect()
    }

    /// Returns whether this worker can run jobs with these requirements.
    pub(super) fn cover(&mut self, requirements: &Requirements) -> bool {
        let is_allowed = requirements.modes.iter().all(|mode| {
            PermissionMode::parse(mode).is_some_and(|mode| self.options.policy.allows_mode(mode))
        });
        let has_labels = requirements.labels.iter().all(|label| self.options.labels.contains(label));
        let env = &self.agentline.host_env().env;
        let has_variables = requirements.variables.iter().all(|name| env.contains_key(name));
        is_allowed
            && (!requirements.is_beyond_modes || self.options.policy.allows_everything())
            && has_labels
            && has_variables
            && requirements.agents.iter().all(|agent| {
                self.options.policy.allows_agent(&self.agentline, agent) && self.has_agent(agent)
            })
    }

    /// Returns whether an agent, possibly with a version, is installed and, unless it was named by the operator, signed in.
    fn has_agent(&mut self, name: &str) -> bool {
        if let Some((has, at)) = self.known.get(name)
            && at.elapsed() < FRESH
        {
            return *has;
        }
        let has = tokio::task::block_in_place(|| self.find(name));
        self.known.insert(name.to_owned(), (has, Instant::now()));
        has
    }

    fn find(&self, name: &str) -> bool {
        let (bare, version) = split_version(name);
        // The settings of the user may name the program.
        let own = serde_json::Map::from_iter([("agent".to_owned(), bare.into())]);
        let Ok((agentline, _)) = resolve(&self.agentline, &own) else {
            return false;
        };
        let Ok(agent) = agentline.registry().find(bare) else { return false };
        let report = agentline.doctor_of(&*agent, &agentline.host_env().cwd, Trust::default());
        let Some(found) = report.agents.first() else { return false };
        let is_named = self.options.policy.agents.is_some();
        match version {
            None => found.ready || (is_named && found.installed),
            Some(version) => {
                let is_version = |found: &Version| found.to_string() == version;
                let mut host_env = agentline.host_env().clone();
                host_env.version = Some(version.to_owned());
                found.version.as_ref().is_some_and(is_version)
                    || detect(&*agent, &host_env).version.as_ref().is_some_and(is_version)
            }
        }
    }
}
