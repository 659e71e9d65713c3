//! Stores the content of entries outside memory, so that a session may be larger than memory.

use super::{Entry, EntryPart, SavedSession};
use crate::{RawJson, ToolUse};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::DeserializeOwned};
use std::{borrow::Cow, fmt, ops::Range, sync::Arc};

/// How many bytes of records a reader holds before it moves content to a store.
pub const MAX_CONTENT_IN_MEMORY: usize = 8 << 20;

/// A store for bytes outside memory, such as a temporary file.
pub trait ContentStore: Send + Sync {
    /// Writes bytes and returns their location, or `None` if they cannot be written.
    fn write(&self, bytes: &[u8]) -> Option<Range<u64>>;

    /// Reads bytes from a location, or returns `None` if they cannot be read.
    fn read(&self, range: Range<u64>) -> Option<Vec<u8>>;
}

/// A value in a store.
#[derive(Clone)]
pub(crate) struct Stored {
    store: Arc<dyn ContentStore>,
    range: Range<u64>,
}

impl Stored {
    pub(crate) fn write(store: &Arc<dyn ContentStore>, value: &impl Serialize) -> Option<Self> {
        let range = store.write(&serde_json::to_vec(value).ok()?)?;
        Some(Self { store: Arc::clone(store), range })
    }

    /// Returns whether a value equals the stored one.
    fn holds(&self, value: &impl Serialize) -> bool {
        let stored = self.store.read(self.range.clone());
        stored.is_some() && stored == serde_json::to_vec(value).ok()
    }

    pub(crate) fn read<T: DeserializeOwned>(&self) -> Option<T> {
        serde_json::from_slice(&self.store.read(self.range.clone())?).ok()
    }
}

impl fmt::Debug for Stored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stored({:?})", self.range)
    }
}

/// The content of an entry in a store.
#[derive(Clone, Debug)]
pub(super) struct StoredContent {
    stored: Stored,
    has_parts: bool,
}

impl Entry {
    /// Moves the parts and records to a store; [`loaded`](Self::loaded) returns the entry with them.
    ///
    /// An entry that cannot be written stays in memory.
    pub fn offload(&mut self, store: &Arc<dyn ContentStore>) {
        if self.content.is_some() || (self.parts.is_empty() && self.originals.is_empty()) {
            return;
        }
        let Some(stored) = write_content(store, &self.parts, &self.originals) else { return };
        self.content = Some(StoredContent { stored, has_parts: !self.parts.is_empty() });
        (self.parts, self.originals) = (Vec::new(), Vec::new());
    }

    /// Moves the parts and records back into memory. If they cannot be read, a text part says so.
    pub fn load(&mut self) {
        if let Some(content) = self.content.take() {
            (self.parts, self.originals) = read_content(&content.stored)
                .unwrap_or_else(|| (vec![EntryPart::text(LOST_CONTENT)], Vec::new()));
        }
    }

    /// Returns the entry with its parts and records, loaded from the store if necessary.
    #[must_use]
    pub fn loaded(&self) -> Cow<'_, Self> {
        if self.content.is_none() {
            return Cow::Borrowed(self);
        }
        let mut entry = self.clone();
        entry.load();
        Cow::Owned(entry)
    }

    /// Returns the parts and records in the store as JSON, or `None` if they are in memory.
    pub(crate) fn stored_text(&self) -> Option<String> {
        let stored = &self.content.as_ref()?.stored;
        String::from_utf8(stored.store.read(stored.range.clone())?).ok()
    }

    /// Changes an entry, and writes it back if its content was in a store and has changed.
    pub(crate) fn update(&mut self, change: impl FnOnce(&mut Self)) {
        let before = self.content.clone();
        self.load();
        change(self);
        let Some(before) = before else { return };
        let originals: Vec<&str> = self.originals.iter().map(RawJson::as_str).collect();
        if before.stored.holds(&(&self.parts, originals)) {
            self.content = Some(before);
            (self.parts, self.originals) = (Vec::new(), Vec::new());
        } else {
            self.offload(&before.stored.store);
        }
    }

    /// Returns whether the entry has no parts, in memory or in a store.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty() && self.content.as_ref().is_none_or(|content| !content.has_parts)
    }
}

impl SavedSession {
    /// Moves the content of all entries to a store.
    pub fn offload(&mut self, store: &Arc<dyn ContentStore>) {
        self.entries.iter_mut().chain(&mut self.abandoned).for_each(|entry| entry.offload(store));
    }

    /// Moves the content of all entries back into memory.
    pub fn load(&mut self) {
        self.entries.iter_mut().chain(&mut self.abandoned).for_each(Entry::load);
    }

    /// Returns every entry with its content, one at a time.
    pub fn loaded_entries(&self) -> impl Iterator<Item = Cow<'_, Entry>> {
        self.entries.iter().map(Entry::loaded)
    }
}

/// The placeholder for content that cannot be read back.
pub(crate) const LOST_CONTENT: &str = "(agentline could not read this back from its temporary file)";

