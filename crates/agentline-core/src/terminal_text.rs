//! Text for people at a terminal: without control characters, shortened, and with colors.

use std::borrow::Cow;

/// A text style.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Paint {
    /// Bold.
    Bold,
    /// Faint.
    Dim,
    /// Bold red.
    Red,
    /// Green.
    Green,
    /// Yellow.
    Yellow,
}

/// Returns a text in a style if `coloured` is set, otherwise unchanged.
#[must_use]
pub fn painted(coloured: bool, paint: Paint, text: &str) -> String {
    if !coloured {
        return text.to_owned();
    }
    let code = match paint {
        Paint::Bold => "1",
        Paint::Dim => "2",
        Paint::Red => "1;31",
        Paint::Green => "32",
        Paint::Yellow => "33",
    };
    format!("\u{1b}[{code}m{text}\u{1b}[0m")
}

/// Removes characters that control the terminal or change the direction of text.
#[must_use]
pub fn plain(text: &str) -> Cow<'_, str> {
    let turns = |c: char| matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let steers = |c: char| (c.is_control() && c != '\n' && c != '\t') || turns(c);
    if text.contains(steers) { text.replace(steers, "").into() } else { text.into() }
}

/// Removes escape sequences from the output of a program.
#[must_use]
pub fn uncoloured(text: &str) -> Cow<'_, str> {
    if !text.contains('\u{1b}') {
        return text.into();
    }
    let mut pieces = text.split('\u{1b}');
    let mut clean = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let rest = match piece.as_bytes().first() {
            Some(b'[') => piece[1..].find(|c: char| ('@'..='~').contains(&c)).map(|end| &piece[end + 2..]),
            Some(b']') => piece.find('\u{7}').map(|end| &piece[end + 1..]),
            _ => None,
        };
        clean.push_str(rest.unwrap_or(piece));
    }
    clean.into()
}

/// Formats a duration in milliseconds: `12 ms`, `3.1 s`, `1 min 1 s`.
#[must_use]
pub fn duration(ms: u64) -> String {
    match ms {
        0..1000 => format!("{ms} ms"),
        1000..60_000 => format!("{}.{} s", ms / 1000, ms % 1000 / 100),
        _ => format!("{} min {} s", ms / 60_000, ms / 1000 % 60),
    }
}

/// Shortens a line to a number of characters, with `…` for the missing part.
#[must_use]
pub fn shorten(line: &str, longest: usize) -> String {
    match line.char_indices().nth(longest) {
        None => line.to_owned(),
        Some(_) => line.chars().take(longest.saturating_sub(1)).chain(['…']).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_are_shortened_by_characters() {
        assert_eq!((shorten("äöü", 3), shorten("äöüx", 3)), ("äöü".into(), "äö…".into()));
    }

    #[test]
    fn durations_are_formatted_briefly() {
        assert_eq!(
            (duration(12), duration(3120), duration(61_000)),
            ("12 ms".into(), "3.1 s".into(), "1 min 1 s".into())
        );
    }

    #[test]
    fn ansi_colours_are_stripped() {
        let output = "\u{1b}[1;31merror\u{1b}[0m: a\u{1b}]0;title\u{7}b \u{1b}[unfinished";
        assert_eq!(uncoloured(output), "error: ab nfinished");
        assert_eq!(uncoloured("plain"), "plain");
    }
}
