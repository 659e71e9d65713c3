//! Tests that limits are enforced by observation, even if the agent has no such flag, and that the partial outcome is
//! kept.

use crate::play::{Player, spec};
use agentline_core::{ExitReason, FailureKind, Limits, Price, PriceTable, Surface, Verdict};

const INIT: &str = r#"{"type":"init","session_id":"s","model":"m"}"#;

fn limited(set: impl Fn(&mut Limits)) -> Player {
    let mut player = Player::new(Surface::StreamJson);
    let mut spec = spec();
    set(&mut spec.limits);
    let price = Price { input: 1.0, output: 10.0, cached: Some(0.5), ..Price::default() };
    spec.prices = PriceTable::default().with([("m".to_owned(), price)].into()).into();
    player.prompt(spec);
    player.stdout(INIT);
    player
}

fn tool(player: &mut Player, id: &str) {
    player.stdout(&format!(
        r#"{{"type":"tool_use","tool_name":"list_directory","tool_id":"{id}","parameters":{{}}}}"#
    ));
}

fn result(player: &mut Player, id: &str) {
    player.stdout(&format!(r#"{{"type":"tool_result","tool_id":"{id}","status":"success"}}"#));
}

/// Adds one turn as the session file records it, twice, because the agent writes it again.
fn turn(player: &mut Player, id: &str) {
    for _ in 0..2 {
        player.side(&format!(
            r#"{{"id":"{id}","type":"gemini","content":"","model":"m","tokens":{{"input":100,"output":20,"cached":40,"thoughts":5,"tool":0,"total":125}}}}"#
        ));
    }
}

#[track_caller]
fn assert_stopped(mut player: Player, kind: FailureKind, message: &str) {
    assert!(player.rungs().len() == 2, "the run was not stopped");
    // Whatever the agent sends after the stop, the limit is the reason.
    player.stdout(r#"{"type":"result","status":"success","stats":{"total_tokens":999}}"#);
    player.exit(ExitReason::Code(0));
    player.check();
    let outcome = player.outcome();
    assert_eq!(outcome.verdict, Verdict::LimitReached);
    let error = outcome.error.as_ref().expect("the error has a reason");
    assert_eq!((error.kind, &*error.message), (kind, message));
}

#[test]
fn turn_limit_stops_the_run() {
    let mut player = limited(|l| l.max_turns = Some(2));
    for id in ["a", "b"] {
        tool(&mut player, id);
        result(&mut player, id);
    }
    assert_eq!(player.rungs().len(), 1);
    player.stdout(r#"{"type":"message","role":"assistant","content":"third"}"#);
    assert_stopped(player, FailureKind::MaxTurns, "turn limit of 2 reached: 3 used");
}

#[test]
fn tool_call_limit_counts_every_call_of_a_turn() {
    let mut player = limited(|l| l.max_tool_calls = Some(2));
    tool(&mut player, "a");
    tool(&mut player, "b");
    assert_eq!(player.rungs().len(), 1);
    tool(&mut player, "c");
    assert_stopped(player, FailureKind::MaxToolCalls, "tool call limit of 2 reached: 3 used");
}

#[test]
fn token_limit_applies_during_the_run() {
    let mut player = limited(|l| l.max_tokens = Some(250));
    turn(&mut player, "1");
    turn(&mut player, "2");
    assert_eq!(player.rungs().len(), 1);
    turn(&mut player, "3");
    assert_stopped(player, FailureKind::MaxTokens, "token limit of 250 reached: 375 used");
}

#[test]
fn output_token_limit_includes_thoughts() {
    let mut player = limited(|l| l.max_output_tokens = Some(49));
    turn(&mut player, "1");
    assert_eq!(player.rungs().len(), 1);
    turn(&mut player, "2");
    assert_stopped(player, FailureKind::MaxOutputTokens, "output token limit of 49 reached: 50 used");
}

#[test]
fn cost_limit_stops_the_run() {
    // A turn costs 60 fresh, 40 cached and 25 produced tokens: 60 + 20 + 250 millionths of a dollar.
    let mut player = limited(|l| l.max_cost = Some(0.000_65));
    turn(&mut player, "1");
    assert_eq!(player.rungs().len(), 1);
    turn(&mut player, "2");
    assert_stopped(player, FailureKind::MaxCost, "cost limit of $0.0006 reached: $0.0007 used");
}

#[test]
fn unknown_cost_is_null_and_stops_nothing() {
    let mut player = limited(|l| l.max_cost = Some(0.0));
    player.side(r#"{"id":"1","type":"gemini","content":"x","model":"unheard-of","tokens":{"input":9,"output":9,"total":18}}"#);
    assert_eq!(player.rungs().len(), 1);
    player.stdout(r#"{"type":"message","role":"assistant","content":"x"}"#);
    player.stdout(r#"{"type":"result","status":"success"}"#);
    player.exit(ExitReason::Code(0));
    assert_eq!((player.outcome().verdict, player.outcome().cost_usd), (Verdict::Done, None));
}

#[test]
fn limit_exceeded_by_the_last_turn_applies_after_it() {
    let mut player = limited(|l| l.max_tokens = Some(100));
    player.stdout(r#"{"type":"message","role":"assistant","content":"the answer"}"#);
    player.stdout(r#"{"type":"result","status":"success","stats":{"total_tokens":125,"input_tokens":100,"output_tokens":20}}"#);
    player.exit(ExitReason::Code(0));
    let outcome = player.outcome();
    assert_eq!((outcome.verdict, &*outcome.text), (Verdict::LimitReached, "the answer"));
}
