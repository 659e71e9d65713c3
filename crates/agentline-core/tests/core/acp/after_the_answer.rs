//! Tests what happens after the answer: the quiet period, late updates, a second prompt in the same run, and tokens
//! that must not be counted twice.

use super::harness::{AcpHarness, capabilities};
use crate::play::{RUN, spec};
use agentline_core::{
    ConnectionOutput, DialogueConfig, FailureKind, HostRequest, HostResponse, InputKind, RequestedMode,
    RunId, SessionTarget, Signal, Surface, TurnSpec, UsageSource, Verdict, agents,
};
use serde_json::{Value, json};

/// Returns a run whose agent may still send updates after its answer.
fn answered(quiet: u64) -> AcpHarness {
    let mut harness = AcpHarness::unknown();
    let mut spec = spec();
    spec.timeouts.quiet = quiet;
    harness.start(RUN, "s", spec);
    let id = harness.frame()["id"].clone();
    harness.text("s", "early ");
    harness.player.wait(10);
    harness.end(&id, &json!({"stopReason": "end_turn"}));
    harness
}

fn unknown(harness: &mut AcpHarness) {
    harness.update("s", &json!({"sessionUpdate": "brand_new"}));
}

#[test]
fn late_text_after_an_unknown_update_is_delivered() {
    let mut harness = answered(500);
    harness.player.wait(400);
    unknown(&mut harness);
    harness.player.wait(150);
    harness.text("s", "late");
    // The text restarted the quiet period, so 499 ms are not enough.
    harness.player.wait(499);
    assert!(!harness.player.is_over());
    harness.player.wait(1);
    harness.player.check();
    assert_eq!(harness.player.outcome().text, "early late");
    assert!(harness.player.warnings().is_empty(), "this agent is known to do that");
}

#[test]
fn run_ends_after_a_silent_quiet_period() {
    let mut harness = answered(500);
    harness.player.wait(499);
    assert!(!harness.player.is_over());
    harness.player.wait(1);
    assert_eq!(harness.player.outcome().duration_ms, 510);
    // With a quiet period of zero, the run ends immediately.
    assert_eq!(answered(0).player.outcome().text, "early ");
}

#[test]
fn quiet_period_has_an_upper_limit() {
    let mut harness = answered(500);
    for _ in 0..74 {
        harness.player.wait(400);
        assert!(!harness.player.is_over());
        unknown(&mut harness);
    }
    harness.player.wait(400);
    assert_eq!(harness.player.outcome().duration_ms, 30_010);
    // The caller's deadline is even earlier.
    let mut harness = AcpHarness::unknown();
    let mut spec = spec();
    (spec.timeouts.quiet, spec.timeouts.deadline) = (500, Some(700));
    harness.start(RUN, "s", spec);
    let id = harness.frame()["id"].clone();
    harness.text("s", "x");
    harness.end(&id, &json!({"stopReason": "end_turn"}));
    harness.player.wait(400);
    unknown(&mut harness);
    harness.player.wait(300);
    assert_eq!(
        (harness.player.outcome().verdict, harness.player.outcome().duration_ms),
        (Verdict::Done, 700)
    );
}

#[test]
fn late_update_is_reported_while_settling_with_one_warning() {
    let (mut harness, id) = AcpHarness::running();
    harness.player.disk = None;
    harness.text("s", "answer");
    harness.end(&id, &json!({"stopReason": "end_turn"}));
    harness.text("s", " and more");
    harness.text("s", " and more");
    harness.update("s", &json!({"sessionUpdate": "session_info_update", "title": "t"}));
    assert_eq!(harness.player.warnings(), ["late_update"]);
    let settle = harness.player.out.iter().find_map(|o| match o {
        ConnectionOutput::Ask(_, ask, HostRequest::CollectChanges { .. }) => Some(*ask),
        _ => None,
    });
    harness.answer(
        settle.expect("it settles"),
        HostResponse::ChangesCollected(agentline_core::DiskReport::default()),
    );
    harness.player.check();
    assert_eq!(harness.player.outcome().text, "answer and more and more");
}

