//! Recognises keys by their shape alone: those of well-known services, JSON Web Tokens and private keys in PEM.
//!
//! One byte after another goes through it, and at most one candidate is open at a time, so that no text is read twice.

use super::decode::Unit;
use std::ops::Range;

/// Which bytes follow a prefix.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Body {
    Alphanumeric,
    Upper,
    /// Letters, digits, `_` and `-`.
    Word,
    /// Three parts of `Word` with points in between.
    Token,
    /// The label of a PEM block.
    Pem,
}

struct Shape {
    prefix: &'static str,
    body: Body,
    shortest: u32,
    longest: u32,
    /// At least this many digits, so that words with hyphens are none.
    digits: u32,
}

const fn shape(prefix: &'static str, body: Body, shortest: u32, longest: u32, digits: u32) -> Shape {
    Shape { prefix, body, shortest, longest, digits }
}

/// No prefix begins with another.
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
/// What follows `sk-` in keys that are known to be keys from this length on.
const KNOWN_SK: &[&str] = &["ant-", "proj-"];
const SHORTEST_KNOWN_SK: u32 = 20;
/// What goes on after an interruption is part of a complete key only if it looks random.
const SHORTEST_TAIL: u32 = 16;
/// More of a key is not remembered.
const LONGEST_VALUE: usize = 16 << 10;

/// Whether a shape begins with this byte.
pub(super) fn begins_with(byte: u8) -> bool {
    SHAPES.iter().any(|shape| shape.prefix.as_bytes()[0] == byte)
}

/// The bytes that follow this one at the beginning of a shape.
pub(super) fn seconds(first: u8) -> impl Iterator<Item = u8> {
    SHAPES
        .iter()
        .map(|shape| shape.prefix.as_bytes())
        .filter(move |prefix| prefix[0] == first)
        .map(|prefix| prefix[1])
}

