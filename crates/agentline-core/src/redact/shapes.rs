//! Recognizes keys by their format: those of well-known services, JSON Web Tokens and private keys in PEM.
//!
//! The scanner has at most one open candidate, so it reads no text twice. Between candidates it searches for the
//! prefixes of all formats at once.

use super::decode::Unit;
use aho_corasick::{AhoCorasick, Input, MatchKind};
use std::{ops::Range, sync::LazyLock};

/// The characters that may follow a prefix.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Body {
    Alphanumeric,
    Upper,
    /// Letters, digits, `_` and `-`.
    Word,
    /// Three parts of `Word`, separated by dots.
    Token,
    /// The label and content of a PEM block.
    Pem,
}

impl Body {
    /// Returns the bit of its bytes in [`CLASSES`], if the same bytes are valid throughout the body.
    fn class(self) -> Option<u8> {
        match self {
            Self::Alphanumeric => Some(1),
            Self::Upper => Some(2),
            Self::Word => Some(4),
            Self::Token | Self::Pem => None,
        }
    }
}

/// The bodies that each byte belongs to, one bit each.
static CLASSES: [u8; 256] = {
    let mut classes = [0; 256];
    let mut at = 0;
    while at < 256 {
        classes[at] = match at as u8 {
            b'A'..=b'Z' | b'0'..=b'9' => 7,
            b'a'..=b'z' => 5,
            b'_' | b'-' => 4,
            _ => 0,
        };
        if matches!(at as u8, b'\n' | b'\r' | b'\t' | b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'+' | b'/' | b'=' | b':' | b',' | b'.')
        {
            classes[at] |= 8;
        }
        at += 1;
    }
    classes
};

struct Shape {
    prefix: &'static str,
    body: Body,
    shortest: u32,
    longest: u32,
    /// The minimum number of digits, which excludes hyphenated words.
    digits: u32,
}

const fn shape(prefix: &'static str, body: Body, shortest: u32, longest: u32, digits: u32) -> Shape {
    Shape { prefix, body, shortest, longest, digits }
}

/// The known key formats. No prefix is a prefix of another.
const SHAPES: &[Shape] = &[
    shape("ghp_", Body::Alphanumeric, 36, 251, 1),
    shape("gho_", Body::Alphanumeric, 36, 251, 1),
    shape("ghs_", Body::Alphanumeric, 36, 251, 1),
    shape("ghu_", Body::Alphanumeric, 36, 251, 1),
    shape("ghr_", Body::Alphanumeric, 36, 251, 1),
    shape("github_pat_", Body::Word, 36, 255, 1),
    shape("glpat-", Body::Word, 20, 255, 1),
    shape("AKIA", Body::Upper, 16, 16, 1),
    shape("ASIA", Body::Upper, 16, 16, 1),
    shape("sk-", Body::Word, 32, 512, 4),
    shape("AIza", Body::Word, 35, 35, 1),
    shape("xoxb-", Body::Word, 20, 255, 4),
    shape("xoxp-", Body::Word, 20, 255, 4),
    shape("xoxa-", Body::Word, 20, 255, 4),
    shape("xoxs-", Body::Word, 20, 255, 4),
    shape("ya29.", Body::Word, 20, 4096, 1),
    shape("npm_", Body::Alphanumeric, 36, 36, 1),
    shape("eyJ", Body::Token, 10, 1 << 16, 0),
    shape("-----BEGIN ", Body::Pem, 64, 1 << 17, 0),
];
/// The number of hyphens before and after a PEM label.
const PEM_HYPHENS: usize = 5;
/// Text after `sk-` that identifies a key, which may then be as short as [`SHORTEST_KNOWN_SK`].
const KNOWN_SK: &[&str] = &["ant-", "proj-"];
const SHORTEST_KNOWN_SK: u32 = 20;
/// The minimum length of text after an interruption that counts as the rest of a complete key.
const SHORTEST_TAIL: u32 = 16;
/// The maximum number of bytes of a key that are remembered.
const LONGEST_VALUE: usize = 16 << 10;

/// The prefixes of all formats. Each has at least three bytes.
const SHAPE_PREFIXES: [&[u8]; SHAPES.len()] = {
    let mut prefixes: [&[u8]; SHAPES.len()] = [b""; SHAPES.len()];
    let mut i = 0;
    while i < SHAPES.len() {
        prefixes[i] = SHAPES[i].prefix.as_bytes();
        i += 1;
    }
    prefixes
};
const LONGEST_PREFIX: usize = 11;

