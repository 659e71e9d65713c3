//! `--output events`: one object per event, the outcome last.

use super::{Form, json::WithMessages};
use crate::ui::Ui;
use agentline::{Event, Record, Transcript};
use serde::Serialize;
use std::io::{self, Write};

/// Prints every event as a line.
pub(super) struct Events {
    transcript: Option<Transcript>,
    line: Vec<u8>,
}

impl Events {
    pub(super) fn new(messages: bool) -> Self {
        Self { transcript: messages.then(Transcript::default), line: Vec::new() }
    }
}

/// The last line when it holds the messages too.
#[derive(Serialize)]
struct LastLine<'a> {
    seq: u32,
    at_ms: u64,
    from: agentline::Origin,
    r#type: &'static str,
    outcome: WithMessages<'a>,
}

impl Form for Events {
    /// Each line is progress enough.
    fn begin(&mut self, _ui: &mut Ui) {}

    fn record(&mut self, ui: &mut Ui, record: &Record) -> io::Result<()> {
        self.line.clear();
        match (&mut self.transcript, &record.event) {
            (Some(transcript), Event::Outcome { outcome }) => {
                transcript.take(record);
                let outcome = WithMessages { outcome, messages: Some(transcript.messages()) };
                let Record { seq, at_ms, from, .. } = *record;
                serde_json::to_writer(
                    &mut self.line,
                    &LastLine { seq, at_ms, from, r#type: "outcome", outcome },
                )?;
            }
            (transcript, _) => {
                if let Some(transcript) = transcript {
                    transcript.take(record);
                }
                serde_json::to_writer(&mut self.line, record)?;
            }
        }
        self.line.push(b'\n');
        ui.out().write_all(&self.line)
    }
}
