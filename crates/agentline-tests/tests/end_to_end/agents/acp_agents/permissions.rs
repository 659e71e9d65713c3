//! Tests permission decisions for these agents: a permission handler, the modes, a rule. Codex asks only about edits;
//! its commands stay in its sandbox. `conversation` tests OpenCode.

use crate::agents::acp_agents::{
    harness::{AgentScripts, AgentStage, CLAUDE, CODEX, CODEX_NATIVE, TestedAgent, send_prompt, stage},
    rules::{COMMANDS, STARTS_NOTHING, commands},
};
use agentline::{
    Permission, PermissionHandler, PermissionMode as Mode, PermissionRequest, RunOptions, Session, ToolKind,
    Verdict,
};
use agentline_mock::scripted::ModelStep;
use std::{
    fs,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

#[tokio::test]
async fn claude() {
    check_permissions(CLAUDE).await;
}

#[tokio::test]
async fn codex() {
    check_permissions(CODEX).await;
}

#[tokio::test]
async fn codex_native() {
    check_permissions(CODEX_NATIVE).await;
}

/// Returns what the model answers in these tests.
pub(crate) fn scripts(tested: TestedAgent) -> AgentScripts {
    let both = |file: &str, other: &str| {
        vec![tested.write(file), tested.shell(&format!("touch {other}")), ModelStep::text("said")]
    };
    let mut scripts = vec![
        ("judged task", both("judged.txt", "judged")),
        ("edits task", both("edits.txt", "edits")),
        ("bypass task", both("bypass.txt", "bypass")),
        ("ruled task", vec![tested.write("secret.txt"), ModelStep::text("said")]),
        ("ruled command", vec![tested.shell("touch ruled"), ModelStep::text("said")]),
    ];
    scripts.extend((tested.name == "opencode").then(|| ("commands task", commands(tested))));
    scripts
}

/// A permission handler that permits everything, or everything except commands.
#[derive(Clone, Default)]
pub(crate) struct Handler {
    received: Arc<Mutex<Vec<PermissionRequest>>>,
    permits_commands: Arc<AtomicBool>,
}

impl Handler {
    /// Returns the handler for the options of a session.
    pub(crate) fn answers(&self) -> PermissionHandler {
        let Self { received, permits_commands } = self.clone();
        PermissionHandler::new(move |ask| {
            received.lock().unwrap().push(ask.clone());
            let permits = permits_commands.load(Ordering::SeqCst);
            async move {
                if ask.kind == ToolKind::Shell && !permits {
                    Permission::Deny("no commands".into())
                } else {
                    Permission::Allow
                }
            }
        })
    }
}

async fn check_permissions(tested: TestedAgent) {
    let stage = stage!(tested, scripts(tested));
    let handler = Handler::default();
    let options = RunOptions::new().permission_handler(handler.answers());
    let session = stage.agentline().session_with(stage.request(Mode::Default), options).await.unwrap();
    check(&stage, &session, &handler).await;
    session.close().await;
}

/// Checks the decisions about the prompts of these tests.
pub(crate) async fn check(stage: &AgentStage, session: &Session, handler: &Handler) {
    let Handler { received, permits_commands } = handler;
    let tested = stage.tested;
    let exists = |path: &str| stage.read(path).is_some();
    let asks_about_commands = tested.name != "codex";

    // The permission handler gets the change, and the command unchanged.
    let result = send_prompt(session, stage.request(Mode::Default), "judged task").await;
    let mut decisions = vec!["Write allow callback - -"];
    decisions.extend(asks_about_commands.then_some("Bash deny callback no commands -"));
    assert_eq!(result.decisions(), decisions, "{}", result.shown());
    assert!(exists("judged.txt") && !exists("judged"), "{}", result.shown());
    {
        let received = received.lock().unwrap();
        let diff = &received[0].diffs[0];
        assert!(diff.path.ends_with("judged.txt") && diff.new == "new\n", "{received:?}");
        let command = asks_about_commands.then_some("touch judged");
        assert_eq!(received.get(1).and_then(|ask| ask.command.as_deref()), command, "{received:?}");
    }

    // Codex does not ask about edits in this mode: its sandbox lets it write, and restricts its commands to the
    // workspace.
    let result = send_prompt(session, stage.request(Mode::AcceptEdits), "edits task").await;
    let decisions = ["Write allow mode accept-edits -", "Bash deny callback no commands -"];
    let decisions = if asks_about_commands { &decisions[..] } else { &[] };
    assert_eq!(result.decisions(), decisions, "{}", result.shown());
    assert_eq!((exists("edits.txt"), exists("edits")), (true, !asks_about_commands), "{}", result.shown());

    // An agent that was started to ask does so in every mode. The answer is always yes.
    let result = send_prompt(session, stage.request(Mode::Bypass), "bypass task").await;
    let decisions = ["Write allow mode bypass -", "Bash allow mode bypass -"];
    let decisions = if asks_about_commands { &decisions[..] } else { &[] };
    assert_eq!(result.decisions(), decisions, "{}", result.shown());
    assert_eq!(result.outcome.verdict, Verdict::Done, "{}", result.shown());
    assert!(exists("bypass.txt") && exists("bypass"));

    // A rule takes precedence over the permission handler and the mode.
    let before = received.lock().unwrap().len();
    let result = send_prompt(session, stage.request(Mode::Auto).deny("Write(secret*)"), "ruled task").await;
    assert_eq!(result.decisions(), ["Write deny rule rule Write(secret*)"], "{}", result.shown());
    assert_eq!(result.denied(), ["Write rule Write(secret*)"], "{}", result.shown());
    assert!(!exists("secret.txt") && result.outcome.files.is_empty());
    let mut ruled = stage.request(Mode::Auto).deny("Bash(touch *)");
    ruled.prompt = "ruled command".into();
    match tested.name {
        // The agent asks about every command only in a session that was opened with such a rule.
        "claude" => drop(session.prompt_with(ruled).await.unwrap_err()),
        // Codex gets its limits with each prompt.
        name if name == "opencode" || tested.version == CODEX_NATIVE.version => {
            let result = send_prompt(session, ruled, "ruled command").await;
            assert_eq!(result.denied(), ["Bash rule Bash(touch *)"], "{}", result.shown());
            assert!(!exists("ruled"), "{}", result.shown());
        }
        _ => {}
    }
    assert_eq!(received.lock().unwrap().len(), before);

    // The agent asks about every command that starts a program.
    if tested.name == "opencode" {
        fs::write(stage.stage.workspace().join("f"), "a\n").unwrap();
        permits_commands.store(true, Ordering::SeqCst);
        let result = send_prompt(session, stage.request(Mode::Default), "commands task").await;
        assert_eq!(result.ends().len(), COMMANDS.len(), "{}", result.shown());
        let received = received.lock().unwrap();
        let is_requested =
            |command: &str| received[before..].iter().any(|ask| ask.command.as_deref() == Some(command));
        let commands_without_request: Vec<&str> =
            COMMANDS.iter().copied().filter(|command| !is_requested(command)).collect();
        assert_eq!(commands_without_request, STARTS_NOTHING);
    }
}
