//! The outputs of a connection.

use crate::{Ask, AskId, Outcome, Record, RunId, Side};

/// An action or report for the shell.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Output {
    /// An event of a run.
    Event(RunId, Record),
    /// A request to the host.
    Ask(RunId, AskId, Ask),
    /// A request is obsolete: the run was stopped or the timeout expired.
    Withdraw(AskId),
    /// A frame for the agent's standard input.
    Frame(String),
    /// Deliver the lines of a side file from now on; the text identifies it (a session id).
    Follow(RunId, Side, String),
    /// A step of the shutdown ladder.
    Close(Rung),
    /// The agent is ready for prompts.
    Ready,
    /// A run is over; this is its last output.
    Done(RunId, Box<Outcome>),
}

/// The steps of the shutdown ladder, gentlest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Rung {
    /// Close standard input.
    CloseStdin,
    /// Send an interrupt signal.
    Interrupt,
    /// Send a termination signal.
    Terminate,
    /// Kill the whole process tree.
    Kill,
}
