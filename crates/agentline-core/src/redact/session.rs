//! Redacts what an agent saved of a session. The texts of all answers count as one, because a secret may be split around a
//! tool call.

use super::{Scanner, StreamRedactor};
use crate::{Entry, LineVeil, Media, Part, RawJson, Role, SavedSession, SavedTool, SessionInfo, Veil};
use serde_json::value::RawValue;
use std::borrow::Cow;

impl Veil {
    /// Redacts a whole session, with the agent's own records in it.
    pub fn session(&self, session: &mut SavedSession) {
        self.session_info(&mut session.info);
        for damage in &mut session.damage {
            self.own(&mut damage.message);
        }
        for entries in [&mut session.entries, &mut session.abandoned] {
            let split = self.joined(entries);
            entries.iter_mut().for_each(|entry| self.entry_alone(entry));
            match split {
                Some(keys) => self.and(&keys).split_records(entries),
                None => {
                    let records = entries.iter_mut().flat_map(|entry| &mut entry.originals);
                    records.for_each(|record| self.record(record));
                }
            }
        }
    }

    /// Redacts what is known about a session.
    pub fn session_info(&self, info: &mut SessionInfo) {
        [&mut info.title, &mut info.project, &mut info.model, &mut info.agent_version]
            .into_iter()
            .for_each(|text| self.own_some(text));
    }

    /// Redacts texts of answers as if they were one, and thoughts likewise. If a secret was split, returns the keys that were
    /// found by their shape.
    fn joined(&self, entries: &mut [Entry]) -> Option<Vec<String>> {
        let mut split = None;
        for of_answer in [true, false] {
            let parts = entries.iter_mut().filter(|entry| entry.role == Role::Assistant);
            let texts = parts.flat_map(|entry| &mut entry.parts).filter_map(|part| match part {
                Part::Text { text } if of_answer => Some(text),
                Part::Thinking { text, .. } if !of_answer => Some(text),
                _ => None,
            });
            let mut texts: Vec<&mut String> = texts.collect();
            if let Some(keys) = self.joined_texts(&mut texts) {
                split.get_or_insert_with(Vec::new).extend(keys);
            }
        }
        split
    }

    fn joined_texts(&self, texts: &mut [&mut String]) -> Option<Vec<String>> {
        let (mut scanner, mut base) = (Scanner::default(), 0);
        for text in texts.iter() {
            scanner.scan(self.patterns(), text.as_bytes(), base);
            base += text.len();
            scanner.interrupt(base);
        }
        scanner.finish(self.patterns());
        let keys: Vec<String> =
            scanner.keys.iter().map(|key| String::from_utf8_lossy(&key.value).into_owned()).collect();
        let found = scanner.take_found(usize::MAX);
        let (mut at, mut from, mut is_split) = (0, 0, false);
        for text in texts {
            let end = from + text.len();
            while found.get(at).is_some_and(|place| place.end <= from) {
                at += 1;
            }
            let here = found[at..].iter().take_while(|place| place.start < end);
            let here: Vec<_> = here
                .inspect(|place| is_split |= place.start < from || place.end > end)
                .map(|place| place.start.max(from) - from..place.end.min(end) - from)
                .collect();
            if let Cow::Owned(shown) = crate::veil::replace(text, here) {
                **text = shown;
            }
            from = end;
        }
        is_split.then_some(keys)
    }

    /// Redacts the agent's own records when a secret goes from one to another.
    fn split_records(&self, entries: &mut [Entry]) {
        let mut lines = LineVeil::new(self.clone());
        let mut records: Vec<&mut RawJson> =
            entries.iter_mut().flat_map(|entry| &mut entry.originals).collect();
        let mut shown = Vec::with_capacity(records.len());
        for record in &records {
            lines.push(record.as_str(), |line| shown.push(line.to_owned()));
        }
        lines.finish(|line| shown.push(line.to_owned()));
        for (record, shown) in records.iter_mut().zip(shown) {
            if shown != record.as_str() {
                let is_json = serde_json::from_str::<&RawValue>(&shown).is_ok();
                **record = RawJson::new(if is_json { shown } else { "null".to_owned() });
            }
        }
    }

    /// Redacts everything in an entry but its records.
    fn entry_alone(&self, entry: &mut Entry) {
        [&mut entry.model, &mut entry.stop_reason].into_iter().for_each(|text| self.own_some(text));
        for part in &mut entry.parts {
            match part {
                Part::Text { text } => self.own(text),
                Part::Thinking { text, signature } => {
                    self.own(text);
                    self.own_some(signature);
                }
                Part::Media(media) => self.media(media),
                Part::Tool(tool) => self.saved_tool(tool),
            }
        }
    }

    fn saved_tool(&self, tool: &mut SavedTool) {
        let call = &mut tool.call;
        [&mut call.id, &mut call.name, &mut call.native_name].into_iter().for_each(|text| self.own(text));
        self.own_some(&mut call.path);
        self.raw_some(&mut call.input);
        self.raw_some(&mut call.raw_input);
        if let Some(result) = &mut tool.result {
            self.own(&mut result.content);
            self.raw_some(&mut result.raw);
            result.media.iter_mut().for_each(|media| self.media(media));
        }
        if let Some(diff) = &mut tool.diff {
            self.own(&mut diff.path);
            [&mut diff.old, &mut diff.new, &mut diff.unified]
                .into_iter()
                .for_each(|text| self.own_some(text));
        }
    }

    fn media(&self, media: &mut Media) {
        self.own_some(&mut media.data);
        self.own_some(&mut media.uri);
    }
}

/// Redacts the entries of a session as they are added and grow.
#[derive(Clone, Debug)]
pub struct SessionRedactor {
    veil: Veil,
    /// How far the texts were read before each entry: of answers, and of thoughts.
    before: Vec<(StreamRedactor, StreamRedactor)>,
}

impl SessionRedactor {
    /// Redacts what this veil hides.
    #[must_use]
    pub fn new(veil: Veil) -> Self {
        Self { veil, before: vec![Default::default()] }
    }

    /// Redacts what is known about the session.
    pub fn info(&self, info: &mut SessionInfo) {
        self.veil.session_info(info);
    }

    /// Redacts the entry at this place, which comes after those before it.
    pub fn entry(&mut self, at: usize, entry: &mut Entry) {
        let last = self.before.last().cloned().unwrap_or_default();
        self.before.resize(at + 1, last);
        let (mut answer, mut thought) = self.before[at].clone();
        let mut is_split = false;
        if entry.role == Role::Assistant {
            let patterns = self.veil.patterns();
            for part in &mut entry.parts {
                let (stream, text) = match part {
                    Part::Text { text } => (&mut answer, text),
                    Part::Thinking { text, .. } => (&mut thought, text),
                    _ => continue,
                };
                let alone = self.veil.text(text).into_owned();
                let mut shown = stream.push(patterns, std::mem::take(text)).concat();
                shown.extend(stream.interrupt(patterns));
                is_split |= shown != alone;
                *text = shown;
            }
        }
        self.before.push((answer, thought));
        self.veil.entry_alone(entry);
        for record in &mut entry.originals {
            // A record holds only its own part of a secret that was split, so that nothing in it can be recognised.
            if is_split {
                *record = RawJson::new("null");
            }
            self.veil.record(record);
        }
    }
}
