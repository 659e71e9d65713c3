//! Tests tokens, cost and limits with the real Gemini CLI: counts match the model's, and limits are enforced.
//! Variations run on its tapes.

use agentline::{Event, FailureKind, Limits, Outcome, PriceTable, RunRequest, Surface, Verdict};
use agentline_core::{Phase, Record, Tokens, Usage, UsageSource};
use agentline_mock::gemini::{GeminiStep, GeminiTokens, Script};
use agentline_tests::{
    MODEL, RunRecord, TestStage, needs_real_gemini, shown, survivors,
    tapes::{RecordedFacts, TapedRun, parallel_calls, replay, replay_on},
};
use serde_json::{Value, json};
use std::{process::Command, time::Duration};

fn default_request(stage: &TestStage) -> RunRequest {
    stage.request("Work").timeout(Duration::from_secs(60))
}

fn tokens(prompt: u64, candidates: u64, cached: u64, thoughts: u64) -> GeminiTokens {
    GeminiTokens { prompt, candidates, cached, thoughts, total: None }
}

fn write(n: usize) -> GeminiStep {
    let args = json!({"file_path": format!("{n}.txt"), "content": format!("{n}\n")});
    GeminiStep::text(format!("File {n}.")).and_call("write_file", args)
}

/// Returns two turns with 3,000 prompt tokens in total (1,200 of them cached), 300 answer tokens and 70 thought tokens.
fn two_turns() -> Script {
    let first = write(1).usage(tokens(1000, 100, 200, 50));
    // The delay of the model ensures that the record of the first turn is read before the second.
    Script::new([first, GeminiStep::text("Done.").usage(tokens(2000, 200, 1000, 20)).delay(300)])
}

#[track_caller]
fn near(cost: Option<f64>, expected: f64, all: &str) {
    assert!(cost.is_some_and(|cost| (cost - expected).abs() < 1e-9), "{cost:?} is not {expected}: {all}");
}

#[test]
fn tokens_and_cost_match_the_model_on_both_surfaces() {
    needs_real_gemini!();
    let price = PriceTable::built_in().of(MODEL).unwrap();
    let expected = (1800.0 * price.input + 1200.0 * price.cached.unwrap() + 370.0 * price.output) / 1e6;
    let stage = TestStage::new(two_turns());
    let (records, outcome) = stage.play(default_request(&stage));
    let taped = replay("two_turns.json").run;
    for (records, outcome) in [(&records, &outcome), (&taped.records, &taped.outcome)] {
        let (all, usage) = (shown(outcome), &outcome.usage);
        assert_eq!(outcome.verdict, Verdict::Done, "{all}");
        let t = usage.tokens;
        assert_eq!((t.input, t.output, t.cached), (Some(3000), Some(300), Some(1200)), "{all}");
        assert_eq!((t.thoughts, t.total, usage.requests), (Some(70), Some(3370), Some(2)), "{all}");
        assert_eq!(usage.by_model.len(), 1, "{all}");
        assert_eq!(usage.by_model[MODEL].total, Some(3370), "{all}");
        assert_eq!(usage.by_model[MODEL].thoughts, Some(70), "{all}");
        assert_eq!(usage.sources, [UsageSource::Stream, UsageSource::SessionFile], "{all}");
        near(outcome.cost_usd, expected, &all);
        assert_consistent_usage(outcome);
        // The tokens of the first turn were known during the run.
        let live = records.iter().find_map(|r| match &r.event {
            Event::Usage(u) => Some((r.from, u.tokens.total)),
            _ => None,
        });
        assert_eq!(live, Some((agentline_core::Origin::SessionFile, Some(1150))), "{records:?}");
    }
}

/// Checks that each answer is reported separately, each number names its source, and repeated numbers agree.
#[track_caller]
fn assert_consistent_usage(outcome: &Outcome) {
    let (all, usage) = (shown(outcome), &outcome.usage);
    let turns: Vec<_> =
        usage.turns.iter().map(|t| (t.turn, t.model.as_deref(), t.tokens.total, t.source)).collect();
    let model = Some(MODEL);
    assert_eq!(
        turns,
        [(1, model, Some(1150), UsageSource::SessionFile), (2, model, Some(2220), UsageSource::SessionFile)],
        "{all}"
    );
    assert_eq!(usage.origins["input_tokens"], UsageSource::Stream, "{all}");
    assert_eq!(usage.origins.len(), 5, "{all}");
    assert_eq!(outcome.cost_source, Some(agentline_core::CostSource::Prices), "{all}");
    let doubts = ["usage_disagrees", "cost_estimated"];
    assert!(!outcome.warnings.iter().any(|w| doubts.contains(&&*w.code)), "{all}");
}

