//! Tests turns, tokens and cost over several answers, parallel calls and several rounds.

use super::harness::AcpHarness;
use crate::play::{RUN, spec};
use agentline_core::{
    Event, FailureKind, HostResponse, Limits, PriceTable, Surface, Tokens, TurnSpec, Usage, Verdict,
};
use serde_json::{Value, json};
use std::sync::Arc;

const MODEL: &str = "gemini-2.5-flash";

fn priced() -> TurnSpec {
    let mut spec = spec();
    spec.info.surface = Some(Surface::Acp);
    spec.prices = Arc::new(PriceTable::built_in());
    spec
}

fn running(spec: TurnSpec) -> (AcpHarness, Value) {
    let mut harness = AcpHarness::gemini();
    harness.start(RUN, "s", spec);
    let id = harness.frame()["id"].clone();
    (harness, id)
}

/// Carries out a call as Gemini CLI does: it starts the next call after the result of this one.
fn call(harness: &mut AcpHarness, id: &str) {
    let call = format!("read_file__read_file_{id}");
    harness.update("s", &json!({"sessionUpdate": "tool_call", "toolCallId": call, "status": "in_progress", "title": "a", "kind": "read"}));
    harness.update(
        "s",
        &json!({"sessionUpdate": "tool_call_update", "toolCallId": call, "status": "completed"}),
    );
}

/// Records an answer in the session file: 100 prompt tokens (20 of them cached), 20 answer tokens, 5 thought tokens.
fn record(harness: &mut AcpHarness, id: &str) {
    let tokens = json!({"input": 100, "output": 20, "cached": 20, "thoughts": 5, "tool": 0, "total": 125});
    let record = json!({"id": id, "type": "gemini", "content": "", "tokens": tokens, "model": MODEL});
    harness.player.side(&record.to_string());
}

/// Returns the response to a prompt whose first request used this model and the others `auto`, as with the default model.
fn answered(requests: u64) -> Value {
    let count = |n: u64| json!({"input_tokens": 100 * n, "output_tokens": 20 * n});
    let mut models = vec![json!({"model": MODEL, "token_count": count(1)})];
    if requests > 1 {
        models.push(json!({"model": "auto", "token_count": count(requests - 1)}));
    }
    json!({"stopReason": "end_turn", "_meta": {"quota": {"token_count": count(requests), "model_usage": models}}})
}

/// Returns the usage events, after checking that no number decreases or becomes unknown, and that the last event equals
/// the outcome.
fn usages(harness: &AcpHarness) -> Vec<Usage> {
    let usages: Vec<Usage> = harness
        .player
        .events()
        .filter_map(|event| match event {
            Event::Usage(usage) => Some(usage.clone()),
            _ => None,
        })
        .collect();
    for pair in usages.windows(2) {
        let (before, after) = (pair[0].tokens, pair[1].tokens);
        assert_eq!(after.at_least(before), after, "{before:?} then {after:?}");
    }
    assert_eq!(usages.last(), Some(&harness.player.outcome().usage));
    usages
}

fn tokens(n: u64) -> Tokens {
    let mut tokens = Tokens::default();
    (tokens.input, tokens.output, tokens.cached) = (Some(100 * n), Some(20 * n), Some(20 * n));
    (tokens.thoughts, tokens.total) = (Some(5 * n), Some(125 * n));
    tokens
}

#[test]
fn parallel_calls_are_one_turn() {
    let mut spec = priced();
    spec.limits.max_turns = Some(2);
    let (mut harness, id) = running(spec);
    for n in ["1_0", "1_1", "1_2"] {
        call(&mut harness, n);
    }
    record(&mut harness, "a");
    harness.text("s", "done");
    record(&mut harness, "b");
    harness.end(&id, &answered(2));
    harness.player.check();
    let outcome = harness.player.outcome();
    assert_eq!((outcome.verdict, outcome.turns, outcome.tool_calls), (Verdict::Done, 2, 3), "{outcome:?}");
    assert_eq!((outcome.usage.requests, outcome.usage.tokens), (Some(2), tokens(2)));
    usages(&harness);
}

#[test]
fn turns_without_text_are_limited_by_the_record() {
    let mut spec = priced();
    spec.limits.max_turns = Some(2);
    let (mut harness, _) = running(spec);
    for (n, answer) in [("1_0", "a"), ("2_0", "b"), ("3_0", "c")] {
        call(&mut harness, n);
        record(&mut harness, answer);
    }
    harness.player.wait(60_000);
    harness.player.ticks_to_the_end();
    let outcome = harness.player.outcome();
    let kind = outcome.error.as_ref().map(|error| error.kind);
    assert_eq!((outcome.turns, kind), (3, Some(FailureKind::MaxTurns)), "{outcome:?}");
}

#[test]
fn without_a_record_each_call_after_a_result_may_be_a_turn() {
    let mut spec = priced();
    spec.follow = false;
    let (mut harness, id) = running(spec);
    call(&mut harness, "1_0");
    call(&mut harness, "1_1");
    harness.text("s", "done");
    harness.end(&id, &answered(3));
    assert_eq!(harness.player.outcome().turns, 3);
}

