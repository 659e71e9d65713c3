//! The change to a file as lines for people: context, removed and added lines, and the words that differ.

use agentline_core::{Diff, SavedDiff};
use similar::{Algorithm, DiffOp, capture_diff_slices, group_diff_ops};
use std::ops::Range;

/// The number of context lines around a change.
const AROUND: usize = 3;
/// The maximum product of the word counts of two lines whose words are compared.
const MOST_WORD_PAIRS: usize = 96 * 96;
/// The maximum length of a line whose words are compared.
const LONGEST_LINE: usize = 600;

/// The displayed change to one file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ShownChange {
    /// The path of the file.
    pub(crate) path: String,
    /// The changed places, with context.
    pub(crate) hunks: Vec<Vec<DiffLine>>,
    /// The number of added lines.
    pub(crate) added: usize,
    /// The number of removed lines.
    pub(crate) removed: usize,
    /// Whether line numbers are known.
    pub(crate) numbered: bool,
}

/// One line of a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DiffLine {
    /// Whether the line is unchanged, added or removed.
    pub(crate) sign: DiffSign,
    /// The line number before and after, from 1.
    pub(crate) numbers: (Option<usize>, Option<usize>),
    /// The line without its line ending.
    pub(crate) text: String,
    /// The byte ranges that differ from the corresponding line.
    pub(crate) marks: Vec<Range<usize>>,
}

/// Whether a line is unchanged, added or removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DiffSign {
    /// Unchanged.
    Same,
    /// Added.
    Added,
    /// Removed.
    Removed,
}

impl DiffSign {
    /// Returns the marker of a unified diff.
    pub(crate) fn mark(self) -> char {
        match self {
            Self::Same => ' ',
            Self::Added => '+',
            Self::Removed => '-',
        }
    }
}

impl ShownChange {
    /// Returns the change that an agent saved, or `None` if it is empty.
    pub(crate) fn of(diff: &SavedDiff) -> Option<Self> {
        let change = match (&diff.old, &diff.new, &diff.unified) {
            (None, None, Some(unified)) => Self::read(unified),
            (None, None, None) => return None,
            (old, new, _) => {
                Self::between(old.as_deref().unwrap_or_default(), new.as_deref().unwrap_or_default())
            }
        };
        let change = Self { path: diff.path.clone(), ..change };
        (!change.hunks.is_empty()).then_some(change)
    }

    /// Returns the change that a call proposes or reports, or `None` if it is empty.
    pub(crate) fn of_call(diff: &Diff) -> Option<Self> {
        let change = Self::between(diff.old.as_deref().unwrap_or_default(), &diff.new);
        (!change.hunks.is_empty()).then_some(Self { path: diff.path.clone(), ..change })
    }

    /// Computes the change from one text to another.
    pub(crate) fn between(old: &str, new: &str) -> Self {
        let (old, new): (Vec<&str>, Vec<&str>) = (old.lines().collect(), new.lines().collect());
        let mut change = Self { numbered: true, ..Self::default() };
        for ops in group_diff_ops(capture_diff_slices(Algorithm::Myers, &old, &new), AROUND) {
            let mut lines = Vec::new();
            for op in ops {
                let (olds, news) = (op.old_range(), op.new_range());
                if let DiffOp::Equal { .. } = op {
                    let same = |(i, k)| DiffLine::new(DiffSign::Same, (Some(i), Some(k)), old[i]);
                    lines.extend(olds.zip(news).map(same));
                    continue;
                }
                let mut removed: Vec<DiffLine> =
                    olds.map(|i| DiffLine::new(DiffSign::Removed, (Some(i), None), old[i])).collect();
                let mut added: Vec<DiffLine> =
                    news.map(|k| DiffLine::new(DiffSign::Added, (None, Some(k)), new[k])).collect();
                mark_all(&mut removed, &mut added);
                lines.append(&mut removed);
                lines.append(&mut added);
            }
            change.take(lines);
        }
        change
    }

    /// Parses a unified diff.
    fn read(unified: &str) -> Self {
        let mut change = Self::default();
        let (mut old, mut new) = (None, None);
        let mut lines: Vec<DiffLine> = Vec::new();
        let is_head = |line: &str| {
            ["--- ", "+++ ", "Index: ", "====", "diff ", "index ", "\\ "].iter().any(|h| line.starts_with(h))
        };
        let mut is_inside = false;
        for text in unified.lines() {
            if let Some((from, to)) = hunk_start(text) {
                change.numbered = true;
                (old, new, is_inside) = (Some(from), Some(to), true);
                change.take(std::mem::take(&mut lines));
                continue;
            }
            let next = |number: &mut Option<usize>| {
                let now = *number;
                *number = now.map(|n| n + 1);
                now
            };
            let (sign, numbers, rest) = match text.split_at_checked(1) {
                _ if text.starts_with("\\ ") || (!is_inside && is_head(text)) => continue,
                Some(("+", rest)) => (DiffSign::Added, (None, next(&mut new)), rest),
                Some(("-", rest)) => (DiffSign::Removed, (next(&mut old), None), rest),
                Some((" ", rest)) => (DiffSign::Same, (next(&mut old), next(&mut new)), rest),
                None => (DiffSign::Same, (next(&mut old), next(&mut new)), text),
                Some(_) => continue,
            };
            lines.push(DiffLine::new(sign, numbers, rest));
        }
        change.take(lines);
        for hunk in &mut change.hunks {
            mark_runs(hunk);
        }
        change
    }

