//! Tests failed requests to the model's service that agents do not report over ACP. Those in OpenCode's log are warnings,
//! and after too many retries the turn is cancelled; the process and its other sessions stay usable. Those in the session
//! file of a configured agent decide the verdict.

use super::harness::{AcpHarness, capabilities};
use crate::play::{RUN, spec};
use agentline_core::{DialogueConfig, FailureKind, RunId, Surface, Verdict, agents, agents::AgentRegistry};
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

/// Returns pi with a run, and the id of its prompt.
fn pi(limit: Option<u32>) -> (AcpHarness, Value) {
    let agent = AgentRegistry::default().find("pi").expect("it has a profile");
    let mut harness = AcpHarness::with(agent.dialogue(&DialogueConfig::new(Surface::Acp, None)));
    harness.reply("initialize", &capabilities("0.0.34"));
    let mut spec = spec();
    spec.limits.max_turns = limit;
    harness.start(RUN, "s", spec);
    let prompt = harness.frame()["id"].clone();
    (harness, prompt)
}

/// Records an answer of pi in its session file.
fn recorded(harness: &mut AcpHarness, input: u64, end: &str) {
    let usage = json!({"input": input, "output": 30, "cacheRead": 20, "cacheWrite": 0, "reasoning": 5});
    let line = format!(
        r#"{{"type":"message","id":"1","message":{{"role":"assistant","content":[{{"type":"text","text":"x"}}],"usage":{usage},{end}}}}}"#
    );
    harness.player.side(&line);
}

#[test]
fn last_recorded_answer_decides_how_a_turn_ended() {
    const CUT: &str = r#""stopReason":"length""#;
    const FAILED: &str = r#""stopReason":"error","errorMessage":"Stream ended without finish_reason""#;
    const DONE: &str = r#""stopReason":"stop""#;
    for (ends, kind) in [
        (&[CUT][..], Some(FailureKind::ApiError)),
        (&[FAILED, FAILED], Some(FailureKind::Network)),
        (&[FAILED, DONE], None),
        (&[CUT, DONE], None),
        (&[DONE, FAILED], Some(FailureKind::Network)),
    ] {
        let (mut harness, prompt) = pi(None);
        harness.text("s", "The beginning");
        for end in ends {
            recorded(&mut harness, 100, end);
        }
        // News about the session says nothing about the model.
        harness.update("s", &json!({"sessionUpdate": "session_info_update", "title": "x"}));
        harness.end(&prompt, &json!({"stopReason": "end_turn"}));
        harness.player.ticks_to_the_end();
        let outcome = harness.player.outcome();
        assert_eq!(outcome.error.as_ref().map(|error| error.kind), kind, "{ends:?} {outcome:?}");
        let requests = u64::try_from(ends.len()).unwrap_or(0);
        assert_eq!(outcome.usage.tokens.input, Some(120 * requests), "{ends:?}");
        assert_eq!(outcome.usage.tokens.output, Some(25 * requests), "{ends:?}");
    }
}

#[test]
fn refused_request_is_not_forgotten_because_of_news_about_the_session() {
    let (mut harness, prompt) = pi(None);
    recorded(&mut harness, 0, r#""stopReason":"error","errorMessage":"404: no such model""#);
    harness.update("s", &json!({"sessionUpdate": "session_info_update", "title": "x"}));
    harness.end(&prompt, &json!({"stopReason": "end_turn"}));
    harness.player.ticks_to_the_end();
    let error = harness.player.outcome().error.as_ref().map(|error| error.kind);
    assert_eq!(error, Some(FailureKind::UnknownModel));
}

#[test]
fn turn_limit_of_an_agent_without_one_acts_when_all_calls_have_results() {
    let (mut harness, _) = pi(Some(1));
    let update = |harness: &mut AcpHarness, kind: &str, id: &str, status: &str| {
        let update = json!({"sessionUpdate": kind, "toolCallId": id, "status": status, "title": "write"});
        harness.update("s", &update);
    };
    update(&mut harness, "tool_call", "a", "in_progress");
    update(&mut harness, "tool_call", "b", "in_progress");
    recorded(&mut harness, 100, r#""stopReason":"toolUse""#);
    update(&mut harness, "tool_call_update", "a", "completed");
    assert!(harness.frames().is_empty(), "a call of the answer is open");
    update(&mut harness, "tool_call_update", "b", "completed");
    assert_eq!(harness.frame()["method"], "session/cancel", "before the next request");
}
