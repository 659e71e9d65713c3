//! Tests what happens after the answer: the quiet period, late updates, a second prompt in the same run, and tokens
//! that must not be counted twice.

use super::desk::Desk;
use crate::play::{RUN, order};
use agentline_core::{
    ConnectionOutput, DialogueConfig, FailureKind, HostRequest, HostResponse, InputKind, RequestedMode,
    RunId, SessionTarget, Surface, TurnSpec, UsageSource, Verdict,
};
use serde_json::{Value, json};

/// Returns a run whose agent may still send updates after its answer.
fn answered(quiet: u64) -> Desk {
    let mut desk = Desk::unknown();
    let mut order = order();
    order.clocks.quiet = quiet;
    desk.start(RUN, "s", order);
    let id = desk.frame()["id"].clone();
    desk.text("s", "early ");
    desk.player.wait(10);
    desk.end(&id, &json!({"stopReason": "end_turn"}));
    desk
}

fn unknown(desk: &mut Desk) {
    desk.update("s", &json!({"sessionUpdate": "brand_new"}));
}

#[test]
fn late_text_after_an_unknown_update_is_delivered() {
    let mut desk = answered(500);
    desk.player.wait(400);
    unknown(&mut desk);
    desk.player.wait(150);
    desk.text("s", "late");
    // The text restarted the quiet period, so 499 ms are not enough.
    desk.player.wait(499);
    assert!(!desk.player.is_over());
    desk.player.wait(1);
    desk.player.check();
    assert_eq!(desk.player.outcome().text, "early late");
    assert!(desk.player.warnings().is_empty(), "this agent is known to do that");
}

#[test]
fn run_ends_after_a_silent_quiet_period() {
    let mut desk = answered(500);
    desk.player.wait(499);
    assert!(!desk.player.is_over());
    desk.player.wait(1);
    assert_eq!(desk.player.outcome().duration_ms, 510);
    // With a quiet period of zero, the run ends at once.
    assert_eq!(answered(0).player.outcome().text, "early ");
}

#[test]
fn quiet_period_has_an_upper_limit() {
    let mut desk = answered(500);
    for _ in 0..74 {
        desk.player.wait(400);
        assert!(!desk.player.is_over());
        unknown(&mut desk);
    }
    desk.player.wait(400);
    assert_eq!(desk.player.outcome().duration_ms, 30_010);
    // The caller's deadline is even earlier.
    let mut desk = Desk::unknown();
    let mut order = order();
    (order.clocks.quiet, order.clocks.deadline) = (500, Some(700));
    desk.start(RUN, "s", order);
    let id = desk.frame()["id"].clone();
    desk.text("s", "x");
    desk.end(&id, &json!({"stopReason": "end_turn"}));
    desk.player.wait(400);
    unknown(&mut desk);
    desk.player.wait(300);
    assert_eq!((desk.player.outcome().verdict, desk.player.outcome().duration_ms), (Verdict::Done, 700));
}

#[test]
fn late_update_is_reported_while_settling_with_one_warning() {
    let (mut desk, id) = Desk::going();
    desk.player.disk = None;
    desk.text("s", "answer");
    desk.end(&id, &json!({"stopReason": "end_turn"}));
    desk.text("s", " and more");
    desk.text("s", " and more");
    desk.update("s", &json!({"sessionUpdate": "session_info_update", "title": "t"}));
    assert_eq!(desk.player.warnings(), ["late_update"]);
    let settle = desk.player.out.iter().find_map(|o| match o {
        ConnectionOutput::Ask(_, ask, HostRequest::Settle { .. }) => Some(*ask),
        _ => None,
    });
    desk.answer(settle.expect("it settles"), HostResponse::Settled(agentline_core::DiskReport::default()));
    desk.player.check();
    assert_eq!(desk.player.outcome().text, "answer and more and more");
}

