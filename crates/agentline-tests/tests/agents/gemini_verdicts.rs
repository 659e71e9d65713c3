//! Tests the ways in which the real Gemini CLI can end, and the verdict of each.

use agentline::{Event, Record};
use agentline::{FailureKind, Outcome, PermissionMode, RunRequest, Surface, ToolStatus, Trust, Verdict};
use agentline_core::Phase;
use agentline_mock::gemini::{GeminiStep, Script, refused_url};
use agentline_tests::{TestStage, needs_real_gemini, shown, survivors};
use serde_json::json;
use std::time::Duration;

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

fn service_error(step: GeminiStep, surface: Surface) -> Outcome {
    let stage = TestStage::new(Script::always(step));
    stage.outcome(default_request(&stage).surface(surface))
}

#[test]
fn answer_is_done_with_a_complete_outcome() {
    needs_real_gemini!();
    let stage = TestStage::new(Script::new([GeminiStep::text("Hello.")]));
    let (records, outcome) = stage.play(default_request(&stage).name("greeting"));
    let all = shown(&outcome);
    assert_eq!(
        (outcome.verdict, outcome.error.is_none(), outcome.agent_exit_code),
        (Verdict::Done, true, Some(0)),
        "{all}"
    );
    assert_eq!((outcome.text.as_str(), outcome.turns, outcome.tool_calls), ("Hello.", 1, 0), "{all}");
    assert_eq!(
        (outcome.name.as_deref(), outcome.agent_version.as_deref()),
        (Some("greeting"), Some("0.61.0")),
        "{all}"
    );
    assert!(outcome.files.is_empty() && outcome.denied.is_empty() && outcome.warnings.is_empty(), "{all}");
    assert_eq!((outcome.unreadable_lines, outcome.stop_reason.as_deref()), (0, None), "{all}");
    assert!(outcome.first_event_ms.is_some_and(|first| first <= outcome.duration_ms), "{all}");
    assert!(outcome.session_id.is_some(), "{all}");
    let Event::Started(started) = &records[0].event else { panic!("{:?}", records[0]) };
    assert_eq!((&started.run_id, &started.session_id), (&outcome.run_id, &outcome.session_id));
}

#[test]
fn unavailable_tools_are_denials() {
    needs_real_gemini!();
    let script = Script::new([
        GeminiStep::calls([
            ("write_file", json!({"file_path": "a.txt", "content": "a"})),
            ("run_shell_command", json!({"command": "touch b.txt"})),
            ("no_such_tool", json!({})),
        ]),
        GeminiStep::text("I could not."),
    ]);
    for surface in [Surface::StreamJson, Surface::Json] {
        let stage = TestStage::new(script.clone());
        let outcome =
            stage.outcome(default_request(&stage).surface(surface).permission_mode(PermissionMode::Default));
        let all = shown(&outcome);
        assert_eq!((outcome.verdict, outcome.error.is_none()), (Verdict::DoneWithDenials, true), "{all}");
        let denied: Vec<_> = outcome
            .denied
            .iter()
            .map(|d| (d.tool.as_str(), d.native_tool.as_str(), d.reason.as_str()))
            .collect();
        // A tool that does not exist was not denied; the call was a mistake.
        assert_eq!(
            denied,
            [("Write", "write_file", "not_offered"), ("Bash", "run_shell_command", "not_offered")],
            "{all}"
        );
        assert!(outcome.files.is_empty() && stage.read("a.txt").is_none(), "{all}");
        assert_eq!(outcome.text, "I could not.", "{all}");
    }
}

