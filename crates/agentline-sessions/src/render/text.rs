//! Renders a saved session as text: messages, tool calls and changes.

use super::{
    SessionDetail, SessionFigures, SessionPiece, SessionTree,
    diff::{DiffLine, DiffSign, ShownChange},
    facts::{grouped, money, title},
    prose,
    time::TimeFormat,
    tool::{self, ShownCall},
};
use agentline_core::{
    Diff, Entry, EntryPart, Media, Millis, Role, SavedSession, SavedTool, Tokens, ToolStatus, ToolUse,
    terminal_text::{Paint, duration, painted, plain, wrap},
};
use std::io::{self, Write};

/// The number of lines at the beginning of a shortened output.
const HEAD: usize = 8;
/// The number of lines at the end of a shortened output.
const TAIL: usize = 4;
/// The number of lines of an output in the brief style.
const BRIEF_OUTPUT: usize = 5;
/// The number of lines of a change in the brief style.
const BRIEF_CHANGE: usize = 24;
/// The minimum width of wrapped text, however deep it is indented.
const MIN_COLUMNS: usize = 20;

/// The options of the text format.
#[derive(Clone, Debug)]
pub struct TextStyle {
    detail: SessionDetail,
    clock: TimeFormat,
    is_coloured: bool,
    shortened: Option<&'static str>,
    is_live: bool,
    columns: Option<usize>,
    workspace: Option<String>,
    is_flush_left: bool,
    is_brief: bool,
}

impl TextStyle {
    /// Creates the style of a text file: no colors, and all outputs complete.
    #[must_use]
    pub fn new(detail: SessionDetail, clock: TimeFormat) -> Self {
        Self {
            detail,
            clock,
            is_coloured: false,
            shortened: None,
            is_live: false,
            columns: None,
            workspace: None,
            is_flush_left: false,
            is_brief: false,
        }
    }

    /// Creates the style of a run in progress on a terminal: without indentation, and with only the last lines of
    /// commands and the first lines of changes.
    #[must_use]
    pub fn brief() -> Self {
        Self { is_brief: true, ..Self::complete() }
    }

    /// Creates the style of a run in progress, with complete outputs and changes.
    #[must_use]
    pub fn complete() -> Self {
        Self { is_flush_left: true, ..Self::new(SessionDetail::default(), TimeFormat::utc()) }
    }

    /// Renders the Markdown of answers for a terminal with this many columns and wraps all text between words. Without
    /// a width, text is written unchanged.
    #[must_use]
    pub fn columns(mut self, columns: Option<usize>) -> Self {
        self.columns = columns;
        self
    }

    /// Shows paths inside this directory relative to it. Sessions use their own project.
    #[must_use]
    pub fn workspace(mut self, workspace: impl Into<String>) -> Self {
        self.workspace = Some(workspace.into());
        self
    }

    /// Sets whether to use the colors of a terminal.
    #[must_use]
    pub fn coloured(mut self, coloured: bool) -> Self {
        self.is_coloured = coloured;
        self
    }

    /// Shortens long outputs of tools. The hint replaces the omitted lines and says how to see them.
    #[must_use]
    pub fn shortened(mut self, hint: Option<&'static str>) -> Self {
        self.shortened = hint;
        self
    }

    /// Sets whether the session is in progress, so that a call without a result is not finished.
    #[must_use]
    pub fn live(mut self, live: bool) -> Self {
        self.is_live = live;
        self
    }
}

/// Writes a session as text.
///
/// # Errors
/// Fails if `out` does.
pub fn text(out: &mut dyn Write, tree: &SessionTree<'_>, style: TextStyle) -> io::Result<()> {
    TextRenderer::new(style).session(out, tree)
}

/// Writes a session as text, entry by entry.
#[derive(Debug)]
pub struct TextRenderer {
    style: TextStyle,
    /// The prefix of every line, which indents the work of sub-agents.
    margin: String,
}

/// The parts of an entry that have been shown, because a followed session grows.
#[derive(Clone, Debug, Default)]
pub struct EntryProgress {
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
    /// Creates a renderer with these options.
    #[must_use]
    pub fn new(style: TextStyle) -> Self {
        Self { style, margin: String::new() }
    }

    /// Writes a complete session.
    fn session(&mut self, out: &mut dyn Write, tree: &SessionTree<'_>) -> io::Result<()> {
        self.style.workspace.clone_from(&tree.session.info.project);
        self.head(out, tree)?;
        for piece in tree.pieces(self.style.detail) {
            match piece {
                SessionPiece::Entry(entry) => self.entry(out, entry)?,
                SessionPiece::Sidechain(entries) => self.subagent(out, "sub-agent", entries)?,
                SessionPiece::Child(child) => {
                    let name = format!("sub-agent {} · {}", child.info.id, title(child));
                    self.subagent(out, &name, &child.entries)?;
                }
            }
        }
        self.foot(out, tree.session)
    }

