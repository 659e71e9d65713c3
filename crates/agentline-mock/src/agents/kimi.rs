//! Kimi Code: its tools and its configuration, with the scripted model as a provider of its own.

use serde_json::json;

use super::{ModelApi, ScriptedAgent, call, offered_name, write_file};
use crate::answer::Action;

pub(super) static AGENT: ScriptedAgent = ScriptedAgent {
    id: "kimi",
    model: None,
    other_model: "other-model",
    unknown_model: "no-such-model",
    api: ModelApi::Chat,
    counts_reasoning: false,
    prepare: |home, url| {
        let model = |name: &str| {
            format!(
                "[models.{name}]\nprovider = \"scripted\"\nmodel = \"{name}\"\nmax_context_size = 262144\n"
            )
        };
        let config = format!(
            "default_model = \"scripted-model\"\n[providers.scripted]\ntype = \"openai\"\nbase_url = \"{url}/v1\"\n\
             api_key = \"no-key-of-anything\"\n{}{}",
            model("scripted-model"),
            model("other-model")
        );
        write_file(home, ".kimi-code/config.toml", &config)?;
        Ok(Vec::new())
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
