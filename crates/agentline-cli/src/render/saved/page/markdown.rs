//! Renders the Markdown of an answer as HTML: paragraphs, headings, lists, quotes, tables, code, bold and italic.
//! Everything else is text. A link is shown as its text and its address and cannot be clicked.

use crate::render::saved::page::{
    escape,
    highlight::{Language, code},
};
use std::io::{self, Write};

/// The maximum number of backticks that open inline code.
const MOST_TICKS: usize = 8;

/// Writes Markdown as HTML.
pub(super) fn prose(out: &mut dyn Write, text: &str) -> io::Result<()> {
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let start = line.trim_start();
        if start.is_empty() {
            continue;
        }
        if let Some((fence, name)) = opening(start) {
            let indent = line.len() - start.len();
            let body = std::iter::from_fn(|| lines.next_if(|line| !closes(line, fence)));
            let body: Vec<&str> = body.map(|line| unindented(line, indent)).collect();
            lines.next();
            fenced(out, name, &body.join("\n"))?;
        } else if let Some((level, title)) = heading(start) {
            write!(out, "<h{level}>")?;
            inline(out, title)?;
            writeln!(out, "</h{level}>")?;
        } else if is_rule(start) {
            writeln!(out, "<hr>")?;
        } else if let Some(quoted) = start.strip_prefix('>') {
            let mut quote = vec![quoted];
            quote.extend(std::iter::from_fn(|| {
                lines.next_if(|line| line.trim_start().starts_with('>')).map(|line| &line.trim_start()[1..])
            }));
            let quote: Vec<&str> =
                quote.into_iter().map(|line| line.strip_prefix(' ').unwrap_or(line)).collect();
            writeln!(out, "<blockquote>")?;
            paragraph(out, &quote)?;
            writeln!(out, "</blockquote>")?;
        } else if item(line).is_some() {
            let rows = std::iter::once(line).chain(std::iter::from_fn(|| {
                lines.next_if(|line| {
                    item(line).is_some() || (line.starts_with("  ") && opening(line.trim_start()).is_none())
                })
            }));
            let rows: Vec<&str> = rows.collect();
            list(out, &rows)?;
        } else if line.contains('|') && lines.peek().is_some_and(|next| is_table_rule(next)) {
            lines.next();
            let rows: Vec<&str> = std::iter::from_fn(|| lines.next_if(|line| line.contains('|'))).collect();
            table(out, line, &rows)?;
        } else {
            let mut body = vec![line];
            body.extend(std::iter::from_fn(|| lines.next_if(|line| goes_on(line))));
            paragraph(out, &body)?;
        }
    }
    Ok(())
}

/// Writes a code block.
pub(super) fn fenced(out: &mut dyn Write, name: &str, body: &str) -> io::Result<()> {
    write!(out, "<pre class=code tabindex=0")?;
    if !name.is_empty() {
        write!(out, " data-lang=\"")?;
        escape::attribute(out, name)?;
        write!(out, "\"")?;
    }
    write!(out, "><code>")?;
    code(out, body, Language::of(name))?;
    writeln!(out, "</code></pre>")
}

/// Returns the fence that a line opens and the name after it.
fn opening(line: &str) -> Option<(&str, &str)> {
    let mark = line.chars().next().filter(|c| matches!(c, '`' | '~'))?;
    let rest = line.trim_start_matches(mark);
    let length = line.len() - rest.len();
    (length >= 3 && !rest.contains('`'))
        .then(|| (&line[..length], rest.split_whitespace().next().unwrap_or("")))
}

fn closes(line: &str, fence: &str) -> bool {
    let line = line.trim();
    line.starts_with(fence) && line.chars().all(|c| fence.starts_with(c))
}

fn unindented(line: &str, indent: usize) -> &str {
    let spaces = line.len() - line.trim_start_matches(' ').len();
    &line[indent.min(spaces)..]
}

/// Returns the level of a heading, below the levels of the page, and its text.
fn heading(line: &str) -> Option<(usize, &str)> {
    let rest = line.trim_start_matches('#');
    let level = line.len() - rest.len();
    ((1..=6).contains(&level) && rest.starts_with(' ')).then(|| ((level + 3).min(6), rest.trim()))
}

fn is_rule(line: &str) -> bool {
    let line = line.trim_end();
    line.len() >= 3 && ["-", "*", "_"].iter().any(|mark| line.replace(mark, "").trim().is_empty())
}

