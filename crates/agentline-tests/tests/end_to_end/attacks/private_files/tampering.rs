//! Checks that a run fails if its rules or settings are changed on the disk, and that no later run uses that process.

use agentline::{FailureKind, Outcome, Pool, PoolOptions, RunRequest, Surface, Verdict};
use agentline_mock::gemini::{GeminiModel, GeminiStep, Script};
use agentline_tests::{FakeStage, TestStage, needs_real_gemini, shown};
use serde_json::json;

/// What a tool of the agent can do to remove a rule, as a POSIX shell command.
const REMOVE_RULES: &str = "chmod -R u+w \"$GEMINI_CLI_HOME/../given\"; rm -rf \"$GEMINI_CLI_HOME/../given\"";

async fn run(pool: &Pool, request: RunRequest) -> Outcome {
    pool.run(request).await.expect("a valid request").outcome().await
}

#[track_caller]
fn assert_refused(outcome: &Outcome, word: &str) {
    let error = outcome.error.as_ref().unwrap_or_else(|| panic!("no error: {}", shown(outcome)));
    assert_eq!((outcome.verdict, error.kind), (Verdict::Failed, FailureKind::Settings), "{}", shown(outcome));
    assert!(error.message.contains(word), "{}", error.message);
}

fn stage() -> TestStage {
    let write = json!({"file_path": "denied.txt", "content": "x\n"});
    let remove = json!({"command": REMOVE_RULES});
    let model = GeminiModel::matching([
        ("tamper", Script::new([GeminiStep::call("run_shell_command", remove), GeminiStep::text("removed")])),
        ("write", Script::new([GeminiStep::call("write_file", write), GeminiStep::text("tried")])),
        ("", Script::always(GeminiStep::text("hello"))),
    ]);
    TestStage::with_model(model.expect("a free port on loopback"))
}

#[tokio::test]
async fn a_warm_process_whose_rules_were_removed_is_replaced() {
    needs_real_gemini!();
    let stage = stage();
    let request = |prompt: &str| stage.request(prompt).deny("Write");
    let pool = Pool::new(stage.agentline(), PoolOptions::default());
    assert_refused(&run(&pool, request("tamper")).await, "/given` was removed");
    let second = run(&pool, request("write")).await;
    assert_eq!(pool.status().started, 2, "{:?}", pool.status());
    assert_ne!(second.verdict, Verdict::Failed, "{}", shown(&second));
    assert_eq!(stage.read("denied.txt"), None, "{}", shown(&second));
    pool.close().await;
}

#[tokio::test]
async fn a_cold_run_fails_when_its_rules_are_removed() {
    needs_real_gemini!();
    let stage = stage();
    let request = stage.request("tamper").deny("Write").surface(Surface::StreamJson);
    let cold = stage.agentline().run(request).await.expect("a valid request");
    assert_refused(&cold.outcome().await, "/given` was removed");
}

#[tokio::test]
async fn a_conversation_fails_when_its_rules_are_removed() {
    let stage = FakeStage::new(env!("CARGO_BIN_EXE_fake-acp"));
    let request = stage.request("").deny("Write").surface(Surface::Acp);
    let session = stage.agentline().session(request).await.expect("a session");
    let prompt = async |text: &str| session.prompt(text).await.expect("a valid prompt").outcome().await;
    let first = prompt("say hello").await;
    assert_eq!(first.verdict, Verdict::Done, "{}", shown(&first));
    assert_refused(&prompt(&format!("run {REMOVE_RULES}\nsay removed")).await, "/given` was removed");
    assert_refused(&prompt("ask write_file denied.txt x\nsay tried").await, "/given` was removed");
    assert!(!stage.workspace().join("denied.txt").exists());
    session.close().await;
}

/// Every change of rules and settings is detected, before the next session at the latest.
#[tokio::test]
async fn every_kind_of_tampering_is_detected_and_later_runs_are_unaffected() {
    let settings = "$GEMINI_CLI_HOME/.gemini/settings.json";
    let generated = "$GEMINI_CLI_HOME/../given";
    let changes = [
        format!("rm -rf {generated}"),
        format!("chmod u+w {generated}/*.toml; for f in {generated}/*.toml; do echo '' > $f; done"),
        format!(
            "chmod u+w {generated}; mv {generated} {generated}2; mv {generated}2 {generated}; chmod u-w {generated}"
        ),
        format!("chmod u+w {generated}; echo x > {generated}/more.toml"),
        format!("rm {settings}"),
        format!("echo '{{}}' > {settings}"),
        format!("ln -sf /dev/null {settings}"),
    ];
    let stage = FakeStage::new(env!("CARGO_BIN_EXE_fake-acp"));
    let request = |script: &str| stage.request(script).deny("WebFetch").surface(Surface::Acp);
    let pool = Pool::new(stage.agentline(), PoolOptions::default());
    for (n, change) in changes.iter().enumerate() {
        let first = run(&pool, request("say hello")).await;
        assert_eq!(first.verdict, Verdict::Done, "{change}: {}", shown(&first));
        let tampering = run(&pool, request(&format!("run {change}\nsay done"))).await;
        assert_refused(&tampering, "changed while it ran");
        assert_eq!(pool.status().started as usize, n + 1, "{change}: {:?}", pool.status());
    }
    // A change between two runs, which belongs to neither.
    let _ = run(&pool, request("say hello")).await;
    let started = pool.status().started;
    let private = std::fs::read_dir(stage.path().join("tmp")).expect("a directory").flatten();
    for directory in private.filter(|entry| entry.file_name().to_string_lossy().starts_with("agentline-run-"))
    {
        std::fs::write(directory.path().join("home/.gemini/settings.json"), "{}").expect("a file");
    }
    let after = run(&pool, request("say hello")).await;
    assert_eq!(after.verdict, Verdict::Done, "{}", shown(&after));
    assert_eq!(pool.status().started, started + 1, "{:?}", pool.status());
    pool.close().await;
}
