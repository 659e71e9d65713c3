//! A table that fits a terminal: columns are as wide as their content, and some shrink. If they still do not fit, the
//! table is continued below. No word is broken by the end of a line.

use crate::ui::{Paint, Ui};
use agentline_core::terminal_text::{fit, fit_end, plain, width, wrap};
use std::{
    io::{self, Write},
    ops::Range,
};

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
    /// The number of columns that name a row. They are repeated if the table is continued below.
    keys: usize,
}

impl Table {
    pub(crate) fn new(columns: Vec<Column>) -> Self {
        Self { columns, rows: Vec::new(), keys: 1 }
    }

    /// Sets how many columns name a row.
    pub(crate) fn keys(self, keys: usize) -> Self {
        Self { keys, ..self }
    }

    /// Adds a row with as many cells as there are columns.
    pub(crate) fn row(&mut self, cells: Vec<String>) {
        let clean = |cell: String| plain(&cell.replace(['\n', '\t'], " ")).into_owned();
        self.rows.push(cells.into_iter().map(clean).collect());
    }

    /// Writes the table within the width of a terminal. Without a terminal, nothing is shortened.
    pub(crate) fn write(&self, ui: &mut Ui, terminal: Option<usize>) -> io::Result<()> {
        for (i, part) in self.parts(terminal).iter().enumerate() {
            if i > 0 {
                writeln!(ui.out())?;
            }
            for title in &part.titles {
                let title = ui.paint_out(Paint::Bold, title);
                writeln!(ui.out(), "{title}")?;
            }
            part.rows.iter().try_for_each(|row| writeln!(ui.out(), "{row}"))?;
        }
        Ok(())
    }

    /// Returns the lines of the table, in as many parts as needed.
    fn parts(&self, terminal: Option<usize>) -> Vec<TablePart> {
        let room = terminal.unwrap_or(usize::MAX);
        let mut widths = self.widths(terminal, width);
        if total(&widths, 0..widths.len()) > room {
            let longest_word = |title: &str| title.split(' ').map(width).max().unwrap_or(0);
            widths = self.widths(terminal, longest_word);
        }
        let all = self.columns.len();
        let keys = 0..self.keys.min(all);
        let mut parts = Vec::new();
        let mut from = keys.end;
        loop {
            let fits = |to: &usize| {
                let (key, part) = (total(&widths, keys.clone()), total(&widths, from..*to));
                key + GAP + part <= room
            };
            // A part has at least one column, even if it is too wide.
            let to = (from + 1..=all).take_while(fits).last().unwrap_or((from + 1).min(all));
            let shown: Vec<usize> = keys.clone().chain(from..to).collect();
            parts.push(self.part(&shown, &widths));
            from = to;
            if from >= all {
                return parts;
            }
        }
    }

    fn part(&self, shown: &[usize], widths: &[usize]) -> TablePart {
        let titles: Vec<Vec<String>> =
            self.columns.iter().zip(widths).map(|(column, width)| wrap(column.title, *width)).collect();
        let height = shown.iter().map(|i| titles[*i].len()).max().unwrap_or(1);
        // A row that is empty in a later part, such as that of the total without a bar, is only in the first one.
        let values: Vec<usize> = shown.iter().copied().filter(|i| *i >= self.keys).collect();
        let is_first = values.first().is_none_or(|first| *first == self.keys);
        let is_shown = |row: &&Vec<String>| is_first || values.iter().any(|i| !row[*i].is_empty());
        let title = |line: usize| {
            // The last lines of the titles are next to each other.
            let word =
                |title: &Vec<String>| (line + title.len()).checked_sub(height).map(|at| title[at].clone());
            titles.iter().map(|title| word(title).unwrap_or_default()).collect::<Vec<String>>()
        };
        TablePart {
            titles: (0..height).map(|line| self.line(&title(line), shown, widths)).collect(),
            rows: self.rows.iter().filter(is_shown).map(|row| self.line(row, shown, widths)).collect(),
        }
    }

