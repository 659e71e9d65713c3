//! Lays out one block of Markdown as lines.

use super::{
    table::MarkdownTable,
    words::{Style, Words},
};
use crate::render::commonmark;
use agentline_core::terminal_text::{width, wrap};
use pulldown_cmark::{Event, Tag, TagEnd};
use std::mem;

/// The minimum number of columns of a text, however deep it is nested.
const MIN_COLUMNS: usize = 8;

/// Lays out Markdown.
#[derive(Debug)]
pub(super) struct Layout {
    columns: usize,
    is_coloured: bool,
    lines: Vec<String>,
    /// The quotes and list items around the current block, outermost first.
    containers: Vec<Container>,
    lists: Vec<List>,
    words: Words,
    style: Style,
    /// The styles around the current one, outermost first.
    outer_styles: Vec<Style>,
    /// The text of the open code block.
    code: Option<String>,
    table: Option<MarkdownTable>,
    /// The address and the text of each open link.
    links: Vec<(String, String)>,
    /// Whether an empty line separates the next line from the last one.
    is_apart: bool,
}

#[derive(Debug)]
struct Container {
    /// The beginning of its first line, until that is written.
    marker: Option<String>,
    /// The beginning of its other lines.
    indent: String,
}

#[derive(Debug)]
struct List {
    /// The number of the next item.
    number: Option<u64>,
    /// Whether its items are paragraphs.
    is_loose: bool,
}

impl Layout {
    pub(super) fn new(columns: usize, is_coloured: bool) -> Self {
        Self {
            columns,
            is_coloured,
            lines: Vec::new(),
            containers: Vec::new(),
            lists: Vec::new(),
            words: Words::default(),
            style: Style::default(),
            outer_styles: Vec::new(),
            code: None,
            table: None,
            links: Vec::new(),
            is_apart: false,
        }
    }

    /// Returns the lines of a text.
    pub(super) fn lines(mut self, text: &str) -> Vec<String> {
        let Some(events) = commonmark::events(text) else {
            return text.lines().flat_map(|line| wrap(line, self.columns)).collect();
        };
        let (mut shown, mut depth) = (0, 0_usize);
        for (event, range) in events {
            if depth == 0 {
                // Link definitions belong to no block. They are shown too, so that no text is hidden.
                self.definitions(&text[shown.min(range.start)..range.start]);
                shown = range.end;
            }
            match event {
                Event::Start(_) => depth += 1,
                Event::End(_) => depth = depth.saturating_sub(1),
                _ => {}
            }
            self.event(event);
        }
        self.end_text();
        self.definitions(&text[shown.min(text.len())..]);
        self.lines
    }

    /// Returns a line of a code block.
    pub(super) fn code_line(&self, line: &str) -> String {
        let line = Style { code: true, ..Style::default() }.paint(line.trim_end(), self.is_coloured);
        if line.is_empty() { line } else { format!("  {line}") }
    }

    fn definitions(&mut self, text: &str) {
        for line in text.trim().lines() {
            self.put(line.to_owned());
        }
        self.is_apart |= !text.trim().is_empty();
    }

    fn event(&mut self, event: Event<'_>) {
        match event {
            Event::Start(tag) => self.start(tag),
            Event::End(tag) => self.end(tag),
            Event::Text(text) | Event::Html(text) | Event::InlineHtml(text) => self.text(&text),
            Event::Code(text) => {
                let style = Style { code: true, ..self.style };
                let text = if self.is_coloured { text.into_string() } else { format!("`{text}`") };
                self.push(&text, style);
            }
            Event::SoftBreak | Event::HardBreak => self.words.end_line(),
            Event::Rule => {
                self.end_text();
                let rule =
                    Style { dim: true, ..Style::default() }.paint(&"─".repeat(self.room()), self.is_coloured);
                self.put(rule);
                self.is_apart = true;
            }
            Event::TaskListMarker(is_done) => {
                let mark = if is_done { "☑ " } else { "☐ " };
                let is_numbered = self.lists.last().is_some_and(|list| list.number.is_some());
                if let Some(marker) = self.containers.last_mut().and_then(|item| item.marker.as_mut()) {
                    *marker = if is_numbered { format!("{marker}{mark}") } else { mark.to_owned() };
                }
            }
            // The extensions with other events are not enabled.
            _ => {}
        }
    }

