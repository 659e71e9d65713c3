//! Tests of the launches of Codex.

use super::*;
use crate::{Program, memory_fs::MemoryFs};

fn context() -> LaunchContext {
    let program = Program { path: "/bin/codex".into(), args: vec![], version: None };
    LaunchContext::new(program, "/u/repo/ws".into(), "/u".into(), "/p".into())
}

fn launched(request: RunRequest, surface: Surface, config: &str) -> Launch {
    let fs = MemoryFs::default().plain("/u/.codex/config.toml", config);
    launch(&Plan::new(request, surface), &context(), &fs).expect("a valid plan")
}

fn meta(launch: &Launch) -> Value {
    serde_json::from_str(launch.meta.as_deref().expect("parameters")).expect("JSON")
}

#[test]
fn threads_of_app_server_trust_nothing_and_ask_about_every_mcp_tool() {
    let config = "[projects.\"/else\"]\ntrust_level = \"trusted\"\n[mcp_servers.mine]\ncommand = \"x\"\n";
    let request = RunRequest::new("x").system_prompt("be brief").deny("WebSearch");
    let launch = launched(request.clone(), Surface::AppServer, config);
    assert_eq!(launch.args, ["app-server"]);
    assert_eq!(launch.stdin, "x");
    let meta = meta(&launch);
    let config = &meta["thread"]["config"];
    for dir in ["/u/repo/ws", "/u/repo", "/else"] {
        assert_eq!(config["projects"][dir]["trust_level"], "untrusted", "{dir}");
    }
    assert_eq!(config["mcp_servers"]["mine"]["default_tools_approval_mode"], "prompt");
    assert_eq!(config["web_search"], "disabled");
    assert_eq!(meta["thread"]["developerInstructions"], "be brief");
    // With another sandbox, Codex would record the workspace as trusted.
    assert_eq!(meta["thread"]["sandbox"], "read-only");
    let trusted = self::meta(&launched(request.trust(Trust::Full), Surface::AppServer, ""));
    assert_eq!(trusted["thread"]["config"]["projects"]["/u/repo/ws"]["trust_level"], "trusted");
}

#[test]
fn secrets_of_mcp_servers_are_not_in_the_arguments_of_exec() {
    let url = McpServer::Url {
        url: "http://127.0.0.1:1/mcp".into(),
        headers: [("Authorization".to_owned(), "Bearer topsecret".to_owned())].into(),
    };
    let command = McpServer::Command {
        command: "server".into(),
        args: vec![],
        env: [("SERVER_KEY".to_owned(), "verysecret".to_owned())].into(),
    };
    let mut request = RunRequest::new("x").resume("an-id");
    request.mcp_servers = [("a".to_owned(), url), ("b".to_owned(), command)].into();
    let launch = launched(request, Surface::StreamJson, "");
    let args = launch.args.join(" ");
    assert!(!args.contains("secret"), "{args}");
    assert!(args.contains("mcp_servers.a=") && args.ends_with("resume an-id -"), "{args}");
    let values: Vec<&String> = launch.env.values().collect();
    assert!(
        values.iter().any(|value| *value == "Bearer topsecret") && launch.env["SERVER_KEY"] == "verysecret"
    );
}

#[test]
fn key_of_a_variable_is_used_only_without_another_sign_in() {
    let with_key = || RunRequest::new("x").env("OPENAI_API_KEY", "k");
    let provider = |request: RunRequest, config: &str| {
        launched(request, Surface::AppServer, config).args.iter().any(|arg| arg.contains("env_key"))
    };
    assert!(provider(with_key(), ""));
    assert!(!provider(RunRequest::new("x"), ""));
    assert!(!provider(with_key(), "model_provider = \"mine\"\n"));
    let fs = MemoryFs::default().plain("/u/.codex/auth.json", "{}");
    let plan = Plan::new(with_key(), Surface::AppServer);
    let launch = launch(&plan, &context(), &fs).expect("a valid plan");
    assert!(!launch.args.iter().any(|arg| arg.contains("env_key")), "{:?}", launch.args);
}

#[test]
fn options_of_other_surfaces_are_refused_by_name() {
    let keys = |request: &RunRequest, surface| -> Vec<String> {
        check(request, surface).into_iter().map(|problem| problem.key).collect()
    };
    let mut request = RunRequest::new("x");
    request.mode_id = Some("agent".into());
    request.allow_file_reads = true;
    assert_eq!(choose(&request), Surface::Acp);
    assert_eq!(keys(&request, Surface::AppServer), ["mode_id", "allow_file_reads"]);
    assert!(keys(&request, Surface::Acp).is_empty());
    let mut request = RunRequest::new("x").permission_mode(PermissionMode::Prompt);
    request.until = Some("true".into());
    assert_eq!(choose(&request), Surface::AppServer);
    assert_eq!(keys(&request, Surface::StreamJson), ["until", "permission_mode"]);
    let request = RunRequest::new("x").agent_option("effort", "enormous");
    assert_eq!(keys(&request, Surface::AppServer), ["effort"]);
    let request = RunRequest::new("x").agent_option("effort", "high");
    assert_eq!(keys(&request, Surface::Acp), ["effort"]);
}