#[test]
fn update_after_the_run_causes_a_warning_in_the_next_run() {
    let (mut harness, id) = AcpHarness::running();
    harness.text("s", "answer");
    harness.end(&id, &json!({"stopReason": "end_turn"}));
    assert!(harness.player.is_over());
    harness.text("s", "stray");
    harness.update("s", &json!({"sessionUpdate": "tool_call", "toolCallId": "t", "status": "completed"}));
    harness.update("s", &json!({"sessionUpdate": "usage_update", "used": 1, "size": 2}));
    let mut next = spec();
    next.session = SessionTarget::Open("s".into());
    harness.player.prompt_as(RunId(2), next);
    let id = harness.frame()["id"].clone();
    harness.text("s", "second");
    harness.end(&id, &json!({"stopReason": "end_turn"}));
    harness.player.check();
    let second = harness.player.outcome_of(RunId(2));
    assert_eq!((second.text.as_str(), second.tool_calls), ("second", 0));
    assert_eq!(second.warnings.len(), 1);
    assert!(second.warnings[0].message.starts_with("2 updates"), "{:?}", second.warnings);
}

#[test]
fn late_tool_result_is_not_a_call_of_the_next_run() {
    let (mut harness, id) = AcpHarness::running();
    harness.update(
        "s",
        &json!({"sessionUpdate": "tool_call", "toolCallId": "t", "kind": "execute", "title": "sleep"}),
    );
    harness.text("s", "first");
    harness.end(&id, &json!({"stopReason": "end_turn"}));
    harness.player.wait(60_000);
    assert!(harness.player.is_over());
    let mut next = spec();
    next.session = SessionTarget::Open("s".into());
    harness.player.prompt_as(RunId(2), next);
    let id = harness.frame()["id"].clone();
    // Codex sends this for a command that it had to stop, some milliseconds after its answer.
    harness.update("s", &json!({"sessionUpdate": "tool_call_update", "toolCallId": "t", "status": "failed"}));
    harness.text("s", "second");
    harness.end(&id, &json!({"stopReason": "end_turn"}));
    harness.player.check();
    let second = harness.player.outcome_of(RunId(2));
    assert_eq!((second.text.as_str(), second.tool_calls, second.turns), ("second", 0, 1));
}

fn quota(input: u64, output: u64, model: &str) -> Value {
    let count = json!({"input_tokens": input, "output_tokens": output});
    json!({"stopReason": "end_turn", "_meta": {"quota": {"token_count": count,
        "model_usage": [{"model": model, "token_count": count}]}}})
}

fn reviewed() -> TurnSpec {
    let mut spec = spec();
    spec.validate = true;
    spec
}

#[test]
fn reprompted_run_sums_the_usage_of_its_prompts() {
    let mut harness = AcpHarness::gemini();
    harness.start(RUN, "s", reviewed());
    let first = harness.frame();
    harness.text("s", "no");
    harness.end(&first["id"], &quota(100, 20, "m"));
    let (ask, question) = harness.asked().pop().expect("a review is requested");
    assert!(matches!(question, HostRequest::Validate { text, .. } if text == "no"));
    harness.answer(ask, HostResponse::Again("try again".into()));
    let second = harness.frame();
    assert_eq!(second["params"]["prompt"], json!([{"type": "text", "text": "try again"}]));
    assert_ne!(first["id"], second["id"]);
    harness.text("s", "yes");
    harness.end(&second["id"], &quota(300, 40, "m"));
    let (ask, _) = harness.asked().pop().expect("a review is requested");
    harness.answer(ask, HostResponse::Accept { value: None });
    harness.player.check();
    let outcome = harness.player.outcome();
    assert_eq!(outcome.text, "yes");
    assert_eq!((outcome.usage.tokens.input, outcome.usage.tokens.output), (Some(400), Some(60)));
    assert_eq!(outcome.usage.by_model["m"].input, Some(400));
}

