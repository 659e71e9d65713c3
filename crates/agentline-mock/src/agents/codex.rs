//! Codex: its tools (mainly one for patches and one for commands) and its configuration.

use serde_json::json;

use super::{ModelApi, ScriptedAgent, call, write_file};
use crate::answer::Action;
use crate::responses;
use crate::scripted::ModelPart;

pub(super) static AGENT: ScriptedAgent = ScriptedAgent {
    id: "codex",
    model: None,
    other_model: "gpt-5.4",
    unknown_model: "gpt-0-nope",
    api: ModelApi::Responses,
    counts_reasoning: true,
    prepare: |home, url| {
        let config = format!(
            "model = \"gpt-5.5\"\nmodel_provider = \"scripted\"\n\n[model_providers.scripted]\nname = \"scripted\"\n\
             base_url = \"{url}/v1\"\nwire_api = \"responses\"\n"
        );
        write_file(home, ".codex/config.toml", &config)?;
        Ok(Vec::new())
    },
    call: |action, _| match action {
        Action::Write { path, content } => patch(responses::add_file(path, content)),
        Action::Edit { path, old, new } => {
            patch(format!("*** Begin Patch\n*** Update File: {path}\n@@\n-{old}\n+{new}\n*** End Patch\n"))
        }
        Action::Read { path } => call("exec_command", json!({"cmd": format!("cat '{path}'")})),
        Action::Shell { command } => call("exec_command", json!({"cmd": command})),
        Action::Mcp { server, tool, args } => ModelPart::Call {
            namespace: Some(format!("mcp__{server}")),
            name: tool.clone(),
            args: args.clone(),
        },
    },
};

fn patch(input: String) -> ModelPart {
    ModelPart::Plain { name: "apply_patch".to_owned(), input }
}