#[test]
fn acp_reports_the_same_token_counts() {
    let outcome = replay("two_turns.acp").run.outcome;
    let (all, t) = (shown(&outcome), outcome.usage.tokens);
    assert_eq!((t.input, t.output, t.cached), (Some(3000), Some(300), Some(1200)), "{all}");
    assert_eq!((t.thoughts, t.total, outcome.usage.requests), (Some(70), Some(3370), Some(2)), "{all}");
    assert_eq!(outcome.usage.origins["cached_tokens"], UsageSource::SessionFile, "{all}");
    assert_consistent_usage(&outcome);
}

/// The numbers of a run that every surface and the saved session must agree on.
#[derive(Debug, PartialEq)]
struct Numbers {
    turns: u64,
    tool_calls: u64,
    requests: u64,
    tokens: Tokens,
    cost_usd: String,
}

impl Numbers {
    fn of_run(outcome: &Outcome) -> Self {
        Self {
            turns: outcome.turns.into(),
            tool_calls: outcome.tool_calls.into(),
            requests: outcome.usage.requests.unwrap_or_default(),
            tokens: outcome.usage.tokens,
            cost_usd: outcome.cost_usd.map(|usd| usd.to_string()).unwrap_or_default(),
        }
    }

    /// Returns the numbers of a row of `sessions list` or `sessions usage`. The latter counts no calls.
    fn of_row(row: &Value, tool_calls: u64) -> Self {
        Self {
            turns: row["turns"].as_u64().unwrap_or_default(),
            tool_calls: row["tool_calls"].as_u64().unwrap_or(tool_calls),
            requests: row["requests"].as_u64().unwrap_or_default(),
            tokens: serde_json::from_value(row.clone()).unwrap_or_default(),
            cost_usd: row["cost_usd"].to_string(),
        }
    }
}

#[test]
fn turns_tokens_and_cost_agree_on_every_surface_and_in_the_saved_session() {
    needs_real_gemini!();
    let stage = TestStage::new(parallel_calls());
    let mut request = default_request(&stage).surface(Surface::Acp);
    // Three parallel calls do not exceed the limit.
    request.limits.max_turns = Some(3);
    let (records, outcome) = stage.play(request);
    assert_eq!(outcome.verdict, Verdict::Done, "{}", shown(&outcome));
    let numbers = Numbers::of_run(&outcome);
    let mut expected = Tokens::default();
    (expected.input, expected.output, expected.cached) = (Some(6000), Some(350), Some(3200));
    (expected.thoughts, expected.total) = (Some(100), Some(6450));
    assert_eq!(
        (numbers.turns, numbers.tool_calls, numbers.requests, numbers.tokens),
        (3, 4, 3, expected),
        "{}",
        shown(&outcome)
    );
    assert!(numbers.cost_usd.len() <= "0.00123456".len(), "{numbers:?}");
    assert_usage_grows(&records, &outcome);
    for surface in [Surface::Json, Surface::StreamJson, Surface::Acp] {
        let taped = replay_on("parallel_calls", surface).run;
        assert_eq!(Numbers::of_run(&taped.outcome), numbers, "{surface}: {}", taped.shown());
        assert_usage_grows(&taped.records, &taped.outcome);
    }
    for command in ["list", "usage"] {
        let printed = Command::new(env!("CARGO_BIN_EXE_agentline-under-test"))
            .args(["sessions", command, "-o", "json"])
            .current_dir(stage.workspace())
            .env_clear()
            .envs(stage.variables())
            .output()
            .unwrap();
        let rows: Value =
            serde_json::from_slice(&printed.stdout).unwrap_or_else(|e| panic!("{e}: {printed:?}"));
        let row = if command == "list" { &rows[0] } else { &rows["total"] };
        assert_eq!(Numbers::of_row(row, 4), numbers, "{command}: {row}");
    }
}

/// Checks that no number of the `usage` events decreases or becomes unknown, and that the last event equals the outcome.
#[track_caller]
fn assert_usage_grows(records: &[Record], outcome: &Outcome) {
    let usages: Vec<&Usage> = records
        .iter()
        .filter_map(|record| match &record.event {
            Event::Usage(usage) => Some(usage),
            _ => None,
        })
        .collect();
    for pair in usages.windows(2) {
        assert_eq!(pair[1].tokens.at_least(pair[0].tokens), pair[1].tokens, "{usages:?}");
    }
    assert_eq!(usages.last(), Some(&&outcome.usage), "{}", shown(outcome));
}

