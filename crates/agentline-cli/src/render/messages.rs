//! The messages of a run, for the formats that include them.

use agentline::{
    Message, Outcome, Record,
    messages::{Completer, RunMessages},
};
use agentline_core::Transcript;
use std::borrow::Cow;

/// Collects the messages of a run, if they are requested.
pub(super) struct MessageCollector {
    transcript: Option<Transcript>,
    /// Reads the agent's saved session; `None` for a tape, whose session does not exist here.
    completer: Option<Completer>,
}

impl MessageCollector {
    pub(super) fn new(enabled: bool) -> Self {
        Self { transcript: enabled.then(Transcript::default), completer: None }
    }

    /// Completes the messages from the agent's saved session.
    pub(super) fn complete_by(&mut self, completer: &Completer) {
        if let Some(transcript) = &mut self.transcript {
            *transcript = completer.transcript();
            self.completer = Some(completer.clone());
        }
    }

    pub(super) fn take(&mut self, record: &Record) {
        if let Some(transcript) = &mut self.transcript {
            transcript.take(record);
        }
    }

    /// Returns the outcome, with a warning about the messages if there is one, and the messages.
    pub(super) fn end<'a>(
        &mut self,
        outcome: &'a Outcome,
    ) -> (Cow<'a, Outcome>, Option<Vec<Message<'static>>>) {
        let Some(transcript) = self.transcript.take() else { return (Cow::Borrowed(outcome), None) };
        let Some(completer) = &self.completer else {
            return (Cow::Borrowed(outcome), Some(transcript.into_messages()));
        };
        let RunMessages { messages, warning, .. } = completer.complete(transcript, outcome);
        let mut outcome = Cow::Borrowed(outcome);
        if let Some(warning) = warning {
            outcome.to_mut().warnings.push(warning);
        }
        (outcome, Some(messages))
    }
}
