//! GitHub Copilot CLI: its tools, and the variables with which it uses a model of the user's own.

use serde_json::json;

use super::{ModelApi, ScriptedAgent, call, offered_name};
use crate::answer::Action;

pub(super) static AGENT: ScriptedAgent = ScriptedAgent {
    id: "copilot",
    model: None,
    other_model: "other-model",
    unknown_model: "no-such-model",
    api: ModelApi::Chat,
    counts_reasoning: true,
    prepare: |_, url| {
        Ok(vec![
            ("COPILOT_PROVIDER_BASE_URL", format!("{url}/v1")),
            ("COPILOT_PROVIDER_API_KEY", "no-key-of-anything".to_owned()),
            ("COPILOT_PROVIDER_TYPE", "openai".to_owned()),
            ("COPILOT_MODEL", "scripted-model".to_owned()),
            ("COPILOT_OFFLINE", "true".to_owned()),
        ])
    },
    call: |action, offered| match action {
        Action::Write { path, content } => call("create", json!({"path": path, "file_text": content})),
        Action::Edit { path, old, new } => {
            call("edit", json!({"path": path, "old_str": old, "new_str": new}))
        }
        Action::Read { path } => call("view", json!({"path": path})),
        Action::Shell { command } => call("bash", json!({"command": command, "description": "A command"})),
        Action::Mcp { server, tool, args } => {
            call(offered_name(offered, tool, format!("{server}-{tool}")), args.clone())
        }
    },
};
