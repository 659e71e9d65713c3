//! Splits bytes into lines. The lines do not depend on how the bytes are chunked, and no input causes an error.

use std::borrow::Cow;

/// Splits a stream of bytes into lines.
///
/// Handles LF and CRLF, a BOM at the start, a last line without a line ending, and a length limit.
#[derive(Debug)]
pub struct LineSplitter {
    part: Vec<u8>,
    /// The length of the line in `part`, including bytes beyond the limit that are not kept.
    length: u64,
    cap: usize,
    at_start: bool,
}

/// An item emitted by a splitter.
#[derive(Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SplitItem<'a> {
    /// A complete line. Invalid UTF-8 is replaced with U+FFFD.
    Line(Cow<'a, str>),
    /// A line longer than the limit.
    TooLong {
        /// The start of the line.
        text: Cow<'a, str>,
        /// The length of the line in bytes.
        length: u64,
    },
}

/// The number of bytes kept of a line that is too long.
const SAMPLE: usize = 4096;
/// The capacity above which a buffer is released after its line.
const MAX_REUSED_CAPACITY: usize = 1 << 20;

impl LineSplitter {
    /// Creates a splitter that emits lines longer than `cap` bytes as [`SplitItem::TooLong`].
    #[must_use]
    pub fn new(cap: usize) -> Self {
        Self { part: Vec::new(), length: 0, cap, at_start: true }
    }

    /// Processes bytes and emits every line that they complete.
    pub fn push(&mut self, mut bytes: &[u8], mut each: impl FnMut(SplitItem<'_>)) {
        loop {
            // Handle runs of empty lines cheaply.
            while let [b'\n', rest @ ..] = bytes
                && self.length == 0
            {
                self.at_start = false;
                bytes = rest;
                each(SplitItem::Line(Cow::Borrowed("")));
            }
            let Some(end) = memchr::memchr(b'\n', bytes) else { break };
            let (body, rest) = (&bytes[..end], &bytes[end + 1..]);
            bytes = rest;
            if self.length == 0 && body.len() <= self.cap {
                emit_lines(&mut self.at_start, body, body.len() as u64, self.cap, &mut each);
            } else {
                self.keep(body);
                self.give(&mut each);
            }
        }
        self.keep(bytes);
    }

    /// Ends the stream and emits the last line if it has no line ending.
    pub fn finish(&mut self, mut each: impl FnMut(SplitItem<'_>)) {
        if self.length > 0 {
            self.give(&mut each);
        }
    }

    /// Returns how many bytes of an incomplete line have been received.
    #[must_use]
    pub fn partial(&self) -> u64 {
        self.length
    }

    fn keep(&mut self, bytes: &[u8]) {
        self.length += bytes.len() as u64;
        if self.length > self.cap as u64 {
            // The line is only reported, so its start is enough.
            let room = SAMPLE.min(self.cap).saturating_sub(self.part.len());
            self.part.truncate(SAMPLE);
            self.part.shrink_to(SAMPLE);
            self.part.extend_from_slice(&bytes[..bytes.len().min(room)]);
        } else {
            self.part.extend_from_slice(bytes);
        }
    }

    fn give(&mut self, each: &mut impl FnMut(SplitItem<'_>)) {
        let part = std::mem::take(&mut self.part);
        emit_lines(&mut self.at_start, &part, self.length, self.cap, each);
        self.length = 0;
        if part.capacity() <= MAX_REUSED_CAPACITY {
            self.part = part;
            self.part.clear();
        }
    }
}

fn emit_lines(
    at_start: &mut bool,
    bytes: &[u8],
    length: u64,
    cap: usize,
    each: &mut impl FnMut(SplitItem<'_>),
) {
    let bytes =
        if std::mem::take(at_start) { bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes) } else { bytes };
    let too_long = length > cap as u64;
    let bytes =
        if too_long { &bytes[..bytes.len().min(SAMPLE)] } else { bytes.strip_suffix(b"\r").unwrap_or(bytes) };
    // Nearly every line is valid UTF-8, and validating is twice as fast as replacing.
    let text = std::str::from_utf8(bytes).map_or_else(|_| String::from_utf8_lossy(bytes), Cow::Borrowed);
    each(if too_long { SplitItem::TooLong { text, length } } else { SplitItem::Line(text) });
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn split(cap: usize, pieces: &[&[u8]]) -> Vec<String> {
        let mut splitter = LineSplitter::new(cap);
        let mut out = Vec::new();
        let mut take = |piece: SplitItem<'_>| {
            out.push(match piece {
                SplitItem::Line(t) => t.into_owned(),
                SplitItem::TooLong { text, length } => format!("<{length}>{}", crate::sample(&text)),
            })
        };
        for piece in pieces {
            splitter.push(piece, &mut take);
        }
        splitter.finish(&mut take);
        out
    }

    #[test]
    fn line_ends_byte_order_marks_and_invalid_bytes() {
        assert_eq!(split(99, &[b"\xef\xbb\xbfa\r\nb\n\nc"]), ["a", "b", "", "c"]);
        assert_eq!(split(99, &[b"a\xffb\n\0\n"]), ["a\u{fffd}b", "\0"]);
        assert_eq!(split(99, &[b"\xe2\x82", b"\xac\n"]), ["€"]);
        assert_eq!(
            split(99, &[b"a\n\xef\xbb\xbfb\n"]),
            ["a", "\u{feff}b"],
            "only the first line can have a byte order mark"
        );
    }

    #[test]
    fn oversized_line_is_reported_and_reading_continues() {
        assert_eq!(split(3, &[b"abcd\nxy\n"]), ["<4>abc", "xy"]);
        assert_eq!(split(3, &[b"ab", b"cd", b"ef\nxy"]), ["<6>abc", "xy"]);
    }

    #[test]
    fn oversized_line_uses_bounded_memory() {
        let mut splitter = LineSplitter::new(1 << 20);
        for _ in 0..64 {
            splitter.push(&[b'x'; 1 << 20], |_| panic!("no line yet"));
        }
        assert!(splitter.part.capacity() <= 2 * SAMPLE, "{}", splitter.part.capacity());
        let mut seen = 0;
        splitter.push(b"\nnext\n", |piece| {
            seen += 1;
            if seen == 1 {
                assert!(matches!(piece, SplitItem::TooLong { length, .. } if length == 64 << 20));
            } else {
                assert_eq!(piece, SplitItem::Line("next".into()));
            }
        });
        assert_eq!(seen, 2);
    }

    proptest! {
        #[test]
        fn any_split_of_the_bytes_gives_the_same_lines(
            bytes in proptest::collection::vec(prop_oneof![Just(b'\n'), Just(b'\r'), Just(0xef), Just(0xbb), any::<u8>()], 0..300),
            cuts in proptest::collection::vec(0usize..300, 0..8),
            cap in 1usize..40,
        ) {
            let whole = split(cap, &[&bytes]);
            let mut cuts: Vec<usize> = cuts.into_iter().map(|c| c.min(bytes.len())).collect();
            cuts.sort_unstable();
            cuts.push(bytes.len());
            let mut pieces = Vec::new();
            let mut from = 0;
            for cut in cuts {
                pieces.push(&bytes[from..cut]);
                from = cut;
            }
            prop_assert_eq!(&whole, &split(cap, &pieces));
            let single: Vec<&[u8]> = bytes.chunks(1).collect();
            prop_assert_eq!(&whole, &split(cap, &single));
        }
    }
}