    /// Writes the title, metadata and numbers of a session.
    fn head(&self, out: &mut dyn Write, tree: &SessionTree<'_>) -> io::Result<()> {
        let info = &tree.session.info;
        let facts = SessionFigures::of(tree);
        writeln!(out, "{}", self.paint(Paint::Bold, &title(tree.session)))?;
        let agent = match &info.agent_version {
            Some(version) => format!("{} {version}", info.agent),
            None => info.agent.to_string(),
        };
        let mut details = vec![agent, info.id.clone()];
        details.extend(info.project.clone());
        self.dim(out, &details)?;
        let mut numbers = Vec::new();
        if let Some(began) = info.started {
            let ended = info.updated.filter(|at| *at > began);
            let took = ended.map(|at| format!(", {}", duration(at - began))).unwrap_or_default();
            numbers.push(format!("{}{took}", self.style.clock.minute(began)));
        }
        numbers.extend(facts.models.iter().cloned());
        numbers.push(counted(facts.prompts, "prompt"));
        numbers.push(counted(facts.tools, "tool call"));
        numbers.extend(tree.tokens().map(|tokens| format!("{} tokens", grouped(tokens.sum()))));
        numbers.extend(tree.used.cost_usd.map(money));
        self.dim(out, &numbers)
    }

    /// Writes the damage in a session.
    fn foot(&self, out: &mut dyn Write, session: &SavedSession) -> io::Result<()> {
        for damage in &session.damage {
            let location = damage.line.map(|line| format!("line {line}: ")).unwrap_or_default();
            let message = format!("unreadable: {location}{}", plain(&damage.message));
            writeln!(out, "\n{}", self.paint(Paint::Yellow, &message))?;
        }
        Ok(())
    }

    fn dim(&self, out: &mut dyn Write, parts: &[String]) -> io::Result<()> {
        writeln!(out, "{}", self.paint(Paint::Dim, &plain(&parts.join(" · "))))
    }

    /// Writes the work of a sub-agent.
    fn subagent(&mut self, out: &mut dyn Write, name: &str, entries: &[Entry]) -> io::Result<()> {
        writeln!(out, "\n{}{}", self.margin, self.paint(Paint::Bold, &format!("┌ {name}")))?;
        let outer = self.margin.len();
        self.margin.push_str("│ ");
        let context = self.style.detail.context;
        let mut shown = entries.iter().filter(|entry| context || !entry.context);
        let result = shown.try_for_each(|entry| self.entry(out, entry));
        self.margin.truncate(outer);
        result
    }

    /// Writes one entry.
    fn entry(&self, out: &mut dyn Write, entry: &Entry) -> io::Result<()> {
        self.update(out, &entry.loaded(), &mut EntryProgress::default())
    }

    /// Writes what is new in an entry since it was last written, and records it in `progress`.
    ///
    /// # Errors
    /// Fails if `out` does.
    pub fn update(&self, out: &mut dyn Write, entry: &Entry, progress: &mut EntryProgress) -> io::Result<()> {
        progress.parts.resize(entry.parts.len(), 0);
        for (part, written) in entry.parts.iter().zip(&mut progress.parts) {
            let is_hidden = matches!(part, EntryPart::Thinking { .. }) && !self.style.detail.thinking;
            let size = size_of(part);
            if is_hidden || size == *written {
                continue;
            }
            if !progress.headed {
                progress.headed = true;
                self.author_line(out, entry)?;
            }
            // Text grows at its end. If it was replaced by a shorter one, it is shown completely.
            let new = |text: &'_ str| text.get(*written..).map_or(0, |_| *written);
            match part {
                EntryPart::Text { text } if entry.role == Role::Assistant => {
                    self.prose(out, text[new(text)..].trim_end())?;
                }
                EntryPart::Text { text } => self.lines(out, text[new(text)..].trim_end(), None)?,
                EntryPart::Thinking { text, .. } => {
                    self.lines(out, text[new(text)..].trim_end(), Some(Paint::Dim))?;
                }
                EntryPart::Tool(tool) => self.call(out, tool, None)?,
                EntryPart::Media(media) => self.lines(out, &describe_media(media), Some(Paint::Dim))?,
                _ => {}
            }
            *written = size;
        }
        Ok(())
    }