/// The formats that have a byte at a position of their prefix, one bit each.
static PREFIXES: [[u32; 256]; LONGEST_PREFIX] = {
    let mut fitting = [[0; 256]; LONGEST_PREFIX];
    let mut i = 0;
    while i < SHAPES.len() {
        let prefix = SHAPE_PREFIXES[i];
        let mut at = 0;
        while at < prefix.len() {
            fitting[at][prefix[at] as usize] |= 1 << i;
            at += 1;
        }
        i += 1;
    }
    fitting
};

/// Finds complete prefixes, many bytes at a time.
static SEARCH: LazyLock<AhoCorasick> = LazyLock::new(|| {
    let search = AhoCorasick::builder().match_kind(MatchKind::LeftmostFirst).build(SHAPE_PREFIXES);
    search.expect("a few short words")
});

/// Returns the number of bytes before the first byte with which a key may start: with a complete prefix, or with a part
/// of one that ends with the text.
fn passed_over(bytes: &[u8], last: u8) -> usize {
    let may_start = |at: usize| {
        let last = at.checked_sub(1).map_or(last, |before| bytes[before]);
        // Further hyphens come from a diff that removes a key. The last five count.
        bytes[at..].starts_with(&[b'-'; PEM_HYPHENS]) || may_follow(bytes[at], last)
    };
    let mut from = 0;
    while let Some(prefix) = SEARCH.find(Input::new(bytes).range(from..)) {
        if may_start(prefix.start()) {
            return prefix.start();
        }
        from = prefix.start() + 1;
    }
    let is_part = |at: &usize| SHAPE_PREFIXES.iter().any(|prefix| prefix.starts_with(&bytes[*at..]));
    let tail = from.max(bytes.len().saturating_sub(LONGEST_PREFIX - 1));
    let is_first = |at: &usize| PREFIXES[0][usize::from(bytes[*at])] != 0;
    (tail..bytes.len()).find(|at| is_first(at) && may_start(*at) && is_part(at)).unwrap_or(bytes.len())
}

/// Returns whether a key may start with this byte after `last`.
fn may_follow(byte: u8, last: u8) -> bool {
    if byte == b'-' { last != b'-' } else { !joins(last) }
}

/// Returns whether a key cannot start after this byte.
fn joins(byte: u8) -> bool {
    byte != b'-' && CLASSES[usize::from(byte)] & 4 != 0
}

#[derive(Clone, Default)]
pub(super) struct ShapeScanner {
    open: Option<Candidate>,
    /// The previous byte.
    last: u8,
    /// The decoded key so far, once its prefix is complete.
    value: Vec<u8>,
}

#[derive(Clone)]
struct Candidate {
    start: usize,
    end: usize,
    /// The number of bytes seen.
    length: usize,
    /// The formats that match so far, one bit each, until the prefix is complete.
    fitting: u32,
    shape: Option<&'static Shape>,
    count: u32,
    digits: u32,
    /// For a token, the current part. For a PEM block, the number of runs of five hyphens.
    part: u32,
    hyphens: u32,
    /// The text after an interruption at which the key was already complete.
    tail: Option<Tail>,
}

#[derive(Clone, Copy)]
struct Tail {
    start: usize,
    count: u32,
    digits: u32,
}

/// A key that was found.
#[derive(Clone)]
pub(super) struct Found {
    pub(super) range: Range<usize>,
    pub(super) value: Vec<u8>,
}

enum Step {
    Goes,
    /// The byte belongs to the key and ends it.
    Ends,
    Stops,
}

impl ShapeScanner {
    /// Returns where a key may have started.
    pub(super) fn open_from(&self) -> Option<usize> {
        self.open.as_ref().map(|open| open.tail.map_or(open.start, |tail| tail.start))
    }

    /// Returns the number of significant bytes of a key that may have started: those after its prefix.
    pub(super) fn significant_bytes(&self) -> usize {
        let open = self.open.as_ref().and_then(|open| open.shape.map(|shape| (open, shape)));
        open.map_or(0, |(open, shape)| match shape.body {
            Body::Pem => open.count as usize,
            _ => open.length - shape.prefix.len(),
        })
    }

    pub(super) fn push(&mut self, unit: Unit, found: &mut Vec<Found>) {
        let last = std::mem::replace(&mut self.last, unit.byte);
        if let Some(open) = &mut self.open {
            match open.step(unit, last, &mut self.value) {
                Step::Goes => return,
                Step::Ends => {
                    // Another block may follow at once.
                    self.last = 0;
                    return self.finish(found);
                }
                Step::Stops => self.finish(found),
            }
        }
        let fitting = PREFIXES[0][usize::from(unit.byte)];
        if fitting != 0 && may_follow(unit.byte, last) {
            self.open = Some(Candidate::new(unit, fitting));
        }
    }

