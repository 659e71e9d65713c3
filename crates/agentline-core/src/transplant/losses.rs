//! What a transplanted session lost, measured by comparing it with its source.

use crate::{Entry, EntryPart, Media, Role, SavedSession, SavedTool};
use serde::Serialize;
use serde_json::{Value, value::RawValue};

/// A kind of content that a transplanted session may lose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum LossKind {
    /// Prompts or answers. No writer loses them; they are listed so that a mistake would show.
    Text,
    /// Tool calls.
    Calls,
    /// Names of tools that the target does not have, or spells differently.
    ToolNames,
    /// Arguments of tool calls.
    Arguments,
    /// Texts of tool results.
    Results,
    /// How tool calls ended, such as denied or cancelled.
    Statuses,
    /// Results whose calls are not in the session.
    ResultsWithoutCall,
    /// Images and other files.
    Media,
    /// Reasoning.
    Thinking,
    /// Signatures of reasoning, which only the model that made them accepts.
    Signatures,
    /// Messages from the agent itself, such as errors and interruptions.
    Notices,
    /// Stored changes to files, which are only displayed.
    Diffs,
    /// Context that the source agent added for its model.
    Context,
    /// The work of sub-agents in the same file.
    Sidechains,
    /// Branches that an edit or a rewind abandoned.
    Abandoned,
    /// Names of models.
    Models,
    /// Token counts and costs, which stay with the source session so that they are not counted twice.
    Usage,
    /// The title.
    Title,
}

impl LossKind {
    /// Every kind, the most important first.
    pub const ALL: &[Self] = &[
        Self::Text,
        Self::Calls,
        Self::ToolNames,
        Self::Arguments,
        Self::Results,
        Self::Statuses,
        Self::ResultsWithoutCall,
        Self::Media,
        Self::Thinking,
        Self::Signatures,
        Self::Notices,
        Self::Diffs,
        Self::Context,
        Self::Sidechains,
        Self::Abandoned,
        Self::Models,
        Self::Usage,
        Self::Title,
    ];

    /// Returns what is lost, as a plural.
    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            Self::Text => "texts",
            Self::Calls => "tool calls",
            Self::ToolNames => "tool names",
            Self::Arguments => "tool arguments",
            Self::Results => "tool results",
            Self::Statuses => "ends of tool calls",
            Self::ResultsWithoutCall => "results without a call",
            Self::Media => "images and files",
            Self::Thinking => "reasoning",
            Self::Signatures => "signatures",
            Self::Notices => "notices",
            Self::Diffs => "displayed changes",
            Self::Context => "context",
            Self::Sidechains => "sub-agent messages",
            Self::Abandoned => "abandoned messages",
            Self::Models => "model names",
            Self::Usage => "token counts",
            Self::Title => "title",
        }
    }

    /// Returns why it is lost.
    #[must_use]
    pub fn reason(self) -> &'static str {
        match self {
            Self::Text => "differ in the new session",
            Self::Calls => "are missing in the new session",
            Self::ToolNames => "the agent has no such tool, or another name for it",
            Self::Arguments => "the agent's tool has other arguments",
            Self::Results => "the agent stores them in another form",
            Self::Statuses => "the agent does not distinguish them, or the call had no result",
            Self::ResultsWithoutCall => "no agent accepts a result without its call",
            Self::Media => "the agent does not accept this kind of file there",
            Self::Thinking => "the agent's model accepts only its own reasoning",
            Self::Signatures => "only the model that made them accepts them",
            Self::Notices => "the agent has no place for them",
            Self::Diffs => "the agent stores them differently; they are only displayed",
            Self::Context => "the source agent added it for its own model; the new agent adds its own",
            Self::Sidechains => "the work of sub-agents is not part of the conversation",
            Self::Abandoned => "an edit or a rewind removed them from the conversation",
            Self::Models => "the agent has no place for them, or names its own model",
            Self::Usage => "stay with the source session, so that they are not counted twice",
            Self::Title => "the agent has no place for it",
        }
    }
}

/// Content that a transplanted session lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Loss {
    /// The kind of content.
    pub kind: LossKind,
    /// How many items of this kind are missing or differ.
    pub count: usize,
}

