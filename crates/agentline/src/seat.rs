//! One run on a live process: the state that the loop needs to drive and end it.

use crate::{follow::Follower, gear::Sides, link::Driven, process::Census, workspace::Before};
use agentline_core::{
    Answer, Ask, Disk, Exit, Failure, Kind, Notice, Order, Outcome, Record, Ruling, Verdict,
};
use std::{
    future::Future,
    pin::Pin,
    sync::{Arc, OnceLock},
};
use tokio::sync::mpsc::UnboundedReceiver;

/// A future with the response to a request of the agent, and notices for the caller.
pub(crate) type Answered = Pin<Box<dyn Future<Output = (Vec<Notice>, Answer)> + Send>>;

/// Handles the agent's requests for one run.
pub(crate) type Answers = Arc<dyn Fn(Ask) -> Answered + Send + Sync>;

/// A run that is submitted to a live process.
pub(crate) struct Boarding {
    pub(crate) order: Order,
    pub(crate) seat: Seat,
}

/// The state of one run that the core does not have.
pub(crate) struct Seat {
    pub(crate) link: Driven,
    /// Notices to emit before any other event.
    pub(crate) notices: Vec<Notice>,
    pub(crate) follower: Follower,
    /// The initial state of the workspace.
    pub(crate) before: Option<Before>,
    pub(crate) answers: Answers,
    /// Lines from the tools that the host serves.
    pub(crate) sides: Option<UnboundedReceiver<String>>,
    /// The tool server of this run, which is closed with it.
    pub(crate) closing: Option<Sides>,
    /// Secrets to redact from all output while this run is active.
    pub(crate) secrets: Vec<String>,
    /// When the outcome is reported to the caller.
    pub(crate) tell: Tell,
    /// Values that must live as long as the run.
    pub(crate) keep: Vec<Box<dyn std::any::Any + Send>>,
    /// Whether its session is open.
    pub(crate) started: bool,
    /// Whether it only opens a session for other runs.
    pub(crate) only_opens: bool,
    /// The processes that existed before the prompt.
    pub(crate) census: Option<Census>,
    /// Events that wait for room in the channel.
    pub(crate) pending: Vec<Record>,
}

/// When the outcome of a run is reported to the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tell {
    /// Immediately, because the process continues to serve other runs.
    AtOnce,
    /// When the process and everything it started are gone, because it served only this run.
    WhenGone,
}

/// The reason why a dead process accepts no runs, for late submissions.
pub(crate) type Gone = Arc<OnceLock<Failure>>;

/// Rejects a run whose process was gone before the run could begin.
pub(crate) fn refuse(late: Boarding, why: Option<&Failure>) {
    let unknown = || Failure::new(Kind::Crashed, "the agent was gone already");
    let failure = why.cloned().unwrap_or_else(unknown);
    let outcome = Outcome::not_begun(&late.order.who, Verdict::Failed, failure);
    late.seat.link.finish(outcome);
}

/// Returns the failure for runs submitted to a process that exited this way.
pub(crate) fn gone_by(exit: Exit) -> Failure {
    let how = match exit {
        Exit::Code(code) => format!("it had exited with code {code}"),
        Exit::Signal(signal) => format!("signal {signal} had ended it"),
        _ => "it had been killed".to_owned(),
    };
    Failure::new(Kind::Crashed, format!("the agent was gone already: {how}"))
}

/// Returns a handler that accepts every answer and refuses every other request.
pub(crate) fn nobody() -> Answers {
    Arc::new(|ask| {
        let answer = match ask {
            Ask::Review { .. } => Answer::Accept { value: None },
            Ask::ReadFile { .. } | Ask::WriteFile { .. } => Answer::Error("files are not served".into()),
            _ => Answer::Ruled(Ruling::deny("agentline", "nobody is there to be asked")),
        };
        Box::pin(std::future::ready((Vec::new(), answer)))
    })
}

/// Returns the default response for a request whose handler failed.
pub(crate) fn lost_answer(ask: &Ask) -> Answer {
    const LOST: &str = "whoever was asked failed";
    match ask {
        Ask::Settle { .. } => {
            let mut disk = Disk::default();
            disk.unknown = true;
            Answer::Settled(disk)
        }
        Ask::Review { .. } => {
            Answer::Reject(Failure::new(Kind::Tool, "the check of the answer failed itself"))
        }
        Ask::ReadFile { .. } | Ask::WriteFile { .. } => Answer::Error(LOST.into()),
        _ => Answer::Ruled(Ruling::deny("agentline", LOST)),
    }
}
