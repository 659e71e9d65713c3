//! Words in a style, and their lines.

use agentline_core::terminal_text::width;

/// The style of a piece of text. Styles combine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Style {
    pub(super) bold: bool,
    pub(super) italic: bool,
    pub(super) struck: bool,
    pub(super) code: bool,
    pub(super) dim: bool,
}

impl Style {
    /// Returns the text with the codes that select the style on a terminal.
    pub(super) fn paint(self, text: &str, is_coloured: bool) -> String {
        let codes =
            [(self.bold, "1"), (self.dim, "2"), (self.italic, "3"), (self.struck, "9"), (self.code, "36")];
        let codes: Vec<&str> = codes.iter().filter(|(is_set, _)| *is_set).map(|(_, code)| *code).collect();
        if !is_coloured || codes.is_empty() || text.is_empty() {
            return text.to_owned();
        }
        format!("\u{1b}[{}m{text}\u{1b}[0m", codes.join(";"))
    }
}

/// A text as words in styles and the ends of its lines.
#[derive(Clone, Debug, Default)]
pub(super) struct Words {
    words: Vec<Word>,
    /// Whether the next character begins a new word.
    is_apart: bool,
}

#[derive(Clone, Debug)]
enum Word {
    /// A word, whose parts may have different styles.
    Styled(Vec<(Style, String)>),
    LineEnd,
}

impl Word {
    fn width(&self) -> usize {
        match self {
            Self::Styled(parts) => parts.iter().map(|(_, text)| width(text)).sum(),
            Self::LineEnd => 0,
        }
    }
}

impl Words {
    /// Appends text, which is split at whitespace.
    pub(super) fn push(&mut self, text: &str, style: Style) {
        for (i, word) in text.split(char::is_whitespace).enumerate() {
            self.is_apart |= i > 0;
            if word.is_empty() {
                continue;
            }
            match self.words.last_mut() {
                Some(Word::Styled(parts)) if !self.is_apart => match parts.last_mut() {
                    Some((last, text)) if *last == style => text.push_str(word),
                    _ => parts.push((style, word.to_owned())),
                },
                _ => self.words.push(Word::Styled(vec![(style, word.to_owned())])),
            }
            self.is_apart = false;
        }
    }

    /// Appends words after a space.
    pub(super) fn append(&mut self, words: &Self) {
        self.words.extend(words.words.iter().cloned());
    }

    /// Ends the line.
    pub(super) fn end_line(&mut self) {
        self.words.push(Word::LineEnd);
        self.is_apart = true;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// Returns the number of columns of the longest line without wrapping.
    pub(super) fn width(&self) -> usize {
        let line =
            |words: &[Word]| words.iter().map(|word| word.width() + 1).sum::<usize>().saturating_sub(1);
        self.words.split(|word| matches!(word, Word::LineEnd)).map(line).max().unwrap_or(0)
    }

    /// Returns the number of columns of the longest word.
    pub(super) fn longest(&self) -> usize {
        self.words.iter().map(Word::width).max().unwrap_or(0)
    }

    /// Returns the text without styles, in one line.
    pub(super) fn text(&self) -> String {
        self.lines(usize::MAX, false).into_iter().map(|line| line.text).collect::<Vec<_>>().join(" ")
    }

    /// Returns the lines, wrapped between words.
    pub(super) fn lines(&self, room: usize, is_coloured: bool) -> Vec<StyledLine> {
        let mut lines = vec![StyledLine::default()];
        for (i, word) in self.words.iter().enumerate() {
            let Word::Styled(parts) = word else {
                // The end of the text is the end of its last line.
                if i + 1 < self.words.len() {
                    lines.push(StyledLine::default());
                }
                continue;
            };
            let length = word.width();
            let last = lines.last().map_or(0, |line| line.width);
            if last > 0 && last + 1 + length > room {
                lines.push(StyledLine::default());
            }
            if let Some(line) = lines.last_mut() {
                if line.width > 0 {
                    line.text.push(' ');
                    line.width += 1;
                }
                parts.iter().for_each(|(style, text)| line.text.push_str(&style.paint(text, is_coloured)));
                line.width += length;
            }
        }
        lines
    }
}

/// A line of a terminal.
#[derive(Clone, Debug, Default)]
pub(super) struct StyledLine {
    /// The text with the codes of its styles.
    pub(super) text: String,
    /// The number of columns.
    pub(super) width: usize,
}
