//! Locates matches in a session, line by line, in messages, reasoning, tool inputs and tool results.

use super::{Hit, HitPlace, Query, needle::Needle};
use agentline_core::{Entry, EntryPart, Role, SavedSession};
use serde_json::value::RawValue;
use std::{borrow::Cow, ops::Range};

/// The maximum length of a line in bytes. Longer lines are shortened around their first match.
const LONGEST_LINE: usize = 2000;

/// A text of an entry.
struct Piece<'a> {
    place: HitPlace,
    tool: Option<&'a str>,
    text: Cow<'a, str>,
}

/// Returns all hits in a session.
pub(super) fn hits(session: &SavedSession, needle: &Needle, query: &Query) -> Vec<Hit> {
    let mut hits = in_title(session, needle);
    for (at, entry) in session.entries.iter().enumerate() {
        if entry.context && !query.hidden {
            continue;
        }
        let entry = &*entry.loaded();
        let pieces = pieces_of(entry);
        let holds = |word: &regex::Regex| pieces.iter().any(|piece| word.is_match(&piece.text));
        if needle.words.iter().all(holds) {
            for piece in &pieces {
                in_piece(piece, (at, entry), needle, query.context, &mut hits);
            }
        }
    }
    hits
}

/// Returns the hits in the title that the agent gave the session. A title made from a prompt is not searched.
fn in_title(session: &SavedSession, needle: &Needle) -> Vec<Hit> {
    let mut hits = Vec::new();
    if let Some(title) = &session.info.title
        && needle.words.iter().all(|word| word.is_match(title))
    {
        let piece = Piece { place: HitPlace::Title, tool: None, text: title.into() };
        let no_entry = Entry::new(String::new(), Role::System);
        in_piece(&piece, (0, &no_entry), needle, 0, &mut hits);
    }
    hits
}

fn pieces_of(entry: &Entry) -> Vec<Piece<'_>> {
    let mut pieces = Vec::new();
    for part in &entry.parts {
        match part {
            EntryPart::Text { text } => {
                pieces.push(Piece { place: HitPlace::Text, tool: None, text: text.into() })
            }
            EntryPart::Thinking { text, .. } => {
                pieces.push(Piece { place: HitPlace::Thinking, tool: None, text: text.into() });
            }
            EntryPart::Tool(tool) => {
                let name = Some(tool.call.name.as_str());
                if let Some(input) = tool.call.raw_input.as_ref().or(tool.call.input.as_ref()) {
                    let text = strings_in(input).into();
                    pieces.push(Piece { place: HitPlace::ToolInput, tool: name, text });
                }
                if let Some(result) = &tool.result {
                    let text = result.content.as_str().into();
                    pieces.push(Piece { place: HitPlace::ToolResult, tool: name, text });
                }
            }
            _ => {}
        }
    }
    pieces
}

/// Returns the strings in a tool's input, each on its own lines, without field names.
fn strings_in(input: &RawValue) -> String {
    fn collect(value: &serde_json::Value, text: &mut String) {
        use serde_json::Value;
        match value {
            Value::String(one) => {
                if !text.is_empty() {
                    text.push('\n');
                }
                text.push_str(one);
            }
            Value::Array(all) => all.iter().for_each(|value| collect(value, text)),
            Value::Object(all) => all.values().for_each(|value| collect(value, text)),
            _ => {}
        }
    }
    let mut text = String::new();
    if let Ok(value) = serde_json::from_str(input.get()) {
        collect(&value, &mut text);
    }
    text
}

fn in_piece(
    piece: &Piece<'_>,
    (at, entry): (usize, &Entry),
    needle: &Needle,
    context: usize,
    hits: &mut Vec<Hit>,
) {
    let text: &str = &piece.text;
    let mut spans: Vec<Range<usize>> = needle
        .words
        .iter()
        .flat_map(|word| word.find_iter(text))
        .filter(|found| !found.is_empty())
        .map(|found| found.range())
        .collect();
    if spans.is_empty() {
        return;
    }
    spans.sort_by_key(|span| span.start);
    let lines = lines_of(text);
    let mut next = 0;
    for (number, line) in lines.iter().enumerate() {
        // A match may begin with a line ending, which belongs to no line.
        let behind = lines.get(number + 1).map_or(usize::MAX, |line| line.start);
        let count = spans[next..].iter().take_while(|span| span.start < behind).count();
        if count == 0 {
            continue;
        }
        let inside = |at: usize| at.min(line.end) - line.start;
        let of_line = spans[next..next + count].iter().map(|span| inside(span.start)..inside(span.end));
        let of_line = apart(of_line);
        next += count;
        let whole = |range: &Range<usize>| shortened(&text[range.clone()], 0).0.to_owned();
        let (shown, from) = shortened(&text[line.clone()], of_line.first().map_or(0, |span| span.start));
        let spans = of_line.iter().filter(|s| s.start >= from && s.end <= from + shown.len());
        hits.push(Hit {
            entry: at,
            entry_id: entry.id.clone(),
            role: entry.role,
            timestamp: entry.timestamp,
            place: piece.place,
            tool: piece.tool.map(str::to_owned),
            line: number + 1,
            spans: spans.map(|s| s.start - from..s.end - from).collect(),
            text: shown.to_owned(),
            before: lines[number.saturating_sub(context)..number].iter().map(whole).collect(),
            after: lines[number + 1..].iter().take(context).map(whole).collect(),
        });
    }
}

