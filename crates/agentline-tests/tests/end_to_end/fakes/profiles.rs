//! Profiles of configured agents, on the fake ACP agent.

#![expect(clippy::unwrap_used, reason = "test helpers may panic")]

use agentline::{Agentline, FailureKind, Outcome, PermissionMode, RunRequest, Verdict};
use agentline_core::config::{Config, Layer};
use agentline_tests::FakeStage;

/// Returns the library with the configured agent `mine`, and a request for it.
fn user(stage: &FakeStage, profile: &str) -> (Agentline, RunRequest) {
    let program = env!("CARGO_BIN_EXE_fake-acp");
    let text = format!("agent = 'mine'\n[agents.mine]\ncommand = ['{program}']\n{profile}");
    let config = Config::build(&[Layer::file("test", &text)]).unwrap();
    assert_eq!(config.notices, []);
    let (agentline, mut request) = stage.agentline().with_config(&config);
    request.working_dir = Some(stage.workspace());
    (agentline, request)
}

async fn outcome(agentline: &Agentline, request: &RunRequest, script: &str) -> Outcome {
    let mut request = request.clone();
    request.prompt = script.into();
    agentline.run(request).await.unwrap().outcome().await
}

fn kind(outcome: &Outcome) -> Option<FailureKind> {
    outcome.error.as_ref().map(|error| error.kind)
}

const ERRORS: &str = r#"
quiet_period_ms = 0
noise = ["Info: *"]
errors = [
    { text = "Error: *429*", kind = "rate_limited", in = "text" },
    { text = "*401*", kind = "not_authenticated" },
    { text = '*"_mine/retrying"*429*', kind = "rate_limited", in = "notification" },
]
"#;

#[tokio::test]
async fn errors_that_are_reported_as_text_are_recognized() {
    let stage = FakeStage::new(env!("CARGO_BIN_EXE_fake-acp"));
    let (agentline, request) = user(&stage, ERRORS);
    let retrying = r#"raw {"jsonrpc":"2.0","method":"_mine/retrying","params":{"sessionId":"{session}","detail":"HTTP 429"}}"#;
    let retried_in_vain = format!("{retrying}\nstop end_turn");
    let retried_with_success = format!("{retrying}\nsay Done.");
    for (script, verdict) in [
        ("say Error: the service answered 429", Verdict::RateLimited),
        ("say Info: retrying\nsay Error: HTTP 429", Verdict::RateLimited),
        ("error -32603 401 wrong key", Verdict::NotAuthenticated),
        (&*retried_in_vain, Verdict::RateLimited),
        (&*retried_with_success, Verdict::Done),
        ("say Error: HTTP 429\nsay That is what the log says.", Verdict::Done),
        ("say The log says: Error: HTTP 429", Verdict::Done),
        ("say The server returns 401 Unauthorized.", Verdict::Done),
    ] {
        let outcome = outcome(&agentline, &request, script).await;
        assert_eq!(outcome.verdict, verdict, "{script}: {:?}", outcome.error);
        assert!(!outcome.text.contains("Info:"), "{}", outcome.text);
    }
    let failed = outcome(&agentline, &request, "say Error: the service answered 429").await;
    assert_eq!((kind(&failed), &*failed.text), (Some(FailureKind::RateLimited), ""));
    assert_eq!(failed.error.unwrap().message, "Error: the service answered 429");
    // Text that only looks like an error stays part of the answer, in its order.
    for (script, text) in [
        ("say Error: HTTP 429\nsay \\nis what the log says.", "Error: HTTP 429\nis what the log says."),
        ("say Error: HTTP 429\nrun true\nstop end_turn", "Error: HTTP 429"),
        ("say The server returns 401 Unauthorized.", "The server returns 401 Unauthorized."),
    ] {
        let answered = outcome(&agentline, &request, script).await;
        assert_eq!((answered.verdict, answered.text.trim()), (Verdict::Done, text), "{script}");
    }
}

#[tokio::test]
async fn agent_that_retries_too_often_is_stopped() {
    let stage = FakeStage::new(env!("CARGO_BIN_EXE_fake-acp"));
    let (agentline, request) = user(&stage, &format!("{ERRORS}max_retries = 1\n"));
    let retrying = r#"raw {"jsonrpc":"2.0","method":"_mine/retrying","params":{"sessionId":"{session}","detail":"HTTP 429"}}"#;
    let once = outcome(&agentline, &request, &format!("{retrying}\nsay Done.")).await;
    assert_eq!(once.verdict, Verdict::Done, "{:?}", once.error);
    let forever = outcome(&agentline, &request, &format!("{retrying}\n{retrying}\nhang")).await;
    assert_eq!(forever.verdict, Verdict::RateLimited, "{:?}", forever.error);
    assert_eq!(forever.error.unwrap().message, "HTTP 429");
}

