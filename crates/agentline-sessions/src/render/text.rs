//! Renders a saved session as text: messages, tool calls and changes.

use super::{
    SessionDetail, SessionFigures, SessionPiece, SessionTree,
    diff::{DiffLine, DiffSign, ShownChange},
    facts::{grouped, money, title},
    tool::{self, ShownCall},
};
use crate::plain_text::plain;
use crate::{
    render::phrases,
    time::TimeFormat,
    ui::{Paint, painted},
};
use agentline::{Entry, EntryPart, Media, Role, SavedSession, SavedTool, Tokens, ToolStatus};
use std::io::{self, Write};

/// The number of lines at the beginning of a shortened output.
const HEAD: usize = 8;
/// The number of lines at the end of a shortened output.
const TAIL: usize = 4;

/// The options of the text format.
#[derive(Clone, Debug)]
pub(crate) struct TextStyle {
    /// Whether to use colours.
    pub(crate) colour: bool,
    /// Whether to shorten long outputs.
    pub(crate) short: bool,
    /// Whether the session is in progress, so that a call without a result is not finished.
    pub(crate) live: bool,
    /// What to show besides prompts and answers.
    pub(crate) wish: SessionDetail,
    /// The clock that formats times.
    pub(crate) clock: TimeFormat,
}

/// Writes sessions entry by entry.
#[derive(Debug)]
pub(crate) struct TextRenderer {
    style: TextStyle,
    /// The prefix of every line, which indents the work of sub-agents.
    margin: String,
}

/// How much of an entry has been shown, because a followed session grows.
#[derive(Clone, Debug, Default)]
pub(crate) struct EntryProgress {
    headed: bool,
    /// The size of each part that has been shown.
    parts: Vec<usize>,
}

/// Returns the size of a part, which changes when the part grows.
fn size_of(part: &EntryPart) -> usize {
    match part {
        EntryPart::Text { text } | EntryPart::Thinking { text, .. } => text.len(),
        EntryPart::Tool(tool) => 1 + usize::from(tool.result.is_some()),
        _ => 1,
    }
}

impl TextRenderer {
    pub(crate) fn new(style: TextStyle) -> Self {
        Self { style, margin: String::new() }
    }

    /// Writes a complete session.
    pub(crate) fn story(&mut self, out: &mut dyn Write, story: &SessionTree<'_>) -> io::Result<()> {
        self.head(out, story)?;
        for piece in story.pieces(self.style.wish) {
            match piece {
                SessionPiece::Entry(entry) => self.entry(out, entry)?,
                SessionPiece::Aside(entries) => self.aside(out, "sub-agent", entries)?,
                SessionPiece::Child(child) => {
                    let name = format!("sub-agent {} · {}", child.info.id, title(child));
                    self.aside(out, &name, &child.entries)?;
                }
            }
        }
        self.foot(out, story.session)
    }

    /// Writes the title, metadata and numbers of a session.
    pub(crate) fn head(&self, out: &mut dyn Write, story: &SessionTree<'_>) -> io::Result<()> {
        let info = &story.session.info;
        let facts = SessionFigures::of(story);
        writeln!(out, "{}", self.paint(Paint::Bold, &title(story.session)))?;
        let agent = match &info.agent_version {
            Some(version) => format!("{} {version}", info.agent),
            None => info.agent.clone(),
        };
        let mut about = vec![agent, info.id.clone()];
        about.extend(info.project.clone());
        self.dim(out, &about)?;
        let mut numbers = Vec::new();
        if let Some(began) = info.started {
            let ended = info.updated.filter(|at| *at > began);
            let took = ended.map(|at| format!(", {}", phrases::seconds(at - began))).unwrap_or_default();
            numbers.push(format!("{}{took}", self.style.clock.minute(began)));
        }
        numbers.extend(facts.models.iter().cloned());
        numbers.push(counted(facts.prompts, "prompt"));
        numbers.push(counted(facts.tools, "tool call"));
        numbers.extend(story.tokens().map(|tokens| format!("{} tokens", grouped(tokens.sum()))));
        numbers.extend(story.used.cost_usd.map(money));
        self.dim(out, &numbers)
    }

    /// Writes the damage of a session.
    fn foot(&self, out: &mut dyn Write, session: &SavedSession) -> io::Result<()> {
        for damage in &session.damage {
            let place = damage.line.map(|line| format!("line {line}: ")).unwrap_or_default();
            let told = format!("unreadable: {place}{}", plain(&damage.message));
            writeln!(out, "\n{}", self.paint(Paint::Yellow, &told))?;
        }
        Ok(())
    }

    fn dim(&self, out: &mut dyn Write, parts: &[String]) -> io::Result<()> {
        writeln!(out, "{}", self.paint(Paint::Dim, &plain(&parts.join(" · "))))
    }

