//! Finds secrets in a text in one pass: known values in any encoding, and keys recognizable by their format.
//!
//! The text is decoded byte by byte (`decode.rs`) and passed to an automaton for all spellings of all secrets
//! (`automaton.rs`, `spellings.rs`) and to a scanner for key formats (`shapes.rs`). Each byte is read once,
//! even if the text arrives in pieces (`stream.rs`).

mod automaton;
mod decode;
mod session;
mod shapes;
mod spellings;
mod stream;

pub use session::SessionRedactor;
pub(crate) use stream::StreamRedactor;

use automaton::{Automaton, ROOT};
use decode::{Percent, Unescape, Unit, fold};
use shapes::{Found, ShapeScanner};
use std::{ops::Range, sync::Arc};

/// The secrets to search for, in all their spellings.
#[derive(Clone)]
pub(crate) struct Patterns(Arc<Automaton>);

impl Patterns {
    pub(crate) fn new<'a>(secrets: impl IntoIterator<Item = &'a str>) -> Self {
        let patterns: Vec<Vec<u8>> = secrets.into_iter().flat_map(spellings::spellings).collect();
        Self(Arc::new(Automaton::new(&patterns)))
    }

    /// Returns the length of the longest spelling in bytes.
    pub(crate) fn longest(&self) -> usize {
        self.0.deepest()
    }

    /// Returns the positions of all secrets in a text, in order and without overlaps.
    pub(crate) fn find(&self, text: &str) -> Vec<Range<usize>> {
        let mut scanner = Scanner::default();
        scanner.scan(self, text.as_bytes(), 0);
        scanner.finish(self);
        scanner.take_found(usize::MAX)
    }

    /// Returns the positions of all secrets in a text that may be truncated.
    ///
    /// An incomplete secret at the end counts if at least `letters` bytes of it are present.
    pub(crate) fn find_in_cut(&self, text: &str, letters: usize) -> Vec<Range<usize>> {
        let mut scanner = Scanner::default();
        scanner.scan(self, text.as_bytes(), 0);
        let significant_bytes = scanner.start_of_partial_secret(self, letters);
        scanner.finish(self);
        scanner.found.extend(significant_bytes.map(|from| from..text.len()));
        scanner.take_found(usize::MAX)
    }

    fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Continues a word from `state` through a piece of text.
    ///
    /// Returns the end of the longest complete word, or the state at the end if the whole piece belongs to a word.
    pub(crate) fn follow(&self, state: u32, piece: &Folded) -> Option<Followed> {
        let (mut state, mut whole) = (state, None);
        for (byte, end) in &piece.bytes {
            let Some(next) = self.0.child(state, *byte) else { return whole };
            state = next;
            if self.0.word(state) == Some(self.0.depth(state)) {
                whole = Some(Followed::Whole(*end));
            }
        }
        whole.or_else(|| (piece.is_all && !piece.bytes.is_empty()).then_some(Followed::Part(state)))
    }

    /// Returns how many bytes of a word lead to this state.
    pub(crate) fn seen(&self, state: u32) -> usize {
        self.0.depth(state)
    }

    /// Decodes the start of a piece of text, once for all words that may continue there.
    pub(crate) fn fold_beginning(&self, piece: &str) -> Folded {
        let (mut unescape, mut percent) = (Unescape::default(), Percent::default());
        let mut folded = Folded { bytes: Vec::new(), is_all: true };
        let mut take = |unit: Unit| folded.bytes.extend(fold(unit.byte).map(|byte| (byte, unit.end)));
        for (at, byte) in piece.bytes().enumerate() {
            if at > 8 * self.longest() {
                folded.is_all = false;
                return folded;
            }
            unescape.push(byte, at, &mut |unit| percent.push(unit, &mut take));
        }
        unescape.finish(&mut |unit| percent.push(unit, &mut take));
        percent.finish(&mut take);
        folded
    }
}

/// The decoded start of a piece of text: bytes with their end positions.
pub(crate) struct Folded {
    bytes: Vec<(u8, usize)>,
    is_all: bool,
}

/// The continuation of a word in a piece of text.
pub(crate) enum Followed {
    /// The word is complete at this position.
    Whole(usize),
    /// The whole piece belongs to the word.
    Part(u32),
}

/// The number of bytes without escapes that each scanner reads before the next scanner reads them.
const CHUNK: usize = 1024;

/// Scans a text once, in any number of pieces.
#[derive(Clone, Default)]
pub(crate) struct Scanner {
    unescape: Unescape,
    percent: Percent,
    known: Known,
    literal: Literal,
    shapes: ShapeScanner,
    found: Vec<Range<usize>>,
    /// Keys found by their format.
    keys: Vec<Found>,
}

/// The running state of the automaton on the decoded text.
#[derive(Clone, Debug, Default)]
struct Known {
    state: u32,
    /// The number of the next decoded byte.
    next: usize,
    /// The offset from the number of a byte to its position in the text.
    shift: usize,
    /// The offset of bytes before the first entry of `shifts`.
    first_shift: usize,
    /// The bytes at which the offset changes, because of an escape or a line break before them.
    shifts: Vec<(usize, usize)>,
}

