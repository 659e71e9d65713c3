//! Redacts secrets on a tape, including those that an agent streamed in pieces over several lines.
//!
//! A line is held back while one of its strings ends with a revealing part of a secret. When later lines complete the
//! secret, its parts are removed from the earlier lines, and the mark replaces the last part. Shorter prefixes stay, as
//! in the events. `early.rs` emits lines that a reader waits for.

mod early;

use crate::redact::{Folded, Followed, Scanner, redactor::Redactor, whole_characters};
use crate::secret::{MARK, SIGNIFICANT_LENGTH};
use std::{collections::VecDeque, ops::Range};

/// The maximum number of lines held back, and of partial matches tracked.
const MAX_PENDING: usize = 256;
/// The maximum number of equal partial matches tracked: an agent may send the same text on several channels.
const MAX_EQUAL_MATCHES: usize = 8;
/// The number of bytes at the start of a line that are searched for the channel.
const LATEST_CHANNEL: usize = 64;
/// Text between two strings that consists only of these characters is not itself a string.
const PUNCTUATION: [char; 7] = [':', ',', '{', '}', '[', ']', ' '];
/// The maximum nesting depth at which fields are distinguished.
const DEEPEST: usize = 32;

/// Redacts secrets in a stream of lines.
#[derive(Debug, Default)]
pub struct LineRedactor {
    redactor: Redactor,
    pending: VecDeque<PendingLine>,
    /// The number of the first held line.
    first: usize,
    partial_matches: VecDeque<PartialMatch>,
}

#[derive(Debug)]
struct PendingLine {
    text: String,
    /// Ranges to replace, in any order.
    edits: Vec<(Range<usize>, &'static str)>,
    state: LineState,
}

/// How much of a line is held back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LineState {
    Whole,
    /// The line has only the rest of a streamed text, which starts here. What precedes it has been emitted.
    Rest(usize),
    Emitted,
}

/// A partial match of a secret.
#[derive(Clone, Debug)]
struct PartialMatch {
    /// The state of the match.
    state: u32,
    /// The field in which the match continues.
    field: Field,
    /// The number of bytes matched in the first string.
    letters: usize,
    /// The start of the match: the line number and the position in the line.
    start: (usize, usize),
    /// The ranges to remove: those after which a revealing part of the secret has been seen.
    ranges: Vec<(usize, Range<usize>)>,
}

impl LineRedactor {
    /// Creates a redactor for the secrets of another redactor.
    #[must_use]
    pub fn new(redactor: Redactor) -> Self {
        Self { redactor, ..Self::default() }
    }

    /// Processes a line and emits every line that is safe.
    pub fn push(&mut self, line: &str, mut each: impl FnMut(&str)) {
        let number = self.first + self.pending.len();
        let text = self.redactor.text(line).into_owned();
        self.pending.push_back(PendingLine { text, edits: Vec::new(), state: LineState::Whole });
        self.watch(number);
        while self.partial_matches.len() > MAX_PENDING {
            self.partial_matches.pop_front();
        }
        self.partial_matches.retain(|b| b.start.0 + MAX_PENDING > number);
        let is_whole = |line: &usize| self.line(*line).is_some_and(|line| line.state == LineState::Whole);
        let first_whole =
            |partial: &PartialMatch| partial.ranges.iter().map(|(line, _)| *line).find(is_whole);
        let oldest = self.partial_matches.iter().filter_map(first_whole).min();
        self.give(oldest.unwrap_or(number + 1), &mut each);
    }

    /// Emits all lines still held.
    pub fn finish(&mut self, mut each: impl FnMut(&str)) {
        self.partial_matches.clear();
        self.give(usize::MAX, &mut each);
    }

    fn give(&mut self, before: usize, each: &mut impl FnMut(&str)) {
        for at in 0..self.pending.len().min(before.saturating_sub(self.first)) {
            let is_held = match self.pending[at].state {
                LineState::Whole => false,
                LineState::Rest(_) => self.is_watched(self.first + at),
                LineState::Emitted => true,
            };
            if !is_held && let Some(text) = self.pending[at].emitted() {
                each(&text);
            }
        }
        self.forget_emitted();
    }

    fn line(&self, number: usize) -> Option<&PendingLine> {
        self.pending.get(number.checked_sub(self.first)?)
    }