/// Writes parts and records to a store.
pub(crate) fn write_content<P: Serialize>(
    store: &Arc<dyn ContentStore>,
    parts: &[P],
    originals: &[RawJson],
) -> Option<Stored> {
    let originals: Vec<&str> = originals.iter().map(RawJson::as_str).collect();
    Stored::write(store, &(parts, originals))
}

/// Reads parts and records from a store.
pub(crate) fn read_content<P: DeserializeOwned>(stored: &Stored) -> Option<(Vec<P>, Vec<RawJson>)> {
    let (parts, originals): (Vec<P>, Vec<String>) = stored.read()?;
    Some((parts, originals.into_iter().map(RawJson::new).collect()))
}

/// Serializes a record as text, because it need not be JSON.
pub(super) mod record {
    use super::*;

    pub(crate) fn serialize<S: Serializer>(
        record: &Option<RawJson>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        record.as_ref().map(RawJson::as_str).serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<RawJson>, D::Error> {
        Ok(Option::<String>::deserialize(deserializer)?.map(RawJson::new))
    }
}

/// Serializes a call with the fields that its event does not show.
pub(super) mod call {
    use super::*;

    pub(crate) fn serialize<S: Serializer>(call: &ToolUse, serializer: S) -> Result<S::Ok, S::Error> {
        (call, call.kind, &call.path).serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ToolUse, D::Error> {
        let (mut call, kind, path): (ToolUse, _, _) = Deserialize::deserialize(deserializer)?;
        (call.kind, call.path) = (kind, path);
        Ok(call)
    }
}

/// A store in memory.
#[cfg(test)]
#[derive(Default)]
pub(crate) struct MemoryStore(std::sync::Mutex<Vec<u8>>);

#[cfg(test)]
impl ContentStore for MemoryStore {
    fn write(&self, bytes: &[u8]) -> Option<Range<u64>> {
        let mut all = self.0.lock().ok()?;
        let start = all.len();
        all.extend_from_slice(bytes);
        Some(start as u64..all.len() as u64)
    }

    fn read(&self, range: Range<u64>) -> Option<Vec<u8>> {
        let range = usize::try_from(range.start).ok()?..usize::try_from(range.end).ok()?;
        self.0.lock().ok()?.get(range).map(<[u8]>::to_vec)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Media, Role, SavedDiff, SavedResult, SavedTool, ToolKind, ToolStatus};
    use serde_json::value::RawValue;

    fn full_entry() -> Entry {
        let raw = |text: &str| RawValue::from_string(text.to_owned()).ok();
        let mut call = ToolUse::new("c1", "Edit", "replace", ToolKind::Edit);
        (call.input, call.raw_input, call.path) = (raw("{\"a\": [1,  2]}"), raw("1e2"), Some("a.rs".into()));
        let mut tool = SavedTool::new(call);
        let mut result = SavedResult::new(ToolStatus::Error, "no \u{0}\u{fffd}");
        result.media.push(Media::new("image/png", Some("AAAA".into()), None));
        (result.raw, result.timestamp) = (raw("{ }"), Some(7));
        result.original = Some(RawJson::new("{\"lone\":\"\\ud800\"}"));
        tool.result = Some(result);
        tool.diff = Some(SavedDiff { path: "a.rs".into(), new: Some("x".into()), ..SavedDiff::default() });
        let mut entry = Entry::new("1", Role::Assistant);
        entry.parts = vec![
            EntryPart::text("said"),
            EntryPart::Thinking { text: "hm".into(), signature: Some("s".into()) },
            EntryPart::Tool(Box::new(tool)),
            EntryPart::Media(Media::new("image/png", None, Some("file:a".into()))),
        ];
        entry.originals = vec![RawJson::new("no json"), RawJson::new("{\"a\":1}")];
        entry
    }

    #[test]
    fn stored_entry_round_trips() {
        let (before, memory) = (full_entry(), Arc::new(MemoryStore::default()));
        let store = Arc::clone(&memory) as Arc<dyn ContentStore>;
        let mut entry = before.clone();
        entry.offload(&store);
        assert!(entry.parts.is_empty() && entry.originals.is_empty() && !entry.is_empty());
        assert_eq!(format!("{:?}", entry.loaded()), format!("{before:?}"));
        let length = || memory.0.lock().unwrap().len();
        let written = length();
        entry.update(|_| {});
        assert!(entry.parts.is_empty() && length() == written, "an unchanged entry is not written again");
        entry.update(|entry| entry.parts.truncate(1));
        assert!(entry.parts.is_empty() && length() > written);
        entry.load();
        assert_eq!((entry.parts.len(), entry.originals.len()), (1, 2));
    }

    #[test]
    fn missing_stored_content_is_reported() {
        let memory = Arc::new(MemoryStore::default());
        let mut entry = full_entry();
        entry.offload(&(Arc::clone(&memory) as Arc<dyn ContentStore>));
        memory.0.lock().unwrap().clear();
        assert_eq!(entry.loaded().text(), LOST_CONTENT);
    }
}
