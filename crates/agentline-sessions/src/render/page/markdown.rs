//! Renders the Markdown of an answer as HTML: paragraphs, headings, lists, tasks, quotes, tables, code, bold, italic and
//! strikethrough.
//! Everything else, including HTML, is shown as text. A link is shown as its text and its address and is not
//! clickable.

use crate::render::{
    commonmark::{self, DEEPEST},
    page::{
        escape,
        highlight::{Language, code},
    },
};
use pulldown_cmark::{Alignment, CodeBlockKind, CowStr, Event, Tag};
use std::io::{self, Write};

/// Writes Markdown as HTML.
pub(super) fn prose(out: &mut dyn Write, text: &str) -> io::Result<()> {
    let Some(events) = commonmark::events(text) else { return paragraph(out, text) };
    let mut prose = Prose { out, open: Vec::new(), is_head: false, alignments: Vec::new(), column: 0 };
    let mut shown = 0;
    for (event, range) in events {
        if prose.open.is_empty() {
            // Link definitions belong to no block. They are shown too, so that no text is hidden.
            paragraph(prose.out, &text[shown..range.start])?;
            shown = range.end;
        }
        prose.event(event)?;
    }
    paragraph(out, &text[shown..])
}

fn paragraph(out: &mut dyn Write, text: &str) -> io::Result<()> {
    if text.trim().is_empty() {
        return Ok(());
    }
    write!(out, "<p dir=auto>")?;
    escape::text(out, text.trim())?;
    writeln!(out, "</p>")
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
    write!(out, "</code></pre>")
}

/// The HTML of an answer.
struct Prose<'a> {
    out: &'a mut dyn Write,
    /// The open elements, outermost first.
    open: Vec<Open<'a>>,
    /// Whether the row of a table is its head.
    is_head: bool,
    /// The alignments of the columns of a table.
    alignments: Vec<Alignment>,
    /// The column of the next cell.
    column: usize,
}

/// An open element and the data needed to close it.
enum Open<'a> {
    Element(&'static str),
    Link {
        address: CowStr<'a>,
        title: CowStr<'a>,
    },
    Code {
        language: String,
        body: String,
    },
    /// An element that is nested too deeply and not written.
    Nothing,
}

impl<'a> Prose<'a> {
    fn event(&mut self, event: Event<'a>) -> io::Result<()> {
        match event {
            Event::Start(tag) => self.start(tag),
            Event::End(_) => self.end(),
            Event::Code(text) => {
                write!(self.out, "<code>")?;
                escape::text(self.out, &text)?;
                write!(self.out, "</code>")
            }
            Event::SoftBreak | Event::HardBreak => writeln!(self.out),
            Event::Rule => write!(self.out, "<hr>"),
            Event::TaskListMarker(is_done) => {
                let checked = if is_done { " checked" } else { "" };
                write!(self.out, "<input type=checkbox disabled{checked}> ")
            }
            Event::Text(text) | Event::Html(text) | Event::InlineHtml(text) => match self.open.last_mut() {
                Some(Open::Code { body, .. }) => {
                    body.push_str(&text);
                    Ok(())
                }
                _ => escape::text(self.out, &text),
            },
            // The extensions with other events are not enabled.
            _ => Ok(()),
        }
    }

    fn start(&mut self, tag: Tag<'a>) -> io::Result<()> {
        match tag {
            Tag::CodeBlock(kind) => {
                let language = match &kind {
                    CodeBlockKind::Fenced(name) => name.split_whitespace().next().unwrap_or_default(),
                    CodeBlockKind::Indented => "",
                };
                self.open.push(Open::Code { language: language.to_owned(), body: String::new() });
                Ok(())
            }
            _ if self.open.len() >= DEEPEST => {
                self.open.push(Open::Nothing);
                Ok(())
            }
            Tag::Link { dest_url: address, title, .. } | Tag::Image { dest_url: address, title, .. } => {
                self.open.push(Open::Link { address, title });
                write!(self.out, "<span class=link>")
            }
            // The page itself uses the higher heading levels.
            Tag::Heading { level, .. } => self.element(["h4", "h5", "h6"][(level as usize - 1).min(2)], ""),
            Tag::BlockQuote(_) => self.element("blockquote", ""),
            Tag::List(None) => self.element("ul", ""),
            Tag::List(Some(first)) => self.element("ol", &format!(" start={first}")),
            Tag::Item => self.element("li", " dir=auto"),
            Tag::Table(alignments) => {
                self.alignments = alignments;
                write!(self.out, "<div class=table tabindex=0><table>")?;
                self.open.push(Open::Element("table></div"));
                Ok(())
            }
            Tag::TableHead | Tag::TableRow => {
                self.is_head = tag == Tag::TableHead;
                self.column = 0;
                self.element("tr", "")
            }
            Tag::TableCell => {
                // The content security policy blocks inline styles.
                let attributes = match self.alignments.get(self.column) {
                    Some(Alignment::Left) => " dir=auto class=left",
                    Some(Alignment::Center) => " dir=auto class=center",
                    Some(Alignment::Right) => " dir=auto class=right",
                    _ => " dir=auto",
                };
                self.column += 1;
                self.element(if self.is_head { "th" } else { "td" }, attributes)
            }
            Tag::Strikethrough => self.element("del", ""),
            Tag::Emphasis => self.element("em", ""),
            Tag::Strong => self.element("strong", ""),
            _ => self.element("p", " dir=auto"),
        }
    }

