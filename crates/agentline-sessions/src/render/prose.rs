//! Renders the Markdown of an answer for a terminal, block by block while it arrives.

mod blocks;
mod layout;
mod table;
mod words;

use agentline_core::terminal_text::plain;
use blocks::BlockSplitter;
use layout::Layout;
use std::io::{self, Write};

/// The maximum number of bytes of an incomplete block that a preview renders.
const MAX_PREVIEW: usize = 4 << 10;

/// Writes the Markdown of an answer for a terminal: wrapped between words, in the terminal's colors.
///
/// Pieces of any length are accepted. A block, such as a paragraph or a list, is written when it is complete, and a
/// code block line by line.
///
/// ```
/// use agentline_sessions::render::TerminalMarkdown;
/// let (mut out, mut markdown) = (Vec::new(), TerminalMarkdown::new(20, false));
/// markdown.push(&mut out, "# Plan\n\n1. write the **sieve** and test it")?;
/// assert_eq!(out, b"# Plan\n");
/// markdown.finish(&mut out)?;
/// assert_eq!(String::from_utf8_lossy(&out), "# Plan\n\n1. write the sieve\n   and test it\n");
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct TerminalMarkdown {
    columns: usize,
    is_coloured: bool,
    splitter: BlockSplitter,
    /// Whether a block was written, so that the next one is separated from it.
    has_blocks: bool,
}

/// A piece of Markdown that can be written.
#[derive(Debug, PartialEq, Eq)]
enum Piece {
    /// A complete block.
    Block(String),
    /// The beginning of a code block.
    CodeStart,
    /// A line of a code block.
    CodeLine(String),
}

impl TerminalMarkdown {
    /// Creates a renderer for a terminal with this many columns.
    #[must_use]
    pub fn new(columns: usize, is_coloured: bool) -> Self {
        Self { columns, is_coloured, splitter: BlockSplitter::default(), has_blocks: false }
    }

    /// Writes the blocks that this piece of text completes.
    ///
    /// # Errors
    /// Fails if `out` does.
    pub fn push(&mut self, out: &mut dyn Write, text: &str) -> io::Result<()> {
        self.splitter.push(&plain(text));
        self.write_pieces(out)
    }

    /// Writes the remaining text. The next piece begins a new answer.
    ///
    /// # Errors
    /// Fails if `out` does.
    pub fn finish(&mut self, out: &mut dyn Write) -> io::Result<()> {
        self.splitter.finish();
        self.write_pieces(out)?;
        *self = Self::new(self.columns, self.is_coloured);
        Ok(())
    }

    /// Returns the lines of the block that is not complete yet, at most this many of its last ones.
    #[must_use]
    pub fn preview(&self, most: usize) -> Vec<String> {
        let text = self.splitter.pending();
        let mut from = text.len().saturating_sub(MAX_PREVIEW);
        while !text.is_char_boundary(from) {
            from += 1;
        }
        let mut lines = if text.trim().is_empty() {
            Vec::new()
        } else if self.splitter.is_in_code() {
            vec![self.layout().code_line(&text[from..])]
        } else {
            self.layout().lines(&text[from..])
        };
        lines.drain(..lines.len().saturating_sub(most));
        lines
    }

    fn write_pieces(&mut self, out: &mut dyn Write) -> io::Result<()> {
        while let Some(piece) = self.splitter.next_piece() {
            let lines = match &piece {
                Piece::Block(text) => self.layout().lines(text),
                Piece::CodeLine(line) => vec![self.layout().code_line(line)],
                Piece::CodeStart => Vec::new(),
            };
            let is_code = matches!(piece, Piece::CodeLine(_));
            if !is_code && self.has_blocks && (piece == Piece::CodeStart || !lines.is_empty()) {
                writeln!(out)?;
            }
            self.has_blocks |= piece == Piece::CodeStart || !lines.is_empty();
            lines.iter().try_for_each(|line| writeln!(out, "{line}"))?;
        }
        Ok(())
    }

    fn layout(&self) -> Layout {
        Layout::new(self.columns, self.is_coloured)
    }
}

