//! The reasons why a command stops early, with their messages and exit codes.

use crate::exit;
use agentline::{Error, Problem, Problems, Signal};
use agentline_core::error_chain;
use agentline_sessions::SessionError;
use std::io;

/// The reason why a command stopped.
#[derive(Debug)]
pub(crate) enum CommandError {
    /// The request is invalid; nothing was started.
    Usage(Problems),
    /// An operation failed, with a message.
    Failed(String),
    /// The system does not allow an operation; the hint says what to do.
    Unable { message: String, hint: String },
    /// The requested item does not exist.
    Nothing(Problem),
    /// The output is no longer read.
    BrokenPipe,
    /// A second signal ended the command.
    Signal(Signal),
}

impl CommandError {
    /// Creates a failure with a message.
    pub(crate) fn failed(message: impl Into<String>) -> Self {
        Self::Failed(message.into())
    }

    /// Returns the exit code.
    pub(crate) fn code(&self) -> u8 {
        match self {
            Self::Usage(_) => exit::USAGE,
            Self::Failed(_) | Self::Unable { .. } | Self::Nothing(_) => exit::FAILED,
            Self::BrokenPipe => exit::BROKEN_PIPE,
            Self::Signal(signal) => exit::by_signal(*signal),
        }
    }
}

impl From<io::Error> for CommandError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::BrokenPipe,
            _ => Self::failed(format!("cannot write the output: {error}")),
        }
    }
}

impl From<Problem> for CommandError {
    fn from(problem: Problem) -> Self {
        Self::Usage(problem.into())
    }
}

impl From<Problems> for CommandError {
    fn from(problems: Problems) -> Self {
        Self::Usage(problems)
    }
}

impl From<SessionError> for CommandError {
    fn from(error: SessionError) -> Self {
        Error::from(error).into()
    }
}

impl From<Error> for CommandError {
    fn from(error: Error) -> Self {
        match error {
            Error::Usage(problems) => Self::Usage(problems),
            Error::NoSession(problem) => Self::Nothing(problem),
            other => Self::failed(error_chain(&other)),
        }
    }
}
