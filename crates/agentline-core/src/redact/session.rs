//! Redacts saved sessions. The texts of all answers count as one text, because a tool call may split a secret.

use super::{Scanner, StreamRedactor};
use crate::{
    Entry, EntryPart, LineRedactor, Media, RawJson, Redactor, Role, SavedSession, SavedTool, SessionInfo,
    SlashCommand,
};
use serde_json::value::RawValue;
use std::{borrow::Cow, collections::VecDeque, ops::Range};

impl Redactor {
    /// Redacts a whole session, including the agent's own records.
    pub fn session(&self, session: &mut SavedSession) {
        self.session_info(&mut session.info);
        for damage in &mut session.damage {
            self.own(&mut damage.message);
        }
        for entries in [&mut session.entries, &mut session.abandoned] {
            self.entries(entries);
        }
    }

    /// Redacts entries. If their content is in a store, only one is in memory at a time.
    fn entries(&self, entries: &mut [Entry]) {
        let (mut answers, mut thoughts) = (Joined::default(), Joined::default());
        for entry in entries.iter().map(Entry::loaded).filter(|entry| entry.role == Role::Assistant) {
            for part in &entry.parts {
                match part {
                    EntryPart::Text { text } => answers.scan(self, text),
                    EntryPart::Thinking { text, .. } => thoughts.scan(self, text),
                    _ => {}
                }
            }
        }
        let keys = [&mut answers, &mut thoughts].map(|joined| joined.finish(self));
        let is_split = keys.iter().any(Option::is_some);
        let is_unchanged = |entry: &Entry| {
            let stored = entry.stored_text();
            stored.is_some_and(|text| matches!(self.text(&text), Cow::Borrowed(_)))
        };
        let may_skip = self.is_plain() && answers.found.is_empty() && thoughts.found.is_empty();
        for entry in entries.iter_mut() {
            // Content in a store is searched as text: parsing it to find nothing would take most of the time.
            if may_skip && is_unchanged(entry) {
                self.entry_alone(entry);
                continue;
            }
            entry.update(|entry| {
                let of_model = entry.role == Role::Assistant;
                for part in entry.parts.iter_mut().filter(|_| of_model) {
                    match part {
                        EntryPart::Text { text } => answers.redact(text),
                        EntryPart::Thinking { text, .. } => thoughts.redact(text),
                        _ => {}
                    }
                }
                self.entry_alone(entry);
                if !is_split {
                    entry.originals.iter_mut().for_each(|record| self.record(record));
                }
            });
        }
        if is_split {
            let keys: Vec<String> = keys.into_iter().flatten().flatten().collect();
            self.and(&keys).split_records(entries);
        }
    }

    /// Redacts the metadata of a session.
    pub fn session_info(&self, info: &mut SessionInfo) {
        [&mut info.title, &mut info.project, &mut info.model, &mut info.agent_version]
            .into_iter()
            .for_each(|text| self.redact_some(text));
    }

    /// Redacts the agent's own records if a secret extends over several of them.
    fn split_records(&self, entries: &mut [Entry]) {
        let mut lines = LineRedactor::new(self.clone());
        let (mut shown, mut done) = (VecDeque::new(), 0);
        for at in 0..entries.len() {
            for record in &entries[at].loaded().originals {
                lines.push(record.as_str(), |line| shown.push_back(line.to_owned()));
            }
            while done <= at && replace_records(&mut entries[done], &mut shown) {
                done += 1;
            }
        }
        lines.finish(|line| shown.push_back(line.to_owned()));
        entries[done..].iter_mut().for_each(|entry| _ = replace_records(entry, &mut shown));
    }

    /// Redacts everything in an entry except its records.
    fn entry_alone(&self, entry: &mut Entry) {
        [&mut entry.model, &mut entry.stop_reason].into_iter().for_each(|text| self.redact_some(text));
        if let Some(SlashCommand { name, message, args }) = &mut entry.command {
            self.own(name);
            [message, args].into_iter().for_each(|text| self.redact_some(text));
        }
        for part in &mut entry.parts {
            match part {
                EntryPart::Text { text } => self.own(text),
                EntryPart::Thinking { text, signature } => {
                    self.own(text);
                    self.redact_some(signature);
                }
                EntryPart::Media(media) => self.media(media),
                EntryPart::Tool(tool) => self.saved_tool(tool),
            }
        }
    }

