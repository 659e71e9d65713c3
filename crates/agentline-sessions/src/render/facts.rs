//! Counts about a session, and the formatting of numbers.

use super::SessionTree;
use agentline_core::{
    Entry, Role, SavedSession,
    terminal_text::{plain, shorten},
};

/// The maximum length of a title made from a prompt.
const LONGEST_TITLE: usize = 120;

/// Counts about a session, including its sub-agents.
#[derive(Clone, Debug, Default)]
pub(super) struct SessionFigures {
    /// The number of prompts.
    pub(super) prompts: usize,
    /// The number of answers.
    pub(super) answers: usize,
    /// The number of tool calls.
    pub(super) tools: usize,
    /// The number of tool calls that failed.
    pub(super) failed: usize,
    /// The models, in the order of their first answer.
    pub(super) models: Vec<String>,
    /// The number of sub-agents.
    pub(super) subagents: usize,
}

impl SessionFigures {
    pub(super) fn of(tree: &SessionTree<'_>) -> Self {
        let mut facts = Self::default();
        for entry in tree.session.loaded_entries() {
            facts.prompts += usize::from(entry.is_prompt());
            facts.add(&entry);
        }
        facts.subagents = tree.children.len();
        tree.children.iter().flat_map(SavedSession::loaded_entries).for_each(|entry| facts.add(&entry));
        facts
    }

    fn add(&mut self, entry: &Entry) {
        self.answers += usize::from(entry.role == Role::Assistant && !entry.parts.is_empty());
        for tool in entry.tools() {
            self.tools += 1;
            self.failed += usize::from(tool.result.as_ref().is_some_and(|result| result.status.is_error()));
        }
        if let Some(model) = entry.model.as_ref().filter(|model| !self.models.contains(model)) {
            self.models.push(model.clone());
        }
    }
}

/// Returns the title of a session: its own unless it looks like JSON, else the beginning of the first prompt.
pub(super) fn title(session: &SavedSession) -> String {
    let own = session
        .info
        .title
        .as_deref()
        .map(str::trim)
        .filter(|title| !title.is_empty() && !title.starts_with(['{', '[']));
    let prompts = || session.entries.iter().filter(|entry| entry.is_prompt());
    let prompt = || {
        let spoken = prompts().find(|entry| entry.command.is_none()).or_else(|| prompts().next());
        spoken.map(|entry| entry.loaded().text())
    };
    let text = own.map(str::to_owned).or_else(prompt).unwrap_or_default();
    let line = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or("(no prompt)");
    shorten(&plain(line), LONGEST_TITLE)
}

/// Formats a number with thousands separators: `12,345`.
#[must_use]
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats US dollars, with more decimals for small amounts.
#[must_use]
pub fn money(usd: f64) -> String {
    match usd {
        0.0 => "$0".into(),
        usd if usd < 0.01 => format!("${usd:.4}"),
        usd => format!("${usd:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use agentline_core::EntryPart;

    #[test]
    fn numbers_are_formatted_for_reading() {
        let shown = [0, 999, 1000, 1_234_567].map(grouped);
        assert_eq!(shown, ["0", "999", "1,000", "1,234,567"]);
        assert_eq!([0.0, 0.001_23, 1.5].map(money), ["$0", "$0.0012", "$1.50"]);
    }

    #[test]
    fn title_is_a_single_line() {
        let mut session = SavedSession::default();
        assert_eq!(title(&session), "(no prompt)");
        let mut prompt = Entry::new("1", Role::User);
        prompt.parts.push(EntryPart::text("\n  fix\u{1b}[2J it\nnow"));
        session.entries.push(prompt);
        assert_eq!(title(&session), "fix[2J it");
        session.info.title = Some("Fix".into());
        assert_eq!(title(&session), "Fix");
    }
}
