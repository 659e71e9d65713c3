//! Checks with the real program the behavior that the adapter's documentation leaves open.

#![expect(clippy::unwrap_used, reason = "test helpers may panic")]

use crate::agents::acp_gemini::harness::{
    SETTINGS_WITHOUT_BYPASS, calling, command, in_mode, send_prompt, stage,
};
use agentline::{Event, FailureKind, PermissionMode as Mode, RunRequest, Session, Verdict};
use agentline_core::{ModelValidation, Phase};
use agentline_mock::gemini::{GeminiStep, Script};
use agentline_tests::{TestStage, needs_real_gemini};
use std::time::Duration;

/// Returns a request for a model.
fn for_model(stage: &TestStage, model: &str, validation: ModelValidation) -> RunRequest {
    stage.request("").model(model).model_validation(validation)
}

#[tokio::test]
async fn models_modes_and_stop_reasons() {
    needs_real_gemini!();
    let stage = stage([
        ("unknown", Script::new([GeminiStep::unknown_model()])),
        ("empty", Script::always(GeminiStep::empty())),
        ("blocked", Script::always(GeminiStep::blocked())),
        ("cut", Script::new([GeminiStep::text("half a sen").finish("MAX_TOKENS")])),
        ("", Script::always(GeminiStep::text("ok"))),
    ]);
    let request = for_model(&stage, "gemini-2.5-pro", ModelValidation::Strict).permission_mode(Mode::Plan);
    let session = stage.agentline().session(request).await.unwrap();
    check_modes_and_stop_reasons(&stage, &session).await;
    check_models(&stage, &session).await;
    session.close().await;
}

/// Invalid models are accepted, and ids are plain names.
async fn check_models(stage: &TestStage, session: &Session) {
    use ModelValidation::{Strict, Warn};
    let result = send_prompt(session, for_model(stage, "gemini-2.5-pro", Strict), "listed").await;
    assert_eq!((result.outcome.verdict, result.warnings()), (Verdict::Done, vec![]), "{}", result.shown());
    assert_eq!(result.outcome.model.as_deref(), Some("gemini-2.5-pro"));

    // The agent accepts any text as a model, and runs models that it does not list. It is therefore a warning with the
    // list.
    let result = send_prompt(session, for_model(stage, "gemini-2.5-prp", Warn), "misspelt").await;
    assert_eq!(
        (result.outcome.verdict, result.warnings()),
        (Verdict::Done, vec!["unknown_model"]),
        "{}",
        result.shown()
    );
    let warning = &result.outcome.warnings[0].message;
    for expected in ["did you mean `gemini-2.5-pro`?", "gemini-3", "auto"] {
        assert!(warning.contains(expected), "{expected}: {warning}");
    }
    assert!(!warning.contains("models/"), "{warning}");
    assert_eq!(stage.model.requests_to_main().pop().unwrap().model, "gemini-2.5-prp");

    // A model that the service does not know fails at the prompt.
    let result = send_prompt(session, for_model(stage, "nonsense", Warn), "unknown").await;
    let error = result.outcome.error.as_ref().unwrap();
    assert_eq!((error.kind, error.phase), (FailureKind::UnknownModel, Phase::Request), "{}", result.shown());

    let before = stage.model.requests_to_main().len();
    let result = send_prompt(session, for_model(stage, "gemini-2.5-prp", Strict), "strict").await;
    let error = result.outcome.error.as_ref().unwrap();
    assert_eq!((error.kind, error.phase), (FailureKind::UnknownModel, Phase::Request), "{}", result.shown());
    assert!(error.hint.as_ref().unwrap().contains("gemini-2.5-pro"), "{error:?}");
    assert_eq!(stage.model.requests_to_main().len(), before, "no request was sent");
}

async fn check_modes_and_stop_reasons(stage: &TestStage, session: &Session) {
    let in_agents_mode = |id: &str| in_mode(stage, Mode::Default).mode_id(id);
    for id in ["default", "autoEdit", "yolo", "plan"] {
        let result = send_prompt(session, in_agents_mode(id), "go").await;
        assert_eq!(
            (result.outcome.verdict, result.outcome.text.as_str()),
            (Verdict::Done, "ok"),
            "{}",
            result.shown()
        );
        assert_eq!(result.outcome.stop_reason.as_deref(), Some("end_turn"));
        assert!(!result.warnings().contains(&"mode_not_set"), "{id}: {}", result.shown());
        let modes: Vec<&str> = result
            .records
            .iter()
            .filter_map(|r| if let Event::Mode { mode } = &r.event { Some(mode.as_str()) } else { None })
            .collect();
        // The session started in its opening mode, `plan`.
        assert_eq!(modes, [id], "{}", result.shown());
    }
    // This spelling is valid for headless runs, but it is not an ACP mode.
    let result = send_prompt(session, in_agents_mode("auto_edit"), "go").await;
    let warning = result.outcome.warnings.iter().find(|w| w.code == "mode_not_set");
    let message = &warning.unwrap_or_else(|| panic!("{}", result.shown())).message;
    assert!(message.contains("default, autoEdit, yolo, plan"), "{message}");

    for (prompt, verdict) in [("empty", Verdict::Empty), ("blocked", Verdict::Empty)] {
        let result = send_prompt(session, in_mode(stage, Mode::Default), prompt).await;
        // The agent ends such a turn like any other.
        let found = (result.outcome.verdict, result.outcome.stop_reason.as_deref());
        assert_eq!(found, (verdict, Some("end_turn")), "{prompt}: {}", result.shown());
    }
    let result = send_prompt(session, in_mode(stage, Mode::Default), "cut").await;
    assert_eq!(result.outcome.stop_reason.as_deref(), Some("end_turn"), "{}", result.shown());
}

/// The user's settings forbid the bypass mode, which matters to no other mode; `permissions` shows that they are
/// respected.
#[tokio::test]
async fn no_update_follows_the_answer() {
    needs_real_gemini!();
    const WATCHED: Duration = Duration::from_millis(1500);
    let stage = stage([
        ("talk", Script::new([GeminiStep::thought("Hm.").and_text("a").and_text("b").chunk_delay(30)])),
        ("work", calling([command("echo out; echo err >&2"), command("touch made")])),
        ("broken", Script::always(GeminiStep::invalid_key())),
        ("hang", Script::new([GeminiStep::hang()])),
    ]);
    stage.settings(SETTINGS_WITHOUT_BYPASS);
    let request = || in_mode(&stage, Mode::Auto).quiet_period(Duration::ZERO);
    let session = stage.agentline().session(request()).await.unwrap();
    // Updates between two prompts are counted and reported by the second.
    for prompt in ["talk", "work", "broken", "hang", "talk"] {
        let request = request().timeout(Duration::from_secs(if prompt == "hang" { 1 } else { 60 }));
        let result = send_prompt(&session, request, prompt).await;
        assert!(!result.warnings().contains(&"late_update"), "before {prompt}: {}", result.shown());
        let verdict = match prompt {
            "broken" => Verdict::NotAuthenticated,
            "hang" => Verdict::TimedOut,
            _ => Verdict::Done,
        };
        assert_eq!(result.outcome.verdict, verdict, "{prompt}: {}", result.shown());
        tokio::time::sleep(WATCHED).await;
    }
    session.close().await;
}