#[test]
fn update_after_the_run_causes_a_warning_in_the_next_run() {
    let (mut desk, id) = Desk::going();
    desk.text("s", "answer");
    desk.end(&id, &json!({"stopReason": "end_turn"}));
    assert!(desk.player.is_over());
    desk.text("s", "stray");
    desk.update("s", &json!({"sessionUpdate": "tool_call", "toolCallId": "t", "status": "completed"}));
    desk.update("s", &json!({"sessionUpdate": "usage_update", "used": 1, "size": 2}));
    let mut next = order();
    next.session = SessionTarget::Open("s".into());
    desk.player.prompt_as(RunId(2), next);
    let id = desk.frame()["id"].clone();
    desk.text("s", "second");
    desk.end(&id, &json!({"stopReason": "end_turn"}));
    desk.player.check();
    let second = desk.player.outcome_of(RunId(2));
    assert_eq!((second.text.as_str(), second.tool_calls), ("second", 0));
    assert_eq!(second.warnings.len(), 1);
    assert!(second.warnings[0].message.starts_with("2 updates"), "{:?}", second.warnings);
}

#[test]
fn late_tool_result_is_not_a_call_of_the_next_run() {
    let (mut desk, id) = Desk::going();
    desk.update(
        "s",
        &json!({"sessionUpdate": "tool_call", "toolCallId": "t", "kind": "execute", "title": "sleep"}),
    );
    desk.text("s", "first");
    desk.end(&id, &json!({"stopReason": "end_turn"}));
    desk.player.wait(60_000);
    assert!(desk.player.is_over());
    let mut next = order();
    next.session = SessionTarget::Open("s".into());
    desk.player.prompt_as(RunId(2), next);
    let id = desk.frame()["id"].clone();
    // Codex sends this for a command that it had to stop, some milliseconds after its answer.
    desk.update("s", &json!({"sessionUpdate": "tool_call_update", "toolCallId": "t", "status": "failed"}));
    desk.text("s", "second");
    desk.end(&id, &json!({"stopReason": "end_turn"}));
    desk.player.check();
    let second = desk.player.outcome_of(RunId(2));
    assert_eq!((second.text.as_str(), second.tool_calls, second.turns), ("second", 0, 1));
}

fn quota(input: u64, output: u64, model: &str) -> Value {
    let count = json!({"input_tokens": input, "output_tokens": output});
    json!({"stopReason": "end_turn", "_meta": {"quota": {"token_count": count,
        "model_usage": [{"model": model, "token_count": count}]}}})
}

fn reviewed() -> TurnSpec {
    let mut order = order();
    order.review = true;
    order
}

#[test]
fn reprompted_run_sums_the_usage_of_its_prompts() {
    let mut desk = Desk::gemini();
    desk.start(RUN, "s", reviewed());
    let first = desk.frame();
    desk.text("s", "no");
    desk.end(&first["id"], &quota(100, 20, "m"));
    let (ask, question) = desk.asked().pop().expect("a review is requested");
    assert!(matches!(question, HostRequest::Review { text, .. } if text == "no"));
    desk.answer(ask, HostResponse::Again("try again".into()));
    let second = desk.frame();
    assert_eq!(second["params"]["prompt"], json!([{"type": "text", "text": "try again"}]));
    assert_ne!(first["id"], second["id"]);
    desk.text("s", "yes");
    desk.end(&second["id"], &quota(300, 40, "m"));
    let (ask, _) = desk.asked().pop().expect("a review is requested");
    desk.answer(ask, HostResponse::Accept { value: None });
    desk.player.check();
    let outcome = desk.player.outcome();
    assert_eq!(outcome.text, "yes");
    assert_eq!((outcome.usage.tokens.input, outcome.usage.tokens.output), (Some(400), Some(60)));
    assert_eq!(outcome.usage.by_model["m"].input, Some(400));
}

#[test]
fn session_file_fills_missing_usage_without_double_counting() {
    let (mut desk, id) = Desk::going();
    let record = r#"{"id":"g1","type":"gemini","content":"hi","model":"gemini-3.8-flash","tokens":{"input":100,"output":20,"cached":60,"thoughts":7,"tool":0,"total":127}}"#;
    desk.player.side(record);
    desk.player.side(record);
    desk.text("s", "hi");
    desk.end(&id, &quota(100, 20, "gemini-3.8-flash"));
    let usage = &desk.player.outcome().usage;
    let told = (
        usage.tokens.input,
        usage.tokens.output,
        usage.tokens.cached,
        usage.tokens.thoughts,
        usage.tokens.total,
    );
    assert_eq!(told, (Some(100), Some(20), Some(60), Some(7), Some(127)));
    assert_eq!(usage.sources, [UsageSource::Stream, UsageSource::SessionFile]);
    assert_eq!(usage.by_model.len(), 1);
    assert!(desk.player.out.iter().any(|o| matches!(o, ConnectionOutput::Follow(_, _, name) if name == "s")));
}

