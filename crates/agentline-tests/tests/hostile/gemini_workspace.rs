//! Nothing in a workspace's Gemini settings takes effect before trust, cold or warm.

#[path = "gemini_workspace/context.rs"]
mod context;
#[path = "gemini_workspace/unconfirmed.rs"]
mod unconfirmed;
#[path = "gemini_workspace/workspace.rs"]
mod workspace;

use agentline::{Outcome, PermissionMode as Mode, Pool, PoolOptions, RunRequest, Surface, Trust, Verdict};
use agentline_tests::{needs_real_gemini, real_gemini, shown};
use serde_json::{Value, json};
use std::{
    io::{BufRead as _, BufReader, Write as _},
    process::{Command, Stdio},
};
use workspace::{DUMP, HostileWorkspace, SHELL};

/// A run without a conversation, in a mode in which everything is allowed and in one in which nothing may run.
#[track_caller]
fn cold_runs_are_unharmed(surface: Surface, strict: Mode) {
    let hostile = HostileWorkspace::new();
    let free = hostile.stage.outcome(hostile.request(DUMP).surface(surface));
    assert_eq!(free.verdict, Verdict::Done, "{}", shown(&free));
    assert!(hostile.has_dumped(), "the shell ran: {}", shown(&free));
    let bound = hostile.stage.outcome(hostile.request(SHELL).surface(surface).permission_mode(strict));
    assert_eq!(bound.verdict, Verdict::DoneWithDenials, "{}", shown(&bound));
    hostile.assert_unharmed();
}

#[test]
fn json_runs_ignore_the_workspace() {
    needs_real_gemini!();
    cold_runs_are_unharmed(Surface::Json, Mode::Plan);
}

#[test]
fn stream_json_runs_ignore_the_workspace() {
    needs_real_gemini!();
    cold_runs_are_unharmed(Surface::StreamJson, Mode::Plan);
}

#[test]
fn cold_acp_runs_ignore_the_workspace() {
    needs_real_gemini!();
    cold_runs_are_unharmed(Surface::Acp, Mode::Deny);
}

async fn pooled(pool: &Pool, request: RunRequest) -> Outcome {
    pool.run(request).await.expect("a good request").outcome().await
}

#[tokio::test]
async fn warm_runs_ignore_the_workspace() {
    needs_real_gemini!();
    let hostile = HostileWorkspace::new();
    let pool = Pool::new(hostile.stage.agentline(), PoolOptions::default());
    let clean = hostile.stage.outside().join("clean");
    std::fs::create_dir(&clean).unwrap();
    // The process serves another workspace first, as in a batch.
    let first = pooled(&pool, hostile.request("hello").working_dir(&clean)).await;
    assert_eq!(first.verdict, Verdict::Done, "{}", shown(&first));
    let free = pooled(&pool, hostile.request(DUMP)).await;
    assert_eq!(free.verdict, Verdict::Done, "{}", shown(&free));
    assert!(hostile.has_dumped(), "{}", shown(&free));
    assert_eq!(pool.status().started, 1, "one process serves both workspaces: {:?}", pool.status());
    for mode in [Mode::Plan, Mode::Deny] {
        let bound = pooled(&pool, hostile.request(SHELL).permission_mode(mode)).await;
        assert_eq!(bound.verdict, Verdict::DoneWithDenials, "{mode:?}: {}", shown(&bound));
    }
    pool.close().await;
    hostile.assert_unharmed();
}

#[tokio::test]
async fn conversations_ignore_the_workspace() {
    needs_real_gemini!();
    let hostile = HostileWorkspace::new();
    let request = hostile.request("").permission_mode(Mode::Deny);
    let session = hostile.stage.agentline().session(request).await.unwrap();
    let bound = session.prompt(SHELL).await.unwrap().outcome().await;
    assert_eq!(bound.verdict, Verdict::DoneWithDenials, "{}", shown(&bound));
    let free = session.prompt_with(hostile.request(DUMP)).await.unwrap().outcome().await;
    assert_eq!(free.verdict, Verdict::Done, "{}", shown(&free));
    assert!(hostile.has_dumped(), "{}", shown(&free));
    session.close().await;
    hostile.assert_unharmed();
}