    /// Returns whether a secret may start in this line.
    fn is_watched(&self, number: usize) -> bool {
        self.partial_matches.iter().any(|partial| partial.ranges.iter().any(|(line, _)| *line == number))
    }

    fn forget_emitted(&mut self) {
        let emitted = self.pending.iter().take_while(|line| line.state == LineState::Emitted).count();
        self.pending.drain(..emitted);
        self.first += emitted;
    }

    /// Searches the strings of the newest line for starts and continuations of secrets.
    fn watch(&mut self, number: usize) {
        if self.redactor.is_empty() {
            return;
        }
        let Some(text) = self.pending.back_mut().map(|line| std::mem::take(&mut line.text)) else { return };
        let (mut more, mut done, mut starts) = (Vec::new(), Vec::new(), Vec::new());
        for string in strings(&text) {
            starts.push(string.range.start);
            let piece = &text[string.range.clone()];
            if self.partial_matches.iter().any(|partial| partial.field == string.opened_in) {
                let folded = self.redactor.patterns().fold_beginning(piece);
                self.continue_matches(&folded, number, &string, &mut done, &mut more);
            }
            more.extend(self.beginnings(piece, number, &string));
        }
        self.end_continued_rests(&text, &starts);
        if let Some(line) = self.pending.back_mut() {
            line.text = text;
        }
        for partial in done {
            self.take_out(&partial);
        }
        for partial in more {
            self.begin(partial);
        }
    }

    /// Tracks a partial match. Of many equal ones, only the latest are kept.
    fn begin(&mut self, partial: PartialMatch) {
        let is_like = |older: &PartialMatch| older.state == partial.state && older.field == partial.field;
        if self.partial_matches.iter().filter(|older| is_like(older)).count() >= MAX_EQUAL_MATCHES
            && let Some(oldest) = self.partial_matches.iter().position(is_like)
        {
            self.partial_matches.remove(oldest);
        }
        self.partial_matches.push_back(partial);
    }

    /// Continues partial matches of earlier lines in this string.
    fn continue_matches(
        &self,
        folded: &Folded,
        number: usize,
        string: &JsonString,
        done: &mut Vec<PartialMatch>,
        more: &mut Vec<PartialMatch>,
    ) {
        let (mut whole, mut longer) = (Vec::new(), Vec::new());
        // The latest partial match takes precedence. An older one that also fits is a repetition or a coincidence, and
        // counts only once it is long enough to be revealing.
        for partial in self.partial_matches.iter().rev().filter(|partial| partial.field == string.opened_in) {
            // Hundreds of partial matches may be tracked and almost none continues, so only those that do are cloned.
            let (state, end) = match self.redactor.patterns().follow(partial.state, folded) {
                None => continue,
                Some(Followed::Whole(end)) => (None, string.range.start + end),
                Some(Followed::Part(state)) => (Some(state), string.range.end),
            };
            let mut next = partial.clone();
            if state.is_none_or(|state| self.redactor.patterns().seen(state) >= SIGNIFICANT_LENGTH) {
                next.ranges.push((number, string.range.start..end));
            }
            match state {
                Some(state) => longer.push(PartialMatch { state, field: string.closed_in, ..next }),
                None if whole.is_empty()
                    || self.redactor.patterns().seen(partial.state) >= SIGNIFICANT_LENGTH =>
                {
                    whole.push(next);
                }
                None => {}
            }
        }
        done.extend(whole);
        more.extend(longer.into_iter().rev());
    }

    /// Returns the secrets that may start at the end of a string.
    fn beginnings(&self, piece: &str, number: usize, string: &JsonString) -> Vec<PartialMatch> {
        let patterns = self.redactor.patterns();
        // A character takes at most eight bytes in the encodings that agents use.
        let from = piece.len().saturating_sub(8 * patterns.longest());
        let from = whole_characters(piece, from..piece.len()).start;
        let mut scanner = Scanner::default();
        scanner.scan(patterns, &piece.as_bytes()[from..], string.range.start + from);
        scanner.finish(patterns);
        let partial = scanner.partial_matches(patterns).into_iter();
        partial
            .map(|(state, start)| {
                let letters = patterns.seen(state);
                let range = (letters >= SIGNIFICANT_LENGTH).then_some((number, start..string.range.end));
                let ranges = range.into_iter().collect();
                PartialMatch { state, field: string.closed_in, letters, start: (number, start), ranges }
            })
            .collect()
    }