#[test]
fn session_file_with_other_turns_fills_nothing() {
    let (mut desk, id) = Desk::going();
    for (record, input) in [("before", 900), ("now", 100)] {
        desk.player.side(&format!(
            r#"{{"id":"{record}","type":"gemini","content":"hi","tokens":{{"input":{input},"output":20,"cached":60,"thoughts":7,"total":999}}}}"#
        ));
    }
    desk.text("s", "hi");
    desk.end(&id, &quota(100, 20, "m"));
    let tokens = desk.player.outcome().usage.tokens;
    assert_eq!((tokens.input, tokens.output), (Some(100), Some(20)));
    assert_eq!((tokens.cached, tokens.thoughts, tokens.total), (None, None, None));
}

#[test]
fn session_cost_is_charged_to_each_run_once() {
    let mut desk = Desk::unknown();
    let price = |amount: f64, currency: &str| json!({"sessionUpdate": "usage_update", "used": 1, "size": 2, "cost": {"amount": amount, "currency": currency}});
    let mut costs = Vec::new();
    for (run, amounts) in [(1, [0.25, 0.5]), (2, [0.5, 0.75])] {
        let mut order = order();
        if run == 1 {
            desk.start(RunId(1), "s", order);
        } else {
            order.session = SessionTarget::Open("s".into());
            desk.player.prompt_as(RunId(run), order);
        }
        let id = desk.frame()["id"].clone();
        for amount in amounts {
            desk.update("s", &price(amount, "USD"));
        }
        desk.update("s", &price(99.0, "EUR"));
        desk.text("s", "x");
        desk.end(&id, &json!({"stopReason": "end_turn"}));
        costs.push(desk.player.outcome_of(RunId(run)).cost_usd);
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
        let mut desk = Desk::unknown();
        desk.start(RUN, "s", order());
        let id = desk.frame()["id"].clone();
        desk.text("s", "text");
        desk.end(&id, &json!({"stopReason": stop}));
        let outcome = desk.player.outcome();
        assert_eq!((outcome.verdict, outcome.error.as_ref().map(|e| e.kind)), (verdict, kind), "{stop}");
        assert_eq!(outcome.stop_reason.as_deref(), Some(stop));
    }
}

#[test]
fn agent_that_ignores_cancel_is_abandoned() {
    let (mut desk, _) = Desk::going();
    desk.player.take(InputKind::Cancel { run: RUN, signal: 2 });
    assert_eq!(desk.frame()["method"], "session/cancel");
    desk.text("s", "I go on");
    desk.player.ticks_to_the_end();
    desk.player.check();
    assert_eq!(desk.player.outcome().verdict, Verdict::Cancelled);
    assert!(desk.player.conn.gone());
}

#[test]
fn cancel_ends_the_quiet_period_and_keeps_the_answer() {
    let mut desk = answered(20_000);
    desk.player.wait(100);
    desk.player.take(InputKind::Cancel { run: RUN, signal: 2 });
    desk.player.check();
    assert_eq!((desk.player.outcome().verdict, desk.player.outcome().duration_ms), (Verdict::Done, 110));
}

/// Returns a cancelled run whose agent has confirmed the cancellation.
fn stopped(change: impl FnOnce(&mut TurnSpec)) -> Desk {
    let mut desk = Desk::unknown();
    let mut order = order();
    order.clocks.quiet = 500;
    change(&mut order);
    desk.start(RUN, "s", order);
    let id = desk.frame()["id"].clone();
    desk.text("s", "early ");
    desk.player.take(InputKind::Cancel { run: RUN, signal: 2 });
    desk.player.wait(10);
    desk.end(&id, &json!({"stopReason": "cancelled"}));
    desk
}

