//! Reads saved sessions of Gemini CLI: lines that update each other (0.45 and later), or one value per file (0.11 to
//! 0.36).
//!
//! The reader tracks which records remain and where each one is in the text. Their content is parsed on
//! demand. So a record that was written ten times is parsed once, and each read of a growing session takes
//! time proportional to its length.
//!
//! A session may have several files: a resumed session gets a second one, an imported session is a copy, and a session
//! of an old version continues in a new file. As in the CLI, each file is read as a separate session: a later file
//! begins with an empty list of messages, which does not apply to the others.

mod message;
mod record;
pub(super) mod result;
mod skim;
mod story;

use crate::agents::gemini::sessions::record::{ChatRecord, RecordText};
use crate::agents::gemini::sessions::skim::RecordKeys;
use crate::agents::gemini::sessions::story::EntryBuilder;
use crate::agents::gemini::{Gemini, store, transplant, user};
use crate::{
    ContentStore, FileSystem, MAX_CONTENT_IN_MEMORY, Millis, ProjectRef, RawJson, ReadError, SavedSession,
    SessionFile, SessionFilePattern, SessionFormat, SessionInfo, SessionReader, SessionRoot, SessionSource,
    SessionWriter, time,
    wire::{Str, mend_surrogates},
};
use serde_json::{Error, value::RawValue};
use std::{
    cell::OnceCell,
    collections::{BTreeMap, HashMap, HashSet},
    path::{Path, PathBuf},
    sync::Arc,
};

impl SessionSource for Gemini {
    fn folder(&self, agent_home: &Path, cwd: &Path, fs: &dyn FileSystem) -> Option<PathBuf> {
        store::chats(agent_home, cwd, fs)
    }

    fn file_pattern(&self, folder: PathBuf, session: &str, _fs: &dyn FileSystem) -> SessionFilePattern {
        store::spot(folder, session)
    }

    fn file_name_at(&self, pattern: &SessionFilePattern, at: Millis) -> Option<String> {
        Some(store::file_name(pattern, at))
    }

    fn leftovers(
        &self,
        pattern: &SessionFilePattern,
        existed_before: &[PathBuf],
        fs: &dyn FileSystem,
    ) -> Vec<PathBuf> {
        store::twins(pattern, existed_before, fs)
    }

    fn abandoned(&self, pattern: &SessionFilePattern, fs: &dyn FileSystem) -> Vec<PathBuf> {
        store::empty_sessions(pattern, fs)
    }

    fn empty_duplicates(&self, folder: &Path, fs: &dyn FileSystem) -> Vec<(PathBuf, PathBuf)> {
        store::empty_duplicates(folder, fs)
    }

    fn roots(&self, env: &BTreeMap<String, String>, home: &Path, _fs: &dyn FileSystem) -> Vec<SessionRoot> {
        vec![store::root(&user::cli_home(env, home))]
    }

    fn file(&self, path: &Path) -> Option<SessionFile> {
        store::session_file(path)
    }

    fn project(&self, root: &Path, path: &Path, fs: &dyn FileSystem) -> Option<ProjectRef> {
        store::project(root, path, fs)
    }

    fn format(&self, head: &[u8]) -> Option<SessionFormat> {
        form(head)
    }

    fn reader(&self, format: SessionFormat) -> Option<Box<dyn SessionReader>> {
        matches!(format, SessionFormat::Lines | SessionFormat::Whole)
            .then(|| Box::new(GeminiReader::default()) as Box<dyn SessionReader>)
    }

    fn writer(&self) -> Option<SessionWriter> {
        Some(|session, context| Ok(transplant::write(session, context)))
    }

    fn provider(&self) -> Option<&'static str> {
        Some("google")
    }
}

/// Detects the storage format from the beginning of a file. Returns `None` if it is not a session of this agent.
fn form(head: &[u8]) -> Option<SessionFormat> {
    // The last character may be truncated.
    let text = match std::str::from_utf8(head) {
        Ok(text) => text,
        Err(e) => std::str::from_utf8(&head[..e.valid_up_to()]).unwrap_or_default(),
    };
    let text = text.trim_start_matches('\u{feff}');
    let (whole, _) = skim::skim(text);
    let is_header = |keys: &RecordKeys<'_>| keys.session_id.is_some() && keys.project_hash.is_some();
    if is_header(&whole) && whole.messages.is_some() {
        return Some(SessionFormat::Whole);
    }
    let first = text.lines().find(|line| !line.trim().is_empty())?;
    let (line, error) = skim::skim(first);
    let is_line = is_header(&line)
        || line.set.is_some()
        || line.rewind_to.is_some()
        || (line.id.is_some() && line.kind.as_deref() == Some("gemini"));
    if is_line && (error.is_none() || first.len() == text.trim_end().len()) {
        return Some(SessionFormat::Lines);
    }
    // A value that spans several lines may be truncated here. A single message, as fixtures have it, is read like a
    // session with one message.
    let is_message = whole.id.is_some() && whole.kind.as_deref() == Some("gemini");
    (is_header(&whole) || is_message).then_some(SessionFormat::Whole)
}

