//! Converts process events to the types of the core.

use crate::process::{self, Std};
use agentline_core::{Exit, Piece, Stream, What};

/// Returns the core's input for a line of a stream, or for a part of one.
pub(crate) fn line<'a>(stream: Stream, piece: Piece<'a>) -> What<'a> {
    match piece {
        Piece::TooLong { text, length } => What::TooLong { stream, text, length },
        Piece::Line(text) => What::Line { stream, text },
        _ => What::Pulse { stream },
    }
}

/// Returns the core's stream for a standard stream.
pub(crate) fn stream(from: Std) -> Stream {
    match from {
        Std::Out => Stream::Stdout,
        Std::Err => Stream::Stderr,
    }
}

/// Returns the core's value for the exit of a process.
pub(crate) fn into_core(exit: process::Exit) -> Exit {
    match exit {
        process::Exit::Code(code) => Exit::Code(code),
        process::Exit::Signal(signal) => Exit::Signal(signal),
        process::Exit::Lost => Exit::Lost,
    }
}
