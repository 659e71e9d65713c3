//! Tests that a stored session can be continued over ACP and is never damaged by it.

use crate::acp_gemini::harness::{RunRecord, in_mode, send_prompt, stage};
use agentline::{Event, FailureKind, PermissionMode as Mode, RunRequest, Surface, Verdict};
use agentline_mock::gemini::{GeminiStep, Script};
use agentline_tests::{TestStage, needs_real_gemini, real_gemini};
use serde_json::{Value, json};
use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

/// Returns the files of a session in the user's store.
fn files(stage: &TestStage, session: &str) -> Vec<PathBuf> {
    fn walk(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            match entry.path() {
                path if path.is_dir() && !path.is_symlink() => walk(&path, found),
                path => found.push(path),
            }
        }
    }
    let mut found = Vec::new();
    walk(&stage.home().join(".gemini/tmp"), &mut found);
    let ending = format!("-{}.jsonl", &session[..8]);
    found.retain(|path| path.to_string_lossy().ends_with(&ending));
    found
}

/// Renames a session's file so that the session seems to have started in another minute.
fn begun_in(stage: &TestStage, session: &str, minute: &str) {
    let file = files(stage, session).remove(0);
    let name = format!("session-{minute}-{}.jsonl", &session[..8]);
    fs::rename(&file, file.with_file_name(name)).expect("the file can be renamed");
}

/// Returns the messages of a session by the user and the model in order. A message that is written twice counts once.
fn messages(stage: &TestStage, session: &str) -> Vec<(String, Value)> {
    let mut said: Vec<(String, Value)> = Vec::new();
    for file in files(stage, session) {
        let text = fs::read_to_string(file).expect("a session file");
        for record in text.lines().map(|line| serde_json::from_str::<Value>(line).expect("a line is JSON")) {
            let is_message = record["type"] == "user" || record["type"] == "gemini";
            let id = record["id"].as_str().unwrap_or_default().to_owned();
            if is_message && said.iter().all(|(have, _)| *have != id) {
                said.push((id, record["content"].clone()));
            }
        }
    }
    said
}

/// Starts the agent as its user does.
fn ordinary_start(stage: &TestStage) {
    let program = real_gemini().expect("real agents are enabled");
    let mut command = Command::new(program.path);
    command.args(program.args).args(["-m", "gemini-2.5-flash", "--skip-trust", "-p", "an ordinary start"]);
    command.env_clear().envs(stage.variables()).env("GEMINI_CLI_NO_RELAUNCH", "1");
    let output = command.current_dir(stage.workspace()).stdin(Stdio::null()).output().expect("it starts");
    assert!(output.status.success(), "{output:?}");
}

fn resuming(stage: &TestStage, session: &str, prompt: &str) -> RunRequest {
    let mut request = in_mode(stage, Mode::Default).surface(Surface::Acp).resume(session);
    request.prompt = prompt.into();
    request
}

#[tokio::test]
async fn resumed_session_is_complete_after_two_normal_starts() {
    needs_real_gemini!();
    let stage = stage([
        (
            "remember",
            Script::new([
                GeminiStep::thought("Hm.").and_call("list_directory", json!({"dir_path": "."})),
                GeminiStep::text("I will remember it."),
            ]),
        ),
        ("which", Script::new([GeminiStep::text("It was 4711.")])),
        ("", Script::always(GeminiStep::text("ok"))),
    ]);
    let session = stage.agentline().session(in_mode(&stage, Mode::Default)).await.unwrap();
    let id = session.id().to_owned();
    let told = send_prompt(&session, in_mode(&stage, Mode::Default), "remember the number 4711").await;
    assert_eq!(told.outcome.verdict, Verdict::Done, "{}", told.shown());
    session.close().await;
    begun_in(&stage, &id, "2026-01-01T00-00");
    let before = messages(&stage, &id);
    assert!(before.len() >= 3, "{before:?}");

    let told =
        RunRecord::of(stage.agentline().run(resuming(&stage, &id[..8], "which number?")).await.unwrap())
            .await;
    assert_eq!(told.outcome.verdict, Verdict::Done, "{}", told.shown());
    assert_eq!(told.outcome.session_id.as_deref(), Some(id.as_str()));
    // The agent replays the history, but it is not part of this run.
    assert_eq!(told.outcome.text, "It was 4711.", "{}", told.shown());
    let is_old = |event: &Event| matches!(event, Event::Thinking { .. } | Event::ToolUse(_));
    assert!(!told.records.iter().any(|r| is_old(&r.event)), "{}", told.shown());
    assert_eq!((told.outcome.tool_calls, told.outcome.turns), (0, 1), "{}", told.shown());
    assert_eq!(told.outcome.usage.tokens.input, Some(100), "{}", told.shown());
    let replayed = told.records.iter().find_map(|r| match &r.event {
        Event::SessionInfo { info } => Some(info.get().to_owned()),
        _ => None,
    });
    assert!(replayed.is_some_and(|info| info.contains("replayedUpdates")), "{}", told.shown());
    let asked = stage.model.requests_to_main().pop().unwrap();
    assert!(asked.user_texts().concat().contains("4711"), "{:?}", asked.user_texts());

    let after = messages(&stage, &id);
    assert_eq!(after[..before.len()], before, "the messages are unchanged");
    for _ in 0..2 {
        ordinary_start(&stage);
    }
    assert_eq!(messages(&stage, &id), after, "{:?}", files(&stage, &id));
    assert_eq!(files(&stage, &id).len(), 1, "no duplicate remains");
}

#[tokio::test]
async fn session_is_not_resumed_while_that_would_overwrite_it() {
    needs_real_gemini!();
    let stage = stage([("", Script::always(GeminiStep::text("ok")))]);
    let session = stage.agentline().session(stage.request("")).await.unwrap();
    let id = session.id().to_owned();
    let _ = send_prompt(&session, stage.request(""), "hello").await;
    session.close().await;
    // In the minute of its file, the agent would overwrite it; this minute is far away.
    begun_in(&stage, &id, "2099-01-01T00-00");
    let file = files(&stage, &id).remove(0);
    let (before, asked) = (fs::read(&file).unwrap(), stage.model.requests_to_main().len());
    let told = RunRecord::of(stage.agentline().run(resuming(&stage, &id, "again")).await.unwrap()).await;
    let error = told.outcome.error.as_ref().unwrap();
    assert_eq!(
        (told.outcome.verdict, error.kind),
        (Verdict::TimedOut, FailureKind::TimeoutRun),
        "{}",
        told.shown()
    );
    assert!(error.message.contains("cannot be opened safely"), "{}", error.message);
    assert!(error.hint.as_ref().unwrap().contains("stream-json"), "{error:?}");
    // A run with enough time waits, and can be cancelled while it waits.
    let patient = resuming(&stage, &id, "again").timeout(Duration::from_secs(200 * 365 * 86_400));
    let run = stage.agentline().run(patient).await.unwrap();
    tokio::time::sleep(Duration::from_millis(200)).await;
    let begun = Instant::now();
    run.cancel();
    let told = RunRecord::of(run).await;
    assert_eq!(told.outcome.verdict, Verdict::Cancelled, "{}", told.shown());
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    assert_eq!((fs::read(&file).unwrap(), stage.model.requests_to_main().len()), (before, asked));
    assert_eq!(fs::read_dir(stage.outside().join("tmp")).unwrap().count(), 0);
}
