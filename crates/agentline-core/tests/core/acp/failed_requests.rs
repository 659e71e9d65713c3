//! Tests OpenCode's failed requests to the model's service, which only its log reports: they are warnings, and after too
//! many retries the turn is cancelled. The process and its other sessions stay usable.

use super::harness::{AcpHarness, capabilities};
use crate::play::{RUN, spec};
use agentline_core::{DialogueConfig, FailureKind, RunId, Surface, Verdict, agents};
use serde_json::{Value, json};

/// Returns an OpenCode with one run for each of these sessions, and the ids of their prompts.
fn working(sessions: &[&str]) -> (AcpHarness, Vec<Value>) {
    let agent = agents::find("opencode").expect("the agent is listed");
    let mut harness = AcpHarness::with(agent.dialogue(&DialogueConfig::new(Surface::Acp, None)));
    harness.reply("initialize", &capabilities("1.18.33"));
    let prompts = sessions.iter().zip(1..).map(|(session, run)| {
        harness.start(RunId(run), session, spec());
        harness.frame()["id"].clone()
    });
    let prompts = prompts.collect();
    (harness, prompts)
}

fn failed(harness: &mut AcpHarness, session: &str) {
    harness.player.stderr(&format!(
        "timestamp=2026-11-17T18:27:18.027Z level=ERROR run=64c1 message=\"stream error\" providerID=p modelID=m \
         session.id={session} small=false agent=build mode=primary error.error=\"AI_APICallError: Rate limit reached\""
    ));
}

#[test]
fn a_turn_is_cancelled_after_two_retries_and_the_session_goes_on() {
    let (mut harness, prompts) = working(&["s", "t"]);
    failed(&mut harness, "s");
    failed(&mut harness, "s");
    assert_eq!(harness.player.warnings(), ["rate_limited"; 2]);
    assert!(harness.frames().is_empty(), "OpenCode may retry twice");
    failed(&mut harness, "s");
    let cancel = harness.frame();
    assert_eq!((&cancel["method"], &cancel["params"]["sessionId"]), (&json!("session/cancel"), &json!("s")));
    harness.end(&prompts[0], &json!({"stopReason": "cancelled"}));
    let outcome = harness.player.outcome_of(RUN);
    let kind = outcome.error.as_ref().map(|error| error.kind);
    assert_eq!((outcome.verdict, kind), (Verdict::RateLimited, Some(FailureKind::RateLimited)));
    // The other run is not concerned.
    harness.text("t", "fine");
    harness.end(&prompts[1], &json!({"stopReason": "end_turn"}));
    assert_eq!(harness.player.outcome_of(RunId(2)).verdict, Verdict::Done);
}

#[test]
fn a_tool_call_restarts_the_count_and_sub_agents_count() {
    let (mut harness, prompts) = working(&["s"]);
    for number in 0..3 {
        failed(&mut harness, "s");
        let call = json!({"sessionUpdate": "tool_call", "toolCallId": format!("c{number}"), "title": "read"});
        harness.update("s", &call);
    }
    assert!(harness.frames().is_empty());
    // The session of a sub-agent is unknown, but there is only one run. A request may fail after some of its text.
    for _ in 0..3 {
        harness.text("s", "so far ");
        failed(&mut harness, "ses_of_a_sub_agent");
    }
    assert_eq!(harness.frame()["method"], "session/cancel");
    // Even if OpenCode reports the cancelled turn as an error, its cause is the refused request.
    let error = json!({"code": -32603, "message": "Internal error"});
    harness.send(&json!({"jsonrpc": "2.0", "id": prompts[0], "error": error}));
    // The calls have no results, so the run waits for them.
    harness.player.wait(1_000);
    assert_eq!(harness.player.outcome().verdict, Verdict::RateLimited);
}
