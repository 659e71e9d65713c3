//! Unified diffs of the files that a run changed.

use crate::workspace::snapshot::{ChangeKind, Snapshot, SnapshotChange};
use agentline_core::{Diff, Redactor};
use std::path::Path;
use std::time::Instant;

/// The maximum length of the diff of one file, and of the diffs of all files of a run.
const MAX_FILE: usize = 64 << 10;
const MAX_TOTAL: usize = 1 << 20;
/// The maximum time to compare two texts. After it, the diff is correct, but longer than necessary.
#[cfg(feature = "diffs")]
const COMPARISON: std::time::Duration = std::time::Duration::from_millis(200);

/// Builds the diffs of a run. Secrets are redacted before the texts are compared, because a diff splits a secret of
/// several lines.
pub(super) struct Differ<'a> {
    before: &'a Snapshot,
    /// The changes that tools reported, with the path as the snapshot spells it.
    edits: Vec<(String, &'a Diff)>,
    redactor: &'a Redactor,
    left: usize,
    deadline: Instant,
}

impl<'a> Differ<'a> {
    /// Creates a builder for the changes since this snapshot. No text is read after the deadline.
    pub(super) fn new(
        before: &'a Snapshot,
        edits: &'a [Diff],
        redactor: &'a Redactor,
        deadline: Instant,
    ) -> Self {
        let edits = edits.iter().map(|edit| (before.spell(Path::new(&edit.path)), edit)).collect();
        Self { before, edits, redactor, left: MAX_TOTAL, deadline }
    }

    /// Returns the diff of a changed file, or `None` if it is not text, or if its old content is not known: neither was
    /// it kept, nor can it be restored from what tools reported.
    pub(super) fn diff(&mut self, change: &SnapshotChange) -> Option<String> {
        if self.left == 0 || Instant::now() > self.deadline {
            return None;
        }
        let now = || self.before.content_now(&change.path).and_then(text);
        let then = || self.before.content_before(&change.path).and_then(|old| text(old.to_vec()));
        let (old, new) = match change.kind {
            ChangeKind::Created => (None, Some(now()?)),
            ChangeKind::Deleted => (Some(then()?), None),
            ChangeKind::Modified => {
                let new = now()?;
                (Some(then().or_else(|| self.undo(&change.path, &new))?), Some(new))
            }
        };
        let redacted = |text: Option<String>| text.map(|text| self.redactor.text(&text).into_owned());
        let diff = unified(&change.path, redacted(old).as_deref(), redacted(new).as_deref());
        let diff = shorten(diff, MAX_FILE.min(self.left));
        self.left = self.left.saturating_sub(diff.len());
        Some(diff).filter(|diff| !diff.is_empty())
    }

    /// Restores the old content of a file by taking back the changes that tools reported, the last one first. Each must
    /// be found exactly once.
    fn undo(&self, path: &str, new: &str) -> Option<String> {
        let edits: Vec<&Diff> =
            self.edits.iter().filter(|(edited, _)| edited == path).map(|(_, edit)| *edit).collect();
        let mut content = new.to_owned();
        for edit in edits.iter().rev() {
            let mut found = content.match_indices(&edit.new).map(|(at, _)| at);
            let (at, None) = (found.next()?, found.next()) else { return None };
            content.replace_range(at..at + edit.new.len(), edit.old.as_deref().unwrap_or_default());
        }
        (!edits.is_empty()).then_some(content)
    }
}

/// Returns the text of a file that is not binary.
fn text(content: Vec<u8>) -> Option<String> {
    (!content.contains(&0)).then(|| String::from_utf8_lossy(&content).into_owned())
}

#[cfg(feature = "diffs")]
fn unified(path: &str, old: Option<&str>, new: Option<&str>) -> String {
    let name = |side: &str, text: Option<&str>| match text {
        Some(_) => format!("{side}/{}", path.trim_start_matches('/')),
        None => "/dev/null".to_owned(),
    };
    let (from, to) = (name("a", old), name("b", new));
    let (old, new) = (old.unwrap_or_default(), new.unwrap_or_default());
    let diff = similar::TextDiff::configure().timeout(COMPARISON).diff_lines(old, new);
    diff.unified_diff().header(&from, &to).to_string()
}

/// Compares nothing: a build without the feature refuses a request for diffs.
#[cfg(not(feature = "diffs"))]
fn unified(_path: &str, _old: Option<&str>, _new: Option<&str>) -> String {
    String::new()
}

/// Cuts a diff at the end of a line. Its last line then says how many lines are missing; like the line about a missing
/// end of line, it is not part of the change.
fn shorten(mut diff: String, longest: usize) -> String {
    if diff.len() <= longest {
        return diff;
    }
    let mut cut = longest;
    while !diff.is_char_boundary(cut) {
        cut -= 1;
    }
    let cut = diff[..cut].rfind('\n').map_or(0, |at| at + 1);
    let missing = diff[cut..].lines().count();
    diff.truncate(cut);
    diff.push_str(&format!("\\ {missing} more lines\n"));
    diff
}

