//! Mistral Vibe: its tools and its configuration, with the scripted model as a provider of its own.

use super::{ModelApi, ScriptedAgent, call, offered_name, write_file};
use crate::answer::Action;
use serde_json::json;

pub(super) static AGENT: ScriptedAgent = ScriptedAgent {
    id: "vibe",
    model: None,
    other_model: "other-model",
    unknown_model: "no-such-model",
    api: ModelApi::Chat,
    counts_reasoning: true,
    prepare: |home, url| {
        let model = |name: &str| {
            format!("[[models]]\nname = \"{name}\"\nalias = \"{name}\"\nprovider = \"scripted\"\n")
        };
        let config = format!(
            "active_model = \"scripted-model\"\nenable_telemetry = false\nenable_update_checks = false\n\n\
             [[providers]]\nname = \"scripted\"\napi_base = \"{url}/v1\"\napi_key_env_var = \"MISTRAL_API_KEY\"\n\
             backend = \"generic\"\n\n{}\n{}",
            model("scripted-model"),
            model("other-model"),
        );
        write_file(home, ".vibe/config.toml", &config)?;
        Ok(vec![("MISTRAL_API_KEY", "no-key-of-anything".to_owned())])
    },
    call: |action, offered| match action {
        Action::Write { path, content } => call("write_file", json!({"path": path, "content": content})),
        Action::Edit { path, old, new } => {
            call("edit", json!({"file_path": path, "old_string": old, "new_string": new}))
        }
        Action::Read { path } => call("read_file", json!({"path": path})),
        Action::Shell { command } => call("bash", json!({"command": command})),
        Action::Mcp { server, tool, args } => {
            call(offered_name(offered, tool, format!("{server}_{tool}")), args.clone())
        }
    },
};
