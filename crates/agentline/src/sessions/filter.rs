//! Which sessions are meant.

use agentline_core::{Millis, SessionInfo};
use std::path::PathBuf;

/// Which sessions are meant; without anything, all that a person had with an agent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Filter {
    /// Only of these agents, by id or alias.
    pub agents: Vec<String>,
    /// Only of this project, by any path that leads to it or once did.
    pub project: Option<PathBuf>,
    /// Only with something said at this time or later.
    pub since: Option<Millis>,
    /// Only with something said before this time.
    pub until: Option<Millis>,
    /// Those of sub-agents too.
    pub sub_agents: bool,
    /// Those in which nobody said anything too.
    pub empty: bool,
}

impl Filter {
    /// All that a person had with an agent.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Only of this agent; asked for again, of that one too.
    #[must_use]
    pub fn agent(mut self, name: impl Into<String>) -> Self {
        self.agents.push(name.into());
        self
    }

    /// Only of this project.
    #[must_use]
    pub fn project(mut self, path: impl Into<PathBuf>) -> Self {
        self.project = Some(path.into());
        self
    }

    /// Only with something said at this time or later.
    #[must_use]
    pub fn since(mut self, at: Millis) -> Self {
        self.since = Some(at);
        self
    }

    /// Only with something said before this time.
    #[must_use]
    pub fn until(mut self, at: Millis) -> Self {
        self.until = Some(at);
        self
    }

    /// Those of sub-agents too.
    #[must_use]
    pub fn sub_agents(mut self, with: bool) -> Self {
        self.sub_agents = with;
        self
    }

    /// Those in which nobody said anything too.
    #[must_use]
    pub fn empty(mut self, with: bool) -> Self {
        self.empty = with;
        self
    }

    /// Whether a session was alive in the time that is meant. One that does not tell its times is not left out.
    pub(super) fn in_time(&self, info: &SessionInfo) -> bool {
        let ended_before = |since: Millis| info.updated.or(info.started).is_some_and(|at| at < since);
        let began_after = |until: Millis| info.started.or(info.updated).is_some_and(|at| at >= until);
        !self.since.is_some_and(ended_before) && !self.until.is_some_and(began_after)
    }
}
