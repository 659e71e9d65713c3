//! `--output provider`: the result of a workflow provider.

use super::RunRenderer;
use crate::render::phrases;
use crate::ui::Ui;
use agentline::{Event, Record, provider::ResultCollector};
use agentline_core::terminal_text::plain;
use std::io::{self, Write};

/// Writes `{"response", "files"}`.
#[derive(Default)]
pub(super) struct ProviderRenderer {
    gathered: ResultCollector,
}

impl RunRenderer for ProviderRenderer {
    fn record(&mut self, ui: &mut Ui, record: &Record) -> io::Result<()> {
        phrases::activity(ui, &record.event);
        match &record.event {
            Event::Outcome { outcome } => {
                ui.clear_spinner();
                let result = std::mem::take(&mut self.gathered).finish((**outcome).clone(), &[]);
                for warning in &result.warnings {
                    ui.warn(&plain(&warning.message));
                }
                let out = ui.out();
                serde_json::to_writer(&mut *out, &result)?;
                out.write_all(b"\n")?;
                // The format has no field for an error.
                phrases::failure(ui, outcome, true);
            }
            event => self.gathered.take(event),
        }
        Ok(())
    }
}