    fn saved_tool(&self, tool: &mut SavedTool) {
        let call = &mut tool.call;
        [&mut call.id, &mut call.name, &mut call.native_name].into_iter().for_each(|text| self.own(text));
        self.redact_some(&mut call.path);
        self.raw_some(&mut call.input);
        self.raw_some(&mut call.raw_input);
        if let Some(result) = &mut tool.result {
            self.own(&mut result.content);
            self.raw_some(&mut result.raw);
            result.media.iter_mut().for_each(|media| self.media(media));
            result.original.iter_mut().for_each(|record| self.record(record));
        }
        if let Some(diff) = &mut tool.diff {
            self.own(&mut diff.path);
            [&mut diff.old, &mut diff.new, &mut diff.unified]
                .into_iter()
                .for_each(|text| self.redact_some(text));
        }
    }

    fn media(&self, media: &mut Media) {
        self.redact_some(&mut media.data);
        self.redact_some(&mut media.uri);
    }
}

/// Texts that are redacted as one: all are scanned first, and then changed in the same order.
#[derive(Default)]
struct Joined {
    scanner: Scanner,
    /// The end of each text, counted from the start of the first.
    ends: Vec<usize>,
    found: Vec<Range<usize>>,
    /// The number of texts already changed.
    changed: usize,
    /// The index of the first position that the next text may contain.
    next_found: usize,
}

impl Joined {
    fn scan(&mut self, redactor: &Redactor, text: &str) {
        let base = self.ends.last().copied().unwrap_or(0);
        self.scanner.scan(redactor.patterns(), text.as_bytes(), base);
        self.scanner.interrupt(base + text.len());
        self.ends.push(base + text.len());
    }

    /// Ends the scan. Returns the keys found by their format if a secret was split.
    fn finish(&mut self, redactor: &Redactor) -> Option<Vec<String>> {
        self.scanner.finish(redactor.patterns());
        let key = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
        let keys = self.scanner.keys.iter().map(|found| key(&found.value)).collect();
        self.found = self.scanner.take_found(usize::MAX);
        let is_split = self.found.iter().any(|range| {
            let first = self.ends.partition_point(|end| *end <= range.start);
            self.ends.get(first).is_some_and(|end| *end < range.end)
        });
        is_split.then_some(keys)
    }

    fn redact(&mut self, text: &mut String) {
        let Some(end) = self.ends.get(self.changed).copied() else { return };
        let from = end - text.len();
        self.changed += 1;
        while self.found.get(self.next_found).is_some_and(|range| range.end <= from) {
            self.next_found += 1;
        }
        let ranges = self.found[self.next_found..].iter().take_while(|range| range.start < end);
        let ranges = ranges.map(|range| range.start.max(from) - from..range.end.min(end) - from).collect();
        if let Cow::Owned(shown) = crate::redact::redactor::replace(text, ranges) {
            *text = shown;
        }
    }
}

/// Replaces the records of an entry with redacted ones. Returns `false` if not all of them are available yet.
fn replace_records(entry: &mut Entry, shown: &mut VecDeque<String>) -> bool {
    if entry.loaded().originals.len() > shown.len() {
        return false;
    }
    entry.update(|entry| {
        for record in &mut entry.originals {
            let shown = shown.pop_front().unwrap_or_default();
            if shown != record.as_str() {
                let is_json = serde_json::from_str::<&RawValue>(&shown).is_ok();
                *record = RawJson::new(if is_json { shown } else { "null".to_owned() });
            }
        }
    });
    true
}

/// Redacts the entries of a session as they are added and grow.
#[derive(Clone, Debug)]
pub struct SessionRedactor {
    redactor: Redactor,
    /// The state before each entry: of the answers, and of the thoughts.
    before: Vec<(StreamRedactor, StreamRedactor)>,
}

