//! Passes over text in which nothing can begin, by the first three bytes of everything that is looked for.
//!
//! Each bit of a mask is a set of beginnings. A place is looked at only if the masks of its three bytes have a bit in common.

use super::{decode::unfold, shapes::SHAPE_PREFIXES};

/// Words are spread over these bits.
const WORDS: u8 = 0b1111;
const SHAPE: u8 = 1 << 4;
/// A byte in percent-encoding.
const PERCENT: u8 = 1 << 5;
/// What follows does not matter.
const ANYTHING: u8 = 1 << 6;
/// The next byte is a line break, which counts for nothing, or begins an escape: the bytes after it are not known.
const UNKNOWN: u8 = 1 << 7;
const UNKNOWN_AFTER: &[u8] = b"\n\r\\%";
const BLOCK: usize = 8;

/// Whether an escape begins here, as far as the text is known.
pub(super) fn is_escape(text: &[u8]) -> bool {
    match text {
        [b'\\', ..] => true,
        [b'%', after @ ..] => may_be_encoded(after),
        _ => false,
    }
}

/// Whether an encoded byte may follow a percent sign, as far as the text is known.
fn may_be_encoded(after: &[u8]) -> bool {
    match after {
        [] | [b'\\', ..] => true,
        [first, rest @ ..] => {
            let goes_on = |byte: &u8| byte.is_ascii_hexdigit() || *byte == b'\\';
            first.is_ascii_hexdigit() && rest.first().is_none_or(goes_on)
        }
    }
}

#[derive(Clone)]
pub(super) struct Prefilter {
    first: [u8; 256],
    second: [u8; 256],
    third: [u8; 256],
}

impl Prefilter {
    /// The words are folded and have at least three bytes.
    pub(super) fn new(words: &[Vec<u8>]) -> Self {
        let mut made = Self { first: [0; 256], second: [ANYTHING; 256], third: [ANYTHING | UNKNOWN; 256] };
        for word in words {
            // Words with the same first byte are often spellings of the same secret.
            let bit = 1 << (word[0] & 3);
            made.add(bit, [unfold(word[0]), unfold(word[1]), unfold(word[2])]);
        }
        for prefix in SHAPE_PREFIXES {
            made.add(SHAPE, [[prefix[0]; 3], [prefix[1]; 3], [prefix[2]; 3]]);
        }
        // Without an escape decoded, the `n` of `\n` would be a letter in front of a key.
        made.first[usize::from(b'\\')] |= ANYTHING;
        if !words.is_empty() {
            made.first[usize::from(b'%')] |= PERCENT;
            for byte in (u8::MIN..=u8::MAX).filter(|byte| may_be_encoded(&[*byte])) {
                made.second[usize::from(byte)] |= PERCENT;
                made.third[usize::from(byte)] |= PERCENT;
            }
            made.first[usize::from(b'%')] |= UNKNOWN;
        }
        for byte in UNKNOWN_AFTER {
            made.second[usize::from(*byte)] |= UNKNOWN;
            made.third[usize::from(*byte)] |= WORDS | SHAPE;
        }
        made
    }

    fn add(&mut self, bit: u8, bytes: [[u8; 3]; 3]) {
        let [first, second, third] = bytes;
        first.iter().for_each(|byte| self.first[usize::from(*byte)] |= bit | UNKNOWN);
        second.iter().for_each(|byte| self.second[usize::from(*byte)] |= bit);
        third.iter().for_each(|byte| self.third[usize::from(*byte)] |= bit);
    }

    /// The first place at or after `from` where something may begin.
    pub(super) fn candidate(&self, text: &[u8], from: usize) -> usize {
        let mut at = from;
        // In a text full of candidates the next one is near.
        while at < text.len().min(from + BLOCK) {
            if self.fits_at(text, at) {
                return at;
            }
            at += 1;
        }
        while let Some(block) = text[at..].first_chunk::<{ BLOCK + 2 }>() {
            let fits = (0..BLOCK).fold(0, |fits, i| fits | self.fits(block[i], block[i + 1], block[i + 2]));
            if fits != 0 {
                break;
            }
            at += BLOCK;
        }
        while at < text.len() && !self.fits_at(text, at) {
            at += 1;
        }
        at
    }

    /// Whether something may begin at this place.
    fn fits_at(&self, text: &[u8], at: usize) -> bool {
        let fits = match &text[at..] {
            [] => 0,
            [first] => self.first[usize::from(*first)],
            [first, second] => self.first[usize::from(*first)] & self.second[usize::from(*second)],
            [first, second, third, ..] => self.fits(*first, *second, *third),
        };
        fits != 0
    }

    /// Whether nothing begins with this byte.
    pub(super) fn is_harmless(&self, byte: u8) -> bool {
        self.first[usize::from(byte)] == 0
    }

    fn fits(&self, first: u8, second: u8, third: u8) -> u8 {
        self.first[usize::from(first)] & self.second[usize::from(second)] & self.third[usize::from(third)]
    }
}
