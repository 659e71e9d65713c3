//! Tests what these agents do without asking, and that they ask about every use of a tool with a pattern rule. `pool`
//! and `conversation` test OpenCode, which starts slowly, on the processes of those tests.

use crate::agents::acp_agents::harness::{
    AgentScripts, AgentStage, CLAUDE, CODEX, TestedAgent, send_prompt, stage,
};
use agentline::{
    McpServer, Permission, PermissionHandler, PermissionMode as Mode, Pool, RunOptions, RunRequest,
    ToolStatus, Trust,
};
use agentline_mock::scripted::ModelStep;
use agentline_tests::RunRecord;
use serde_json::json;
use std::{
    fs,
    sync::{Arc, Mutex},
};

/// Commands that Claude Code considers harmless, and commands that change something. None does harm in an empty
/// directory.
pub(crate) const COMMANDS: &[&str] = &[
    "cat f",
    "cd .",
    "date",
    "docker ps",
    "echo a",
    "find .",
    "git log",
    "git status",
    "grep a f",
    "head f",
    "history",
    "id",
    "jq . f",
    "ls | head",
    "nl f",
    "node --version",
    "python3 --version",
    "sed -n 1p f",
    "seq 1",
    "sleep 0",
    "sort f",
    "xargs echo",
    "[ -f f ]",
    "touch made",
    "env",
    "A=1 ls",
    "> cut",
];

/// The commands that OpenCode runs without asking, because they start no program.
pub(crate) const STARTS_NOTHING: &[&str] = &["cd .", "[ -f f ]", "> cut"];

/// Runs these commands in one turn, permits every request, and returns the commands for which there was none.
async fn commands_without_request(
    stage: &AgentStage,
    request: RunRequest,
    commands: &[&'static str],
) -> Vec<&'static str> {
    fs::write(stage.stage.workspace().join("f"), "a\n").unwrap();
    let asked_commands = Arc::new(Mutex::new(Vec::<String>::new()));
    let seen = asked_commands.clone();
    let handler = PermissionHandler::new(move |ask| {
        seen.lock().unwrap().extend(ask.command.clone());
        async move { Permission::Allow }
    });
    let options = RunOptions::new().permission_handler(handler);
    let session = stage.agentline().session_with(request.clone(), options).await.unwrap();
    let result = send_prompt(&session, request, "commands task").await;
    session.close().await;
    assert_eq!(result.ends().len(), commands.len(), "{}", result.shown());
    let asked_commands = asked_commands.lock().unwrap();
    commands
        .iter()
        .copied()
        .filter(|command| !asked_commands.iter().any(|asked_commands| asked_commands == command))
        .collect()
}

pub(crate) fn commands(tested: TestedAgent) -> Vec<ModelStep> {
    vec![tested.commands(COMMANDS), ModelStep::text("said")]
}