    /// Writes the work of a sub-agent.
    fn aside(&mut self, out: &mut dyn Write, name: &str, entries: &[Entry]) -> io::Result<()> {
        writeln!(out, "\n{}{}", self.margin, self.paint(Paint::Bold, &format!("┌ {name}")))?;
        let outer = self.margin.len();
        self.margin.push_str("│ ");
        let context = self.style.wish.context;
        let mut told = entries.iter().filter(|entry| context || !entry.context);
        let told = told.try_for_each(|entry| self.entry(out, entry));
        self.margin.truncate(outer);
        told
    }

    /// Writes one entry.
    pub(crate) fn entry(&self, out: &mut dyn Write, entry: &Entry) -> io::Result<()> {
        self.news(out, &entry.loaded(), &mut EntryProgress::default())
    }

    /// Writes what is new in an entry since it was last shown.
    pub(crate) fn news(
        &self,
        out: &mut dyn Write,
        entry: &Entry,
        told: &mut EntryProgress,
    ) -> io::Result<()> {
        told.parts.resize(entry.parts.len(), 0);
        for (part, told_so_far) in entry.parts.iter().zip(&mut told.parts) {
            let is_hidden = matches!(part, EntryPart::Thinking { .. }) && !self.style.wish.thinking;
            let size = size_of(part);
            if is_hidden || size == *told_so_far {
                continue;
            }
            if !told.headed {
                told.headed = true;
                self.who(out, entry)?;
            }
            // Text grows at its end. If it was replaced by a shorter one, it is shown completely.
            let new = |text: &'_ str| text.get(*told_so_far..).map_or(0, |_| *told_so_far);
            match part {
                EntryPart::Text { text } => self.lines(out, text[new(text)..].trim_end(), None)?,
                EntryPart::Thinking { text, .. } => {
                    self.lines(out, text[new(text)..].trim_end(), Some(Paint::Dim))?;
                }
                EntryPart::Tool(tool) => self.tool(out, tool)?,
                EntryPart::Media(media) => self.lines(out, &about_media(media), Some(Paint::Dim))?,
                _ => {}
            }
            *told_so_far = size;
        }
        Ok(())
    }

    /// Writes the role, time and tokens of an entry.
    fn who(&self, out: &mut dyn Write, entry: &Entry) -> io::Result<()> {
        let (paint, who) = match entry.role {
            _ if entry.context => (Paint::Dim, "context"),
            Role::User if !self.margin.is_empty() => (Paint::Green, "task"),
            Role::User => (Paint::Green, "you"),
            Role::Assistant => (Paint::Bold, entry.model.as_deref().unwrap_or("answer")),
            _ => (Paint::Yellow, "agent"),
        };
        let who = self.paint(paint, &format!("▌ {}", plain(who)));
        let mut about: Vec<String> =
            entry.timestamp.map(|at| self.style.clock.time(at)).into_iter().collect();
        about.extend(entry.usage.as_ref().map(spent).filter(|spent| !spent.is_empty()));
        let about = self.paint(Paint::Dim, &about.join(" · "));
        writeln!(out, "{}\n{}{who}  {about}", self.margin, self.margin)
    }

    /// Writes a text with the margin before every line.
    fn lines(&self, out: &mut dyn Write, text: &str, paint: Option<Paint>) -> io::Result<()> {
        for line in plain(text).lines() {
            match paint {
                Some(paint) => writeln!(out, "{}  {}", self.margin, self.paint(paint, line))?,
                None => writeln!(out, "{}  {line}", self.margin)?,
            }
        }
        Ok(())
    }

    fn tool(&self, out: &mut dyn Write, tool: &SavedTool) -> io::Result<()> {
        let shown = ShownCall::of(tool);
        let paint = match shown.status {
            Some(ToolStatus::Ok) => Paint::Green,
            Some(ToolStatus::Error) => Paint::Red,
            _ => Paint::Yellow,
        };
        let change = shown.change.as_ref();
        let lines = change.map(|c| format!(" (+{} -{})", c.added, c.removed)).unwrap_or_default();
        let word = if self.style.live && shown.status.is_none() { "" } else { tool::word(shown.status) };
        let line = format!("{}  {} {}{lines} … {word}", self.margin, self.paint(paint, "●"), shown.line());
        writeln!(out, "{}", line.trim_end())?;
        if let Some(command) = shown.command.as_deref().filter(|command| command.lines().nth(1).is_some()) {
            self.output(out, command)?;
        }
        if let Some(change) = change {
            self.change(out, change)?;
        }
        if shown.has_news() {
            self.output(out, &shown.output)?;
        }
        let mut media = tool.result.iter().flat_map(|result| &result.media);
        media.try_for_each(|media| self.lines(out, &format!("  {}", about_media(media)), Some(Paint::Dim)))
    }