    /// Writes the role, time and tokens of an entry.
    fn author_line(&self, out: &mut dyn Write, entry: &Entry) -> io::Result<()> {
        let (paint, author) = match entry.role {
            _ if entry.context => (Paint::Dim, "context"),
            Role::User if entry.results_only => (Paint::Dim, "result"),
            Role::User if !self.margin.is_empty() => (Paint::Green, "task"),
            Role::User => (Paint::Green, "you"),
            Role::Assistant => (Paint::Bold, entry.model.as_deref().unwrap_or("answer")),
            _ => (Paint::Yellow, "agent"),
        };
        let author = self.paint(paint, &format!("▌ {}", plain(author)));
        let mut details: Vec<String> =
            entry.timestamp.map(|at| self.style.clock.time(at)).into_iter().collect();
        details.extend(entry.usage.as_ref().map(spent).filter(|spent| !spent.is_empty()));
        let details = self.paint(Paint::Dim, &details.join(" · "));
        writeln!(out, "{}\n{}{author}  {details}", self.margin, self.margin)
    }

    /// Writes an answer, as Markdown if the width of the terminal is known.
    fn prose(&self, out: &mut dyn Write, text: &str) -> io::Result<()> {
        let Some(columns) = self.room(2) else { return self.lines(out, text, None) };
        for line in prose::lines(text, columns, self.style.is_coloured) {
            writeln!(out, "{}", format!("{}  {line}", self.margin).trim_end())?;
        }
        Ok(())
    }

    /// Writes a text with the margin before every line.
    fn lines(&self, out: &mut dyn Write, text: &str, paint: Option<Paint>) -> io::Result<()> {
        let room = self.room(2).unwrap_or(usize::MAX);
        for line in plain(text).lines().flat_map(|line| wrap(line, room)) {
            match paint {
                Some(paint) => writeln!(out, "{}  {}", self.margin, self.paint(paint, &line))?,
                None => writeln!(out, "{}  {line}", self.margin)?,
            }
        }
        Ok(())
    }

    /// Returns the number of columns after the margin and an indentation, if the width of the terminal is known.
    fn room(&self, indent: usize) -> Option<usize> {
        let used = self.margin.chars().count() + indent;
        self.style.columns.map(|columns| columns.saturating_sub(used).max(MIN_COLUMNS))
    }

    /// Returns the name and target of a call in one line.
    #[must_use]
    pub fn call_line(&self, call: &ToolUse) -> String {
        ShownCall::of(&SavedTool::new(call.clone()), self.style.workspace.as_deref()).line()
    }

    /// Writes a call with its change and output, and how long it took if that is known.
    ///
    /// # Errors
    /// Fails if `out` does.
    pub fn call(&self, out: &mut dyn Write, tool: &SavedTool, took: Option<Millis>) -> io::Result<()> {
        let shown = ShownCall::of(tool, self.style.workspace.as_deref());
        let paint = match shown.status {
            Some(ToolStatus::Ok) => Paint::Green,
            Some(ToolStatus::Error) => Paint::Red,
            _ => Paint::Yellow,
        };
        let change = shown.change.as_ref();
        let lines = change.map(|c| format!(" (+{} -{})", c.added, c.removed)).unwrap_or_default();
        let word = if self.style.is_live && shown.status.is_none() { "" } else { tool::word(shown.status) };
        let took = took.map(|took| format!(" ({})", duration(took))).unwrap_or_default();
        let (start, mark) = (self.start(), self.paint(paint, "●"));
        writeln!(out, "{}", format!("{start}{mark} {}{lines} … {word}{took}", shown.line()).trim_end())?;
        if let Some(command) = shown.command.as_deref().filter(|command| command.lines().nth(1).is_some()) {
            self.output(out, command)?;
        }
        if let Some(change) = change {
            self.change(out, change)?;
            // A call may change several files.
            tool.call.diffs.iter().skip(1).try_for_each(|diff| self.requested_change(out, diff))?;
        }
        // In a run, the content of a file that was read or found says little.
        let failed = shown.status.is_some_and(ToolStatus::is_error);
        if shown.has_news() && (!self.style.is_brief || shown.command.is_some() || failed) {
            self.output(out, &shown.output)?;
        }
        let mut media = tool.result.iter().flat_map(|result| &result.media);
        media.try_for_each(|media| self.lines(out, &format!("  {}", describe_media(media)), Some(Paint::Dim)))
    }

    /// Writes the requested change of a file with its path.
    ///
    /// # Errors
    /// Fails if `out` does.
    pub fn requested_change(&self, out: &mut dyn Write, diff: &Diff) -> io::Result<()> {
        let change = ShownChange::of_call(diff).unwrap_or_default();
        let kind = if diff.old.is_none() { "new file, " } else { "" };
        let path = tool::relative(&diff.path, self.style.workspace.as_deref());
        let line = format!("{} ({kind}+{} -{})", plain(path), change.added, change.removed);
        writeln!(out, "{}  {}", self.start(), self.paint(Paint::Bold, &line))?;
        self.change(out, &change)
    }

    /// Returns the beginning of the line of a call.
    fn start(&self) -> String {
        format!("{}{}", self.margin, if self.style.is_flush_left { "" } else { "  " })
    }

