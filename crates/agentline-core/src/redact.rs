//! Finds secrets in a text in one pass: known values in any of their spellings, and keys that are known by their shape alone.
//!
//! The text is decoded byte by byte (`decode.rs`) into an automaton over all spellings of all secrets (`automaton.rs`,
//! `spellings.rs`) and a scanner for shapes (`shapes.rs`). Each byte is read once, whatever the text holds, also when the text
//! comes in pieces (`stream.rs`).

mod automaton;
mod decode;
mod session;
mod shapes;
mod spellings;
mod stream;

pub use session::SessionRedactor;
pub(crate) use stream::StreamRedactor;

use automaton::{Automaton, ROOT};
use decode::{Percent, Unescape, Unit, fold, unfold};
use shapes::{Found, ShapeScanner};
use std::{ops::Range, sync::Arc};

/// The secrets to look for, in all their spellings.
#[derive(Clone)]
pub(crate) struct Patterns(Arc<Inner>);

struct Inner {
    automaton: Automaton,
    /// What a byte means where nothing has begun.
    starts: [u8; 256],
    /// Which byte may follow such a byte, so that most of a text is passed over.
    pairs: Pairs,
}

/// A secret may begin with the byte, or the byte begins an escape.
const MATTERS: u8 = 1;
/// A key may begin with the byte if no word does.
const SHAPE: u8 = 2;

/// A set of pairs of bytes.
struct Pairs(Box<[u64]>);

impl Pairs {
    fn new() -> Self {
        Self(vec![0; 1 << 10].into())
    }

    fn insert(&mut self, first: u8, second: u8) {
        let at = usize::from(first) << 8 | usize::from(second);
        self.0[at >> 6] |= 1 << (at & 63);
    }

    fn contains(&self, first: u8, second: u8) -> bool {
        let at = usize::from(first) << 8 | usize::from(second);
        self.0[at >> 6] >> (at & 63) & 1 == 1
    }
}

impl Patterns {
    pub(crate) fn new<'a>(secrets: impl IntoIterator<Item = &'a str>) -> Self {
        let automaton = Automaton::new(secrets.into_iter().flat_map(spellings::spellings));
        let (mut starts, mut pairs) = ([0; 256], Pairs::new());
        for byte in u8::MIN..=u8::MAX {
            // Without an escape decoded, the `n` of `\n` would be a letter in front of a key.
            let escapes = byte == b'\\' || (byte == b'%' && !automaton.is_empty());
            let first = fold(byte).and_then(|byte| automaton.child(ROOT, byte));
            let shape = shapes::begins_with(byte);
            starts[usize::from(byte)] =
                (u8::from(escapes || first.is_some()) * MATTERS) | (u8::from(shape) * SHAPE);
            match byte {
                b'\\' => (u8::MIN..=u8::MAX).for_each(|second| pairs.insert(byte, second)),
                b'%' if escapes => {
                    b"0123456789abcdefABCDEF\\".iter().for_each(|second| pairs.insert(byte, *second));
                }
                _ => {}
            }
            if let Some(first) = first {
                // What follows a line break or an escape is not known.
                let unknown = *b"\n\r\\%";
                let folded = automaton.children(first).flat_map(unfold);
                folded.chain(unknown).for_each(|second| pairs.insert(byte, second));
            }
            if shape {
                shapes::seconds(byte).chain([b'\\']).for_each(|second| pairs.insert(byte, second));
            }
        }
        Self(Arc::new(Inner { automaton, starts, pairs }))
    }

    /// How many bytes the longest spelling has.
    pub(crate) fn longest(&self) -> usize {
        self.0.automaton.deepest()
    }

    /// The places of all secrets in a text, in order, none inside another.
    pub(crate) fn find(&self, text: &str) -> Vec<Range<usize>> {
        let mut scanner = Scanner::default();
        scanner.scan(self, text.as_bytes(), 0);
        scanner.finish(self);
        scanner.take_found(usize::MAX)
    }

    /// The same for a text that may have been cut: its end counts if this many letters of a secret stand there.
    pub(crate) fn find_in_cut(&self, text: &str, letters: usize) -> Vec<Range<usize>> {
        let mut scanner = Scanner::default();
        scanner.scan(self, text.as_bytes(), 0);
        let telling = scanner.telling_from(self, letters);
        scanner.finish(self);
        scanner.found.extend(telling.map(|from| from..text.len()));
        scanner.take_found(usize::MAX)
    }

    fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// The part of a word that a whole piece of text is: goes on from `state` and gives the state at its end, or the place
    /// where a word is complete.
    pub(crate) fn follow(&self, state: u32, piece: &Folded) -> Option<Followed> {
        let mut state = state;
        for (byte, end) in &piece.bytes {
            state = self.0.automaton.child(state, *byte)?;
            if self.0.automaton.word(state) == Some(self.0.automaton.depth(state)) {
                return Some(Followed::Whole(*end));
            }
        }
        (piece.is_all && !piece.bytes.is_empty()).then_some(Followed::Part(state))
    }

    /// How many bytes of a word were seen in this state.
    pub(crate) fn seen(&self, state: u32) -> usize {
        self.0.automaton.depth(state)
    }

    /// The beginning of a piece of text, decoded once for all that may go on there.
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

