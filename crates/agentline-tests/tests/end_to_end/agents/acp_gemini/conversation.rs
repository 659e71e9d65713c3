//! Tests conversations: several prompts in one session, each with its own timeouts and limits, cancelled at any point
//! and continued.

use crate::agents::acp_gemini::harness::{RunRecord, calling, command, in_mode, send_prompt, stage, write};
use agentline::{
    Event, FailureKind, Permission, PermissionHandler, PermissionMode as Mode, Run, RunOptions, Session,
    ToolStatus, Verdict,
};
use agentline_core::{FileChangeKind, Phase};
use agentline_mock::gemini::{GeminiStep, GeminiTokens, Script};
use agentline_tests::needs_real_gemini;
use serde_json::json;
use std::time::{Duration, Instant, SystemTime};

/// Waits until a condition holds. A loaded machine may be slow.
async fn until(condition_name: &str, mut condition: impl FnMut() -> bool) {
    let started_at = Instant::now();
    while !condition() {
        assert!(started_at.elapsed() < Duration::from_secs(60), "{condition_name} did not happen");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Cancels a run and waits for its outcome.
async fn cancel(run: Run) -> RunRecord {
    let started_at = Instant::now();
    run.cancel();
    let result = RunRecord::of(run).await;
    assert_eq!(result.outcome.verdict, Verdict::Cancelled, "{}", result.shown());
    assert!(started_at.elapsed() < Duration::from_secs(20), "{:?} {}", started_at.elapsed(), result.shown());
    result
}

/// Checks that the session answers the next prompt normally.
async fn check_next_prompt(session: &Session, after: &str) {
    let result =
        RunRecord::of(session.prompt(format!("fine after {after}")).await.expect("a valid request")).await;
    let found = (result.outcome.verdict, result.outcome.text.as_str());
    assert_eq!(found, (Verdict::Done, "fine"), "after {after}: {}", result.shown());
}

#[tokio::test]
async fn run_is_cancelled_at_every_stage_and_the_conversation_continues() {
    needs_real_gemini!();
    let stage = stage([
        ("fine", Script::new([GeminiStep::text("fine")])),
        ("model", Script::new([GeminiStep::hang()])),
        ("midway", Script::new([GeminiStep::text("some words").and_text("never").hang_midway()])),
        ("tool", calling([command("echo $$ > pid; sleep 600")])),
        ("asks", calling([command("touch asked")])),
        ("busy", Script::always(GeminiStep::rate_limited(None))),
        (
            "refused",
            Script::always(GeminiStep::api_error(401, "UNAUTHENTICATED", "API key not valid", json!([]))),
        ),
    ]);
    let (asked, mut is_requested) = tokio::sync::mpsc::unbounded_channel();
    let handler = PermissionHandler::new(move |_| {
        let asked = asked.clone();
        async move {
            // The receiver is gone only if the test has already failed.
            let _ = asked.send(());
            std::future::pending::<Permission>().await
        }
    });
    let options = RunOptions::new().permission_handler(handler);
    let session = stage.agentline().session_with(in_mode(&stage, Mode::Default), options).await.unwrap();
    let request_count = || stage.model.requests_to_main().len();

    for (prompt, text) in [("model", ""), ("midway", "some words"), ("busy", "")] {
        let before = request_count();
        let mut run = session.prompt(prompt).await.unwrap();
        until("the request", || request_count() > before).await;
        if !text.is_empty() {
            while let Some(record) = run.next().await {
                if matches!(record.event, Event::Text { .. }) {
                    break;
                }
            }
        }
        let result = cancel(run).await;
        assert_eq!(result.outcome.text, text, "{prompt}: {}", result.shown());
        check_next_prompt(&session, prompt).await;
    }
    // A prompt that the service refused does not stay in the conversation.
    let result = RunRecord::of(session.prompt("refused").await.unwrap()).await;
    assert_eq!(result.outcome.verdict, Verdict::NotAuthenticated, "{}", result.shown());
    check_next_prompt(&session, "refusal").await;
    let last = stage.model.requests_to_main().pop().unwrap().body.to_string();
    assert!(last.contains("fine after busy") && !last.contains(r#""text":"refused""#), "{last}");

    let mut request = in_mode(&stage, Mode::Auto);
    request.prompt = "tool".into();
    let run = session.prompt_with(request).await.unwrap();
    until("the command", || stage.read("pid").is_some_and(|pid| pid.ends_with('\n'))).await;
    let result = cancel(run).await;
    // The CLI reports a command that it killed as completed.
    assert_eq!(result.ends(), [ToolStatus::Cancelled], "{}", result.shown());
    #[cfg(target_os = "linux")]
    {
        let stat = format!("/proc/{}/stat", stage.read("pid").unwrap().trim());
        until("the end of the command", || {
            std::fs::read_to_string(&stat).map_or(true, |s| s.contains(") Z "))
        })
        .await;
    }
    check_next_prompt(&session, "tool").await;

    let run = session.prompt("asks").await.unwrap();
    tokio::time::timeout(Duration::from_secs(60), is_requested.recv()).await.unwrap();
    let result = cancel(run).await;
    assert!(stage.read("asked").is_none(), "{}", result.shown());
    check_next_prompt(&session, "asks").await;
    session.close().await;
}

#[tokio::test]
async fn each_prompt_has_its_own_timeouts_limits_and_tokens() {
    needs_real_gemini!();
    let tokens = |n: u64| GeminiTokens {
        prompt: 1000 + n,
        candidates: 10 + n,
        cached: 500 + n,
        thoughts: n,
        total: None,
    };
    let stage = stage([
        ("hang", Script::new([GeminiStep::hang()])),
        ("one", Script::new([GeminiStep::text("one").usage(tokens(1))])),
        (
            "two",
            Script::new([
                GeminiStep::call("list_directory", json!({"dir_path": "."})).usage(tokens(2)),
                GeminiStep::text("two").usage(tokens(3)),
            ]),
        ),
        ("endless", Script::always(GeminiStep::calls([command("echo again")]))),
        ("", Script::new([GeminiStep::text("more").usage(tokens(4))])),
    ]);
    let limited = || {
        let mut request = stage.request("");
        request.limits.max_turns = Some(2);
        request
    };
    let session = stage.agentline().session(limited()).await.unwrap();
    let token_counts = |result: &RunRecord| {
        let t = result.outcome.usage.tokens;
        [t.input, t.output, t.cached, t.thoughts, t.total].map(|n| n.unwrap_or(0))
    };
    let result = send_prompt(&session, limited(), "one").await;
    assert_eq!(token_counts(&result), [1001, 11, 501, 1, 1013], "{}", result.shown());
    let result = send_prompt(&session, limited(), "two").await;
    assert_eq!(token_counts(&result), [2005, 25, 1005, 5, 2035], "{}", result.shown());
    assert_eq!((result.outcome.turns, result.outcome.usage.requests), (2, Some(2)), "{}", result.shown());

    // The conversation keeps its context, and its usage is the sum of the runs.
    let last = stage.model.requests_to_main().pop().unwrap().body.to_string();
    assert!(last.contains("one") && last.contains("two"), "{last}");
    assert_eq!(session.usage().total, Some(1013 + 2035));

    // A limit applies to one prompt, regardless of earlier ones.
    for _ in 0..2 {
        let result = send_prompt(&session, limited(), "more").await;
        assert_eq!(result.outcome.verdict, Verdict::Done, "{}", result.shown());
    }
    // The agent's own limit counts the turns of a session, so agentline cancels the turn that exceeds the limit.
    let result = send_prompt(&session, limited(), "endless").await;
    let error = result.outcome.error.as_ref().unwrap();
    let found = (result.outcome.verdict, error.kind, error.phase);
    let expected = (Verdict::LimitReached, FailureKind::MaxTurns, Phase::Budget);
    assert_eq!(found, expected, "{}", result.shown());

    let result = send_prompt(&session, stage.request("").timeout(Duration::from_millis(1500)), "hang").await;
    let error = result.outcome.error.as_ref().unwrap();
    assert_eq!((error.kind, error.phase), (FailureKind::TimeoutRun, Phase::Budget), "{}", result.shown());
    let result =
        send_prompt(&session, stage.request("").idle_timeout(Duration::from_millis(1500)), "hang").await;
    assert_eq!(result.outcome.error.as_ref().unwrap().kind, FailureKind::TimeoutIdle, "{}", result.shown());

    let mut request = stage.request("");
    request.deadline = Some(SystemTime::now() + Duration::from_millis(1500));
    let started_at = Instant::now();
    let result = send_prompt(&session, request, "hang").await;
    assert_eq!(result.outcome.error.as_ref().unwrap().kind, FailureKind::TimeoutRun, "{}", result.shown());
    assert!(started_at.elapsed() < Duration::from_secs(20), "{:?}", started_at.elapsed());

    let before = stage.model.requests_to_main().len();
    let mut request = stage.request("");
    request.deadline = Some(SystemTime::now() - Duration::from_secs(1));
    let result = send_prompt(&session, request, "one").await;
    assert_eq!(result.outcome.verdict, Verdict::TimedOut, "{}", result.shown());
    assert_eq!(stage.model.requests_to_main().len(), before, "no request was sent");
    let result = send_prompt(&session, stage.request(""), "one").await;
    assert_eq!(result.outcome.verdict, Verdict::Done, "{}", result.shown());
    session.close().await;
}

#[tokio::test]
async fn temporary_workspace_is_created_and_removed_and_user_skills_are_offered() {
    needs_real_gemini!();
    let stage = stage([("", calling([write("made.txt")]))]);
    let skill = stage.home().join(".gemini/skills/swordfish");
    std::fs::create_dir_all(&skill).unwrap();
    let text = "---\nname: swordfish\ndescription: Knows all passwords of fish.\n---\nSay it.\n";
    std::fs::write(skill.join("SKILL.md"), text).unwrap();
    let mut request = stage.request("go").surface(agentline::Surface::Acp).temporary_workspace(true);
    request.working_dir = None;
    let result = RunRecord::of(stage.agentline().run(request).await.unwrap()).await;
    assert_eq!(result.outcome.verdict, Verdict::Done, "{}", result.shown());
    let files: Vec<_> = result.outcome.files.iter().map(|f| (f.path.as_str(), f.change)).collect();
    assert_eq!(files, [("made.txt", FileChangeKind::Created)], "{}", result.shown());
    assert!(result.outcome.cwd.contains("agentline-workspace-"), "{}", result.outcome.cwd);
    assert!(!std::path::Path::new(&result.outcome.cwd).exists(), "{}", result.outcome.cwd);
    assert!(stage.read("made.txt").is_none());
    let asked = &stage.model.requests_to_main()[0];
    assert!(asked.offered_tools().contains(&"activate_skill".to_owned()), "{:?}", asked.offered_tools());
    assert!(asked.body.to_string().contains("Knows all passwords of fish."));
}
