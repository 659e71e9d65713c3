//! Tests the ways in which the real Gemini CLI can end, and the verdict of each. Variations run on its tapes.

use agentline::{Event, Record};
use agentline::{FailureKind, Outcome, RunRequest, Surface, Trust, Verdict};
use agentline_core::Phase;
use agentline_mock::gemini::{GeminiStep, Script, refused_url};
use agentline_tests::{
    MODEL, TestStage, needs_real_gemini, real_gemini, shown, survivors,
    tapes::{TapedRun, replay, replay_on},
};
use serde_json::{Value, json};
use std::{
    process::{Command, Stdio},
    time::Duration,
};

/// Returns a short run: every timeout is far below that of the test runner.
fn default_request(stage: &TestStage) -> RunRequest {
    stage.request("Say hello").timeout(Duration::from_secs(60)).idle_timeout(Duration::from_secs(45))
}

/// Asserts everything that the outcome of a failed run must contain.
#[track_caller]
fn assert_failed(
    outcome: &Outcome,
    verdict: Verdict,
    kind: FailureKind,
    phase: Phase,
    exit: impl Into<Option<i32>>,
) {
    let all = shown(outcome);
    assert_eq!(outcome.verdict, verdict, "{all}");
    let error = outcome.error.as_ref().unwrap_or_else(|| panic!("no error: {all}"));
    assert_eq!((error.kind, error.phase), (kind, phase), "{all}");
    assert!(error.hint.as_ref().is_some_and(|h| !h.is_empty()), "no hint: {all}");
    assert!(!error.message.is_empty(), "{all}");
    assert_eq!(outcome.agent_exit_code, exit.into(), "{all}");
    assert!(survivors(&outcome.run_id).is_empty(), "a process is still running");
}