/// The beginning of a piece of text, decoded: bytes, and where each one ends.
pub(crate) struct Folded {
    bytes: Vec<(u8, usize)>,
    is_all: bool,
}

/// How a word goes on in a piece of text.
pub(crate) enum Followed {
    /// It is complete here.
    Whole(usize),
    /// The whole piece belongs to it.
    Part(u32),
}

/// Reads a text once, in as many pieces as it comes.
#[derive(Clone, Default)]
pub(crate) struct Scanner {
    unescape: Unescape,
    percent: Percent,
    known: Known,
    shapes: ShapeScanner,
    found: Vec<Range<usize>>,
    /// Keys that were found by their shape.
    keys: Vec<Found>,
}

/// The automaton on its way.
#[derive(Clone, Debug, Default)]
struct Known {
    state: u32,
    /// Where the last bytes begin, at least as many as the state is deep.
    starts: Vec<usize>,
}

impl Known {
    fn push(&mut self, patterns: &Automaton, unit: Unit, found: &mut Vec<Range<usize>>) {
        let Some(byte) = fold(unit.byte) else { return };
        self.state = patterns.next(self.state, byte);
        if self.state == ROOT {
            return self.starts.clear();
        }
        if self.starts.len() > 4 * patterns.deepest() {
            self.starts.drain(..self.starts.len() - patterns.deepest());
        }
        self.starts.push(unit.start);
        if let Some(length) = patterns.word(self.state) {
            join(found, self.starts[self.starts.len() - length]..unit.end);
        }
    }

    fn open_from(&self, patterns: &Automaton) -> Option<usize> {
        let depth = patterns.depth(self.state);
        (depth > 0).then(|| self.starts[self.starts.len() - depth])
    }
}

impl Scanner {
    /// Reads a piece of text that begins at this place.
    pub(crate) fn scan(&mut self, patterns: &Patterns, text: &[u8], base: usize) {
        let mut at = 0;
        while at < text.len() {
            if self.is_idle() {
                let from = at;
                at = patterns.0.skip(text, from, self.shapes.last());
                if at > from {
                    self.shapes.set_last(text[at - 1]);
                }
                if at == text.len() {
                    break;
                }
            }
            let Self { unescape, percent, known, shapes, found, keys } = self;
            unescape.push(text[at], base + at, &mut |unit| {
                shapes.push(unit, &mut |key| keys.push(key));
                percent.push(unit, &mut |unit| known.push(&patterns.0.automaton, unit, found));
            });
            at += 1;
        }
    }

    /// The text ends.
    pub(crate) fn finish(&mut self, patterns: &Patterns) {
        let Self { unescape, percent, known, shapes, found, keys } = self;
        let known = &mut |unit| known.push(&patterns.0.automaton, unit, found);
        unescape.finish(&mut |unit| {
            shapes.push(unit, &mut |key| keys.push(key));
            percent.push(unit, known);
        });
        percent.finish(known);
        shapes.finish(&mut |key| keys.push(key));
    }

