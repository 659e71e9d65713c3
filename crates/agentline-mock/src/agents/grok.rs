//! Grok: its tools and its configuration, with the scripted model as a model of its own.

use serde_json::json;

use super::{ModelApi, ScriptedAgent, call, write_file};
use crate::answer::Action;

pub(super) static AGENT: ScriptedAgent = ScriptedAgent {
    id: "grok",
    model: None,
    other_model: "other-model",
    unknown_model: "no-such-model",
    api: ModelApi::Chat,
    counts_reasoning: true,
    prepare: |home, url| {
        let model = |name: &str| {
            format!(
                "[model.{name}]\nmodel = \"{name}\"\nname = \"{name}\"\nbase_url = \"{url}/v1\"\napi_key = \"no-key-of-anything\"\n"
            )
        };
        let config = format!(
            "[models]\ndefault = \"scripted-model\"\n\n{}\n{}",
            model("scripted-model"),
            model("other-model")
        );
        write_file(home, ".grok/config.toml", &config)?;
        Ok(vec![("XAI_API_KEY", "no-key-of-anything".to_owned())])
    },
    call: |action, _| match action {
        Action::Write { path, content } => call("write", json!({"file_path": path, "content": content})),
        Action::Edit { path, old, new } => {
            call("search_replace", json!({"file_path": path, "old_string": old, "new_string": new}))
        }
        Action::Read { path } => call("read_file", json!({"target_file": path})),
        Action::Shell { command } => {
            call("run_terminal_command", json!({"command": command, "description": "A command"}))
        }
        // Tools of servers are not offered by themselves.
        Action::Mcp { server, tool, args } => {
            call("use_tool", json!({"tool_name": format!("{server}__{tool}"), "tool_input": args}))
        }
    },
};
