//! Builds complete Claude-compatible messages from the events of a run, block by block.

use crate::{
    AgentId, Event, Millis, Original, Record, Role, StreamLines, ToolResult,
    message::{self, Block, BlockDiff, Content, Message, View, image_block},
    wire::{Str, wire},
};
use std::borrow::Cow;

wire! { struct Media<'a> { mime_type: Str<'a> = "mimeType", data: Option<Str<'a>> = "data", uri: Option<Str<'a>> = "uri" } }

/// Joins pieces of text into blocks. A block is complete when another one starts.
#[derive(Debug, Default)]
pub struct Blocks {
    open: Option<(Block<'static>, Option<StreamLines>, Millis)>,
}

impl Blocks {
    /// Adds one event and passes on the blocks that it completes, each with its lines and start time.
    pub fn take(&mut self, record: &Record, mut each: impl FnMut(Block<'_>, Option<StreamLines>, Millis)) {
        let now = record.at_ms;
        let at = record.line.map(|line| StreamLines::one(record.from, line));
        match &record.event {
            Event::Text { text } => {
                if let Some((Block::Text { text: so_far }, lines, _)) = &mut self.open {
                    so_far.to_mut().push_str(text);
                    return stretch(lines, at);
                }
                self.finish(&mut each);
                self.open = Some((Block::Text { text: Cow::Owned(text.clone()) }, at, now));
            }
            Event::Thinking { text } => {
                if let Some((Block::Thinking { thinking, .. }, lines, _)) = &mut self.open {
                    thinking.to_mut().push_str(text);
                    return stretch(lines, at);
                }
                self.finish(&mut each);
                let thinking = Cow::Owned(text.clone());
                self.open = Some((Block::Thinking { thinking, signature: Cow::Borrowed("") }, at, now));
            }
            Event::Content { block } => {
                self.finish(&mut each);
                let media: Media<'_> = serde_json::from_str(block.get()).unwrap_or_default();
                each(image_block(&media.mime_type, media.data.as_deref(), media.uri.as_deref()), at, now);
            }
            Event::ToolUse(tool) => {
                self.finish(&mut each);
                each(message::tool_use(tool), at, now);
            }
            Event::ToolResult(ToolResult { tool_use_id, content, is_error, status, diffs, .. }) => {
                self.finish(&mut each);
                let result = Block::ToolResult {
                    tool_use_id: Cow::Borrowed(tool_use_id),
                    content: Content::Text(Cow::Borrowed(content.as_deref().unwrap_or_default())),
                    is_error: *is_error,
                    status: message::marker(*status),
                    diff: diffs.first().map(BlockDiff::from),
                };
                each(result, at, now);
            }
            Event::Retry { .. } | Event::Outcome { .. } => self.finish(&mut each),
            // These events are not part of a message.
            Event::Started(_)
            | Event::ToolOutput { .. }
            | Event::FileChange { .. }
            | Event::Permission(_)
            | Event::Plan { .. }
            | Event::Commands { .. }
            | Event::Mode { .. }
            | Event::ConfigOption { .. }
            | Event::SessionInfo { .. }
            | Event::Usage(_)
            | Event::Warning { .. }
            | Event::Unreadable { .. }
            | Event::Agent { .. } => {}
        }
    }

    fn finish(&mut self, each: &mut impl FnMut(Block<'_>, Option<StreamLines>, Millis)) {
        if let Some((block, lines, began)) = self.open.take() {
            each(block, lines, began);
        }
    }
}

/// Builds the messages of a run from its events, in the view `claude`.
///
/// A stream does not contain everything: it lacks the tokens of individual messages and often the thinking. The agent's
/// saved session has more.
#[derive(Debug, Default)]
pub struct Transcript {
    blocks: Blocks,
    run_id: String,
    agent: AgentId,
    model: Option<String>,
    began: Option<Millis>,
    messages: Vec<Message<'static>>,
}

impl Transcript {
    /// Creates the transcript of a run that starts now, in milliseconds since 1970, so that its messages have
    /// timestamps.
    #[must_use]
    pub fn started_at(now: Millis) -> Self {
        Self { began: Some(now), ..Self::default() }
    }

    /// Returns the start time of the run, in milliseconds since 1970, if it is known.
    #[must_use]
    pub fn began(&self) -> Option<Millis> {
        self.began
    }

    /// Adds one event.
    pub fn take(&mut self, record: &Record) {
        if let Event::Started(started) = &record.event {
            self.run_id.clone_from(&started.run_id);
            self.agent.clone_from(&started.agent);
            self.model.clone_from(&started.model);
        }
        let mut blocks = std::mem::take(&mut self.blocks);
        blocks.take(record, |block, at, began| self.add(block, at, began));
        self.blocks = blocks;
        if matches!(record.event, Event::Retry { .. }) {
            // The agent's saved session has only the messages of the last attempt.
            self.messages.clear();
        }
        if let Event::Outcome { outcome } = &record.event
            && let Some(last) = self.messages.last_mut().filter(|message| message.role == Role::Assistant)
        {
            last.stop_reason = outcome.stop_reason.clone().map(Cow::Owned);
        }
    }

    /// Returns the messages. They are complete after the outcome.
    #[must_use]
    pub fn messages(&self) -> &[Message<'static>] {
        &self.messages
    }

    /// Consumes the transcript and returns the messages.
    #[must_use]
    pub fn into_messages(self) -> Vec<Message<'static>> {
        self.messages
    }

    /// Consumes the transcript and returns the messages in the view `unified`: each result follows its call.
    #[must_use]
    pub fn into_unified(self) -> Vec<Message<'static>> {
        let mut unified: Vec<Message<'static>> = Vec::new();
        for mut message in self.messages {
            message.view = View::Unified;
            let Some(answer) = unified.last_mut().filter(|_| message.role == Role::User) else {
                unified.push(message);
                continue;
            };
            let (Content::Blocks(blocks), Content::Blocks(results)) = (&mut answer.content, message.content)
            else {
                continue;
            };
            for result in results {
                let called = blocks.iter().position(|block| is_result_of(&result, block));
                blocks.insert(called.map_or(blocks.len(), |at| at + 1), result);
            }
            if let (Some(Original::Lines(lines)), Some(Original::Lines(of_results))) =
                (&mut answer.original, message.original)
            {
                let mut all = Some(*lines);
                stretch(&mut all, Some(of_results));
                *lines = all.unwrap_or(*lines);
            }
        }
        unified
    }