#[test]
fn prices_can_be_overridden_and_unknown_models_have_none() {
    let outcome = replay("two_turns_with_own_prices.stream-json").run.outcome;
    // Without their own price, cached tokens cost as much as others.
    near(outcome.cost_usd, (3000.0 * 10.0 + 370.0 * 100.0) / 1e6, &shown(&outcome));

    let outcome = replay("two_turns_without_a_price.stream-json").run.outcome;
    let all = shown(&outcome);
    assert_eq!(
        (outcome.verdict, outcome.usage.tokens.total, outcome.cost_usd),
        (Verdict::Done, Some(3370), None),
        "{all}"
    );
}

#[test]
fn failed_run_keeps_known_tokens() {
    for surface in [Surface::StreamJson, Surface::Json] {
        let outcome = replay_on("failed_after_a_turn", surface).run.outcome;
        let all = shown(&outcome);
        assert_eq!((outcome.verdict, outcome.files.len()), (Verdict::NotAuthenticated, 1), "{all}");
        assert_eq!(
            (outcome.usage.tokens.input, outcome.usage.tokens.thoughts),
            (Some(1000), Some(50)),
            "{all}"
        );
        assert!(outcome.cost_usd.is_some_and(|c| c > 0.0), "{all}");
    }
}

/// Runs an agent that writes one file per second until a limit stops it. The limit of an answer is passed to the model.
fn limited(limits: Limits) -> TapedRun {
    let stage =
        TestStage::new(Script::new((1..20).map(|n| write(n).delay(800).usage(tokens(1000, 100, 0, 50)))));
    let mut request = default_request(&stage);
    let longest = limits.max_output_tokens;
    request.limits = limits;
    let (records, outcome) = stage.play(request);
    assert_eq!(survivors(&outcome.run_id), [0_u32; 0], "{}", shown(&outcome));
    let result = &stage.model.requests_to_main()[0].body["generationConfig"]["maxOutputTokens"];
    assert_eq!(result.as_u64(), longest, "{}", shown(&outcome));
    let facts = RecordedFacts::of(&stage);
    TapedRun { run: RunRecord { records, outcome }, facts }
}

/// Asserts that the limit was reported and the work until then is kept. The number of changed files is in the range
/// `files`: each limit applies after the turn that exceeds it, and another turn may have started before that was detected.
#[track_caller]
fn stopped(run: &TapedRun, kind: FailureKind, files: std::ops::RangeInclusive<usize>) {
    let outcome = &run.run.outcome;
    let all = shown(outcome);
    let error = outcome.error.as_ref().unwrap_or_else(|| panic!("no error: {all}"));
    assert_eq!(
        (outcome.verdict, error.kind, error.phase),
        (Verdict::LimitReached, kind, Phase::Budget),
        "{all}"
    );
    assert!(error.hint.as_ref().is_some_and(|h| h.contains("--max-")) && !error.retryable, "{all}");
    assert!(files.contains(&outcome.files.len()), "{} files: {all}", outcome.files.len());
    assert!(outcome.files.iter().all(|f| f.verified && run.facts.files.contains_key(&f.path)), "{all}");
    assert!(outcome.text.starts_with("File "), "{all}");
    assert!(outcome.usage.tokens.total.is_some_and(|t| t >= 1150) && outcome.cost_usd.is_some(), "{all}");
}

#[test]
fn turns_are_limited_exactly() {
    needs_real_gemini!();
    let mut limits = Limits::default();
    (limits.max_turns, limits.max_output_tokens) = (Some(2), Some(4321));
    // Over ACP, the agent itself stops at the limit of a cold run.
    for run in [limited(limits), replay("max_turns.json"), replay("max_turns.acp")] {
        stopped(&run, FailureKind::MaxTurns, 2..=2);
        assert_eq!((run.run.outcome.turns, run.facts.model_requests), (2, 2), "{}", run.run.shown());
    }
}

#[test]
fn tool_call_limit_applies_to_the_first_excess_call() {
    for surface in [Surface::StreamJson, Surface::Json] {
        // The excess call may still be carried out before the agent is stopped.
        stopped(&replay_on("max_tool_calls", surface), FailureKind::MaxToolCalls, 2..=3);
    }
}

#[test]
fn tokens_and_cost_are_limited_within_a_turn() {
    // Each turn uses 1,150 tokens, 150 of them output, for 0.000675 dollars: the third turn exceeds each of these
    // limits.
    for (run, kind) in [
        (replay("max_tokens.stream-json"), FailureKind::MaxTokens),
        (replay("max_output_tokens.stream-json"), FailureKind::MaxOutputTokens),
        (replay("max_cost.json"), FailureKind::MaxCost),
    ] {
        stopped(&run, kind, 2..=4);
        let turns = run.facts.model_requests;
        assert!(
            (3..=4).contains(&turns),
            "{kind:?} was detected after {turns} requests: {}",
            run.run.shown()
        );
    }
}
