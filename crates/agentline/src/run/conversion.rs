//! Converts process events to the types of the core.

use crate::process::{self, StdStream};
use agentline_core::{ExitReason, InputKind, SplitItem, Stream};

/// Returns the core's input for a line of a stream, or for a part of one.
pub(crate) fn line<'a>(stream: Stream, piece: SplitItem<'a>) -> InputKind<'a> {
    match piece {
        SplitItem::TooLong { text, length } => InputKind::TooLong { stream, text, length },
        SplitItem::Line(text) => InputKind::Line { stream, text },
        _ => InputKind::Activity { stream },
    }
}

/// Returns the core's stream for a standard stream. An agent that serves HTTP prints only diagnostics.
pub(crate) fn stream(from: StdStream, serves_http: bool) -> Stream {
    match from {
        StdStream::Out if !serves_http => Stream::Stdout,
        _ => Stream::Stderr,
    }
}

/// Returns the core's value for the exit of a process.
pub(crate) fn into_core(exit: process::ProcessExit) -> ExitReason {
    match exit {
        process::ProcessExit::Code(code) => ExitReason::Code(code),
        process::ProcessExit::Signal(signal) => ExitReason::Signal(signal),
        process::ProcessExit::Lost => ExitReason::Lost,
    }
}
