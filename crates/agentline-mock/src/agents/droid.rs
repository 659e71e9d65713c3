//! Factory Droid: its tools and its settings, with the scripted model as a custom model.

use serde_json::json;

use super::{ModelApi, ScriptedAgent, call, offered_name, write_file};
use crate::answer::Action;

pub(super) static AGENT: ScriptedAgent = ScriptedAgent {
    id: "droid",
    model: Some("custom:scripted-model"),
    other_model: "custom:other-model",
    unknown_model: "custom:no-such-model",
    api: ModelApi::Chat,
    counts_reasoning: true,
    prepare: |home, url| {
        let model = |name: &str| {
            json!({
                "model": name, "displayName": name, "baseUrl": format!("{url}/v1"), "apiKey": "no-key-of-anything",
                "provider": "generic-chat-completion-api", "maxOutputTokens": 8000,
            })
        };
        let settings = json!({"customModels": [model("scripted-model"), model("other-model")]});
        write_file(home, ".factory/settings.json", &settings.to_string())?;
        Ok(vec![("FACTORY_API_KEY", "fk-no-key-of-anything".to_owned())])
    },
    call: |action, offered| match action {
        Action::Write { path, content } => call("Create", json!({"file_path": path, "content": content})),
        Action::Edit { path, old, new } => {
            call("Edit", json!({"file_path": path, "old_str": old, "new_str": new}))
        }
        Action::Read { path } => call("Read", json!({"file_path": path})),
        Action::Shell { command } => {
            let risk = json!({"command": command, "riskLevelReason": "A command", "riskLevel": "low"});
            call("Execute", risk)
        }
        Action::Mcp { server, tool, args } => {
            call(offered_name(offered, tool, format!("{server}___{tool}")), args.clone())
        }
    },
};