#[test]
fn denial_names_the_deny_rule() {
    needs_real_gemini!();
    let stage = TestStage::new(Script::new([
        GeminiStep::call("run_shell_command", json!({"command": "rm -rf keep.txt"})),
        GeminiStep::call("write_file", json!({"file_path": "a.txt", "content": "a\n"})),
        GeminiStep::text("Partly."),
    ]));
    stage.file("keep.txt", "kept");
    let (records, outcome) = stage.play(default_request(&stage).deny("Bash(rm *)"));
    let all = shown(&outcome);
    assert_eq!(outcome.verdict, Verdict::DoneWithDenials, "{all}");
    let denied: Vec<_> =
        outcome.denied.iter().map(|d| (d.tool.as_str(), d.reason.as_str(), d.rule.as_deref())).collect();
    assert_eq!(denied, [("Bash", "rule", Some("Bash(rm *)"))], "{all}");
    let statuses: Vec<_> = records
        .iter()
        .filter_map(|r| match &r.event {
            Event::ToolResult { status, .. } => Some(*status),
            _ => None,
        })
        .collect();
    assert_eq!(statuses, [ToolStatus::Denied, ToolStatus::Ok]);
    assert_eq!(
        (stage.read("keep.txt").as_deref(), stage.read("a.txt").as_deref()),
        (Some("kept"), Some("a\n"))
    );
}

#[test]
fn plan_mode_changes_nothing() {
    needs_real_gemini!();
    let stage = TestStage::new(Script::new([
        GeminiStep::calls([
            ("write_file", json!({"file_path": "a.txt", "content": "a"})),
            ("run_shell_command", json!({"command": "touch b.txt"})),
        ]),
        GeminiStep::text("The plan."),
    ]));
    let outcome = stage.outcome(default_request(&stage).permission_mode(PermissionMode::Plan));
    let all = shown(&outcome);
    assert_eq!(outcome.verdict, Verdict::DoneWithDenials, "{all}");
    let denied: Vec<_> = outcome.denied.iter().map(|d| (d.tool.as_str(), d.reason.as_str())).collect();
    assert_eq!(denied, [("Write", "policy"), ("Bash", "not_offered")], "{all}");
    assert!(outcome.files.is_empty() && stage.read("b.txt").is_none(), "{all}");
}

#[test]
fn path_outside_the_workspace_is_denied() {
    needs_real_gemini!();
    for surface in [Surface::StreamJson, Surface::Json] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out.txt");
        let stage = TestStage::new(Script::new([
            GeminiStep::call("write_file", json!({"file_path": path, "content": "out"})),
            GeminiStep::text("Not there."),
        ]));
        let outcome = stage.outcome(default_request(&stage).surface(surface));
        let all = shown(&outcome);
        assert_eq!(outcome.verdict, Verdict::DoneWithDenials, "{all}");
        assert_eq!(
            (outcome.denied.len(), outcome.denied[0].reason.as_str()),
            (1, "outside_workspace"),
            "{all}"
        );
        assert!(outcome.files.is_empty() && !path.exists(), "{all}");
    }
}

#[test]
fn untrusted_directory_is_reported() {
    needs_real_gemini!();
    for surface in [Surface::StreamJson, Surface::Json] {
        let stage = TestStage::new(Script::new([GeminiStep::text("Hello.")]));
        let outcome = stage.outcome(default_request(&stage).surface(surface).trust(Trust::No));
        assert_failed(&outcome, Verdict::Untrusted, FailureKind::Untrusted, Phase::Request, 55);
        assert!(stage.model.requests_to_main().is_empty());
        assert_eq!(outcome.cost_usd, None, "token counts are unknown");
    }
}

#[test]
fn missing_sign_in_is_reported_before_any_request() {
    needs_real_gemini!();
    for surface in [Surface::StreamJson, Surface::Json] {
        let stage = TestStage::new(Script::new([GeminiStep::text("Hello.")])).env("GEMINI_API_KEY", None);
        let outcome = stage.outcome(default_request(&stage).surface(surface));
        assert_failed(&outcome, Verdict::NotAuthenticated, FailureKind::NotAuthenticated, Phase::Request, 41);
        assert!(
            outcome.error.as_ref().unwrap().hint.as_ref().unwrap().contains("GEMINI_API_KEY"),
            "{}",
            shown(&outcome)
        );
    }
}

