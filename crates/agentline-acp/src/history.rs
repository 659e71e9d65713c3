//! The history of a saved session, which a client gets when it loads the session.

use crate::update::{UpdateWriter, chunk};
use agentline::{
    Agentline, Event, ToolResult, ToolStatus,
    messages::Role,
    saved::{Entry, EntryPart, SavedTool},
    sessions::SessionFilter,
};
use serde_json::Value;
use std::path::Path;

/// Returns the updates for a saved session, or none if it cannot be read: the agent may know sessions that are not
/// stored as files. Blocks.
pub(crate) fn updates(agentline: &Agentline, agent: &str, id: &str, cwd: &Path) -> Vec<Value> {
    // The store also accepts paths. The id of a client must not name one.
    if id.is_empty() || !id.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c)) {
        return Vec::new();
    }
    let store = agentline.sessions();
    let filter = SessionFilter::new().agent(agent).project(cwd);
    let Ok(session) = store.find_of(id, cwd, &filter).and_then(|found| store.load(&found)) else {
        return Vec::new();
    };
    let shown = session.entries.iter().filter(|entry| !entry.context && !entry.sidechain);
    shown.flat_map(|entry| entry_updates(&entry.loaded())).collect()
}

fn entry_updates(entry: &Entry) -> Vec<Value> {
    let kind = if entry.role == Role::User { "user_message_chunk" } else { "agent_message_chunk" };
    let update = |part: &EntryPart| match part {
        EntryPart::Text { text } => vec![chunk(kind, text)],
        EntryPart::Thinking { text, .. } => vec![chunk("agent_thought_chunk", text)],
        EntryPart::Tool(tool) if tool.has_call() => tool_updates(tool),
        _ => Vec::new(),
    };
    entry.parts.iter().flat_map(update).collect()
}

fn tool_updates(tool: &SavedTool) -> Vec<Value> {
    let mut writer = UpdateWriter::default();
    let status = tool.result.as_ref().map_or(ToolStatus::Cancelled, |result| result.status);
    let content = tool.result.as_ref().map(|result| result.content.clone());
    let result = ToolResult::new(tool.call.id.clone(), status, content);
    let events = [Event::ToolUse(tool.call.clone()), Event::ToolResult(result)];
    events.iter().filter_map(|event| writer.update(event)).collect()
}
