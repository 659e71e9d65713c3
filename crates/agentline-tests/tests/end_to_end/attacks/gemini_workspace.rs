//! Checks that no Gemini settings of a workspace take effect before trust, cold or warm.

#[path = "gemini_workspace/context.rs"]
mod context;
#[path = "gemini_workspace/unconfirmed.rs"]
mod unconfirmed;
#[path = "gemini_workspace/workspace.rs"]
mod workspace;

use agentline::{Outcome, PermissionMode as Mode, Pool, PoolOptions, RunRequest, Surface, Trust, Verdict};
use agentline_tests::{needs_real_gemini, shown};
use workspace::{DUMP, HostileWorkspace, SHELL};

async fn pooled(pool: &Pool, request: RunRequest) -> Outcome {
    pool.run(request).await.expect("a valid request").outcome().await
}

/// A prompt, its mode and the expected verdict: one mode that allows everything, and modes in which nothing may run.
const MODES: [(&str, Mode, Verdict); 3] = [
    (DUMP, Mode::Bypass, Verdict::Done),
    (SHELL, Mode::Deny, Verdict::DoneWithDenials),
    (SHELL, Mode::Plan, Verdict::DoneWithDenials),
];

/// Runs the prompts of these modes, cold on a surface or warm on a pool. `paths.rs` shows that the other paths start
/// the agent in the same way.
async fn assert_ignored(
    hostile: &HostileWorkspace,
    run: impl AsyncFn(RunRequest) -> Outcome,
    modes: &[(&str, Mode, Verdict)],
) {
    for (prompt, mode, verdict) in modes {
        let outcome = run(hostile.request(prompt).permission_mode(*mode)).await;
        assert_eq!(outcome.verdict, *verdict, "{mode:?}: {}", shown(&outcome));
    }
    assert!(hostile.has_dumped(), "the shell ran");
    hostile.assert_unharmed();
}

async fn assert_ignored_on(surface: Surface, hostile: &HostileWorkspace, modes: &[(&str, Mode, Verdict)]) {
    let agentline = hostile.stage.agentline();
    let run =
        async |request: RunRequest| agentline.run(request.surface(surface)).await.unwrap().outcome().await;
    assert_ignored(hostile, run, modes).await;
}

/// The user has trusted the directory in Gemini CLI itself, which is not full trust in agentline.
#[tokio::test]
async fn json_runs_ignore_a_workspace_that_gemini_cli_trusts() {
    needs_real_gemini!();
    let hostile = HostileWorkspace::new();
    let trusted = hostile.trust_in_gemini_cli();
    assert_ignored_on(Surface::Json, &hostile, &MODES[..1]).await;
    trusted.assert_unchanged();
}

/// Context files load as text, and import only from their own directory.
#[tokio::test]
async fn stream_json_runs_ignore_the_workspace_and_read_its_context_files() {
    needs_real_gemini!();
    let hostile = HostileWorkspace::new();
    assert_ignored_on(Surface::StreamJson, &hostile, &MODES[..2]).await;
    let sent = hostile.text_sent_to_the_model();
    assert!(sent.contains("CONTEXTWORDS") && sent.contains("MOREWORDS"), "the context file is text");
}

#[tokio::test]
async fn warm_runs_ignore_the_workspace() {
    needs_real_gemini!();
    let hostile = HostileWorkspace::new();
    let pool = Pool::new(hostile.stage.agentline(), PoolOptions::default());
    let clean = hostile.stage.outside().join("clean");
    std::fs::create_dir(&clean).unwrap();
    // The process first serves another workspace, as in a batch.
    let first = pooled(&pool, hostile.request("hello").working_dir(&clean)).await;
    assert_eq!(first.verdict, Verdict::Done, "{}", shown(&first));
    let second = pooled(&pool, hostile.request("hello")).await;
    assert_eq!(second.verdict, Verdict::Done, "{}", shown(&second));
    assert_eq!(pool.status().started, 1, "one process serves both workspaces: {:?}", pool.status());
    assert_ignored(&hostile, async |request| pooled(&pool, request).await, &MODES).await;
    pool.close().await;
}

/// The attacks are real: in a fully trusted workspace they succeed.
#[tokio::test]
async fn same_workspace_takes_effect_with_full_trust() {
    needs_real_gemini!();
    let hostile = HostileWorkspace::new();
    hostile.keep_only_harmless_variables();
    let request = hostile.request(DUMP).trust(Trust::Full).surface(Surface::Acp);
    let outcome = hostile.stage.agentline().run(request).await.unwrap().outcome().await;
    assert_eq!(outcome.verdict, Verdict::Done, "{}", shown(&outcome));
    let canaries = hostile.canaries();
    for name in ["canary-mcp", "canary-hook", "canary-bash-env"] {
        assert!(canaries.iter().any(|found| found == name), "{name}: {canaries:?}");
    }
    let set = hostile.stage.read("env.txt").unwrap();
    assert!(set.contains("from-the-workspace"), "{set}");
    assert!(hostile.text_sent_to_the_model().contains("EVILSKILL"));
}

/// Trust that the user gave in Gemini CLI itself is not full trust in agentline. The runs on JSON have the other level
/// of trust. A context file that links out of the workspace is not read.
#[tokio::test]
async fn directory_trusted_by_gemini_cli_is_still_ignored_without_trust() {
    needs_real_gemini!();
    let hostile = HostileWorkspace::new();
    let trusted = hostile.trust_in_gemini_cli();
    let context = hostile.stage.workspace().join("GEMINI.md");
    std::fs::remove_file(&context).unwrap();
    std::os::unix::fs::symlink("../private.txt", &context).unwrap();
    let request = hostile.request(DUMP).trust(Trust::No).surface(Surface::Acp);
    let cold = hostile.stage.agentline().run(request).await.unwrap().outcome().await;
    assert_eq!(cold.verdict, Verdict::Done, "{}", shown(&cold));
    hostile.assert_unharmed();
    trusted.assert_unchanged();
}

/// Without any trust, the agent refuses an unknown directory, and loads nothing from it.
#[tokio::test]
async fn trust_no_is_respected() {
    needs_real_gemini!();
    let hostile = HostileWorkspace::new();
    // In an untrusted directory, the CLI reads no other file of the user.
    let key = format!("GEMINI_API_KEY={}\n", agentline_mock::gemini::FAKE_KEY);
    std::fs::write(hostile.stage.home().join(".env"), key).unwrap();
    let request = hostile.request(DUMP).trust(Trust::No).surface(Surface::StreamJson);
    let outcome = hostile.stage.agentline().run(request).await.unwrap().outcome().await;
    assert_eq!(outcome.verdict, Verdict::Untrusted, "{}", shown(&outcome));
    hostile.assert_unharmed();
}