    fn take_out(&mut self, partial: &PartialMatch) {
        for (i, (line, range)) in partial.ranges.iter().enumerate() {
            let with = if i + 1 == partial.ranges.len() { MARK } else { "" };
            let Some(line) = line.checked_sub(self.first).and_then(|i| self.pending.get_mut(i)) else {
                continue;
            };
            let overlaps = |other: &Range<usize>| other.start < range.end && range.start < other.end;
            if !line.edits.iter().any(|(other, _)| overlaps(other)) {
                line.edits.push((range.clone(), with));
            }
        }
        // An agent may repeat the rest, but a short prefix is then more likely to belong to another word.
        if partial.letters < SIGNIFICANT_LENGTH {
            self.partial_matches.retain(|b| b.start != partial.start);
        }
    }
}

impl PendingLine {
    /// Marks the line as emitted and returns it, unless nothing is left of a streamed text.
    fn emitted(&mut self) -> Option<String> {
        let state = std::mem::replace(&mut self.state, LineState::Emitted);
        let (mut text, mut edits) = (std::mem::take(&mut self.text), std::mem::take(&mut self.edits));
        edits.sort_by_key(|(range, _)| std::cmp::Reverse(range.start));
        let mut state = state;
        for (range, with) in edits {
            if let LineState::Rest(from) = &mut state
                && range.end <= *from
            {
                *from = *from - range.len() + with.len();
            }
            text.replace_range(range, with);
        }
        let is_empty = matches!(state, LineState::Rest(from) if text[from..].starts_with('"'));
        (!is_empty).then_some(text)
    }
}

/// The text between two quotes, with the fields whose values the quotes open and close.
///
/// Quotes inside a string split it into parts; the whole string is included as well.
struct JsonString {
    range: Range<usize>,
    opened_in: Field,
    closed_in: Field,
}

/// A hash of a field name and the channel. A secret continues only in a string of the same field on the same channel.
type Field = u64;

/// A string that is not closed yet.
struct OpenString {
    depth: usize,
    start: usize,
    /// Whether the string contains a quote.
    is_divided: bool,
}

/// Returns the strings in a line that are not field names, at any level of escaping: a line on a tape is JSON within
/// JSON, and each level has its own fields.
fn strings(text: &str) -> Vec<JsonString> {
    let (mut found, mut from, mut opening) = (Vec::new(), 0, 0);
    let mut open: Vec<OpenString> = Vec::new();
    let channel = channel_number(text);
    let mut fields = [0; DEEPEST];
    let ends = text.match_indices('"').map(|(at, _)| at).chain(std::iter::once(text.len()));
    for quote in ends {
        let end = from + text[from..quote].trim_end_matches('\\').len();
        let closing = depth(quote - end);
        let after = (quote + 1).min(text.len());
        let closed = close(&mut open, closing, after);
        let is_name =
            opening == closing && closed.is_some() && text[after..].trim_start_matches(' ').starts_with(':');
        let [opened_in, closed_in] = [opening, closing].map(|depth| fields.get(depth).copied().unwrap_or(0));
        if let Some(OpenString { start, is_divided: true, .. }) = closed {
            let range = start..quote - delimiter(closing);
            found.push(JsonString { range, opened_in: closed_in, closed_in });
        }
        if is_name && let Some(field) = fields.get_mut(closing) {
            *field = channel ^ name_number(&text[from..end]);
        } else if end > from && (closed.is_some() || !text[from..end].trim_matches(PUNCTUATION).is_empty()) {
            found.push(JsonString { range: from..end, opened_in, closed_in });
        }
        (from, opening) = (after, closing);
    }
    found
}

/// Returns the nesting depth of a quote with this many backslashes. Each level doubles the backslashes and adds one.
/// Backslashes of the text itself precede them, and their number is a multiple of twice that of the level.
fn depth(backslashes: usize) -> usize {
    backslashes.trailing_ones() as usize
}

/// Returns the number of backslashes that belong to a quote at this depth.
fn delimiter(depth: usize) -> usize {
    (1 << depth) - 1
}

