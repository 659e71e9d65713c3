//! Counts the lines that differ between two texts.

use std::collections::{HashMap, HashSet};

/// The maximum number of steps per line when comparing two texts. A comparison that needs more is abandoned.
const STEPS_PER_LINE: usize = 200;
/// Comparisons with at most this many edits are always completed.
const ALWAYS_COMPARED: usize = 400;

/// Returns the minimal numbers of added and removed lines from `old` to `new`, if both are text.
pub(super) fn changed(old: &[u8], new: &[u8]) -> Option<(u64, u64)> {
    let (mut old, mut new) = (split(old)?, split(new)?);
    let (old_count, new_count) = (old.len(), new.len());
    let same = old.iter().zip(&new).take_while(|(one, other)| one == other).count();
    old.drain(..same);
    new.drain(..same);
    let same = old.iter().rev().zip(new.iter().rev()).take_while(|(one, other)| one == other).count();
    old.truncate(old.len() - same);
    new.truncate(new.len() - same);
    let all = old.len() + new.len();
    let (old, new) = in_both(&old, &new);
    // A line that only one text has is always an edit.
    let edits = distance(&old, &new)? + all - old.len() - new.len();
    // Every edit adds or removes one line, and their difference is the difference in length.
    let added = (edits + new_count).checked_sub(old_count)? / 2;
    Some((added as u64, (edits - added) as u64))
}

/// Returns the lines that both texts have, as numbers. Equal lines have the same number.
fn in_both(old: &[&[u8]], new: &[&[u8]]) -> (Vec<usize>, Vec<usize>) {
    let numbers: HashMap<&[u8], usize> = old.iter().enumerate().map(|(at, line)| (*line, at)).collect();
    let new: Vec<usize> = new.iter().filter_map(|line| numbers.get(line).copied()).collect();
    let common: HashSet<usize> = new.iter().copied().collect();
    let old = old.iter().map(|line| numbers[line]).filter(|number| common.contains(number)).collect();
    (old, new)
}

/// Returns the number of lines of a text.
pub(super) fn count(text: &[u8]) -> Option<u64> {
    Some(split(text)?.len() as u64)
}

/// Splits a text into lines with their line endings, so that a missing last one is a difference, as in git.
fn split(text: &[u8]) -> Option<Vec<&[u8]>> {
    (!text.contains(&0)).then(|| text.split_inclusive(|byte| *byte == b'\n').collect())
}

/// Returns the length of the shortest edit script, by Myers' greedy algorithm (1986) without backtracking.
fn distance(old: &[usize], new: &[usize]) -> Option<usize> {
    if old.is_empty() || new.is_empty() {
        return Some(old.len() + new.len());
    }
    let lines = old.len() + new.len();
    // The time grows with the square of the number of edits.
    let most = lines.min((2 * STEPS_PER_LINE * lines).isqrt().max(ALWAYS_COMPARED));
    // For each diagonal (lines taken from old minus lines taken from new, offset by `most + 1` to be non-negative), the
    // number of lines of old that the furthest path on it has consumed.
    let middle = most + 1;
    let mut furthest = vec![0_usize; 2 * middle + 1];
    for edits in 0..=most {
        for diagonal in (middle - edits..=middle + edits).step_by(2) {
            let (below, above) = (furthest[diagonal - 1], furthest[diagonal + 1]);
            let adds = diagonal == middle - edits || (diagonal != middle + edits && below < above);
            let mut taken = if adds { above } else { below + 1 };
            let mut matched = taken + middle - diagonal;
            while taken < old.len() && matched < new.len() && old[taken] == new[matched] {
                taken += 1;
                matched += 1;
            }
            furthest[diagonal] = taken;
            if taken >= old.len() && matched >= new.len() {
                return Some(edits);
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_the_minimal_line_difference() {
        let cases: &[(&str, &str, (u64, u64))] = &[
            ("", "", (0, 0)),
            ("a\nb\n", "a\nb\n", (0, 0)),
            ("", "a\nb\n", (2, 0)),
            ("a\nb\n", "", (0, 2)),
            ("a\nb\nc\n", "a\nx\nc\n", (1, 1)),
            ("a\nb\nc\n", "a\nc\n", (0, 1)),
            ("a\nc\n", "a\nb\nc\n", (1, 0)),
            ("a\nb\nc\na\nb\nb\na\n", "c\nb\na\nb\na\nc\n", (2, 3)),
            ("one\n", "one", (1, 1)),
            ("a\nb\nc\nd\n", "d\na\nb\nc\n", (1, 1)),
            ("x\ny\nz\n", "1\n2\n", (2, 3)),
        ];
        for (old, new, expected) in cases {
            assert_eq!(changed(old.as_bytes(), new.as_bytes()), Some(*expected), "{old:?} to {new:?}");
        }
    }

    /// Counts edits with a slow reference method: all lines outside the longest common subsequence.
    #[test]
    fn agrees_with_the_longest_common_subsequence() {
        let mut state = 1_u32;
        let mut next = |bound: u32| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 16) % bound
        };
        for _ in 0..500 {
            let mut text = || -> Vec<u8> {
                let lines = next(12);
                (0..lines).flat_map(|_| [b'a' + u8::try_from(next(3)).unwrap(), b'\n']).collect()
            };
            let (old, new) = (text(), text());
            let (old_lines, new_lines) = (split(&old).unwrap(), split(&new).unwrap());
            let mut common = vec![vec![0; new_lines.len() + 1]; old_lines.len() + 1];
            for (row, one) in old_lines.iter().enumerate() {
                for (column, other) in new_lines.iter().enumerate() {
                    common[row + 1][column + 1] = if one == other {
                        common[row][column] + 1
                    } else {
                        common[row][column + 1].max(common[row + 1][column])
                    };
                }
            }
            let common = common[old_lines.len()][new_lines.len()];
            let expected = ((new_lines.len() - common) as u64, (old_lines.len() - common) as u64);
            assert_eq!(changed(&old, &new), Some(expected), "{old:?} {new:?}");
        }
    }

    #[test]
    fn binary_and_very_different_texts_have_no_count() {
        assert_eq!(changed(b"a\0", b"b"), None);
        assert_eq!(count(b"a\0"), None);
        let numbered = |prefix: &str| (0..5_000).map(|line| format!("{prefix}{line}\n")).collect::<String>();
        assert_eq!(changed(numbered("a").as_bytes(), numbered("b").as_bytes()), Some((5_000, 5_000)));
        let turned: String = numbered("a").split_inclusive('\n').rev().collect();
        assert_eq!(changed(numbered("a").as_bytes(), turned.as_bytes()), None);
    }

    #[test]
    fn adversarial_texts_are_compared_in_near_linear_time() {
        // Long lines that differ only at their ends, in reverse order: without numbers, every pair would be compared.
        let text =
            |lines: usize| -> String { (0..lines).map(|i| format!("{}{i:09}\n", "x".repeat(500))).collect() };
        let time = |lines: usize| {
            let (old, started_at) = (text(lines), std::time::Instant::now());
            let turned: String = old.split_inclusive('\n').rev().collect();
            let _ = changed(old.as_bytes(), turned.as_bytes());
            started_at.elapsed()
        };
        let fits = (0..5).any(|_| time(8_000) < time(2_000) * 8 + std::time::Duration::from_millis(20));
        assert!(fits, "the time is not linear in the length of the text");
    }
}
