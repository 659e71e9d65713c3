//! `--output claude`: the stream-json lines of Claude Code.

use super::RunRenderer;
use crate::ui::Ui;
use agentline::{PermissionMode, Record};
use agentline_core::ClaudeLines;
use std::io::{self, Write};

/// Writes the stream-json lines of Claude Code.
pub(super) struct ClaudeRenderer {
    lines: ClaudeLines,
}

impl ClaudeRenderer {
    pub(super) fn new(mode: PermissionMode) -> Self {
        Self { lines: ClaudeLines::new(mode) }
    }
}

impl RunRenderer for ClaudeRenderer {
    /// Shows no progress, because each line of output is itself progress.
    fn begin(&mut self, _ui: &mut Ui) {}

    fn record(&mut self, ui: &mut Ui, record: &Record) -> io::Result<()> {
        let mut written = Ok(());
        self.lines.take(record, |mut line| {
            line.push('\n');
            if written.is_ok() {
                written = ui.out().write_all(line.as_bytes());
            }
        });
        written
    }
}
