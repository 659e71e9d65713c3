//! `--output events`: one object per event, the outcome last.

use super::{RunRenderer, json::WithMessages, messages::MessageCollector};
use crate::ui::Ui;
use agentline::{Event, Record, messages::Completer};
use serde::Serialize;
use std::io::{self, Write};

/// Writes every event as a line.
pub(super) struct EventsRenderer {
    messages: MessageCollector,
    line: Vec<u8>,
}

impl EventsRenderer {
    pub(super) fn new(messages: bool) -> Self {
        Self { messages: MessageCollector::new(messages), line: Vec::new() }
    }
}

/// The last line, if it includes the messages.
#[derive(Serialize)]
struct LastLine<'a> {
    seq: u32,
    at_ms: u64,
    from: agentline_core::Origin,
    r#type: &'static str,
    outcome: WithMessages<'a>,
}

impl RunRenderer for EventsRenderer {
    /// Shows no progress, because each line of output is itself progress.
    fn begin(&mut self, _ui: &mut Ui) {}

    fn complete_by(&mut self, completer: &Completer) {
        self.messages.complete_by(completer);
    }

    fn record(&mut self, ui: &mut Ui, record: &Record) -> io::Result<()> {
        self.line.clear();
        self.messages.take(record);
        let end = match &record.event {
            Event::Outcome { outcome } => Some(self.messages.end(outcome)),
            _ => None,
        };
        match end {
            Some((outcome, messages @ Some(_))) => {
                let outcome = WithMessages { outcome: &outcome, messages };
                let Record { seq, at_ms, from, .. } = *record;
                let last = LastLine { seq, at_ms, from, r#type: "outcome", outcome };
                serde_json::to_writer(&mut self.line, &last)?;
            }
            _ => serde_json::to_writer(&mut self.line, record)?,
        }
        self.line.push(b'\n');
        ui.out().write_all(&self.line)
    }
}
