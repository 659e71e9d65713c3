//! Why a command did not come to its end: what is told, and with which code.

use crate::exit;
use agentline::{Error, Problem, Problems};
use std::io;

/// Why a command stopped.
#[derive(Debug)]
pub(crate) enum Stop {
    /// What was asked for is wrong; nothing was started.
    Usage(Problems),
    /// Something could not be done; the text says what.
    Failed(String),
    /// The machine does not let us do it; the hint says what to do about that.
    Unable { message: String, hint: String },
    /// What was asked for is not there.
    Nothing(Problem),
    /// Nobody reads our output any more.
    BrokenPipe,
    /// The user was asked twice to wait, and wants no more.
    Signal(i32),
}

impl Stop {
    /// Something could not be done.
    pub(crate) fn failed(message: impl Into<String>) -> Self {
        Self::Failed(message.into())
    }

    /// The exit code.
    pub(crate) fn code(&self) -> u8 {
        match self {
            Self::Usage(_) => exit::USAGE,
            Self::Failed(_) | Self::Unable { .. } | Self::Nothing(_) => exit::FAILED,
            Self::BrokenPipe => exit::BROKEN_PIPE,
            Self::Signal(signal) => exit::by_signal(*signal),
        }
    }
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::BrokenPipe,
            _ => Self::failed(format!("could not write the output: {error}")),
        }
    }
}

impl From<Problem> for Stop {
    fn from(problem: Problem) -> Self {
        Self::Usage(problem.into())
    }
}

impl From<Problems> for Stop {
    fn from(problems: Problems) -> Self {
        Self::Usage(problems)
    }
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        match error {
            Error::Usage(problems) => Self::Usage(problems),
            Error::NoSession(problem) => Self::Nothing(problem),
            other => Self::failed(other.to_string()),
        }
    }
}
