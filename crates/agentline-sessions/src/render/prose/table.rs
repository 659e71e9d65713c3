//! Lays out a table: with as much space as its cells need, with wrapped cells, or row by row if it is too narrow.

use super::words::{Style, StyledLine, Words};
use pulldown_cmark::Alignment;

/// The number of columns between cells.
const GAP: usize = 3;

/// A table that is read cell by cell.
#[derive(Debug, Default)]
pub(super) struct MarkdownTable {
    pub(super) alignments: Vec<Alignment>,
    pub(super) rows: Vec<Vec<Words>>,
}

impl MarkdownTable {
    /// Returns the lines of the table.
    pub(super) fn lines(&self, room: usize, is_coloured: bool) -> Vec<String> {
        let Some(widths) = self.widths(room) else { return self.listed(room, is_coloured) };
        let dim = Style { dim: true, ..Style::default() };
        let mut lines = Vec::new();
        for (i, row) in self.rows.iter().enumerate() {
            let cells: Vec<Vec<StyledLine>> =
                row.iter().zip(&widths).map(|(cell, width)| cell.lines(*width, is_coloured)).collect();
            for at in 0..cells.iter().map(Vec::len).max().unwrap_or(0) {
                let parts: Vec<String> = widths
                    .iter()
                    .enumerate()
                    .map(|(column, width)| {
                        let line =
                            cells.get(column).and_then(|cell| cell.get(at)).cloned().unwrap_or_default();
                        aligned(&line, *width, self.alignments.get(column).copied())
                    })
                    .collect();
                let line = parts.join(&dim.paint(" │ ", is_coloured));
                lines.push(line.trim_end().to_owned());
            }
            if i == 0 {
                let rules: Vec<String> = widths.iter().map(|width| "─".repeat(*width)).collect();
                lines.push(dim.paint(&rules.join("─┼─"), is_coloured));
            }
        }
        lines
    }

    /// Returns the widths of the columns, or `None` if not even the longest words fit.
    fn widths(&self, room: usize) -> Option<Vec<usize>> {
        let count = self.rows.iter().map(Vec::len).max()?;
        let most = |width: fn(&Words) -> usize| -> Vec<usize> {
            let column =
                |i: usize| self.rows.iter().filter_map(|row| row.get(i)).map(width).max().unwrap_or(0);
            (0..count).map(column).collect()
        };
        let (mut widths, least) = (most(Words::width), most(Words::longest));
        let room = room.checked_sub(GAP * count.saturating_sub(1))?;
        while widths.iter().sum::<usize>() > room {
            let can_shrink = (0..count).filter(|i| widths[*i] > least[*i]);
            let widest = can_shrink.max_by_key(|i| widths[*i])?;
            let excess = widths.iter().sum::<usize>() - room;
            // The widest column shrinks to the next one, so that wide tables need few steps.
            let next =
                (0..count).filter(|i| *i != widest).map(|i| widths[i]).filter(|w| *w < widths[widest]).max();
            let floor = least[widest].max(next.unwrap_or(0));
            let step = widths[widest].saturating_sub(floor).clamp(1, excess);
            widths[widest] -= step;
        }
        Some(widths)
    }

    /// Returns each row as lines of `title: value`.
    fn listed(&self, room: usize, is_coloured: bool) -> Vec<String> {
        let Some((head, rows)) = self.rows.split_first() else { return Vec::new() };
        let mut lines = Vec::new();
        for (i, row) in rows.iter().enumerate() {
            if i > 0 {
                lines.push(String::new());
            }
            for (title, cell) in head.iter().zip(row) {
                let mut words = Words::default();
                words.push(&format!("{}: ", title.text()), Style { bold: true, ..Style::default() });
                words.append(cell);
                lines.extend(words.lines(room, is_coloured).into_iter().map(|line| line.text));
            }
        }
        lines
    }
}

fn aligned(line: &StyledLine, width: usize, alignment: Option<Alignment>) -> String {
    let space = width.saturating_sub(line.width);
    let before = match alignment {
        Some(Alignment::Right) => space,
        Some(Alignment::Center) => space / 2,
        _ => 0,
    };
    format!("{}{}{}", " ".repeat(before), line.text, " ".repeat(space - before))
}
