//! One run on a live process: the state that the loop needs to drive and end it.

use crate::{
    process::ProcessSnapshot,
    run::{channel::RunSender, session_follower::Follower, tool_server::ToolServer},
    trace::TurnSpan,
    workspace::WorkspaceBefore,
};
use agentline_core::{
    DiskReport, ExitReason, Failure, FailureKind, HostRequest, HostResponse, Notice, Outcome,
    PermissionDecision, Record, Redactor, TurnSpec, Verdict,
};
use std::{
    future::Future,
    pin::Pin,
    sync::{Arc, OnceLock},
};
use tokio::sync::mpsc::UnboundedReceiver;

/// A future with the response to a request from the agent, and notices for the caller.
pub(crate) type RequestAnswer = Pin<Box<dyn Future<Output = (Vec<Notice>, HostResponse)> + Send>>;

/// Handles the agent's requests for one run.
///
/// The redactor has the secrets of the process and of its runs.
pub(crate) type RequestAnswers = Arc<dyn Fn(HostRequest, Redactor) -> RequestAnswer + Send + Sync>;

/// A run that is submitted to a live process.
pub(crate) struct Submission {
    pub(crate) spec: TurnSpec,
    pub(crate) active_run: ActiveRun,
}

/// The state of one run that the core does not have.
pub(crate) struct ActiveRun {
    pub(crate) channel: RunSender,
    pub(crate) span: TurnSpan,
    /// Notices to emit before any other event.
    pub(crate) notices: Vec<Notice>,
    pub(crate) follower: Follower,
    /// The initial state of the workspace.
    pub(crate) before: Option<WorkspaceBefore>,
    pub(crate) answers: RequestAnswers,
    /// Lines from the tools that the host serves.
    pub(crate) tool_lines: Option<UnboundedReceiver<String>>,
    /// The tool server of this run, which is closed with it.
    pub(crate) exclusive_tool_server: Option<ToolServer>,
    /// Secrets to redact from all output while this run is active.
    pub(crate) secrets: Vec<String>,
    /// When the outcome is reported to the caller.
    pub(crate) completion: CompletionTiming,
    /// Values that must live as long as the run.
    pub(crate) keep: Vec<Box<dyn std::any::Any + Send>>,
    /// Whether it only opens a session for other runs.
    pub(crate) only_opens: bool,
    /// The processes that existed before the prompt.
    pub(crate) processes: Option<ProcessSnapshot>,
    /// Events that wait for room in the channel.
    pub(crate) pending: Vec<Record>,
}

/// The time at which the outcome of a run is reported to the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CompletionTiming {
    /// Immediately, because the process continues to serve other runs.
    AtOnce,
    /// When the process and everything it started are gone, because it served only this run.
    AfterExit,
}

/// The reason why a dead process accepts no runs, for late submissions.
pub(crate) type UnavailableReason = Arc<OnceLock<Failure>>;

/// Rejects a run whose process was gone before the run could begin.
pub(crate) fn refuse(late: Submission, reason: Option<&Failure>) {
    let unknown = || Failure::new(FailureKind::Crashed, "the agent had already exited");
    let failure = reason.cloned().unwrap_or_else(unknown);
    let outcome = Outcome::not_started(&late.spec.info, Verdict::Failed, failure);
    late.active_run.span.ended(&outcome);
    late.active_run.channel.finish(outcome);
}

/// Returns the failure for runs submitted to a process that exited this way.
pub(crate) fn exit_failure(exit: ExitReason) -> Failure {
    let exit = match exit {
        ExitReason::Code(code) => format!("exit code {code}"),
        ExitReason::Signal(signal) => format!("signal {signal}"),
        _ => "killed".to_owned(),
    };
    Failure::new(FailureKind::Crashed, format!("the agent had already exited: {exit}"))
}

/// Returns a handler that accepts every answer and refuses every other request.
pub(crate) fn no_answers() -> RequestAnswers {
    Arc::new(|ask, _| {
        let answer = match ask {
            HostRequest::Validate { .. } => HostResponse::Accept { value: None },
            HostRequest::ReadFile { .. } | HostRequest::WriteFile { .. } => {
                HostResponse::Error("file access is not available".into())
            }
            _ => HostResponse::PermissionDecided(PermissionDecision::deny(
                "agentline",
                "there is no user or handler to ask",
            )),
        };
        Box::pin(std::future::ready((Vec::new(), answer)))
    })
}

/// Returns the default response for a request whose handler failed.
pub(crate) fn lost_answer(ask: &HostRequest) -> HostResponse {
    const LOST: &str = "the handler of the request failed";
    match ask {
        HostRequest::CollectChanges { .. } => {
            let mut disk = DiskReport::default();
            disk.unknown = true;
            HostResponse::ChangesCollected(disk)
        }
        HostRequest::Validate { .. } => HostResponse::Reject(Failure::new(
            FailureKind::Tool,
            "internal error: the check of the answer panicked",
        )),
        HostRequest::ReadFile { .. } | HostRequest::WriteFile { .. } => HostResponse::Error(LOST.into()),
        _ => HostResponse::PermissionDecided(PermissionDecision::deny("agentline", LOST)),
    }
}

/// Removes files of the run that would harm the user's sessions.
pub(crate) fn remove_leftovers(active_run: &ActiveRun) {
    for file in active_run.follower.leftovers() {
        // The file may be gone already.
        let _ = std::fs::remove_file(file);
    }
}