#[test]
fn text_after_cancel_belongs_to_the_cancelled_run() {
    let mut desk = stopped(|_| ());
    desk.player.wait(400);
    desk.text("s", "late");
    desk.player.wait(499);
    assert!(!desk.player.is_over());
    desk.player.wait(1);
    desk.player.check();
    assert_eq!(
        (desk.player.outcome().verdict, desk.player.outcome().text.as_str()),
        (Verdict::Cancelled, "early late")
    );
    // After a cancellation, the limit for an agent that keeps sending text is shorter than after an answer.
    let mut desk = stopped(|order| order.clocks.rung = 1000);
    for _ in 0..3 {
        desk.player.wait(300);
        desk.text("s", "on ");
    }
    desk.player.wait(100);
    assert_eq!(desk.player.outcome().duration_ms, 1010);
}

#[test]
fn cancel_without_reuse_of_the_session_does_not_wait() {
    let desk = stopped(|order| order.ends_session = true);
    assert_eq!(desk.player.outcome().duration_ms, 10);
    let mut desk = Desk::unknown();
    let mut order = order();
    order.clocks.quiet = 500;
    desk.start(RUN, "s", order);
    let id = desk.frame()["id"].clone();
    desk.player.take(InputKind::Retire);
    desk.player.take(InputKind::Cancel { run: RUN, signal: 2 });
    desk.end(&id, &json!({"stopReason": "cancelled"}));
    assert!(desk.player.is_over());
}

#[test]
fn text_before_the_next_prompt_is_dropped_and_counted() {
    let mut desk = stopped(|_| ());
    desk.player.wait(500);
    desk.text("s", "stray");
    let mut next = order();
    next.session = SessionTarget::Open("s".into());
    next.mode = Some(RequestedMode::new("plan", false));
    desk.player.prompt_as(RunId(2), next);
    desk.frames();
    // The session is still being set up.
    desk.text("s", "stray");
    desk.text("s", "stray");
    let mode = desk.player.out.iter().rev().find_map(|o| match o {
        ConnectionOutput::Frame(frame) => serde_json::from_str::<Value>(frame).ok(),
        _ => None,
    });
    desk.end(&mode.expect("the session is set up")["id"], &json!({}));
    let id = desk.frame()["id"].clone();
    desk.text("s", "second");
    desk.end(&id, &json!({"stopReason": "end_turn"}));
    desk.player.check();
    let second = desk.player.outcome_of(RunId(2));
    let warned: Vec<&str> = second.warnings.iter().map(|w| &w.message[..10]).collect();
    assert_eq!((second.text.as_str(), &warned[..]), ("second", &["1 updates ", "2 updates "][..]));
}

#[test]
fn unused_session_is_closed_if_supported() {
    let closing = json!({"protocolVersion": 1, "agentCapabilities": {"sessionCapabilities": {"close": {}}}});
    let deaf = json!({"protocolVersion": 1, "agentCapabilities": {"sessionCapabilities": {"close": false}}});
    for (can, ends, closes) in [(&closing, true, true), (&closing, false, false), (&deaf, true, false)] {
        let mut desk = Desk::with(agentline_core::acp_dialogue(&DialogueConfig::new(Surface::Acp, None)));
        desk.reply("initialize", can);
        let mut order = order();
        order.ends_session = ends;
        desk.start(RUN, "s", order);
        let id = desk.frame()["id"].clone();
        desk.text("s", "x");
        desk.end(&id, &json!({"stopReason": "end_turn"}));
        desk.player.check();
        let frames = desk.frames();
        let told: Vec<_> = frames.iter().map(|f| (&f["method"], &f["params"])).collect();
        let close = (&json!("session/close"), &json!({"sessionId": "s"}));
        assert_eq!(told, if closes { vec![close] } else { vec![] });
        if closes {
            // Whatever the agent replies, the run is over.
            desk.send(
                &json!({"jsonrpc": "2.0", "id": frames[0]["id"], "error": {"code": 1, "message": "no"}}),
            );
            desk.player.check();
        }
    }
}

#[test]
fn session_opened_after_cancel_is_closed() {
    let mut desk = Desk::with(agentline_core::acp_dialogue(&DialogueConfig::new(Surface::Acp, None)));
    let can = json!({"agentCapabilities": {"sessionCapabilities": {"close": {}}}});
    desk.reply("initialize", &can);
    desk.player.prompt_as(RUN, order());
    let open = desk.frame()["id"].clone();
    desk.player.take(InputKind::Cancel { run: RUN, signal: 2 });
    desk.player.check();
    desk.frames();
    desk.end(&open, &json!({"sessionId": "s"}));
    assert_eq!(desk.frame()["method"], "session/close");
}
