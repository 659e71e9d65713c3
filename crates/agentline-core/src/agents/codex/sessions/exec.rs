//! The lines that `codex exec --json` prints. A saved log of them is read like a session.

use super::{CodexReader, calls, results, tokens};
use crate::{
    EntryPart, RawJson, SavedResult, SavedTool, ToolKind, ToolStatus, ToolUse,
    agents::codex::sessions::records::CodexTokenUsage,
    wire::{List, Str, Tolerant as _, wire},
};
use serde_json::{json, value::to_raw_value};

/// The line types that are used.
pub(super) const KINDS: &[&str] = &["thread.started", "item.completed", "turn.completed", "turn.failed"];

wire! {
    struct ExecLine<'a> {
        kind: Str<'a> = "type",
        thread: Str<'a> = "thread_id",
        item: ExecItem<'a> = "item",
        usage: Option<CodexTokenUsage<'a>> = "usage",
        error: ExecError<'a> = "error",
    }
}

wire! { struct ExecError<'a> { message: Str<'a> = "message" } }

wire! {
    struct ExecItem<'a> {
        id: Str<'a> = "id",
        kind: Str<'a> = "type",
        text: Str<'a> = "text",
        command: Str<'a> = "command",
        output: Str<'a> = "aggregated_output",
        exit_code: Option<Str<'a>> = "exit_code",
        status: Str<'a> = "status",
        changes: List<ExecChange<'a>> = "changes",
        query: Str<'a> = "query",
        message: Str<'a> = "message",
    }
}

wire! { struct ExecChange<'a> { path: Str<'a> = "path", kind: Str<'a> = "kind" } }

impl CodexReader {
    /// Processes a line of one of [`KINDS`].
    pub(super) fn exec_line(&mut self, record: &RawJson) {
        let line = serde_json::from_str::<ExecLine<'_>>(record.as_str()).unwrap_or_default();
        match &*line.kind {
            "thread.started" => self.lines.session.info.id = line.thread.own(),
            "turn.completed" => {
                if let Some(usage) = line.usage.filter(|usage| usage.is_object()) {
                    self.spent(tokens(&usage), None);
                }
                self.open = None;
            }
            "turn.failed" => self.notice(line.error.message.own(), None, record),
            _ => self.exec_item(line.item, record),
        }
    }

    fn exec_item(&mut self, item: ExecItem<'_>, record: &RawJson) {
        let mut tools = Vec::new();
        match &*item.kind {
            "agent_message" => {
                _ = self.push_answer(&item.id, vec![EntryPart::text(&*item.text)], None, record)
            }
            "reasoning" => {
                _ = self.push_answer(&item.id, vec![EntryPart::thinking(&*item.text)], None, record)
            }
            "error" => self.notice(item.message.own(), None, record),
            "command_execution" => tools.push(command(&item)),
            "file_change" => tools = changes(&item),
            "web_search" => tools.push(calls::searched(&item.id, &item.query)),
            _ => {}
        }
        for tool in tools {
            self.called(&item.id, tool, None, record);
        }
        if matches!(&*item.kind, "command_execution" | "file_change" | "web_search") {
            // What follows is the next answer of the model.
            self.open = None;
        }
    }
}

fn command(item: &ExecItem<'_>) -> SavedTool {
    let mut call = ToolUse::new(&*item.id, "Bash", "command_execution", ToolKind::Shell);
    call.input = to_raw_value(&json!({"command": &*item.command})).ok();
    let mut tool = SavedTool::new(call);
    let status = results::status(&item.status, item.exit_code.as_deref(), None).unwrap_or(ToolStatus::Ok);
    tool.result = Some(SavedResult::new(status, &*item.output));
    tool
}

/// Returns one call for each changed file. Codex prints neither the change nor a result.
fn changes(item: &ExecItem<'_>) -> Vec<SavedTool> {
    let several = item.changes.0.len() > 1;
    let change = |(number, change): (usize, &ExecChange<'_>)| {
        let (name, kind) =
            if &*change.kind == "add" { ("Write", ToolKind::Write) } else { ("Edit", ToolKind::Edit) };
        let id = if several { format!("{}_{number}", &*item.id) } else { item.id.0.to_string() };
        let mut call = ToolUse::new(id, name, "file_change", kind);
        call.input = to_raw_value(&json!({"file_path": &*change.path})).ok();
        call.path = Some(change.path.0.to_string());
        let mut tool = SavedTool::new(call);
        if &*item.status == "failed" {
            tool.result = Some(SavedResult::new(ToolStatus::Error, ""));
        }
        tool
    };
    (1..).zip(&item.changes.0).map(change).collect()
}
