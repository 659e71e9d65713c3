//! What a process does, in the words of the core.

use crate::process::{self, Std};
use agentline_core::{Exit, Piece, Stream, What};

/// A line of one stream, or what stands for one.
pub(crate) fn line<'a>(stream: Stream, piece: Piece<'a>) -> What<'a> {
    match piece {
        Piece::TooLong { text, length } => What::TooLong { stream, text, length },
        Piece::Line(text) => What::Line { stream, text },
        _ => What::Pulse { stream },
    }
}

/// The core's name of a stream.
pub(crate) fn stream(from: Std) -> Stream {
    match from {
        Std::Out => Stream::Stdout,
        Std::Err => Stream::Stderr,
    }
}

/// The core's word for the end of a process.
pub(crate) fn into_core(exit: process::Exit) -> Exit {
    match exit {
        process::Exit::Code(code) => Exit::Code(code),
        process::Exit::Signal(signal) => Exit::Signal(signal),
        process::Exit::Lost => Exit::Lost,
    }
}
