//! Converts a saved session to messages, in one of two views. Messages are created on demand and borrow from the
//! session, so that a large session is not copied.
//!
//! - `unified`: one message per record, with tool results next to their calls. Blocks are grouped (thinking, then each
//!   call with its result, then text) or in their original order.
//! - `claude`: messages as in the Claude API, in their original order: calls are in assistant messages, and their
//!   results in the user message that follows. A record in which the model continues after its tools becomes several
//!   messages.

use crate::{
    Entry, EntryPart, Original, RawJson, Role, SavedResult, SavedSession, SavedTool, SessionInfo,
    message::{self, Block, BlockDiff, Content, Message, View, image_block},
};
use std::borrow::Cow;

/// The order of the blocks of a message in the view `unified`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum BlockOrder {
    /// Thinking, then each call with its result, then text.
    #[default]
    Grouped,
    /// The original order, with each call followed by its result.
    Turn,
}

/// Returns the messages of the view `unified`. `with_context` includes entries that the agent added only for the model.
pub fn unified_view(
    session: &SavedSession,
    order: BlockOrder,
    with_context: bool,
) -> impl Iterator<Item = Message<'_>> {
    let shown = session.entries.iter().filter(move |entry| with_context || !entry.context);
    shown.map(move |entry| unified_message(&session.info, entry, order))
}

/// Returns the messages of the view `claude`. `with_context` includes entries that the agent added only for the model.
pub fn claude_view(session: &SavedSession, with_context: bool) -> impl Iterator<Item = Message<'_>> {
    let shown = session.entries.iter().filter(move |entry| with_context || !entry.context);
    shown.flat_map(|entry| claude_messages(&session.info, entry))
}

/// Converts one entry to the view `unified`.
#[must_use]
pub fn unified_message<'a>(info: &'a SessionInfo, entry: &'a Entry, order: BlockOrder) -> Message<'a> {
    let mut blocks = Vec::with_capacity(entry.parts.len());
    match order {
        BlockOrder::Turn => entry.parts.iter().for_each(|part| add(&mut blocks, part)),
        BlockOrder::Grouped => {
            for group in [Group::Thinking, Group::Tools, Group::Content] {
                let parts = entry.parts.iter().filter(|part| Group::of(part) == group);
                parts.for_each(|part| add(&mut blocks, part));
            }
        }
    }
    if let Some(command) = &entry.command {
        let is_prompt = |block: &Block<'_>| matches!(block, Block::Text { .. });
        blocks.iter_mut().find(|block| is_prompt(block)).into_iter().for_each(|block| {
            *block = Block::SlashCommand {
                command: Cow::Borrowed(&command.name),
                message: command.message.as_deref().map(Cow::Borrowed),
                args: command.args.as_deref().map(Cow::Borrowed),
            };
        });
    }
    let mut message = begin(View::Unified, info, entry);
    message.stop_reason = entry.stop_reason.as_deref().map(Cow::Borrowed);
    message.usage = entry.usage;
    message.content =
        if blocks.is_empty() { Content::Text(only_text(entry)) } else { Content::Blocks(blocks) };
    // The record of a result without its call is the entry's own.
    let calls = entry.tools().filter(|tool| tool.has_call());
    let of_results = calls.filter_map(|tool| tool.result.as_ref()?.original.clone());
    message.original = Original::records(entry.originals.iter().cloned().chain(of_results).collect());
    message
}

/// Converts one entry to the view `claude`: its content, followed by the results of its tools.
///
/// The first message of an entry has its tokens, so that sums are correct. Every message has the records of its entry,
/// except results with records of their own, which have those.
#[must_use]
pub fn claude_messages<'a>(info: &'a SessionInfo, entry: &'a Entry) -> Vec<Message<'a>> {
    if entry.role == Role::User && entry.tools().next().is_some() {
        // Results whose calls are missing are in a user message already.
        let mut message = begin(View::Claude, info, entry);
        let mut blocks = Vec::new();
        entry.parts.iter().for_each(|part| add(&mut blocks, part));
        message.content = Content::Blocks(blocks);
        message.original = Original::records(entry.originals.clone());
        return vec![message];
    }
    let mut messages = Vec::with_capacity(2);
    let mut turn = Turn::default();
    for part in &entry.parts {
        if !matches!(part, EntryPart::Tool(_)) && !turn.results.is_empty() {
            turn.end(&mut messages, info, entry);
        }
        match part {
            EntryPart::Tool(tool) => turn.tool(tool),
            other => add(&mut turn.content, other),
        }
    }
    if !turn.content.is_empty() || messages.is_empty() {
        turn.end(&mut messages, info, entry);
    }
    // The stop reason of the entry applies only to the last assistant message.
    if let Some(reason) = &entry.stop_reason
        && let Some(last) = messages.iter_mut().rfind(|message| message.role == Role::Assistant)
    {
        last.stop_reason = Some(Cow::Borrowed(reason));
    }
    messages
}

