//! Tests loaded sessions: their history is not reported again, and an agent that cannot load one is reported.

use crate::fakes::acp_faults::stage::{AcpFaultStage, AcpPlayed, UNKNOWN};
use agentline::{FailureKind, RunRequest, Verdict};
use std::time::Instant;

fn request(stage: &AcpFaultStage, fault: &str, prompt: &str) -> RunRequest {
    let mut request = stage.request(fault, prompt).agent(UNKNOWN);
    request.api_key = None;
    request.agent_options.remove("extensions");
    request.env("FAKE_ACP_STORE", stage.path("tmp").to_string_lossy())
}

async fn play(stage: &AcpFaultStage, request: RunRequest) -> AcpPlayed {
    let run = stage.agentline().run(request).await.expect("a valid request");
    let played = AcpPlayed::of(run, Instant::now()).await;
    stage.nothing_runs().await;
    played
}

#[tokio::test]
async fn resumed_session_does_not_report_its_history() {
    let stage = AcpFaultStage::new();
    let first = play(&stage, request(&stage, "", "say First words.")).await.outcome;
    let id = first.session_id.expect("a session");
    for fault in ["", "load_shows_context"] {
        let next =
            play(&stage, request(&stage, fault, "say Second words.\nhistory").resume(&id)).await.outcome;
        assert_eq!(next.verdict, Verdict::Done, "{fault}: {:?}", next.error);
        assert!(next.text.starts_with("Second words."), "{fault}: {}", next.text);
        assert!(next.text.contains("First words."), "{fault}: the agent knows its history: {}", next.text);
        assert_eq!(next.session_id.as_deref(), Some(&*id), "{fault}");
    }
    // History that arrives only after the reply cannot be distinguished from new text; the new text is still there.
    let late =
        play(&stage, request(&stage, "load_answers_first", "say Last words.").resume(&id)).await.outcome;
    assert_eq!(late.verdict, Verdict::Done, "{:?}", late.error);
    assert!(late.text.contains("Last words."), "{}", late.text);
}

#[tokio::test]
async fn session_that_cannot_be_loaded_fails_before_the_prompt() {
    let stage = AcpFaultStage::new();
    let id =
        play(&stage, request(&stage, "", "say First words.")).await.outcome.session_id.expect("a session");
    for (fault, id, kind) in [
        ("load_error", &*id, FailureKind::SessionNotFound),
        ("", "unknown-session", FailureKind::SessionNotFound),
        ("no_load", &*id, FailureKind::Input),
    ] {
        let next = play(&stage, request(&stage, fault, "say Never.").resume(id)).await.outcome;
        let error = next.error.as_ref().map(|e| e.kind);
        assert_eq!((next.verdict, error, next.text.as_str()), (Verdict::Failed, Some(kind), ""), "{fault}");
    }
}
