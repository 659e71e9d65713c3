//! Matches texts against the patterns of rules, in time that grows with their lengths and never faster.

/// One step of a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// This character.
    Letter(char),
    /// One character within a folder's name.
    One,
    /// Any characters within a folder's name.
    Name,
    /// Any characters.
    Any,
    /// Nothing, or folders with the slash behind them; the second half is inside of their names.
    Folders,
    InFolders,
    /// A blank.
    Blank,
}

/// A pattern that was read once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Glob {
    steps: Vec<Step>,
}

impl Glob {
    /// For paths: `**` crosses folders, `*` and `?` stay within one, and a slash at the end means all below.
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

    /// For commands and names: `*` is anything, every other character itself.
    pub(super) fn words(text: &str) -> Self {
        let step = |c| if c == '*' { Step::Any } else { Step::Letter(c) };
        Self { steps: text.chars().map(step).collect() }
    }

    /// The same, with a blank and anything behind it.
    pub(super) fn and_more(mut self) -> Self {
        self.steps.extend([Step::Blank, Step::Any]);
        self
    }

    /// Whether the whole text fits. `fold` takes upper and lower case for the same.
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
                    Step::Blank if c.is_whitespace() => self.enter(&mut next, at + 1),
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

    /// Stands before a step, and behind it too where it may stand for nothing.
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
    fn paths() {
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
    fn words() {
        assert!(Glob::words("git *").fits("git push", false));
        assert!(!Glob::words("git *").fits("git", false));
        assert!(Glob::words("git").and_more().fits("git\tx", false));
        assert!(!Glob::words("git").and_more().fits("gitx", false));
        assert!(Glob::words("a*b*c").fits("a/b/c", false));
    }

    #[test]
    fn many_stars_take_no_longer() {
        assert!(!Glob::path(&"*a".repeat(200)).fits(&"a".repeat(4000).replace("aaaa", "aaab/"), false));
    }

    proptest! {
        #[test]
        fn a_text_fits_itself_and_nothing_panics(text in "[a-z/.]{0,20}", glob in ".{0,20}") {
            prop_assert!(Glob::words(&text).fits(&text, false));
            let _ = (Glob::path(&glob).fits(&text, true), Glob::words(&glob).fits(&text, false));
        }
    }
}