#[cfg(all(test, feature = "diffs"))]
mod tests {
    use super::*;
    use crate::workspace::snapshot::SnapshotOptions;
    use std::fs;
    use std::time::Duration;

    /// Returns the diffs of all files that `change` changes in a directory with these files.
    fn diffs(
        files: &[(&str, &str)],
        edits: &[(&str, Option<&str>, &str)],
        secrets: &[&str],
        change: impl FnOnce(&Path),
    ) -> Vec<(String, Option<String>)> {
        let dir = tempfile::tempdir().expect("a directory");
        files.iter().for_each(|(name, content)| fs::write(dir.path().join(name), content).expect("a file"));
        let options = SnapshotOptions::default();
        let before = Snapshot::take(dir.path(), &options);
        change(dir.path());
        let edits: Vec<Diff> = edits
            .iter()
            .map(|(path, old, new)| {
                let mut edit = Diff::default();
                edit.path = dir.path().join(path).to_string_lossy().into_owned();
                (edit.old, edit.new) = (old.map(str::to_owned), (*new).to_owned());
                edit
            })
            .collect();
        let redactor = Redactor::new(secrets);
        let deadline = Instant::now() + Duration::from_secs(60);
        let mut differ = Differ::new(&before, &edits, &redactor, deadline);
        let changes = before.compare(&before.take_again(&options), &[]);
        changes.iter().map(|change| (change.path.clone(), differ.diff(change))).collect()
    }

    #[test]
    fn every_kind_of_change_has_a_unified_diff() {
        let found = diffs(&[("gone", "a\nb\n"), ("edited", "one\ntwo\nthree")], &[], &[], |dir| {
            fs::remove_file(dir.join("gone")).unwrap();
            fs::write(dir.join("edited"), "one\n2\nthree").unwrap();
            fs::write(dir.join("new"), "x\n").unwrap();
            fs::write(dir.join("empty"), "").unwrap();
            fs::write(dir.join("picture"), [1, 0, 2]).unwrap();
        });
        let expected = [
            (
                "edited",
                Some(
                    "--- a/edited\n+++ b/edited\n@@ -1,3 +1,3 @@\n one\n-two\n+2\n three\n\\ No newline at end of file\n",
                ),
            ),
            ("empty", None),
            ("gone", Some("--- a/gone\n+++ /dev/null\n@@ -1,2 +0,0 @@\n-a\n-b\n")),
            ("new", Some("--- /dev/null\n+++ b/new\n@@ -0,0 +1 @@\n+x\n")),
            ("picture", None),
        ];
        let found: Vec<_> = found.iter().map(|(path, diff)| (path.as_str(), diff.as_deref())).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn old_content_in_a_large_workspace_is_restored_from_the_reports_of_tools() {
        let large = "x".repeat(3 << 20);
        let files = [("large", &*large), ("tool", "one\ntwo\n"), ("shell", "one\n"), ("both", "a\nb\n")];
        let edits = [
            ("tool", Some("two"), "2"),
            ("tool", Some("one\n2\n"), "1\n2\n"),
            // A command has changed the file since.
            ("both", Some("a\nb\n"), "A\nb\n"),
        ];
        let found = diffs(&files, &edits, &[], |dir| {
            fs::write(dir.join("tool"), "1\n2\n").unwrap();
            fs::write(dir.join("shell"), "two\n").unwrap();
            fs::write(dir.join("both"), "A\nB\n").unwrap();
        });
        let tool = "--- a/tool\n+++ b/tool\n@@ -1,2 +1,2 @@\n-one\n-two\n+1\n+2\n";
        let found: Vec<_> = found.iter().map(|(path, diff)| (path.as_str(), diff.as_deref())).collect();
        assert_eq!(found, [("both", None), ("shell", None), ("tool", Some(tool))]);
    }

    #[test]
    fn diffs_are_limited() {
        let line = format!("{}\n", "y".repeat(99));
        let found = diffs(&[], &[], &[], |dir| {
            for n in 0..40 {
                fs::write(dir.join(format!("{n:02}")), line.repeat(1000)).unwrap();
            }
        });
        let lengths: Vec<usize> =
            found.iter().map(|(_, diff)| diff.as_ref().map_or(0, String::len)).collect();
        assert!(lengths.iter().all(|length| *length < MAX_FILE + 100), "{lengths:?}");
        assert!(lengths.iter().sum::<usize>() < MAX_TOTAL + 40 * 100, "{lengths:?}");
        let first = found[0].1.as_deref().unwrap();
        let shown = first.lines().filter(|line| line.starts_with("+y")).count();
        assert!(first.ends_with(&format!("\n\\ {} more lines\n", 1000 - shown)) && shown > 600, "{shown}");
    }

    #[test]
    fn secret_of_several_lines_is_redacted() {
        let secret = "-----BEGIN KEY-----\nabcdefgh\n-----END KEY-----";
        let found = diffs(&[], &[], &[secret], |dir| {
            fs::write(dir.join("key"), format!("{secret}\n")).unwrap();
        });
        let diff = found[0].1.as_deref().unwrap();
        assert!(diff.contains("+[redacted]\n") && !diff.contains("abcdefgh"), "{diff}");
    }
}