    fn element(&mut self, name: &'static str, attributes: &str) -> io::Result<()> {
        self.open.push(Open::Element(name));
        write!(self.out, "<{name}{attributes}>")
    }

    fn end(&mut self) -> io::Result<()> {
        match self.open.pop() {
            Some(Open::Element(name)) => write!(self.out, "</{name}>")?,
            Some(Open::Link { address, title }) => {
                write!(self.out, "</span> <span class=url>")?;
                escape::text(self.out, &address)?;
                if !title.is_empty() {
                    escape::text(self.out, &format!(" \"{title}\""))?;
                }
                write!(self.out, "</span>")?;
            }
            Some(Open::Code { language, body }) => {
                fenced(self.out, &language, body.strip_suffix('\n').unwrap_or(&body))?;
            }
            Some(Open::Nothing) | None => {}
        }
        // Inside a list item, the end of a line would be shown.
        if self.open.is_empty() { writeln!(self.out) } else { Ok(()) }
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
             <ul><li>x<ul><li>y</li></ul></li></ul><ol start=1><li>z</li></ol>\
             <pre class=code tabindex=0 data-lang=\"rs\"><code><span class=k>let</span></code></pre>\
             <blockquote><p>q</p></blockquote>"
        );
        assert_eq!(
            shown("|a|b|\n|-|-|\n|1|2|"),
            "<div class=table tabindex=0><table><tr><th>a</th><th>b</th></tr><tr><td>1</td><td>2</td></tr></table></div>"
        );
    }

    #[test]
    fn tasks_strikethrough_and_alignment_are_shown() {
        assert_eq!(
            shown("- [x] a\n- [ ] ~~b~~"),
            "<ul><li><input type=checkbox disabled checked> a</li>\
             <li><input type=checkbox disabled> <del>b</del></li></ul>"
        );
        assert_eq!(
            shown("|a|b|c|\n|:-|:-:|-:|\n|1|2|3|"),
            "<div class=table tabindex=0><table><tr><th class=left>a</th><th class=center>b</th><th class=right>c</th></tr>\
             <tr><td class=left>1</td><td class=center>2</td><td class=right>3</td></tr></table></div>"
        );
    }

    #[test]
    fn list_items_may_contain_blocks() {
        assert_eq!(
            shown("1. a\n\n   ```sh\n   x\n   ```\n2. b\n   - c"),
            "<ol start=1><li><p>a</p><pre class=code tabindex=0 data-lang=\"sh\"><code>x</code></pre></li>\
             <li><p>b</p><ul><li>c</li></ul></li></ol>"
        );
    }

    #[test]
    fn links_are_not_clickable() {
        assert_eq!(
            shown("[x](javascript:x) [y](javascript:alert(1))"),
            "<p><span class=link>x</span> <span class=url>javascript:x</span> \
             <span class=link>y</span> <span class=url>javascript:alert(1)</span></p>"
        );
        assert_eq!(
            shown("![x](https://e.test/i.png \"t\") <https://e.test>"),
            "<p><span class=link>x</span> <span class=url>https://e.test/i.png &quot;t&quot;</span> \
             <span class=link>https://e.test</span> <span class=url>https://e.test</span></p>"
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
    fn no_text_is_hidden() {
        assert_eq!(
            shown("[a]: <b> 'c'\n[a]: d\n\ne\n\n[f]: g"),
            "<p>[a]: &lt;b&gt; &#39;c&#39;[a]: d</p><p>e</p><p>[f]: g</p>"
        );
        assert_eq!(shown("<!-- a -->\n\nb <i>c</i>"), "<p>&lt;!-- a --&gt;</p><p>b &lt;i&gt;c&lt;/i&gt;</p>");
    }

    #[test]
    fn elements_do_not_nest_deeply() {
        let depth = |text: &str| shown(text).split("<blockquote>").count() - 1;
        assert_eq!(depth(&format!("{}a", "> ".repeat(20))), 20);
        assert_eq!(depth(&format!("{}a", ">".repeat(DEEPEST + 1))), 0);
        let text = format!("{}x{}", "*a **b ".repeat(500), "** *".repeat(500));
        assert!(shown(&text).split("</").count() <= 2 * DEEPEST, "{}", shown(&text));
    }

    #[test]
    fn adversarial_markdown_is_rendered_quickly() {
        for part in [
            "*", "`", "[", "**a ", "[](", "[a", "` `` ", "*a **b ", "- ", "> ", "|-", "#", "~~~\n", "[x](y",
            "* ", "[a]", "<", "<a ", "![", "1. ", "[a]: b\n",
        ] {
            let text = part.repeat(100_000 / part.len());
            let started_at = std::time::Instant::now();
            assert!(!shown(&text).is_empty());
            assert!(started_at.elapsed().as_secs() < 10, "{part}");
        }
        for markers in ["- ".repeat(32), "> ".repeat(32), ">".repeat(DEEPEST), "- ".repeat(30_000)] {
            let text = markers + "a" + &"\na".repeat(30_000);
            let started_at = std::time::Instant::now();
            assert!(!shown(&text).is_empty());
            assert!(started_at.elapsed().as_secs() < 10, "{}", &text[..8]);
        }
    }
}
