//! The tools of all OpenCode versions since 0.4.

use crate::{
    ToolKind as K,
    tool_table::{Items, McpNames, ToolRow, ToolTable},
};

const fn row(native: &'static str, name: &'static str, kind: K) -> ToolRow {
    ToolRow::new(native, name, kind)
}

const FILE: (&str, &str) = ("filePath", "file_path");
/// The spelling of the file argument in permission requests.
const ASKED_FILE: &[(&str, &str)] = &[("filepath", "file_path")];
const TEXTS: &[(&str, &str)] =
    &[FILE, ("oldString", "old_string"), ("newString", "new_string"), ("replaceAll", "replace_all")];

pub(super) static TOOLS: ToolTable = ToolTable::new(ROWS, McpNames::Joined { prefix: "" });

const ROWS: &[ToolRow] = &[
    ToolRow { renames: &[FILE], older: ASKED_FILE, ..row("write", "Write", K::Write) },
    ToolRow { renames: TEXTS, older: ASKED_FILE, ..row("edit", "Edit", K::Edit) },
    ToolRow { renames: &[FILE], items: Items::new("edits", TEXTS), ..row("multiedit", "MultiEdit", K::Edit) },
    row("apply_patch", "Edit", K::Edit),
    row("patch", "Edit", K::Edit),
    ToolRow { renames: &[FILE], older: ASKED_FILE, ..row("read", "Read", K::Read) },
    row("bash", "Bash", K::Shell),
    row("shell", "Bash", K::Shell),
    row("glob", "Glob", K::Search),
    ToolRow { renames: &[("include", "glob")], ..row("grep", "Grep", K::Search) },
    row("list", "LS", K::Search),
    row("webfetch", "WebFetch", K::Web),
    row("websearch", "WebSearch", K::Web),
    row("codesearch", "WebSearch", K::Web),
    row("todowrite", "TodoWrite", K::Other),
    row("todoread", "TodoRead", K::Other),
    row("task", "Task", K::Agent),
    row("task_status", "TaskOutput", K::Other),
    ToolRow { renames: &[("name", "skill")], ..row("skill", "Skill", K::Other) },
    ToolRow {
        items: Items::new("questions", &[("multiple", "multiSelect")]),
        ..row("question", "AskUserQuestion", K::Other)
    },
    row("plan_enter", "EnterPlanMode", K::Other),
    row("plan_exit", "ExitPlanMode", K::Other),
    row("lsp", "LSP", K::Read),
    row("lsp_diagnostics", "LSP", K::Read),
    row("lsp_hover", "LSP", K::Read),
    row("batch", "batch", K::Other),
    row("execute", "execute", K::Other),
    row("repo_clone", "repo_clone", K::Other),
    row("repo_overview", "repo_overview", K::Read),
    row("list_mcp_resources", "ListMcpResourcesTool", K::Mcp),
    row("list_mcp_resource_templates", "list_mcp_resource_templates", K::Mcp),
    row("read_mcp_resource", "ReadMcpResourceTool", K::Mcp),
    row("StructuredOutput", "StructuredOutput", K::Other),
    row("invalid", "invalid", K::Other),
];
