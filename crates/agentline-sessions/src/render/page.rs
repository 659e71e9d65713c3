//! Renders a saved session as one self-contained HTML page.
//!
//! All content of the session is escaped. If a tag slipped through, the page's content security policy would still
//! block all other scripts and all requests.

mod change;
mod chart;
mod comparison;
mod escape;
mod highlight;
mod markdown;

pub use comparison::comparison_html;

use super::{
    SessionDetail, SessionFigures, SessionPiece, SessionTree,
    facts::{grouped, money, title},
    text::{counted, describe_media, spent},
    time::TimeFormat,
    tool::{self, ShownCall},
};
use agentline_core::{
    Entry, EntryPart, Media, Millis, Role, SavedTool, ToolStatus,
    terminal_text::{duration, shorten},
};
use base64::{Engine, engine::general_purpose::STANDARD};
use chart::ChartTurn;
use sha2::{Digest, Sha256};
use std::io::{self, Write};

const STYLE: &str = include_str!("page/page.css");
const SCRIPT: &str = include_str!("page/page.js");
/// Image types that a browser displays without running code in them.
const IMAGES: &[&str] = &["image/png", "image/jpeg", "image/gif", "image/webp"];
/// The maximum number of lines of a change that is shown unfolded.
const OPEN_LINES: usize = 60;

/// Writes a session as one self-contained HTML page.
///
/// # Errors
/// Fails if `out` does.
pub fn html(
    out: &mut dyn Write,
    tree: &SessionTree<'_>,
    detail: SessionDetail,
    clock: &TimeFormat,
) -> io::Result<()> {
    let pieces: Vec<SessionPiece<'_>> = tree.pieces(detail).collect();
    let mut page = Page { out, detail, clock, entries: 0, day: None, in_subagent: false };
    head(page.out, &title(tree.session))?;
    page.bar()?;
    let entries = page.numbered(&pieces);
    page.cover(tree, &entries)?;
    page.contents(&entries)?;
    writeln!(page.out, "<main id=story>")?;
    for piece in &pieces {
        page.piece(piece)?;
    }
    writeln!(page.out, "</main></div>")?;
    page.foot(tree)
}

/// Writes the beginning of a page: its policy, title and style.
fn head(out: &mut dyn Write, title: &str) -> io::Result<()> {
    let hash = |text: &str| STANDARD.encode(Sha256::digest(text));
    let (style, script) = (hash(STYLE), hash(SCRIPT));
    write!(
        out,
        "<!DOCTYPE html>\n<html lang=en>\n<head>\n<meta charset=utf-8>\n\
         <meta http-equiv=Content-Security-Policy content=\"default-src 'none'; style-src 'sha256-{style}'; \
         script-src 'sha256-{script}'; img-src data:; base-uri 'none'; form-action 'none'\">\n\
         <meta name=viewport content=\"width=device-width, initial-scale=1\">\n\
         <meta name=color-scheme content=\"light dark\">\n<meta name=referrer content=no-referrer>\n\
         <meta name=generator content=\"agentline {}\">\n<title>",
        env!("CARGO_PKG_VERSION")
    )?;
    escape::attribute(out, title)?;
    writeln!(out, "</title>\n<style>{STYLE}</style>\n</head>\n<body>")
}

/// A page that is being written.
struct Page<'a> {
    out: &'a mut dyn Write,
    detail: SessionDetail,
    clock: &'a TimeFormat,
    /// The number of entries written.
    entries: usize,
    /// The day of the last entry.
    day: Option<String>,
    /// Whether the current entries are those of a sub-agent.
    in_subagent: bool,
}

