//! What a run leaves in its directory: messages, outcome and changes.

use crate::result::{CHANGES, IGNORED, PATCH};
use agentline::Outcome;
use agentline::events::Notice;
use agentline::isolate::{StoredChanges, WorkspaceCopy};
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

/// The size of those that Git ignores, such as the output of a build, in bytes.
const MOST_IGNORED: u64 = 64 << 20;

/// The number of changed files that Git ignores and whose names are stored.
const MOST_IGNORED_NAMES: usize = 10_000;

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

/// Returns the changed files that the template makes Git ignore, and writes their names.
pub(super) fn store_ignored(copy: &WorkspaceCopy, dir: &Path) -> Vec<String> {
    let ignored = copy.ignored_changes(MOST_IGNORED_NAMES).unwrap_or_default();
    if !ignored.is_empty() {
        let _ = std::fs::write(dir.join(IGNORED), serde_json::to_string(&ignored).unwrap_or_default());
    }
    ignored
}

/// Returns the names that [`store_ignored`] wrote.
pub(super) fn read_ignored(dir: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(dir.join(IGNORED)).unwrap_or_default();
    serde_json::from_str(&text).unwrap_or_default()
}

/// Writes everything that a run changed, one file or directory per line, so that its final workspace can be restored, and
/// a patch. Without the first file, the changes are not known. Returns why files that Git ignores are not among them, if
/// they are not.
pub(super) fn store_changes(
    copy: &WorkspaceCopy,
    dir: &Path,
    redactors: &[Redactor],
    warnings: &mut Vec<Notice>,
) -> std::io::Result<Option<String>> {
    let failed = |error| std::io::Error::other(error_chain(&error));
    let StoredChanges { changes, ignored_left_out, .. } =
        copy.stored_changes(MOST_STORED, MOST_IGNORED).map_err(failed)?;
    let patch = copy.patch(&changes, &redactors.iter().collect::<Vec<_>>()).map_err(failed)?;
    if !patch.left_out.is_empty() {
        let names = patch.left_out.join(", ");
        let message = format!("the patch has no files that are not text and contain a secret: {names}");
        warnings.push(Notice::new("patch", message));
    }
    std::fs::write(dir.join(PATCH), patch.text)?;
    let (path, unfinished) = (dir.join(CHANGES), dir.join("changes.tmp"));
    let mut file = BufWriter::new(File::create(&unfinished)?);
    let written = changes.iter().try_for_each(|change| writeln!(file, "{}", serde_json::to_string(change)?));
    let written = written.and_then(|()| file.flush()).and_then(|()| std::fs::rename(&unfinished, &path));
    if written.is_err() {
        let _ = std::fs::remove_file(&unfinished);
    }
    written.map(|()| ignored_left_out)
}
