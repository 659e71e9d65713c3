//! Checks with the real program the behavior that the adapter's documentation leaves open.

use crate::acp_gemini::harness::{RunRecord, calling, command, in_mode, send_prompt, stage};
use agentline::{Event, FailureKind, PermissionMode as Mode, RunRequest, Verdict};
use agentline_core::{ModelValidation, Phase};
use agentline_mock::gemini::{GeminiStep, Script};
use agentline_tests::{TestStage, needs_real_gemini};
use std::{fs, time::Duration};

/// Returns a request for a model.
fn for_model(stage: &TestStage, model: &str, validation: ModelValidation) -> RunRequest {
    stage.request("").model(model).model_validation(validation)
}

#[tokio::test]
async fn invalid_models_are_accepted_and_ids_are_plain_names() {
    needs_real_gemini!();
    let stage = stage([
        ("unknown", Script::new([GeminiStep::unknown_model()])),
        ("", Script::always(GeminiStep::text("ok"))),
    ]);
    use ModelValidation::{Strict, Warn};
    let session = stage.agentline().session(for_model(&stage, "gemini-2.5-pro", Strict)).await.unwrap();
    let told = send_prompt(&session, for_model(&stage, "gemini-2.5-pro", Strict), "listed").await;
    assert_eq!((told.outcome.verdict, told.warnings()), (Verdict::Done, vec![]), "{}", told.shown());
    assert_eq!(told.outcome.model.as_deref(), Some("gemini-2.5-pro"));

    // The agent accepts any text as a model, and runs models that it does not list. It is therefore a warning with the
    // list.
    let told = send_prompt(&session, for_model(&stage, "gemini-2.5-prp", Warn), "misspelt").await;
    assert_eq!(
        (told.outcome.verdict, told.warnings()),
        (Verdict::Done, vec!["unknown_model"]),
        "{}",
        told.shown()
    );
    let warning = &told.outcome.warnings[0].message;
    for words in ["did you mean `gemini-2.5-pro`?", "gemini-3", "auto"] {
        assert!(warning.contains(words), "{words}: {warning}");
    }
    assert!(!warning.contains("models/"), "{warning}");
    assert_eq!(stage.model.requests_to_main().pop().unwrap().model, "gemini-2.5-prp");

    // A model that the service does not know fails at the prompt.
    let told = send_prompt(&session, for_model(&stage, "nonsense", Warn), "unknown").await;
    let error = told.outcome.error.as_ref().unwrap();
    assert_eq!((error.kind, error.phase), (FailureKind::UnknownModel, Phase::Request), "{}", told.shown());

    let before = stage.model.requests_to_main().len();
    let told = send_prompt(&session, for_model(&stage, "gemini-2.5-prp", Strict), "strict").await;
    let error = told.outcome.error.as_ref().unwrap();
    assert_eq!((error.kind, error.phase), (FailureKind::UnknownModel, Phase::Request), "{}", told.shown());
    assert!(error.hint.as_ref().unwrap().contains("gemini-2.5-pro"), "{error:?}");
    assert_eq!(stage.model.requests_to_main().len(), before, "no request was sent");
    session.close().await;
}