#[test]
fn session_file_fills_missing_usage_without_double_counting() {
    let (mut harness, id) = AcpHarness::running();
    let record = r#"{"id":"g1","type":"gemini","content":"hi","model":"gemini-3.8-flash","tokens":{"input":100,"output":20,"cached":60,"thoughts":7,"tool":0,"total":127}}"#;
    harness.player.side(record);
    harness.player.side(record);
    harness.text("s", "hi");
    harness.end(&id, &quota(100, 20, "gemini-3.8-flash"));
    let usage = &harness.player.outcome().usage;
    let tokens = (
        usage.tokens.input,
        usage.tokens.output,
        usage.tokens.cached,
        usage.tokens.thoughts,
        usage.tokens.total,
    );
    assert_eq!(tokens, (Some(100), Some(20), Some(60), Some(7), Some(127)));
    assert_eq!(usage.sources, [UsageSource::Stream, UsageSource::SessionFile]);
    assert_eq!(usage.by_model.len(), 1);
    assert!(
        harness.player.out.iter().any(|o| matches!(o, ConnectionOutput::Follow(_, _, name) if name == "s"))
    );
}

#[test]
fn thoughts_that_the_service_does_not_count_are_unknown() {
    let claude = agents::find("claude").expect("the agent is listed");
    let mut harness = AcpHarness::with(claude.dialogue(&DialogueConfig::new(Surface::Acp, None)));
    harness.reply("initialize", &capabilities("0.99.0"));
    harness.start(RUN, "s", spec());
    let id = harness.frame()["id"].clone();
    harness.text("s", "hi");
    let count = json!({"totalTokens": 160, "inputTokens": 100, "cachedInputTokens": 20, "cachedWriteTokens": 10,
        "outputTokens": 30, "reasoningOutputTokens": 0});
    harness.end(
        &id,
        &json!({"stopReason": "end_turn", "_meta": {"quota": {"token_count": count,
            "model_usage": [{"model": "claude-opus-5-5", "token_count": count}]}}}),
    );
    let usage = &harness.player.outcome().usage;
    assert_eq!((usage.tokens.output, usage.tokens.thoughts), (Some(30), None));
    assert_eq!(usage.by_model["claude-opus-5-5"].thoughts, None);
}

#[test]
fn session_file_that_covers_more_than_the_response_counts() {
    let (mut harness, id) = AcpHarness::running();
    for (record, input) in [("a", 900), ("b", 100)] {
        harness.player.side(&format!(
            r#"{{"id":"{record}","type":"gemini","content":"hi","tokens":{{"input":{input},"output":20,"cached":60,"thoughts":7,"total":999}}}}"#
        ));
    }
    harness.text("s", "hi");
    harness.end(&id, &quota(100, 20, "m"));
    let tokens = harness.player.outcome().usage.tokens;
    assert_eq!((tokens.input, tokens.output), (Some(1000), Some(40)));
    assert_eq!((tokens.cached, tokens.thoughts, tokens.total), (Some(120), Some(14), Some(1998)));
}

#[test]
fn session_cost_is_charged_to_each_run_once() {
    let mut harness = AcpHarness::unknown();
    let price = |amount: f64, currency: &str| json!({"sessionUpdate": "usage_update", "used": 1, "size": 2, "cost": {"amount": amount, "currency": currency}});
    let mut costs = Vec::new();
    for (run, amounts) in [(1, [0.25, 0.5]), (2, [0.5, 0.75])] {
        let mut spec = spec();
        if run == 1 {
            harness.start(RunId(1), "s", spec);
        } else {
            spec.session = SessionTarget::Open("s".into());
            harness.player.prompt_as(RunId(run), spec);
        }
        let id = harness.frame()["id"].clone();
        for amount in amounts {
            harness.update("s", &price(amount, "USD"));
        }
        harness.update("s", &price(99.0, "EUR"));
        harness.text("s", "x");
        harness.end(&id, &json!({"stopReason": "end_turn"}));
        costs.push(harness.player.outcome_of(RunId(run)).cost_usd);
    }
    assert_eq!(costs, [Some(0.5), Some(0.25)]);
}

