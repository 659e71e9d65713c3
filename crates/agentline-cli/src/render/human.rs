//! `--output text`: the assistant's text as it streams and, on a terminal, tool calls and a summary.

use super::{RenderOptions, RunRenderer};
use crate::render::phrases;
use crate::ui::{Paint, Ui};
use agentline::{Event, FileRow, Outcome, Record, ToolStatus, Verdict};
use agentline_core::FileChangeKind;
use agentline_core::terminal_text::{duration, plain};
use std::{
    collections::BTreeMap,
    io::{self, Write},
};

/// Writes the text to standard output and everything else to standard error.
#[derive(Default)]
pub(super) struct HumanRenderer {
    /// Whether the last output does not end a line.
    in_line: bool,
    /// The description and start time of each open call.
    open: BTreeMap<String, (String, u64)>,
    /// Whether reasoning is shown, on standard error.
    thoughts: bool,
    /// The incomplete last line of reasoning.
    thought: String,
    /// Whether only the value is shown, without the text around it.
    value_only: bool,
}

impl RunRenderer for HumanRenderer {
    fn record(&mut self, ui: &mut Ui, record: &Record) -> io::Result<()> {
        if !matches!(record.event, Event::Thinking { .. }) {
            self.end_thought(ui)?;
        }
        match &record.event {
            Event::Text { .. } if self.value_only => ui.busy("answering"),
            Event::Text { text } => return self.text(ui, text),
            Event::ToolUse(tool) => {
                // The next text belongs to another turn.
                self.end_line(ui)?;
                let call = phrases::call(tool);
                ui.busy(&call);
                self.open.insert(tool.id.clone(), (call, record.at_ms));
            }
            Event::ToolResult { tool_use_id, status, reason, .. } => {
                self.end_line(ui)?;
                let (call, since) = self.open.remove(tool_use_id).unwrap_or_default();
                if ui.shows_progress() {
                    ui.flush()?;
                    let took = duration(record.at_ms.saturating_sub(since));
                    tool_line(ui, &call, *status, reason.as_deref(), &took);
                    ui.busy("waiting for the model");
                }
            }
            Event::Warning { message, .. } => {
                // On a shared terminal, a warning in the middle of a line would be hard to read.
                if ui.shares_terminal() {
                    self.end_line(ui)?;
                }
                ui.flush()?;
                ui.warn(&plain(message));
            }
            Event::Started(started) if ui.shows_progress() => {
                let model = started.model.as_deref().unwrap_or("default model");
                let version = started.agent_version.as_deref().unwrap_or_default();
                let line = format!("{} {version} over {}, {model}", started.agent, surface(started.surface));
                ui.detail(line);
                ui.busy("waiting for the model");
            }
            Event::Thinking { text } if self.thoughts => return self.print_thought(ui, text),
            Event::Thinking { .. } if !self.in_line => ui.busy("thinking"),
            Event::Outcome { outcome } => return self.end(ui, outcome),
            _ => {}
        }
        Ok(())
    }
}

impl HumanRenderer {
    pub(super) fn new(options: &RenderOptions) -> Self {
        Self { thoughts: options.thoughts, value_only: options.value_only, ..Self::default() }
    }

    /// Shows reasoning line by line, from pieces of any length.
    fn print_thought(&mut self, ui: &mut Ui, text: &str) -> io::Result<()> {
        self.thought.push_str(text);
        let Some(end) = self.thought.rfind('\n') else { return Ok(()) };
        let rest = self.thought.split_off(end + 1);
        self.end_thought(ui)?;
        self.thought = rest;
        Ok(())
    }

    fn end_thought(&mut self, ui: &mut Ui) -> io::Result<()> {
        if self.thought.is_empty() {
            return Ok(());
        }
        if ui.shares_terminal() {
            self.end_line(ui)?;
        }
        ui.flush()?;
        for line in std::mem::take(&mut self.thought).lines() {
            let line = ui.paint(Paint::Dim, &plain(line));
            ui.print_status(line);
        }
        Ok(())
    }

    fn text(&mut self, ui: &mut Ui, text: &str) -> io::Result<()> {
        if text.is_empty() {
            return Ok(());
        }
        self.in_line = !text.ends_with('\n');
        if ui.shares_terminal() {
            ui.out().write_all(plain(text).as_bytes())
        } else {
            ui.out().write_all(text.as_bytes())
        }
    }