    /// Something comes in between here; what has begun may go on after it.
    pub(crate) fn interrupt(&mut self, at: usize) {
        let Self { shapes, keys, .. } = self;
        shapes.interrupt(at, &mut |key| keys.push(key));
    }

    fn is_idle(&self) -> bool {
        self.known.state == ROOT && self.shapes.is_idle() && self.percent.is_idle() && self.unescape.is_idle()
    }

    /// Where the beginning of a secret stands that is long enough to tell something about it.
    pub(crate) fn telling_from(&self, patterns: &Patterns, letters: usize) -> Option<usize> {
        let known = (patterns.0.automaton.depth(self.known.state) >= letters)
            .then(|| self.known.open_from(&patterns.0.automaton));
        let shape = (self.shapes.telling() >= letters).then(|| self.shapes.open_from());
        known.into_iter().chain(shape).flatten().min()
    }

    /// Every state of a known secret that may have begun, and where it did, longest first.
    pub(crate) fn begun(&self, patterns: &Patterns) -> Vec<(u32, usize)> {
        let automaton = &patterns.0.automaton;
        let states = std::iter::successors(Some(self.known.state), |state| Some(automaton.fallback(*state)));
        let states = states.take_while(|state| *state != ROOT);
        states
            .map(|state| (state, self.known.starts[self.known.starts.len() - automaton.depth(state)]))
            .collect()
    }

    /// The places of all secrets that are complete before this place, in order; those that overlap are one.
    pub(crate) fn take_found(&mut self, before: usize) -> Vec<Range<usize>> {
        self.found.extend(self.keys.iter().map(|key| key.place.clone()));
        self.keys.clear();
        let is_later = |place: &Range<usize>| place.start >= before;
        let (later, mut found): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.found).into_iter().partition(is_later);
        self.found = later;
        found.sort_unstable_by_key(|place| (place.start, place.end));
        let mut merged: Vec<Range<usize>> = Vec::with_capacity(found.len());
        for place in found {
            match merged.last_mut() {
                Some(last) if place.start < last.end => last.end = last.end.max(place.end),
                _ => merged.push(place),
            }
        }
        merged
    }

    /// Where the earliest secret begins that was found and goes beyond this place.
    fn found_across(&self, at: usize) -> Option<usize> {
        let keys = self.keys.iter().map(|key| &key.place);
        self.found.iter().chain(keys).filter(|place| place.end > at).map(|place| place.start).min()
    }
}

/// Adds a place; those that overlap are one, so that a secret that overlaps with itself has few.
fn join(found: &mut Vec<Range<usize>>, mut place: Range<usize>) {
    while let Some(last) = found.pop_if(|last| place.start < last.end) {
        place = place.start.min(last.start)..place.end.max(last.end);
    }
    found.push(place);
}

/// The places, widened to whole characters of this text.
pub(crate) fn whole_characters(text: &str, place: Range<usize>) -> Range<usize> {
    let (mut start, mut end) = (place.start.min(text.len()), place.end.min(text.len()));
    while !text.is_char_boundary(start) {
        start -= 1;
    }
    while !text.is_char_boundary(end) {
        end += 1;
    }
    start..end
}

impl Inner {
    /// The first place at or after `from` where something may begin. `last` is the decoded byte before.
    fn skip(&self, text: &[u8], from: usize, last: u8) -> usize {
        let mut at = from;
        while let Some(byte) = text.get(at) {
            match self.starts[usize::from(*byte)] {
                0 => {}
                SHAPE if shapes::joins(if at == from { last } else { text[at - 1] }) => {}
                _ if text.get(at + 1).is_some_and(|next| !self.pairs.contains(*byte, *next)) => {}
                _ => break,
            }
            at += 1;
        }
        at
    }
}

#[cfg(test)]
mod tests;
