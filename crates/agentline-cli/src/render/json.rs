//! `--output json`: one object when the run ends.

use super::{RunRenderer, messages::MessageCollector};
use crate::render::phrases;
use crate::ui::Ui;
use agentline::{Event, Message, Outcome, Record, messages::Completer};
use serde::Serialize;
use std::io::{self, Write};

/// Writes the outcome.
pub(super) struct JsonRenderer {
    messages: MessageCollector,
}

/// An outcome with the messages of the run.
#[derive(Serialize)]
pub(super) struct WithMessages<'a> {
    #[serde(flatten)]
    pub(super) outcome: &'a Outcome,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) messages: Option<Vec<Message<'static>>>,
}

impl JsonRenderer {
    pub(super) fn new(messages: bool) -> Self {
        Self { messages: MessageCollector::new(messages) }
    }
}

impl RunRenderer for JsonRenderer {
    fn complete_by(&mut self, completer: &Completer) {
        self.messages.complete_by(completer);
    }

    fn record(&mut self, ui: &mut Ui, record: &Record) -> io::Result<()> {
        self.messages.take(record);
        phrases::activity(ui, &record.event);
        let Event::Outcome { outcome } = &record.event else { return Ok(()) };
        let (outcome, messages) = self.messages.end(outcome);
        ui.clear_spinner();
        let out = ui.out();
        serde_json::to_writer(&mut *out, &WithMessages { outcome: &outcome, messages })?;
        out.write_all(b"\n")
    }
}
