//! Writes the change to a file as HTML, with differing words marked and syntax highlighting.

use super::escape;
use crate::render::diff::{DiffLine, DiffSign, ShownChange};
use crate::render::page::highlight::{Language, Token, tokens};
use std::io::{self, Write};

/// Writes a change as HTML.
pub(super) fn change(out: &mut dyn Write, change: &ShownChange) -> io::Result<()> {
    let language = Language::of(&change.path);
    write!(out, "<div class=diff tabindex=0 role=region aria-label=\"Change to ")?;
    escape::attribute(out, &change.path)?;
    writeln!(out, "\"><table{}>", if change.numbered { "" } else { " class=plain" })?;
    for (i, hunk) in change.hunks.iter().enumerate() {
        if i > 0 {
            writeln!(out, "<tr class=gap><td><td><td>⋯</tr>")?;
        }
        hunk.iter().try_for_each(|line| row(out, line, change.numbered, language))?;
    }
    writeln!(out, "</table></div>")
}

fn row(out: &mut dyn Write, line: &DiffLine, numbered: bool, language: Option<Language>) -> io::Result<()> {
    let class = match line.sign {
        DiffSign::Same => "same",
        DiffSign::Added => "add",
        DiffSign::Removed => "del",
    };
    let number = |n: Option<usize>| n.filter(|_| numbered).map(|n| n.to_string()).unwrap_or_default();
    let (old, new) = (number(line.numbers.0), number(line.numbers.1));
    write!(out, "<tr class={class}><td data-n=\"{old}\"><td data-n=\"{new}\"><td>")?;
    let pieces = language.map(|language| tokens(&line.text, language)).unwrap_or_default();
    text(out, line, &pieces)?;
    writeln!(out, "</tr>")
}

/// Writes a line in pieces, each with one color and either marked or not.
fn text(out: &mut dyn Write, line: &DiffLine, tokens: &[Token]) -> io::Result<()> {
    let mut edges: Vec<usize> = vec![0, line.text.len()];
    edges.extend(tokens.iter().flat_map(|(range, _)| [range.start, range.end]));
    edges.extend(line.marks.iter().flat_map(|range| [range.start, range.end]));
    edges.sort_unstable();
    edges.dedup();
    let (mut tokens, mut marks) = (tokens.iter().peekable(), line.marks.iter().peekable());
    for piece in edges.windows(2) {
        let (from, to) = (piece[0], piece[1]);
        while tokens.next_if(|(range, _)| range.end <= from).is_some() {}
        while marks.next_if(|range| range.end <= from).is_some() {}
        let colour = tokens.peek().filter(|(range, _)| range.start <= from).map(|(_, class)| *class);
        let is_marked = marks.peek().is_some_and(|range| range.start <= from);
        match (is_marked, colour) {
            (true, class) => write!(out, "<mark class=\"{}\">", class.unwrap_or_default())?,
            (false, Some(class)) => write!(out, "<span class={class}>")?,
            (false, None) => {}
        }
        escape::text(out, &line.text[from..to])?;
        out.write_all(match (is_marked, colour) {
            (true, _) => b"</mark>",
            (false, Some(_)) => b"</span>",
            (false, None) => b"",
        })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn change_marks_and_highlighting_share_a_line() {
        let mut shown = ShownChange::between("let a = \"<\";\n", "let b = \"<\";\n");
        shown.path = "x.rs".into();
        let mut out = Vec::new();
        change(&mut out, &shown).unwrap();
        let text = String::from_utf8(out).unwrap();
        let row = "<tr class=add><td data-n=\"\"><td data-n=\"1\"><td><span class=k>let</span> <mark class=\"\">b</mark> = \
                   <span class=s>&quot;&lt;&quot;</span>;</tr>";
        assert!(text.contains(row), "{text}");
    }
}
