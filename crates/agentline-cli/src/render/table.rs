//! A table that fits a terminal: columns are as wide as their content, and some shrink.

use crate::ui::{Paint, Ui};
use agentline_core::terminal_text::plain;
use std::io::{self, Write};

/// Selects a column that shrinks.
type Gives = fn(&Column) -> bool;

/// The columns that shrink, in this order, and their minimum widths.
const SHRINK_ORDER: [(Gives, usize); 3] =
    [(|column| column.is_elastic, 24), (|column| column.most.is_some(), 8), (|column| column.is_elastic, 4)];
/// The number of spaces between columns.
const GAP: usize = 2;

/// A column.
#[derive(Clone, Debug)]
pub(crate) struct Column {
    title: &'static str,
    is_right: bool,
    is_elastic: bool,
    /// The maximum width on a terminal. Cells that are too long are truncated at the start.
    most: Option<usize>,
}

impl Column {
    /// Creates a left-aligned column, for text.
    pub(crate) fn left(title: &'static str) -> Self {
        Self { title, is_right: false, is_elastic: false, most: None }
    }

    /// Creates a right-aligned column, for numbers.
    pub(crate) fn right(title: &'static str) -> Self {
        Self { is_right: true, ..Self::left(title) }
    }

    /// Allows the column to shrink if there is too little space.
    pub(crate) fn shrinkable(self) -> Self {
        Self { is_elastic: true, ..self }
    }

    /// Sets the maximum width on a terminal. Cells that are too long are truncated at the start.
    pub(crate) fn keep_end(self, most: usize) -> Self {
        Self { most: Some(most), ..self }
    }
}

/// A table that is written when all rows are added.
#[derive(Debug)]
pub(crate) struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new(columns: Vec<Column>) -> Self {
        Self { columns, rows: Vec::new() }
    }

    /// Adds a row with as many cells as there are columns.
    pub(crate) fn row(&mut self, cells: Vec<String>) {
        let clean = |cell: String| plain(&cell.replace(['\n', '\t'], " ")).into_owned();
        self.rows.push(cells.into_iter().map(clean).collect());
    }

    /// Writes the table within the width of a terminal. Without a terminal, nothing is shortened.
    pub(crate) fn write(&self, ui: &mut Ui, terminal: Option<usize>) -> io::Result<()> {
        let lines = self.lines(terminal);
        for (i, line) in lines.iter().enumerate() {
            let line = if i == 0 { ui.paint_out(Paint::Bold, line) } else { line.clone() };
            writeln!(ui.out(), "{line}")?;
        }
        Ok(())
    }

    /// Returns the titles and rows as lines.
    fn lines(&self, terminal: Option<usize>) -> Vec<String> {
        let widths = self.widths(terminal);
        let titles: Vec<String> = self.columns.iter().map(|column| column.title.to_owned()).collect();
        std::iter::once(&titles).chain(&self.rows).map(|row| self.line(row, &widths)).collect()
    }

    fn widths(&self, terminal: Option<usize>) -> Vec<usize> {
        let widest = |i: usize| self.rows.iter().map(|row| width(&row[i])).max().unwrap_or(0);
        let mut widths: Vec<usize> =
            self.columns.iter().enumerate().map(|(i, column)| widest(i).max(column.title.len())).collect();
        let Some(room) = terminal else { return widths };
        for (width, column) in widths.iter_mut().zip(&self.columns) {
            *width = column.most.map_or(*width, |most| most.min(*width));
        }
        for (gives, narrowest) in SHRINK_ORDER {
            let all = widths.iter().sum::<usize>() + GAP * (widths.len() - 1);
            let too_much = all.saturating_sub(room);
            if let Some(i) = self.columns.iter().position(gives) {
                widths[i] = widths[i].saturating_sub(too_much).max(narrowest.min(widths[i]));
            }
        }
        widths
    }

    fn line(&self, row: &[String], widths: &[usize]) -> String {
        let mut line = String::new();
        for ((cell, column), room) in row.iter().zip(&self.columns).zip(widths) {
            if !line.is_empty() {
                line.push_str(&" ".repeat(GAP));
            }
            let cell = fit(cell, *room, column.most.is_some());
            let space = " ".repeat(room.saturating_sub(width(&cell)));
            let parts = if column.is_right { [space.as_str(), &cell] } else { [&cell, space.as_str()] };
            line.push_str(&parts.concat());
        }
        line.truncate(line.trim_end().len());
        line
    }
}

