//! Assembles the messages of a session in order, with every tool call in the answer that made it, next to its result.

use super::{
    message::Message,
    record::{ChatRecord, RecordText},
    result,
};
use crate::agents::gemini::{parts::FunctionResponse, tools};
use crate::{
    ContentStore, Entry, EntryPart, RawJson, ReadError, Role, SavedSession, SavedTool, SessionInfo,
    saved::{LOST_CONTENT, Stored, read_content, write_content},
    time,
    wire::{Tolerant as _, mend_surrogates},
};
use std::{borrow::Cow, collections::HashMap, sync::Arc};

/// The entries assembled so far.
#[derive(Default)]
pub(super) struct EntryBuilder {
    entries: Vec<PendingEntry>,
    /// The position of each call by its id: the entry and the index of the part.
    calls: HashMap<String, (usize, usize)>,
    /// The last answer of the model.
    answer: Option<usize>,
}

struct PendingEntry {
    entry: Entry,
    /// The parts. `None` marks a call that was moved to the answer that made it.
    parts: Vec<Option<EntryPart>>,
    /// Whether the answer itself is missing and only results of its calls exist. Its id is that of the first call.
    is_unrecorded: bool,
    /// The location of the parts and records, if they are not in memory.
    stored: Option<Stored>,
}

impl EntryBuilder {
    /// Adds one record. Returns its length.
    pub(super) fn add_record(&mut self, record: &ChatRecord, damage: &mut Vec<ReadError>) -> usize {
        let Some(original) = record.text.read() else {
            damage.push(ReadError::new(
                None,
                format!("message {}: could not be read back from the temporary file", record.id),
            ));
            return 0;
        };
        let older = record.older.as_ref().and_then(RecordText::read);
        let (text, before) = (readable(&original), older.as_ref().map(readable));
        let older = before.as_deref().and_then(|text| serde_json::from_str::<Message<'_>>(text).ok());
        match serde_json::from_str::<Message<'_>>(&text) {
            Ok(mut message) => {
                if let Some(older) = older {
                    message.complete(older);
                }
                self.message(&record.id, &original, &message);
            }
            Err(error) => damage.push(ReadError::new(None, format!("message {}: {error}", record.id))),
        }
        original.as_str().len()
    }

    /// Moves the content of all entries to a store.
    pub(super) fn offload(&mut self, store: &Arc<dyn ContentStore>) {
        self.entries.iter_mut().for_each(|entry| entry.offload(store));
    }

    /// Returns an entry with its content loaded.
    fn loaded_entry(&mut self, at: usize) -> &mut PendingEntry {
        let entry = &mut self.entries[at];
        entry.load();
        entry
    }

    fn message(&mut self, id: &str, record: &RawJson, message: &Message<'_>) {
        let role = match &*message.kind {
            "user" => Role::User,
            "gemini" => Role::Assistant,
            _ => Role::System,
        };
        let mut entry = Entry::new(id, role);
        entry.timestamp = time::millis(&message.timestamp);
        entry.originals.push(record.clone());
        match role {
            Role::Assistant => {
                entry.model = message.model.as_ref().map(|m| m.to_string()).filter(|m| !m.is_empty());
                entry.usage = message.tokens.as_ref().filter(|t| t.is_object()).map(|t| t.tokens());
                entry.requests = entry.usage.map(|_| 1);
                entry.context = message.takes_summary();
                entry.counted_as = entry.usage.map(|_| id.to_owned());
                self.answer = Some(self.entries.len());
                self.entries.push(PendingEntry::new(entry, Vec::new()));
                self.answered(message.answer());
            }
            Role::User | Role::System => {
                let parts = message.prompt();
                entry.context = role == Role::User && message.is_context();
                let mut responses = message.content.responses().peekable();
                let only_responses = responses.peek().is_some() && parts.is_empty();
                for response in responses {
                    self.responded(response, record, entry.timestamp);
                }
                // A message that contains only tool results was not written by the user.
                if !only_responses {
                    self.entries.push(PendingEntry::new(entry, parts.into_iter().map(Some).collect()));
                }
            }
        }
    }

    /// Adds parts to the current answer.
    fn answered(&mut self, parts: Vec<EntryPart>) {
        let target = self.entries.len() - 1;
        for part in parts {
            let EntryPart::Tool(tool) = part else {
                self.loaded_entry(target).parts.push(Some(part));
                continue;
            };
            match self.calls.get(&tool.call.id).copied() {
                // Only the response to this call was known so far.
                Some((entry, at)) if !tool.call.id.is_empty() => {
                    if let Some(known) = self.loaded_entry(entry).tool(at) {
                        let SavedTool { call, result, diff } = *tool;
                        known.call = call;
                        known.result = result.or(known.result.take());
                        known.diff = diff.or(known.diff.take());
                    }
                }
                _ => self.add_tool(target, *tool),
            }
        }
    }

    fn add_tool(&mut self, target: usize, tool: SavedTool) {
        let position = self.loaded_entry(target).parts.len();
        self.calls.insert(tool.call.id.clone(), (target, position));
        self.entries[target].parts.push(Some(EntryPart::Tool(Box::new(tool))));
    }

