//! Text for a terminal: without control characters.

use std::borrow::Cow;

/// Removes characters that control the terminal or change the direction of text.
pub(crate) fn plain(text: &str) -> Cow<'_, str> {
    let turns = |c: char| matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let steers = |c: char| (c.is_control() && c != '\n' && c != '\t') || turns(c);
    if text.contains(steers) { text.replace(steers, "").into() } else { text.into() }
}

/// Removes escape sequences from the output of a program.
pub(crate) fn uncoloured(text: &str) -> Cow<'_, str> {
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

#[cfg(test)]
mod tests {
    use super::uncoloured;

    #[test]
    fn ansi_colours_are_stripped() {
        let output = "\u{1b}[1;31merror\u{1b}[0m: a\u{1b}]0;title\u{7}b \u{1b}[unfinished";
        assert_eq!(uncoloured(output), "error: ab nfinished");
        assert_eq!(uncoloured("plain"), "plain");
    }
}