#[test]
fn rejected_key_is_not_authenticated() {
    needs_real_gemini!();
    let outcome = service_error(GeminiStep::invalid_key(), Surface::StreamJson);
    assert_failed(&outcome, Verdict::NotAuthenticated, FailureKind::NotAuthenticated, Phase::Request, 144);
    let step = GeminiStep::api_error(401, "UNAUTHENTICATED", "Request had invalid credentials.", json!(null));
    assert_failed(
        &service_error(step, Surface::Json),
        Verdict::NotAuthenticated,
        FailureKind::NotAuthenticated,
        Phase::Request,
        145,
    );
    let step =
        GeminiStep::api_error(403, "PERMISSION_DENIED", "The caller does not have permission", json!(null));
    let outcome = service_error(step, Surface::StreamJson);
    assert_failed(&outcome, Verdict::NotAuthenticated, FailureKind::NotAuthenticated, Phase::Request, 147);
    assert!(!outcome.error.unwrap().retryable);
}

#[test]
fn unknown_model_is_named_in_the_error() {
    needs_real_gemini!();
    let stage = TestStage::new(Script::always(GeminiStep::unknown_model()));
    let outcome = stage.outcome(default_request(&stage).model("gemini-0-nope"));
    assert_failed(&outcome, Verdict::Failed, FailureKind::UnknownModel, Phase::Request, 1);
    let error = outcome.error.as_ref().unwrap();
    assert!(
        error.message.contains("gemini-0-nope") && error.hint.as_ref().unwrap().contains("--model"),
        "{error:?}"
    );
}

#[test]
fn exhausted_quota_fails_immediately() {
    needs_real_gemini!();
    for (step, surface, helps) in [
        // There is no wait until the next day.
        (GeminiStep::daily_quota(), Surface::StreamJson, false),
        (GeminiStep::rate_limited(Some(400)), Surface::Json, true),
    ] {
        let stage = TestStage::new(Script::always(step));
        let outcome = stage.outcome(default_request(&stage).surface(surface));
        assert_failed(&outcome, Verdict::RateLimited, FailureKind::RateLimited, Phase::Response, 173);
        assert_eq!(outcome.error.as_ref().unwrap().retryable, helps, "{}", shown(&outcome));
        assert_eq!(stage.model.requests_to_main().len(), 1);
    }
}

fn warnings(records: &[Record], wanted: &str) -> usize {
    records.iter().filter(|r| matches!(&r.event, Event::Warning { code, .. } if code == wanted)).count()
}

#[test]
fn persistent_rate_limits_are_reported_live_and_end_as_rate_limited() {
    needs_real_gemini!();
    let overloaded = GeminiStep::api_error(503, "UNAVAILABLE", "The model is overloaded.", json!(null));
    for (step, surface, exit) in [
        (GeminiStep::rate_limited(None), Surface::StreamJson, 173),
        (GeminiStep::rate_limited(Some(1)), Surface::Json, 173),
        (overloaded, Surface::StreamJson, 247),
    ] {
        let stage = TestStage::new(Script::always(step));
        let (records, outcome) = stage.play(default_request(&stage).surface(surface));
        assert_failed(&outcome, Verdict::RateLimited, FailureKind::RateLimited, Phase::Response, exit);
        assert!(warnings(&records, "rate_limited") >= 1, "{records:?}");
        let told_at = records
            .iter()
            .find(|r| matches!(&r.event, Event::Warning { code, .. } if code == "rate_limited"))
            .unwrap()
            .at_ms;
        assert!(told_at + 1000 < outcome.duration_ms, "reported at {told_at} of {}", outcome.duration_ms);
    }
}

