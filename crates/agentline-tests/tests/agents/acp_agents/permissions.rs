//! Tests permission decisions for these agents: a permission handler, the modes, a rule. Codex asks only about edits;
//! its commands stay in its sandbox. `conversation` tests OpenCode.

use crate::acp_agents::{
    harness::{CLAUDE, CODEX, Played, Player, Scripts, send_prompt, stage},
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

/// Returns what the model answers in these tests.
pub(crate) fn scripts(player: Player) -> Scripts {
    let both = |file: &str, other: &str| {
        vec![player.write(file), player.shell(&format!("touch {other}")), ModelStep::text("said")]
    };
    let mut scripts = vec![
        ("judged task", both("judged.txt", "judged")),
        ("edits task", both("edits.txt", "edits")),
        ("bypass task", both("bypass.txt", "bypass")),
        ("ruled task", vec![player.write("secret.txt"), ModelStep::text("said")]),
        ("ruled command", vec![player.shell("touch ruled"), ModelStep::text("said")]),
    ];
    scripts.extend((player.name == "opencode").then(|| ("commands task", commands(player))));
    scripts
}

/// A permission handler that permits everything, or everything except commands.
#[derive(Clone, Default)]
pub(crate) struct Handler {
    asked: Arc<Mutex<Vec<PermissionRequest>>>,
    permits_commands: Arc<AtomicBool>,
}

impl Handler {
    /// Returns the handler for the options of a session.
    pub(crate) fn answers(&self) -> PermissionHandler {
        let Self { asked, permits_commands } = self.clone();
        PermissionHandler::new(move |ask| {
            asked.lock().unwrap().push(ask.clone());
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

async fn check_permissions(player: Player) {
    let stage = stage!(player, scripts(player));
    let handler = Handler::default();
    let options = RunOptions::new().permission_handler(handler.answers());
    let session = stage.agentline().session_with(stage.request(Mode::Default), options).await.unwrap();
    check(&stage, &session, &handler).await;
    session.close().await;
}

/// Checks the decisions about the prompts of these tests.
pub(crate) async fn check(stage: &Played, session: &Session, handler: &Handler) {
    let Handler { asked, permits_commands } = handler;
    let player = stage.player;
    let is_there = |path: &str| stage.read(path).is_some();
    let asks_about_commands = player.name != "codex";

    // The permission handler gets the change, and the command unchanged.
    let told = send_prompt(session, stage.request(Mode::Default), "judged task").await;
    let mut decisions = vec!["Write allow callback - -"];
    decisions.extend(asks_about_commands.then_some("Bash deny callback no commands -"));
    assert_eq!(told.decisions(), decisions, "{}", told.shown());
    assert!(is_there("judged.txt") && !is_there("judged"), "{}", told.shown());
    {
        let asked = asked.lock().unwrap();
        let diff = &asked[0].diffs[0];
        assert!(diff.path.ends_with("judged.txt") && diff.new == "new\n", "{asked:?}");
        let command = asks_about_commands.then_some("touch judged");
        assert_eq!(asked.get(1).and_then(|ask| ask.command.as_deref()), command, "{asked:?}");
    }

    // Codex does not ask about edits in this mode: its sandbox lets it write, and restricts its commands to the
    // workspace.
    let told = send_prompt(session, stage.request(Mode::AcceptEdits), "edits task").await;
    let decisions = ["Write allow mode accept-edits -", "Bash deny callback no commands -"];
    let decisions = if asks_about_commands { &decisions[..] } else { &[] };
    assert_eq!(told.decisions(), decisions, "{}", told.shown());
    assert_eq!((is_there("edits.txt"), is_there("edits")), (true, !asks_about_commands), "{}", told.shown());

    // An agent that was started to ask does so in every mode. The answer is always yes.
    let told = send_prompt(session, stage.request(Mode::Bypass), "bypass task").await;
    let decisions = ["Write allow mode bypass -", "Bash allow mode bypass -"];
    let decisions = if asks_about_commands { &decisions[..] } else { &[] };
    assert_eq!(told.decisions(), decisions, "{}", told.shown());
    assert_eq!(told.outcome.verdict, Verdict::Done, "{}", told.shown());
    assert!(is_there("bypass.txt") && is_there("bypass"));

    // A rule takes precedence over the permission handler and the mode.
    let before = asked.lock().unwrap().len();
    let told = send_prompt(session, stage.request(Mode::Auto).deny("Write(secret*)"), "ruled task").await;
    assert_eq!(told.decisions(), ["Write deny rule rule Write(secret*)"], "{}", told.shown());
    assert_eq!(told.denied(), ["Write rule Write(secret*)"], "{}", told.shown());
    assert!(!is_there("secret.txt") && told.outcome.files.is_empty());
    let mut ruled = stage.request(Mode::Auto).deny("Bash(touch *)");
    ruled.prompt = "ruled command".into();
    match player.name {
        // The agent asks about every command only in a session that was opened with such a rule.
        "claude" => drop(session.prompt_with(ruled).await.unwrap_err()),
        "opencode" => {
            let told = send_prompt(session, ruled, "ruled command").await;
            assert_eq!(told.denied(), ["Bash rule Bash(touch *)"], "{}", told.shown());
            assert!(!is_there("ruled"), "{}", told.shown());
        }
        _ => {}
    }
    assert_eq!(asked.lock().unwrap().len(), before);

    // The agent asks about every command that starts a program.
    if player.name == "opencode" {
        fs::write(stage.stage.workspace().join("f"), "a\n").unwrap();
        permits_commands.store(true, Ordering::SeqCst);
        let told = send_prompt(session, stage.request(Mode::Default), "commands task").await;
        assert_eq!(told.ends().len(), COMMANDS.len(), "{}", told.shown());
        let asked = asked.lock().unwrap();
        let is_asked =
            |command: &str| asked[before..].iter().any(|ask| ask.command.as_deref() == Some(command));
        let unasked: Vec<&str> = COMMANDS.iter().copied().filter(|command| !is_asked(command)).collect();
        assert_eq!(unasked, STARTS_NOTHING);
    }
}