#[tokio::test]
async fn claude_code_asks_about_every_command_with_rules() {
    let stage = stage!(CLAUDE, vec![("commands task", commands(CLAUDE))]);
    // The user's own settings permit everything.
    stage.stage.home_file(".claude/settings.json", r#"{"permissions": {"allow": ["Bash"]}}"#);
    let ruled = stage.request(Mode::Default).ask("Bash(nothing *)");
    assert_eq!(commands_without_request(&stage, ruled, COMMANDS).await, [""; 0]);
}

#[tokio::test]
async fn claude_code_runs_commands_without_asking_without_rules() {
    let harmless = ["cat f", "docker ps", "git log", "ls | head", "sleep 0", "[ -f f ]"];
    let all = [&harmless[..], &["touch made", "env", "> cut"]].concat();
    let stage = stage!(CLAUDE, vec![("commands task", vec![CLAUDE.commands(&all), ModelStep::text("said")])]);
    assert_eq!(commands_without_request(&stage, stage.request(Mode::Default), &all).await, harmless);
}

/// Rules also decide about actions that Claude Code does not ask about.
#[tokio::test]
async fn claude_code_obeys_rules_about_harmless_commands_and_reads() {
    let commands = ["cat open.txt", "echo refused", "'echo' refused"].map(|command| CLAUDE.shell(command));
    let paths = ["open.txt", "secret/key.txt", "./secret/../secret/key.txt", "way-in/key.txt"];
    let reads = paths.map(|path| ModelStep::call("Read", json!({"file_path": path})));
    let steps = commands.into_iter().chain(reads).chain([ModelStep::text("said")]).collect();
    let stage = stage!(CLAUDE, vec![("rules task", steps)]);
    let at = |path: &str| stage.stage.workspace().join(path);
    fs::create_dir(at("secret")).unwrap();
    fs::write(at("open.txt"), "open").unwrap();
    fs::write(at("secret/key.txt"), "KEYWORDS").unwrap();
    std::os::unix::fs::symlink(at("secret"), at("way-in")).unwrap();
    let mut request = stage.request(Mode::Auto).deny("Bash(echo *)").deny("Read(secret/**)");
    request.prompt = "rules task".into();
    let result = RunRecord::of(stage.agentline().run(request).await.unwrap()).await;
    use ToolStatus::{Denied, Ok};
    assert_eq!(result.ends(), [Ok, Denied, Denied, Ok, Denied, Denied, Denied], "{}", result.shown());
    let sent_to_model: String =
        stage.stage.model.requests().iter().map(|request| request.body.to_string()).collect();
    assert!(!sent_to_model.contains("KEYWORDS"));
}

/// An MCP server over stdio with three tools, each of which creates a file of its name. One of them claims to be
/// read-only.
const SERVER: &str = r#"
const fs = require('node:fs');
const tool = (name, readOnlyHint) => ({ name, inputSchema: { type: 'object' }, annotations: { readOnlyHint } });
const answers = {
  initialize: ({ protocolVersion }) => ({
    protocolVersion, capabilities: { tools: {} }, serverInfo: { name: 'notes', version: '1' },
  }),
  'tools/list': () => ({ tools: [tool('look', true), tool('put', false), tool('free', false)] }),
  'tools/call': ({ name }) => {
    fs.writeFileSync(`${__dirname}/${name}`, '');
    return { content: [{ type: 'text', text: 'called' }] };
  },
};
require('node:readline').createInterface({ input: process.stdin }).on('line', (line) => {
  const { id, method, params } = JSON.parse(line);
  if (id === undefined) return;
  console.log(JSON.stringify({ jsonrpc: '2.0', id, result: answers[method]?.(params) ?? {} }));
});
"#;

/// The workspace is trusted, so its settings apply; `command_line` shows that they do not otherwise.
#[tokio::test]
async fn claude_code_obeys_rules_about_mcp_tools() {
    let mut stage = stage!(CLAUDE, mcp_scripts(CLAUDE));
    stage.trust = Trust::Full;
    let mark = stage.command_in_workspace_settings();
    check_rules_about_mcp_tools(&stage, None).await;
    assert!(mark.exists());
}

/// A rule about such a tool is therefore refused.
#[tokio::test]
async fn codex_uses_read_only_mcp_tools_without_asking() {
    let stage = stage!(CODEX, mcp_scripts(CODEX));
    let [ran, denied] = mcp_tools(&stage, None, Mode::Deny, &[]).await;
    assert_eq!((ran, denied), (vec!["look"], vec!["free", "put"]));
}

/// Checks that rules decide about the tools of a server, in a run of its own or on a warm agent.
pub(crate) async fn check_rules_about_mcp_tools(stage: &AgentStage, pool: Option<&Pool>) {
    let [ran, _] = mcp_tools(stage, pool, Mode::Auto, &["mcp__notes__look", "mcp__notes__put"]).await;
    assert_eq!(ran, ["free"], "{}", stage.tested.name);
}

/// The tools of the server.
const TOOLS: [&str; 3] = ["free", "look", "put"];

/// Returns what the model answers in these tests.
pub(crate) fn mcp_scripts(tested: TestedAgent) -> AgentScripts {
    let calls = TOOLS.map(|tool| tested.hosted("notes", tool, json!({})));
    vec![("server task", calls.into_iter().chain([ModelStep::text("said")]).collect())]
}

/// Calls each tool of the server once. Returns those that ran, and those that agentline denied.
async fn mcp_tools(
    stage: &AgentStage,
    pool: Option<&Pool>,
    mode: Mode,
    denied: &[&str],
) -> [Vec<&'static str>; 2] {
    let server = stage.stage.home().join("server.cjs");
    fs::write(&server, SERVER).unwrap();
    let args = vec![server.to_string_lossy().into_owned()];
    let server = McpServer::Command { command: "node".into(), args, env: [].into() };
    let request = stage.request(mode).mcp_server("notes", server);
    let mut request = denied.iter().fold(request, |request, rule| request.deny(*rule));
    request.prompt = "server task".into();
    let run = match pool {
        Some(pool) => pool.run(request).await,
        None => stage.agentline().run(request).await,
    };
    let result = RunRecord::of(run.unwrap()).await;
    let ran = TOOLS.into_iter().filter(|tool| stage.stage.home().join(tool).exists()).collect();
    let refused =
        |tool: &&str| result.denied().iter().any(|denied| denied.contains(&format!("mcp__notes__{tool} ")));
    [ran, TOOLS.into_iter().filter(refused).collect()]
}