#[test]
fn temporary_service_error_is_only_a_warning() {
    needs_real_gemini!();
    let stage = TestStage::new(Script::new([GeminiStep::rate_limited(None), GeminiStep::text("After all.")]));
    let (records, outcome) = stage.play(default_request(&stage));
    let all = shown(&outcome);
    assert_eq!((outcome.verdict, outcome.text.as_str()), (Verdict::Done, "After all."), "{all}");
    let warned = records
        .iter()
        .position(|r| matches!(&r.event, Event::Warning { code, .. } if code == "rate_limited"))
        .expect("a live warning");
    let text = records.iter().position(|r| matches!(r.event, Event::Text { .. })).expect("text");
    assert!(warned < text, "{records:?}");
    // The agent waits about five seconds before it retries: the warning arrived then, not at the end.
    assert!(records[warned].at_ms + 2000 < records[text].at_ms, "{records:?}");
}

#[test]
fn agent_retries_are_limited_by_the_retry_patience() {
    needs_real_gemini!();
    let stage = TestStage::new(Script::always(GeminiStep::rate_limited(Some(30))));
    let outcome = stage.outcome(default_request(&stage).retry_patience(Duration::from_secs(3)));
    let all = shown(&outcome);
    assert_eq!(outcome.verdict, Verdict::RateLimited, "{all}");
    let error = outcome.error.as_ref().unwrap();
    assert_eq!(error.kind, FailureKind::RateLimited, "{all}");
    assert!(error.message.contains("retry patience of 3 s"), "{all}");
    assert!(outcome.duration_ms < 25_000, "{all}");
    assert!(survivors(&outcome.run_id).is_empty());
}

#[test]
fn failing_service_is_an_api_error() {
    needs_real_gemini!();
    let step = GeminiStep::api_error(500, "INTERNAL", "An internal error has occurred.", json!(null));
    let outcome = service_error(step, Surface::StreamJson);
    assert_failed(&outcome, Verdict::Failed, FailureKind::ApiError, Phase::Response, 244);
    assert!(outcome.error.unwrap().retryable);
    let step = GeminiStep::http(502, "<html><body><h1>502 Bad Gateway</h1></body></html>");
    assert_failed(
        &service_error(step, Surface::Json),
        Verdict::Failed,
        FailureKind::ApiError,
        Phase::Response,
        246,
    );
    let outcome = service_error(GeminiStep::raw_sse("data: {not json\n\n"), Surface::StreamJson);
    assert_failed(&outcome, Verdict::Failed, FailureKind::ApiError, Phase::Response, 1);
    let step = GeminiStep::api_error(400, "INVALID_ARGUMENT", "No such argument.", json!(null));
    let outcome = service_error(step, Surface::Json);
    assert_failed(&outcome, Verdict::Failed, FailureKind::ApiError, Phase::Response, 144);
    assert!(
        !outcome.error.as_ref().unwrap().retryable,
        "the same request is refused again: {}",
        shown(&outcome)
    );
}

#[test]
fn unreachable_service_is_a_network_error() {
    needs_real_gemini!();
    let stage =
        TestStage::new(Script::default()).env("GOOGLE_GEMINI_BASE_URL", Some(&refused_url().unwrap()));
    let outcome = stage.outcome(default_request(&stage));
    assert_failed(&outcome, Verdict::Failed, FailureKind::Network, Phase::Response, 1);
    let outcome = service_error(GeminiStep::drop_connection(), Surface::Json);
    assert_failed(&outcome, Verdict::Failed, FailureKind::Network, Phase::Response, 1);
    let step = GeminiStep::text("The answer ").and_text("is 4.").drop_midway();
    let outcome = service_error(step, Surface::StreamJson);
    assert_failed(&outcome, Verdict::Failed, FailureKind::Network, Phase::Response, 1);
    assert_eq!(outcome.text, "The answer ", "received text is kept: {}", shown(&outcome));
}

