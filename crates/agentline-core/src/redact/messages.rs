//! Redacts secrets in messages created from saved sessions, which no connection has redacted.

use crate::message::{Block, BlockDiff, Content, ImageSource, Message, Original};
use crate::{RawJson, Redactor};
use serde_json::value::RawValue;
use std::borrow::Cow;

impl Redactor {
    /// Redacts every secret in all parts of a message.
    pub fn message(&self, message: &mut Message<'_>) {
        for text in [&mut message.id, &mut message.model, &mut message.stop_reason] {
            self.maybe(text);
        }
        self.content(&mut message.content);
        match &mut message.original {
            Some(Original::Record(record)) => self.record(record),
            Some(Original::Records(records)) => records.iter_mut().for_each(|record| self.record(record)),
            Some(Original::Lines(_)) | None => {}
        }
    }

    fn content(&self, content: &mut Content<'_>) {
        match content {
            Content::Text(text) => self.cow(text),
            Content::Blocks(blocks) => blocks.iter_mut().for_each(|block| self.block(block)),
        }
    }

    fn block(&self, block: &mut Block<'_>) {
        match block {
            Block::Thinking { thinking, signature } => {
                self.cow(thinking);
                self.cow(signature);
            }
            Block::Text { text } => self.cow(text),
            Block::SlashCommand { command, message, args } => {
                self.cow(command);
                [message, args].into_iter().flatten().for_each(|text| self.cow(text));
            }
            Block::Image { source } | Block::Document { source } => match source {
                ImageSource::Base64 { data, .. } => self.cow(data),
                ImageSource::Url { url } => self.cow(url),
            },
            Block::ToolUse { id, name, input, native_name, raw_input } => {
                self.cow(id);
                self.cow(name);
                self.raw_cow(input);
                self.maybe(native_name);
                if let Some(raw) = raw_input {
                    self.raw_cow(raw);
                }
            }
            Block::ToolResult { tool_use_id, content, diff, .. } => {
                self.cow(tool_use_id);
                self.content(content);
                if let Some(BlockDiff { path, old, new, unified }) = diff {
                    self.cow(path);
                    [old, new, unified].into_iter().for_each(|text| self.maybe(text));
                }
            }
        }
    }

    fn maybe(&self, text: &mut Option<Cow<'_, str>>) {
        if let Some(text) = text {
            self.cow(text);
        }
    }

    fn cow(&self, text: &mut Cow<'_, str>) {
        if let Cow::Owned(hidden) = self.text(text) {
            *text = Cow::Owned(hidden);
        }
    }

    fn raw_cow(&self, raw: &mut Cow<'_, RawValue>) {
        if let Cow::Owned(hidden) = self.text(raw.get()) {
            // If redaction breaks the JSON, show nothing.
            let hidden = RawValue::from_string(hidden).unwrap_or_else(|_| RawValue::NULL.to_owned());
            *raw = Cow::Owned(hidden);
        }
    }

    pub(crate) fn record(&self, record: &mut RawJson) {
        if let Cow::Owned(hidden) = self.text(record.as_str()) {
            let readable = serde_json::from_str::<&RawValue>(&hidden).is_ok();
            *record = RawJson::new(if readable { hidden } else { "null".to_owned() });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        BlockOrder, Entry, EntryPart, Role, SavedDiff, SavedResult, SavedSession, SavedTool, unified_view,
    };
    use crate::{ToolKind, ToolStatus, ToolUse};

    #[test]
    fn every_part_of_a_message_is_redacted() {
        const SECRET: &str = "hunter2-hunter2";
        let text = format!("it is {SECRET}");
        let mut call = ToolUse::new(SECRET, SECRET, format!("my {SECRET}"), ToolKind::Shell);
        call.input = serde_json::value::to_raw_value(&text).ok();
        call.raw_input = serde_json::value::to_raw_value(&[&text]).ok();
        let mut tool = SavedTool::new(call);
        tool.result = Some(SavedResult::new(ToolStatus::Ok, text.clone()));
        tool.diff = Some(SavedDiff {
            path: text.clone(),
            old: Some(text.clone()),
            new: Some(text.clone()),
            unified: Some(text.clone()),
        });
        let mut entry = Entry::new(SECRET, Role::Assistant);
        entry.model = Some(text.clone());
        entry.stop_reason = Some(text.clone());
        entry.parts = vec![
            EntryPart::text(text.clone()),
            EntryPart::Thinking { text: text.clone(), signature: Some(text.clone()) },
            EntryPart::Media(crate::Media::new("image/png", None, Some(text.clone()))),
            EntryPart::Media(crate::Media::new("image/png", Some(text.clone()), None)),
            EntryPart::Tool(Box::new(tool)),
        ];
        entry.originals = vec![RawJson::new(format!("{{\"a\":\"{SECRET}\"}}"))];
        let session = SavedSession { entries: vec![entry], ..SavedSession::default() };
        let mut message = unified_view(&session, BlockOrder::Turn, false).next().unwrap();
        assert!(serde_json::to_string(&message).unwrap().contains(SECRET));
        Redactor::new([SECRET]).message(&mut message);
        let shown = serde_json::to_string(&message).unwrap();
        assert!(!shown.contains(SECRET) && shown.contains(crate::MARK), "{shown}");
    }
}
