//! The outputs of a connection.

use crate::{HostRequest, HostRequestId, Outcome, Record, RunId, SideChannel};

/// An action or report for the shell.
#[derive(Clone, Debug)]
#[non_exhaustive]
#[expect(clippy::large_enum_variant, reason = "most outputs are events, and few exist at a time")]
pub enum ConnectionOutput {
    /// An event of a run.
    Event(RunId, Record),
    /// A request to the host.
    Ask(RunId, HostRequestId, HostRequest),
    /// A request is obsolete: the run was stopped or the timeout expired.
    Withdraw(HostRequestId),
    /// A frame for the agent's standard input.
    Frame(String),
    /// A message for the client of the agent.
    ClientMessage(String),
    /// Deliver the lines of a side file from now on; the text identifies it (a session id).
    Follow(RunId, SideChannel, String),
    /// A step of the shutdown ladder.
    Close(ShutdownStep),
    /// The agent is ready for prompts.
    Ready,
    /// A run is over; this is its last output.
    Done(RunId, Box<Outcome>),
}

/// Takes the outputs of a connection.
pub trait Outputs {
    /// Takes an output.
    fn push(&mut self, output: ConnectionOutput);

    /// Takes an event of a run. A loop that passes events on can save a copy here.
    fn event(&mut self, run: RunId, record: Record) {
        self.push(ConnectionOutput::Event(run, record));
    }
}

impl Outputs for Vec<ConnectionOutput> {
    fn push(&mut self, output: ConnectionOutput) {
        self.push(output);
    }
}

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