/// Whether a key cannot begin after this byte.
pub(super) fn joins(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

#[derive(Clone, Default)]
pub(super) struct ShapeScanner {
    open: Option<Candidate>,
    /// The byte before.
    last: u8,
}

#[derive(Clone)]
struct Candidate {
    start: usize,
    end: usize,
    /// The key so far, decoded.
    value: Vec<u8>,
    /// The shapes that fit, one bit each, until the prefix is complete.
    fitting: u32,
    shape: Option<&'static Shape>,
    count: u32,
    digits: u32,
    /// Of a token: which part. Of a PEM block: how many runs of five hyphens were seen.
    part: u32,
    hyphens: u32,
    /// Where the text was interrupted while the key was complete already.
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
    pub(super) place: Range<usize>,
    pub(super) value: Vec<u8>,
}

enum Step {
    Goes,
    /// The byte belongs to the key and ends it.
    Ends,
    Stops,
}

impl ShapeScanner {
    pub(super) fn is_idle(&self) -> bool {
        self.open.is_none()
    }

    pub(super) fn set_last(&mut self, byte: u8) {
        self.last = byte;
    }

    pub(super) fn last(&self) -> u8 {
        self.last
    }

    /// Where a key may have begun.
    pub(super) fn open_from(&self) -> Option<usize> {
        self.open.as_ref().map(|open| open.tail.map_or(open.start, |tail| tail.start))
    }

    /// How many bytes of a key that may have begun tell something: those after its prefix.
    pub(super) fn telling(&self) -> usize {
        let open = self.open.as_ref().and_then(|open| open.shape.map(|shape| (open, shape)));
        open.map_or(0, |(open, shape)| match shape.body {
            Body::Pem => open.count as usize,
            _ => open.value.len() - shape.prefix.len(),
        })
    }

    pub(super) fn push(&mut self, unit: Unit, each: &mut impl FnMut(Found)) {
        let last = std::mem::replace(&mut self.last, unit.byte);
        if let Some(open) = &mut self.open {
            match open.step(unit, last) {
                Step::Goes => return,
                Step::Ends => return self.finish(each),
                Step::Stops => self.finish(each),
            }
        }
        let may_begin = if unit.byte == b'-' { last != b'-' } else { !joins(last) };
        if may_begin && begins_with(unit.byte) {
            self.open = Candidate::new(unit);
        }
    }

    /// The text ends: a key that is long enough is complete.
    pub(super) fn finish(&mut self, each: &mut impl FnMut(Found)) {
        if let Some(open) = self.open.take() {
            open.found().into_iter().for_each(each);
        }
    }

    /// Something comes in between. A key that is long enough is complete, but may go on.
    pub(super) fn interrupt(&mut self, at: usize, each: &mut impl FnMut(Found)) {
        let Some(mut open) = self.open.take() else { return };
        if open.tail.is_none() && open.is_complete() {
            each(Found { place: open.start..open.end, value: open.value.clone() });
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
    fn new(unit: Unit) -> Option<Self> {
        let mut made = Self {
            start: unit.start,
            end: unit.start,
            value: Vec::new(),
            fitting: (1 << SHAPES.len()) - 1,
            shape: None,
            count: 0,
            digits: 0,
            part: 0,
            hyphens: 0,
            tail: None,
        };
        matches!(made.step(unit, 0), Step::Goes).then_some(made)
    }

    fn step(&mut self, unit: Unit, last: u8) -> Step {
        let step = match self.shape {
            None => self.prefix(unit.byte),
            Some(shape) => self.body(shape, unit.byte, last),
        };
        if !matches!(step, Step::Stops) {
            self.end = unit.end;
            if self.value.len() < LONGEST_VALUE {
                self.value.push(unit.byte);
            }
        }
        step
    }

    fn prefix(&mut self, byte: u8) -> Step {
        let at = self.value.len();
        for (i, shape) in SHAPES.iter().enumerate() {
            let fits = self.fitting >> i & 1 == 1 && shape.prefix.as_bytes().get(at) == Some(&byte);
            if !fits {
                self.fitting &= !(1 << i);
            } else if shape.prefix.len() == at + 1 {
                self.shape = Some(shape);
                return Step::Goes;
            }
        }
        if self.fitting == 0 { Step::Stops } else { Step::Goes }
    }

    fn body(&mut self, shape: &Shape, byte: u8, last: u8) -> Step {
        let belongs = match shape.body {
            Body::Alphanumeric => byte.is_ascii_alphanumeric(),
            Body::Upper => byte.is_ascii_alphanumeric() && !byte.is_ascii_lowercase(),
            Body::Word => byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'),
            Body::Token => return self.token(shape, byte),
            Body::Pem => return self.pem(shape, byte, last),
        };
        if belongs {
            self.count(byte);
        } else if byte.is_ascii_alphanumeric() {
            // A word that goes on is no key.
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
        if !belongs || second.is_some_and(|wanted| *wanted != byte) || self.count >= shape.longest {
            return Step::Stops;
        }
        self.count += 1;
        Step::Goes
    }

    fn pem(&mut self, shape: &Shape, byte: u8, last: u8) -> Step {
        self.hyphens = if byte == b'-' { self.hyphens + 1 } else { 0 };
        if self.hyphens == 5 {
            self.part += 1;
            if self.part == 1 && !self.value.ends_with(b"PRIVATE KEY----") {
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
        let is_full = self.count >= shape.longest || (self.part == 0 && self.value.len() > 64);
        if !belongs || is_full {
            return Step::Stops;
        }
        self.count += u32::from(self.part == 1 && byte.is_ascii_alphanumeric());
        Step::Goes
    }

    fn is_complete(&self) -> bool {
        let Some(shape) = self.shape else { return false };
        let shortest = match shape.body {
            Body::Token if self.part < 2 => return false,
            Body::Word if shape.prefix == "sk-" && self.is_known_sk() => {
                return self.digits > 0 && (SHORTEST_KNOWN_SK..=shape.longest).contains(&self.count);
            }
            _ => shape.shortest,
        };
        self.digits >= shape.digits && (shortest..=shape.longest).contains(&self.count)
    }

    fn is_known_sk(&self) -> bool {
        KNOWN_SK.iter().any(|known| self.value[3..].starts_with(known.as_bytes()))
    }

    fn found(self) -> Option<Found> {
        match self.tail {
            Some(tail) if tail.count >= SHORTEST_TAIL && tail.digits > 1 => {
                Some(Found { place: tail.start..self.end, value: self.value })
            }
            None if self.is_complete() => Some(Found { place: self.start..self.end, value: self.value }),
            _ => None,
        }
    }
}
