//! Tests OpenCode on its own surface, `serve`, with the real program: failures of the model's service, limits, and resumed
//! sessions. Conversations, permissions, tools and the pool are tested with the other agents.

use crate::agents::acp_agents::harness::{OPENCODE, send_prompt, stage, tokens};
use agentline::{FailureKind, Limits, PermissionMode as Mode, Pool, PoolOptions, Verdict};
use agentline_mock::scripted::ModelStep;
use agentline_tests::{DOT_PNG, RunRecord};
use serde_json::json;

/// The conformance kit shows every failure of the service, each in a session of its own.
#[tokio::test]
async fn session_continues_after_failures_of_the_service() {
    use FailureKind::{ApiError, NotAuthenticated, RateLimited, UnknownModel};
    let table = [
        ("status 401", ModelStep::error(401, "no such key"), NotAuthenticated, 0),
        ("status 429", ModelStep::error(429, "Rate limit reached"), RateLimited, 2),
        ("cut off", ModelStep::text("half an ans").cut(), ApiError, 0),
    ];
    let mut scripts: Vec<_> = table.iter().map(|(word, step, ..)| (*word, vec![step.clone()])).collect();
    scripts.push(("say fine", vec![ModelStep::text("fine")]));
    let stage = stage!(OPENCODE, scripts);
    let session = stage.agentline().session(stage.request(Mode::Auto)).await.unwrap();
    for (word, _, kind, expected_retries) in table {
        let result = send_prompt(&session, stage.request(Mode::Auto), word).await;
        let error = result.outcome.error.as_ref().map(|error| error.kind);
        assert_eq!(error, Some(kind), "{word}: {}", result.shown());
        let is_retry = |code: &&&str| matches!(**code, "retry" | "rate_limited");
        let retries = result.warnings().iter().filter(is_retry).count();
        assert_eq!(retries, expected_retries, "{word}: {}", result.shown());
    }
    let unknown =
        send_prompt(&session, stage.request(Mode::Auto).model("scripted/no-such"), "say fine").await;
    assert_eq!(
        unknown.outcome.error.as_ref().map(|error| error.kind),
        Some(UnknownModel),
        "{}",
        unknown.shown()
    );
    let fine = send_prompt(&session, stage.request(Mode::Auto), "say fine").await;
    assert_eq!((fine.outcome.verdict, &*fine.outcome.text), (Verdict::Done, "fine"), "{}", fine.shown());
    session.close().await;
    #[cfg(target_os = "linux")]
    assert_eq!(stage.live_processes(), [0_u32; 0]);
}

#[tokio::test]
async fn limits_act_after_each_request_and_the_latest_session_is_resumed() {
    let steps = (0..6).map(|number| OPENCODE.shell(&format!("echo {number}"))).collect();
    let stage =
        stage!(OPENCODE, vec![("count on", steps), ("go back", vec![ModelStep::text("I remember.")])]);
    let mut request = stage.request(Mode::Auto);
    request.prompt = "count on".into();
    request.limits = Limits::default();
    request.limits.max_tokens = Some(200);
    let limited = RunRecord::of(stage.agentline().run(request).await.unwrap()).await;
    let error = limited.outcome.error.as_ref().map(|error| error.kind);
    assert_eq!(
        (limited.outcome.verdict, error),
        (Verdict::LimitReached, Some(FailureKind::MaxTokens)),
        "{}",
        limited.shown()
    );
    // The third request may be on its way when the second one is reported.
    let requests = stage.stage.model.turns().len();
    assert!((2..=3).contains(&requests), "{requests} of 6 requests were sent: {}", limited.shown());
    assert!(tokens(&limited.outcome)[4] >= Some(260), "{}", limited.shown());
    // No request was made for a title.
    assert_eq!(stage.stage.model.requests().len(), requests);

    let mut request = stage.request(Mode::Auto);
    request.prompt = "go back".into();
    request.resume = Some("latest".into());
    request.system_prompt = Some("Answer briefly, as system prompts say.".into());
    let resumed = RunRecord::of(stage.agentline().run(request).await.unwrap()).await;
    assert_eq!(
        (resumed.outcome.verdict, &*resumed.outcome.text),
        (Verdict::Done, "I remember."),
        "{}",
        resumed.shown()
    );
    assert_eq!(resumed.outcome.session_id, limited.outcome.session_id);
    assert_eq!(resumed.outcome.model.as_deref(), Some("scripted/scripted-model"));
    let last = stage.stage.model.turns().last().unwrap().clone();
    assert!(last.user_texts().concat().contains("count on"), "{:?}", last.user_texts());
    let system = last.body["messages"][0]["content"].to_string();
    assert!(system.contains("as system prompts say"), "{system}");
    assert!(!last.user_texts().concat().contains("as system prompts say"));
}

/// Everything that a request sets for the model reaches it, and files of an included directory may be read.
#[tokio::test]
async fn model_effort_instructions_images_and_directories_reach_the_model() {
    let outside = tempfile::tempdir().unwrap();
    let outside = outside.path().canonicalize().unwrap();
    std::fs::write(outside.join("word.txt"), "the word is kumquat\n").unwrap();
    let read = ModelStep::call("read", json!({"filePath": outside.join("word.txt")}));
    let script = vec![read, ModelStep::text("seen")];
    let stage =
        stage!(OPENCODE, vec![("look here", script.clone()), ("look away", script), ("too hard", vec![])]);
    let pool = Pool::new(stage.agentline(), PoolOptions::default());
    let image = stage.stage.workspace().join("dot.png");
    std::fs::write(&image, DOT_PNG).unwrap();
    let request = stage
        .request(Mode::Default)
        .model("scripted/other-model")
        .agent_option("effort", "high")
        .system_prompt("Answer like a pirate.");
    let mut all = request.clone();
    all.attachments = vec![image];
    all.include_directories = vec![outside.clone()];
    all.prompt = "look here".into();
    let result = RunRecord::of(pool.run(all).await.unwrap()).await;
    assert_eq!(result.outcome.verdict, Verdict::Done, "{}", result.shown());
    assert_eq!(result.outcome.model.as_deref(), Some("scripted/other-model"), "{}", result.shown());
    let body = stage.stage.model.turns().last().unwrap().body.clone();
    assert_eq!(
        (&body["model"], &body["reasoning_effort"]),
        (&json!("other-model"), &json!("high")),
        "{body}"
    );
    let messages = body["messages"].to_string();
    assert!(messages.contains("Answer like a pirate.") && messages.contains("data:image/png;base64,"));
    assert!(messages.contains("the word is kumquat"), "{messages}");

    // Without the directory, the read is denied.
    let mut away = request.clone();
    away.prompt = "look away".into();
    let result = RunRecord::of(pool.run(away).await.unwrap()).await;
    assert_eq!(result.outcome.verdict, Verdict::DoneWithDenials, "{}", result.shown());

    // OpenCode would ignore an effort that the model does not have.
    let mut hard = request.agent_option("effort", "enormous");
    hard.prompt = "too hard".into();
    let requests = stage.stage.model.requests().len();
    let result = RunRecord::of(pool.run(hard).await.unwrap()).await;
    let error = result.outcome.error.as_ref().unwrap();
    assert!(error.message.contains("has no effort `enormous`; it has: "), "{}", result.shown());
    assert_eq!(stage.stage.model.requests().len(), requests, "no request was sent");
    pool.close().await;
}