fn is_table_rule(line: &str) -> bool {
    let line = line.trim();
    line.contains('-') && line.contains('|') && line.chars().all(|c| matches!(c, '-' | '|' | ':' | ' '))
}

/// Parses a list item: its indentation, marker and text.
fn item(line: &str) -> Option<(usize, &str, &str)> {
    let start = line.trim_start();
    let indent = line.len() - start.len();
    let (mark, rest) = start.split_once(' ')?;
    let numbered = mark
        .strip_suffix(['.', ')'])
        .is_some_and(|n| !n.is_empty() && n.len() <= 4 && n.bytes().all(|b| b.is_ascii_digit()));
    (matches!(mark, "-" | "*" | "+") || numbered).then_some((indent, mark, rest))
}

/// Returns whether a line continues the previous paragraph.
fn goes_on(line: &str) -> bool {
    let start = line.trim_start();
    !start.is_empty()
        && opening(start).is_none()
        && heading(start).is_none()
        && item(line).is_none()
        && !start.starts_with(['>', '|'])
        && !is_rule(start)
}

fn paragraph(out: &mut dyn Write, lines: &[&str]) -> io::Result<()> {
    write!(out, "<p dir=auto>")?;
    inline(out, &lines.join("\n"))?;
    writeln!(out, "</p>")
}

/// Writes a list. Nesting is shown by a CSS class only.
fn list(out: &mut dyn Write, rows: &[&str]) -> io::Result<()> {
    write!(out, "<ul>")?;
    let mut is_open = false;
    for row in rows {
        match item(row) {
            Some((indent, mark, words)) => {
                if is_open {
                    writeln!(out, "</li>")?;
                }
                is_open = true;
                let depth = (indent / 2).min(4);
                let numbered = mark.ends_with(['.', ')']);
                write!(out, "<li class=\"d{depth}{}\" dir=auto>", if numbered { " num" } else { "" })?;
                if numbered {
                    write!(out, "<b>")?;
                    escape::text(out, mark)?;
                    write!(out, "</b> ")?;
                }
                inline(out, words)?;
            }
            None => {
                writeln!(out)?;
                inline(out, row.trim())?;
            }
        }
    }
    writeln!(out, "</li></ul>")
}

fn table(out: &mut dyn Write, head: &str, rows: &[&str]) -> io::Result<()> {
    write!(out, "<div class=table tabindex=0><table>")?;
    row(out, head, "th")?;
    rows.iter().try_for_each(|line| row(out, line, "td"))?;
    writeln!(out, "</table></div>")
}

fn row(out: &mut dyn Write, line: &str, tag: &str) -> io::Result<()> {
    write!(out, "<tr>")?;
    let line = line.trim();
    let line = line.strip_prefix('|').unwrap_or(line);
    let line = line.strip_suffix('|').unwrap_or(line);
    for cell in line.split('|') {
        write!(out, "<{tag} dir=auto>")?;
        inline(out, cell.trim())?;
        write!(out, "</{tag}>")?;
    }
    writeln!(out, "</tr>")
}

/// Writes a line with inline code, bold, italic and links.
fn inline(out: &mut dyn Write, text: &str) -> io::Result<()> {
    let mut rest = text;
    // A delimiter that was not found is not searched for again, so that the time stays linear.
    let mut missing = Vec::new();
    while let Some(at) = rest.find(['`', '*', '[']) {
        let (before, from) = rest.split_at(at);
        escape::text(out, before)?;
        rest = match span(from, &mut missing) {
            Some((Span::Code(inner), after)) => {
                write!(out, "<code>")?;
                escape::text(out, inner)?;
                write!(out, "</code>")?;
                after
            }
            Some((Span::Strong(inner), after)) => {
                write!(out, "<strong>")?;
                inline(out, inner)?;
                write!(out, "</strong>")?;
                after
            }
            Some((Span::Emphasis(inner), after)) => {
                write!(out, "<em>")?;
                inline(out, inner)?;
                write!(out, "</em>")?;
                after
            }
            Some((Span::Link(words, address), after)) => {
                write!(out, "<span class=link>")?;
                escape::text(out, words)?;
                write!(out, "</span> <span class=url>")?;
                escape::text(out, address)?;
                write!(out, "</span>")?;
                after
            }
            None => {
                // A run of the same character that opens nothing is written as it is.
                let run = from.len() - from.trim_start_matches(&from[..1]).len();
                escape::text(out, &from[..run])?;
                &from[run..]
            }
        };
    }
    escape::text(out, rest)
}