    /// Adds the response to a call. The preceding answer must have made that call, so the call is moved there.
    fn responded(&mut self, response: &FunctionResponse<'_>, record: &RawJson, when: Option<crate::Millis>) {
        let found = self.calls.get(&*response.id).copied().filter(|_| !response.id.is_empty());
        let moved = found.and_then(|(source, at)| {
            self.loaded_entry(source).parts.get_mut(at)?.take().map(|part| (source, at, part))
        });
        let Some((source, at, EntryPart::Tool(mut tool))) = moved else {
            let mut tool =
                SavedTool::new(tools::TOOLS.tool_use(response.id.to_string(), &response.name, None));
            tool.result = Some(saved_result(response, record, when));
            let target = self.answer.unwrap_or_else(|| self.unrecorded(&response.id, record));
            self.add_tool(target, tool);
            return;
        };
        if tool.result.is_none() {
            tool.result = Some(saved_result(response, record, when));
        }
        let target = self.answer.unwrap_or(source);
        if target == source {
            self.entries[source].parts[at] = Some(EntryPart::Tool(tool));
            return;
        }
        let original = self.entries[source].entry.originals.first().cloned();
        self.loaded_entry(target).entry.originals.extend(original);
        self.add_tool(target, *tool);
    }

    /// Adds an answer for which only the result of a call is recorded.
    fn unrecorded(&mut self, id: &str, record: &RawJson) -> usize {
        let mut entry = Entry::new(id, Role::Assistant);
        entry.originals.push(record.clone());
        self.entries.push(PendingEntry { is_unrecorded: true, ..PendingEntry::new(entry, Vec::new()) });
        let target = self.entries.len() - 1;
        self.answer = Some(target);
        target
    }

    /// Builds the session from the entries. A rewritten list may lack the results of calls, which are then taken from
    /// `abandoned`.
    pub(super) fn into_session(
        mut self,
        mut abandoned: Self,
        mut info: SessionInfo,
        damage: Vec<ReadError>,
        store: Option<&Arc<dyn ContentStore>>,
    ) -> SavedSession {
        for (id, (entry, at)) in std::mem::take(&mut abandoned.calls) {
            if let Some((target, position)) = self.calls.get(&id)
                && let Some(tool) = self.entries[*target].tool(*position)
                && let Some(EntryPart::Tool(duplicate)) =
                    abandoned.loaded_entry(entry).parts.get_mut(at).and_then(Option::take)
            {
                tool.result = tool.result.take().or(duplicate.result);
                tool.diff = tool.diff.take().or(duplicate.diff);
            }
        }
        let (entries, mut abandoned) = (self.finish(store), abandoned.finish(store));
        info.model = entries.iter().rev().find_map(|entry| entry.model.clone());
        let contexts = || entries.iter().chain(&abandoned).filter(|entry| entry.context);
        info.project = info.project.or_else(|| contexts().find_map(|entry| folder(&entry.loaded().text())));
        abandoned.retain(|entry| !entry.context && (!entry.is_empty() || entry.usage.is_some()));
        SavedSession { info, entries, abandoned, damage }
    }

    fn finish(self, store: Option<&Arc<dyn ContentStore>>) -> Vec<Entry> {
        let finished = self.entries.into_iter().filter_map(PendingEntry::finish).map(|mut entry| {
            store.into_iter().for_each(|store| entry.offload(store));
            entry
        });
        finished.collect()
    }
}

impl PendingEntry {
    fn new(entry: Entry, parts: Vec<Option<EntryPart>>) -> Self {
        Self { entry, parts, is_unrecorded: false, stored: None }
    }

    fn offload(&mut self, store: &Arc<dyn ContentStore>) {
        if self.stored.is_none() {
            self.stored = write_content(store, &self.parts, &self.entry.originals);
        }
        if self.stored.is_some() {
            (self.parts, self.entry.originals) = (Vec::new(), Vec::new());
        }
    }

    fn load(&mut self) {
        let lost = || (vec![Some(EntryPart::text(LOST_CONTENT))], Vec::new());
        if let Some(stored) = self.stored.take() {
            (self.parts, self.entry.originals) = read_content(&stored).unwrap_or_else(lost);
        }
    }

    fn tool(&mut self, at: usize) -> Option<&mut SavedTool> {
        self.load();
        match self.parts.get_mut(at)? {
            Some(EntryPart::Tool(tool)) => Some(tool),
            _ => None,
        }
    }

    fn finish(mut self) -> Option<Entry> {
        self.load();
        let mut entry = self.entry;
        entry.parts = self.parts.into_iter().flatten().collect();
        if self.is_unrecorded {
            // The call with this id may have been moved to the answer that made it. Without calls, there is no entry.
            let first = entry.tools().next()?.call.id.clone();
            entry.id = first;
        }
        // Other stop reasons are not recorded.
        if entry.tools().next().is_some() {
            entry.stop_reason = Some("tool_use".to_owned());
        }
        Some(entry)
    }
}

/// Returns a record without unpaired surrogates, which are valid in JavaScript strings but not in Rust.
fn readable(record: &RawJson) -> Cow<'_, str> {
    let text = record.as_str();
    let mended = text.contains("\\ud").then(|| mend_surrogates(text)).flatten();
    mended.map_or(Cow::Borrowed(text), Cow::Owned)
}

fn saved_result(
    response: &FunctionResponse<'_>,
    record: &RawJson,
    when: Option<crate::Millis>,
) -> crate::SavedResult {
    let mut result = result::of_response(response);
    result.timestamp = when;
    result.original = Some(record.clone());
    result
}

/// Returns the first workspace directory in the context.
fn folder(context: &str) -> Option<String> {
    let (_, after) = context.split_once("**Workspace Directories:**")?;
    let line = after.lines().map(str::trim).find(|line| !line.is_empty())?;
    line.strip_prefix("- ").map(str::to_owned)
}
