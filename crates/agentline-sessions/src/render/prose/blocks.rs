//! Splits Markdown that arrives in pieces into complete blocks.

use super::Piece;
use std::{collections::VecDeque, mem};

/// Splits text into blocks, and code blocks into lines.
#[derive(Debug, Default)]
pub(super) struct BlockSplitter {
    /// The text of the incomplete block.
    pending: String,
    /// The start of the first line of `pending` that was not examined.
    scanned: usize,
    /// The end of the last blank line of `pending`: the block ends there if no indented line follows.
    blank_end: usize,
    /// The open fence in `pending`, inside a list or quote.
    inner_fence: Option<Fence>,
    /// The fence of the code block whose lines are written one by one.
    code: Option<Fence>,
    pieces: VecDeque<Piece>,
}

/// A line of backticks or tildes that begins a code block.
#[derive(Clone, Copy, Debug)]
struct Fence {
    mark: char,
    length: usize,
    indent: usize,
}

impl Fence {
    /// Returns the fence that a line opens.
    fn opened_by(line: &str) -> Option<Self> {
        let start = line.trim_start();
        let mark = start.chars().next().filter(|c| matches!(c, '`' | '~'))?;
        let rest = start.trim_start_matches(mark);
        let length = start.len() - rest.len();
        let is_fence = length >= 3 && !(mark == '`' && rest.contains('`'));
        is_fence.then_some(Self { mark, length, indent: line.len() - start.len() })
    }

    fn is_closed_by(self, line: &str) -> bool {
        let line = line.trim();
        line.len() >= self.length && line.chars().all(|c| c == self.mark)
    }
}

impl BlockSplitter {
    /// Adds a piece of text.
    pub(super) fn push(&mut self, text: &str) {
        self.pending.push_str(text);
        while let Some(length) = self.pending[self.scanned..].find('\n') {
            let line = self.pending[self.scanned..self.scanned + length].to_owned();
            self.line(&line, self.scanned + length + 1);
        }
    }

    /// Ends the last block.
    pub(super) fn finish(&mut self) {
        if self.code.is_some() {
            let line = mem::take(&mut self.pending);
            let is_close = self.code.is_some_and(|fence| fence.is_closed_by(&line));
            if !line.is_empty() && !is_close {
                self.pieces.push_back(Piece::CodeLine(line));
            }
        } else {
            self.cut(self.pending.len());
        }
        self.scanned = 0;
        self.code = None;
    }

    pub(super) fn next_piece(&mut self) -> Option<Piece> {
        self.pieces.pop_front()
    }

    /// Returns the text of the incomplete block, or the incomplete line of a code block.
    pub(super) fn pending(&self) -> &str {
        &self.pending
    }

    /// Returns whether the pending text is a line of a code block.
    pub(super) fn is_in_code(&self) -> bool {
        self.code.is_some()
    }

    /// Examines a line that ends before `end`.
    fn line(&mut self, line: &str, end: usize) {
        if let Some(fence) = self.code {
            self.pending.drain(..end);
            if fence.is_closed_by(line) {
                self.code = None;
            } else {
                let indent = line.len() - line.trim_start_matches(' ').len();
                self.pieces.push_back(Piece::CodeLine(line[indent.min(fence.indent)..].to_owned()));
            }
            return;
        }
        if let Some(fence) = self.inner_fence {
            if fence.is_closed_by(line.trim_start_matches(['>', ' '])) {
                self.inner_fence = None;
            }
            self.scanned = end;
            return;
        }
        if line.trim().is_empty() {
            self.scanned = end;
            self.blank_end = end;
            return;
        }
        let is_indented = line.starts_with([' ', '\t']);
        if self.blank_end > 0 && self.blank_end == self.scanned && !is_indented {
            let start = self.blank_end;
            self.cut(start);
            return self.line(line, end - start);
        }
        if let Some(fence) = Fence::opened_by(line) {
            // An indented fence may belong to a list item.
            if fence.indent == 0 || (fence.indent <= 3 && !is_item(self.pending.trim_start())) {
                self.cut(self.scanned);
                self.pending.drain(..=line.len());
                self.pieces.push_back(Piece::CodeStart);
                self.code = Some(fence);
                return;
            }
            self.inner_fence = Some(fence);
        } else if let Some(fence) = Fence::opened_by(line.trim_start_matches(['>', ' '])) {
            self.inner_fence = Some(fence);
        } else if is_heading(line) {
            let length = line.len() + 1;
            self.cut(self.scanned);
            self.cut(length);
            return;
        }
        self.scanned = end;
    }

    /// Completes the block that ends here.
    fn cut(&mut self, end: usize) {
        let rest = self.pending.split_off(end);
        let block = mem::replace(&mut self.pending, rest);
        if !block.trim().is_empty() {
            self.pieces.push_back(Piece::Block(block));
        }
        (self.scanned, self.blank_end, self.inner_fence) = (0, 0, None);
    }
}

/// Returns whether a line begins a list item.
fn is_item(line: &str) -> bool {
    let digits = line.bytes().take_while(u8::is_ascii_digit).count();
    let rest = &line[digits..];
    let marks: &[char] = if digits > 0 { &['.', ')'] } else { &['-', '+', '*'] };
    rest.starts_with(marks) && rest[1..].starts_with([' ', '\t', '\n'])
}

fn is_heading(line: &str) -> bool {
    let rest = line.trim_start_matches('#');
    (1..=6).contains(&(line.len() - rest.len())) && rest.starts_with(' ')
}
