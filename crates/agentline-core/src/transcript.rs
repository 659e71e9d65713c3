//! Folds the events of a run into finished Claude-compatible messages, block by block.

use crate::{Event, Origin, Record};
use serde::Serialize;
use serde_json::value::RawValue;

/// Who speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Role {
    /// The model.
    Assistant,
    /// The person, or the tools on their side of the conversation.
    User,
    /// The agent itself: a notice, a warning, an error.
    System,
}

/// One finished piece of a message.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Block {
    /// Reasoning.
    Thinking {
        /// The whole of it.
        thinking: String,
    },
    /// Part of the answer.
    Text {
        /// The whole of it.
        text: String,
    },
    /// The model wants a tool.
    ToolUse {
        /// The agent's id of the call.
        id: String,
        /// The canonical name.
        name: String,
        /// The arguments in canonical form.
        input: Box<RawValue>,
    },
    /// What the tool gave back.
    ToolResult {
        /// Which call.
        tool_use_id: String,
        /// What it gave back, as far as the surface shows it.
        content: String,
        /// Whether the agent did not get what it wanted.
        is_error: bool,
    },
}

impl Block {
    /// Whose message it belongs to.
    #[must_use]
    pub fn role(&self) -> Role {
        match self {
            Self::ToolResult { .. } => Role::User,
            _ => Role::Assistant,
        }
    }
}

/// A finished message in the form of Claude's API.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Message {
    /// Who speaks.
    pub role: Role,
    /// The model, where it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// What was said.
    pub content: Vec<Block>,
    /// Which lines of the agent it was made from.
    #[serde(rename = "_original", skip_serializing_if = "Option::is_none")]
    pub original: Option<Original>,
}

/// The way back to the agent's own bytes: lines of one of its streams, as on a tape.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Original {
    /// Which stream.
    pub from: Origin,
    /// The first line, from 1.
    pub first_line: u64,
    /// The last line.
    pub last_line: u64,
}

/// Joins pieces of text into blocks. A block is finished when something else begins.
#[derive(Debug, Default)]
pub struct Blocks {
    open: Option<(Block, Option<Original>)>,
}

impl Blocks {
    /// Takes one event and hands out the blocks that it finishes.
    pub fn take(&mut self, record: &Record, mut each: impl FnMut(Block, Option<Original>)) {
        let at = record.line.map(|line| Original { from: record.from, first_line: line, last_line: line });
        match &record.event {
            Event::Text { text } => self.text(text, at, each),
            Event::Thinking { text } => self.thinking(text, at, each),
            Event::ToolUse(tool) => {
                self.finish(&mut each);
                let input = tool.input.as_ref().or(tool.raw_input.as_ref()).cloned();
                let input = input.unwrap_or_else(no_arguments);
                each(Block::ToolUse { id: tool.id.clone(), name: tool.name.clone(), input }, at);
            }
            Event::ToolResult { tool_use_id, content, is_error, .. } => {
                self.finish(&mut each);
                let content = content.clone().unwrap_or_default();
                let tool_use_id = tool_use_id.clone();
                each(Block::ToolResult { tool_use_id, content, is_error: *is_error }, at);
            }
            Event::Outcome { .. } => self.finish(&mut each),
            _ => {}
        }
    }

    fn text(&mut self, piece: &str, at: Option<Original>, mut each: impl FnMut(Block, Option<Original>)) {
        if let Some((Block::Text { text }, original)) = &mut self.open {
            text.push_str(piece);
            return stretch(original, at);
        }
        self.finish(&mut each);
        self.open = Some((Block::Text { text: piece.to_owned() }, at));
    }

    fn thinking(&mut self, piece: &str, at: Option<Original>, mut each: impl FnMut(Block, Option<Original>)) {
        if let Some((Block::Thinking { thinking }, original)) = &mut self.open {
            thinking.push_str(piece);
            return stretch(original, at);
        }
        self.finish(&mut each);
        self.open = Some((Block::Thinking { thinking: piece.to_owned() }, at));
    }

