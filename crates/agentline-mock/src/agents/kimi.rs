//! Kimi Code: its tools and its variables.

use serde_json::json;

use super::{ModelApi, ScriptedAgent, call, offered_name};
use crate::answer::Action;

pub(super) static AGENT: ScriptedAgent = ScriptedAgent {
    id: "kimi",
    model: None,
    other_model: "other-model",
    unknown_model: "no-such-model",
    api: ModelApi::Chat,
    prepare: |_, url| {
        Ok(vec![
            ("KIMI_MODEL_NAME", "scripted-model".to_owned()),
            ("KIMI_MODEL_BASE_URL", format!("{url}/v1")),
            ("KIMI_MODEL_API_KEY", "no-key-of-anything".to_owned()),
        ])
    },
    call: |action, offered| match action {
        Action::Write { path, content } => call("Write", json!({"path": path, "content": content})),
        Action::Edit { path, old, new } => {
            call("Edit", json!({"path": path, "old_string": old, "new_string": new}))
        }
        Action::Read { path } => call("Read", json!({"path": path})),
        Action::Shell { command } => call("Bash", json!({"command": command})),
        Action::Mcp { server, tool, args } => {
            call(offered_name(offered, tool, format!("mcp__{server}__{tool}")), args.clone())
        }
    },
};
