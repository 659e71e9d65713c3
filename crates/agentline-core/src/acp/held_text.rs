//! The last text of a turn that may report an error. What it means is known only when something follows, or nothing.

use crate::{Event, Failure, RunId, Sink};

/// Text that looks like an error of the agent. It is held back: at the end of the turn it is an error, and if the agent
/// continues, it is part of the answer.
#[derive(Debug, Default)]
pub(super) struct HeldText {
    failure: Option<Failure>,
    /// The texts, each with its update.
    chunks: Vec<(String, String)>,
}

impl HeldText {
    /// Holds a text that reports this failure.
    pub(super) fn hold(&mut self, failure: Failure, text: String, raw: &str) {
        self.failure = Some(failure);
        self.chunks.push((text, raw.to_owned()));
    }

    /// Holds a text without a meaning of its own, such as a blank line, behind a held one. Returns it if nothing is held.
    pub(super) fn hold_behind(&mut self, text: String, raw: &str) -> Option<String> {
        if self.is_empty() {
            return Some(text);
        }
        self.chunks.push((text, raw.to_owned()));
        None
    }

    /// Returns whether no text is held.
    pub(super) fn is_empty(&self) -> bool {
        self.failure.is_none()
    }

    /// Emits the held texts as part of the answer. Returns whether there were any.
    pub(super) fn restore(&mut self, run: RunId, sink: &mut Sink) -> bool {
        for (text, _) in self.chunks.drain(..) {
            sink.event(run, Event::Text { text });
        }
        self.failure.take().is_some()
    }

    /// Takes the failure that the held texts report. They are emitted as updates of the agent.
    pub(super) fn take_failure(&mut self, run: RunId, sink: &mut Sink) -> Option<Failure> {
        for (_, raw) in self.chunks.drain(..) {
            sink.event(run, Event::agent(&raw));
        }
        self.failure.take()
    }
}
