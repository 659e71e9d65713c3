//! Codex changes files by patches in a form of its own.

use crate::SavedDiff;

/// What a patch does to one file.
#[derive(Debug, PartialEq)]
pub(super) struct FilePatch<'a> {
    /// Which file.
    pub(super) path: &'a str,
    /// What happens to it.
    pub(super) deed: Deed,
    lines: Vec<&'a str>,
}

/// What happens to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Deed {
    Add,
    Update,
    Delete,
}

/// Reads a patch, as far as it is one.
pub(super) fn files(patch: &str) -> Vec<FilePatch<'_>> {
    let begins = [
        ("*** Add File: ", Deed::Add),
        ("*** Update File: ", Deed::Update),
        ("*** Delete File: ", Deed::Delete),
    ];
    let mut files: Vec<FilePatch<'_>> = Vec::new();
    for line in patch.lines() {
        let begun = begins.iter().find_map(|(words, deed)| Some((line.strip_prefix(words)?, *deed)));
        if let Some((path, deed)) = begun {
            files.push(FilePatch { path: path.trim(), deed, lines: Vec::new() });
        } else if !line.starts_with("*** ")
            && let Some(file) = files.last_mut()
        {
            file.lines.push(line);
        }
    }
    files
}

impl FilePatch<'_> {
    /// The lines that begin so, without that, each with its end.
    fn only(&self, signs: &[char]) -> String {
        let kept = self.lines.iter().filter_map(|line| line.strip_prefix(signs));
        kept.flat_map(|line| [line, "\n"]).collect()
    }

    /// The content of a new file.
    pub(super) fn content(&self) -> String {
        self.only(&['+'])
    }

    /// What is replaced and by what, for a change in one place.
    pub(super) fn replaced(&self) -> Option<(String, String)> {
        let places = self.lines.iter().filter(|line| line.starts_with("@@")).count();
        let trimmed = |text: String| text.strip_suffix('\n').unwrap_or(&text).to_owned();
        (places <= 1).then(|| (trimmed(self.only(&[' ', '-'])), trimmed(self.only(&[' ', '+']))))
    }

    /// The change, as far as the patch tells it.
    fn diff(&self) -> SavedDiff {
        let path = self.path.to_owned();
        match self.deed {
            Deed::Add => SavedDiff { path, new: Some(self.content()), ..SavedDiff::default() },
            Deed::Update => SavedDiff { path, unified: Some(self.text()), ..SavedDiff::default() },
            Deed::Delete => SavedDiff { path, new: Some(String::new()), ..SavedDiff::default() },
        }
    }

    fn text(&self) -> String {
        self.lines.iter().flat_map(|line| [*line, "\n"]).collect()
    }
}

/// The change of one file or of several. Those of several are told one after the other.
pub(super) fn diff(files: &[FilePatch<'_>]) -> Option<SavedDiff> {
    together(files.iter().map(FilePatch::diff).collect())
}

/// One change out of several: under the path of the first, as one text.
pub(super) fn together(mut diffs: Vec<SavedDiff>) -> Option<SavedDiff> {
    if diffs.len() < 2 {
        return diffs.pop();
    }
    let unified = diffs.iter().map(headed).collect();
    Some(SavedDiff { path: diffs.swap_remove(0).path, unified: Some(unified), ..SavedDiff::default() })
}

/// The change of one file among several, with its name above.
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