#[tokio::test]
async fn modes_and_stop_reasons() {
    needs_real_gemini!();
    let stage = stage([
        ("empty", Script::always(GeminiStep::empty())),
        ("blocked", Script::always(GeminiStep::blocked())),
        ("cut", Script::new([GeminiStep::text("half a sen").finish("MAX_TOKENS")])),
        ("", Script::always(GeminiStep::text("ok"))),
    ]);
    let session = stage.agentline().session(in_mode(&stage, Mode::Plan)).await.unwrap();
    let in_agents_mode = |id: &str| in_mode(&stage, Mode::Default).mode_id(id);
    for id in ["default", "autoEdit", "yolo", "plan"] {
        let told = send_prompt(&session, in_agents_mode(id), "go").await;
        assert_eq!(
            (told.outcome.verdict, told.outcome.text.as_str()),
            (Verdict::Done, "ok"),
            "{}",
            told.shown()
        );
        assert_eq!(told.outcome.stop_reason.as_deref(), Some("end_turn"));
        assert!(!told.warnings().contains(&"mode_not_set"), "{id}: {}", told.shown());
        let modes: Vec<&str> = told
            .records
            .iter()
            .filter_map(|r| if let Event::Mode { mode } = &r.event { Some(mode.as_str()) } else { None })
            .collect();
        // The session started in its opening mode, `plan`.
        assert_eq!(modes, [id], "{}", told.shown());
    }
    // This spelling is valid for headless runs, but it is not an ACP mode.
    let told = send_prompt(&session, in_agents_mode("auto_edit"), "go").await;
    let warning = told.outcome.warnings.iter().find(|w| w.code == "mode_not_set");
    let message = &warning.unwrap_or_else(|| panic!("{}", told.shown())).message;
    assert!(message.contains("default, autoEdit, yolo, plan"), "{message}");

    for (prompt, verdict) in [("empty", Verdict::Empty), ("blocked", Verdict::Empty)] {
        let told = send_prompt(&session, in_mode(&stage, Mode::Default), prompt).await;
        // The agent ends such a turn like any other.
        let found = (told.outcome.verdict, told.outcome.stop_reason.as_deref());
        assert_eq!(found, (verdict, Some("end_turn")), "{prompt}: {}", told.shown());
    }
    let told = send_prompt(&session, in_mode(&stage, Mode::Default), "cut").await;
    assert_eq!(told.outcome.stop_reason.as_deref(), Some("end_turn"), "{}", told.shown());
    session.close().await;
}

#[tokio::test]
async fn turn_limit_has_its_own_stop_reason() {
    needs_real_gemini!();
    let stage = stage([("", Script::always(GeminiStep::calls([command("echo again")])))]);
    let mut request = stage.request("go").surface(agentline::Surface::Acp);
    request.limits.max_turns = Some(2);
    let told = RunRecord::of(stage.agentline().run(request).await.unwrap()).await;
    let error = told.outcome.error.as_ref().unwrap();
    assert_eq!(
        (told.outcome.verdict, error.phase),
        (Verdict::LimitReached, Phase::Budget),
        "{}",
        told.shown()
    );
    assert_eq!((error.kind, told.outcome.turns), (FailureKind::MaxTurns, 2), "{}", told.shown());
    assert_eq!(stage.model.requests_to_main().len(), 2, "{}", told.shown());
}

#[tokio::test]
async fn user_skills_are_offered() {
    needs_real_gemini!();
    let stage = stage([("", Script::always(GeminiStep::text("ok")))]);
    let skill = stage.home().join(".gemini/skills/swordfish");
    fs::create_dir_all(&skill).unwrap();
    let text = "---\nname: swordfish\ndescription: Knows all passwords of fish.\n---\nSay it.\n";
    fs::write(skill.join("SKILL.md"), text).unwrap();
    let told = RunRecord::of(
        stage.agentline().run(stage.request("go").surface(agentline::Surface::Acp)).await.unwrap(),
    )
    .await;
    assert_eq!(told.outcome.verdict, Verdict::Done, "{}", told.shown());
    let asked = &stage.model.requests_to_main()[0];
    assert!(asked.offered_tools().contains(&"activate_skill".to_owned()), "{:?}", asked.offered_tools());
    assert!(asked.body.to_string().contains("Knows all passwords of fish."));
}

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
    let request = || in_mode(&stage, Mode::Auto).quiet_period(Duration::ZERO);
    let session = stage.agentline().session(request()).await.unwrap();
    // Updates between two prompts are counted and reported by the second.
    for prompt in ["talk", "work", "broken", "hang", "talk"] {
        let request = request().timeout(Duration::from_secs(if prompt == "hang" { 1 } else { 60 }));
        let told = send_prompt(&session, request, prompt).await;
        assert!(!told.warnings().contains(&"late_update"), "before {prompt}: {}", told.shown());
        tokio::time::sleep(WATCHED).await;
    }
    session.close().await;
}