/// Reads one file.
#[derive(Default)]
pub(super) struct GeminiReader {
    records: ChatRecords,
    info: SessionInfo,
    damage: Vec<ReadError>,
    /// The number of lines so far.
    lines: u64,
    session: OnceCell<SavedSession>,
    /// The store for content that is not kept in memory.
    store: Option<Arc<dyn ContentStore>>,
}

/// The remaining records in the order of their first occurrence, and the removed ones.
#[derive(Debug, Default)]
struct ChatRecords {
    records: Vec<ChatRecord>,
    positions: HashMap<String, usize>,
    /// Records that a summary replaced for the model. They are still part of the session.
    compacted: Vec<ChatRecord>,
    /// Records that were removed by a rewind or a new list, by id, with the order of their removal.
    removed: HashMap<String, (usize, ChatRecord)>,
    drops: usize,
}

impl ChatRecords {
    fn put(&mut self, id: String, text: RawJson) {
        if let Some(index) = self.positions.get(&id) {
            self.records[*index].text = RecordText::InMemory(text);
            return;
        }
        let record = match self.removed.remove(&id) {
            Some((_, removed)) => removed.written_anew(text),
            None => ChatRecord { id: id.clone(), text: RecordText::InMemory(text), older: None },
        };
        self.positions.insert(id, self.records.len());
        self.records.push(record);
    }

    /// Removes a record and everything after it, or all records if the id is unknown.
    fn rewind(&mut self, id: &str) {
        self.drop_from(self.positions.get(id).copied().unwrap_or(0));
    }

    fn drop_from(&mut self, start: usize) {
        for record in self.records.drain(start..) {
            self.positions.remove(&record.id);
            self.drops += 1;
            self.removed.insert(record.id.clone(), (self.drops, record));
        }
    }

    /// Applies a compacted list. Records that are not in `stays` were replaced by its summary.
    fn compact(&mut self, stays: &HashSet<&str>) {
        self.positions.clear();
        for record in std::mem::take(&mut self.records) {
            if stays.contains(record.id.as_str()) {
                self.drops += 1;
                self.removed.insert(record.id.clone(), (self.drops, record));
            } else {
                self.compacted.push(record);
            }
        }
    }

    fn offload(&mut self, store: &Arc<dyn ContentStore>) {
        let removed = self.removed.values_mut().map(|(_, record)| record);
        for record in self.records.iter_mut().chain(&mut self.compacted).chain(removed) {
            [Some(&mut record.text), record.older.as_mut()]
                .into_iter()
                .flatten()
                .for_each(|t| t.offload(store));
        }
    }

    /// Returns every remaining record, oldest first.
    fn all(&self) -> impl Iterator<Item = &ChatRecord> {
        let compacted = self.compacted.iter().filter(|record| !self.positions.contains_key(&record.id));
        compacted.chain(&self.records)
    }

    /// Returns the removed records, oldest removal first.
    fn removed(&self) -> Vec<&ChatRecord> {
        let mut removed: Vec<&(usize, ChatRecord)> = self.removed.values().collect();
        removed.sort_unstable_by_key(|(drop, _)| *drop);
        removed.into_iter().map(|(_, record)| record).collect()
    }
}

impl SessionReader for GeminiReader {
    fn take(&mut self, record: RawJson) {
        self.session.take();
        self.lines += 1;
        let text = record.as_str();
        if text.trim().is_empty() {
            return;
        }
        let (keys, error) = skim::skim(text);
        match error {
            None => self.fold(&record, &keys),
            Some(error) => self.broken(&record, &keys, &error),
        }
    }

    fn offload(&mut self, store: &Arc<dyn ContentStore>) {
        self.records.offload(store);
        self.store = Some(Arc::clone(store));
    }

    fn session(&self) -> &SavedSession {
        self.session
            .get_or_init(|| make(&self.records, self.info.clone(), self.damage.clone(), self.store.as_ref()))
    }

    fn finish(self: Box<Self>) -> SavedSession {
        match self.session.into_inner() {
            Some(session) => session,
            None => make(&self.records, self.info, self.damage, self.store.as_ref()),
        }
    }
}

impl GeminiReader {
    fn fold(&mut self, record: &RawJson, keys: &RecordKeys<'_>) {
        // The CLI itself checks the kinds of records in this order.
        if let Some(id) = &keys.rewind_to {
            self.records.rewind(id);
        } else if let Some(id) = &keys.id {
            self.records.put(id.to_string(), record.clone());
        } else if let Some(set) = &keys.set {
            if let Some(messages) = &set.messages {
                self.replace(messages);
            }
            self.apply_info(record, set);
        } else if keys.session_id.is_some() || keys.messages.is_some() {
            self.apply_info(record, keys);
        } else {
            let message = if keys.is_object { "unknown kind of record" } else { "not a record" };
            self.damage.push(ReadError::new(Some(self.lines), message));
        }
    }

