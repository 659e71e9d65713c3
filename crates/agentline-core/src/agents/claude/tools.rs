//! The tools of all Claude Code versions since 1.0. Their names and arguments are the canonical ones.

use crate::{
    ToolKind as K, ToolUse,
    tool_table::{McpNames, ToolRow, ToolTable},
    wire::{Str, wire},
};
use serde_json::value::RawValue;

wire! { struct Notebook<'a> { path: Str<'a> = "notebook_path" } }

const fn own(name: &'static str, kind: K) -> ToolRow {
    ToolRow::new(name, name, kind)
}

pub(super) static TOOLS: ToolTable = ToolTable::new(ROWS, McpNames::Canonical);

const ROWS: &[ToolRow] = &[
    own("Write", K::Write),
    own("Edit", K::Edit),
    own("MultiEdit", K::Edit),
    own("NotebookEdit", K::Edit),
    own("Read", K::Read),
    own("NotebookRead", K::Read),
    own("LSP", K::Read),
    own("Glob", K::Search),
    own("Grep", K::Search),
    own("LS", K::Search),
    own("Bash", K::Shell),
    own("PowerShell", K::Shell),
    own("REPL", K::Shell),
    own("BashOutput", K::Other),
    own("KillShell", K::Other),
    own("KillBash", K::Other),
    own("Monitor", K::Other),
    own("WebFetch", K::Web),
    own("WebSearch", K::Web),
    own("Task", K::Agent),
    ToolRow::new("Agent", "Task", K::Agent),
    own("Workflow", K::Agent),
    own("TaskOutput", K::Other),
    ToolRow::new("AgentOutputTool", "TaskOutput", K::Other),
    own("TaskStop", K::Other),
    own("SendMessage", K::Other),
    own("ListAgents", K::Other),
    own("TeamCreate", K::Other),
    own("TeamDelete", K::Other),
    own("TodoWrite", K::Other),
    own("TodoRead", K::Other),
    own("TaskCreate", K::Other),
    own("TaskGet", K::Other),
    own("TaskList", K::Other),
    own("TaskUpdate", K::Other),
    own("EnterPlanMode", K::Other),
    own("ExitPlanMode", K::Other),
    ToolRow::new("exit_plan_mode", "ExitPlanMode", K::Other),
    own("EnterWorktree", K::Other),
    own("ExitWorktree", K::Other),
    own("AskUserQuestion", K::Other),
    own("Skill", K::Other),
    own("SlashCommand", K::Other),
    own("ToolSearch", K::Other),
    own("StructuredOutput", K::Other),
    own("ReportFindings", K::Other),
    own("ListMcpResourcesTool", K::Mcp),
    own("ReadMcpResourceTool", K::Mcp),
    own("ReadMcpResourceDirTool", K::Mcp),
    own("CronCreate", K::Other),
    own("CronDelete", K::Other),
    own("CronList", K::Other),
    own("ScheduleWakeup", K::Other),
    own("RemoteTrigger", K::Other),
    own("PushNotification", K::Other),
    own("SendUserMessage", K::Other),
    own("SendUserFile", K::Other),
    own("Artifact", K::Other),
];

/// Creates the tool use for a call in a saved session.
pub(super) fn tool_use(id: &str, native: &str, input: Option<&RawValue>) -> ToolUse {
    let mut tool = TOOLS.tool_use(id, native, input);
    if tool.kind == K::Edit && tool.path.is_none() {
        let notebook: Notebook<'_> =
            input.and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default();
        tool.path = Some(notebook.path.own()).filter(|path| !path.is_empty());
    }
    tool
}