    fn widths(&self, terminal: Option<usize>, title_width: impl Fn(&str) -> usize) -> Vec<usize> {
        let widest = |i: usize| self.rows.iter().map(|row| width(&row[i])).max().unwrap_or(0);
        let columns = self.columns.iter().enumerate();
        let mut widths: Vec<usize> =
            columns.map(|(i, column)| widest(i).max(title_width(column.title))).collect();
        let Some(room) = terminal else { return widths };
        for (width, column) in widths.iter_mut().zip(&self.columns) {
            *width = column.most.map_or(*width, |most| most.min(*width));
        }
        for (gives, narrowest) in SHRINK_ORDER {
            let too_much = total(&widths, 0..widths.len()).saturating_sub(room);
            if let Some(i) = self.columns.iter().position(gives) {
                widths[i] = widths[i].saturating_sub(too_much).max(narrowest.min(widths[i]));
            }
        }
        widths
    }

    fn line(&self, row: &[String], shown: &[usize], widths: &[usize]) -> String {
        let mut line = String::new();
        for (i, at) in shown.iter().enumerate() {
            let (column, room) = (&self.columns[*at], widths[*at]);
            if i > 0 {
                line.push_str(&" ".repeat(GAP));
            }
            let cell = if column.most.is_some() { fit_end(&row[*at], room) } else { fit(&row[*at], room) };
            let space = " ".repeat(room.saturating_sub(width(&cell)));
            let parts = if column.is_right { [space.as_str(), &cell] } else { [&cell, space.as_str()] };
            line.push_str(&parts.concat());
        }
        line.truncate(line.trim_end().len());
        line
    }
}

/// The lines of a part of a table.
struct TablePart {
    titles: Vec<String>,
    rows: Vec<String>,
}

/// Returns the width of adjacent columns.
fn total(widths: &[usize], columns: Range<usize>) -> usize {
    let gaps = GAP * columns.len().saturating_sub(1);
    widths[columns].iter().sum::<usize>() + gaps
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

    fn lines(table: &Table, terminal: Option<usize>) -> Vec<String> {
        let parts = table.parts(terminal).into_iter();
        parts.map(|part| [part.titles, part.rows].concat()).collect::<Vec<_>>().join(&String::new())
    }

    #[test]
    fn table_fits_the_terminal_and_is_complete_on_a_pipe() {
        assert_eq!(
            lines(&table(), Some(32)),
            [
                "project   title                n",
                "…/primes  Write a sieve…       1",
                "x         日本語           1,234"
            ]
        );
        assert!(lines(&table(), Some(32)).iter().all(|line| width(line) <= 32));
        assert_eq!(
            lines(&table(), None)[1],
            "/home/ada/primes  Write a sieve now, please, and test it      1"
        );
    }

    #[test]
    fn table_that_is_too_wide_is_continued_below_without_breaking_words() {
        let titles = ["agent", "live text", "stop reason", "resume"];
        let mut table = Table::new(titles.map(Column::left).to_vec());
        table.row(["gemini", "yes", "-", "?"].map(String::from).to_vec());
        assert_eq!(lines(&table, Some(38)).len(), 2, "one line of titles");
        assert_eq!(
            lines(&table, Some(28)),
            ["        live  stop", "agent   text  reason  resume", "gemini  yes   -       ?"]
        );
        assert_eq!(
            lines(&table, Some(14)),
            [
                "        live",
                "agent   text",
                "gemini  yes",
                "",
                "        stop",
                "agent   reason",
                "gemini  -",
                "",
                "agent   resume",
                "gemini  ?"
            ]
        );
    }

    #[test]
    fn later_part_of_a_table_omits_empty_rows() {
        let mut table = Table::new(["day", "tokens", ""].map(Column::left).to_vec());
        table.row(["monday", "1,234,567", "████"].map(String::from).to_vec());
        table.row(["none", "", ""].map(String::from).to_vec());
        table.row(["total", "1,234,567", ""].map(String::from).to_vec());
        assert_eq!(
            lines(&table, Some(18)),
            ["day     tokens", "monday  1,234,567", "none", "total   1,234,567", "", "day", "monday  ████"]
        );
    }

    #[test]
    fn bars_are_accurate_to_an_eighth() {
        assert_eq!(bar(10.0, 10.0, 4), "████");
        assert_eq!(bar(5.0, 10.0, 3), "█▌");
        assert_eq!(bar(0.0001, 10.0, 3), "▏");
        assert_eq!([bar(0.0, 10.0, 3), bar(1.0, 0.0, 3), bar(f64::NAN, 1.0, 3)], ["", "", ""]);
    }
}