    /// Processes bytes without escapes.
    pub(super) fn push_plain(&mut self, bytes: &[u8], start: usize, found: &mut Vec<Found>) {
        let mut at = 0;
        while at < bytes.len() {
            let rest = &bytes[at..];
            let is_open = self.open.is_some();
            let passed = match &mut self.open {
                None => passed_over(rest, self.last),
                Some(open) => open.run(rest, start + at, &mut self.value),
            };
            if passed > 0 {
                at += passed;
                self.last = bytes[at - 1];
            }
            if let Some(byte) = bytes.get(at) {
                let unit = Unit { byte: *byte, start: start + at, end: start + at + 1 };
                if is_open {
                    self.push(unit, found);
                } else {
                    self.last = unit.byte;
                    self.open = Some(Candidate::new(unit, PREFIXES[0][usize::from(unit.byte)]));
                }
                at += 1;
            }
        }
    }

    /// Handles the end of the text: a key that is long enough is complete.
    pub(super) fn finish(&mut self, found: &mut Vec<Found>) {
        if let Some(open) = self.open.take() {
            let range = open.range(&self.value);
            found.extend(range.map(|range| Found { range, value: self.value.clone() }));
        }
    }

    /// Handles an interruption of the text. A key that is long enough is complete, but may continue.
    pub(super) fn interrupt(&mut self, at: usize, found: &mut Vec<Found>) {
        let Some(mut open) = self.open.take() else { return };
        if open.tail.is_none() && open.is_complete(&self.value) {
            found.push(Found { range: open.start..open.end, value: self.value.clone() });
            if open.shape.is_some_and(|shape| shape.body == Body::Word && shape.longest > shape.shortest) {
                open.tail = Some(Tail { start: at, count: 0, digits: 0 });
                self.open = Some(open);
            }
        } else {
            self.open = Some(open);
        }
    }
}

impl Candidate {
    fn new(unit: Unit, fitting: u32) -> Self {
        Self {
            start: unit.start,
            end: unit.end,
            length: 1,
            fitting,
            shape: None,
            count: 0,
            digits: 0,
            part: 0,
            hyphens: 0,
            tail: None,
        }
    }

    fn step(&mut self, unit: Unit, last: u8, value: &mut Vec<u8>) -> Step {
        let Some(shape) = self.shape else { return self.prefix(unit, value) };
        let step = self.body(shape, unit.byte, last, value);
        if !matches!(step, Step::Stops) {
            self.end = unit.end;
            self.length += 1;
            if value.len() < LONGEST_VALUE {
                value.push(unit.byte);
            }
        }
        step
    }

    fn prefix(&mut self, unit: Unit, value: &mut Vec<u8>) -> Step {
        let is_pem = SHAPES[self.fitting.trailing_zeros() as usize].body == Body::Pem;
        if is_pem && unit.byte == b'-' && self.length == PEM_HYPHENS {
            // A sixth hyphen comes from a diff that removes a key. The last five count.
            (self.start, self.end) = (self.start + 1, unit.end);
            return Step::Goes;
        }
        self.fitting &= PREFIXES[self.length][usize::from(unit.byte)];
        if self.fitting == 0 {
            return Step::Stops;
        }
        // No prefix is a prefix of another, so a complete one is the only match.
        let shape = &SHAPES[self.fitting.trailing_zeros() as usize];
        (self.end, self.length) = (unit.end, self.length + 1);
        if shape.prefix.len() == self.length {
            self.shape = Some(shape);
            value.clear();
            value.extend_from_slice(shape.prefix.as_bytes());
        }
        Step::Goes
    }

    /// Processes bytes of the body that do not depend on the previous byte, and returns their number.
    fn run(&mut self, bytes: &[u8], start: usize, value: &mut Vec<u8>) -> usize {
        let Some((shape, class)) = self.shape.and_then(|shape| Some((shape, self.class(shape)?))) else {
            return 0;
        };
        let room = shape.longest.saturating_sub(self.count) as usize;
        let run =
            bytes.iter().take(room).take_while(|byte| CLASSES[usize::from(**byte)] & class != 0).count();
        if run == 0 {
            return 0;
        }
        let bytes = &bytes[..run];
        match shape.body {
            Body::Pem => {
                self.hyphens = 0;
                self.count += bytes.iter().filter(|byte| byte.is_ascii_alphanumeric()).count() as u32;
            }
            Body::Token => self.count += run as u32,
            _ => bytes.iter().for_each(|byte| self.count(*byte)),
        }
        (self.end, self.length) = (start + run, self.length + run);
        value.extend_from_slice(&bytes[..run.min(LONGEST_VALUE.saturating_sub(value.len()))]);
        run
    }

