//! OpenCode: its tools and its configuration, with the scripted model as a provider of its own.

use std::fs;

use serde_json::json;

use super::{ModelApi, ScriptedAgent, call, offered_name, write_file};
use crate::answer::Action;

/// The model of the configuration.
const MODEL: &str = "scripted/scripted-model";

/// The file with the models that OpenCode knows, relative to the home.
const MODELS: &str = ".config/opencode/known-models.json";

pub(super) static AGENT: ScriptedAgent = ScriptedAgent {
    id: "opencode",
    model: None,
    other_model: "scripted/other-model",
    unknown_model: "scripted/no-such-model",
    api: ModelApi::Chat,
    counts_reasoning: true,
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
        // Otherwise, each process installs this package from npm until it is there, which takes ten seconds of processor
        // time. Only plugins use it.
        let installed = json!({"packages": {"": {"dependencies": {"@opencode-ai/plugin": "*"}}}});
        write_file(home, ".config/opencode/package-lock.json", &installed.to_string())?;
        fs::create_dir_all(home.join(".config/opencode/node_modules"))?;
        // It reads the list of all models for each workspace; here, those of the configuration are enough.
        write_file(home, MODELS, "{}")?;
        let models = home.join(MODELS).to_string_lossy().into_owned();
        let switches = ["OPENCODE_PURE", "OPENCODE_DISABLE_MODELS_FETCH"].map(|name| (name, "1".to_owned()));
        Ok(switches.into_iter().chain([("OPENCODE_MODELS_PATH", models)]).collect())
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
