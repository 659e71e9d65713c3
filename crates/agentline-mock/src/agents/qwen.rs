//! Qwen Code: its tools and its variables.

use serde_json::json;

use super::{ModelApi, ScriptedAgent, call, offered_name, write_file};
use crate::answer::Action;

pub(super) static AGENT: ScriptedAgent = ScriptedAgent {
    id: "qwen",
    model: None,
    other_model: "other-model",
    unknown_model: "no-such-model",
    api: ModelApi::Chat,
    counts_reasoning: true,
    prepare: |home, url| {
        // The model of the variables is the default. Only models of the settings can be selected.
        let other = json!({"id": "other-model", "baseUrl": format!("{url}/v1"), "envKey": "OPENAI_API_KEY"});
        let settings = json!({
            "security": {"auth": {"selectedType": "openai"}}, "modelProviders": {"openai": [other]},
        });
        write_file(home, ".qwen/settings.json", &settings.to_string())?;
        Ok(vec![
            ("OPENAI_BASE_URL", format!("{url}/v1")),
            ("OPENAI_API_KEY", "no-key-of-anything".to_owned()),
            ("OPENAI_MODEL", "scripted-model".to_owned()),
        ])
    },
    call: |action, offered| match action {
        Action::Write { path, content } => call("write_file", json!({"file_path": path, "content": content})),
        Action::Edit { path, old, new } => {
            call("edit", json!({"file_path": path, "old_string": old, "new_string": new}))
        }
        Action::Read { path } => call("read_file", json!({"file_path": path})),
        Action::Shell { command } => {
            let args = json!({"command": command, "is_background": false, "description": "A command"});
            call("run_shell_command", args)
        }
        Action::Mcp { server, tool, args } => {
            call(offered_name(offered, tool, format!("mcp__{server}__{tool}")), args.clone())
        }
    },
};
