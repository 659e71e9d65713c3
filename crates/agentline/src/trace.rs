//! The spans and events that the library emits through `tracing`. Fields are ids, names, numbers and verdicts: never a
//! prompt, an answer, a path, an argument or a message.

use agentline_core::{Event, Outcome, PermissionEvent, RunInfo, Surface, ToolResult};
use tracing::{Span, debug, field, info, info_span, warn};

/// Reports that a request is valid and its agent was found.
pub(crate) fn resolved(info: &RunInfo) {
    let version = info.agent_version.as_deref();
    debug!(run_id = info.run_id, agent = &*info.agent, surface = name(info.surface), version, "resolved");
}

/// Reports a new process, and warns if nothing would end it after the death of this program.
pub(crate) fn spawned(run_id: &str, pid: Option<u32>, is_supervised: bool) {
    info!(run_id, pid, is_supervised, "spawned");
    if cfg!(unix) && !is_supervised {
        warn!(run_id, "no supervisor: call agentline::init first in main");
    }
}

/// Reports that a run is retried. The event is between two turns, so it belongs to no span.
pub(crate) fn retried(run_id: &str, event: &Event) {
    if let Event::Retry { attempt, wait_ms, .. } = event {
        warn!(run_id, attempt, wait_ms, "retry");
    }
}

/// The span of one turn: a prompt on a process, from its submission to its verdict.
#[derive(Debug)]
pub(crate) struct TurnSpan(Span);

impl TurnSpan {
    pub(crate) fn new(info: &RunInfo) -> Self {
        Self(info_span!("turn", run_id = info.run_id, agent = &*info.agent, surface = name(info.surface)))
    }

    /// Reports an event of the run if it is a boundary.
    pub(crate) fn event(&self, event: &Event) {
        let parent = &self.0;
        match event {
            Event::Started(started) => {
                let (session_id, model) = (started.session_id.as_deref(), started.model.as_deref());
                info!(parent: parent, session_id, model, "session opened");
            }
            Event::ToolUse(tool) => {
                info!(parent: parent, tool_use_id = tool.id, tool = tool.name, "tool called");
            }
            Event::ToolResult(ToolResult { tool_use_id, status, .. }) => {
                info!(parent: parent, tool_use_id, ?status, "tool finished");
            }
            Event::Permission(PermissionEvent { tool_use_id, tool, decision, by, .. }) => {
                debug!(parent: parent, tool_use_id, tool, decision, by, "permission decided");
            }
            Event::Warning { code, .. } => warn!(parent: parent, code, "warning"),
            _ => {}
        }
    }

    /// Reports the end of the run.
    pub(crate) fn ended(&self, outcome: &Outcome) {
        self.0.in_scope(|| ended(outcome));
    }
}

/// Reports the verdict of a run.
pub(crate) fn ended(outcome: &Outcome) {
    let error = outcome.error.as_ref().map(|error| field::debug(error.kind));
    let (run_id, duration_ms) = (&outcome.run_id, outcome.duration_ms);
    info!(run_id, verdict = outcome.verdict.name(), error, duration_ms, "ended");
}

fn name(surface: Option<Surface>) -> Option<&'static str> {
    surface.map(Surface::name)
}
