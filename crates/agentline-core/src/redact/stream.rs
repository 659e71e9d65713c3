//! Redacts a stream of text.
//!
//! A piece is held back while it ends with a significant part of a secret. Shorter parts are shown
//! immediately, because nearly every text ends with a letter that some secret starts with.
//!
//! Pieces keep their boundaries, so that replaying a tape, which contains no secrets, gives the same events.

use super::{Patterns, Scanner, whole_characters};
use crate::secret::{MARK, SHORTEST_SECRET, SIGNIFICANT_LENGTH};
use std::{collections::VecDeque, fmt};

/// The maximum size of held text. Beyond it, an incomplete secret is hidden as on an interruption.
const MAX_BUFFERED: usize = 64 << 10;

/// Redacts one stream of text that arrives in pieces.
#[derive(Clone, Default)]
pub(crate) struct StreamRedactor {
    /// The patterns that the scanner uses.
    patterns: Option<Patterns>,
    scanner: Scanner,
    buffer: String,
    /// The position of the held text in the stream.
    base: usize,
    /// The end of each held piece.
    ends: VecDeque<usize>,
    /// Keys that were found by their format and arrived in several pieces.
    learned: Vec<String>,
}

impl fmt::Debug for StreamRedactor {
    /// Hides the held text.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamRedactor").field("buffer", &self.buffer.len()).finish_non_exhaustive()
    }
}

impl StreamRedactor {
    /// Adds a piece and returns the pieces that can be shown.
    pub(crate) fn push(&mut self, patterns: &Patterns, piece: String) -> Vec<String> {
        self.adopt(patterns);
        let at = self.base + self.buffer.len();
        self.ends.push_back(at + piece.len());
        if self.buffer.is_empty() {
            self.buffer = piece;
        } else {
            self.buffer.push_str(&piece);
        }
        self.scanner.scan(patterns, &self.buffer.as_bytes()[at - self.base..], at);
        self.collect_keys(at);
        if self.buffer.len() > MAX_BUFFERED {
            return self.interrupt(patterns);
        }
        let open = self.scanner.start_of_partial_secret(patterns, SIGNIFICANT_LENGTH).unwrap_or(usize::MAX);
        self.give(open)
    }

    /// Returns the text before a possible secret, after a pause in the stream, and the index of the held piece that was
    /// split.
    pub(crate) fn divide(&mut self, patterns: &Patterns) -> Option<(usize, Vec<String>)> {
        self.adopt(patterns);
        let open = self.scanner.start_of_partial_secret(patterns, SIGNIFICANT_LENGTH)?;
        let open = self.scanner.found_across(open).map_or(open, |start| start.min(open)).max(self.base);
        let open = self.base + whole_characters(&self.buffer, open - self.base..self.buffer.len()).start;
        let at = self.ends.partition_point(|end| *end <= open);
        if open == self.base || at == self.ends.len() {
            return None;
        }
        self.ends.insert(at, open);
        Some((at, self.give(open)))
    }

    /// Shows the held text before an interruption, except for the start of a secret, which may continue afterwards.
    pub(crate) fn interrupt(&mut self, patterns: &Patterns) -> Vec<String> {
        self.adopt(patterns);
        let end = self.base + self.buffer.len();
        self.scanner.interrupt(end);
        self.collect_keys(end);
        let significant_bytes =
            self.scanner.start_of_partial_secret(patterns, SIGNIFICANT_LENGTH).filter(|from| *from < end);
        self.hide_from(significant_bytes)
    }

    /// Shows the held text at the end of the answer, except for a large part of a secret.
    ///
    /// Any text that follows still counts as the same text.
    pub(crate) fn finish(&mut self, patterns: &Patterns) -> Vec<String> {
        self.adopt(patterns);
        let end = self.base + self.buffer.len();
        let significant_bytes =
            self.scanner.start_of_partial_secret(patterns, SHORTEST_SECRET).filter(|from| *from < end);
        self.scanner.finish(patterns);
        self.collect_keys(end);
        self.hide_from(significant_bytes)
    }