    /// Replaces the list of messages.
    fn replace(&mut self, messages: &[&RawValue]) {
        let ids: Vec<Option<String>> = messages.iter().map(|message| skim::id_of(message)).collect();
        let is_new = |id: &Option<String>| {
            id.as_ref().is_none_or(|id| {
                !self.records.positions.contains_key(id) && !self.records.removed.contains_key(id)
            })
        };
        let summarises = messages.iter().zip(&ids).any(|(message, id)| {
            let text = message.get();
            text.len() < 2000
                && text.contains(store::SUMMARY_TAKEN)
                && text.contains("\"gemini\"")
                && is_new(id)
        });
        if summarises {
            self.records.compact(&ids.iter().flatten().map(String::as_str).collect());
        } else {
            self.records.drop_from(0);
        }
    }

    /// Applies the session info of a header or `$set`, and the messages in it.
    fn apply_info(&mut self, record: &RawJson, keys: &RecordKeys<'_>) {
        let info = &mut self.info;
        let answer_text = |text: &Option<Str<'_>>| {
            text.as_deref().map(str::trim).filter(|t| !t.is_empty()).map(str::to_owned)
        };
        let when = |text: &Option<Str<'_>>| text.as_deref().and_then(time::millis);
        if let Some(id) = answer_text(&keys.session_id) {
            info.id = id;
        }
        info.title = answer_text(&keys.summary).or(info.title.take());
        info.started = [info.started, when(&keys.started)].into_iter().flatten().min();
        info.updated = info.updated.max(when(&keys.updated));
        if let Some(dir) = keys.directories.as_ref().and_then(|all| all.0.first()) {
            info.project = Some(dir.to_string());
        }
        for message in keys.messages.iter().flatten() {
            self.keep(record, message);
        }
    }

    fn keep(&mut self, record: &RawJson, message: &RawValue) {
        let Some(text) = record.part_of(message.get()) else { return };
        if !message.get().starts_with('{') {
            let error = format!("not a message: {}", crate::sample(message.get()));
            self.damage.push(ReadError::new(Some(self.lines), error));
            return;
        }
        let id =
            skim::id_of(message).unwrap_or_else(|| format!("message {}", self.records.records.len() + 1));
        self.records.put(id, text);
    }

    /// Processes a record that is not valid JSON.
    fn broken(&mut self, record: &RawJson, keys: &RecordKeys<'_>, error: &Error) {
        let text = record.as_str();
        // A JavaScript string may contain an unpaired surrogate. Apart from that, the record is complete.
        if let Some(mended) = mend_surrogates(text).map(RawJson::new)
            && let (keys, None) = skim::skim(mended.as_str())
        {
            self.fold(&mended, &keys);
            return;
        }
        self.note(self.lines + error.line() as u64 - 1, error);
        if keys.id.is_none() && keys.set.is_none() && self.info.id.is_empty() {
            // The file is a single value that is truncated or damaged. The messages before the damage are complete.
            self.apply_info(record, keys);
        }
        // Text that was written after an incomplete line follows it on the same line.
        if let Some(rest) = skim::last_record(text).and_then(|rest| record.part_of(rest)) {
            let (keys, _) = skim::skim(rest.as_str());
            self.fold(&rest, &keys);
        }
    }

    fn note(&mut self, line: u64, error: &Error) {
        let message = if error.is_eof() { "truncated".to_owned() } else { format!("not JSON: {error}") };
        self.damage.push(ReadError::new(Some(line), message));
    }
}

fn make(
    records: &ChatRecords,
    mut info: SessionInfo,
    mut damage: Vec<ReadError>,
    store: Option<&Arc<dyn ContentStore>>,
) -> SavedSession {
    info.agent = "gemini".into();
    let (mut builder, mut abandoned) = (EntryBuilder::default(), EntryBuilder::default());
    add_records(&mut builder, records.all(), &mut damage, store);
    add_records(&mut abandoned, records.removed().into_iter(), &mut damage, store);
    builder.into_session(abandoned, info, damage, store)
}

/// Adds records one by one. If there is a store, at most [`MAX_CONTENT_IN_MEMORY`] of their content is in memory at once.
fn add_records<'r>(
    builder: &mut EntryBuilder,
    records: impl Iterator<Item = &'r ChatRecord>,
    damage: &mut Vec<ReadError>,
    store: Option<&Arc<dyn ContentStore>>,
) {
    let mut bytes = 0;
    for record in records {
        bytes += builder.add_record(record, damage);
        if let Some(store) = store.filter(|_| bytes > MAX_CONTENT_IN_MEMORY) {
            builder.offload(store);
            bytes = 0;
        }
    }
    if let Some(store) = store {
        builder.offload(store);
    }
}
