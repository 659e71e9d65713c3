//! Gemini's tools: which canonical tool each one is, what it does to the world, and how its arguments translate.

use crate::{
    ToolKind, ToolUse,
    wire::{Entries, Str},
};
use serde_json::value::RawValue;

/// What the CLI adds to the calls of every tool for its own schedule (seen in 0.61.0).
pub(super) const ADDED_ARGUMENTS: &[&str] = &["wait_for_previous"];

/// One tool of the agent.
struct Row {
    native: &'static str,
    name: &'static str,
    kind: ToolKind,
    /// Arguments that have another name in the canonical form.
    renames: &'static [(&'static str, &'static str)],
    /// Arguments that the canonical form does not have.
    drops: &'static [&'static str],
    /// Arguments that only the canonical form has, as JSON.
    adds: &'static [(&'static str, &'static str)],
}

const fn row(native: &'static str, name: &'static str, kind: ToolKind) -> Row {
    Row { native, name, kind, renames: &[], drops: &[], adds: &[] }
}

/// Every tool that Gemini CLI 0.11 to 0.61 offers.
const TOOLS: &[Row] = &[
    Row { renames: &[("absolute_path", "file_path")], ..row("read_file", "Read", ToolKind::Read) },
    row("read_many_files", "Read", ToolKind::Read),
    row("write_file", "Write", ToolKind::Write),
    Row {
        renames: &[("allow_multiple", "replace_all")],
        drops: &["instruction", "expected_replacements"],
        ..row("replace", "Edit", ToolKind::Edit)
    },
    Row {
        renames: &[("dir_path", "path")],
        drops: &["ignore", "file_filtering_options"],
        adds: &[("pattern", "\"*\"")],
        ..row("list_directory", "Glob", ToolKind::Search)
    },
    Row { renames: &[("dir_path", "path")], ..row("glob", "Glob", ToolKind::Search) },
    Row {
        renames: &[("dir_path", "path"), ("include_pattern", "glob"), ("include", "glob")],
        ..row("grep_search", "Grep", ToolKind::Search)
    },
    Row { renames: &[("include", "glob")], ..row("search_file_content", "Grep", ToolKind::Search) },
    Row {
        renames: &[("is_background", "run_in_background")],
        ..row("run_shell_command", "Bash", ToolKind::Shell)
    },
    row("list_background_processes", "BashOutput", ToolKind::Other),
    row("read_background_output", "BashOutput", ToolKind::Other),
    row("google_web_search", "WebSearch", ToolKind::Web),
    row("web_fetch", "WebFetch", ToolKind::Web),
    row("write_todos", "TodoWrite", ToolKind::Other),
    row("activate_skill", "Skill", ToolKind::Other),
    row("ask_user", "AskUserQuestion", ToolKind::Other),
    row("enter_plan_mode", "EnterPlanMode", ToolKind::Other),
    row("exit_plan_mode", "ExitPlanMode", ToolKind::Other),
    row("invoke_agent", "Task", ToolKind::Agent),
    row("delegate_to_agent", "Task", ToolKind::Agent),
    row("codebase_investigator", "Task", ToolKind::Agent),
    row("save_memory", "save_memory", ToolKind::Other),
    row("update_topic", "update_topic", ToolKind::Other),
    row("complete_task", "complete_task", ToolKind::Other),
    row("get_internal_docs", "get_internal_docs", ToolKind::Other),
    row("list_mcp_resources", "ListMcpResources", ToolKind::Mcp),
    row("read_mcp_resource", "ReadMcpResource", ToolKind::Mcp),
];

/// The prefix of the tools of MCP servers.
const MCP: &str = "mcp_";

fn find(native: &str) -> Option<&'static Row> {
    TOOLS.iter().find(|r| r.native == native)
}

/// Whether it is one of the agent's own tools, so that a call of it that was not offered is a refusal.
pub(super) fn is_own(native: &str) -> bool {
    find(native).is_some()
}

/// The canonical name: `Write` for `write_file`, `mcp__server__tool` for `mcp_server_tool`; others stay.
pub(super) fn canonical_name(native: &str) -> String {
    if let Some(row) = find(native) {
        return row.name.to_owned();
    }
    match native.strip_prefix(MCP).and_then(|rest| rest.split_once('_')) {
        Some((server, tool)) => format!("mcp__{server}__{tool}"),
        None => native.to_owned(),
    }
}

/// Every name of a tool, canonical or the agent's own.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    TOOLS.iter().flat_map(|r| [r.name, r.native])
}