    /// Returns the bit in [`CLASSES`] of the bytes that are valid anywhere in the current part of the key.
    fn class(&self, shape: &Shape) -> Option<u8> {
        match shape.body {
            // The second part has a prefix of its own.
            Body::Token => (self.part != 1 || self.count > 2).then_some(4),
            Body::Pem => (self.part == 1).then_some(8),
            body => body.class(),
        }
    }

    fn body(&mut self, shape: &Shape, byte: u8, last: u8, value: &[u8]) -> Step {
        let belongs = match shape.body.class() {
            Some(class) => CLASSES[usize::from(byte)] & class != 0,
            None if shape.body == Body::Token => return self.token(shape, byte),
            None => return self.pem(shape, byte, last, value),
        };
        if belongs {
            self.count(byte);
        } else if byte.is_ascii_alphanumeric() {
            // A longer word is not a key.
            self.count = u32::MAX;
        }
        if belongs && self.count <= shape.longest { Step::Goes } else { Step::Stops }
    }

    fn count(&mut self, byte: u8) {
        self.count = self.count.saturating_add(1);
        self.digits += u32::from(byte.is_ascii_digit());
        if let Some(tail) = &mut self.tail {
            tail.count += 1;
            tail.digits += u32::from(byte.is_ascii_digit());
        }
    }

    fn token(&mut self, shape: &Shape, byte: u8) -> Step {
        if byte == b'.' && self.part < 2 && self.count >= shape.shortest {
            (self.part, self.count) = (self.part + 1, 0);
            return Step::Goes;
        }
        let second = b"eyJ".get(self.count as usize).filter(|_| self.part == 1);
        let belongs = byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
        if !belongs || second.is_some_and(|expected| *expected != byte) || self.count >= shape.longest {
            return Step::Stops;
        }
        self.count += 1;
        Step::Goes
    }

    fn pem(&mut self, shape: &Shape, byte: u8, last: u8, value: &[u8]) -> Step {
        self.hyphens = if byte == b'-' { self.hyphens + 1 } else { 0 };
        if self.hyphens == PEM_HYPHENS as u32 {
            self.part += 1;
            if self.part == 1 && !value.ends_with(b"PRIVATE KEY----") {
                return Step::Stops;
            }
            // The end of the block.
            return if self.part == 3 { Step::Ends } else { Step::Goes };
        }
        let in_label = self.part != 1;
        let belongs = match byte {
            b'A'..=b'Z' | b'0'..=b'9' | b'-' => true,
            b' ' => in_label || matches!(last, b':' | b'\n' | b' '),
            b'\n' | b'\r' | b'\t' | b'a'..=b'z' | b'+' | b'/' | b'=' | b':' | b',' | b'.' => !in_label,
            _ => false,
        };
        let is_full = self.count >= shape.longest || (self.part == 0 && self.length > 64);
        if !belongs || is_full {
            return Step::Stops;
        }
        self.count += u32::from(self.part == 1 && byte.is_ascii_alphanumeric());
        Step::Goes
    }

    fn is_complete(&self, value: &[u8]) -> bool {
        let Some(shape) = self.shape else { return false };
        let shortest = match shape.body {
            Body::Token if self.part < 2 => return false,
            Body::Word if shape.prefix == "sk-" && is_known_sk(value) => {
                return self.digits > 0 && (SHORTEST_KNOWN_SK..=shape.longest).contains(&self.count);
            }
            _ => shape.shortest,
        };
        self.digits >= shape.digits && (shortest..=shape.longest).contains(&self.count)
    }

    /// Returns the position of the key, if it is complete.
    fn range(&self, value: &[u8]) -> Option<Range<usize>> {
        match self.tail {
            Some(tail) if tail.count >= SHORTEST_TAIL && tail.digits > 1 => Some(tail.start..self.end),
            None if self.is_complete(value) => Some(self.start..self.end),
            _ => None,
        }
    }
}

fn is_known_sk(value: &[u8]) -> bool {
    KNOWN_SK.iter().any(|known| value[3..].starts_with(known.as_bytes()))
}