    /// Ends an open line of the answer.
    fn end_line(&mut self, ui: &mut Ui) -> io::Result<()> {
        if std::mem::take(&mut self.in_line) { ui.out().write_all(b"\n") } else { Ok(()) }
    }

    fn end(&mut self, ui: &mut Ui, outcome: &Outcome) -> io::Result<()> {
        self.end_line(ui)?;
        if let Some(value) = &outcome.output {
            // The value is the answer, in addition to the text written so far.
            writeln!(ui.out(), "{}", value.get())?;
        }
        ui.flush()?;
        ui.clear_spinner();
        phrases::failure(ui, outcome);
        if ui.shows_progress() {
            summary(ui, outcome);
        }
        Ok(())
    }
}

fn tool_line(ui: &mut Ui, call: &str, status: ToolStatus, reason: Option<&str>, took: &str) {
    let (paint, word) = match status {
        ToolStatus::Ok => (Paint::Green, "ok"),
        ToolStatus::Denied => (Paint::Yellow, "denied"),
        ToolStatus::Cancelled => (Paint::Yellow, "cancelled"),
        _ => (Paint::Red, "failed"),
    };
    let detail = reason.map(|reason| format!(": {}", plain(reason))).unwrap_or_default();
    let line = format!("{} {call} … {word}{detail} ({took})", ui.paint(paint, "●"));
    ui.print_status(line);
}

/// Writes a summary of the run.
fn summary(ui: &mut Ui, outcome: &Outcome) {
    let paint = match outcome.verdict {
        Verdict::Done => Paint::Green,
        Verdict::DoneWithDenials | Verdict::Empty | Verdict::LimitReached => Paint::Yellow,
        _ => Paint::Red,
    };
    let count = |n: u32, noun: &str| format!("{n} {noun}{}", if n == 1 { "" } else { "s" });
    let mut parts = vec![
        format!("{} in {}", ui.paint(paint, outcome.verdict.name()), duration(outcome.duration_ms)),
        count(outcome.turns, "turn"),
        count(outcome.tool_calls, "tool call"),
    ];
    parts.extend(outcome.model.clone());
    ui.print_status("");
    ui.print_status(parts.join(" · "));
    for file in &outcome.files {
        let line = file_line(ui, file);
        ui.print_status(line);
    }
    let tokens = &outcome.usage.tokens;
    let mut parts = Vec::new();
    if let Some(input) = tokens.input {
        let cached = tokens.cached.map(|n| format!(" ({n} cached)")).unwrap_or_default();
        parts.push(format!("{input} in{cached}"));
    }
    parts.extend(tokens.output.map(|n| format!("{n} out")));
    parts.extend(tokens.thoughts.filter(|n| *n > 0).map(|n| format!("{n} thought")));
    if !parts.is_empty() {
        let cost = outcome.cost_usd.map_or_else(|| "unknown cost".into(), |usd| format!("${usd:.4}"));
        ui.print_status(format!("  tokens: {} · {cost}", parts.join(", ")));
    }
    match &outcome.cache {
        Some(cache) if cache.hit => ui.print_status("  from the cache: result of an earlier run, at no cost"),
        Some(agentline_core::CacheStatus { reason: Some(reason), .. }) => {
            ui.print_status(format!("  not cached: {reason}"))
        }
        _ => {}
    }
    if let Some(tape) = &outcome.tape {
        ui.print_status(format!("  tape: {tape}"));
    }
}

fn file_line(ui: &Ui, file: &FileRow) -> String {
    let (paint, word) = match file.change {
        FileChangeKind::Created => (Paint::Green, "created "),
        FileChangeKind::Deleted => (Paint::Red, "deleted "),
        _ => (Paint::Yellow, "modified"),
    };
    let lines = match (file.added, file.removed) {
        (Some(added), Some(removed)) => format!(" (+{added} -{removed})"),
        _ => String::new(),
    };
    let doubt = if file.verified { "" } else { ", but unchanged on disk" };
    format!("  {} {}{lines}{doubt}", ui.paint(paint, word), plain(&file.path))
}

fn surface(surface: Option<agentline::Surface>) -> &'static str {
    surface.map_or("default surface", agentline::Surface::name)
}
