//! `--output text`: the assistant's text as it streams and, on a terminal, tool calls and a summary.
//!
//! On a terminal, the text is rendered as Markdown. Elsewhere it is written exactly as the agent wrote it.

use super::{RenderOptions, RunRenderer};
use crate::render::phrases;
use crate::ui::{Paint, Ui};
use agentline::{Event, FileRow, Outcome, Record, ToolResult, ToolStatus, ToolUse, Verdict};
use agentline_core::{
    FileChangeKind, SavedResult, SavedTool,
    terminal_text::{duration, fit, plain, uncoloured, wrap},
};
use agentline_sessions::render::{TerminalMarkdown, TextRenderer, TextStyle};
use std::{
    collections::BTreeMap,
    io::{self, Write},
};

/// The number of bytes at the end of a running tool's output that are kept.
const MAX_OUTPUT: usize = 4 << 10;
/// The maximum number of lines of a running tool's output that are shown.
const MAX_OUTPUT_LINES: usize = 5;

/// Writes the text to standard output and everything else to standard error.
pub(super) struct HumanRenderer {
    /// Whether the last output does not end a line.
    in_line: bool,
    /// Renders the answer, if standard output is a terminal.
    markdown: Option<TerminalMarkdown>,
    /// Renders tool calls; `None` before the first event.
    calls: Option<TextRenderer>,
    /// What was shown last on a terminal.
    last_shown: Option<Shown>,
    open: BTreeMap<String, OpenCall>,
    /// Whether reasoning is shown, on standard error.
    thoughts: bool,
    /// The incomplete last line of reasoning.
    thought: String,
    /// Whether only the value is shown, without the text around it.
    value_only: bool,
    /// Whether the summary says how to continue the session.
    keeps_session: bool,
}

/// A call that has no result yet.
#[derive(Default)]
struct OpenCall {
    call: ToolUse,
    started_at: u64,
    /// The end of its output so far.
    output: String,
}

/// A part of the output, separated from the other one on a terminal.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shown {
    Answer,
    /// Tool calls and warnings.
    Status,
}

