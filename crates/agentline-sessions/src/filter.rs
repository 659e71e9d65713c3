//! Selects sessions.

use agentline_core::{AgentId, Millis, SessionInfo};
use std::path::PathBuf;

/// Selects sessions. The default selects all sessions with content, except those of sub-agents.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SessionFilter {
    /// Only sessions of these agents, by id or alias.
    pub agents: Vec<AgentId>,
    /// Only sessions of this project, given by any current or former path of it.
    pub project: Option<PathBuf>,
    /// Only sessions active at or after this time.
    pub since: Option<Millis>,
    /// Only sessions active before this time.
    pub until: Option<Millis>,
    /// Whether to include sessions of sub-agents.
    pub sub_agents: bool,
    /// Whether to include sessions without a prompt or an answer.
    pub empty: bool,
}

impl SessionFilter {
    /// Creates the default filter: all sessions with content, except those of sub-agents.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an agent to select, by id or alias.
    #[must_use]
    pub fn agent(mut self, name: impl Into<AgentId>) -> Self {
        self.agents.push(name.into());
        self
    }

    /// Selects only sessions of this project.
    #[must_use]
    pub fn project(mut self, path: impl Into<PathBuf>) -> Self {
        self.project = Some(path.into());
        self
    }

    /// Selects only sessions active at or after this time.
    #[must_use]
    pub fn since(mut self, at: Millis) -> Self {
        self.since = Some(at);
        self
    }

    /// Selects only sessions active before this time.
    #[must_use]
    pub fn until(mut self, at: Millis) -> Self {
        self.until = Some(at);
        self
    }

    /// Sets whether sessions of sub-agents are included.
    #[must_use]
    pub fn sub_agents(mut self, with: bool) -> Self {
        self.sub_agents = with;
        self
    }

    /// Sets whether sessions without a prompt or an answer are included.
    #[must_use]
    pub fn empty(mut self, with: bool) -> Self {
        self.empty = with;
        self
    }

    /// Returns whether a session overlaps the selected time. A session without timestamps is included.
    pub(crate) fn in_time(&self, info: &SessionInfo) -> bool {
        let ended_before = |since: Millis| info.updated.or(info.started).is_some_and(|at| at < since);
        let began_after = |until: Millis| info.started.or(info.updated).is_some_and(|at| at >= until);
        !self.since.is_some_and(ended_before) && !self.until.is_some_and(began_after)
    }
}