/// Merges overlapping spans, which must be sorted.
fn apart(spans: impl Iterator<Item = Range<usize>>) -> Vec<Range<usize>> {
    let mut all: Vec<Range<usize>> = Vec::new();
    for span in spans.filter(|span| !span.is_empty()) {
        match all.last_mut() {
            Some(last) if span.start < last.end => last.end = last.end.max(span.end),
            _ => all.push(span),
        }
    }
    all
}

/// Returns the lines of a text without their line endings.
fn lines_of(text: &str) -> Vec<Range<usize>> {
    let mut start = 0;
    let mut lines = Vec::new();
    for line in text.split_inclusive('\n') {
        let body = line.trim_end_matches(['\n', '\r']);
        lines.push(start..start + body.len());
        start += line.len();
    }
    lines
}

/// Returns a line, or the part of a very long line around a position, with the offset of that part.
fn shortened(line: &str, around: usize) -> (&str, usize) {
    if line.len() <= LONGEST_LINE {
        return (line, 0);
    }
    let start = boundary(line, around.saturating_sub(LONGEST_LINE / 4));
    let end = boundary(line, (start + LONGEST_LINE).min(line.len()));
    (&line[start..end], start)
}

/// Returns the nearest character boundary at or before this position.
fn boundary(line: &str, mut at: usize) -> usize {
    while !line.is_char_boundary(at) {
        at -= 1;
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the number of each line, its text, and the start and end of each hit.
    type Line = (usize, String, Vec<(usize, usize)>);

    fn found(text: &str, words: &[&str], regex: bool) -> Vec<Line> {
        let mut session = SavedSession::default();
        let mut entry = Entry::new("e".to_owned(), Role::User);
        entry.parts.push(EntryPart::Text { text: text.to_owned() });
        session.entries.push(entry);
        let query = Query::new(words.iter().copied()).regex(regex);
        let all = hits(&session, &Needle::new(&query).unwrap(), &query);
        let ends = |hit: &Hit| hit.spans.iter().map(|span| (span.start, span.end)).collect();
        all.into_iter().map(|hit| (hit.line, hit.text.clone(), ends(&hit))).collect()
    }

    #[test]
    fn match_may_start_at_a_line_end() {
        let line = |number, text: &str, spans: &[(usize, usize)]| (number, text.to_owned(), spans.to_vec());
        for text in ["one\ntwo three\n", "one\r\ntwo three\r\n"] {
            let expected = [line(1, "one", &[]), line(2, "two three", &[(3, 4)])];
            assert_eq!(found(text, &[r"\s"], true), expected, "{text:?}");
            assert_eq!(found(text, &[r"\ntwo"], true), [line(1, "one", &[])], "{text:?}");
        }
        assert_eq!(found("\n\nx", &[r"\s+x"], true), [line(1, "", &[])]);
    }

    #[test]
    fn agent_title_is_searched() {
        let mut session = SavedSession::default();
        session.info.title = Some("Mend the parser".to_owned());
        let found = |words: &[&str]| {
            let query = Query::new(words.iter().copied());
            let all = hits(&session, &Needle::new(&query).unwrap(), &query);
            all.into_iter().map(|hit| (hit.place, hit.text)).collect::<Vec<_>>()
        };
        assert_eq!(found(&["parser", "mend"]), [(HitPlace::Title, "Mend the parser".to_owned())]);
        assert_eq!(found(&["parser", "other"]), []);
    }

    #[test]
    fn overlapping_matches_are_merged() {
        let spans = |words: &[&str]| found("say hello world now", words, false)[0].2.clone();
        assert_eq!(spans(&["hello", "hello world"]), [(4, 15)]);
        assert_eq!(spans(&["hello world", "world now"]), [(4, 19)]);
        assert_eq!(spans(&["say", "now"]), [(0, 3), (16, 19)]);
    }
}
