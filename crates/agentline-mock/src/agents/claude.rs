//! Claude Code: its tools and its variables.

use serde_json::json;

use super::{ModelApi, ScriptedAgent, call, offered_name};
use crate::answer::Action;

pub(super) static AGENT: ScriptedAgent = ScriptedAgent {
    id: "claude",
    model: None,
    other_model: "haiku",
    unknown_model: "claude-0-nope",
    api: ModelApi::Anthropic,
    counts_reasoning: false,
    prepare: |_, url| {
        Ok(vec![
            ("ANTHROPIC_BASE_URL", url.to_owned()),
            ("ANTHROPIC_API_KEY", "no-key-of-anything".to_owned()),
        ])
    },
    call: |action, offered| match action {
        Action::Write { path, content } => call("Write", json!({"file_path": path, "content": content})),
        Action::Edit { path, old, new } => {
            call("Edit", json!({"file_path": path, "old_string": old, "new_string": new}))
        }
        Action::Read { path } => call("Read", json!({"file_path": path})),
        Action::Shell { command } => call("Bash", json!({"command": command, "description": "A command"})),
        Action::Mcp { server, tool, args } => {
            call(offered_name(offered, tool, format!("mcp__{server}__{tool}")), args.clone())
        }
    },
};