impl Known {
    fn push(&mut self, patterns: &Automaton, unit: Unit, found: &mut Vec<Range<usize>>) {
        let Some(byte) = fold(unit.byte).filter(|_| !patterns.is_empty()) else { return };
        let shift = unit.start.wrapping_sub(self.next);
        if shift != self.shift {
            self.shift_to(shift, patterns.deepest());
        }
        self.next += 1;
        self.state = patterns.next(self.state, byte);
        if let Some(length) = patterns.word(self.state) {
            join(found, self.start(length)..unit.end);
        }
    }

    /// Processes bytes without escapes.
    fn push_plain(
        &mut self,
        patterns: &Automaton,
        bytes: &[u8],
        start: usize,
        found: &mut Vec<Range<usize>>,
    ) {
        let mut at = 0;
        while at < bytes.len() {
            if self.state == ROOT {
                at += patterns.passed_over(&bytes[at..]);
            }
            let Some(byte) = bytes.get(at) else { return };
            self.push(patterns, Unit { byte: *byte, start: start + at, end: start + at + 1 }, found);
            at += 1;
        }
    }

    fn shift_to(&mut self, shift: usize, deepest: usize) {
        self.shift = shift;
        if self.state == ROOT {
            self.shifts.clear();
            self.first_shift = shift;
            return;
        }
        if self.shifts.len() > 4 * deepest {
            self.shifts.drain(..self.shifts.len() - deepest);
        }
        self.shifts.push((self.next, shift));
    }

    /// Returns the position at which the last `length` bytes start.
    fn start(&self, length: usize) -> usize {
        let byte = self.next - length;
        let before = self.shifts.partition_point(|(from, _)| *from <= byte);
        let shift = before.checked_sub(1).map_or(self.first_shift, |last| self.shifts[last].1);
        byte.wrapping_add(shift)
    }

    fn open_from(&self, patterns: &Automaton) -> Option<usize> {
        let depth = patterns.depth(self.state);
        (depth > 0).then(|| self.start(depth))
    }
}

/// The running state of the automaton on the raw text, starting at an escape.
///
/// What looks like an escape may be the end of another text, so that its last digits are the first letters of a word.
#[derive(Clone, Debug, Default)]
struct Literal {
    state: u32,
    end: usize,
    found: Vec<Range<usize>>,
}

impl Literal {
    /// Processes the bytes of an escape.
    fn push(&mut self, patterns: &Automaton, bytes: &[u8], start: usize) {
        for (at, byte) in (start..).zip(bytes).take_while(|_| !patterns.is_empty()) {
            self.state = fold(*byte).map_or(ROOT, |byte| patterns.next(self.state, byte));
            self.end = at + 1;
            if let Some(length) = patterns.word(self.state) {
                join(&mut self.found, self.end - length..self.end);
            }
        }
    }

    /// Processes bytes without escapes while a word that started in an escape may continue.
    fn push_plain(&mut self, patterns: &Automaton, bytes: &[u8], start: usize) {
        for at in 0..bytes.len() {
            if self.state == ROOT {
                return;
            }
            self.push(patterns, &bytes[at..=at], start + at);
        }
    }

    fn open_from(&self, patterns: &Automaton) -> usize {
        self.end - patterns.depth(self.state)
    }
}

impl Scanner {
    /// Scans a piece of text that starts at position `base`.
    pub(crate) fn scan(&mut self, patterns: &Patterns, text: &[u8], base: usize) {
        let mut at = 0;
        while at < text.len() {
            if self.percent.is_idle() && self.unescape.is_idle() {
                at = self.scan_plain(&patterns.0, text, base, at);
                at = self.scan_escapes(&patterns.0, text, base, at);
                if at == text.len() {
                    break;
                }
            } else if self.unescape.is_in_slashes() {
                at += text[at..].iter().take_while(|byte| **byte == b'\\').count();
                if at == text.len() {
                    break;
                }
            }
            let Self { unescape, percent, known, literal, shapes, found, keys } = self;
            literal.push(&patterns.0, &text[at..=at], base + at);
            unescape.push(text[at], base + at, &mut |unit| {
                shapes.push(unit, keys);
                percent.push(unit, &mut |unit| known.push(&patterns.0, unit, found));
            });
            at += 1;
        }
    }

    /// Scans complete escapes and returns the position after them.
    fn scan_escapes(&mut self, patterns: &Automaton, text: &[u8], base: usize, from: usize) -> usize {
        let Self { known, literal, shapes, found, keys, .. } = self;
        let mut at = from;
        loop {
            let rest = &text[at..];
            let encoded = decode::percent_escape(rest);
            let is_encoded = encoded.is_some();
            let Some(escaped) = encoded.or_else(|| decode::json_escape(rest)) else { return at };
            let (start, end) = (base + at + escaped.start, base + at + escaped.length);
            let unit = escaped.byte.map(|byte| Unit { byte, start, end });
            // Keys are not recognized by format inside percent-encoding.
            if is_encoded {
                shapes.push_plain(&rest[..escaped.length], base + at, keys);
            } else {
                unit.into_iter().for_each(|unit| shapes.push(unit, keys));
            }
            literal.push(patterns, &rest[..escaped.length], base + at);
            unit.into_iter().for_each(|unit| known.push(patterns, unit, found));
            at += escaped.length;
        }
    }