    fn start(&mut self, tag: Tag<'_>) {
        match tag {
            Tag::Paragraph => {
                self.end_text();
                if let Some(list) = self.lists.last_mut().filter(|_| !self.containers.is_empty()) {
                    list.is_loose = true;
                }
            }
            Tag::Heading { level, .. } => {
                self.end_text();
                self.begin_style(Style { bold: true, ..self.style });
                if !self.is_coloured {
                    self.push(&format!("{} ", "#".repeat(level as usize)), Style::default());
                }
            }
            Tag::BlockQuote(_) => {
                self.end_text();
                let bar = Style { dim: true, ..Style::default() }.paint("│", self.is_coloured);
                self.contain(None, format!("{bar} "));
            }
            Tag::CodeBlock(_) => {
                self.end_text();
                self.code = Some(String::new());
            }
            Tag::List(number) => {
                self.end_text();
                self.separate();
                self.lists.push(List { number, is_loose: false });
            }
            Tag::Item => self.item(),
            Tag::Table(alignments) => {
                self.end_text();
                self.table = Some(MarkdownTable { alignments, rows: Vec::new() });
            }
            Tag::TableHead => {
                self.begin_style(Style { bold: true, ..self.style });
                self.row();
            }
            Tag::TableRow => self.row(),
            Tag::Emphasis => self.begin_style(Style { italic: true, ..self.style }),
            Tag::Strong => self.begin_style(Style { bold: true, ..self.style }),
            Tag::Strikethrough => {
                self.begin_style(Style { struck: true, ..self.style });
                self.plain_mark("~~");
            }
            Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. } => {
                self.links.push((dest_url.into_string(), String::new()));
            }
            Tag::HtmlBlock => self.end_text(),
            _ => {}
        }
    }

    fn end(&mut self, tag: TagEnd) {
        match tag {
            TagEnd::Paragraph | TagEnd::HtmlBlock => {
                self.end_text();
                self.is_apart = true;
            }
            TagEnd::Heading(_) => {
                self.end_text();
                self.end_style();
                self.is_apart = true;
            }
            TagEnd::BlockQuote(_) => {
                self.end_text();
                self.containers.pop();
                self.is_apart = true;
            }
            TagEnd::CodeBlock => {
                for line in self.code.take().unwrap_or_default().lines() {
                    let line = self.code_line(line);
                    self.put(line);
                }
                self.is_apart = true;
            }
            TagEnd::List(_) => {
                self.lists.pop();
                self.is_apart = true;
            }
            TagEnd::Item => {
                self.end_text();
                if self.containers.last().is_some_and(|item| item.marker.is_some()) {
                    self.put(String::new());
                }
                self.containers.pop();
            }
            TagEnd::TableHead | TagEnd::Emphasis | TagEnd::Strong => self.end_style(),
            TagEnd::TableCell => {
                let cell = mem::take(&mut self.words);
                if let Some(row) = self.table.as_mut().and_then(|table| table.rows.last_mut()) {
                    row.push(cell);
                }
            }
            TagEnd::Table => {
                let table = self.table.take().unwrap_or_default();
                table.lines(self.room(), self.is_coloured).into_iter().for_each(|line| self.put(line));
                self.is_apart = true;
            }
            TagEnd::Strikethrough => {
                self.plain_mark("~~");
                self.end_style();
            }
            TagEnd::Link | TagEnd::Image => {
                let (address, text) = self.links.pop().unwrap_or_default();
                if address != text && !address.is_empty() {
                    self.push(&format!(" ({address})"), Style { dim: true, ..Style::default() });
                }
            }
            _ => {}
        }
    }

    /// Begins a list item, whose marker is written with its first line.
    fn item(&mut self) {
        self.end_text();
        let Some(list) = self.lists.last_mut() else { return };
        let marker = match &mut list.number {
            Some(number) => {
                *number += 1;
                format!("{}. ", *number - 1)
            }
            None => "• ".to_owned(),
        };
        self.is_apart &= list.is_loose;
        let indent = " ".repeat(width(&marker));
        self.contain(Some(marker), indent);
    }

    fn begin_style(&mut self, style: Style) {
        self.outer_styles.push(mem::replace(&mut self.style, style));
    }

    fn end_style(&mut self) {
        self.style = self.outer_styles.pop().unwrap_or_default();
    }

    fn row(&mut self) {
        if let Some(table) = &mut self.table {
            table.rows.push(Vec::new());
        }
    }

    fn contain(&mut self, marker: Option<String>, indent: String) {
        self.containers.push(Container { marker, indent });
    }

    fn text(&mut self, text: &str) {
        if let Some(code) = &mut self.code {
            return code.push_str(text);
        }
        for (i, line) in text.split('\n').enumerate() {
            if i > 0 {
                self.words.end_line();
            }
            self.push(line, self.style);
        }
    }

    fn push(&mut self, text: &str, style: Style) {
        self.links.iter_mut().for_each(|(_, shown)| shown.push_str(text));
        self.words.push(text, style);
    }

    /// Writes markup that has no equivalent without colors.
    fn plain_mark(&mut self, mark: &str) {
        if !self.is_coloured {
            self.push(mark, self.style);
        }
    }

    /// Returns the number of columns inside the containers.
    fn room(&self) -> usize {
        let used: usize = self.containers.iter().map(|one| one.columns()).sum();
        self.columns.saturating_sub(used).max(MIN_COLUMNS)
    }

    /// Writes the words so far.
    fn end_text(&mut self) {
        let words = mem::take(&mut self.words);
        if words.is_empty() {
            return;
        }
        for line in words.lines(self.room(), self.is_coloured) {
            self.put(line.text);
        }
    }

    /// Writes the empty line before the next block, if there is one.
    fn separate(&mut self) {
        if mem::take(&mut self.is_apart) && !self.lines.is_empty() {
            let indent: String = self.containers.iter().map(|one| &*one.indent).collect();
            self.lines.push(indent.trim_end().to_owned());
        }
    }

    /// Writes a line after the markers of its containers.
    fn put(&mut self, line: String) {
        self.separate();
        let mut start = String::new();
        for container in &mut self.containers {
            start.push_str(&container.marker.take().unwrap_or_else(|| container.indent.clone()));
        }
        start.push_str(&line);
        self.lines.push(start.trim_end().to_owned());
    }
}

impl Container {
    fn columns(&self) -> usize {
        // The bar of a quote may have a color.
        if self.indent.trim().is_empty() { self.indent.len() } else { 2 }
    }
}
