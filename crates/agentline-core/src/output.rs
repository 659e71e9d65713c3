//! The outputs of a connection.

use crate::{HostRequest, HostRequestId, Outcome, Record, RunId, SideChannel};

/// An action or report for the shell.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum ConnectionOutput {
    /// An event of a run.
    Event(RunId, Record),
    /// A request to the host.
    Ask(RunId, HostRequestId, HostRequest),
    /// A request is obsolete: the run was stopped or the timeout expired.
    Withdraw(HostRequestId),
    /// A frame for the agent's standard input.
    Frame(String),
    /// Deliver the lines of a side file from now on; the text identifies it (a session id).
    Follow(RunId, SideChannel, String),
    /// A step of the shutdown ladder.
    Close(ShutdownStep),
    /// The agent is ready for prompts.
    Ready,
    /// A run is over; this is its last output.
    Done(RunId, Box<Outcome>),
}

// Like a `Record`, an output is moved for each event.
const _: () = assert!(size_of::<ConnectionOutput>() <= 128);

/// The steps of the shutdown ladder, gentlest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum ShutdownStep {
    /// Close standard input.
    CloseStdin,
    /// Send an interrupt signal.
    Interrupt,
    /// Send a termination signal.
    Terminate,
    /// Kill the whole process tree.
    Kill,
}
