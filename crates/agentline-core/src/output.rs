//! All that a connection wants done or told.

use crate::{Ask, AskId, Outcome, Record, RunId, Side};

/// What the shell must do or hand on.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Output {
    /// Something happened in a run.
    Event(RunId, Record),
    /// The host is asked.
    Ask(RunId, AskId, Ask),
    /// The question is void: the run was stopped or the clock ran out.
    Withdraw(AskId),
    /// Bytes for the agent's standard input.
    Frame(String),
    /// Lines of this are wanted from now on; the text names it (a session id).
    Follow(RunId, Side, String),
    /// A step of the closing ladder.
    Close(Rung),
    /// The agent is up and answers.
    Ready,
    /// A run is over; this is its last output.
    Done(RunId, Box<Outcome>),
}

/// The closing ladder, gentlest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Rung {
    /// Close standard input.
    CloseStdin,
    /// Ask politely.
    Interrupt,
    /// Ask firmly.
    Terminate,
    /// Kill the whole tree.
    Kill,
}