impl RunRenderer for HumanRenderer {
    fn record(&mut self, ui: &mut Ui, record: &Record) -> io::Result<()> {
        if self.calls.is_none() {
            self.calls = Some(TextRenderer::new(style(ui)));
            self.markdown = ui.width().map(|columns| TerminalMarkdown::new(columns, ui.is_coloured()));
        }
        if !matches!(record.event, Event::Thinking { .. }) {
            self.end_thought(ui)?;
        }
        match &record.event {
            Event::Text { .. } if self.value_only => ui.busy("answering"),
            Event::Text { text } => return self.text(ui, text),
            Event::ToolUse(tool) => {
                // The next text belongs to another turn.
                self.end_text(ui)?;
                let open = OpenCall { call: tool.clone(), started_at: record.at_ms, output: String::new() };
                self.open.insert(tool.id.clone(), open);
                self.show_open_call(ui, &tool.id);
            }
            // A tool runs when it is allowed to; the time that a person takes to decide is not its own.
            Event::Permission(permission) => {
                let tool_use_id = &permission.tool_use_id;
                if let Some(open) = self.open.get_mut(tool_use_id) {
                    open.started_at = record.at_ms;
                }
                self.show_open_call(ui, tool_use_id);
            }
            Event::ToolOutput { tool_use_id, text } => {
                if let Some(open) = self.open.get_mut(tool_use_id) {
                    open.add_output(text);
                }
                self.show_open_call(ui, tool_use_id);
            }
            Event::ToolResult(ToolResult { tool_use_id, status, content, reason, diffs, .. }) => {
                self.end_text(ui)?;
                let OpenCall { mut call, started_at, .. } = self.open.remove(tool_use_id).unwrap_or_default();
                if !diffs.is_empty() {
                    call.diffs.clone_from(diffs);
                }
                if ui.shows_progress() {
                    let content = reason.as_ref().or(content.as_ref()).cloned().unwrap_or_default();
                    let took = record.at_ms.saturating_sub(started_at);
                    let took = Some(took).filter(|_| *status != ToolStatus::Denied);
                    self.tool(ui, call, (*status, content), took)?;
                    ui.busy("waiting for the model");
                }
            }
            Event::Retry { attempt, wait_ms, reason, model } => {
                self.end_text(ui)?;
                self.separate(ui, Shown::Status);
                ui.flush()?;
                ui.warn(&phrases::retry(*attempt, *wait_ms, reason, model.as_deref()));
                ui.busy("waiting for the next attempt");
            }
            Event::Warning { code, message } => {
                // The answer to another prompt is another text. On a shared terminal, a warning in the middle of a
                // line would also be hard to read.
                if ui.shares_terminal() || matches!(code.as_str(), "round" | "repair" | "denial_reason") {
                    self.end_text(ui)?;
                }
                self.separate(ui, Shown::Status);
                ui.flush()?;
                ui.warn(&plain(message));
            }
            Event::Started(started) => {
                self.calls = Some(TextRenderer::new(style(ui).workspace(&started.cwd)));
                if ui.shows_progress() {
                    let model = started.model.as_deref().unwrap_or("default model");
                    let version = started.agent_version.as_deref().unwrap_or_default();
                    let surface = surface(started.surface);
                    ui.detail(format!("{} {version} over {surface}, {model}", started.agent));
                    ui.busy("waiting for the model");
                }
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
        Self {
            in_line: false,
            markdown: None,
            calls: None,
            last_shown: None,
            open: BTreeMap::new(),
            thoughts: options.thoughts,
            thought: String::new(),
            value_only: options.value_only,
            keeps_session: options.keeps_session,
        }
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
        let room = ui.status_size().map_or(usize::MAX, |(columns, _)| columns);
        for line in plain(&std::mem::take(&mut self.thought)).lines().flat_map(|line| wrap(line, room)) {
            let line = ui.paint(Paint::Dim, &line);
            ui.print_status(line);
        }
        Ok(())
    }

    fn text(&mut self, ui: &mut Ui, text: &str) -> io::Result<()> {
        if text.is_empty() {
            return Ok(());
        }
        let Some(markdown) = &mut self.markdown else {
            self.in_line = !text.ends_with('\n');
            return ui.out().write_all(text.as_bytes());
        };
        let mut complete = Vec::new();
        markdown.push(&mut complete, text)?;
        let preview = match ui.preview_lines() {
            0 => Vec::new(),
            most => markdown.preview(most),
        };
        self.answer(ui, &complete)?;
        ui.busy_below(&preview, "answering");
        Ok(())
    }

    /// Ends the text of a turn.
    fn end_text(&mut self, ui: &mut Ui) -> io::Result<()> {
        let mut rest = Vec::new();
        if let Some(markdown) = &mut self.markdown {
            markdown.finish(&mut rest)?;
        }
        self.answer(ui, &rest)?;
        self.end_line(ui)
    }

    /// Writes a rendered part of the answer.
    fn answer(&mut self, ui: &mut Ui, rendered: &[u8]) -> io::Result<()> {
        if rendered.is_empty() {
            return Ok(());
        }
        self.separate(ui, Shown::Answer);
        ui.out().write_all(rendered)
    }

    /// Writes an empty line between the answer and tool calls on a terminal.
    fn separate(&mut self, ui: &mut Ui, next: Shown) {
        let last = self.last_shown.replace(next);
        if last.is_some_and(|last| last != next) && ui.shares_terminal() && ui.shows_progress() {
            ui.print_status("");
        }
    }

    /// Ends an open line of the answer.
    fn end_line(&mut self, ui: &mut Ui) -> io::Result<()> {
        if std::mem::take(&mut self.in_line) { ui.out().write_all(b"\n") } else { Ok(()) }
    }

    /// Shows a running call in the spinner, below the last lines of its output.
    fn show_open_call(&mut self, ui: &mut Ui, id: &str) {
        let (Some(calls), Some(open)) = (&self.calls, self.open.get(id)) else { return };
        let columns = ui.status_size().map_or(0, |(columns, _)| columns);
        let lines = open.last_lines(ui.preview_lines().min(MAX_OUTPUT_LINES), columns);
        let lines: Vec<String> = lines.iter().map(|line| ui.paint(Paint::Dim, line)).collect();
        ui.busy_below(&lines, &calls.call_line(&open.call));
    }

    /// Writes a finished call with its change and output.
    fn tool(
        &mut self,
        ui: &mut Ui,
        call: ToolUse,
        (status, content): (ToolStatus, String),
        took: Option<u64>,
    ) -> io::Result<()> {
        ui.flush()?;
        let mut tool = SavedTool::new(call);
        tool.result = Some(SavedResult::new(status, content));
        let mut lines = Vec::new();
        if let Some(calls) = &self.calls {
            calls.call(&mut lines, &tool, took)?;
        }
        self.separate(ui, Shown::Status);
        String::from_utf8_lossy(&lines).lines().for_each(|line| ui.print_status(line));
        Ok(())
    }

    fn end(&mut self, ui: &mut Ui, outcome: &Outcome) -> io::Result<()> {
        self.end_text(ui)?;
        if let Some(value) = &outcome.output {
            writeln!(ui.out(), "{}", value.get())?;
        }
        ui.flush()?;
        ui.clear_spinner();
        if self.value_only && outcome.output.is_none() && !outcome.text.is_empty() {
            // Standard output has only the value.
            for line in outcome.text.lines() {
                ui.print_status(plain(line));
            }
        }
        phrases::failure(ui, outcome, self.keeps_session);
        if ui.shows_progress() {
            summary(ui, outcome);
            if self.keeps_session {
                resume_lines(ui, outcome);
            }
        }
        Ok(())
    }
}

impl OpenCall {
    /// Adds a piece of output and keeps only the end.
    fn add_output(&mut self, text: &str) {
        self.output.push_str(text);
        if self.output.len() > 2 * MAX_OUTPUT {
            let from = self.output.len() - MAX_OUTPUT;
            let from = (from..).find(|at| self.output.is_char_boundary(*at)).unwrap_or(from);
            self.output.drain(..from);
        }
    }

    /// Returns the last lines of the output that have text, each shortened to the width of the terminal.
    fn last_lines(&self, most: usize, columns: usize) -> Vec<String> {
        let output = uncoloured(&self.output);
        let output = plain(&output);
        let lines: Vec<&str> = output.lines().filter(|line| !line.trim().is_empty()).collect();
        lines[lines.len().saturating_sub(most)..]
            .iter()
            .map(|line| fit(&format!("  {line}"), columns))
            .collect()
    }
}

/// Returns the style of tool calls on standard error.
fn style(ui: &Ui) -> TextStyle {
    TextStyle::brief()
        .coloured(ui.has_coloured_status())
        .columns(ui.status_size().map(|(columns, _)| columns))
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

/// Writes how to continue the session. After Ctrl-C, the error has already said so.
fn resume_lines(ui: &mut Ui, outcome: &Outcome) {
    let Some(line) = phrases::resume_line(outcome).filter(|_| outcome.verdict != Verdict::Cancelled) else {
        return;
    };
    // Not wrapped, so that the command can be copied.
    let line = ui.paint(Paint::Dim, &format!("  {line}"));
    ui.print_status(line);
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
