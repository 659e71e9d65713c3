//! OpenCode: its tools and its configuration, with the scripted model as a provider of its own.

use serde_json::json;

use super::{ModelApi, ScriptedAgent, call, offered_name, write_file};
use crate::answer::Action;

/// The model of the configuration.
const MODEL: &str = "scripted/scripted-model";

pub(super) static AGENT: ScriptedAgent = ScriptedAgent {
    id: "opencode",
    model: None,
    other_model: "scripted/other-model",
    unknown_model: "scripted/no-such-model",
    api: ModelApi::Chat,
    prepare: |home, url| {
        let model = |name: &str| {
            let limits = json!({"context": 100_000, "output": 8_000});
            let modalities = json!({"input": ["text", "image"], "output": ["text"]});
            json!({
                "name": name, "reasoning": true, "tool_call": true, "attachment": true, "limit": limits,
                "modalities": modalities,
            })
        };
        let provider = json!({
            "npm": "@ai-sdk/openai-compatible", "name": "Scripted",
            "options": {"baseURL": format!("{url}/v1"), "apiKey": "no-key-of-anything"},
            "models": {"scripted-model": model("Scripted"), "other-model": model("Other")},
        });
        let config = json!({
            "provider": {"scripted": provider}, "model": MODEL, "small_model": MODEL,
            "autoupdate": false, "share": "disabled",
        });
        write_file(home, ".config/opencode/opencode.json", &config.to_string())?;
        // Without plugins, it installs nothing from npm at its first start.
        Ok(vec![("OPENCODE_PURE", "1".to_owned()), ("OPENCODE_DISABLE_MODELS_FETCH", "1".to_owned())])
    },
    call: |action, offered| match action {
        Action::Write { path, content } => call("write", json!({"filePath": path, "content": content})),
        Action::Edit { path, old, new } => {
            call("edit", json!({"filePath": path, "oldString": old, "newString": new}))
        }
        Action::Read { path } => call("read", json!({"filePath": path})),
        Action::Shell { command } => call("bash", json!({"command": command, "description": "A command"})),
        Action::Mcp { server, tool, args } => {
            call(offered_name(offered, tool, format!("{server}_{tool}")), args.clone())
        }
    },
};