/// The agent's own names of a canonical tool; empty for one that it does not have.
pub(super) fn native_names(canonical: &str) -> Vec<&'static str> {
    TOOLS.iter().filter(|r| r.name == canonical || r.native == canonical).map(|r| r.native).collect()
}

/// A call as our vocabulary has it.
pub(super) fn tool_use(id: String, native: &str, parameters: Option<&RawValue>) -> ToolUse {
    let row = find(native);
    let kind = match row {
        Some(row) => row.kind,
        None if native.starts_with(MCP) => ToolKind::Mcp,
        None => ToolKind::Other,
    };
    let mut tool = ToolUse::new(id, canonical_name(native), native, kind);
    tool.raw_input = parameters.map(ToOwned::to_owned);
    let entries = parameters
        .and_then(|p| serde_json::from_str::<Entries<'_, &RawValue>>(p.get()).ok())
        .unwrap_or_default();
    if matches!(kind, ToolKind::Write | ToolKind::Edit) {
        let path = entries.0.iter().rev().find(|(key, _)| &**key == "file_path");
        tool.path = path
            .and_then(|(_, raw)| serde_json::from_str::<Str<'_>>(raw.get()).ok())
            .map(Str::own)
            .filter(|p| !p.is_empty());
    }
    tool.input = match row {
        Some(row) if needs_translation(row, &entries) => translate(row, &entries),
        _ => tool.raw_input.clone(),
    };
    tool
}

fn needs_translation(row: &Row, entries: &Entries<'_, &RawValue>) -> bool {
    let touched = |key: &str| {
        row.renames.iter().any(|(from, _)| *from == key)
            || row.drops.contains(&key)
            || (row.native == "read_file" && matches!(key, "start_line" | "end_line"))
    };
    !row.adds.is_empty() || entries.0.iter().any(|(key, _)| touched(key))
}

/// Renames, drops and adds arguments without looking into their values.
fn translate(row: &Row, entries: &Entries<'_, &RawValue>) -> Option<Box<RawValue>> {
    let mut out: Vec<(String, String)> = Vec::new();
    let mut put = |key: &str, value: String| {
        if !out.iter().any(|(k, _)| k == key) {
            out.push((key.to_owned(), value));
        }
    };
    for (key, value) in row.adds {
        put(key, (*value).to_owned());
    }
    let number = |name: &str| {
        entries.0.iter().find(|(k, _)| &**k == name).and_then(|(_, v)| v.get().parse::<u64>().ok())
    };
    for (key, value) in &entries.0 {
        match (&**key, row.native) {
            (key, _) if row.drops.contains(&key) => {}
            // Lines from here to there are an offset and a length in the canonical form.
            ("start_line", "read_file") => put("offset", value.get().to_owned()),
            ("end_line", "read_file") => {
                if let Some(end) = number("end_line") {
                    let start = number("start_line").unwrap_or(1);
                    put("limit", end.saturating_sub(start).saturating_add(1).to_string());
                }
            }
            (key, _) => {
                let name = row.renames.iter().find(|(from, _)| *from == key).map_or(key, |(_, to)| to);
                put(name, value.get().to_owned());
            }
        }
    }
    let body: Vec<String> = out
        .into_iter()
        .map(|(k, v)| format!("{}:{v}", serde_json::to_string(&k).unwrap_or_default()))
        .collect();
    RawValue::from_string(format!("{{{}}}", body.join(","))).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn input(native: &str, parameters: &str) -> String {
        let raw = RawValue::from_string(parameters.to_owned()).unwrap();
        tool_use("id".into(), native, Some(&raw)).input.unwrap().get().to_owned()
    }

    #[test]
    fn arguments_translate() {
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
            input("write_file", r#"{"file_path":"a","content":"b"}"#),
            r#"{"file_path":"a","content":"b"}"#
        );
        assert_eq!(input("write_file", "[1]"), "[1]");
    }

    #[test]
    fn names_translate_both_ways() {
        assert_eq!(canonical_name("replace"), "Edit");
        assert_eq!(canonical_name("mcp_tiny_add"), "mcp__tiny__add");
        assert_eq!(canonical_name("brand_new"), "brand_new");
        assert_eq!(native_names("Edit"), ["replace"]);
        assert_eq!(native_names("write_file"), ["write_file"]);
    }

    #[test]
    fn the_path_of_a_write_is_known_and_that_of_a_read_is_no_claim() {
        let raw = RawValue::from_string(r#"{"file_path":"a\u0062.txt","content":1}"#.to_owned()).unwrap();
        assert_eq!(tool_use("1".into(), "write_file", Some(&raw)).path.as_deref(), Some("ab.txt"));
        assert_eq!(tool_use("1".into(), "read_file", Some(&raw)).path, None);
    }
}
