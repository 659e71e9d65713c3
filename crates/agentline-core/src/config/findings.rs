//! The findings of reading settings: problems, and notices about unknown keys.

use crate::{Notice, Problem};

/// The treatment of unknown keys in a layer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum UnknownKeys {
    /// An unknown key causes a warning, because files outlive versions.
    #[default]
    Warn,
    /// A key that is similar to a known one is a problem; other unknown keys cause a warning.
    RefuseSimilar,
    /// An unknown key is a problem.
    Refuse,
}

/// The findings of reading the layers.
#[derive(Debug, Default)]
pub(super) struct Findings {
    pub(super) problems: Vec<Problem>,
    pub(super) notices: Vec<Notice>,
    /// A notice that the workspace has changed since the user trusted it.
    pub(super) trust_lost: Option<Notice>,
    /// The treatment of unknown keys in the layer that is being read.
    pub(super) unknown_keys: UnknownKeys,
}

impl Findings {
    /// Records a problem and returns `None`, as the setting then has no value.
    pub(super) fn refuse<T>(&mut self, problem: Problem) -> Option<T> {
        self.problems.push(problem);
        None
    }

    /// Refuses an unknown key or warns about it, and suggests the most similar known key.
    pub(super) fn unknown(&mut self, key: &str, source: &str, suggestion: Option<String>) {
        let (key, source) = (shorten(&one_line(key)), one_line(source));
        let is_refused = match self.unknown_keys {
            UnknownKeys::Warn => false,
            UnknownKeys::RefuseSimilar => suggestion.is_some(),
            UnknownKeys::Refuse => true,
        };
        let suggestion = suggestion.map(|name| format!("did you mean `{name}`?"));
        if is_refused {
            let hint = suggestion.unwrap_or_else(|| "remove it; docs/configuration.md lists the keys".into());
            self.problems.push(Problem::new(key, "is not a known key").hint(hint).source(source));
            return;
        }
        let suggestion = suggestion.map(|text| format!("; {text}")).unwrap_or_default();
        let message = format!("`{key}` is not a known key and is ignored (from {source}){suggestion}");
        self.notices.push(Notice::new("unknown_key", message));
    }
}

/// Escapes a text of unknown origin for a message: it stays on one line and cannot control a terminal.
#[must_use]
pub fn one_line(text: &str) -> String {
    let steers = |c: char| {
        c.is_control()
            || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{2028}' | '\u{2029}')
    };
    let escape = |c: char| if steers(c) { c.escape_default().to_string() } else { c.to_string() };
    text.chars().map(escape).collect()
}

/// Shortens a text for a message.
pub(super) fn shorten(text: &str) -> String {
    const MOST: usize = 80;
    if text.chars().count() <= MOST {
        return text.to_owned();
    }
    text.chars().take(MOST - 1).chain(['…']).collect()
}