/// The content between two rounds of tools, and the results of those tools.
#[derive(Default)]
struct Turn<'a> {
    content: Vec<Block<'a>>,
    results: Vec<Block<'a>>,
    result_records: Vec<RawJson>,
    results_at: Option<crate::Millis>,
}

impl<'a> Turn<'a> {
    fn tool(&mut self, tool: &'a SavedTool) {
        self.content.push(message::tool_use(&tool.call));
        if let Some(result) = &tool.result {
            self.results.push(tool_result(tool, result));
            self.result_records.extend(result.original.clone());
            self.results_at = result.timestamp.or(self.results_at);
        }
    }

    fn end(&mut self, messages: &mut Vec<Message<'a>>, info: &'a SessionInfo, entry: &'a Entry) {
        let turn = std::mem::take(self);
        let records = || Original::records(entry.originals.clone());
        let mut results = Message::new(View::Claude, Role::User, &*info.agent);
        results.content = Content::Blocks(turn.results);
        results.timestamp = turn.results_at.or(entry.timestamp);
        results.sidechain = entry.sidechain;
        results.original = Original::records(turn.result_records).or_else(records);
        let has_results = !results.blocks().is_empty();
        let mut message = begin(View::Claude, info, entry);
        message.original = records();
        if messages.is_empty() {
            message.usage = entry.usage;
        } else {
            message.id = Some(Cow::Owned(format!("{}#{}", entry.id, messages.len() / 2 + 1)));
        }
        if turn.content.iter().any(|block| matches!(block, Block::ToolUse { .. })) {
            message.stop_reason = Some(Cow::Borrowed("tool_use"));
        }
        let plain = entry.role != Role::Assistant && turn.content.is_empty();
        message.content = if plain { Content::Text(only_text(entry)) } else { Content::Blocks(turn.content) };
        messages.push(message);
        if has_results {
            messages.push(results);
        }
    }
}

fn begin<'a>(view: View, info: &'a SessionInfo, entry: &'a Entry) -> Message<'a> {
    let mut message = Message::new(view, entry.role, &*info.agent);
    message.id = Some(Cow::Borrowed(&entry.id));
    let of_session = info.model.as_deref().filter(|_| view == View::Claude);
    message.model =
        entry.model.as_deref().or(of_session).filter(|_| entry.role == Role::Assistant).map(Cow::Borrowed);
    message.timestamp = entry.timestamp;
    message.sidechain = entry.sidechain;
    message
}

#[derive(PartialEq, Eq)]
enum Group {
    Thinking,
    Tools,
    Content,
}

impl Group {
    fn of(part: &EntryPart) -> Self {
        match part {
            EntryPart::Thinking { .. } => Self::Thinking,
            EntryPart::Tool(_) => Self::Tools,
            EntryPart::Text { .. } | EntryPart::Media(_) => Self::Content,
        }
    }
}

/// Adds the blocks of a part. Blank text adds none.
fn add<'a>(blocks: &mut Vec<Block<'a>>, part: &'a EntryPart) {
    match part {
        EntryPart::Text { text } if text.trim().is_empty() => {}
        EntryPart::Text { text } => blocks.push(Block::Text { text: Cow::Borrowed(text) }),
        EntryPart::Thinking { text, signature } => blocks.push(Block::Thinking {
            thinking: Cow::Borrowed(text),
            signature: Cow::Borrowed(signature.as_deref().unwrap_or_default()),
        }),
        EntryPart::Media(media) => {
            blocks.push(image_block(&media.mime_type, media.data.as_deref(), media.uri.as_deref()));
        }
        EntryPart::Tool(tool) => {
            blocks.extend(tool.has_call().then(|| message::tool_use(&tool.call)));
            blocks.extend(tool.result.as_ref().map(|result| tool_result(tool, result)));
        }
    }
}

fn tool_result<'a>(tool: &'a SavedTool, result: &'a SavedResult) -> Block<'a> {
    let text = match &result.raw {
        Some(raw) if result.content.is_empty() && result.media.is_empty() => raw.get(),
        _ => &result.content,
    };
    let content = if result.media.is_empty() {
        Content::Text(Cow::Borrowed(text))
    } else {
        let text = (!text.is_empty()).then_some(Block::Text { text: Cow::Borrowed(text) });
        let media =
            result.media.iter().map(|m| image_block(&m.mime_type, m.data.as_deref(), m.uri.as_deref()));
        Content::Blocks(text.into_iter().chain(media).collect())
    };
    Block::ToolResult {
        tool_use_id: Cow::Borrowed(&tool.call.id),
        content,
        is_error: result.status.is_error(),
        status: message::marker(result.status),
        diff: tool.diff.as_ref().map(BlockDiff::from),
    }
}

/// Returns the text of an entry without blocks, as the agent wrote it, even if it is blank or empty.
fn only_text(entry: &Entry) -> Cow<'_, str> {
    match entry.parts.as_slice() {
        [EntryPart::Text { text }] => Cow::Borrowed(text),
        _ => Cow::Owned(entry.text()),
    }
}

#[cfg(test)]
mod tests;
