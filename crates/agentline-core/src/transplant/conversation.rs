//! The part of a session that a writer transfers: prompts, answers with their tool calls and results, and notices.

use crate::{Entry, EntryPart, Millis, Role, SavedResult, SavedSession, ToolStatus, ToolTable, ToolUse};
use serde_json::{Value, value::RawValue};
use std::collections::HashSet;

/// The result of a call that has none: services refuse a conversation with an unanswered call.
const NO_RESULT: &str = "(the session ended before this call returned)";

/// The maximum length of a tool name or call id that every service accepts.
const LONGEST_NAME: usize = 64;

/// The entries of a session that belong to the conversation, in a form that every service accepts.
pub(crate) struct TransplantSource {
    /// The entries, each with at least one part and a time that is not before the previous one.
    pub(crate) entries: Vec<Entry>,
}

impl TransplantSource {
    /// Selects the entries that are transferred. Context that the source agent added for its model, side chains and
    /// results without a call are left out. Every call has a unique id and a result.
    pub(crate) fn of(session: &SavedSession, now: Millis) -> Self {
        let mut ids = CallIds::default();
        let mut last = session.info.started.unwrap_or(0);
        let mut entries = Vec::new();
        for entry in session.loaded_entries() {
            if entry.context || entry.sidechain || entry.results_only {
                continue;
            }
            let mut entry = entry.into_owned();
            entry.parts.retain_mut(|part| match part {
                EntryPart::Text { text } => !text.trim().is_empty(),
                EntryPart::Thinking { text, .. } => !text.trim().is_empty(),
                EntryPart::Tool(tool) if tool.has_call() => {
                    tool.call.id = ids.unique(&tool.call.id);
                    let missing = || SavedResult::new(ToolStatus::Cancelled, NO_RESULT);
                    tool.result.get_or_insert_with(missing);
                    true
                }
                EntryPart::Tool(_) => false,
                EntryPart::Media(_) => true,
            });
            last = entry.timestamp.unwrap_or(last).max(last).min(now);
            entry.timestamp = Some(last);
            if !entry.parts.is_empty() {
                entries.push(entry);
            }
        }
        Self { entries }
    }

    /// Returns the first prompt, on one line.
    pub(crate) fn first_prompt(&self) -> Option<String> {
        let text = self.entries.iter().find(|entry| entry.role == Role::User)?.text();
        Some(text.split_whitespace().collect::<Vec<_>>().join(" "))
    }
}

/// The ids that were assigned to calls.
#[derive(Default)]
struct CallIds(HashSet<String>);

impl CallIds {
    fn unique(&mut self, id: &str) -> String {
        let wanted = accepted_name(id);
        let wanted = if wanted.is_empty() { "call".to_owned() } else { wanted };
        let numbered = (2..).map(|number| {
            let end = format!("_{number}");
            let start: String = wanted.chars().take(LONGEST_NAME - end.len()).collect();
            start + &end
        });
        let mut names = std::iter::once(wanted.clone()).chain(numbered);
        names.find(|name| self.0.insert(name.clone())).unwrap_or(wanted)
    }
}

/// Returns a name in the characters and the length that every service accepts.
fn accepted_name(name: &str) -> String {
    let accepted = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' };
    name.chars().take(LONGEST_NAME).map(accepted).collect()
}

/// A call in the words of the target.
pub(crate) struct TransplantedTool {
    /// The target's name of the tool, or the source's name if the target has no such tool.
    pub(crate) name: String,
    /// The arguments, which are always an object.
    pub(crate) input: Value,
}

impl TransplantedTool {
    /// Translates a call. Of several tools with the same meaning, the first one that keeps all arguments is taken.
    pub(crate) fn of(call: &ToolUse, table: &ToolTable) -> Self {
        let empty = || Value::Object(serde_json::Map::new());
        let canonical = call.input.as_deref().or(call.raw_input.as_deref());
        let native_of = |native: &str| canonical.map(|input| table.native_input(native, input));
        let keeps_all = |native: &&str| {
            let read = table.tool_use("", native, native_of(native).as_deref());
            read.name == call.name && same(read.input.as_deref(), canonical)
        };
        let exact = table.natives(&call.name).find(keeps_all).map(str::to_owned);
        let native = exact.or_else(|| table.native(&call.name));
        let input = match &native {
            Some(native) => native_of(native),
            None => canonical.map(ToOwned::to_owned),
        };
        let name = native.unwrap_or_else(|| call.name.clone());
        let value = input.and_then(|input| serde_json::from_str(input.get()).ok()).unwrap_or_else(empty);
        let input = if value.is_object() { value } else { serde_json::json!({"input": value}) };
        Self { name: accepted_name(&name), input }
    }
}

fn same(one: Option<&RawValue>, other: Option<&RawValue>) -> bool {
    let value = |raw: Option<&RawValue>| raw.and_then(|raw| serde_json::from_str::<Value>(raw.get()).ok());
    value(one) == value(other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_unique_and_in_accepted_characters() {
        let mut ids = CallIds::default();
        let long = "x".repeat(100);
        let all: Vec<String> = ["a b", "a_b", "", "", &long, &long].map(|id| ids.unique(id)).into();
        assert_eq!(all[..4], ["a_b", "a_b_2", "call", "call_2"]);
        assert_eq!(all[4].len(), LONGEST_NAME);
        assert!(all[5].len() == LONGEST_NAME && all[5].ends_with("_2"));
    }
}
