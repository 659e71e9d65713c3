//! Redacts a stream of text: its end is held back while it may be the beginning of a secret.

use super::{Patterns, Scanner, whole_characters};
use crate::veil::{MARK, SHORTEST_SECRET, TELLING_PART};
use std::fmt;

/// Redacts one stream of text that comes in pieces.
#[derive(Clone, Default)]
pub(crate) struct StreamRedactor {
    /// The patterns that the scanner has begun with.
    patterns: Option<Patterns>,
    scanner: Scanner,
    held: String,
    /// Where the held text begins in the stream.
    base: usize,
    /// Keys that were known by their shape and came in several pieces.
    learned: Vec<String>,
}

impl fmt::Debug for StreamRedactor {
    /// Does not show what is held back.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamRedactor").field("held", &self.held.len()).finish_non_exhaustive()
    }
}

impl StreamRedactor {
    /// Takes a piece and returns what can be shown.
    pub(crate) fn push(&mut self, patterns: &Patterns, piece: String) -> Option<String> {
        self.adopt(patterns);
        let at = self.base + self.held.len();
        if self.held.is_empty() {
            self.held = piece;
        } else {
            self.held.push_str(&piece);
        }
        self.scanner.scan(patterns, &self.held.as_bytes()[at - self.base..], at);
        self.learn(at);
        let open = self.scanner.open_from(patterns).unwrap_or(usize::MAX);
        self.give(open)
    }

    /// Something else comes in between: shows what was held, but not the beginning of a secret, which may go on afterwards.
    pub(crate) fn interrupt(&mut self, patterns: &Patterns) -> Option<String> {
        self.adopt(patterns);
        let end = self.base + self.held.len();
        self.scanner.interrupt(end);
        self.learn(end);
        let telling = self.scanner.telling_from(patterns, TELLING_PART).filter(|from| *from < end);
        self.hide_from(telling)
    }

    /// The answer is over: shows what was held, but not most of a secret. Should more come, it still counts as one text.
    pub(crate) fn finish(&mut self, patterns: &Patterns) -> Option<String> {
        self.adopt(patterns);
        let end = self.base + self.held.len();
        let telling = self.scanner.telling_from(patterns, SHORTEST_SECRET).filter(|from| *from < end);
        self.scanner.finish(patterns);
        self.learn(end);
        self.hide_from(telling)
    }

    /// Keys that were found by their shape in several pieces since the last call.
    pub(crate) fn take_learned(&mut self) -> Vec<String> {
        std::mem::take(&mut self.learned)
    }

    /// Reads what is held again if there are other secrets now.
    fn adopt(&mut self, patterns: &Patterns) {
        if !self.patterns.as_ref().is_some_and(|own| own.is(patterns)) {
            self.patterns = Some(patterns.clone());
            self.scanner = Scanner::default();
            self.scanner.scan(patterns, self.held.as_bytes(), self.base);
        }
    }

    fn learn(&mut self, piece_began: usize) {
        let split = self
            .scanner
            .keys
            .iter()
            .filter(|key| key.place.start < piece_began || key.place.len() < key.value.len());
        self.learned.extend(split.map(|key| String::from_utf8_lossy(&key.value).into_owned()));
    }

    /// Shows everything that is held, from this place on as a mark.
    fn hide_from(&mut self, from: Option<usize>) -> Option<String> {
        let end = self.base + self.held.len();
        if let Some(from) = from {
            self.scanner.found.push(from.max(self.base)..end);
        }
        self.give(end)
    }

    /// Shows the held text up to this place, redacted.
    fn give(&mut self, open: usize) -> Option<String> {
        let end = (self.base + self.held.len()).min(open.max(self.base));
        let end = self.scanner.found_across(end).map_or(end, |start| {
            // A secret that overlaps with another one that has begun waits for it; the end of the text waits for nothing.
            if open >= self.base + self.held.len() { end } else { end.min(start.max(self.base)) }
        });
        let end = whole_characters(&self.held, end - self.base..self.held.len()).start;
        let (mut shown, mut from) = (String::new(), 0);
        for place in self.scanner.take_found(self.base + end) {
            if place.end <= self.base + from {
                continue;
            }
            let start = place.start.max(self.base + from) - self.base;
            let place = whole_characters(&self.held, start..place.end - self.base);
            shown.push_str(&self.held[from..place.start]);
            shown.push_str(MARK);
            from = place.end;
        }
        let end = end.max(from);
        self.base += end;
        if from == 0 && end == self.held.len() {
            shown = std::mem::take(&mut self.held);
        } else {
            shown.push_str(&self.held[from..end]);
            self.held.drain(..end);
        }
        (!shown.is_empty()).then_some(shown)
    }
}
