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

/// Returns the number of columns of a text on a terminal.
#[must_use]
pub fn width(text: &str) -> usize {
    text.chars().map(columns).sum()
}

/// Returns the width of a character: two for East Asian characters and emoji, zero for combining marks, else one.
fn columns(c: char) -> usize {
    match u32::from(c) {
        0x300..=0x36f | 0x200b..=0x200f | 0x202a..=0x202e | 0x2060..=0x2069 | 0xfe00..=0xfe0f => 0,
        0x1100..=0x115f
        | 0x2e80..=0xa4cf
        | 0xac00..=0xd7a3
        | 0xf900..=0xfaff
        | 0xfe30..=0xfe6f
        | 0xff00..=0xff60
        | 0xffe0..=0xffe6
        | 0x1f300..=0x1faff
        | 0x20000..=0x3fffd => 2,
        _ => 1,
    }
}

/// Shortens a text to a number of columns, with `…` for the missing part. A text is cut between words, unless that
/// would remove more than half of it.
#[must_use]
pub fn fit(text: &str, room: usize) -> String {
    if width(text) <= room {
        return text.to_owned();
    }
    let mut left = room.saturating_sub(1);
    let fits = |(_, c): &(usize, char)| {
        let fits = columns(*c) <= left;
        left = left.saturating_sub(columns(*c));
        fits
    };
    let end = text.char_indices().take_while(fits).last().map_or(0, |(at, c)| at + c.len_utf8());
    let (kept, rest) = text.split_at(end);
    let is_between_words = rest.starts_with(char::is_whitespace) || kept.ends_with(char::is_whitespace);
    let words =
        if is_between_words { kept } else { kept.rfind(char::is_whitespace).map_or("", |at| &kept[..at]) };
    let words = words.trim_end();
    format!("{}…", if width(words) * 2 >= room { words } else { kept })
}

/// Shortens a text to the columns at its end, such as the last directories of a path.
#[must_use]
pub fn fit_end(text: &str, room: usize) -> String {
    if width(text) <= room {
        return text.to_owned();
    }
    let mut left = room.saturating_sub(1);
    let fits = |c: &char| {
        let fits = columns(*c) <= left;
        left = left.saturating_sub(columns(*c));
        fits
    };
    let end: Vec<char> = text.chars().rev().take_while(fits).collect();
    std::iter::once('…').chain(end.into_iter().rev()).collect()
}

/// Wraps a line between words to a number of columns. A word that is too long is not broken.
///
/// The other lines begin below the text of the first one, or below its last column if the line is a row of a table,
/// whose columns are two or more spaces apart.
#[must_use]
pub fn wrap(line: &str, room: usize) -> Vec<String> {
    let columns = |text: &str| width(&uncoloured(text));
    if columns(line) <= room {
        return vec![line.to_owned()];
    }
    let indent = &line[..line.len() - line.trim_start().len()];
    let gaps = line.match_indices("  ").map(|(at, _)| at).filter(|at| *at >= indent.len());
    let column = |at: usize| at + line[at..].len() - line[at..].trim_start().len();
    // A column that begins near the end leaves too little space.
    let starts = gaps.map(|at| columns(&line[..column(at)])).filter(|start| start * 3 <= room * 2);
    let indent = starts.last().map_or_else(|| indent.to_owned(), |start| " ".repeat(start));
    let (mut lines, mut now, mut has_words) = (Vec::new(), String::new(), false);
    let mut rest = line;
    while !rest.trim_start().is_empty() {
        let space = rest.len() - rest.trim_start().len();
        let end = rest[space..].find(char::is_whitespace).map_or(rest.len(), |length| space + length);
        if has_words && columns(&now) + columns(&rest[..end]) > room {
            lines.push(std::mem::replace(&mut now, indent.clone()));
            now.push_str(&rest[space..end]);
        } else {
            now.push_str(&rest[..end]);
        }
        has_words = true;
        rest = &rest[end..];
    }
    lines.push(now);
    lines
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
    fn texts_are_cut_and_wrapped_between_words() {
        assert_eq!(fit("Write a sieve, please", 16), "Write a sieve,…");
        assert_eq!(
            (fit("Write a sieve", 13), fit("Write a sieve", 12)),
            ("Write a sieve".into(), "Write a…".into())
        );
        assert_eq!((fit("0123456789 a", 6), fit("日本語です", 5)), ("01234…".into(), "日本…".into()));
        assert_eq!(fit_end("/home/ada/primes", 8), "…/primes");
        assert_eq!(wrap("  one two three", 9), ["  one two", "  three"]);
        assert_eq!(
            wrap("  fix   run the install command again", 24),
            ["  fix   run the install", "        command again"]
        );
        assert_eq!(wrap("\u{1b}[1mone\u{1b}[0m two", 7), ["\u{1b}[1mone\u{1b}[0m two"]);
        assert_eq!(wrap("a https://example.test/long b", 8), ["a", "https://example.test/long", "b"]);
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
