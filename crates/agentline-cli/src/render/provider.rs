//! `--output provider`: what a workflow's provider gives back.

use super::{Form, words};
use crate::ui::Ui;
use agentline::{Event, Record, provider_view};
use std::io::{self, Write};

/// Prints `{"response", "files"}`.
#[derive(Default)]
pub(super) struct Provider {
    /// All assistant text joined.
    response: String,
}

impl Form for Provider {
    fn record(&mut self, ui: &mut Ui, record: &Record) -> io::Result<()> {
        words::activity(ui, &record.event);
        match &record.event {
            Event::Text { text } => self.response.push_str(text),
            Event::Outcome { outcome } => {
                ui.rest();
                writeln!(ui.out(), "{}", provider_view(outcome, &self.response))?;
                words::failure(ui, outcome);
            }
            _ => {}
        }
        Ok(())
    }
}
