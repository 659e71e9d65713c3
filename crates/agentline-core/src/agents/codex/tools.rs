//! The tools of all Codex versions since 0.30.

use crate::{
    ToolKind as K,
    tool_table::{Items, McpNames, ToolRow, ToolTable},
};

const fn row(native: &'static str, name: &'static str, kind: K) -> ToolRow {
    ToolRow::new(native, name, kind)
}

pub(super) static TOOLS: ToolTable = ToolTable::new(ROWS, McpNames::Canonical);

const ROWS: &[ToolRow] = &[
    ToolRow { renames: &[("cmd", "command")], ..row("exec_command", "Bash", K::Shell) },
    row("shell_command", "Bash", K::Shell),
    row("shell", "Bash", K::Shell),
    row("local_shell", "Bash", K::Shell),
    row("container.exec", "Bash", K::Shell),
    // Writes to the stdin of a running command.
    row("write_stdin", "write_stdin", K::Shell),
    row("js_repl", "REPL", K::Shell),
    row("js_repl_reset", "js_repl_reset", K::Other),
    row("apply_patch", "Edit", K::Edit),
    row("read_file", "Read", K::Read),
    ToolRow { renames: &[("path", "file_path")], ..row("view_image", "Read", K::Read) },
    ToolRow { renames: &[("dir_path", "path")], ..row("list_dir", "LS", K::Search) },
    ToolRow { renames: &[("include", "glob")], ..row("grep_files", "Grep", K::Search) },
    row("web_search", "WebSearch", K::Web),
    ToolRow {
        renames: &[("plan", "todos")],
        items: Items::new("todos", &[("step", "content")]),
        ..row("update_plan", "TodoWrite", K::Other)
    },
    ToolRow {
        renames: &[("agent_type", "subagent_type"), ("message", "prompt")],
        ..row("spawn_agent", "Task", K::Agent)
    },
    row("spawn_agents_on_csv", "spawn_agents_on_csv", K::Agent),
    row("resume_agent", "resume_agent", K::Agent),
    row("followup_task", "followup_task", K::Agent),
    row("send_message", "SendMessage", K::Other),
    row("send_input", "SendMessage", K::Other),
    row("wait_agent", "TaskOutput", K::Other),
    row("wait", "TaskOutput", K::Other),
    row("close_agent", "TaskStop", K::Other),
    row("interrupt_agent", "TaskStop", K::Other),
    row("list_agents", "ListAgents", K::Other),
    row("request_user_input", "AskUserQuestion", K::Other),
    row("request_permissions", "request_permissions", K::Other),
    row("tool_search", "ToolSearch", K::Other),
    row("tool_suggest", "tool_suggest", K::Other),
    row("request_plugin_install", "request_plugin_install", K::Other),
    row("image_generation", "image_generation", K::Other),
    row("create_goal", "create_goal", K::Other),
    row("get_goal", "get_goal", K::Other),
    row("update_goal", "update_goal", K::Other),
    row("get_context_remaining", "get_context_remaining", K::Other),
    row("new_context_window", "new_context_window", K::Other),
    row("list_mcp_resources", "ListMcpResourcesTool", K::Mcp),
    row("list_mcp_resource_templates", "list_mcp_resource_templates", K::Mcp),
    row("read_mcp_resource", "ReadMcpResourceTool", K::Mcp),
];