/// Opens or closes a string at a quote. Returns the string that it closes.
fn close(open: &mut Vec<OpenString>, depth: usize, after: usize) -> Option<OpenString> {
    while open.pop_if(|inner| inner.depth > depth).is_some() {}
    let closed = open.pop_if(|string| string.depth == depth);
    if closed.is_some() {
        return closed;
    }
    if let Some(outer) = open.last_mut() {
        outer.is_divided = true;
    }
    open.push(OpenString { depth, start: after, is_divided: false });
    None
}

/// Returns a hash of the channel of a line on a tape.
fn channel_number(line: &str) -> Field {
    let name = memchr::memmem::find(&line.as_bytes()[..line.len().min(LATEST_CHANNEL)], b"\"ch\":\"")
        .map(|at| &line[at + 6..]);
    name.and_then(|name| name.split('"').next()).map_or(0, name_number)
}

/// Returns the FNV-1a hash of a name.
fn name_number(name: &str) -> Field {
    name.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECRET: &str = "sk-live-0123456789";

    fn redact_lines(lines: &[String]) -> Vec<String> {
        redact_lines_of(SECRET, lines)
    }

    fn redact_lines_of(secret: &str, lines: &[String]) -> Vec<String> {
        let mut redactor = LineRedactor::new(Redactor::new([secret]));
        let mut out = Vec::new();
        for line in lines {
            redactor.push(line, |l| out.push(l.to_owned()));
        }
        redactor.finish(|l| out.push(l.to_owned()));
        out
    }

    fn delta(text: &str) -> String {
        let inner =
            serde_json::json!({"type": "message", "role": "assistant", "content": text, "delta": true})
                .to_string();
        serde_json::json!({"at": 1, "ch": "out", "text": inner}).to_string()
    }

    fn content(line: &str) -> String {
        let outer: serde_json::Value = serde_json::from_str(line).unwrap();
        let inner: serde_json::Value = serde_json::from_str(outer["text"].as_str().unwrap()).unwrap();
        inner["content"].as_str().unwrap().to_owned()
    }

    #[test]
    fn other_lines_are_kept_in_order() {
        let lines = [delta("key: sk-li"), "{\"ch\":\"clock\"}".to_owned(), delta("ve-0123456789 ok")];
        let hidden = redact_lines(&lines);
        assert_eq!(content(&hidden[0]), "key: ");
        assert_eq!(hidden[1], lines[1]);
        assert_eq!(content(&hidden[2]), "[redacted] ok");
    }

    #[test]
    fn both_channels_are_redacted_and_field_names_kept() {
        for secret in [SECRET, "Across-two-channels-9", "type-of-secret-0123"] {
            for cut in 1..secret.len() {
                let side = |text: &str| delta(text).replace("\"out\"", "\"session\"");
                let pieces = [format!("it is {}", &secret[..cut]), format!("{} it was", &secret[cut..])];
                let tool = delta("").replace("message", "tool_use");
                let lines = [delta(&pieces[0]), side(&pieces[0]), tool, delta(&pieces[1]), side(&pieces[1])];
                let hidden = redact_lines_of(secret, &lines);
                let contents: Vec<String> = hidden.iter().map(|line| content(line)).collect();
                // Up to three characters stay, as in the events.
                let begins = format!("it is {}", if cut < SIGNIFICANT_LENGTH { &secret[..cut] } else { "" });
                assert_eq!(
                    contents,
                    [&begins, &begins, "", "[redacted] it was", "[redacted] it was"],
                    "{cut}"
                );
                let fields = |line: &String| line.matches("\\\":").count();
                assert!(hidden.iter().all(|line| fields(line) == 4 && line.contains("\\\"delta\\\":true")));
            }
        }
    }

    #[test]
    fn both_copies_of_a_split_secret_are_redacted() {
        let (begins, rest) = (delta("it is sk-live-"), delta("0123456789"));
        let hidden = redact_lines(&[begins.clone(), begins, rest.clone(), rest]);
        let contents: Vec<String> = hidden.iter().map(|line| content(line)).collect();
        assert_eq!(contents, ["it is ", "it is ", "[redacted]", "[redacted]"]);
    }

    #[test]
    fn text_resembling_a_secret_prefix_is_unchanged() {
        let lines: Vec<String> = (0..600).map(|i| delta(&format!("words sk-{}", i % 7))).collect();
        assert_eq!(redact_lines(&lines), lines);
    }

    proptest! {
        #[test]
        fn secret_split_across_lines_is_redacted(cuts in proptest::collection::vec(0usize..40, 0..10)) {
            let text = format!("a sk- b {SECRET} c sk-l");
            let mut cuts: Vec<usize> = cuts.into_iter().map(|c| c.min(text.len())).collect();
            cuts.sort_unstable();
            cuts.push(text.len());
            let mut from = 0;
            let lines: Vec<String> = cuts.into_iter().map(|cut| { let line = delta(&text[from..cut]); from = cut; line }).collect();
            let output: String = redact_lines(&lines).iter().map(|l| content(l)).collect();
            let begins = output.strip_prefix("a sk- b ").and_then(|output| output.strip_suffix("[redacted] c sk-l"));
            prop_assert!(begins.is_some_and(|begins| begins.len() < SIGNIFICANT_LENGTH && SECRET.starts_with(begins)), "{}", output);
        }

        #[test]
        fn secret_with_escape_characters_is_redacted_across_splits(
            secret in r#"[gh-jstx-z"\\%/+]{20,32}"#,
            cuts in proptest::collection::vec(0usize..40, 0..24),
            is_nested: bool,
        ) {
            // Without the escape characters, the rest must be long enough to be redacted.
            let letters = |text: &str| text.replace(['"', '\\'], "").to_lowercase();
            prop_assume!(letters(&secret).len() >= 8);
            let output = stream_secret(&secret, &cuts, is_nested);
            let (secret, shown) = (letters(&secret), letters(&output.replace(MARK, "|")));
            let shows = |length: usize| secret.as_bytes().windows(length).any(|part| shown.contains(str::from_utf8(part).unwrap()));
            prop_assert!(!shows(SIGNIFICANT_LENGTH), "{}", output);
        }
    }

    #[test]
    fn secret_with_percent_signs_and_quotes_is_redacted() {
        let output = stream_secret("%+%%\"g\\%\\+\\%s+gsxx/\"", &[], false);
        assert!(!output.contains("gsxx") && !output.contains("+%%"), "{output}");
    }

    /// Streams a secret in pieces and returns the text that a reader of the tape puts together.
    fn stream_secret(secret: &str, cuts: &[usize], is_nested: bool) -> String {
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| *cut.min(&secret.len())).collect();
        cuts.sort_unstable();
        let ends = cuts.iter().copied().chain([secret.len()]);
        let starts = std::iter::once(0).chain(cuts.iter().copied());
        let inner = |text: &str| {
            if is_nested { serde_json::json!({"input": text}).to_string() } else { text.to_owned() }
        };
        let lines: Vec<String> =
            starts.zip(ends).map(|(start, end)| delta(&inner(&secret[start..end]))).collect();
        let outer = |text: &str| {
            let parsed = || {
                serde_json::from_str::<serde_json::Value>(text).unwrap()["input"].as_str().unwrap().to_owned()
            };
            if is_nested { parsed() } else { text.to_owned() }
        };
        redact_lines_of(secret, &lines).iter().map(|line| outer(&content(line))).collect()
    }

    #[test]
    fn secret_with_escape_characters_is_redacted_at_any_cut() {
        let signs = [
            "\"",
            "\\",
            "\\\"",
            "\"\"",
            "%41",
            "%",
            "\\n",
            "\\u0041",
            "\\t%41\\\\b%5E",
            "+/r\"q\\s%é",
            "\": \"",
            "\",\"",
        ];
        for secret in signs.map(|sign| format!("Zq8xW2vB7nM4{sign}kL9pT3rq")) {
            let every: Vec<usize> = (4..secret.len()).filter(|cut| secret.is_char_boundary(*cut)).collect();
            let pairs = every
                .iter()
                .zip(0..)
                .flat_map(|(one, at)| every[at..].iter().map(|other| vec![*one, *other]));
            for cuts in pairs.chain([every.clone()]) {
                for is_nested in [false, true] {
                    let output = stream_secret(&secret, &cuts, is_nested);
                    // A piece that is only a line break or a backslash stays.
                    let output = output.replace("\\n", "").replace('\\', "");
                    assert_eq!(output, "[redacted]", "{secret} {cuts:?}");
                }
            }
            let letters: Vec<usize> = [1, 2, 3].into_iter().chain(every).collect();
            assert_eq!(
                stream_secret(&secret, &letters, false).replace('\\', ""),
                "Zq8[redacted]",
                "{secret}"
            );
        }
    }
}
