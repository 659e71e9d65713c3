//! Matches texts against the patterns of rules.
//!
//! Commands and names are matched in time linear in the length of the text. Paths are matched in time proportional to
//! the product of the lengths of path and pattern, which are limited.

use std::collections::BTreeSet;

/// One step of a path pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// This character.
    Letter(char),
    /// One character except `/`.
    One,
    /// Any number of characters except `/`.
    Name,
    /// Any number of characters.
    Any,
    /// Any number of directories, each with its slash. `InFolders` is the state inside their names.
    Folders,
    InFolders,
}

/// A parsed pattern for paths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Glob {
    steps: Vec<Step>,
}

/// A parsed pattern for commands and names: `*` matches anything, every other character matches itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct WordGlob {
    /// The literal text between the stars. The first and last pieces are anchored at the ends.
    pieces: Vec<String>,
    /// Whether a blank and any text may follow.
    and_more: bool,
}

impl WordGlob {
    /// Parses a pattern.
    pub(super) fn read(text: &str) -> Self {
        Self { pieces: text.split('*').map(str::to_owned).collect(), and_more: false }
    }

    /// Returns the only text that matches, if the pattern has no star.
    pub(super) fn literal(&self) -> Option<&str> {
        match self.pieces.as_slice() {
            [piece] if !self.and_more => Some(piece),
            _ => None,
        }
    }

    /// Returns the same pattern followed by a blank and any text.
    pub(super) fn and_more(self) -> Self {
        Self { and_more: true, ..self }
    }

    /// Returns whether the whole text matches. `fold` ignores case.
    pub(super) fn fits(&self, text: &str, fold: bool) -> bool {
        if fold {
            let pieces = self.pieces.iter().map(|piece| piece.to_lowercase()).collect();
            return Self { pieces, ..*self }.fits(&text.to_lowercase(), false);
        }
        let Some((first, others)) = self.pieces.split_first() else { return text.is_empty() };
        let Some(mut rest) = text.strip_prefix(first.as_str()) else { return false };
        let Some((last, between)) = others.split_last() else {
            return if self.and_more { rest.starts_with(char::is_whitespace) } else { rest.is_empty() };
        };
        // The first match of a piece leaves the most text for the following pieces.
        for piece in between {
            let Some(at) = rest.find(piece.as_str()) else { return false };
            rest = &rest[at + piece.len()..];
        }
        if !self.and_more {
            return rest.ends_with(last.as_str());
        }
        let blanks: BTreeSet<char> = rest.chars().filter(|c| c.is_whitespace()).collect();
        blanks.into_iter().any(|blank| rest.contains(&format!("{last}{blank}")))
    }
}

impl Glob {
    /// Parses a path pattern: `**` crosses directories, `*` and `?` stay within one, and a trailing slash matches
    /// everything below.
    pub(super) fn path(text: &str) -> Self {
        let mut steps = Vec::new();
        let mut rest = text;
        while let Some(c) = rest.chars().next() {
            if let Some(after) = rest.strip_prefix("**/") {
                steps.extend([Step::Folders, Step::InFolders]);
                rest = after;
                continue;
            }
            if let Some(after) = rest.strip_prefix("**") {
                steps.push(Step::Any);
                rest = after;
                continue;
            }
            steps.push(match c {
                '*' => Step::Name,
                '?' => Step::One,
                c => Step::Letter(c),
            });
            rest = &rest[c.len_utf8()..];
        }
        if text.ends_with('/') {
            steps.push(Step::Any);
        }
        Self { steps }
    }

    /// Returns whether the whole text matches. `fold` ignores case.
    pub(super) fn fits(&self, text: &str, fold: bool) -> bool {
        let mut now = vec![false; self.steps.len() + 1];
        let mut next = now.clone();
        self.enter(&mut now, 0);
        for c in text.chars() {
            next.fill(false);
            for (at, step) in self.steps.iter().enumerate().filter(|(at, _)| now[*at]) {
                match *step {
                    Step::Letter(letter) if same(letter, c, fold) => self.enter(&mut next, at + 1),
                    Step::One if c != '/' => self.enter(&mut next, at + 1),
                    Step::Name if c != '/' => self.enter(&mut next, at),
                    Step::Any => self.enter(&mut next, at),
                    Step::Folders | Step::InFolders => {
                        let inside = if *step == Step::Folders { at + 1 } else { at };
                        next[inside] = true;
                        if c == '/' {
                            self.enter(&mut next, inside + 1);
                        }
                    }
                    _ => {}
                }
            }
            std::mem::swap(&mut now, &mut next);
        }
        now[self.steps.len()]
    }

