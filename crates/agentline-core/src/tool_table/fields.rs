//! The arguments of the canonical tools, which name them as the message format does.

use super::entries;
use crate::{ToolUse, tool_table::Object};
use serde_json::value::RawValue;

/// The arguments of each canonical tool. Other tools have the arguments of the agent.
const FIELDS: &[(&str, &[&str])] = &[
    ("Read", &["file_path", "offset", "limit", "pages"]),
    ("Write", &["file_path", "content"]),
    ("Edit", &["file_path", "old_string", "new_string", "replace_all"]),
    ("MultiEdit", &["file_path", "edits"]),
    ("Glob", &["pattern", "path"]),
    (
        "Grep",
        &[
            "pattern",
            "path",
            "glob",
            "type",
            "output_mode",
            "-A",
            "-B",
            "-C",
            "-i",
            "-n",
            "-o",
            "context",
            "head_limit",
            "offset",
            "multiline",
        ],
    ),
    ("LS", &["path", "ignore"]),
    ("Bash", &["command", "description", "timeout", "run_in_background", "dangerouslyDisableSandbox"]),
    ("BashOutput", &["bash_id", "filter"]),
    ("WebFetch", &["url", "prompt"]),
    ("WebSearch", &["query", "allowed_domains", "blocked_domains"]),
    (
        "Task",
        &[
            "description",
            "prompt",
            "subagent_type",
            "model",
            "resume",
            "run_in_background",
            "max_turns",
            "name",
            "team_name",
            "mode",
            "isolation",
        ],
    ),
    ("TaskOutput", &["task_id", "block", "timeout"]),
    ("TaskStop", &["task_id", "shell_id"]),
    ("TodoWrite", &["todos"]),
    ("TodoRead", &[]),
    ("TaskCreate", &["subject", "description", "activeForm", "metadata"]),
    ("TaskGet", &["taskId"]),
    ("TaskList", &[]),
    (
        "TaskUpdate",
        &[
            "taskId",
            "status",
            "subject",
            "description",
            "activeForm",
            "owner",
            "addBlocks",
            "addBlockedBy",
            "metadata",
        ],
    ),
    ("EnterPlanMode", &[]),
    ("ExitPlanMode", &["plan", "allowedPrompts"]),
    ("AskUserQuestion", &["questions", "answers", "annotations", "metadata"]),
    ("Skill", &["skill", "args"]),
    ("ListMcpResourcesTool", &["server"]),
    ("ReadMcpResourceTool", &["server", "uri"]),
];

impl ToolUse {
    /// Returns the arguments in canonical form without those that the canonical tool does not have, or `None` if there
    /// are no such arguments.
    ///
    /// The agent's own arguments remain in `raw_input`. Arguments of a tool that the agent itself names so are not
    /// changed.
    pub(crate) fn without_foreign_arguments(&self) -> Option<Box<RawValue>> {
        if self.name == self.native_name {
            return None;
        }
        let (_, fields) = FIELDS.iter().find(|(name, _)| *name == self.name)?;
        let input = self.input.as_deref()?;
        let arguments = entries(input);
        if arguments.0.iter().all(|(key, _)| fields.contains(&&**key)) {
            return None;
        }
        let mut kept = Object::default();
        for (key, value) in arguments.0.iter().filter(|(key, _)| fields.contains(&&**key)) {
            kept.put(key, value.get());
        }
        kept.json()
    }

    /// Removes arguments that the canonical tool does not have from `input`. All arguments remain in `raw_input`.
    pub(crate) fn keep_canonical_arguments(&mut self) {
        if let Some(kept) = self.without_foreign_arguments() {
            let all = self.input.replace(kept);
            self.raw_input = self.raw_input.take().or(all);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ToolKind;

    fn call(name: &str, native: &str, input: &str) -> ToolUse {
        let mut call = ToolUse::new("1", name, native, ToolKind::Other);
        call.input = serde_json::from_str(input).ok();
        call
    }

    fn kept(name: &str, native: &str, input: &str) -> String {
        let mut call = call(name, native, input);
        call.keep_canonical_arguments();
        call.input.unwrap().get().to_owned()
    }

    #[test]
    fn arguments_that_the_canonical_tool_lacks_are_only_in_the_raw_input() {
        let shell = r#"{"command":"ls","dir_path":"src","wait_for_previous":true}"#;
        assert_eq!(kept("Bash", "run_shell_command", shell), r#"{"command":"ls"}"#);
        let mut write =
            call("Write", "write_file", r#"{"file_path":"a","modified_by_user":true,"content":"x"}"#);
        write.keep_canonical_arguments();
        assert_eq!(write.input.as_ref().unwrap().get(), r#"{"file_path":"a","content":"x"}"#);
        assert!(write.raw_input.unwrap().get().contains("modified_by_user"));
        assert_eq!(kept("Read", "read_many_files", r#"{"include":["*.rs"]}"#), "{}");
    }

    #[test]
    fn other_tools_and_calls_under_the_same_name_are_unchanged() {
        let input = r#"{"command":"ls","of_a_later_version":1}"#;
        assert_eq!(kept("Bash", "Bash", input), input);
        assert_eq!(kept("mcp__s__t", "mcp_s_t", input), input);
        assert_eq!(kept("save_memory", "save_memory", input), input);
        assert_eq!(kept("Bash", "shell", "[1]"), "[1]");
    }
}