#[test]
fn hosted_runs_ignore_the_workspace() {
    needs_real_gemini!();
    let hostile = HostileWorkspace::new();
    let program = real_gemini().expect("real agents are not left out");
    let mut host = Command::new(env!("CARGO_BIN_EXE_agentline-under-test"))
        .arg("host")
        .env_clear()
        .envs(hostile.stage.variables())
        .env("GEMINI_CLI_PATH", program.path)
        .current_dir(hostile.stage.outside())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = host.stdin.take().unwrap();
    let mut lines = BufReader::new(host.stdout.take().unwrap()).lines();
    let mut call = |id: u64, method: &str, params: Value| -> Value {
        writeln!(stdin, "{}", json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))
            .unwrap();
        loop {
            let message: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
            if message["id"] == id && message.get("method").is_none() {
                return message["result"].clone();
            }
        }
    };
    call(1, "initialize", json!({"client": {"name": "test", "version": "1"}}));
    let mut run = |id: u64, prompt: &str, mode: &str| {
        let workspace = hostile.stage.workspace();
        let params = json!({"prompt": prompt, "permission_mode": mode, "model": agentline_tests::MODEL,
            "working_dir": workspace, "extensions": [], "timeout": 120});
        call(id, "run", params)
    };
    let free = run(2, DUMP, "bypass");
    assert_eq!(free["verdict"], "done", "{free:#}");
    assert!(hostile.has_dumped(), "{free:#}");
    let bound = run(3, SHELL, "deny");
    assert_eq!(bound["verdict"], "done_with_denials", "{bound:#}");
    drop(stdin);
    host.wait().unwrap();
    hostile.assert_unharmed();
}

/// The attacks are real: in a workspace that the user trusts in full they succeed, cold and warm.
#[tokio::test]
async fn the_same_workspace_takes_effect_with_full_trust() {
    needs_real_gemini!();
    for warm in [false, true] {
        let hostile = HostileWorkspace::new();
        hostile.keep_only_harmless_variables();
        let request = hostile.request(DUMP).trust(Trust::Full).surface(Surface::Acp);
        let outcome = if warm {
            let pool = Pool::new(hostile.stage.agentline(), PoolOptions::default());
            let outcome = pooled(&pool, request).await;
            pool.close().await;
            outcome
        } else {
            let mut stream = request.clone();
            stream.surface = Some(Surface::StreamJson);
            hostile.stage.agentline().run(stream).await.unwrap().outcome().await
        };
        assert_eq!(outcome.verdict, Verdict::Done, "{}", shown(&outcome));
        let canaries = hostile.canaries();
        for name in ["canary-mcp", "canary-hook", "canary-bash-env"] {
            assert!(canaries.iter().any(|found| found == name), "{name} (warm: {warm}): {canaries:?}");
        }
        let set = hostile.stage.read("env.txt").unwrap();
        assert!(set.contains("from-the-workspace"), "warm: {warm}: {set}");
        let offered = hostile.words_to_the_model();
        assert!(offered.contains("EVILSKILL"), "warm: {warm}");
    }
}

/// Trust that the user gave in Gemini CLI itself is not full trust in agentline.
#[tokio::test]
async fn a_folder_that_gemini_cli_trusts_is_still_ignored() {
    needs_real_gemini!();
    let hostile = HostileWorkspace::new();
    let rules = json!({hostile.stage.workspace().canonicalize().unwrap().to_string_lossy(): "TRUST_FOLDER"});
    let file = hostile.stage.home().join(".gemini/trustedFolders.json");
    std::fs::write(&file, rules.to_string()).unwrap();
    for trust in [Trust::Run, Trust::No] {
        let request = hostile.request(DUMP).trust(trust);
        let cold = hostile.stage.agentline().run(request.clone()).await.unwrap().outcome().await;
        assert_eq!(cold.verdict, Verdict::Done, "{trust:?}: {}", shown(&cold));
    }
    let pool = Pool::new(hostile.stage.agentline(), PoolOptions::default());
    let warm = pooled(&pool, hostile.request(DUMP)).await;
    assert_eq!(warm.verdict, Verdict::Done, "{}", shown(&warm));
    pool.close().await;
    hostile.assert_unharmed();
    assert_eq!(std::fs::read_to_string(file).unwrap(), rules.to_string(), "the user's file is untouched");
}

/// Without any trust the agent refuses a folder that it does not know, and loads nothing of it on its way.
#[tokio::test]
async fn no_trust_stays_no_trust() {
    needs_real_gemini!();
    let hostile = HostileWorkspace::new();
    // In a folder that it does not trust, the CLI reads no other file of the user's.
    let key = format!("GEMINI_API_KEY={}\n", agentline_mock::gemini::FAKE_KEY);
    std::fs::write(hostile.stage.home().join(".env"), key).unwrap();
    let request = hostile.request(DUMP).trust(Trust::No).surface(Surface::StreamJson);
    let outcome = hostile.stage.agentline().run(request).await.unwrap().outcome().await;
    assert_eq!(outcome.verdict, Verdict::Untrusted, "{}", shown(&outcome));
    hostile.assert_unharmed();
}
