//! The result of a call: the complete text of the assistant and the files that the agent wrote.

use agentline_core::{ChangeSource, Denial, Event, FileChangeKind, FileRow, Notice, Outcome};
use serde::Serialize;
use std::{collections::BTreeMap, path::Path};

/// An agent's answer. It serializes to exactly `{"response":"…","files":{"hello.txt":null}}`.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct ProviderResult {
    /// The complete assistant text of all turns, verbatim.
    pub response: String,
    /// The files that the agent created or changed, with tools or shell commands. Paths inside the workspace are
    /// relative to it. The value is null, because the agent wrote the file itself. Files that were deleted or never
    /// written are not included.
    pub files: BTreeMap<String, Option<String>>,
    /// Warnings about the configuration, the run and this result.
    #[serde(skip)]
    pub warnings: Vec<Notice>,
    /// The outcome of the run.
    #[serde(skip)]
    pub outcome: Outcome,
}

impl ProviderResult {
    /// Returns the tool calls that were refused. The answer may be incomplete because of them.
    #[must_use]
    pub fn denied(&self) -> &[Denial] {
        &self.outcome.denied
    }
}

/// Collects a result from the events of a run.
#[derive(Clone, Debug, Default)]
pub struct ResultCollector {
    text: String,
    /// The start of the last turn's text in `text`.
    last_turn: usize,
    turn_is_over: bool,
    turn_has_text: bool,
}

impl ResultCollector {
    /// Processes one event of the run.
    pub fn take(&mut self, event: &Event) {
        match event {
            Event::Text { text } => {
                self.begin_turn();
                if !std::mem::replace(&mut self.turn_has_text, true) {
                    self.last_turn = self.text.len();
                }
                self.text.push_str(text);
            }
            Event::Thinking { .. } | Event::ToolUse(_) => self.begin_turn(),
            Event::ToolResult(_) => self.turn_is_over = true,
            // The result is that of the last attempt.
            Event::Retry { .. } => *self = Self::default(),
            _ => {}
        }
    }

    /// Builds the result after the run has ended. `before` contains warnings from before the run.
    #[must_use]
    pub fn finish(mut self, outcome: Outcome, before: &[Notice]) -> ProviderResult {
        // Where an agent repeated part of a turn, the outcome has the correct text of the last turn.
        if !outcome.text.is_empty() {
            self.text.truncate(self.last_turn);
            self.text.push_str(&outcome.text);
        }
        let mut warnings = before.to_vec();
        warnings.extend(outcome.warnings.iter().cloned());
        let files = files(&outcome, &mut warnings);
        ProviderResult { response: self.text, files, warnings, outcome }
    }

    fn begin_turn(&mut self) {
        if std::mem::take(&mut self.turn_is_over) {
            self.turn_has_text = false;
        }
    }
}

/// Returns the files that the agent wrote and that exist, and reports other changes as warnings.
fn files(outcome: &Outcome, warnings: &mut Vec<Notice>) -> BTreeMap<String, Option<String>> {
    let mut files = BTreeMap::new();
    let (mut missing, mut strange) = (Vec::new(), Vec::new());
    for row in outcome.files.iter().filter(|row| row.change != FileChangeKind::Deleted) {
        if row.source == ChangeSource::Unknown {
            strange.push(row.path.as_str());
        } else if exists(row, &outcome.cwd) {
            files.insert(row.path.clone(), None);
        } else {
            missing.push(row.path.as_str());
        }
    }
    let mut warn = |code: &str, message: &str, paths: Vec<&str>| {
        if !paths.is_empty() {
            warnings.push(Notice::new(code, format!("{message}: {}", paths.join(", "))));
        }
    };
    warn("files_missing", "a tool reported that it wrote these files, but they do not exist", missing);
    warn("files_unknown", "these files changed during the run, but no tool reported them", strange);
    files
}

/// Returns whether a file exists. A tool that writes unchanged content leaves no other trace.
fn exists(row: &FileRow, cwd: &str) -> bool {
    row.verified || Path::new(cwd).join(&row.path).exists()
}