/// Compares a transplanted session with its source and returns what was lost, the most important first.
#[must_use]
pub fn transplant_losses(source: &SavedSession, result: &SavedSession) -> Vec<Loss> {
    let (old, new) = (Items::of(source), Items::of(result));
    let mut losses = Vec::new();
    let mut lost = |kind: LossKind, count: usize| {
        if count > 0 {
            losses.push(Loss { kind, count });
        }
    };
    lost(LossKind::Text, differing(&old.texts, &new.texts));
    lost(LossKind::Notices, differing(&old.notices, &new.notices));
    lost(LossKind::Thinking, differing(&old.thoughts, &new.thoughts));
    lost(LossKind::Signatures, old.signatures.saturating_sub(new.signatures));
    lost(LossKind::Media, differing(&old.media, &new.media));
    lost(LossKind::Models, usize::from(old.model != new.model && old.model.is_some()));
    lost(LossKind::Context, old.context.saturating_sub(new.context));
    lost(LossKind::Sidechains, old.sidechains);
    lost(LossKind::ResultsWithoutCall, old.orphans.saturating_sub(new.orphans));
    lost(LossKind::Abandoned, source.abandoned.len());
    lost(LossKind::Usage, usize::from(old.has_usage && !new.has_usage));
    let title = &source.info.title;
    lost(LossKind::Title, usize::from(title.is_some() && *title != result.info.title));
    lost(LossKind::Calls, old.tools.len().abs_diff(new.tools.len()));
    let count = |differs: fn(&SavedTool, &SavedTool) -> bool| {
        old.tools.iter().zip(&new.tools).filter(|(old, new)| differs(old, new)).count()
    };
    lost(LossKind::ToolNames, count(|old, new| old.call.name != new.call.name));
    lost(LossKind::Arguments, count(|old, new| arguments(old) != arguments(new)));
    lost(LossKind::Results, count(|old, new| old.result.is_some() && result_text(old) != result_text(new)));
    lost(LossKind::Statuses, count(|old, new| status(old) != status(new)));
    lost(LossKind::Diffs, count(|old, new| old.diff.is_some() && new.diff.is_none()));
    losses.sort_by_key(|loss| loss.kind);
    losses
}

/// The content of a session by kind, each in its order.
#[derive(Default)]
struct Items {
    texts: Vec<(bool, String)>,
    notices: Vec<String>,
    thoughts: Vec<String>,
    signatures: usize,
    media: Vec<Media>,
    tools: Vec<SavedTool>,
    orphans: usize,
    context: usize,
    sidechains: usize,
    has_usage: bool,
    model: Option<String>,
}

impl Items {
    fn of(session: &SavedSession) -> Self {
        let mut items = Self { model: session.info.model.clone(), ..Self::default() };
        items.has_usage = session.info.cost_usd.is_some_and(|cost| cost > 0.0);
        session.loaded_entries().for_each(|entry| items.add(&entry));
        items
    }

    fn add(&mut self, entry: &Entry) {
        self.has_usage |= entry.usage.is_some();
        if entry.sidechain {
            self.sidechains += 1;
            return;
        }
        if entry.context {
            self.context += 1;
            return;
        }
        for part in &entry.parts {
            match part {
                EntryPart::Text { text } if text.trim().is_empty() => {}
                EntryPart::Text { text } if entry.role == Role::System => self.notices.push(text.clone()),
                EntryPart::Text { text } => self.texts.push((entry.role == Role::User, text.clone())),
                EntryPart::Thinking { text, signature } => {
                    self.signatures += usize::from(signature.is_some());
                    self.thoughts.extend(Some(text.trim().to_owned()).filter(|text| !text.is_empty()));
                }
                EntryPart::Tool(tool) if tool.has_call() => {
                    self.media.extend(tool.result.iter().flat_map(|result| result.media.clone()));
                    self.tools.push((**tool).clone());
                }
                EntryPart::Tool(_) => self.orphans += 1,
                EntryPart::Media(media) => self.media.push(media.clone()),
            }
        }
    }
}

/// Returns how many items of the first list are not in the second, in the same order, and how many were added to it.
fn differing<T: PartialEq>(old: &[T], new: &[T]) -> usize {
    let mut rest = new.iter();
    let mut found = 0;
    for item in old {
        let mut ahead = rest.clone();
        if ahead.any(|other| other == item) {
            found += 1;
            rest = ahead;
        }
    }
    old.len().max(new.len()) - found
}

fn arguments(tool: &SavedTool) -> Option<Value> {
    let input: Option<&RawValue> = tool.call.input.as_deref().or(tool.call.raw_input.as_deref());
    let value = input.and_then(|input| serde_json::from_str::<Value>(input.get()).ok());
    // A call without arguments is stored as one with an empty object.
    value.filter(|value| !value.is_null() && value.as_object().is_none_or(|object| !object.is_empty()))
}

fn result_text(tool: &SavedTool) -> Option<&str> {
    tool.result.as_ref().map(|result| result.content.as_str())
}

fn status(tool: &SavedTool) -> Option<crate::ToolStatus> {
    tool.result.as_ref().map(|result| result.status)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differing_items_are_those_without_an_equal_in_the_same_order() {
        for (old, new, count) in [
            (vec![1, 2, 3], vec![1, 2, 3], 0),
            (vec![1, 2, 3], vec![1, 3], 1),
            (vec![1, 2], vec![2, 1], 1),
            (vec![], vec![1], 1),
            (vec![1], vec![2], 1),
            (vec![1], vec![], 1),
        ] {
            assert_eq!(differing(&old, &new), count, "{old:?} {new:?}");
        }
    }

    #[test]
    fn every_kind_is_listed_in_order() {
        assert!(LossKind::ALL.is_sorted());
        assert!(
            LossKind::ALL.contains(&LossKind::Title) && LossKind::ALL.len() == LossKind::Title as usize + 1
        );
    }
}