    /// Adds lines as hunks, without those far from any change.
    fn take(&mut self, lines: Vec<DiffLine>) {
        let near: Vec<bool> = {
            let mut near = vec![false; lines.len()];
            let changed = lines.iter().enumerate().filter(|(_, line)| line.sign != DiffSign::Same);
            for (i, _) in changed {
                near[i.saturating_sub(AROUND)..(i + AROUND + 1).min(lines.len())].fill(true);
            }
            near
        };
        let mut hunk = Vec::new();
        for (line, near) in lines.into_iter().zip(near) {
            if near {
                self.added += usize::from(line.sign == DiffSign::Added);
                self.removed += usize::from(line.sign == DiffSign::Removed);
                hunk.push(line);
            } else if !hunk.is_empty() {
                self.hunks.push(std::mem::take(&mut hunk));
            }
        }
        if !hunk.is_empty() {
            self.hunks.push(hunk);
        }
    }
}

impl DiffLine {
    /// Creates a line from line numbers that start at 0.
    fn new(sign: DiffSign, numbers: (Option<usize>, Option<usize>), text: &str) -> Self {
        let from_one = |n: Option<usize>| n.map(|n| n + 1);
        let numbers = (from_one(numbers.0), from_one(numbers.1));
        Self { sign, numbers, text: text.to_owned(), marks: Vec::new() }
    }
}

/// Parses the start lines, from 0, of a hunk header like `@@ -1,4 +1,6 @@`.
fn hunk_start(line: &str) -> Option<(usize, usize)> {
    let rest = line.strip_prefix("@@ -")?;
    let (old, rest) = rest.split_once(" +")?;
    let (new, _) = rest.split_once(" @@")?;
    let start = |text: &str| text.split(',').next().and_then(|n| n.parse::<usize>().ok());
    Some((start(old)?.saturating_sub(1), start(new)?.saturating_sub(1)))
}

/// Marks the differences within adjacent removed and added lines.
fn mark_runs(lines: &mut [DiffLine]) {
    let mut from = 0;
    while from < lines.len() {
        let run = |at: usize, sign: DiffSign| lines[at..].iter().take_while(|line| line.sign == sign).count();
        let removed = run(from, DiffSign::Removed);
        let added = run(from + removed, DiffSign::Added);
        let (before, after) = lines[from..from + removed + added].split_at_mut(removed);
        mark_all(before, after);
        from += (removed + added).max(1);
    }
}

/// Marks the differences if there are as many added as removed lines, so that each has a counterpart.
fn mark_all(removed: &mut [DiffLine], added: &mut [DiffLine]) {
    if removed.len() == added.len() {
        removed.iter_mut().zip(added).for_each(|(old, new)| mark(old, new));
    }
}

/// Marks the words that differ, unless the lines have too little in common.
fn mark(old: &mut DiffLine, new: &mut DiffLine) {
    if old.text.len().max(new.text.len()) > LONGEST_LINE {
        return;
    }
    let (olds, news) = (word_ranges(&old.text), word_ranges(&new.text));
    if olds.len().saturating_mul(news.len()) > MOST_WORD_PAIRS {
        return;
    }
    let texts = |ranges: &[Range<usize>], text: &str| -> Vec<String> {
        ranges.iter().map(|range| text[range.clone()].to_owned()).collect()
    };
    let ops = capture_diff_slices(Algorithm::Myers, &texts(&olds, &old.text), &texts(&news, &new.text));
    let (mut removed, mut added, mut same) = (Vec::new(), Vec::new(), 0);
    let span = |ranges: &[Range<usize>], of: Range<usize>| {
        (!of.is_empty()).then(|| ranges[of.start].start..ranges[of.end - 1].end)
    };
    for op in ops {
        let (a, b) = (span(&olds, op.old_range()), span(&news, op.new_range()));
        if let DiffOp::Equal { .. } = op {
            same += a.map_or(0, |range| old.text[range].trim().len());
        } else {
            removed.extend(a);
            added.extend(b);
        }
    }
    // Lines with little in common would consist mostly of marks.
    if same * 5 >= old.text.trim().len().max(new.text.trim().len()) * 2 {
        (old.marks, new.marks) = (removed, added);
    }
}