#[test]
fn stop_reasons_follow_the_protocol() {
    for (stop, verdict, kind) in [
        ("end_turn", Verdict::Done, None),
        ("max_turn_requests", Verdict::LimitReached, Some(FailureKind::AgentTurns)),
        ("max_tokens", Verdict::Failed, Some(FailureKind::ApiError)),
        ("refusal", Verdict::Empty, Some(FailureKind::Blocked)),
        ("cancelled", Verdict::Failed, Some(FailureKind::NoResult)),
        ("brand_new", Verdict::Failed, Some(FailureKind::NoResult)),
    ] {
        let mut harness = AcpHarness::unknown();
        harness.start(RUN, "s", spec());
        let id = harness.frame()["id"].clone();
        harness.text("s", "text");
        harness.end(&id, &json!({"stopReason": stop}));
        let outcome = harness.player.outcome();
        assert_eq!((outcome.verdict, outcome.error.as_ref().map(|e| e.kind)), (verdict, kind), "{stop}");
        assert_eq!(outcome.stop_reason.as_deref(), Some(stop));
    }
}

#[test]
fn agent_that_ignores_cancel_is_abandoned() {
    let (mut harness, _) = AcpHarness::running();
    harness.player.take(InputKind::Cancel { run: RUN, signal: Signal::Interrupt });
    assert_eq!(harness.frame()["method"], "session/cancel");
    harness.text("s", "I go on");
    harness.player.ticks_to_the_end();
    harness.player.check();
    assert_eq!(harness.player.outcome().verdict, Verdict::Cancelled);
    assert!(harness.player.conn.is_finished());
}

#[test]
fn cancel_ends_the_quiet_period_and_keeps_the_answer() {
    let mut harness = answered(20_000);
    harness.player.wait(100);
    harness.player.take(InputKind::Cancel { run: RUN, signal: Signal::Interrupt });
    harness.player.check();
    assert_eq!(
        (harness.player.outcome().verdict, harness.player.outcome().duration_ms),
        (Verdict::Done, 110)
    );
}

/// Returns a cancelled run whose agent has confirmed the cancellation.
fn cancelled_run(change: impl FnOnce(&mut TurnSpec)) -> AcpHarness {
    let mut harness = AcpHarness::unknown();
    let mut spec = spec();
    spec.timeouts.quiet = 500;
    change(&mut spec);
    harness.start(RUN, "s", spec);
    let id = harness.frame()["id"].clone();
    harness.text("s", "early ");
    harness.player.take(InputKind::Cancel { run: RUN, signal: Signal::Interrupt });
    harness.player.wait(10);
    harness.end(&id, &json!({"stopReason": "cancelled"}));
    harness
}

#[test]
fn text_after_cancel_belongs_to_the_cancelled_run() {
    let mut harness = cancelled_run(|_| ());
    harness.player.wait(400);
    harness.text("s", "late");
    harness.player.wait(499);
    assert!(!harness.player.is_over());
    harness.player.wait(1);
    harness.player.check();
    assert_eq!(
        (harness.player.outcome().verdict, harness.player.outcome().text.as_str()),
        (Verdict::Cancelled, "early late")
    );
    // After a cancellation, the limit for an agent that keeps sending text is shorter than after an answer.
    let mut harness = cancelled_run(|spec| spec.timeouts.shutdown_step = 1000);
    for _ in 0..3 {
        harness.player.wait(300);
        harness.text("s", "on ");
    }
    harness.player.wait(100);
    assert_eq!(harness.player.outcome().duration_ms, 1010);
}

