//! One record of a session file, whose text may be in a store.

use crate::{ContentStore, RawJson, saved::Stored};
use std::sync::Arc;

/// One remaining record.
#[derive(Debug)]
pub(super) struct ChatRecord {
    pub(super) id: String,
    pub(super) text: RecordText,
    /// The earlier version, if the record was rewritten with less data. When a session is resumed in the minute in
    /// which it began, its earlier messages lose their tokens, model and timestamp.
    pub(super) older: Option<RecordText>,
}

/// The text of a record, in memory or in a store.
#[derive(Debug)]
pub(super) enum RecordText {
    InMemory(RawJson),
    Stored(Stored),
}

impl RecordText {
    pub(super) fn offload(&mut self, store: &Arc<dyn ContentStore>) {
        if let Self::InMemory(text) = self
            && let Some(stored) = Stored::write(store, &text.as_str())
        {
            *self = Self::Stored(stored);
        }
    }

    /// Returns the text, or `None` if the store has lost it.
    pub(super) fn read(&self) -> Option<RawJson> {
        match self {
            Self::InMemory(text) => Some(text.clone()),
            Self::Stored(stored) => stored.read::<String>().map(RawJson::new),
        }
    }
}

impl ChatRecord {
    pub(super) fn written_anew(self, text: RawJson) -> Self {
        let has_tokens = |text: &RawJson| text.as_str().contains("\"tokens\":{");
        let stays = has_tokens(&text) || self.text.read().as_ref() == Some(&text);
        let older = if stays { None } else { self.older.or(Some(self.text)) };
        Self { id: self.id, text: RecordText::InMemory(text), older }
    }
}