    /// Returns the keys that were found by their format in several pieces since the last call.
    pub(crate) fn take_learned(&mut self) -> Vec<String> {
        std::mem::take(&mut self.learned)
    }

    /// Scans the held text again if the patterns have changed.
    fn adopt(&mut self, patterns: &Patterns) {
        if !self.patterns.as_ref().is_some_and(|own| own.is(patterns)) {
            self.patterns = Some(patterns.clone());
            self.scanner = Scanner::default();
            self.scanner.scan(patterns, self.buffer.as_bytes(), self.base);
        }
    }

    fn collect_keys(&mut self, piece_began: usize) {
        let split = self
            .scanner
            .keys
            .iter()
            .filter(|key| key.range.start < piece_began || key.range.len() < key.value.len());
        self.learned.extend(split.map(|key| String::from_utf8_lossy(&key.value).into_owned()));
    }

    /// Shows all held text, replacing everything from this position with a mark.
    fn hide_from(&mut self, from: Option<usize>) -> Vec<String> {
        let end = self.base + self.buffer.len();
        if let Some(from) = from {
            self.scanner.found.push(from.max(self.base)..end);
        }
        self.give(end)
    }

    /// Shows the pieces that end before this position, redacted, with one text for each piece.
    fn give(&mut self, open: usize) -> Vec<String> {
        let end = self.end_of_pieces(open);
        if end == self.base {
            return Vec::new();
        }
        let ranges = self.scanner.take_found(end);
        if ranges.is_empty() && self.ends.len() == 1 && end == self.base + self.buffer.len() {
            self.ends.clear();
            self.base = end;
            return vec![std::mem::take(&mut self.buffer)];
        }
        let mut shown = Vec::new();
        let mut from = self.base;
        let mut ranges = ranges.into_iter().peekable();
        while let Some(piece_end) = self.ends.front().copied().filter(|piece_end| *piece_end <= end) {
            self.ends.pop_front();
            let mut text = String::new();
            while let Some(range) = ranges.next_if(|range| range.start < piece_end && range.end <= piece_end)
            {
                let (start, secret_end) = (range.start.max(from), range.end);
                if secret_end > from {
                    let range = whole_characters(&self.buffer, start - self.base..secret_end - self.base);
                    let range = self.base + range.start..self.base + range.end;
                    text.push_str(self.raw(from, range.start));
                    text.push_str(MARK);
                    from = range.end;
                }
            }
            // A secret that ends in a later piece is shown there.
            let goes_on = ranges.peek().filter(|range| range.start < piece_end);
            let plain_end = goes_on.map_or(piece_end, |range| {
                let start = range.start.max(self.base) - self.base;
                self.base + whole_characters(&self.buffer, start..start).start
            });
            text.push_str(self.raw(from, plain_end));
            from = from.max(piece_end);
            shown.push(text);
        }
        self.buffer.drain(..end - self.base);
        self.base = end;
        shown
    }

    /// Returns the end of the last piece before this position that no secret crosses.
    ///
    /// At the end of the text, nothing is held back.
    fn end_of_pieces(&self, open: usize) -> usize {
        let limit = self.base + self.buffer.len();
        if open >= limit {
            return limit;
        }
        let mut end = open.max(self.base);
        loop {
            let pieces = self.ends.partition_point(|piece_end| *piece_end <= end);
            let whole = pieces.checked_sub(1).map_or(self.base, |last| self.ends[last]);
            match self.scanner.found_across(whole).filter(|start| *start < whole && whole > self.base) {
                Some(start) => end = start.max(self.base),
                None => return whole,
            }
        }
    }

    /// Returns the held text between two positions of the stream.
    fn raw(&self, from: usize, to: usize) -> &str {
        if from < to { &self.buffer[from - self.base..to - self.base] } else { "" }
    }
}
