//! What a run leaves in its directory: messages, outcome and changes.

use crate::result::{CHANGES, PATCH};
use agentline::Outcome;
use agentline::isolate::WorkspaceCopy;
use agentline::messages::{Content, Message, Role, View};
use agentline::outcome::{DiskChange, FileChangeKind, FileRow};
use agentline::saved::Transcript;
use agentline_core::{Redactor, error_chain};
use std::collections::HashSet;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

/// The size of the changed files of a run that are stored, in bytes.
const MOST_STORED: u64 = 256 << 20;

/// The number of changed files that are listed although the agent hid them.
const MOST_UNREPORTED: usize = 1000;

/// Writes the prompt and the messages of a run.
pub(super) fn store_messages(file: &Path, agent: &str, prompt: &str, transcript: Transcript) {
    let mut asked = Message::new(View::Claude, Role::User, agent);
    asked.content = Content::Text(prompt.into());
    let Ok(file) = File::create(file) else { return };
    let mut file = BufWriter::new(file);
    for message in std::iter::once(asked).chain(transcript.into_messages()) {
        if let Ok(line) = serde_json::to_string(&message) {
            let _ = writeln!(file, "{line}");
        }
    }
}

/// Adds the files that an agent changed and hid: an ignore rule that is not in the template has no effect here.
pub(super) fn add_unreported(copy: &WorkspaceCopy, rows: &mut Vec<FileRow>) {
    let changed = copy.all_changes(MOST_UNREPORTED).unwrap_or_else(|_| {
        let unknown = "(more files than can be compared)";
        vec![DiskChange::new(unknown, FileChangeKind::Created)]
    });
    let known: HashSet<String> = rows.iter().map(|row| row.path.clone()).collect();
    let new = changed.into_iter().filter(|change| !known.contains(&change.path));
    rows.extend(new.map(FileRow::from));
}

/// Writes the outcome of a run.
pub(super) fn store_outcome(outcome: &Outcome, dir: &Path) -> std::io::Result<()> {
    std::fs::write(dir.join("outcome.json"), serde_json::to_string(outcome)?)
}

/// Writes the files that a run changed, one per line, so that its final workspace can be restored, and a patch of them.
/// Without the first file, the changes are not known.
pub(super) fn store_changes(copy: &WorkspaceCopy, dir: &Path, redactors: &[Redactor]) -> std::io::Result<()> {
    let changes =
        copy.changed_files(MOST_STORED).map_err(|error| std::io::Error::other(error_chain(&error)))?;
    let patch = copy.patch(&changes, &redactors.iter().collect::<Vec<_>>());
    std::fs::write(dir.join(PATCH), patch.text)?;
    let (path, unfinished) = (dir.join(CHANGES), dir.join("changes.tmp"));
    let mut file = BufWriter::new(File::create(&unfinished)?);
    let written = changes.iter().try_for_each(|change| writeln!(file, "{}", serde_json::to_string(change)?));
    let written = written.and_then(|()| file.flush()).and_then(|()| std::fs::rename(&unfinished, &path));
    if written.is_err() {
        let _ = std::fs::remove_file(&unfinished);
    }
    written
}