enum Span<'a> {
    Code(&'a str),
    Strong(&'a str),
    Emphasis(&'a str),
    Link(&'a str, &'a str),
}

/// Returns the span at the beginning of a text, and the rest. Bold cannot contain bold, nor italic italic, so spans
/// nest at most three levels deep.
fn span<'a>(from: &'a str, missing: &mut Vec<&'a str>) -> Option<(Span<'a>, &'a str)> {
    let mut find = |inner: &str, end: &'a str| {
        let found = (!missing.contains(&end)).then(|| inner.find(end))?;
        if found.is_none() {
            missing.push(end);
        }
        found
    };
    match from.as_bytes()[0] {
        b'`' => {
            let ticks = &from[..from.len() - from.trim_start_matches('`').len()];
            let inner = &from[ticks.len()..];
            // Each number of backticks is searched for once, so the number is limited.
            let end = (ticks.len() <= MOST_TICKS).then(|| find(inner, ticks))??;
            Some((Span::Code(inner[..end].trim()), inner[end..].trim_start_matches('`')))
        }
        b'*' if from.starts_with("**") => {
            let inner = &from[2..];
            let end = find(inner, "**").filter(|end| *end > 0)?;
            (!inner.starts_with(' ')).then(|| (Span::Strong(&inner[..end]), &inner[end + 2..]))
        }
        b'*' => {
            let inner = &from[1..];
            let end = find(inner, "*").filter(|end| *end > 0 && !inner[..*end].ends_with(' '))?;
            let is_word = !inner.starts_with(' ') && !inner[..end].contains('\n');
            is_word.then(|| (Span::Emphasis(&inner[..end]), &inner[end + 1..]))
        }
        _ => {
            let inner = &from[1..];
            let end = inner.find(['[', ']', '\n'])?;
            let address = inner[end..].strip_prefix("](")?;
            let close = address.find(|c: char| matches!(c, ')' | '(') || c.is_whitespace())?;
            let after = address[close..].strip_prefix(')')?;
            Some((Span::Link(&inner[..end], &address[..close]), after))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> String {
        let mut out = Vec::new();
        prose(&mut out, text).unwrap();
        String::from_utf8(out).unwrap().replace(" dir=auto", "").replace('\n', "")
    }

    #[test]
    fn markdown_is_rendered_as_html() {
        assert_eq!(
            shown("# A\nb **c** *d* `<e>`\n\n- x\n  - y\n1. z\n\n```rs\nlet\n```\n> q"),
            "<h4>A</h4><p>b <strong>c</strong> <em>d</em> <code>&lt;e&gt;</code></p>\
             <ul><li class=\"d0\">x</li><li class=\"d1\">y</li><li class=\"d0 num\"><b>1.</b> z</li></ul>\
             <pre class=code tabindex=0 data-lang=\"rs\"><code><span class=k>let</span></code></pre>\
             <blockquote><p>q</p></blockquote>"
        );
        assert_eq!(
            shown("|a|b|\n|-|-|\n|1|2|"),
            "<div class=table tabindex=0><table><tr><th>a</th><th>b</th></tr><tr><td>1</td><td>2</td></tr></table></div>"
        );
    }

    #[test]
    fn links_are_not_clickable() {
        assert_eq!(
            shown("[x](javascript:x) [y](javascript:alert(1))"),
            "<p><span class=link>x</span> <span class=url>javascript:x</span> [y](javascript:alert(1))</p>"
        );
    }

    #[test]
    fn unclosed_markup_is_plain_text() {
        for text in
            ["`", "**", "*", "[", "[a](", "```", "~~~x\n", "- ", "#", "|", ">", "***a", "[a](b c)", "\\"]
        {
            assert!(!shown(text).contains("<a"), "{text}");
        }
        assert_eq!(shown("2 * 3 * 4"), "<p>2 * 3 * 4</p>");
    }

    #[test]
    fn adversarial_markdown_is_rendered_quickly() {
        for part in [
            "*", "`", "[", "**a ", "[](", "[a", "` `` ", "*a **b ", "- ", "> ", "|-", "#", "~~~\n", "[x](y",
            "* ",
        ] {
            let text = part.repeat(400_000 / part.len());
            let begun = std::time::Instant::now();
            assert!(!shown(&text).is_empty());
            assert!(begun.elapsed().as_secs() < 10, "{part}");
        }
    }
}
