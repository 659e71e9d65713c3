//! The report of a comparison: a table with the answers and changes, JSON, or a page.

use crate::ui::{Paint, Ui};
use agentline::{
    Outcome,
    compare::{ComparedRun, ComparisonResults},
};
use agentline_core::terminal_text::{duration, plain};
use agentline_sessions::render::{self, grouped, money};
use serde::Serialize;
use std::io::{self, Write};

/// The name of the JSON format. Fields may be added, but are never renamed or removed.
const COMPARISON_SCHEMA: &str = "agentline.compare/1";

/// The results of a comparison with their context.
pub(super) struct Report<'a> {
    pub(super) prompt: &'a str,
    pub(super) workspace: &'a str,
    pub(super) results: &'a ComparisonResults,
    pub(super) applied: Option<&'a Applied>,
}

/// The result of `--apply`.
#[derive(Debug, Serialize)]
pub(super) struct Applied {
    pub(super) agent: String,
    pub(super) files: Vec<String>,
    /// Why nothing was applied.
    pub(super) error: Option<String>,
}

#[derive(Serialize)]
struct JsonReport<'a> {
    schema: &'static str,
    prompt: &'a str,
    workspace: &'a str,
    results: Vec<JsonResult<'a>>,
    applied: Option<&'a Applied>,
}

#[derive(Serialize)]
struct JsonResult<'a> {
    agent: &'a str,
    model: Option<&'a str>,
    outcome: &'a Outcome,
}

impl<'a> JsonResult<'a> {
    fn of(row: &'a ComparedRun) -> Self {
        let ComparedRun { competitor, outcome, .. } = row;
        Self { agent: &competitor.agent, model: competitor.model.as_deref(), outcome }
    }
}

/// Returns the value of a column.
type Value = fn(&Outcome) -> String;

/// The columns of the table: the title, whether it is right-aligned, and the value.
const COLUMNS: &[(&str, bool, Value)] = &[
    ("agent", false, |outcome| outcome.agent.to_string()),
    ("model", false, |outcome| outcome.model.clone().unwrap_or_else(|| "-".into())),
    ("verdict", false, |outcome| outcome.verdict.name().to_owned()),
    ("time", true, |outcome| duration(outcome.duration_ms)),
    ("tokens", true, |outcome| outcome.usage.tokens.total.map_or_else(|| "-".into(), grouped)),
    ("cost", true, |outcome| outcome.cost_usd.map_or_else(|| "-".into(), money)),
    ("files", true, |outcome| outcome.files.len().to_string()),
    ("lines", true, lines_of),
];

impl Report<'_> {
    fn rows(&self) -> &[ComparedRun] {
        self.results.rows()
    }

    /// Writes one row for each agent.
    pub(super) fn table(&self, out: &mut dyn Write, ui: Option<&Ui>) -> io::Result<()> {
        let cells: Vec<Vec<String>> = self
            .rows()
            .iter()
            .map(|row| COLUMNS.iter().map(|(_, _, value)| plain(&value(&row.outcome)).into_owned()).collect())
            .collect();
        let widths: Vec<usize> = COLUMNS
            .iter()
            .enumerate()
            .map(|(at, (title, ..))| {
                cells.iter().map(|row| row[at].chars().count()).chain([title.len()]).max().unwrap_or(0)
            })
            .collect();
        let line = |cells: &[&str]| -> String {
            let padded = cells.iter().zip(COLUMNS).zip(&widths).map(|((cell, (_, right, _)), width)| {
                if *right { format!("{cell:>width$}") } else { format!("{cell:<width$}") }
            });
            padded.collect::<Vec<_>>().join("  ").trim_end().to_owned()
        };
        let titles: Vec<&str> = COLUMNS.iter().map(|(title, ..)| *title).collect();
        writeln!(out, "{}", painted(ui, Paint::Dim, &line(&titles)))?;
        for row in &cells {
            writeln!(out, "{}", line(&row.iter().map(String::as_str).collect::<Vec<_>>()))?;
        }
        self.applied_line(out)
    }

    fn applied_line(&self, out: &mut dyn Write) -> io::Result<()> {
        match self.applied {
            None => Ok(()),
            Some(Applied { agent, error: Some(error), .. }) => {
                writeln!(out, "\nnot applied ({agent}): {}", plain(error))
            }
            Some(Applied { agent, files, .. }) => {
                writeln!(
                    out,
                    "\napplied {agent}: {} {}",
                    files.len(),
                    if files.len() == 1 { "file" } else { "files" }
                )
            }
        }
    }

    /// Writes the table, then the answer and the changes of each agent.
    pub(super) fn text(&self, out: &mut dyn Write, ui: Option<&Ui>) -> io::Result<()> {
        self.table(out, ui)?;
        for row in self.rows() {
            let outcome = &row.outcome;
            writeln!(out, "\n{}", painted(ui, Paint::Bold, &format!("== {} ==", outcome.agent)))?;
            if let Some(error) = &outcome.error {
                writeln!(out, "{}: {}", outcome.verdict.name(), plain(&error.message))?;
                if let Some(hint) = &error.hint {
                    writeln!(out, "hint: {}", plain(hint))?;
                }
            }
            if !outcome.text.trim().is_empty() {
                writeln!(out, "{}", plain(outcome.text.trim_end()))?;
            }
            for file in &outcome.files {
                match &file.diff {
                    Some(diff) => {
                        diff.lines().try_for_each(|line| writeln!(out, "{}", diff_line(ui, line)))?
                    }
                    None => writeln!(out, "{} {}", change_word(file.change), plain(&file.path))?,
                }
            }
        }
        Ok(())
    }

    pub(super) fn json(&self, out: &mut dyn Write) -> io::Result<()> {
        let report = JsonReport {
            schema: COMPARISON_SCHEMA,
            prompt: self.prompt,
            workspace: self.workspace,
            results: self.rows().iter().map(JsonResult::of).collect(),
            applied: self.applied,
        };
        serde_json::to_writer(&mut *out, &report)?;
        writeln!(out)
    }

    pub(super) fn html(&self, out: &mut dyn Write) -> io::Result<()> {
        let outcomes: Vec<&Outcome> = self.rows().iter().map(|row| &row.outcome).collect();
        render::comparison_html(out, self.prompt, self.workspace, &outcomes)
    }
}

fn painted(ui: Option<&Ui>, paint: Paint, text: &str) -> String {
    ui.map_or_else(|| text.to_owned(), |ui| ui.paint_out(paint, text))
}

fn diff_line(ui: Option<&Ui>, line: &str) -> String {
    let text = plain(line);
    match line.chars().next() {
        Some('+') => painted(ui, Paint::Green, &text),
        Some('-') => painted(ui, Paint::Red, &text),
        Some('@') => painted(ui, Paint::Dim, &text),
        _ => text.into_owned(),
    }
}

fn change_word(change: agentline_core::FileChangeKind) -> &'static str {
    match change {
        agentline_core::FileChangeKind::Created => "created",
        agentline_core::FileChangeKind::Deleted => "deleted",
        _ => "modified",
    }
}

fn lines_of(outcome: &Outcome) -> String {
    let known = outcome.files.iter().filter_map(|file| Some((file.added?, file.removed?)));
    let (added, removed) = known.fold((0, 0), |(a, r), (added, removed)| (a + added, r + removed));
    format!("+{added} -{removed}")
}
