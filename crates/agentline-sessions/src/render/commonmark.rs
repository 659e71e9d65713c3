//! Parses the Markdown of an answer, for the page and for the terminal.

use pulldown_cmark::{Event, Options, Parser};
use std::ops::Range;

/// The maximum depth of nested elements, and the maximum length of the quote and list markers at the beginning of a
/// line.
pub(super) const DEEPEST: usize = 64;

/// Returns the events of a text with their positions, or `None` if it is nested too deeply to be parsed in time.
pub(super) fn events(text: &str) -> Option<impl Iterator<Item = (Event<'_>, Range<usize>)>> {
    // The time of the parser grows with the number of lines and the depth of the containers around them.
    if text.split(['\n', '\r']).any(nests_deeply) {
        return None;
    }
    let options = Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS;
    Some(Parser::new_ext(text, options).into_offset_iter())
}

/// Returns whether a line begins with a long row of markers.
fn nests_deeply(line: &str) -> bool {
    let after_marker = |rest: &str| -> Option<usize> {
        let number = rest.bytes().take_while(u8::is_ascii_digit).count();
        let is_item = rest[number..].starts_with(['-', '+', '*', '.', ')'])
            && rest[number + 1..].starts_with([' ', '\t']);
        if rest.starts_with('>') { Some(1) } else { is_item.then_some(number + 1) }
    };
    let (mut rest, mut has_marker) = (line.trim_start(), false);
    while let Some(length) = after_marker(rest) {
        (rest, has_marker) = (rest[length..].trim_start(), true);
    }
    has_marker && line.len() - rest.len() > DEEPEST
}