/// Shortens a text to a width, with `…` for the missing part.
pub(crate) fn fit(text: &str, room: usize, keep_end: bool) -> String {
    if width(text) <= room {
        return text.to_owned();
    }
    let mut left = room.saturating_sub(1);
    let mut take = |c: &char| {
        let fits = columns(*c) <= left;
        left = left.saturating_sub(columns(*c));
        fits
    };
    if keep_end {
        let end: Vec<char> = text.chars().rev().take_while(&mut take).collect();
        return std::iter::once('…').chain(end.into_iter().rev()).collect();
    }
    text.chars().take_while(take).chain(['…']).collect()
}

/// Returns the width of a text on a terminal.
pub(crate) fn width(text: &str) -> usize {
    text.chars().map(columns).sum()
}

/// Returns the width of a character: two for East Asian characters and emoji, zero for combining marks, else one.
fn columns(c: char) -> usize {
    match u32::from(c) {
        0x300..=0x36f | 0x200b..=0x200f | 0x202a..=0x202e | 0x2060..=0x2069 | 0xfe00..=0xfe0f => 0,
        0x1100..=0x115f
        | 0x2e80..=0xa4cf
        | 0xac00..=0xd7a3
        | 0xf900..=0xfaff
        | 0xfe30..=0xfe6f
        | 0xff00..=0xff60
        | 0xffe0..=0xffe6
        | 0x1f300..=0x1faff
        | 0x20000..=0x3fffd => 2,
        _ => 1,
    }
}

/// Returns a bar of at most `room` columns, in steps of an eighth.
pub(crate) fn bar(value: f64, most: f64, room: usize) -> String {
    const EIGHTHS: [char; 8] = [' ', '▏', '▎', '▍', '▌', '▋', '▊', '▉'];
    if most <= 0.0 || value <= 0.0 || !value.is_finite() {
        return String::new();
    }
    // A positive value is always visible.
    let eighths = ((value / most * room as f64 * 8.0).round() as usize).clamp(1, room * 8);
    let mut bar = "█".repeat(eighths / 8);
    if !eighths.is_multiple_of(8) {
        bar.push(EIGHTHS[eighths % 8]);
    }
    bar
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let mut table = Table::new(vec![
            Column::left("project").keep_end(8),
            Column::left("title").shrinkable(),
            Column::right("n"),
        ]);
        table.row(vec![
            "/home/ada/primes".into(),
            "Write a sieve\nnow, please, and test it".into(),
            "1".into(),
        ]);
        table.row(vec!["x".into(), "日本語".into(), "1,234".into()]);
        table
    }

    #[test]
    fn table_fits_the_terminal_and_is_complete_on_a_pipe() {
        assert_eq!(
            table().lines(Some(32)),
            [
                "project   title                n",
                "…/primes  Write a sieve …      1",
                "x         日本語           1,234"
            ]
        );
        assert!(table().lines(Some(32)).iter().all(|line| width(line) <= 32));
        assert_eq!(table().lines(None)[1], "/home/ada/primes  Write a sieve now, please, and test it      1");
    }

    #[test]
    fn bars_are_accurate_to_an_eighth() {
        assert_eq!(bar(10.0, 10.0, 4), "████");
        assert_eq!(bar(5.0, 10.0, 3), "█▌");
        assert_eq!(bar(0.0001, 10.0, 3), "▏");
        assert_eq!([bar(0.0, 10.0, 3), bar(1.0, 0.0, 3), bar(f64::NAN, 1.0, 3)], ["", "", ""]);
    }
}
