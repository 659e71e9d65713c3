//! Codex's own patch format.

use crate::SavedDiff;

/// The change to one file in a patch.
#[derive(Debug, PartialEq)]
pub(super) struct FilePatch<'a> {
    /// The path of the file.
    pub(super) path: &'a str,
    /// The kind of change.
    pub(super) action: PatchAction,
    lines: Vec<&'a str>,
}

/// The kind of change to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PatchAction {
    Add,
    Update,
    Delete,
}

/// Parses a patch and ignores invalid lines.
pub(super) fn files(patch: &str) -> Vec<FilePatch<'_>> {
    let begins = [
        ("*** Add File: ", PatchAction::Add),
        ("*** Update File: ", PatchAction::Update),
        ("*** Delete File: ", PatchAction::Delete),
    ];
    let mut files: Vec<FilePatch<'_>> = Vec::new();
    for line in patch.lines() {
        let header = begins.iter().find_map(|(prefix, action)| Some((line.strip_prefix(prefix)?, *action)));
        if let Some((path, action)) = header {
            files.push(FilePatch { path: path.trim(), action, lines: Vec::new() });
        } else if !line.starts_with("*** ")
            && let Some(file) = files.last_mut()
        {
            file.lines.push(line);
        }
    }
    files
}

impl FilePatch<'_> {
    /// Returns the lines with one of these prefixes, without the prefix and with line ends.
    fn only(&self, signs: &[char]) -> String {
        let lines = self.lines.iter().filter_map(|line| line.strip_prefix(signs));
        lines.flat_map(|line| [line, "\n"]).collect()
    }

    /// Returns the content of a new file.
    pub(super) fn content(&self) -> String {
        self.only(&['+'])
    }

    /// Returns the old and the new text if the patch changes only one place.
    pub(super) fn replaced(&self) -> Option<(String, String)> {
        let hunks = self.lines.iter().filter(|line| line.starts_with("@@")).count();
        let trimmed = |text: String| text.strip_suffix('\n').unwrap_or(&text).to_owned();
        (hunks <= 1).then(|| (trimmed(self.only(&[' ', '-'])), trimmed(self.only(&[' ', '+']))))
    }

    /// Returns the change as far as the patch describes it.
    fn diff(&self) -> SavedDiff {
        let path = self.path.to_owned();
        match self.action {
            PatchAction::Add => SavedDiff { path, new: Some(self.content()), ..SavedDiff::default() },
            PatchAction::Update => SavedDiff { path, unified: Some(self.text()), ..SavedDiff::default() },
            PatchAction::Delete => SavedDiff { path, new: Some(String::new()), ..SavedDiff::default() },
        }
    }

    fn text(&self) -> String {
        self.lines.iter().flat_map(|line| [*line, "\n"]).collect()
    }
}

/// Returns the change to one or more files. Several changes are concatenated.
pub(super) fn diff(files: &[FilePatch<'_>]) -> Option<SavedDiff> {
    together(files.iter().map(FilePatch::diff).collect())
}

/// Merges several changes into one text, with the path of the first.
pub(super) fn together(mut diffs: Vec<SavedDiff>) -> Option<SavedDiff> {
    if diffs.len() < 2 {
        return diffs.pop();
    }
    let unified = diffs.iter().map(headed).collect();
    Some(SavedDiff { path: diffs.swap_remove(0).path, unified: Some(unified), ..SavedDiff::default() })
}

/// Formats the change to one file with a header that names it.
fn headed(diff: &SavedDiff) -> String {
    let (old, new) = (diff.old.as_deref().unwrap_or_default(), diff.new.as_deref().unwrap_or_default());
    let body = diff.unified.clone().unwrap_or_else(|| {
        let lines = |sign: char, text: &str| -> String {
            text.lines().map(|line| format!("{sign}{line}\n")).collect()
        };
        let span = |text: &str| (usize::from(!text.is_empty()), text.lines().count());
        let (from, to) = (span(old), span(new));
        format!("@@ -{},{} +{},{} @@\n{}{}", from.0, from.1, to.0, to.1, lines('-', old), lines('+', new))
    });
    let name = |side: &str| format!("{side}/{}", diff.path.trim_start_matches('/'));
    let (mut before, mut after) = (name("a"), name("b"));
    if diff.unified.is_none() {
        let nowhere = if new.is_empty() { &mut after } else { &mut before };
        "/dev/null".clone_into(nowhere);
    }
    format!("--- {before}\n+++ {after}\n{body}")
}
