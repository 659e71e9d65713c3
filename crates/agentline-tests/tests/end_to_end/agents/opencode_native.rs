//! Tests OpenCode on its own surface, `serve`, with the real program: failures of the model's service, limits, and resumed
//! sessions. Conversations, permissions, tools and the pool are tested with the other agents.

use crate::agents::acp_agents::harness::{OPENCODE, send_prompt, stage, tokens};
use agentline::{FailureKind, Limits, PermissionMode as Mode, Pool, PoolOptions, Verdict};
use agentline_mock::scripted::ModelStep;
use agentline_tests::{DOT_PNG, RunRecord};
use serde_json::json;
use std::time::{Duration, Instant};

/// The longest time until a failure arrives.
const FAILURE_TIMEOUT: Duration = Duration::from_secs(15);

#[tokio::test]
async fn failures_of_the_service_arrive_soon_and_are_never_done() {
    use FailureKind::{ApiError, ContextOverflow, Empty, NotAuthenticated, RateLimited, UnknownModel};
    let table = [
        ("status 401", ModelStep::error(401, "no such key"), Verdict::NotAuthenticated, NotAuthenticated),
        ("status 429", ModelStep::error(429, "Rate limit reached"), Verdict::RateLimited, RateLimited),
        ("status 529", ModelStep::error(529, "Overloaded"), Verdict::RateLimited, RateLimited),
        ("status 500", ModelStep::error(500, "it broke"), Verdict::Failed, ApiError),
        ("status 404", ModelStep::error(404, "no such model"), Verdict::Failed, UnknownModel),
        ("cut off", ModelStep::text("half an ans").cut(), Verdict::Failed, ApiError),
        ("cut before", ModelStep::text("").cut(), Verdict::Empty, Empty),
    ];
    let mut scripts: Vec<_> = table.iter().map(|(word, step, ..)| (*word, vec![step.clone()])).collect();
    scripts.push((
        "status 400",
        vec![ModelStep::error(400, "prompt is too long: 300000 tokens > 200000 maximum")],
    ));
    scripts.push(("say fine", vec![ModelStep::text("fine")]));
    let stage = stage!(OPENCODE, scripts);
    // A prompt that is too long for a new session is not compacted, because the summary would replace it.
    let mut request = stage.request(Mode::Auto);
    request.prompt = "status 400".into();
    let too_long = RunRecord::of(stage.agentline().run(request).await.unwrap()).await;
    let error = too_long.outcome.error.as_ref().map(|error| error.kind);
    assert_eq!(
        (too_long.outcome.verdict, error),
        (Verdict::Failed, Some(ContextOverflow)),
        "{}",
        too_long.shown()
    );
    assert_eq!(too_long.outcome.text, "", "{}", too_long.shown());

    let session = stage.agentline().session(stage.request(Mode::Auto)).await.unwrap();
    for (word, _, verdict, kind) in table {
        let started_at = Instant::now();
        let result = send_prompt(&session, stage.request(Mode::Auto), word).await;
        let error = result.outcome.error.as_ref().map(|error| error.kind);
        assert_eq!((result.outcome.verdict, error), (verdict, Some(kind)), "{word}: {}", result.shown());
        assert!(started_at.elapsed() < FAILURE_TIMEOUT, "{word} took {:?}", started_at.elapsed());
        let is_retry = |code: &&&str| matches!(**code, "retry" | "rate_limited");
        let retries = result.warnings().iter().filter(is_retry).count();
        let is_retried = matches!(word, "status 429" | "status 529" | "status 500");
        assert!(retries == 2 || !is_retried, "{}", result.shown());
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

    // Without the directory, nobody may allow the read.
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