#[test]
fn cancel_without_reuse_of_the_session_does_not_wait() {
    let harness = cancelled_run(|spec| spec.ends_session = true);
    assert_eq!(harness.player.outcome().duration_ms, 10);
    let mut harness = AcpHarness::unknown();
    let mut spec = spec();
    spec.timeouts.quiet = 500;
    harness.start(RUN, "s", spec);
    let id = harness.frame()["id"].clone();
    harness.player.take(InputKind::Retire);
    harness.player.take(InputKind::Cancel { run: RUN, signal: Signal::Interrupt });
    harness.end(&id, &json!({"stopReason": "cancelled"}));
    assert!(harness.player.is_over());
}

#[test]
fn text_before_the_next_prompt_is_dropped_and_counted() {
    let mut harness = cancelled_run(|_| ());
    harness.player.wait(500);
    harness.text("s", "stray");
    let mut next = spec();
    next.session = SessionTarget::Open("s".into());
    next.mode = Some(RequestedMode::new("plan", false));
    harness.player.prompt_as(RunId(2), next);
    harness.frames();
    // The session is still being set up.
    harness.text("s", "stray");
    harness.text("s", "stray");
    let mode = harness.player.out.iter().rev().find_map(|o| match o {
        ConnectionOutput::Frame(frame) => serde_json::from_str::<Value>(frame).ok(),
        _ => None,
    });
    harness.end(&mode.expect("the session is set up")["id"], &json!({}));
    let id = harness.frame()["id"].clone();
    harness.text("s", "second");
    harness.end(&id, &json!({"stopReason": "end_turn"}));
    harness.player.check();
    let second = harness.player.outcome_of(RunId(2));
    let warned: Vec<&str> = second.warnings.iter().map(|w| &w.message[..10]).collect();
    assert_eq!((second.text.as_str(), &warned[..]), ("second", &["1 updates ", "2 updates "][..]));
}

#[test]
fn unused_session_is_closed_if_supported() {
    let closing = json!({"protocolVersion": 1, "agentCapabilities": {"sessionCapabilities": {"close": {}}}});
    let deaf = json!({"protocolVersion": 1, "agentCapabilities": {"sessionCapabilities": {"close": false}}});
    for (can, ends, closes) in [(&closing, true, true), (&closing, false, false), (&deaf, true, false)] {
        let mut harness =
            AcpHarness::with(agentline_core::acp_dialogue(&DialogueConfig::new(Surface::Acp, None)));
        harness.reply("initialize", can);
        let mut spec = spec();
        spec.ends_session = ends;
        harness.start(RUN, "s", spec);
        let id = harness.frame()["id"].clone();
        harness.text("s", "x");
        harness.end(&id, &json!({"stopReason": "end_turn"}));
        harness.player.check();
        let frames = harness.frames();
        let requests: Vec<_> = frames.iter().map(|f| (&f["method"], &f["params"])).collect();
        let close = (&json!("session/close"), &json!({"sessionId": "s"}));
        assert_eq!(requests, if closes { vec![close] } else { vec![] });
        if closes {
            // Whatever the agent replies, the run is over.
            harness.send(
                &json!({"jsonrpc": "2.0", "id": frames[0]["id"], "error": {"code": 1, "message": "no"}}),
            );
            harness.player.check();
        }
    }
}

#[test]
fn session_opened_after_cancel_is_closed() {
    let mut harness =
        AcpHarness::with(agentline_core::acp_dialogue(&DialogueConfig::new(Surface::Acp, None)));
    let can = json!({"agentCapabilities": {"sessionCapabilities": {"close": {}}}});
    harness.reply("initialize", &can);
    harness.player.prompt_as(RUN, spec());
    let open = harness.frame()["id"].clone();
    harness.player.take(InputKind::Cancel { run: RUN, signal: Signal::Interrupt });
    harness.player.check();
    harness.frames();
    harness.end(&open, &json!({"sessionId": "s"}));
    assert_eq!(harness.frame()["method"], "session/close");
}