    /// Writes the output of a tool, without its middle if outputs are shortened.
    fn output(&self, out: &mut dyn Write, text: &str) -> io::Result<()> {
        let text = plain(text.trim_end());
        let count = text.lines().count();
        let write = |out: &mut dyn Write, line: &str| {
            writeln!(out, "{}  {}", self.start(), self.paint(Paint::Dim, line))
        };
        if self.style.is_brief {
            let skipped = count.saturating_sub(BRIEF_OUTPUT);
            if skipped > 0 {
                write(out, &format!("… {}", counted(skipped, "line")))?;
            }
            return text.lines().skip(skipped).try_for_each(|line| write(out, line));
        }
        let Some(hint) = self.style.shortened.filter(|_| count > HEAD + TAIL + 1) else {
            return text.lines().try_for_each(|line| write(out, line));
        };
        text.lines().take(HEAD).try_for_each(|line| write(out, line))?;
        write(out, &format!("… {} more lines; {hint}", count - HEAD - TAIL))?;
        text.lines().skip(count - TAIL).try_for_each(|line| write(out, line))
    }

    fn change(&self, out: &mut dyn Write, change: &ShownChange) -> io::Result<()> {
        let last = change.hunks.iter().flatten().filter_map(|line| line.numbers.1.max(line.numbers.0)).max();
        let width = if change.numbered { last.unwrap_or(0).to_string().len() } else { 0 };
        let mut left = if self.style.is_brief { BRIEF_CHANGE } else { usize::MAX };
        for (i, hunk) in change.hunks.iter().enumerate() {
            if i > 0 && left > 0 {
                writeln!(out, "{}  {}", self.start(), self.paint(Paint::Dim, "⋯"))?;
            }
            for line in hunk.iter().take(left) {
                self.changed_line(out, line, width)?;
            }
            left = left.saturating_sub(hunk.len());
        }
        let hidden = change.hunks.iter().map(Vec::len).sum::<usize>().saturating_sub(BRIEF_CHANGE);
        if self.style.is_brief && hidden > 0 {
            let line = format!("… {}", counted(hidden, "more line"));
            writeln!(out, "{}  {}", self.start(), self.paint(Paint::Dim, &line))?;
        }
        Ok(())
    }

    fn changed_line(&self, out: &mut dyn Write, line: &DiffLine, width: usize) -> io::Result<()> {
        let number = line.numbers.1.or(line.numbers.0).filter(|_| width > 0);
        let number = number.map(|n| format!("{n:>width$} ")).unwrap_or_default();
        let text = plain(&line.text);
        let rendered = format!("{}{text}", line.sign.mark());
        let rendered = match line.sign {
            DiffSign::Same => rendered,
            DiffSign::Added => self.paint(Paint::Green, &rendered),
            DiffSign::Removed => self.paint(Paint::Red, &rendered),
        };
        writeln!(out, "{}  {}{rendered}", self.start(), self.paint(Paint::Dim, &number))
    }

    fn paint(&self, paint: Paint, text: &str) -> String {
        painted(self.style.is_coloured && !text.is_empty(), paint, text)
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
pub(super) fn describe_media(media: &Media) -> String {
    let size = media.data.as_ref().map(|data| format!(", {} bytes", grouped(data.len() as u64 * 3 / 4)));
    let location = media.uri.as_ref().map(|uri| format!(", {uri}"));
    format!("[{}{}{}]", media.mime_type, size.unwrap_or_default(), location.unwrap_or_default())
}

/// Formats a count with its noun, such as `1 prompt` and `2 prompts`.
pub(super) fn counted(count: usize, noun: &str) -> String {
    format!("{} {noun}{}", grouped(count as u64), if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::{super::sample, *};
    use agentline_core::PriceTable;

    fn render(detail: SessionDetail, style: impl FnOnce(TextStyle) -> TextStyle) -> String {
        let style = style(TextStyle::new(detail, TimeFormat::utc()));
        let (session, children) = sample::session();
        let mut out = Vec::new();
        text(&mut out, &SessionTree::new(&session, &children, &PriceTable::default()), style).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn session_is_rendered_as_a_conversation() {
        sample::same("sample.txt", &render(SessionDetail::default(), |style| style));
    }

    #[test]
    fn all_details_are_shown_on_request() {
        let all = SessionDetail::default().context(true).thinking(true).subagents(true);
        sample::same("sample.all.txt", &render(all, |style| style));
    }

    #[test]
    fn tool_outputs_are_truncated_on_a_terminal() {
        let detail = SessionDetail::default();
        let text = render(detail, |style| style.shortened(Some("pass --full to see them")).coloured(true));
        assert!(text.contains("… 18 more lines; pass --full to see them"), "{text}");
        assert!(text.contains("\u{1b}[32m+"), "{text}");
        assert!(!render(detail, |style| style).contains("more lines"));
    }
}
