//! Reads OpenCode's saved sessions: the output of `opencode export`, and rows of its database in the same form.
//!
//! A database record is `{"session": info}` or `{"message": {"info": …, "parts": […]}}`, with the same objects as in an
//! export. A repeated message replaces the earlier one with its id.

use super::session_message::{self, MessageWire, PartSelection};
use crate::{
    Entry, RawJson, ReadError, SavedSession, SessionReader,
    wire::{List, Num, Str, Tolerant as _, mend_surrogates, wire},
};
use serde_json::value::RawValue;
use std::{cmp::Ordering, collections::BTreeMap};

wire! { struct Export<'a> { info: Info<'a> = "info", messages: List<&'a RawValue> = "messages" } }
wire! { struct Record<'a> { session: Option<&'a RawValue> = "session", message: Option<&'a RawValue> = "message" } }
wire! { struct Info<'a> {
    id: Str<'a> = "id",
    parent: Str<'a> = "parentID",
    directory: Str<'a> = "directory",
    title: Str<'a> = "title",
    version: Str<'a> = "version",
    cost: Option<&'a RawValue> = "cost",
    model: Model<'a> = "model",
    revert: Revert<'a> = "revert",
    time: Times<'a> = "time",
} }
wire! { struct Model<'a> { id: Str<'a> = "id" } }
wire! { struct Revert<'a> { message: Str<'a> = "messageID", part: Str<'a> = "partID" } }

wire! { struct Times<'a> { created: Num = "created", updated: Num = "updated" } }

/// Prefixes of placeholder titles.
const NO_TITLES: &[&str] = &["New session - ", "Child session - "];

/// Reads an export or the rows of a database.
#[derive(Debug, Default)]
pub(super) struct OpenCodeReader {
    session: SavedSession,
    /// All messages in order, including undone ones.
    messages: Vec<StoredMessage>,
    /// The creation time of each message by its id.
    created_at: BTreeMap<String, u64>,
    /// The model in the session's own record.
    recorded_model: Option<String>,
    /// The message and part from which everything is undone. The user may still redo it.
    undone_from: Option<(String, String)>,
    records: u64,
}

/// One message and the number of its entries.
#[derive(Clone, Debug)]
struct StoredMessage {
    created_at: u64,
    id: String,
    record: RawJson,
    entries: usize,
}

impl SessionReader for OpenCodeReader {
    fn take(&mut self, record: RawJson) {
        self.records += 1;
        let record = match mend_surrogates(record.as_str()) {
            Some(mended) => RawJson::new(mended),
            None => record,
        };
        let text = record.as_str();
        if let Ok(one) = serde_json::from_str::<Record<'_>>(text)
            && (one.session.is_some() || one.message.is_some())
        {
            if let Some(info) = one.session {
                self.info(info.get());
            }
            if let Some(message) = one.message.and_then(|message| record.part_of(message.get())) {
                self.message(message);
            }
            return;
        }
        match serde_json::from_str::<Export<'_>>(text) {
            Ok(export) if export.is_object() && export.info.is_object() => {
                self.head(export.info);
                for message in export.messages.0 {
                    if let Some(message) = record.part_of(message.get()) {
                        self.message(message);
                    }
                }
            }
            Ok(_) => self.damaged("not a session of OpenCode"),
            Err(e) => {
                self.rescue(&record);
                self.damaged(format!("not JSON: {e}"));
            }
        }
    }

    fn session(&self) -> &SavedSession {
        &self.session
    }

    fn finish(self: Box<Self>) -> SavedSession {
        self.session
    }
}

impl OpenCodeReader {
    pub(super) fn new() -> Self {
        let mut fold = Self::default();
        fold.session.info.agent = crate::agents::opencode::INFO.id.into();
        fold
    }

    fn damaged(&mut self, message: impl Into<String>) {
        let line = (self.records > 1).then_some(self.records);
        self.session.damage.push(ReadError::new(line, message));
    }

    fn info(&mut self, text: &str) {
        match serde_json::from_str::<Info<'_>>(text) {
            Ok(info) if info.is_object() => self.head(info),
            Ok(_) => self.damaged("session is not an object"),
            Err(e) => self.damaged(format!("session is not JSON: {e}")),
        }
    }

    fn head(&mut self, wire: Info<'_>) {
        let filled = |text: Str<'_>| Some(text.own()).filter(|text| !text.is_empty());
        let info = &mut self.session.info;
        info.id = wire.id.own();
        info.project = filled(wire.directory);
        info.parent = filled(wire.parent);
        info.agent_version = filled(wire.version);
        info.title = filled(wire.title).filter(|t| !NO_TITLES.iter().any(|no| t.starts_with(no)));
        info.started = wire.time.created.0;
        info.updated = wire.time.updated.0;
        info.cost_usd = wire.cost.and_then(session_message::dollars);
        let undone = filled(wire.revert.message).map(|message| (message, wire.revert.part.own()));
        if undone != self.undone_from {
            self.undone_from = undone;
            self.rebuild();
        }
        self.recorded_model = filled(wire.model.id);
        self.name_model();
    }

    /// Reads every complete message of a truncated export.
    fn rescue(&mut self, record: &RawJson) {
        let text = record.as_str();
        if let Some((info, _)) = text.split_once("\"info\"").and_then(|(_, rest)| first_object(rest)) {
            self.info(info);
        }
        let Some((_, mut rest)) = text.split_once("\"messages\"") else { return };
        while let Some((object, behind)) = first_object(rest) {
            if let Some(message) = record.part_of(object) {
                self.message(message);
            }
            rest = behind;
        }
    }

    fn message(&mut self, record: RawJson) {
        let wire = match serde_json::from_str::<MessageWire<'_>>(record.as_str()) {
            Ok(wire) if !wire.info.id.is_empty() => wire,
            Ok(_) => return self.damaged("message has no id"),
            Err(e) => return self.damaged(format!("message is not JSON: {e}")),
        };
        let created_at = wire.info.time.created.0.unwrap_or(0);
        let id = wire.info.id.to_string();
        let entries = match self.undone_from.as_ref().map(|undone| remaining_parts(&id, undone)) {
            None => session_message::entries(&record, wire, PartSelection::All),
            Some(Some(selection)) => session_message::entries(&record, wire, selection),
            Some(None) => Vec::new(),
        };
        self.forget(&id);
        self.created_at.insert(id.clone(), created_at);
        let at = self.messages.partition_point(|m| (m.created_at, &m.id) < (created_at, &id));
        let from = self.entries_before(at);
        self.messages
            .insert(at, StoredMessage { created_at, id, record: record.clone(), entries: entries.len() });
        self.session.entries.splice(from..from, entries);
        self.abandon();
        self.name_model();
    }

    /// Removes a message that is about to be replaced.
    fn forget(&mut self, id: &String) {
        let Some(created_at) = self.created_at.remove(id) else { return };
        let at = self.messages.partition_point(|m| (m.created_at, &m.id) < (created_at, id));
        let from = self.entries_before(at);
        let old = self.messages.remove(at);
        self.session.entries.drain(from..from + old.entries);
    }

    fn entries_before(&self, at: usize) -> usize {
        let behind: usize = self.messages[at..].iter().map(|m| m.entries).sum();
        self.session.entries.len() - behind
    }

    /// Rebuilds all entries after the undo position has changed.
    fn rebuild(&mut self) {
        self.session.entries.clear();
        for stored in &mut self.messages {
            let selection = self
                .undone_from
                .as_ref()
                .map_or(Some(PartSelection::All), |undone| remaining_parts(&stored.id, undone));
            let entries =
                selection.map(|selection| reread_entries(&stored.record, selection)).unwrap_or_default();
            stored.entries = entries.len();
            self.session.entries.extend(entries);
        }
        self.abandon();
    }

    /// Collects the undone messages. They are not part of the conversation, but their tokens were used.
    fn abandon(&mut self) {
        self.session.abandoned.clear();
        let Some((message, part)) = &self.undone_from else { return };
        for stored in self.messages.iter().filter(|stored| stored.id >= *message) {
            let from = stored.id == *message && !part.is_empty();
            let selection = if from { PartSelection::From(part) } else { PartSelection::All };
            self.session.abandoned.extend(reread_entries(&stored.record, selection));
        }
    }

    fn name_model(&mut self) {
        let last = self.session.entries.iter().rev().find_map(|entry| entry.model.clone());
        self.session.info.model = last.or_else(|| self.recorded_model.clone());
    }
}

/// Returns the parts of a message that remain after an undo, or `None` if none remain.
fn remaining_parts<'a>(id: &str, (message, part): &'a (String, String)) -> Option<PartSelection<'a>> {
    match id.cmp(message) {
        Ordering::Less => Some(PartSelection::All),
        Ordering::Equal if !part.is_empty() => Some(PartSelection::Before(part)),
        _ => None,
    }
}

/// Returns the entries of a record that was already read.
fn reread_entries(record: &RawJson, selection: PartSelection<'_>) -> Vec<Entry> {
    let wire = serde_json::from_str(record.as_str());
    wire.map(|wire| session_message::entries(record, wire, selection)).unwrap_or_default()
}

/// Returns the first complete object of a text and the text after it.
fn first_object(text: &str) -> Option<(&str, &str)> {
    let text = &text[text.find('{')?..];
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<serde::de::IgnoredAny>();
    values.next()?.ok()?;
    Some(text.split_at(values.byte_offset()))
}
