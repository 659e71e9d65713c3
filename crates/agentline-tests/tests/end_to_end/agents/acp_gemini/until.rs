//! Tests reprompting until the task is complete: with a function, with a command, within rounds and budgets.

#![expect(clippy::unwrap_used, reason = "test helpers may panic")]

use crate::agents::acp_gemini::harness::{RunRecord, command, stage};
use agentline::{
    FailureKind, Limits, Pool, PoolOptions, PriceTable, RunOptions, Surface, Verdict,
    completion::{CheckResult, CompletionCheck},
};
use agentline_core::Phase;
use agentline_mock::gemini::{GeminiStep, Script};
use agentline_tests::{TestStage, needs_real_gemini};
use std::time::Duration;

/// Warm agents make all of these runs.
#[tokio::test]
async fn checks_reprompt_the_agent_within_rounds_and_budgets() {
    needs_real_gemini!();
    let (touch, args) = command("touch report");
    let stage = stage([
        (
            "report is missing",
            Script::new([GeminiStep::call(touch, args), GeminiStep::text("Now it is there.")]),
        ),
        ("", Script::always(GeminiStep::text("I am done."))),
    ]);
    let pool = Pool::new(stage.agentline(), PoolOptions::default());
    check_function(&stage, &pool).await;
    check_command_and_limits(&stage, &pool).await;
    // The model and a turn limit are also settings of the agent, so those runs have their own processes.
    assert_eq!(pool.status().started, 3, "{:?}", pool.status());
    pool.close().await;
}

/// The check is a function.
async fn check_function(stage: &TestStage, pool: &Pool) {
    let checker = CompletionCheck::new(|input| async move {
        match input.workspace.join("report").exists() {
            true => CheckResult::Done,
            false => CheckResult::Continue("the report is missing".into()),
        }
    });
    let mut request = stage.request("go").surface(Surface::Acp);
    // With the default model, the agent names the model of the first request only.
    request.model = None;
    let run = pool.run_with(request, RunOptions::new().until(checker)).await.unwrap();
    let result = RunRecord::of(run).await;
    assert_eq!(
        (result.outcome.verdict, result.outcome.text.as_str()),
        (Verdict::Done, "Now it is there."),
        "{}",
        result.shown()
    );
    assert_eq!((result.outcome.turns, result.outcome.tool_calls), (3, 1), "{}", result.shown());
    assert_eq!(result.warnings(), ["round"], "{}", result.shown());
    // All rounds are one run: three requests of 100, 20 and 5 tokens.
    let usage = &result.outcome.usage;
    assert_eq!(usage.tokens.total, Some(375), "{}", result.shown());
    let (model, used) = usage.by_model.first_key_value().unwrap();
    assert_eq!((usage.by_model.len(), used.total), (1, Some(375)), "{}", result.shown());
    let price = PriceTable::built_in().of(model).unwrap();
    // 30 of the 100 tokens of each prompt were cached.
    let cached = price.cached.unwrap_or(price.input);
    let expected = 3.0 * (70.0 * price.input + 30.0 * cached + 25.0 * price.output) / 1e6;
    let cost = result.outcome.cost_usd.unwrap();
    assert!((cost - expected).abs() < 1e-8, "{cost} is not {expected}: {}", result.shown());
}

/// The error of a limit, and how to set it.
type LimitCase = (FailureKind, fn(&mut Limits));

/// The check is a command, which never passes.
async fn check_command_and_limits(stage: &TestStage, pool: &Pool) {
    let before_all = stage.model.requests_to_main().len();
    // The agent is not idle while the check runs.
    let check = "sleep 2.5; echo two tests failed; exit 3";
    let request = stage.request("go").surface(Surface::Acp);
    let limited = request.clone().until(check).max_rounds(2).idle_timeout(Duration::from_secs(2));
    let result = RunRecord::of(pool.run(limited).await.unwrap()).await;
    let error = result.outcome.error.as_ref().unwrap_or_else(|| panic!("{}", result.shown()));
    assert_eq!(result.outcome.verdict, Verdict::LimitReached, "{}", result.shown());
    assert_eq!((error.kind, error.phase), (FailureKind::MaxRounds, Phase::Budget), "{}", result.shown());
    assert!(error.message.contains("still fails after round 2"), "{}", error.message);
    assert!(error.message.contains("two tests failed"), "{}", error.message);
    let model_requests = stage.model.requests_to_main().split_off(before_all);
    assert_eq!((model_requests.len(), result.outcome.turns), (3, 3), "{}", result.shown());
    assert!(model_requests[2].prompt().contains("two tests failed"), "{}", model_requests[2].prompt());

    let cases: [LimitCase; 3] = [
        (FailureKind::MaxTurns, |limits| limits.max_turns = Some(3)),
        (FailureKind::MaxTokens, |limits| limits.max_tokens = Some(300)),
        // Each request costs 0.0000844 dollars.
        (FailureKind::MaxCost, |limits| limits.max_cost = Some(0.0002)),
    ];
    for (kind, limit) in cases {
        let before = stage.model.requests_to_main().len();
        let mut request = request.clone().until("false");
        limit(&mut request.limits);
        let result = RunRecord::of(pool.run(request).await.unwrap()).await;
        let error = result.outcome.error.as_ref().unwrap_or_else(|| panic!("{}", result.shown()));
        assert_eq!(
            (result.outcome.verdict, error.phase),
            (Verdict::LimitReached, Phase::Budget),
            "{}",
            result.shown()
        );
        assert_eq!(error.kind, kind, "{}", result.shown());
        assert!(stage.model.requests_to_main().len() - before <= 4, "{}", result.shown());
    }
}