#[tokio::test]
async fn error_in_the_session_file_is_the_result_of_a_run_without_an_answer() {
    let stage = FakeStage::new(env!("CARGO_BIN_EXE_fake-acp"));
    let store = stage.path().join("store");
    std::fs::create_dir(&store).unwrap();
    let profile = format!(
        "env = {{ FAKE_ACP_STORE = '{0}' }}\nsession_store = '{0}/{{id}}.json'\nerrors = [{{ text = '*HTTP 429*', kind = 'rate_limited', in = 'session' }}]\n",
        store.display()
    );
    let (agentline, request) = user(&stage, &profile);
    // The fake agent stores its prompts.
    let refused = outcome(&agentline, &request, "stop end_turn\nHTTP 429").await;
    assert_eq!(refused.verdict, Verdict::RateLimited, "{:?}", refused.error);
    let answered = outcome(&agentline, &request, "HTTP 429\nsay Done.").await;
    assert_eq!(answered.verdict, Verdict::Done, "{:?}", answered.error);
    let empty = outcome(&agentline, &request, "stop end_turn").await;
    assert_eq!(empty.verdict, Verdict::Empty, "{:?}", empty.error);
}

#[tokio::test]
async fn agent_is_started_in_the_mode_that_serves_the_permission_mode() {
    let stage = FakeStage::new(env!("CARGO_BIN_EXE_fake-acp"));
    let profile = "env = { FAKE_ACP_MODES = 'auto,ask,yolo' }\n[agents.mine.modes]\ndefault = 'ask'\nbypass = { mode = 'yolo', env = { EXTRA = 'set' } }\nplan = 'missing'\n";
    let (agentline, request) = user(&stage, profile);
    let mode = |mode| request.clone().permission_mode(mode);
    let default = outcome(&agentline, &mode(PermissionMode::Default), "state").await;
    assert!(default.text.contains(r#""mode":"ask""#), "{}", default.text);
    let bypass = outcome(&agentline, &mode(PermissionMode::Bypass), "state\nenv EXTRA").await;
    assert!(bypass.text.contains(r#""mode":"yolo""#) && bypass.text.contains("set"), "{}", bypass.text);
    let plan = outcome(&agentline, &mode(PermissionMode::Plan), "state").await;
    assert_eq!(kind(&plan), Some(FailureKind::Policy), "the agent would be in a laxer mode");
}

#[tokio::test]
async fn usage_of_a_whole_session_is_divided_among_its_prompts() {
    let stage = FakeStage::new(env!("CARGO_BIN_EXE_fake-acp"));
    let (agentline, request) = user(&stage, "usage = 'cumulative'\n");
    let session = agentline.session(request).await.unwrap();
    let mut totals = Vec::new();
    for script in ["say one\nusage 100 20", "say two\nusage 250 50"] {
        let outcome = session.prompt(script).await.unwrap().outcome().await;
        totals.push((outcome.usage.tokens.input, outcome.usage.tokens.output));
    }
    assert_eq!(totals, [(Some(100), Some(20)), (Some(150), Some(30))]);

    let (agentline, request) = user(&stage, "usage = 'none'\n");
    let ignored = outcome(&agentline, &request, "say one\nusage 100 20").await;
    assert_eq!(ignored.usage.tokens.input, None);

    let (agentline, request) = user(&stage, "usage = 'per-request'\n");
    let update = r#"update {"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"x"},"_meta":{"usage":{"inputTokens":100,"outputTokens":5,"totalTokens":105}}}"#;
    let summed = outcome(&agentline, &request, &format!("{update}\n{update}")).await;
    assert_eq!(summed.usage.tokens.total, Some(210), "{:?}", summed.usage);
}

#[tokio::test]
async fn agent_that_never_asks_is_reported() {
    let stage = FakeStage::new(env!("CARGO_BIN_EXE_fake-acp"));
    let (agentline, request) = user(&stage, "asks = false\n");
    let warned = outcome(&agentline, &request, "say hi").await;
    assert!(warned.warnings.iter().any(|warning| warning.code == "mode_when_asked"), "{:?}", warned.warnings);
}

#[tokio::test]
async fn agent_that_ends_its_turn_after_a_denial_is_prompted_to_continue() {
    let stage = FakeStage::new(env!("CARGO_BIN_EXE_fake-acp"));
    let (agentline, request) = user(&stage, "quiet_period_ms = 0\n");
    let request = request.permission_mode(PermissionMode::Default);
    let continued = "You said: The use of the tool was denied.";
    for (script, text) in [
        ("ask write_file a.txt a\nstop cancelled", continued),
        ("say I will.\nask write_file a.txt a\nstop end_turn", continued),
        ("ask write_file a.txt a\nsay I may not.\nstop end_turn", "I may not."),
    ] {
        let outcome = outcome(&agentline, &request, script).await;
        assert_eq!(outcome.verdict, Verdict::DoneWithDenials, "{script}: {:?}", outcome.error);
        assert!(outcome.text.starts_with(text), "{script}: {}", outcome.text);
        assert_eq!(outcome.denied.len(), 1, "{script}: {:?}", outcome.denied);
    }
}