#[test]
fn answer_without_text_is_an_empty_response() {
    needs_real_gemini!();
    let (json, stream) = (Surface::Json, Surface::StreamJson);
    for (step, surface, kind) in [
        (GeminiStep::empty(), stream, FailureKind::Empty),
        (GeminiStep::blocked(), json, FailureKind::Blocked),
        (GeminiStep::empty().finish("SAFETY"), stream, FailureKind::Blocked),
        (GeminiStep::thought("Hm."), json, FailureKind::Empty),
        (GeminiStep::empty().finish("MAX_TOKENS"), stream, FailureKind::Empty),
    ] {
        let outcome = service_error(step, surface);
        assert_failed(&outcome, Verdict::Empty, kind, Phase::Response, 0);
        assert!(
            outcome.text.is_empty() && outcome.usage.tokens.total.is_some_and(|t| t > 0),
            "{}",
            shown(&outcome)
        );
    }
}

#[test]
fn interrupted_answer_is_not_an_empty_response() {
    needs_real_gemini!();
    for surface in [Surface::StreamJson, Surface::Json] {
        let outcome = service_error(GeminiStep::text("The answer").finish(None), surface);
        assert_failed(&outcome, Verdict::Failed, FailureKind::ApiError, Phase::Response, 0);
        assert!(outcome.text.starts_with("The answer"), "{}", shown(&outcome));
    }
}

#[test]
fn truncated_answer_is_done_without_a_stop_reason() {
    needs_real_gemini!();
    let outcome = service_error(GeminiStep::text("The beginning").finish("MAX_TOKENS"), Surface::StreamJson);
    assert_eq!(
        (outcome.verdict, outcome.stop_reason.as_deref()),
        (Verdict::Done, None),
        "{}",
        shown(&outcome)
    );
    assert_eq!(outcome.text, "The beginning");
}

#[test]
fn loop_is_a_failure_despite_reported_success() {
    needs_real_gemini!();
    let step = GeminiStep::call("list_directory", json!({"dir_path": "."}));
    for surface in [Surface::StreamJson, Surface::Json] {
        let outcome = service_error(step.clone(), surface);
        assert_failed(&outcome, Verdict::Failed, FailureKind::Loop, Phase::Response, 0);
        assert!(outcome.tool_calls >= 3, "{}", shown(&outcome));
    }
}

#[test]
fn turn_limit_of_the_agent_is_reported_as_a_limit() {
    needs_real_gemini!();
    for surface in [Surface::StreamJson, Surface::Json] {
        let stage = TestStage::new(Script::new((0..5).map(|n| {
            GeminiStep::call("write_file", json!({"file_path": format!("{n}.txt"), "content": "x"}))
        })));
        stage.settings(
            r#"{"security":{"auth":{"selectedType":"gemini-api-key"}},"model":{"maxSessionTurns":2}}"#,
        );
        let outcome = stage.outcome(default_request(&stage).surface(surface));
        assert_failed(&outcome, Verdict::LimitReached, FailureKind::AgentTurns, Phase::Budget, 53);
        assert_eq!(outcome.files.len(), 2, "completed work is reported: {}", shown(&outcome));
    }
}

#[test]
fn prompt_over_the_context_window_is_reported_as_unsent() {
    needs_real_gemini!();
    for surface in [Surface::StreamJson, Surface::Json] {
        let stage = TestStage::new(Script::new([GeminiStep::text("Hello.")]));
        let mut request = default_request(&stage).surface(surface);
        request.prompt = "many words about nothing ".repeat(6_000_000 / 25);
        let outcome = stage.outcome(request);
        assert_eq!(stage.model.requests_to_main().len(), 0, "{}", shown(&outcome));
        assert_failed(&outcome, Verdict::Failed, FailureKind::ContextOverflow, Phase::Request, 0);
    }
}

#[test]
fn invalid_user_settings_are_named() {
    needs_real_gemini!();
    let stage = TestStage::new(Script::new([GeminiStep::text("Hello.")]));
    stage.settings("{ \"security\": ");
    let outcome = stage.outcome(default_request(&stage));
    assert_failed(&outcome, Verdict::Failed, FailureKind::Settings, Phase::Request, 52);
    assert!(outcome.stderr_tail.contains("settings.json"), "{}", shown(&outcome));
}