impl Page<'_> {
    /// Writes the toolbar: search, folding, light and dark.
    fn bar(&mut self) -> io::Result<()> {
        writeln!(
            self.out,
            "<header class=bar><a class=brand href=\"#top\">agentline</a>\
             <div class=find role=search><input id=q type=search placeholder=\"Search\" aria-label=\"Search in this session\" \
             autocomplete=off spellcheck=false><output id=hits for=q aria-live=polite></output>\
             <button id=prev type=button title=\"Previous hit (Shift+Enter)\" aria-label=\"Previous hit\">↑</button>\
             <button id=next type=button title=\"Next hit (Enter)\" aria-label=\"Next hit\">↓</button></div>\
             <button id=fold type=button aria-pressed=false title=\"Expand or collapse everything (o)\">Expand all</button>\
             <button id=theme type=button title=\"Toggle theme (t)\" aria-label=\"Toggle theme\">◐</button></header>"
        )
    }

    /// Writes the title, metadata and numbers of the session.
    fn cover(&mut self, tree: &SessionTree<'_>, entries: &[(usize, &Entry)]) -> io::Result<()> {
        let info = &tree.session.info;
        let facts = SessionFigures::of(tree);
        write!(self.out, "<section class=cover id=top><h1 dir=auto>")?;
        escape::text(self.out, &title(tree.session))?;
        write!(self.out, "</h1><p class=about><span class=agent>")?;
        escape::text(self.out, &info.agent)?;
        write!(self.out, "</span>")?;
        let project = info.project.iter().map(String::as_str);
        let details = info.agent_version.iter().map(String::as_str).chain(project).chain([&*info.id]);
        for word in details.filter(|word| !word.is_empty()) {
            write!(self.out, "<span>")?;
            escape::text(self.out, word)?;
            write!(self.out, "</span>")?;
        }
        writeln!(self.out, "</p><dl class=facts>")?;
        if let Some(began) = info.started {
            self.fact("began", &self.clock.minute(began), None)?;
            if let Some(ended) = info.updated.filter(|at| *at > began) {
                self.fact("took", &duration(ended - began), None)?;
            }
        }
        if let Some(model) = facts.models.first() {
            let more = facts.models.len() - 1;
            let note = (more > 0).then(|| format!("and {}", counted(more, "more")).replace("mores", "more"));
            self.fact("model", model, note.as_deref())?;
        }
        self.fact("prompts", &grouped(facts.prompts as u64), None)?;
        let failed = (facts.failed > 0).then(|| format!("{} failed", facts.failed));
        self.fact("tool calls", &grouped(facts.tools as u64), failed.as_deref())?;
        if facts.subagents > 0 {
            self.fact("sub-agents", &grouped(facts.subagents as u64), None)?;
        }
        if let Some(tokens) = tree.tokens() {
            let cached = tokens.cached.filter(|n| *n > 0).map(|n| format!("{} cached", grouped(n)));
            self.fact("tokens", &grouped(tokens.sum()), cached.as_deref())?;
        }
        if let Some(usd) = tree.used.cost_usd {
            self.fact("cost", &money(usd), None)?;
        }
        writeln!(self.out, "</dl>")?;
        self.damage(tree)?;
        let tokens = |entry: &Entry| entry.usage.filter(|tokens| tokens.sum() > 0);
        let turn = |(at, entry): &(usize, &Entry)| Some(ChartTurn { entry: *at, tokens: tokens(entry)? });
        let turns: Vec<ChartTurn> = entries.iter().filter_map(turn).collect();
        chart::chart(self.out, &turns)?;
        writeln!(self.out, "</section>")
    }

    fn fact(&mut self, name: &str, value: &str, note: Option<&str>) -> io::Result<()> {
        write!(self.out, "<div><dt>{name}</dt><dd>")?;
        escape::text(self.out, value)?;
        if let Some(note) = note {
            write!(self.out, "<small>")?;
            escape::text(self.out, note)?;
            write!(self.out, "</small>")?;
        }
        writeln!(self.out, "</dd></div>")
    }

    fn damage(&mut self, tree: &SessionTree<'_>) -> io::Result<()> {
        let damage = &tree.session.damage;
        if damage.is_empty() {
            return Ok(());
        }
        let count = counted(damage.len(), "place");
        writeln!(self.out, "<details class=damage><summary>{count} unreadable</summary><ul>")?;
        for one in damage {
            write!(self.out, "<li>")?;
            if let Some(line) = one.line {
                write!(self.out, "line {line}: ")?;
            }
            escape::text(self.out, &one.message)?;
            writeln!(self.out, "</li>")?;
        }
        writeln!(self.out, "</ul></details>")
    }

    /// Returns whether an entry has anything to show.
    fn is_visible(&self, entry: &Entry) -> bool {
        let is_shown = |part: &EntryPart| self.detail.thinking || !matches!(part, EntryPart::Thinking { .. });
        (self.detail.context || !entry.context) && entry.loaded().parts.iter().any(is_shown)
    }

    /// Returns the number of a sub-agent's entries that are shown.
    fn count(&self, entries: &[Entry]) -> usize {
        entries.iter().filter(|entry| self.is_visible(entry)).count()
    }

    /// Returns the entries of the session itself, with their numbers for links.
    fn numbered<'e>(&self, pieces: &[SessionPiece<'e>]) -> Vec<(usize, &'e Entry)> {
        let (mut entries, mut number) = (Vec::new(), 0);
        for piece in pieces {
            number += match piece {
                SessionPiece::Entry(entry) if self.is_visible(entry) => {
                    entries.push((number, *entry));
                    1
                }
                SessionPiece::Entry(_) => 0,
                SessionPiece::Sidechain(entries) => self.count(entries),
                SessionPiece::Child(child) => self.count(&child.entries),
            };
        }
        entries
    }

    /// Writes links to the prompts.
    fn contents(&mut self, entries: &[(usize, &Entry)]) -> io::Result<()> {
        writeln!(self.out, "<div class=frame><nav class=contents aria-label=\"Prompts\"><ol>")?;
        for (number, entry) in entries.iter().filter(|(_, entry)| entry.is_prompt()) {
            let text = entry.loaded().text();
            let line = text.lines().find(|line| !line.trim().is_empty()).unwrap_or("(a file)");
            write!(self.out, "<li><a href=\"#e{number}\"><span dir=auto>")?;
            escape::text(self.out, &shorten(line.trim(), 80))?;
            writeln!(self.out, "</span></a></li>")?;
        }
        writeln!(self.out, "</ol></nav>")
    }

    fn piece(&mut self, piece: &SessionPiece<'_>) -> io::Result<()> {
        match piece {
            SessionPiece::Entry(entry) => self.entry(entry),
            SessionPiece::Sidechain(entries) => self.subagent("", entries),
            SessionPiece::Child(child) => self.subagent(&title(child), &child.entries),
        }
    }

    /// Writes the folded work of a sub-agent.
    fn subagent(&mut self, name: &str, entries: &[Entry]) -> io::Result<()> {
        let count = counted(self.count(entries), "message");
        write!(self.out, "<details class=sub><summary><b>Sub-agent</b> ")?;
        escape::text(self.out, name)?;
        writeln!(self.out, " <small>{count}</small></summary><div>")?;
        self.in_subagent = true;
        for entry in entries {
            self.entry(entry)?;
        }
        self.in_subagent = false;
        writeln!(self.out, "</div></details>")
    }

    fn entry(&mut self, entry: &Entry) -> io::Result<()> {
        let entry = &*entry.loaded();
        if !self.is_visible(entry) {
            return Ok(());
        }
        let (class, author) = match entry.role {
            _ if entry.context => ("context", "Context"),
            Role::User if entry.results_only => ("system", "Result"),
            Role::User if self.in_subagent => ("user", "Task"),
            Role::User => ("user", "You"),
            Role::Assistant => ("model", entry.model.as_deref().unwrap_or("Answer")),
            _ => ("system", "Agent"),
        };
        self.day(entry.timestamp)?;
        let number = self.entries;
        self.entries += 1;
        write!(self.out, "<article class=\"entry {class}\" id=e{number}><header><b>")?;
        escape::text(self.out, author)?;
        write!(self.out, "</b>")?;
        if let Some(at) = entry.timestamp {
            let (exact, time) = (self.clock.exact(at), self.clock.time(at));
            write!(self.out, "<time datetime=\"{exact}\">{time}</time>")?;
        }
        if let Some(spent) = entry.usage.as_ref().map(spent).filter(|spent| !spent.is_empty()) {
            write!(self.out, "<span class=spent>{spent}</span>")?;
        }
        let anchor = anchor("m", &entry.id);
        writeln!(
            self.out,
            "<a class=here id=\"{anchor}\" href=\"#{anchor}\" title=\"Copy the link to this message\">#</a></header>"
        )?;
        for part in &entry.parts {
            self.part(part, entry)?;
        }
        writeln!(self.out, "</article>")
    }

    /// Writes a separator when the day changes.
    fn day(&mut self, at: Option<Millis>) -> io::Result<()> {
        let Some(at) = at else { return Ok(()) };
        let day = self.clock.exact(at)[..10].to_owned();
        let changed = self.day.as_ref().is_some_and(|last| *last != day);
        if changed {
            writeln!(self.out, "<p class=day>{day}</p>")?;
        }
        self.day = Some(day);
        Ok(())
    }

    fn part(&mut self, part: &EntryPart, entry: &Entry) -> io::Result<()> {
        match part {
            EntryPart::Text { text } if entry.role == Role::Assistant => {
                write!(self.out, "<div class=prose>")?;
                markdown::prose(self.out, text)?;
                writeln!(self.out, "</div>")
            }
            EntryPart::Text { text } => {
                write!(self.out, "<div class=said dir=auto>")?;
                escape::text(self.out, text.trim_end())?;
                writeln!(self.out, "</div>")
            }
            EntryPart::Thinking { text, .. } if self.detail.thinking => self.thinking(text),
            EntryPart::Tool(tool) => self.tool(tool),
            EntryPart::Media(media) => self.media(media),
            _ => Ok(()),
        }
    }

    fn thinking(&mut self, text: &str) -> io::Result<()> {
        let first = text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
        write!(self.out, "<details class=think><summary><b>Thinking</b> <span class=hint>")?;
        escape::text(self.out, &shorten(first.trim_matches(['*', '#', ' ', '_']), 100))?;
        writeln!(self.out, "</span></summary><div class=prose>")?;
        markdown::prose(self.out, text)?;
        writeln!(self.out, "</div></details>")
    }

    fn tool(&mut self, tool: &SavedTool) -> io::Result<()> {
        let shown = ShownCall::of(tool, None);
        let class = match shown.status {
            Some(ToolStatus::Ok) => "ok",
            Some(ToolStatus::Error) => "bad",
            _ => "odd",
        };
        let lines = shown.change.as_ref().map_or(0, |change| change.hunks.iter().map(Vec::len).sum());
        let open = if (1..=OPEN_LINES).contains(&lines) { " open" } else { "" };
        let anchor = anchor("t", &tool.call.id);
        write!(self.out, "<details class=\"tool {class}\" id=\"{anchor}\"{open}><summary><b>")?;
        escape::text(self.out, &shown.name)?;
        write!(self.out, "</b>")?;
        if let Some(target) = shown.command.as_ref().or(shown.target.as_ref()) {
            let line = target.lines().next().unwrap_or_default();
            write!(self.out, " <code class=target>")?;
            escape::text(self.out, &shorten(line, 240))?;
            write!(self.out, "</code>")?;
        }
        if let Some(change) = &shown.change {
            let (added, removed) = (change.added, change.removed);
            write!(self.out, " <span class=plus>+{added}</span> <span class=minus>−{removed}</span>")?;
        }
        if shown.status != Some(ToolStatus::Ok) {
            write!(self.out, " <span class=status>{}</span>", tool::word(shown.status))?;
        }
        writeln!(
            self.out,
            "<a class=here href=\"#{anchor}\" title=\"Copy the link to this call\">#</a></summary>"
        )?;
        if let Some(command) = &shown.command {
            markdown::fenced(self.out, "sh", command)?;
        }
        if let Some(input) = shown.input {
            markdown::fenced(self.out, "json", &pretty(input))?;
        }
        if let Some(change) = &shown.change {
            change::change(self.out, change)?;
        }
        if shown.has_news() {
            write!(self.out, "<pre class=output tabindex=0>")?;
            escape::text(self.out, shown.output.trim_end())?;
            writeln!(self.out, "</pre>")?;
        }
        for media in tool.result.iter().flat_map(|result| &result.media) {
            self.media(media)?;
        }
        writeln!(self.out, "</details>")
    }

    /// Writes an image of a known type, or a description of anything else.
    fn media(&mut self, media: &Media) -> io::Result<()> {
        let is_base64 = |data: &&String| {
            !data.is_empty()
                && data.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/' | b'='))
        };
        match media.data.as_ref().filter(is_base64) {
            Some(data) if IMAGES.contains(&&*media.mime_type) => {
                let mime_type = &media.mime_type;
                writeln!(
                    self.out,
                    "<img alt=\"{mime_type}\" loading=lazy src=\"data:{mime_type};base64,{data}\">"
                )
            }
            _ => {
                write!(self.out, "<p class=file>")?;
                escape::text(self.out, &describe_media(media))?;
                writeln!(self.out, "</p>")
            }
        }
    }

    fn foot(&mut self, tree: &SessionTree<'_>) -> io::Result<()> {
        write!(self.out, "<footer>Session <code>")?;
        escape::text(self.out, &tree.session.info.id)?;
        writeln!(self.out, "</code>. This page needs no network and sends nothing.</footer>")?;
        writeln!(self.out, "<script>{SCRIPT}</script>\n</body>\n</html>")
    }
}