    /// Adds a block to the last message if it has the same role, or to a new message.
    fn add(&mut self, block: Block<'_>, at: Option<StreamLines>, at_ms: Millis) {
        let (role, block) = (block.role(), block.into_owned());
        let calls = matches!(block, Block::ToolUse { .. });
        if self.messages.last().is_none_or(|last| last.role != role) {
            let mut message = Message::new(View::Claude, role, self.agent.to_string());
            if role == Role::Assistant {
                let turn = self.messages.len() / 2 + 1;
                message.id = Some(Cow::Owned(format!("msg_{}_{turn}", self.run_id)));
                message.model = self.model.clone().map(Cow::Owned);
            }
            message.timestamp = self.began.map(|began| began + at_ms);
            self.messages.push(message);
        }
        let Some(last) = self.messages.last_mut() else { return };
        if calls {
            last.stop_reason = Some(Cow::Borrowed("tool_use"));
        }
        if let Content::Blocks(blocks) = &mut last.content {
            blocks.push(block);
        }
        let mut lines = match last.original {
            Some(Original::Lines(lines)) => Some(lines),
            _ => None,
        };
        stretch(&mut lines, at);
        last.original = lines.map(Original::Lines);
    }
}

fn is_result_of(result: &Block<'_>, call: &Block<'_>) -> bool {
    matches!((result, call), (Block::ToolResult { tool_use_id, .. }, Block::ToolUse { id, .. }) if tool_use_id == id)
}

/// Extends a range of lines. Lines of another stream are ignored.
fn stretch(lines: &mut Option<StreamLines>, at: Option<StreamLines>) {
    match (lines.as_mut(), at) {
        (Some(have), Some(more)) if have.from == more.from => {
            have.first_line = have.first_line.min(more.first_line);
            have.last_line = have.last_line.max(more.last_line);
        }
        (None, Some(_)) => *lines = at,
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Origin, ToolKind, ToolStatus, ToolUse};
    use serde_json::json;

    #[test]
    fn chunks_are_joined_into_blocks_and_messages() {
        let text = |t: &str| Event::Text { text: t.into() };
        let events = [
            Event::Thinking { text: "hm".into() },
            text("I will "),
            text("write."),
            Event::from(ToolUse::new("t1", "Write", "write_file", ToolKind::Write)),
            Event::from(ToolResult::new("t1", ToolStatus::Ok, None)),
            text("Done."),
        ];
        let mut transcript = Transcript::started_at(1000);
        for (i, event) in (1..).zip(events) {
            transcript.take(&Record::new(i, u64::from(i), Origin::Stdout, Some(u64::from(i)), event));
        }
        let info = crate::RunInfo::default();
        let failure = crate::Failure::new(crate::FailureKind::NoResult, "");
        let outcome = crate::Outcome::not_started(&info, crate::Verdict::Failed, failure);
        transcript.take(&Record::last((6, 0), outcome));
        let messages = serde_json::to_value(transcript.messages()).unwrap();
        let fields = |i: usize| {
            (messages[i]["role"].clone(), messages[i]["content"].clone(), messages[i]["_original"].clone())
        };
        assert_eq!(
            [fields(0), fields(1), fields(2)],
            [
                (
                    json!("assistant"),
                    json!([
                        {"type": "thinking", "thinking": "hm", "signature": ""},
                        {"type": "text", "text": "I will write.", "citations": null},
                        {"type": "tool_use", "id": "t1", "name": "Write", "input": {}, "native_name": "write_file"},
                    ]),
                    json!({"from": "stdout", "first_line": 1, "last_line": 4})
                ),
                (
                    json!("user"),
                    json!([{"type": "tool_result", "tool_use_id": "t1", "content": "", "is_error": false}]),
                    json!({"from": "stdout", "first_line": 5, "last_line": 5})
                ),
                (
                    json!("assistant"),
                    json!([{"type": "text", "text": "Done.", "citations": null}]),
                    json!({"from": "stdout", "first_line": 6, "last_line": 6})
                ),
            ]
        );
        assert_eq!(messages[0]["stop_reason"], "tool_use");
        assert_eq!((&messages[0]["timestamp"], &messages[2]["timestamp"]), (&json!(1001), &json!(1006)));
    }

    #[test]
    fn image_in_an_answer_is_a_separate_block() {
        let block = serde_json::value::to_raw_value(
            &json!({"type": "image", "mimeType": "image/png", "data": "AA=="}),
        );
        let mut transcript = Transcript::default();
        let event = Event::Content { block: block.unwrap() };
        transcript.take(&Record::new(1, 0, Origin::Stdout, Some(1), event));
        let messages = serde_json::to_value(transcript.into_messages()).unwrap();
        assert_eq!(messages[0]["content"][0]["source"]["media_type"], "image/png");
    }
}