#[test]
fn calls_that_overlap_are_one_turn_without_a_record() {
    let mut spec = priced();
    spec.follow = false;
    spec.limits.max_turns = Some(3);
    let (mut harness, id) = running(spec);
    let update = |harness: &mut AcpHarness, kind: &str, call: &str, status: &str| {
        let update = json!({"sessionUpdate": kind, "toolCallId": call, "status": status, "title": "a", "kind": "read"});
        harness.update("s", &update);
    };
    // The next call begins when the first has ended, but not all have.
    update(&mut harness, "tool_call", "read_file-1-1", "in_progress");
    update(&mut harness, "tool_call", "read_file-1-2", "in_progress");
    update(&mut harness, "tool_call_update", "read_file-1-1", "completed");
    update(&mut harness, "tool_call", "read_file-1-3", "in_progress");
    update(&mut harness, "tool_call_update", "read_file-1-2", "completed");
    update(&mut harness, "tool_call", "read_file-1-4", "in_progress");
    update(&mut harness, "tool_call_update", "read_file-1-3", "completed");
    update(&mut harness, "tool_call_update", "read_file-1-4", "completed");
    call(&mut harness, "2_0");
    harness.text("s", "done");
    harness.end(&id, &answered(3));
    let outcome = harness.player.outcome();
    assert_eq!((outcome.verdict, outcome.turns, outcome.tool_calls), (Verdict::Done, 3, 5), "{outcome:?}");
}

/// Runs three rounds of two requests each with the default model, and returns the harness after the last.
fn three_rounds(limits: Limits) -> AcpHarness {
    let mut spec = priced();
    spec.validate = true;
    spec.limits = limits;
    let (mut harness, mut id) = running(spec);
    for round in 0..3 {
        record(&mut harness, &format!("{round}a"));
        call(&mut harness, &format!("{round}_0"));
        harness.text("s", "done");
        // The second record of a round arrives before or after the response.
        if round == 1 {
            record(&mut harness, &format!("{round}b"));
        }
        harness.end(&id, &answered(2));
        let Some((ask, _)) = harness.asked().pop().filter(|_| !harness.player.is_over()) else { break };
        if round != 1 {
            record(&mut harness, &format!("{round}b"));
        }
        if harness.player.is_over() {
            break;
        }
        if round == 2 {
            harness.answer(ask, HostResponse::Accept { value: None });
        } else {
            harness.answer(ask, HostResponse::Again("again".into()));
            id = harness.frame()["id"].clone();
        }
    }
    harness
}

#[test]
fn cost_covers_all_rounds_and_models() {
    let harness = three_rounds(Limits::default());
    let outcome = harness.player.outcome();
    assert_eq!((outcome.verdict, outcome.turns), (Verdict::Done, 6), "{outcome:?}");
    assert_eq!((outcome.usage.tokens, outcome.usage.requests), (tokens(6), Some(6)));
    assert_eq!(outcome.usage.by_model, [(MODEL.to_owned(), tokens(6))].into());
    let price = PriceTable::built_in().of(MODEL).unwrap();
    let expected = 6.0 * (80.0 * price.input + 20.0 * price.cached.unwrap() + 25.0 * price.output) / 1e6;
    let cost = outcome.cost_usd.unwrap();
    assert!((cost - expected).abs() < 1e-9, "{cost} is not {expected}");
    let digits = cost.to_string().replace("0.", "").trim_start_matches('0').len();
    assert!(digits <= 6, "{cost} has {digits} digits");
    assert!(usages(&harness).len() >= 6);
}

#[test]
fn budget_that_could_not_be_enforced_gives_a_warning() {
    let mut spec = priced();
    (spec.limits.max_cost, spec.limits.max_tokens) = (Some(1.0), Some(1_000));
    let (mut harness, id) = running(spec);
    harness.text("s", "done");
    harness.end(&id, &json!({"stopReason": "end_turn"}));
    let outcome = harness.player.outcome();
    let warnings: Vec<_> = outcome.warnings.iter().map(|w| (&*w.code, &*w.message)).collect();
    let message = "`max_tokens`, `max_cost` could not be enforced: the agent reported no usage";
    assert_eq!((outcome.verdict, &*warnings), (Verdict::Done, &[("limit_not_enforced", message)][..]));
}

#[test]
fn cost_is_limited_across_rounds() {
    let price = PriceTable::built_in().of(MODEL).unwrap();
    let request = (80.0 * price.input + 20.0 * price.cached.unwrap() + 25.0 * price.output) / 1e6;
    let mut limits = Limits::default();
    limits.max_cost = Some(request * 3.5);
    let harness = three_rounds(limits);
    let outcome = harness.player.outcome();
    let kind = outcome.error.as_ref().map(|error| error.kind);
    assert_eq!((outcome.verdict, kind), (Verdict::LimitReached, Some(FailureKind::MaxCost)), "{outcome:?}");
    assert_eq!(outcome.turns, 4);
}
