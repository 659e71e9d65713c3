//! The tools of all Gemini CLI versions from 0.11 to 0.61.

use crate::{
    ToolKind as K,
    tool_table::{Items, McpNames, ToolRow, ToolTable},
};

/// Arguments that the CLI adds to every tool call for its own scheduling (observed in 0.61.0).
pub(super) const ADDED_ARGUMENTS: &[&str] = &["wait_for_previous"];

const fn row(native: &'static str, name: &'static str, kind: K) -> ToolRow {
    ToolRow::new(native, name, kind)
}

const FOLDER: (&str, &str) = ("dir_path", "path");

/// Creates the row of a sub-agent that older versions offer as a separate tool.
const fn sub_agent(native: &'static str, adds: &'static [(&'static str, &'static str)]) -> ToolRow {
    ToolRow {
        renames: &[("objective", "prompt")],
        older: &[("request", "prompt"), ("task", "prompt"), ("question", "prompt")],
        adds,
        ..row(native, "Task", K::Agent)
    }
}

pub(super) static TOOLS: ToolTable = ToolTable::new(ROWS, McpNames::Joined { prefix: "mcp_" });

const ROWS: &[ToolRow] = &[
    ToolRow { older: &[("absolute_path", "file_path")], lines: true, ..row("read_file", "Read", K::Read) },
    row("read_many_files", "Read", K::Read),
    row("write_file", "Write", K::Write),
    ToolRow {
        renames: &[("allow_multiple", "replace_all")],
        drops: &["instruction", "expected_replacements"],
        ..row("replace", "Edit", K::Edit)
    },
    ToolRow { renames: &[FOLDER], ..row("glob", "Glob", K::Search) },
    ToolRow {
        renames: &[FOLDER],
        drops: &["ignore", "file_filtering_options"],
        adds: &[("pattern", "\"*\"")],
        ..row("list_directory", "Glob", K::Search)
    },
    ToolRow {
        renames: &[FOLDER, ("include_pattern", "glob")],
        older: &[("include", "glob")],
        ..row("grep_search", "Grep", K::Search)
    },
    ToolRow { renames: &[FOLDER, ("include", "glob")], ..row("search_file_content", "Grep", K::Search) },
    ToolRow {
        renames: &[("is_background", "run_in_background")],
        ..row("run_shell_command", "Bash", K::Shell)
    },
    row("read_background_output", "BashOutput", K::Other),
    row("list_background_processes", "BashOutput", K::Other),
    row("google_web_search", "WebSearch", K::Web),
    row("web_fetch", "WebFetch", K::Web),
    ToolRow {
        items: Items::new("todos", &[("description", "content")]),
        ..row("write_todos", "TodoWrite", K::Other)
    },
    ToolRow { renames: &[("name", "skill")], ..row("activate_skill", "Skill", K::Other) },
    row("ask_user", "AskUserQuestion", K::Other),
    row("enter_plan_mode", "EnterPlanMode", K::Other),
    row("exit_plan_mode", "ExitPlanMode", K::Other),
    ToolRow { renames: &[("agent_name", "subagent_type")], ..row("invoke_agent", "Task", K::Agent) },
    ToolRow { renames: &[("agent_name", "subagent_type")], ..row("delegate_to_agent", "Task", K::Agent) },
    sub_agent("codebase_investigator", &[("subagent_type", "\"codebase_investigator\"")]),
    sub_agent("generalist", &[("subagent_type", "\"generalist\"")]),
    sub_agent("cli_help", &[("subagent_type", "\"cli_help\"")]),
    sub_agent("browser_agent", &[("subagent_type", "\"browser_agent\"")]),
    ToolRow { renames: &[("title", "subject")], ..row("tracker_create_task", "TaskCreate", K::Other) },
    ToolRow {
        renames: &[("id", "taskId"), ("title", "subject")],
        ..row("tracker_update_task", "TaskUpdate", K::Other)
    },
    ToolRow { renames: &[("id", "taskId")], ..row("tracker_get_task", "TaskGet", K::Other) },
    row("tracker_list_tasks", "TaskList", K::Other),
    row("tracker_add_dependency", "tracker_add_dependency", K::Other),
    row("tracker_visualize", "tracker_visualize", K::Other),
    row("save_memory", "save_memory", K::Other),
    row("update_topic", "update_topic", K::Other),
    row("complete_task", "complete_task", K::Other),
    row("get_internal_docs", "get_internal_docs", K::Other),
    row("list_mcp_resources", "ListMcpResourcesTool", K::Mcp),
    row("read_mcp_resource", "ReadMcpResourceTool", K::Mcp),
];

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::value::RawValue;

    fn input(native: &str, parameters: &str) -> String {
        let raw = RawValue::from_string(parameters.to_owned()).unwrap();
        TOOLS.tool_use("id", native, Some(&raw)).input.unwrap().get().to_owned()
    }

    #[test]
    fn arguments_are_translated() {
        assert_eq!(
            input("read_file", r#"{"absolute_path":"/a","start_line":3,"end_line":5}"#),
            r#"{"file_path":"/a","offset":3,"limit":3}"#
        );
        assert_eq!(
            input(
                "replace",
                r#"{"file_path":"a","instruction":"x","old_string":"b","new_string":"c","allow_multiple":true}"#
            ),
            r#"{"file_path":"a","old_string":"b","new_string":"c","replace_all":true}"#
        );
        assert_eq!(input("list_directory", r#"{"dir_path":"."}"#), r#"{"pattern":"*","path":"."}"#);
        assert_eq!(
            input("run_shell_command", r#"{"command":"ls","is_background":true}"#),
            r#"{"command":"ls","run_in_background":true}"#
        );
        assert_eq!(
            input("write_todos", r#"{"todos":[{"description":"a","status":"pending"},3]}"#),
            r#"{"todos":[{"content":"a","status":"pending"},3]}"#
        );
        assert_eq!(
            input("write_file", r#"{"file_path":"a","content":"b"}"#),
            r#"{"file_path":"a","content":"b"}"#
        );
        assert_eq!(input("write_file", "[1]"), "[1]");
    }

    #[test]
    fn names_are_translated_both_ways() {
        assert_eq!(TOOLS.canonical("replace"), "Edit");
        assert_eq!(TOOLS.canonical("mcp_tiny_add"), "mcp__tiny__add");
        assert_eq!(TOOLS.canonical("brand_new"), "brand_new");
        assert_eq!(TOOLS.natives("Edit").collect::<Vec<_>>(), ["replace"]);
        assert_eq!(TOOLS.natives("write_file").collect::<Vec<_>>(), ["write_file"]);
        assert_eq!(TOOLS.native("mcp__tiny__add_all").as_deref(), Some("mcp_tiny_add_all"));
    }

    #[test]
    fn writes_report_their_path_and_reads_do_not() {
        let raw = RawValue::from_string(r#"{"file_path":"a\u0062.txt","content":1}"#.to_owned()).unwrap();
        assert_eq!(TOOLS.tool_use("1", "write_file", Some(&raw)).path.as_deref(), Some("ab.txt"));
        assert_eq!(TOOLS.tool_use("1", "read_file", Some(&raw)).path, None);
    }
}