/// A tape and the outcome of a failed run: verdict, kind, phase and exit code of the agent.
type FailedTape = (&'static str, Verdict, FailureKind, Phase, i32);

/// Replays tapes of failed runs, and returns them in order.
#[track_caller]
fn failed<const N: usize>(tapes: [FailedTape; N]) -> [TapedRun; N] {
    tapes.map(|(tape, verdict, kind, phase, exit)| {
        let taped = replay(tape);
        assert_failed(&taped.run.outcome, verdict, kind, phase, exit);
        taped
    })
}

/// `gemini_keys` shows the same with the real agent.
#[test]
fn unavailable_tools_are_denials() {
    let taped = replay("unavailable_tools.json");
    let (outcome, all) = (&taped.run.outcome, taped.run.shown());
    assert_eq!((outcome.verdict, outcome.error.is_none()), (Verdict::DoneWithDenials, true), "{all}");
    let denied: Vec<_> =
        outcome.denied.iter().map(|d| (d.tool.as_str(), d.native_tool.as_str(), d.reason.as_str())).collect();
    // A tool that does not exist was not denied; the call was a mistake.
    assert_eq!(
        denied,
        [("Write", "write_file", "not_offered"), ("Bash", "run_shell_command", "not_offered")],
        "{all}"
    );
    assert!(outcome.files.is_empty() && taped.facts.files.is_empty(), "{all}");
    assert_eq!(outcome.text, "I could not.", "{all}");
}

#[test]
fn plan_mode_changes_nothing() {
    let taped = replay("plan_mode.stream-json");
    let (outcome, all) = (&taped.run.outcome, taped.run.shown());
    assert_eq!(outcome.verdict, Verdict::DoneWithDenials, "{all}");
    let denied: Vec<_> = outcome.denied.iter().map(|d| (d.tool.as_str(), d.reason.as_str())).collect();
    assert_eq!(denied, [("Write", "policy"), ("Bash", "not_offered")], "{all}");
    assert!(outcome.files.is_empty() && taped.facts.files.is_empty(), "{all}");
}

/// `gemini_changes` shows the same with the real agent.
#[test]
fn path_outside_the_workspace_is_denied() {
    let outcome = replay("path_outside.json").run.outcome;
    let all = shown(&outcome);
    assert_eq!(outcome.verdict, Verdict::DoneWithDenials, "{all}");
    let denied: Vec<&str> = outcome.denied.iter().map(|d| d.reason.as_str()).collect();
    assert_eq!(denied, ["outside_workspace"], "{all}");
    assert!(outcome.files.is_empty(), "{all}");
}

#[test]
fn untrusted_directory_is_reported() {
    needs_real_gemini!();
    let stage = TestStage::new(Script::new([GeminiStep::text("Hello.")]));
    let live = stage.outcome(default_request(&stage).trust(Trust::No));
    assert!(stage.model.requests_to_main().is_empty());
    let taped = replay("untrusted.json");
    assert_eq!(taped.facts.model_requests, 0);
    for outcome in [&live, &taped.run.outcome] {
        assert_failed(outcome, Verdict::Untrusted, FailureKind::Untrusted, Phase::Request, 55);
        assert_eq!(outcome.cost_usd, None, "token counts are unknown");
    }
}

#[test]
fn missing_sign_in_is_reported_before_any_request() {
    needs_real_gemini!();
    let stage = TestStage::new(Script::new([GeminiStep::text("Hello.")])).env("GEMINI_API_KEY", None);
    let live = stage.outcome(default_request(&stage));
    for outcome in [&live, &replay("not_signed_in.json").run.outcome] {
        assert_failed(outcome, Verdict::NotAuthenticated, FailureKind::NotAuthenticated, Phase::Request, 41);
        let hint = outcome.error.as_ref().and_then(|error| error.hint.as_deref());
        assert!(hint.is_some_and(|hint| hint.contains("GEMINI_API_KEY")), "{}", shown(outcome));
    }
}

/// `acp_gemini::observed_behaviour` shows a rejected key with the real agent.
#[test]
fn rejected_key_is_not_authenticated() {
    let (verdict, kind, phase) = (Verdict::NotAuthenticated, FailureKind::NotAuthenticated, Phase::Request);
    let [.., denied] = failed([
        ("invalid_key.stream-json", verdict, kind, phase, 144),
        ("unauthenticated.json", verdict, kind, phase, 145),
        ("permission_denied.stream-json", verdict, kind, phase, 147),
    ]);
    assert!(!denied.run.outcome.error.unwrap().retryable);
}

#[test]
fn unknown_model_is_named_in_the_error() {
    let [taped] = failed([(
        "unknown_model.stream-json",
        Verdict::Failed,
        FailureKind::UnknownModel,
        Phase::Request,
        1,
    )]);
    let error = taped.run.outcome.error.as_ref().unwrap();
    assert!(
        error.message.contains("gemini-0-nope") && error.hint.as_ref().unwrap().contains("--model"),
        "{error:?}"
    );
}

#[test]
fn exhausted_quota_fails_immediately() {
    let (verdict, kind, phase) = (Verdict::RateLimited, FailureKind::RateLimited, Phase::Response);
    let taped = failed([
        // There is no wait until the next day.
        ("daily_quota.stream-json", verdict, kind, phase, 173),
        ("rate_limited_for_minutes.json", verdict, kind, phase, 173),
    ]);
    for (taped, helps) in taped.iter().zip([false, true]) {
        assert_eq!(taped.run.outcome.error.as_ref().unwrap().retryable, helps, "{}", taped.run.shown());
        assert_eq!(taped.facts.model_requests, 1);
    }
}

fn warnings(records: &[Record], expected_code: &str) -> usize {
    records
        .iter()
        .filter(|r| matches!(&r.event, Event::Warning { code, .. } if code == expected_code))
        .count()
}

/// The conformance kit shows on the real agent that a request that fails only once does not fail the run.
#[test]
fn persistent_rate_limits_are_reported_live_and_end_as_rate_limited() {
    let (verdict, kind, phase) = (Verdict::RateLimited, FailureKind::RateLimited, Phase::Response);
    for taped in failed([
        ("rate_limited.stream-json", verdict, kind, phase, 173),
        ("rate_limited_for_a_second.json", verdict, kind, phase, 173),
        ("overloaded.stream-json", verdict, kind, phase, 247),
    ]) {
        let (records, outcome) = (&taped.run.records, &taped.run.outcome);
        assert!(warnings(records, "rate_limited") >= 1, "{records:?}");
        let warned_at = records
            .iter()
            .find(|r| matches!(&r.event, Event::Warning { code, .. } if code == "rate_limited"))
            .unwrap()
            .at_ms;
        assert!(warned_at + 1000 < outcome.duration_ms, "reported at {warned_at} of {}", outcome.duration_ms);
    }
}

#[test]
fn agent_retries_are_limited_by_the_retry_patience() {
    needs_real_gemini!();
    let stage = TestStage::new(Script::always(GeminiStep::rate_limited(Some(30))));
    let outcome = stage.outcome(default_request(&stage).retry_patience(Duration::from_secs(1)));
    let all = shown(&outcome);
    // Without options, a run has one attempt.
    assert_eq!((outcome.verdict, outcome.attempts), (Verdict::RateLimited, None), "{all}");
    let error = outcome.error.as_ref().unwrap();
    assert_eq!(error.kind, FailureKind::RateLimited, "{all}");
    assert!(error.message.contains("retry patience of 1 s"), "{all}");
    assert!(outcome.duration_ms < 25_000, "{all}");
    assert!(survivors(&outcome.run_id).is_empty());
}

/// The first attempt reads a file and is then refused for too many requests, the second because of a quota.
#[test]
fn refused_run_is_retried_and_then_uses_another_model() {
    needs_real_gemini!();
    let other = "gemini-2.5-pro";
    let stage = TestStage::new(Script::new([
        GeminiStep::call("read_file", json!({"file_path": "a.txt"})),
        GeminiStep::rate_limited(None),
        GeminiStep::daily_quota(),
        GeminiStep::text("At last."),
    ]));
    stage.file("a.txt", "a\n");
    let printed = Command::new(env!("CARGO_BIN_EXE_agentline-under-test"))
        .args(["run", "-m", MODEL, "-o", "events", "Read a.txt"])
        .args(["--retries", "1", "--fallback-model", other])
        .current_dir(stage.workspace())
        .env_clear()
        .envs(stage.variables())
        .env("GEMINI_CLI_PATH", real_gemini().expect("real agents are enabled").path)
        // The agent's own retries end here.
        .env("AGENTLINE_RETRY_PATIENCE", "1")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let lines = String::from_utf8_lossy(&printed.stdout);
    let events: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let retries: Vec<&Value> = events.iter().filter(|event| event["type"] == "retry").collect();
    let [waits, falls_back] = retries[..] else { panic!("{printed:?}") };
    assert_eq!((&waits["attempt"], &waits["model"]), (&json!(2), &Value::Null), "{printed:?}");
    assert!(waits["wait_ms"].as_u64().is_some_and(|wait| (1000..=1250).contains(&wait)), "{waits}");
    assert_eq!(
        (&falls_back["attempt"], &falls_back["wait_ms"], &falls_back["model"]),
        (&json!(3), &json!(0), &json!(other)),
        "{printed:?}"
    );
    let outcome = &events.last().unwrap()["outcome"];
    assert_eq!(printed.status.code(), Some(0), "{printed:?}");
    let found = ["verdict", "text", "attempts", "turns", "tool_calls"].map(|key| &outcome[key]);
    assert_eq!(found, [&json!("done"), &json!("At last."), &json!(3), &json!(2), &json!(1)], "{outcome}");
    // The first attempt and the last one have 125 tokens each.
    let usage = &outcome["usage"];
    assert_eq!((&usage["total_tokens"], &usage["requests"]), (&json!(250), &json!(2)), "{outcome}");
    let models: Vec<&String> = usage["by_model"].as_object().unwrap().keys().collect();
    assert_eq!(models, [MODEL, other], "{outcome}");
}

#[test]
fn failing_service_is_an_api_error() {
    let (verdict, kind, phase) = (Verdict::Failed, FailureKind::ApiError, Phase::Response);
    let [internal, _, _, refused] = failed([
        ("internal_error.stream-json", verdict, kind, phase, 244),
        ("bad_gateway.json", verdict, kind, phase, 246),
        ("invalid_stream.stream-json", verdict, kind, phase, 1),
        ("invalid_argument.json", verdict, kind, phase, 144),
    ]);
    assert!(internal.run.outcome.error.unwrap().retryable);
    // The same request is refused again.
    assert!(!refused.run.outcome.error.as_ref().unwrap().retryable, "{}", refused.run.shown());
}

#[test]
fn unreachable_service_is_a_network_error() {
    needs_real_gemini!();
    let stage =
        TestStage::new(Script::default()).env("GOOGLE_GEMINI_BASE_URL", Some(&refused_url().unwrap()));
    let outcome = stage.outcome(default_request(&stage));
    let (verdict, kind, phase) = (Verdict::Failed, FailureKind::Network, Phase::Response);
    assert_failed(&outcome, verdict, kind, phase, 1);
    let [_, dropped] = failed([
        ("dropped_connection.json", verdict, kind, phase, 1),
        ("dropped_midway.stream-json", verdict, kind, phase, 1),
    ]);
    assert_eq!(dropped.run.outcome.text, "The answer ", "received text is kept: {}", dropped.run.shown());
}

#[test]
fn answer_without_text_is_an_empty_response() {
    let (verdict, phase) = (Verdict::Empty, Phase::Response);
    for taped in failed([
        ("empty.stream-json", verdict, FailureKind::Empty, phase, 0),
        ("blocked.json", verdict, FailureKind::Blocked, phase, 0),
        ("unsafe.stream-json", verdict, FailureKind::Blocked, phase, 0),
        ("only_thoughts.json", verdict, FailureKind::Empty, phase, 0),
        ("empty_at_the_token_limit.stream-json", verdict, FailureKind::Empty, phase, 0),
    ]) {
        let outcome = &taped.run.outcome;
        assert!(
            outcome.text.is_empty() && outcome.usage.tokens.total.is_some_and(|t| t > 0),
            "{}",
            taped.run.shown()
        );
    }
}

#[test]
fn interrupted_answer_is_not_an_empty_response() {
    for surface in [Surface::StreamJson, Surface::Json] {
        let outcome = replay_on("interrupted", surface).run.outcome;
        assert_failed(&outcome, Verdict::Failed, FailureKind::ApiError, Phase::Response, 0);
        assert!(outcome.text.starts_with("The answer"), "{}", shown(&outcome));
    }
}

#[test]
fn truncated_answer_is_done_without_a_stop_reason() {
    let outcome = replay("truncated.stream-json").run.outcome;
    assert_eq!(
        (outcome.verdict, outcome.stop_reason.as_deref()),
        (Verdict::Done, None),
        "{}",
        shown(&outcome)
    );
    assert_eq!(outcome.text, "The beginning");
}

/// The real agent was recorded with a disk that is full for one file.
#[test]
fn full_disk_is_reported_with_the_agents_reason() {
    for surface in [Surface::StreamJson, Surface::Json] {
        let outcome = replay_on("full_disk", surface).run.outcome;
        assert_failed(&outcome, Verdict::Failed, FailureKind::Tool, Phase::Tool, 54);
        let error = outcome.error.as_ref().unwrap_or_else(|| panic!("{}", shown(&outcome)));
        assert!(error.message.contains("No space left on device"), "{surface}: {}", error.message);
        assert!(error.message.ends_with("(exit code 54)"), "{surface}: {}", error.message);
        assert!(error.agent_type.is_some(), "{surface}: {error:?}");
    }
}

#[test]
fn vertex_ai_without_credentials_is_not_authenticated() {
    for surface in [Surface::StreamJson, Surface::Json, Surface::Acp] {
        let outcome = replay_on("vertex_ai_without_credentials", surface).run.outcome;
        let all = shown(&outcome);
        let error = outcome.error.as_ref().unwrap_or_else(|| panic!("{all}"));
        assert_eq!(outcome.verdict, Verdict::NotAuthenticated, "{all}");
        assert_eq!((error.kind, error.retryable), (FailureKind::NotAuthenticated, false), "{all}");
        let hint = error.hint.as_deref().unwrap_or_default();
        assert!(hint.contains("gcloud auth application-default login"), "{all}");
    }
}

#[test]
fn loop_is_a_failure_despite_reported_success() {
    for (surface, exit) in [(Surface::StreamJson, Some(0)), (Surface::Json, Some(0)), (Surface::Acp, None)] {
        let outcome = replay_on("loop", surface).run.outcome;
        assert_failed(&outcome, Verdict::Failed, FailureKind::Loop, Phase::Response, exit);
        assert!(outcome.tool_calls >= 3, "{}", shown(&outcome));
    }
}

#[test]
fn turn_limit_of_the_agent_is_reported_as_a_limit() {
    for surface in [Surface::StreamJson, Surface::Json] {
        let outcome = replay_on("agent_turns", surface).run.outcome;
        assert_failed(&outcome, Verdict::LimitReached, FailureKind::AgentTurns, Phase::Budget, 53);
        assert_eq!(outcome.files.len(), 2, "completed work is reported: {}", shown(&outcome));
    }
}

#[test]
fn prompt_over_the_context_window_is_reported_as_unsent() {
    for surface in [Surface::StreamJson, Surface::Json] {
        let taped = replay_on("context_overflow", surface);
        assert_eq!(taped.facts.model_requests, 0, "{}", taped.run.shown());
        let outcome = &taped.run.outcome;
        assert_failed(outcome, Verdict::Failed, FailureKind::ContextOverflow, Phase::Request, 0);
    }
}

#[test]
fn invalid_user_settings_are_named() {
    let [taped] = failed([(
        "invalid_settings.stream-json",
        Verdict::Failed,
        FailureKind::Settings,
        Phase::Request,
        52,
    )]);
    assert!(taped.run.outcome.stderr_tail.contains("settings.json"), "{}", taped.run.shown());
}
