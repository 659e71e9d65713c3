//! One run on a live process: what the loop must have at hand to drive it, and to end it.

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

/// What the host says to a question, and what the caller should hear about it.
pub(crate) type Answered = Pin<Box<dyn Future<Output = (Vec<Notice>, Answer)> + Send>>;

/// Answers the agent's questions for one run.
pub(crate) type Answers = Arc<dyn Fn(Ask) -> Answered + Send + Sync>;

/// One run that takes a place on a live process.
pub(crate) struct Boarding {
    pub(crate) order: Order,
    pub(crate) seat: Seat,
}

/// Everything of one run that the core does not know.
pub(crate) struct Seat {
    pub(crate) link: Driven,
    /// What the caller should hear before anything else.
    pub(crate) notices: Vec<Notice>,
    pub(crate) follower: Follower,
    /// The workspace as it was.
    pub(crate) before: Option<Before>,
    pub(crate) answers: Answers,
    /// Lines of the host's own tools.
    pub(crate) sides: Option<UnboundedReceiver<String>>,
    /// What is served for this run, and ends with it.
    pub(crate) closing: Option<Sides>,
    /// What must not leave in any output while this run goes on.
    pub(crate) secrets: Vec<String>,
    /// When the caller hears of the end.
    pub(crate) tell: Tell,
    /// Whatever must live as long as the run.
    pub(crate) keep: Vec<Box<dyn std::any::Any + Send>>,
    /// Its session is open.
    pub(crate) started: bool,
    /// It only opens a session, for others to use.
    pub(crate) only_opens: bool,
    /// Who was there before the prompt.
    pub(crate) census: Option<Census>,
    /// Events that wait for room.
    pub(crate) pending: Vec<Record>,
}

/// When the caller hears of the end of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tell {
    /// At once: the process lives on for others.
    AtOnce,
    /// When the process is gone with all that it started: it was there for this run only.
    WhenGone,
}

/// Why a process that is gone takes no run, for those who come too late.
pub(crate) type Gone = Arc<OnceLock<Failure>>;

/// The process was gone before the run could begin on it.
pub(crate) fn refuse(late: Boarding, why: Option<&Failure>) {
    let unknown = || Failure::new(Kind::Crashed, "the agent was gone already");
    let failure = why.cloned().unwrap_or_else(unknown);
    let outcome = Outcome::not_begun(&late.order.who, Verdict::Failed, failure);
    late.seat.link.finish(outcome);
}

/// What those are told who come to a process that ended so.
pub(crate) fn gone_by(exit: Exit) -> Failure {
    let how = match exit {
        Exit::Code(code) => format!("it had exited with code {code}"),
        Exit::Signal(signal) => format!("signal {signal} had ended it"),
        _ => "it had been killed".to_owned(),
    };
    Failure::new(Kind::Crashed, format!("the agent was gone already: {how}"))
}

/// Nobody is there to be asked.
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

/// What stands for an answer that nobody can give any more.
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
