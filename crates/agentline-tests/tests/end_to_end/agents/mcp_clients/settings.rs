//! The settings with which each client finds the server, as in `docs/mcp.md`, and the arguments of its program.

use serde_json::{Map, Value, json};
use std::{fs, path::Path};

/// The command of a server with its environment.
pub(super) struct ServerCommand {
    pub(super) program: String,
    pub(super) args: Vec<String>,
    pub(super) env: Vec<(String, String)>,
}

/// How a client is configured and started.
#[derive(Clone, Copy)]
pub(super) struct ClientSettings {
    /// Adds the server, named `agents`, to the settings in this home.
    pub(super) write: fn(home: &Path, server: &ServerCommand),
    /// Returns the arguments for a prompt.
    pub(super) args: fn(home: &Path, prompt: &str) -> Vec<String>,
}

pub(super) const GEMINI: ClientSettings = ClientSettings {
    write: |home, server| {
        let path = home.join(".gemini/settings.json");
        let mut settings: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        settings["mcpServers"] = json!({"agents": server.entry()});
        fs::write(path, settings.to_string()).unwrap();
    },
    args: |_, prompt| strings(&["-p", prompt, "--approval-mode", "yolo", "--skip-trust"]),
};

pub(super) const CLAUDE: ClientSettings = ClientSettings {
    write: |home, server| {
        let settings = json!({"mcpServers": {"agents": server.entry()}});
        fs::write(home.join("mcp.json"), settings.to_string()).unwrap();
    },
    args: |home, prompt| {
        let file = home.join("mcp.json").to_string_lossy().into_owned();
        strings(&[
            "-p",
            prompt,
            "--mcp-config",
            &file,
            "--strict-mcp-config",
            "--allowedTools",
            "mcp__agents",
        ])
    },
};

pub(super) const CODEX: ClientSettings = ClientSettings {
    write: |home, server| {
        let path = home.join(".codex/config.toml");
        let quoted = |text: &String| Value::from(text.as_str()).to_string();
        let args: Vec<String> = server.args.iter().map(quoted).collect();
        let env: Vec<String> =
            server.env.iter().map(|(name, value)| format!("{name} = {}\n", quoted(value))).collect();
        let config = fs::read_to_string(&path).unwrap();
        let entry = format!(
            "\n[mcp_servers.agents]\ncommand = {}\nargs = [{}]\nstartup_timeout_sec = 60\ntool_timeout_sec = 60\n\n\
             [mcp_servers.agents.env]\n{}",
            quoted(&server.program),
            args.join(", "),
            env.concat()
        );
        fs::write(path, config + &entry).unwrap();
    },
    args: |_, prompt| {
        strings(&["exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", prompt])
    },
};

pub(super) const OPENCODE: ClientSettings = ClientSettings {
    write: |home, server| {
        let path = home.join(".config/opencode/opencode.json");
        let mut settings: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        let command: Vec<&String> = [&server.program].into_iter().chain(&server.args).collect();
        let entry = json!({
            "type": "local", "command": command, "environment": server.variables(), "timeout": 60_000,
        });
        settings["mcp"] = json!({"agents": entry});
        fs::write(path, settings.to_string()).unwrap();
    },
    args: |_, prompt| strings(&["run", prompt]),
};

impl ServerCommand {
    /// Returns the entry that most clients have in common.
    fn entry(&self) -> Value {
        json!({"command": self.program, "args": self.args, "env": self.variables()})
    }

    fn variables(&self) -> Map<String, Value> {
        self.env.iter().map(|(name, value)| (name.clone(), value.as_str().into())).collect()
    }
}

fn strings(all: &[&str]) -> Vec<String> {
    all.iter().map(|one| (*one).to_owned()).collect()
}