    fn finish(&mut self, each: &mut impl FnMut(Block, Option<Original>)) {
        if let Some((block, original)) = self.open.take() {
            each(block, original);
        }
    }
}

/// Folds the events of a run into its messages.
#[derive(Debug, Default)]
pub struct Transcript {
    blocks: Blocks,
    model: Option<String>,
    messages: Vec<Message>,
}

impl Transcript {
    /// Takes one event.
    pub fn take(&mut self, record: &Record) {
        if let Event::Started(started) = &record.event {
            self.model.clone_from(&started.model);
        }
        let (messages, model) = (&mut self.messages, &self.model);
        self.blocks.take(record, |block, at| add(messages, model.as_deref(), block, at));
    }

    /// The messages; complete once the outcome was taken.
    #[must_use]
    pub fn messages(&self) -> &[Message] {
        &self.messages
    }
}

/// Adds a block to the last message when it belongs there: one message a turn and side.
fn add(messages: &mut Vec<Message>, model: Option<&str>, block: Block, at: Option<Original>) {
    let role = block.role();
    match messages.last_mut() {
        Some(last) if last.role == role => {
            last.content.push(block);
            stretch(&mut last.original, at);
        }
        _ => messages.push(Message {
            role,
            model: model.filter(|_| role == Role::Assistant).map(str::to_owned),
            content: vec![block],
            original: at,
        }),
    }
}

/// Makes the way back longer. Lines of another stream do not fit into it and are left out.
fn stretch(original: &mut Option<Original>, at: Option<Original>) {
    match (original.as_mut(), at) {
        (Some(have), Some(more)) if have.from == more.from => {
            have.first_line = have.first_line.min(more.first_line);
            have.last_line = have.last_line.max(more.last_line);
        }
        (None, Some(_)) => *original = at,
        _ => {}
    }
}

fn no_arguments() -> Box<RawValue> {
    RawValue::from_string("{}".into()).unwrap_or_else(|_| RawValue::NULL.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ToolKind, ToolStatus, ToolUse};

    #[test]
    fn pieces_join_into_blocks_and_blocks_into_messages() {
        let text = |t: &str| Event::Text { text: t.into() };
        let events = [
            Event::Thinking { text: "hm".into() },
            text("I will "),
            text("write."),
            Event::ToolUse(Box::new(ToolUse::new("t1", "Write", "write_file", ToolKind::Write))),
            Event::tool_result("t1", ToolStatus::Ok, None),
            text("Done."),
        ];
        let mut transcript = Transcript::default();
        for (i, event) in (1..).zip(events) {
            transcript.take(&Record::new(i, 0, Origin::Stdout, Some(u64::from(i)), event));
        }
        let who = crate::Who::default();
        let failure = crate::Failure::new(crate::Kind::NoResult, "");
        let outcome = Box::new(crate::Outcome::not_begun(&who, crate::Verdict::Failed, failure));
        transcript.take(&Record::last((6, 0), outcome));
        assert_eq!(
            serde_json::to_value(transcript.messages()).unwrap(),
            serde_json::json!([
                {"role": "assistant", "content": [
                    {"type": "thinking", "thinking": "hm"},
                    {"type": "text", "text": "I will write."},
                    {"type": "tool_use", "id": "t1", "name": "Write", "input": {}},
                ], "_original": {"from": "stdout", "first_line": 1, "last_line": 4}},
                {"role": "user", "content": [
                    {"type": "tool_result", "tool_use_id": "t1", "content": "", "is_error": false},
                ], "_original": {"from": "stdout", "first_line": 5, "last_line": 5}},
                {"role": "assistant", "content": [{"type": "text", "text": "Done."}],
                 "_original": {"from": "stdout", "first_line": 6, "last_line": 6}},
            ])
        );
    }
}
