//! pi: its tools and its configuration, with the scripted model as a provider of its own.

use serde_json::json;

use super::{ModelApi, ScriptedAgent, call, offered_name, write_file};
use crate::answer::Action;

pub(super) static AGENT: ScriptedAgent = ScriptedAgent {
    id: "pi",
    model: None,
    other_model: "scripted/other-model",
    unknown_model: "scripted/no-such-model",
    api: ModelApi::Chat,
    counts_reasoning: true,
    prepare: |home, url| {
        let models = json!({"providers": {"scripted": {
            "baseUrl": format!("{url}/v1"), "api": "openai-completions", "apiKey": "no-key-of-anything",
            "models": [{"id": "scripted-model"}, {"id": "other-model"}],
        }}});
        write_file(home, ".pi/agent/models.json", &models.to_string())?;
        let settings = json!({"defaultProvider": "scripted", "defaultModel": "scripted-model"});
        write_file(home, ".pi/agent/settings.json", &settings.to_string())?;
        Ok(vec![("PI_OFFLINE", "1".to_owned())])
    },
    call: |action, offered| match action {
        Action::Write { path, content } => call("write", json!({"path": path, "content": content})),
        Action::Edit { path, old, new } => {
            call("edit", json!({"path": path, "edits": [{"oldText": old, "newText": new}]}))
        }
        Action::Read { path } => call("read", json!({"path": path})),
        Action::Shell { command } => call("bash", json!({"command": command})),
        Action::Mcp { server, tool, args } => {
            call(offered_name(offered, tool, format!("{server}_{tool}")), args.clone())
        }
    },
};
