//! Renders a saved session for people: as text, as Markdown, as an HTML page.
//!
//! Every function writes to a [`Write`](std::io::Write), such as a file or a `Vec<u8>`, and decides nothing about the
//! terminal: colors, shortening and the time zone are parameters.
//!
//! - [`text()`] writes a session as text; a [`TextRenderer`] writes the entries of a session that is being followed, and
//!   the tool calls of a run. A [`TerminalMarkdown`] writes an answer while it arrives.
//! - [`markdown()`] writes Markdown for GitHub.
//! - [`html()`] writes one self-contained page that runs no script but its own and loads nothing, and
//!   [`comparison_html()`] one that compares the outcomes of several agents.

mod commonmark;
mod diff;
mod facts;
mod markdown;
mod page;
mod prose;
#[cfg(test)]
mod sample;
mod text;
mod time;
mod tool;

use facts::SessionFigures;
pub use facts::{grouped, money};
pub use markdown::markdown;
pub use page::{comparison_html, html};
pub use prose::TerminalMarkdown;
pub use text::{EntryProgress, TextRenderer, TextStyle, text};
pub use time::TimeFormat;

use agentline_core::{Entry, PriceTable, SavedSession, Tokens, ToolKind, UsageEntry, session_usage};

/// A session with those of its sub-agents.
#[derive(Clone, Copy, Debug)]
pub struct SessionTree<'a> {
    /// The session itself.
    session: &'a SavedSession,
    /// The sessions of sub-agents that were saved separately, oldest first.
    children: &'a [SavedSession],
    /// Total tokens and cost.
    used: UsageEntry,
}

/// The details to show besides prompts and answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SessionDetail {
    /// Whether to show context that the agent added for the model only.
    pub context: bool,
    /// Whether to show reasoning.
    pub thinking: bool,
    /// Whether to show the work of sub-agents.
    pub subagents: bool,
}

impl SessionDetail {
    /// Sets whether to show context that the agent added for the model only.
    #[must_use]
    pub fn context(mut self, shown: bool) -> Self {
        self.context = shown;
        self
    }

    /// Sets whether to show reasoning.
    #[must_use]
    pub fn thinking(mut self, shown: bool) -> Self {
        self.thinking = shown;
        self
    }

    /// Sets whether to show the work of sub-agents.
    #[must_use]
    pub fn subagents(mut self, shown: bool) -> Self {
        self.subagents = shown;
        self
    }
}

/// One piece of a session, in display order.
#[derive(Clone, Debug)]
enum SessionPiece<'a> {
    /// An entry of the session.
    Entry(&'a Entry),
    /// The work of a sub-agent in the same file.
    Sidechain(&'a [Entry]),
    /// The work of a sub-agent in a session of its own.
    Child(&'a SavedSession),
}

impl<'a> SessionTree<'a> {
    /// Combines a session with those of its sub-agents, oldest first, and counts their tokens at these prices.
    #[must_use]
    pub fn new(session: &'a SavedSession, children: &'a [SavedSession], prices: &PriceTable) -> Self {
        let mut used = session_usage(session, prices).total;
        children.iter().for_each(|child| used.add(&session_usage(child, prices).total));
        Self { session, children, used }
    }

    /// Returns the total tokens, if any are known.
    fn tokens(&self) -> Option<Tokens> {
        Some(self.used.tokens).filter(|_| !self.used.is_empty())
    }

    /// Returns the requested pieces in display order.
    fn pieces(&self, detail: SessionDetail) -> impl Iterator<Item = SessionPiece<'a>> + use<'a> {
        let entries = &self.session.entries;
        let positions: Vec<usize> = self.children.iter().map(|child| position(entries, child)).collect();
        let children = if detail.subagents { self.children } else { &[] };
        let after = move |end: usize| {
            let children_here = children.iter().zip(positions.clone()).filter(move |(_, at)| *at == end);
            children_here.map(|(child, _)| SessionPiece::Child(child))
        };
        let mut from = 0;
        let runs = std::iter::from_fn(move || {
            let rest = entries.get(from..).filter(|rest| !rest.is_empty())?;
            let count = rest.iter().take_while(|entry| entry.sidechain).count();
            let length = count.max(1);
            from += length;
            Some((from, &rest[..length], count > 0))
        });
        let is_shown = move |entry: &Entry| detail.context || !entry.context;
        runs.flat_map(move |(end, run, is_sidechain)| {
            let piece = match run {
                _ if is_sidechain => detail.subagents.then_some(SessionPiece::Sidechain(run)),
                [entry, ..] if is_shown(entry) => Some(SessionPiece::Entry(entry)),
                _ => None,
            };
            piece.into_iter().chain(after(end))
        })
    }
}

/// Returns the number of entries before a sub-agent's work: up to and including the last sub-agent call before it
/// started.
fn position(entries: &[Entry], child: &SavedSession) -> usize {
    let calls = |entry: &Entry| entry.loaded().tools().any(|tool| tool.call.kind == ToolKind::Agent);
    let before = |entry: &Entry| match (entry.timestamp, child.info.started) {
        (Some(time), Some(began)) => time <= began,
        _ => true,
    };
    let call = entries.iter().rposition(|entry| calls(entry) && before(entry));
    call.or_else(|| entries.iter().rposition(calls)).map_or(entries.len(), |at| at + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use agentline_core::{EntryPart, Role, SavedTool, ToolUse};

    fn entry(id: &str, role: Role) -> Entry {
        let mut entry = Entry::new(id, role);
        entry.parts.push(EntryPart::text(id));
        entry
    }

    #[test]
    fn subagent_entries_follow_their_call() {
        let mut session = SavedSession::default();
        let mut context = entry("context", Role::User);
        context.context = true;
        let mut call = entry("call", Role::Assistant);
        let tool = SavedTool::new(ToolUse::new("1", "Task", "task", ToolKind::Agent));
        call.parts.push(EntryPart::Tool(Box::new(tool)));
        call.timestamp = Some(10);
        let mut sidechain = entry("aside", Role::Assistant);
        sidechain.sidechain = true;
        session.entries = vec![context, call, sidechain.clone(), sidechain, entry("end", Role::Assistant)];
        let mut child = SavedSession::default();
        child.info.started = Some(11);
        let children = [child];
        let tree = SessionTree::new(&session, &children, &PriceTable::default());
        let piece_names = |detail: SessionDetail| -> Vec<String> {
            let name = |piece| match piece {
                SessionPiece::Entry(entry) => entry.id.clone(),
                SessionPiece::Sidechain(run) => format!("aside of {}", run.len()),
                SessionPiece::Child(_) => "child".into(),
            };
            tree.pieces(detail).map(name).collect()
        };
        assert_eq!(piece_names(SessionDetail::default()), ["call", "end"]);
        let all = SessionDetail { context: true, thinking: true, subagents: true };
        assert_eq!(piece_names(all), ["context", "call", "child", "aside of 2", "end"]);
    }
}
