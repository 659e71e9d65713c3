//! Tests cancellation at every stage of a run: it ends soon, as cancelled, and leaves nothing, and a conversation
//! continues. Also tests the quiet period after an answer, which ends at the deadline at the latest.

use crate::fakes::acp_faults::stage::{AcpFaultStage, AcpPlayed};
use agentline::{Event, PermissionMode, RunRequest, Verdict};
use agentline_tests::wait_in_runtime;
use std::{
    fs,
    time::{Duration, Instant, SystemTime},
};

/// How long a cancel may take on a busy machine. An agent that never answers gets two seconds first.
const SOON: Duration = Duration::from_secs(20);

/// Waits until this was sent to the agent.
async fn until_sent(stage: &AcpFaultStage, method: &str) {
    let is_sent = || fs::read_to_string(stage.path("log")).unwrap_or_default().contains(method);
    wait_in_runtime(&format!("{method} in the agent's log"), is_sent).await;
}

/// Starts a run, cancels it when `method` was sent to the agent, and checks the result.
async fn stop_at(fault: &str, method: &str, tune: fn(RunRequest) -> RunRequest) {
    let stage = AcpFaultStage::new();
    let request = tune(stage.request(fault, "say Never.")).record(stage.tape());
    let run = stage.agentline().run(request).await.expect("a valid request");
    let stop = run.canceller();
    let played = tokio::spawn(AcpPlayed::of(run, Instant::now()));
    until_sent(&stage, method).await;
    let stopped = Instant::now();
    stop.cancel();
    let played = played.await.expect("no panic");
    assert!(stopped.elapsed() < SOON, "{method}: {:?}", stopped.elapsed());
    assert_eq!((played.outcome.verdict, played.outcome.text.as_str()), (Verdict::Cancelled, ""), "{method}");
    assert!(!fs::read_to_string(stage.path("log")).expect("a log").contains("session/prompt"), "{method}");
    stage.nothing_runs().await;
    played.equals_its_tape(&stage.tape(), method);
}

#[tokio::test]
async fn cancel_before_the_agent_answers() {
    stop_at("initialize_never", "initialize", |request| request).await;
}

#[tokio::test]
async fn cancel_while_the_session_opens() {
    stop_at("session_new_never", "session/new", |request| request).await;
}

#[tokio::test]
async fn cancel_while_the_mode_is_set() {
    stop_at("set_mode_never", "session/set_mode", |request| request.permission_mode(PermissionMode::Bypass))
        .await;
}

/// The answer has arrived and only its quiet period remains: a cancel ends the wait, and the answer counts.
#[tokio::test]
async fn cancel_in_the_quiet_period() {
    let stage = AcpFaultStage::new();
    let request = stage.request("", "say Early.").quiet_period(Duration::from_secs(20));
    let session = stage.agentline().session(request).await.expect("a session");
    let run = session.prompt("say Early.").await.expect("a valid prompt");
    let stop = run.canceller();
    let played = tokio::spawn(AcpPlayed::of(run, Instant::now()));
    until_sent(&stage, "session/prompt").await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    let stopped = Instant::now();
    stop.cancel();
    let played = played.await.expect("no panic");
    assert!(stopped.elapsed() < Duration::from_secs(12), "{:?}", stopped.elapsed());
    assert_eq!((played.outcome.verdict, played.outcome.text.as_str()), (Verdict::Done, "Early."));
    let mut next = session.request().quiet_period(Duration::ZERO);
    next.prompt = "say Fine.".to_owned();
    let next = AcpPlayed::of(session.prompt_with(next).await.expect("a valid prompt"), Instant::now()).await;
    assert_eq!((next.outcome.verdict, next.outcome.text.as_str()), (Verdict::Done, "Fine."));
    session.close().await;
    stage.nothing_runs().await;
}

/// Every update restarts the quiet period, but not beyond the deadline. The answer had arrived, so it counts.
#[tokio::test]
async fn endless_updates_end_at_the_deadline() {
    let stage = AcpFaultStage::new();
    let mut request = stage.request("late_trickle", "go").quiet_period(Duration::from_secs(25));
    request.deadline = Some(SystemTime::now() + Duration::from_millis(6000));
    let run = stage.agentline().run(request).await.expect("a valid request");
    let played = AcpPlayed::of(run, Instant::now()).await;
    stage.nothing_runs().await;
    assert_eq!((played.outcome.verdict, played.outcome.text.as_str()), (Verdict::Done, "Early."));
    let updates = played.records.iter().filter(|r| matches!(r.event, Event::Agent { .. })).count();
    assert!(updates > 2, "the quiet period waited: {updates}");
    assert!(played.took < Duration::from_secs(20), "{:?}", played.took);
}
