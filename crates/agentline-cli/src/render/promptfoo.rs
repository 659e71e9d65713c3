//! `--output promptfoo`: the result of a promptfoo provider.

use super::RunRenderer;
use crate::render::phrases;
use crate::ui::Ui;
use agentline::{Event, Record};
use agentline_core::promptfoo_view;
use std::io::{self, Write};

/// Writes `{"output", "tokenUsage", …}` or `{"error", …}`.
pub(super) struct PromptfooRenderer;

impl RunRenderer for PromptfooRenderer {
    fn record(&mut self, ui: &mut Ui, record: &Record) -> io::Result<()> {
        phrases::activity(ui, &record.event);
        if let Event::Outcome { outcome } = &record.event {
            ui.clear_spinner();
            writeln!(ui.out(), "{}", promptfoo_view(outcome))?;
        }
        Ok(())
    }
}