impl SessionRedactor {
    /// Creates a redactor for the secrets of another redactor.
    #[must_use]
    pub fn new(redactor: Redactor) -> Self {
        Self { redactor, before: vec![Default::default()] }
    }

    /// Redacts the metadata of the session.
    pub fn info(&self, info: &mut SessionInfo) {
        self.redactor.session_info(info);
    }

    /// Redacts the entry at this index, which follows the entries before it.
    pub fn entry(&mut self, at: usize, entry: &mut Entry) {
        let last = self.before.last().cloned().unwrap_or_default();
        self.before.resize(at + 1, last);
        let (mut answer, mut thought) = self.before[at].clone();
        let mut is_split = false;
        if entry.role == Role::Assistant {
            let patterns = self.redactor.patterns();
            for part in &mut entry.parts {
                let (stream, text) = match part {
                    EntryPart::Text { text } => (&mut answer, text),
                    EntryPart::Thinking { text, .. } => (&mut thought, text),
                    _ => continue,
                };
                let alone = self.redactor.text(text).into_owned();
                let mut shown = stream.push(patterns, std::mem::take(text)).concat();
                shown.extend(stream.interrupt(patterns));
                is_split |= shown != alone;
                *text = shown;
            }
        }
        self.before.push((answer, thought));
        self.redactor.entry_alone(entry);
        for record in &mut entry.originals {
            // A record contains only its part of a split secret, which cannot be recognized.
            if is_split {
                *record = RawJson::new("null");
            }
            self.redactor.record(record);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{SavedResult, ToolKind, ToolStatus, ToolUse, saved::content::MemoryStore};
    use std::sync::Arc;

    #[test]
    fn stored_content_is_redacted_like_content_in_memory() {
        assert_stored_like_in_memory("a \"secret\"\\of\nours");
        assert_stored_like_in_memory("a-plain+secret/of=ours");
    }

    fn assert_stored_like_in_memory(secret: &str) {
        let text = |text: &str| {
            let mut entry = Entry::new("1", Role::Assistant);
            entry.model = Some(secret.to_owned());
            entry.parts.push(EntryPart::text(text));
            entry.originals.push(RawJson::new(serde_json::json!({ "text": text }).to_string()));
            entry
        };
        let alone = vec![text("nothing"), text(&format!("it is {secret}.")), text("nothing"), text("sk-")];
        let (start, end) = secret.split_at(9);
        let split = vec![text(&format!("it is {start}")), text(end), text("nothing")];
        // Only answers are searched as one text; in a prompt, the secret is found in the store itself.
        let mut prompts = alone.clone();
        prompts.iter_mut().for_each(|entry| entry.role = Role::User);
        for entries in [alone, split, prompts] {
            let mut session = SavedSession { entries, ..SavedSession::default() };
            let mut stored = session.clone();
            stored.offload(&(Arc::new(MemoryStore::default()) as _));
            let redactor = Redactor::new([secret]);
            redactor.session(&mut session);
            redactor.session(&mut stored);
            stored.load();
            let shown = format!("{session:?}");
            assert!(shown.contains(crate::secret::MARK) && !shown.contains("ours"), "{shown}");
            assert_eq!(format!("{stored:?}"), shown);
        }
    }

    #[test]
    fn tool_result_records_are_redacted() {
        let mut tool = SavedTool::new(ToolUse::new("1", "Bash", "Bash", ToolKind::Shell));
        let mut result = SavedResult::new(ToolStatus::Ok, "");
        result.original = Some(RawJson::new("{\"out\":\"a-secret-of-ours\"}"));
        tool.result = Some(result);
        let mut session = SavedSession::default();
        session.entries.push(Entry::new("1", Role::Assistant));
        session.entries[0].parts.push(EntryPart::Tool(Box::new(tool)));
        Redactor::new(vec!["a-secret-of-ours".to_owned()]).session(&mut session);
        let record = session.entries[0].tools().next().unwrap().result.as_ref().unwrap().original.as_ref();
        let record = record.unwrap().as_str();
        assert!(!record.contains("a-secret-of-ours") && record.starts_with("{\"out\":"), "{record}");
    }
}