/// Returns the lines of a complete text.
pub(super) fn lines(text: &str, columns: usize, is_coloured: bool) -> Vec<String> {
    Layout::new(columns, is_coloured).lines(&plain(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rendered(text: &str, columns: usize, is_coloured: bool) -> String {
        let (mut out, mut markdown) = (Vec::new(), TerminalMarkdown::new(columns, is_coloured));
        markdown.push(&mut out, text).unwrap();
        markdown.finish(&mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    const ANSWER: &str = "# Title\nFirst **bold** and `code with spaces` that is\nlong enough to wrap.\n\n\
        - one\n- two words and more\n  - nested item\n\n1. a\n\n   b\n2. [x] two\n\n- [x] done\n- [ ] open\n\n\
        ```rust\nfn main() {\n\n}\n```\n> quoted text here\n\n---\n~~old~~ [link](https://e.test) <https://f.test>\n\n\
        | n | name |\n|--:|:-----|\n| 1 | one two |\n| 12 | x |\n";

    #[test]
    fn markdown_is_wrapped_at_words() {
        assert_eq!(
            rendered(ANSWER, 24, false),
            "# Title\n\nFirst bold and `code\nwith spaces` that is\nlong enough to wrap.\n\n\
             • one\n• two words and more\n  • nested item\n\n1. a\n\n   b\n\n2. ☑ two\n\n☑ done\n☐ open\n\n\
             \u{20}\u{20}fn main() {\n\n  }\n\n│ quoted text here\n\n────────────────────────\n\n\
             ~~old~~ link\n(https://e.test)\nhttps://f.test\n\n\
             \u{20}n │ name\n───┼────────\n 1 │ one two\n12 │ x\n"
        );
    }

    #[test]
    fn colors_replace_the_markup() {
        assert_eq!(
            rendered("## T\n**a *b*** `c` ~~d~~\n```\nx\n```", 40, true),
            "\u{1b}[1mT\u{1b}[0m\n\n\u{1b}[1ma\u{1b}[0m \u{1b}[1;3mb\u{1b}[0m \u{1b}[36mc\u{1b}[0m \u{1b}[9md\u{1b}[0m\n\n\
             \u{20}\u{20}\u{1b}[36mx\u{1b}[0m\n"
        );
    }

    #[test]
    fn result_does_not_depend_on_the_pieces() {
        let whole = rendered(ANSWER, 24, true);
        for size in [1, 2, 3, 7, 20] {
            let (mut out, mut markdown) = (Vec::new(), TerminalMarkdown::new(24, true));
            for piece in ANSWER.as_bytes().chunks(size) {
                markdown.push(&mut out, std::str::from_utf8(piece).unwrap()).unwrap();
            }
            markdown.finish(&mut out).unwrap();
            assert_eq!(String::from_utf8(out).unwrap(), whole, "pieces of {size} bytes");
        }
    }

    #[test]
    fn blocks_are_written_when_they_are_complete() {
        let (mut out, mut markdown) = (Vec::new(), TerminalMarkdown::new(40, false));
        let mut push = |text: &str| {
            markdown.push(&mut out, text).unwrap();
            (String::from_utf8(std::mem::take(&mut out)).unwrap(), markdown.preview(2))
        };
        assert_eq!(push("one\ntwo\nthr"), (String::new(), vec!["two".into(), "thr".into()]));
        assert_eq!(push("ee\n\n- a\n"), ("one\ntwo\nthree\n".into(), vec!["• a".into()]));
        assert_eq!(push("\n  b\n\n```sh\nls\ncd"), ("\n• a\n\n  b\n\n  ls\n".into(), vec!["  cd".into()]));
        assert_eq!(push("\n```\n"), ("  cd\n".into(), Vec::new()));
    }

    #[test]
    fn wide_table_is_wrapped_in_cells_or_listed_by_row() {
        let table = "|name|what it does|\n|-|-|\n|sieve|finds all primes below n|\n|x|y|\n";
        assert_eq!(
            rendered(table, 24, false),
            "name  │ what it does\n──────┼─────────────────\nsieve │ finds all primes\n      │ below n\nx     │ y\n"
        );
        assert_eq!(
            rendered(table, 9, false),
            "name:\nsieve\nwhat it\ndoes:\nfinds all\nprimes\nbelow n\n\nname: x\nwhat it\ndoes: y\n"
        );
    }

    #[test]
    fn nothing_is_lost_and_control_characters_are_removed() {
        let text = "[a]: <b> 'c'\n\n<div>\nhtml\n</div>\n\nb\u{1b}[2J\u{202e} <i>c</i> &amp; 2 * 3\n\n    indented\n\n*";
        let shown = rendered(text, 80, false);
        for part in ["[a]: <b> 'c'", "<div>", "html", "b[2J <i>c</i> & 2 * 3", "  indented", "*"] {
            assert!(shown.contains(part), "{part}: {shown}");
        }
        assert!(!shown.contains('\u{1b}') && !shown.contains('\u{202e}'));
    }

    #[test]
    fn adversarial_markdown_is_rendered_quickly() {
        for part in
            ["*", "`", "[", "**a ", "- ", "> ", "|-", "~~~\n", "- a\n", "|a|b|\n|-|-|\n", "1. ", "\n\n a"]
        {
            let text = part.repeat(10_000 / part.len());
            let started_at = std::time::Instant::now();
            let (mut out, mut markdown) = (Vec::new(), TerminalMarkdown::new(80, true));
            for piece in text.as_bytes().chunks(50) {
                markdown.push(&mut out, std::str::from_utf8(piece).unwrap()).unwrap();
                let _ = markdown.preview(5);
            }
            markdown.finish(&mut out).unwrap();
            // Generous, for a loaded machine: time that grows with the square of the length would take minutes.
            assert!(started_at.elapsed().as_secs() < 60, "{part}");
        }
    }
}
