//! `--output json`: one object when the run ends.

use super::{Form, words};
use crate::ui::Ui;
use agentline::{Event, Message, Outcome, Record, Transcript};
use serde::Serialize;
use std::io::{self, Write};

/// Prints the outcome.
pub(super) struct Json {
    transcript: Option<Transcript>,
}

/// An outcome with the messages of the run.
#[derive(Serialize)]
pub(super) struct WithMessages<'a> {
    #[serde(flatten)]
    pub(super) outcome: &'a Outcome,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) messages: Option<&'a [Message<'static>]>,
}

impl Json {
    pub(super) fn new(messages: bool) -> Self {
        Self { transcript: messages.then(Transcript::default) }
    }
}

impl Form for Json {
    fn record(&mut self, ui: &mut Ui, record: &Record) -> io::Result<()> {
        if let Some(transcript) = &mut self.transcript {
            transcript.take(record);
        }
        words::activity(ui, &record.event);
        let Event::Outcome { outcome } = &record.event else { return Ok(()) };
        ui.rest();
        let messages = self.transcript.as_ref().map(Transcript::messages);
        let out = ui.out();
        serde_json::to_writer(&mut *out, &WithMessages { outcome, messages })?;
        out.write_all(b"\n")
    }
}