/// Returns a name for links that stays the same when the session grows: it is made from the agent's own id.
fn anchor(kind: &str, id: &str) -> String {
    let is_plain = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    format!("{kind}-{}", id.chars().filter(is_plain).take(64).collect::<String>())
}

/// Formats JSON with one field per line, unless it is too large.
fn pretty(input: &str) -> String {
    let parsed = (input.len() < 64 << 10).then(|| serde_json::from_str::<serde_json::Value>(input).ok());
    let pretty = parsed.flatten().and_then(|value| serde_json::to_string_pretty(&value).ok());
    pretty.unwrap_or_else(|| input.to_owned())
}

#[cfg(test)]
mod tests {
    use super::{super::sample, *};
    use agentline_core::PriceTable;

    fn written() -> String {
        let (session, children) = sample::session();
        let tree = SessionTree::new(&session, &children, &PriceTable::default());
        let detail = SessionDetail::default().context(true).thinking(true).subagents(true);
        let mut out = Vec::new();
        html(&mut out, &tree, detail, &TimeFormat::utc()).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn session_content_is_escaped_as_text() {
        let page = written();
        assert_eq!(page.matches("<script").count(), 1, "only the page's own script");
        assert_eq!(page.matches("</script").count(), 1, "only the page's own script");
        assert!(
            !page.contains("<img src=x") && !page.contains("<!--") && !page.contains("href=\"javascript")
        );
        assert!(!page.contains(['\0', '\u{202e}']), "no control or bidirectional characters remain");
        for text in
            ["&lt;script&gt;document.title=", "U+202E", "U+0000", "Sub-agent", "Find the callers", "$0.01"]
        {
            assert!(page.contains(text), "{text}");
        }
    }

    #[test]
    fn links_to_messages_and_calls_are_made_from_their_own_ids() {
        let page = written();
        assert!(page.contains("id=\"m-b\" href=\"#m-b\"") && page.contains("id=\"t-Edit\""), "{page}");
        assert_eq!(anchor("t", "a\"><b 1"), "t-ab1");
    }

    #[test]
    fn page_has_no_external_references() {
        let page = written();
        for (i, _) in page.match_indices("href=") {
            assert!(page[i..].starts_with("href=\"#"), "{}", &page[i..i + 40]);
        }
        for (i, _) in page.match_indices("src=\"") {
            assert!(page[i..].starts_with("src=\"data:image/"), "{}", &page[i..i + 40]);
        }
        let styles = page.matches(" style=").count();
        assert_eq!(styles, 0, "the content security policy blocks inline styles");
    }

    #[test]
    fn embedded_style_and_script_cannot_close_their_tags() {
        assert!(!STYLE.contains("</") && !SCRIPT.contains("</") && !SCRIPT.contains("<!--"));
        assert!(!STYLE.contains("url(") && !STYLE.contains("@import"), "nothing is fetched");
    }

    #[test]
    fn only_safe_image_types_are_embedded() {
        let shown = |mime_type: &str, data: &str| {
            let mut out = Vec::new();
            let clock = TimeFormat::utc();
            let mut page = Page {
                out: &mut out,
                detail: SessionDetail::default(),
                clock: &clock,
                entries: 0,
                day: None,
                in_subagent: false,
            };
            page.media(&Media::new(mime_type, Some(data.into()), None)).unwrap();
            String::from_utf8(out).unwrap().contains("<img")
        };
        assert!(shown("image/png", "AAAA+/=="));
        assert!(
            !shown("image/svg+xml", "AAAA")
                && !shown("image/png", "\"onerror=x")
                && !shown("text/html", "AA")
        );
    }
}
