//! A resolved run: everything that is known about it before a process is chosen, from one read of the disk.

use crate::{
    agentline::Inner,
    resolve::{
        PlannedRun, StartFailure, not_ready_in_time, preparation_time,
        spec::{ProcessSpec, ResolvedRun},
    },
    run::options::RunOptions,
    tools::RunningTools,
};
use agentline_core::{Outcome, RunRequest};
use std::time::Duration;

/// A resolved run. A cold start, the pool, the cache and a conversation all read it.
pub(crate) struct ResolvedStart {
    /// The process that serves the run.
    pub(crate) process: ProcessSpec,
    /// The session and the turn.
    pub(crate) run: ResolvedRun,
    /// The options of the caller, with the schema of the request.
    pub(crate) options: RunOptions,
    /// The tools that the agent finds in its settings.
    pub(crate) served: Option<RunningTools>,
}

/// A run that has not started yet.
pub(crate) enum PendingStart {
    Planned(Box<(PlannedRun, RunOptions)>),
    Resolved(Box<ResolvedStart>),
}

impl PendingStart {
    /// Resolves the run, unless that is done. Blocks.
    pub(crate) fn resolve(self, inner: &Inner) -> Result<Box<ResolvedStart>, StartFailure> {
        match self {
            Self::Planned(planned) => inner.resolve(planned.0, &planned.1),
            Self::Resolved(resolved) => Ok(resolved),
        }
    }

    fn request(&self) -> &RunRequest {
        match self {
            Self::Planned(planned) => &planned.0.plan.request,
            Self::Resolved(resolved) => &resolved.run.plan.request,
        }
    }

    /// Returns how long the preparation may take, and the outcome of a run that takes longer.
    pub(crate) fn limit(&self) -> (Duration, Outcome) {
        (preparation_time(self.request()), not_ready_in_time(self.request()))
    }
}

impl Inner {
    /// Resolves a planned run: finds the program and the workspace, serves the tools that the agent's settings must
    /// name, and builds the launch. Blocks. Must be called inside a runtime.
    pub(crate) fn resolve(
        &self,
        planned: PlannedRun,
        options: &RunOptions,
    ) -> Result<Box<ResolvedStart>, StartFailure> {
        let mut checked = self.check(planned)?;
        let options = self.with_schema(&mut checked, options)?;
        // An ACP session receives its servers when it is opened; other runs find them in the agent's settings.
        let mut served = None;
        if !checked.plan.is_live {
            let servers = &checked.plan.request.mcp_servers;
            served = self.serve(&*checked.agent, &checked.context.cwd, &RunOptions::default(), servers)?;
        }
        let (process, run) = self.launch(checked, served.as_ref().map(RunningTools::servers))?;
        Ok(Box::new(ResolvedStart { process, run, options, served }))
    }
}