    /// Marks the state before a step, and also the states after steps that can match nothing.
    fn enter(&self, states: &mut [bool], mut at: usize) {
        loop {
            states[at] = true;
            at = match self.steps.get(at) {
                Some(Step::Name | Step::Any) => at + 1,
                Some(Step::Folders) => at + 2,
                _ => return,
            };
        }
    }
}

fn same(a: char, b: char, fold: bool) -> bool {
    a == b || (fold && a.to_lowercase().eq(b.to_lowercase()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn path_patterns_match_whole_paths() {
        for (glob, text, fits) in [
            ("src/**", "src/a", true),
            ("src/**", "src/a/b", true),
            ("src/**", "src", false),
            ("src/**", "srcs/a", false),
            ("src/", "src/a/b", true),
            ("*.rs", "a.rs", true),
            ("*.rs", "a/b.rs", false),
            ("**/*.rs", "b.rs", true),
            ("**/*.rs", "a/c/b.rs", true),
            ("a/**/z", "a/z", true),
            ("a/**/z", "a/b/c/z", true),
            ("a/**/z", "ab/z", false),
            ("a?c", "abc", true),
            ("a?c", "a/c", false),
            ("[a]", "a", false),
            ("", "", true),
            ("", "a", false),
        ] {
            assert_eq!(Glob::path(glob).fits(text, false), fits, "{glob} {text}");
        }
        assert!(Glob::path("SRC/É").fits("src/é", true) && !Glob::path("SRC").fits("src", false));
    }

    #[test]
    fn word_patterns_match_the_whole_text() {
        assert!(WordGlob::read("git *").fits("git push", false));
        assert!(!WordGlob::read("git *").fits("git", false));
        assert!(WordGlob::read("git").and_more().fits("git\tx", false));
        assert!(!WordGlob::read("git").and_more().fits("gitx", false));
        assert!(WordGlob::read("a*b*c").fits("a/b/c", false));
        for (glob, text, fits) in [
            ("", "", true),
            ("*", "", true),
            ("***", "a", true),
            ("a*a", "a", false),
            ("a*a", "aa", true),
            ("*ab*ba*", "aba", false),
            ("*ab*ba*", "abba", true),
            ("*a*", "bcb", false),
            ("A*", "ab", false),
        ] {
            assert_eq!(WordGlob::read(glob).fits(text, false), fits, "{glob} {text}");
        }
        assert!(WordGlob::read("A*É").fits("abé", true));
        assert!(WordGlob::read("a*b").and_more().fits("a b bb\tc", false));
        assert!(!WordGlob::read("a*b").and_more().fits("a bb", false));
    }

    /// Compares the time for a pattern with many stars to that for a pattern with few, on the same text.
    #[test]
    fn command_patterns_with_stars_match_quickly() {
        let text = "a".repeat(64 << 10);
        let time = |glob: &WordGlob| {
            let once = || {
                let start = std::time::Instant::now();
                assert!((0..20).all(|_| !glob.fits(&text, false)));
                start.elapsed()
            };
            (0..5).map(|_| once()).min().unwrap_or_default()
        };
        let few = time(&WordGlob::read("*ab*ac"));
        let many = time(&WordGlob::read(&format!("{}b", "*aaaaaaaa".repeat(64))));
        let long = time(&WordGlob::read(&format!("*{}b*c", "a".repeat(4000))));
        assert!(many < few * 100 && long < few * 100, "{few:?} {many:?} {long:?}");
    }

    #[test]
    fn patterns_with_many_stars_match_in_linear_time() {
        assert!(!Glob::path(&"*a".repeat(200)).fits(&"a".repeat(4000).replace("aaaa", "aaab/"), false));
    }

    proptest! {
        #[test]
        fn text_matches_itself_and_nothing_panics(text in "[a-z/.]{0,20}", glob in ".{0,20}") {
            prop_assert!(WordGlob::read(&text).fits(&text, false));
            let _ = (Glob::path(&glob).fits(&text, true), WordGlob::read(&glob).fits(&text, false));
        }
    }
}
