//! Goose: its tools and its variables.

use serde_json::json;

use super::{ModelApi, ScriptedAgent, call, offered_name};
use crate::answer::Action;

pub(super) static AGENT: ScriptedAgent = ScriptedAgent {
    id: "goose",
    model: None,
    other_model: "other-model",
    unknown_model: "no-such-model",
    api: ModelApi::Chat,
    counts_reasoning: true,
    prepare: |_, url| {
        Ok(vec![
            ("GOOSE_PROVIDER", "openai".to_owned()),
            ("GOOSE_MODEL", "scripted-model".to_owned()),
            ("GOOSE_DISABLE_KEYRING", "1".to_owned()),
            ("OPENAI_HOST", url.to_owned()),
            ("OPENAI_API_KEY", "no-key-of-anything".to_owned()),
        ])
    },
    call: |action, offered| match action {
        Action::Write { path, content } => call("write", json!({"path": path, "content": content})),
        Action::Edit { path, old, new } => call("edit", json!({"path": path, "before": old, "after": new})),
        Action::Read { path } => call("shell", json!({"command": format!("cat '{path}'")})),
        Action::Shell { command } => call("shell", json!({"command": command})),
        Action::Mcp { server, tool, args } => {
            call(offered_name(offered, tool, format!("{server}__{tool}")), args.clone())
        }
    },
};
