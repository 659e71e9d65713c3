//! What a call gives back: all of the assistant's text, and the files that the agent wrote.

use agentline_core::{Change, ChangeSource, Denial, Event, FileRow, Notice, Outcome};
use serde::Serialize;
use std::{collections::BTreeMap, path::Path};

/// How many unread lines a warning shows, and how much of each.
const SAMPLES: usize = 3;
const SAMPLE_LENGTH: usize = 50;

/// The answer of an agent. As JSON: `{"response":"…","files":{"hello.txt":null}}`, and nothing else.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct ProviderResult {
    /// All assistant text of the run, of all turns, as it was written.
    pub response: String,
    /// The files that the agent created or changed, by tools or by shell commands; null says that it wrote the file
    /// itself. Relative to the workspace when inside it. What is deleted or was never written is not here.
    pub files: BTreeMap<String, Option<String>>,
    /// What the caller should know: of the configuration, of the run, of this result.
    #[serde(skip)]
    pub warnings: Vec<Notice>,
    /// All that the run came to.
    #[serde(skip)]
    pub outcome: Box<Outcome>,
}

impl ProviderResult {
    /// Tools that the agent wanted and did not get; the answer may be less than was asked for.
    #[must_use]
    pub fn denied(&self) -> &[Denial] {
        &self.outcome.denied
    }
}

/// Gathers a result while a run goes on.
#[derive(Clone, Debug, Default)]
pub struct Gathered {
    text: String,
    /// Where the text of the last turn that has any begins.
    last_turn: usize,
    turn_is_over: bool,
    turn_has_text: bool,
    unread: Vec<String>,
}

impl Gathered {
    /// Takes one event of the run.
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
            Event::ToolResult { .. } => self.turn_is_over = true,
            Event::Unreadable { sample, .. } if self.unread.len() < SAMPLES => {
                self.unread.push(sample.chars().take(SAMPLE_LENGTH).collect());
            }
            _ => {}
        }
    }

    /// The result, once the run is over. `before` is what was to be told before it began.
    #[must_use]
    pub fn finish(mut self, outcome: Outcome, before: &[Notice]) -> ProviderResult {
        // Where an agent repeated itself on its way, the outcome has the last turn as it was meant.
        if !outcome.text.is_empty() {
            self.text.truncate(self.last_turn);
            self.text.push_str(&outcome.text);
        }
        let mut warnings = before.to_vec();
        warnings.extend(outcome.warnings.iter().cloned());
        if !self.unread.is_empty() {
            let message = format!(
                "Malformed JSON lines: {} in all, first: {:?}",
                outcome.unreadable_lines, self.unread
            );
            warnings.push(Notice::new("malformed_lines", message));
        }
        let files = files(&outcome, &mut warnings);
        ProviderResult { response: self.text, files, warnings, outcome: Box::new(outcome) }
    }

    fn begin_turn(&mut self) {
        if std::mem::take(&mut self.turn_is_over) {
            self.turn_has_text = false;
        }
    }
}

/// What the agent wrote and is there; what else changed is told as warnings.
fn files(outcome: &Outcome, warnings: &mut Vec<Notice>) -> BTreeMap<String, Option<String>> {
    let mut files = BTreeMap::new();
    let (mut missing, mut strange) = (Vec::new(), Vec::new());
    for row in outcome.files.iter().filter(|row| row.change != Change::Deleted) {
        if row.source == ChangeSource::Unknown {
            strange.push(row.path.as_str());
        } else if is_there(row, &outcome.cwd) {
            files.insert(row.path.clone(), None);
        } else {
            missing.push(row.path.as_str());
        }
    }
    let mut warn = |code: &str, what: &str, paths: Vec<&str>| {
        if !paths.is_empty() {
            warnings.push(Notice::new(code, format!("{what}: {}", paths.join(", "))));
        }
    };
    warn("files_missing", "a tool said that it wrote these files, which are not there", missing);
    warn("files_unknown", "these files changed during the run, and it is not known by whom", strange);
    files
}

/// A tool that writes what was there already leaves no trace; its file is there all the same.
fn is_there(row: &FileRow, cwd: &str) -> bool {
    row.verified || Path::new(cwd).join(&row.path).exists()
}