/// Splits a line into words, runs of whitespace, and single punctuation characters.
fn word_ranges(line: &str) -> Vec<Range<usize>> {
    let kind = |c: char| match c {
        c if c.is_alphanumeric() || c == '_' => 1,
        c if c.is_whitespace() => 2,
        _ => 0,
    };
    let mut ranges: Vec<Range<usize>> = Vec::new();
    let mut last = 0;
    for (at, c) in line.char_indices() {
        let (this, end) = (kind(c), at + c.len_utf8());
        match ranges.last_mut() {
            Some(word) if this != 0 && this == last => word.end = end,
            _ => ranges.push(at..end),
        }
        last = this;
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Formats a change as lines, with differences in brackets.
    fn shown(change: &ShownChange) -> Vec<String> {
        let line = |line: &DiffLine| {
            let mut text = line.text.clone();
            for mark in line.marks.iter().rev() {
                text.insert(mark.end, ']');
                text.insert(mark.start, '[');
            }
            let number = line.numbers.1.or(line.numbers.0).unwrap_or(0);
            format!("{number}{}{text}", line.sign.mark())
        };
        let hunks: Vec<Vec<String>> =
            change.hunks.iter().map(|hunk| hunk.iter().map(line).collect()).collect();
        hunks.join(&"…".to_owned())
    }

    #[test]
    fn diff_shows_context_lines_and_marks_changed_words() {
        let old = "1\n2\n3\n4\nlet a = b + 1;\n6\n7\n8\n9\n10\n11\n12\n13\n14\n";
        let new = old.replace("a = b", "a = c").replace("13\n", "");
        let change = ShownChange::between(old, &new);
        assert_eq!(
            shown(&change),
            [
                "2 2",
                "3 3",
                "4 4",
                "5-let a = [b] + 1;",
                "5+let a = [c] + 1;",
                "6 6",
                "7 7",
                "8 8",
                "…",
                "10 10",
                "11 11",
                "12 12",
                "13-13",
                "13 14"
            ]
        );
        assert_eq!((change.added, change.removed), (1, 2));
        assert!(ShownChange::between(old, old).hunks.is_empty());
    }

    #[test]
    fn diff_of_a_new_and_an_emptied_file() {
        assert_eq!(shown(&ShownChange::between("", "a\nb")), ["1+a", "2+b"]);
        assert_eq!(shown(&ShownChange::between("a\n", "")), ["1-a"]);
    }

    #[test]
    fn unified_diff_is_parsed() {
        let unified = "--- a/x\n+++ b/x\n@@ -4,3 +4,3 @@ fn\n same\n-old way\n+new way\n--- gone\n\\ No newline\n@@ -20 +20 @@\n+x";
        let mut diff = SavedDiff::default();
        (diff.unified, diff.path) = (Some(unified.into()), "x".into());
        let change = ShownChange::of(&diff).unwrap();
        assert_eq!(shown(&change), ["4 same", "5-[old] way", "5+[new] way", "6--- gone", "…", "20+x"]);
        assert_eq!((change.added, change.removed, &*change.path), (2, 2, "x"));
    }

    #[test]
    fn diff_of_unrelated_texts_is_fast() {
        let text = |word: &str| (0..60_000).map(|i| format!("{word}{i}\n")).collect::<String>();
        let change = ShownChange::between(&text("a"), &text("b"));
        assert_eq!((change.added, change.removed), (60_000, 60_000));
    }

    #[test]
    fn long_texts_are_split_at_unique_common_lines() {
        let old: String = (0..5_000).map(|i| format!("line {i}\n")).collect();
        let new = old.replace("line 10\n", "line ten\n").replace("line 4000\n", "line 4000\nand one more\n");
        let change = ShownChange::between(&old, &new);
        assert_eq!((change.added, change.removed, change.hunks.len()), (2, 1, 2));
    }

    #[test]
    fn adversarial_texts_are_compared_in_near_linear_time() {
        let turned = |lines: usize| -> (String, String) {
            let lines: Vec<String> = (0..lines).map(|i| format!("line {i}\n")).collect();
            (lines.concat(), lines.iter().rev().map(String::as_str).collect())
        };
        let doubled = |lines: usize| ("a\nb\n".repeat(lines / 2), "b\nb\na\n".repeat(lines / 3));
        let signs = |lines: usize| {
            let line = |sign: &str| format!("{}\n", sign.repeat(250)).repeat(lines / 20);
            (line("a+"), line("+a"))
        };
        for texts in [turned, doubled, signs] {
            let time = |lines: usize| {
                let ((old, new), started_at) = (texts(lines), std::time::Instant::now());
                assert!(!ShownChange::between(&old, &new).hunks.is_empty());
                started_at.elapsed()
            };
            let fits = (0..5).any(|_| time(16_000) < time(4_000) * 8 + std::time::Duration::from_millis(20));
            assert!(fits, "the time is not linear in the length of the text");
        }
    }

    mod properties {
        use super::*;

        #[test]
        fn kept_and_added_lines_form_the_new_text() {
            // Every pair of texts of at most four lines of three kinds.
            let texts: Vec<String> = (0..81u32)
                .map(|n| (0..4).map(|i| ["", "a\n", "b\n"][(n / 3u32.pow(i) % 3) as usize]).collect())
                .collect();
            for old in &texts {
                for new in &texts {
                    let change = ShownChange::between(old, new);
                    let lines = change.hunks.iter().flatten();
                    let remaining = lines.filter(|line| line.sign != DiffSign::Removed);
                    let text: String = remaining.map(|line| format!("{}\n", line.text)).collect();
                    assert_eq!(text, if old == new { "" } else { new }, "{old:?} {new:?}");
                }
            }
        }
    }
}