    /// Writes the output of a tool, without its middle if outputs are shortened.
    fn output(&self, out: &mut dyn Write, text: &str) -> io::Result<()> {
        let text = plain(text.trim_end());
        let count = text.lines().count();
        let is_long = self.style.short && count > HEAD + TAIL + 1;
        let write = |out: &mut dyn Write, line: &str| {
            writeln!(out, "{}    {}", self.margin, self.paint(Paint::Dim, line))
        };
        if !is_long {
            return text.lines().try_for_each(|line| write(out, line));
        }
        text.lines().take(HEAD).try_for_each(|line| write(out, line))?;
        write(out, &format!("… {} more lines; pass --full to see them", count - HEAD - TAIL))?;
        text.lines().skip(count - TAIL).try_for_each(|line| write(out, line))
    }

    fn change(&self, out: &mut dyn Write, change: &ShownChange) -> io::Result<()> {
        let last = change.hunks.iter().flatten().filter_map(|line| line.numbers.1.max(line.numbers.0)).max();
        let width = if change.numbered { last.unwrap_or(0).to_string().len() } else { 0 };
        for (i, hunk) in change.hunks.iter().enumerate() {
            if i > 0 {
                writeln!(out, "{}    {}", self.margin, self.paint(Paint::Dim, "⋯"))?;
            }
            for line in hunk {
                self.changed_line(out, line, width)?;
            }
        }
        Ok(())
    }

    fn changed_line(&self, out: &mut dyn Write, line: &DiffLine, width: usize) -> io::Result<()> {
        let number = line.numbers.1.or(line.numbers.0).filter(|_| width > 0);
        let number = number.map(|n| format!("{n:>width$} ")).unwrap_or_default();
        let text = plain(&line.text);
        let told = format!("{}{text}", line.sign.mark());
        let told = match line.sign {
            DiffSign::Same => told,
            DiffSign::Added => self.paint(Paint::Green, &told),
            DiffSign::Removed => self.paint(Paint::Red, &told),
        };
        writeln!(out, "{}    {}{told}", self.margin, self.paint(Paint::Dim, &number))
    }

    fn paint(&self, paint: Paint, text: &str) -> String {
        painted(self.style.colour && !text.is_empty(), paint, text)
    }
}

/// Formats the tokens of an answer.
pub(super) fn spent(tokens: &Tokens) -> String {
    let cached = tokens.cached.filter(|n| *n > 0).map(|n| format!(" ({} cached)", grouped(n)));
    let parts = [
        tokens.input.map(|n| format!("{} in{}", grouped(n), cached.unwrap_or_default())),
        tokens.output.map(|n| format!("{} out", grouped(n))),
        tokens.thoughts.filter(|n| *n > 0).map(|n| format!("{} thought", grouped(n))),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// Describes a media file without its content.
pub(super) fn about_media(media: &Media) -> String {
    let size = media.data.as_ref().map(|data| format!(", {} bytes", grouped(data.len() as u64 * 3 / 4)));
    let place = media.uri.as_ref().map(|uri| format!(", {uri}"));
    format!("[{}{}{}]", media.mime_type, size.unwrap_or_default(), place.unwrap_or_default())
}

/// Formats a count with its noun, such as `1 prompt` and `2 prompts`.
pub(super) fn counted(count: usize, what: &str) -> String {
    format!("{} {what}{}", grouped(count as u64), if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::{super::sample, *};
    use agentline::PriceTable;

    fn told(style: impl FnOnce(&mut TextStyle)) -> String {
        let mut how = TextStyle {
            colour: false,
            short: false,
            live: false,
            wish: SessionDetail::default(),
            clock: TimeFormat::utc(),
        };
        style(&mut how);
        let (session, children) = sample::session();
        let mut out = Vec::new();
        let story = SessionTree::new(&session, &children, &PriceTable::default());
        TextRenderer::new(how).story(&mut out, &story).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn session_is_rendered_as_a_conversation() {
        sample::same("sample.txt", &told(|_| {}));
    }

    #[test]
    fn all_details_are_shown_on_request() {
        let text =
            told(|style| style.wish = SessionDetail { context: true, thinking: true, subagents: true });
        sample::same("sample.all.txt", &text);
    }

    #[test]
    fn tool_outputs_are_truncated_on_a_terminal() {
        let text = told(|style| (style.short, style.colour) = (true, true));
        assert!(text.contains("… 18 more lines; pass --full to see them"), "{text}");
        assert!(text.contains("\u{1b}[32m+"), "{text}");
        assert!(!told(|_| {}).contains("--full"));
    }
}