    /// Scans up to the next escape and returns its position.
    fn scan_plain(&mut self, patterns: &Automaton, text: &[u8], base: usize, from: usize) -> usize {
        let mut at = from;
        loop {
            let chunk = &text[at..text.len().min(at + CHUNK)];
            let is_escape = |i: &usize| decode::is_escape(&text[at + i..]);
            let escape = memchr::memchr2_iter(b'\\', b'%', chunk).find(is_escape);
            let chunk = &chunk[..escape.unwrap_or(chunk.len())];
            self.shapes.push_plain(chunk, base + at, &mut self.keys);
            self.literal.push_plain(patterns, chunk, base + at);
            self.known.push_plain(patterns, chunk, base + at, &mut self.found);
            at += chunk.len();
            if escape.is_some() || at == text.len() {
                return at;
            }
        }
    }

    /// Handles the end of the text.
    pub(crate) fn finish(&mut self, patterns: &Patterns) {
        let Self { unescape, percent, known, shapes, found, keys, .. } = self;
        let known = &mut |unit| known.push(&patterns.0, unit, found);
        unescape.finish(&mut |unit| {
            shapes.push(unit, keys);
            percent.push(unit, known);
        });
        percent.finish(known);
        shapes.finish(keys);
    }

    /// Marks an interruption of the text, after which a secret may continue.
    pub(crate) fn interrupt(&mut self, at: usize) {
        self.shapes.interrupt(at, &mut self.keys);
    }

    /// Returns the start of an incomplete secret if at least `letters` bytes of it were seen.
    pub(crate) fn start_of_partial_secret(&self, patterns: &Patterns, letters: usize) -> Option<usize> {
        let known =
            (patterns.0.depth(self.known.state) >= letters).then(|| self.known.open_from(&patterns.0));
        let literal = (patterns.0.depth(self.literal.state) >= letters)
            .then(|| Some(self.literal.open_from(&patterns.0)));
        let shape = (self.shapes.significant_bytes() >= letters).then(|| self.shapes.open_from());
        known.into_iter().chain(literal).chain(shape).flatten().min()
    }

    /// Returns every state of a known secret that may have started, with its start, longest first.
    pub(crate) fn partial_matches(&self, patterns: &Patterns) -> Vec<(u32, usize)> {
        let automaton = &patterns.0;
        let states = std::iter::successors(Some(self.known.state), |state| Some(automaton.fallback(*state)));
        let states = states.take_while(|state| *state != ROOT);
        states.map(|state| (state, self.known.start(automaton.depth(state)))).collect()
    }

    /// Returns the positions of all secrets that start before `before`, in order. Overlapping ones are merged.
    pub(crate) fn take_found(&mut self, before: usize) -> Vec<Range<usize>> {
        self.found.append(&mut self.literal.found);
        if self.found.is_empty() && self.keys.is_empty() {
            return Vec::new();
        }
        self.found.extend(self.keys.iter().map(|key| key.range.clone()));
        self.keys.clear();
        let is_later = |range: &Range<usize>| range.start >= before;
        let (later, mut found): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.found).into_iter().partition(is_later);
        self.found = later;
        found.sort_unstable_by_key(|range| (range.start, range.end));
        let mut merged: Vec<Range<usize>> = Vec::with_capacity(found.len());
        for range in found {
            match merged.last_mut() {
                Some(last) if range.start < last.end => last.end = last.end.max(range.end),
                _ => merged.push(range),
            }
        }
        merged
    }

    /// Returns the earliest start of a secret that was found and extends beyond this position.
    fn found_across(&self, at: usize) -> Option<usize> {
        let keys = self.keys.iter().map(|key| &key.range);
        self.found
            .iter()
            .chain(&self.literal.found)
            .chain(keys)
            .filter(|range| range.end > at)
            .map(|range| range.start)
            .min()
    }
}

/// Adds a position and merges overlaps, so that a secret that overlaps with itself adds few entries.
fn join(found: &mut Vec<Range<usize>>, mut range: Range<usize>) {
    if let Some(last) = found.last_mut().filter(|last| last.contains(&range.start)) {
        last.end = last.end.max(range.end);
        return;
    }
    while let Some(last) = found.pop_if(|last| range.start < last.end) {
        range = range.start.min(last.start)..range.end.max(last.end);
    }
    found.push(range);
}

/// Extends a position to whole characters of this text.
pub(crate) fn whole_characters(text: &str, range: Range<usize>) -> Range<usize> {
    let (mut start, mut end) = (range.start.min(text.len()), range.end.min(text.len()));
    while !text.is_char_boundary(start) {
        start -= 1;
    }
    while !text.is_char_boundary(end) {
        end += 1;
    }
    start..end
}

pub(crate) mod line_redactor;
pub(crate) mod messages;
pub(crate) mod redactor;
#[cfg(test)]
mod tests;
