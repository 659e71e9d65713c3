//! Checks that no Gemini settings of a workspace take effect before trust, cold or warm.

#[path = "gemini_workspace/context.rs"]
mod context;
#[path = "gemini_workspace/unconfirmed.rs"]
mod unconfirmed;
#[path = "gemini_workspace/workspace.rs"]
mod workspace;

use crate::host::Host;
use agentline::{
    Outcome, PermissionMode as Mode, Pool, PoolOptions, RunRequest, Session, Surface, Trust, Verdict,
};
use agentline_tests::{needs_real_gemini, real_gemini, shown};
use serde_json::{Value, json};
use workspace::{DUMP, HostileWorkspace, SHELL};

/// How a run reaches the agent.
enum Path {
    Cold(Surface),
    Warm(Pool),
    Conversation(Box<Session>),
    Host(Host),
    HostConversation(Host),
}

impl Path {
    /// Returns the verdict of a prompt in the malicious workspace, and the whole outcome.
    async fn run(&mut self, hostile: &HostileWorkspace, prompt: &str, mode: Mode) -> (Value, String) {
        let request = hostile.request(prompt).permission_mode(mode);
        let params = json!({"permission_mode": mode, "model": agentline_tests::MODEL,
            "working_dir": hostile.stage.workspace(), "extensions": [], "timeout": 120});
        let outcome = match self {
            Self::Cold(surface) => {
                hostile.stage.agentline().run(request.surface(*surface)).await.unwrap().outcome().await
            }
            Self::Warm(pool) => pooled(pool, request).await,
            Self::Conversation(session) => {
                if mode == Mode::Plan {
                    // Gemini CLI has this mode only in sessions that were opened for it.
                    let opened = hostile.stage.agentline().session(request.clone()).await.unwrap();
                    std::mem::replace(&mut **session, opened).close().await;
                }
                session.prompt_with(request).await.unwrap().outcome().await
            }
            Self::Host(host) => return of_host(&host.run(params, prompt)),
            Self::HostConversation(host) => return of_host(&host.converse(params, prompt)),
        };
        (json!(outcome.verdict), shown(&outcome))
    }

    async fn close(self) {
        match self {
            Self::Warm(pool) => pool.close().await,
            Self::Conversation(session) => session.close().await,
            Self::Cold(_) | Self::Host(_) | Self::HostConversation(_) => {}
        }
    }
}

fn of_host(outcome: &Value) -> (Value, String) {
    (outcome["verdict"].clone(), format!("{outcome:#}"))
}

async fn pooled(pool: &Pool, request: RunRequest) -> Outcome {
    pool.run(request).await.expect("a valid request").outcome().await
}

/// Tests every path in a mode that allows everything, and in modes in which nothing may run.
async fn assert_ignored(hostile: &HostileWorkspace, mut path: Path) {
    for (prompt, mode, verdict) in [
        (SHELL, Mode::Deny, Verdict::DoneWithDenials),
        (DUMP, Mode::Bypass, Verdict::Done),
        (SHELL, Mode::Plan, Verdict::DoneWithDenials),
    ] {
        let (found, outcome) = path.run(hostile, prompt, mode).await;
        assert_eq!(found, json!(verdict), "{mode:?}: {outcome}");
    }
    path.close().await;
    assert!(hostile.has_dumped(), "the shell ran");
    hostile.assert_unharmed();
}

fn host(hostile: &HostileWorkspace) -> Host {
    let program = real_gemini().expect("real agents are enabled").path;
    Host::start(hostile.stage.variables(), ("GEMINI_CLI_PATH", &program), &hostile.stage.outside())
}

#[tokio::test]
async fn json_runs_ignore_the_workspace() {
    needs_real_gemini!();
    assert_ignored(&HostileWorkspace::new(), Path::Cold(Surface::Json)).await;
}

#[tokio::test]
async fn stream_json_runs_ignore_the_workspace() {
    needs_real_gemini!();
    assert_ignored(&HostileWorkspace::new(), Path::Cold(Surface::StreamJson)).await;
}

#[tokio::test]
async fn cold_acp_runs_ignore_the_workspace() {
    needs_real_gemini!();
    assert_ignored(&HostileWorkspace::new(), Path::Cold(Surface::Acp)).await;
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
    assert_ignored(&hostile, Path::Warm(pool)).await;
}

#[tokio::test]
async fn conversations_ignore_the_workspace() {
    needs_real_gemini!();
    let hostile = HostileWorkspace::new();
    let request = hostile.request("").permission_mode(Mode::Deny);
    let session = hostile.stage.agentline().session(request).await.unwrap();
    assert_ignored(&hostile, Path::Conversation(Box::new(session))).await;
}

#[tokio::test]
async fn hosted_runs_ignore_the_workspace() {
    needs_real_gemini!();
    let hostile = HostileWorkspace::new();
    assert_ignored(&hostile, Path::Host(host(&hostile))).await;
}

#[tokio::test]
async fn hosted_conversations_ignore_the_workspace() {
    needs_real_gemini!();
    let hostile = HostileWorkspace::new();
    assert_ignored(&hostile, Path::HostConversation(host(&hostile))).await;
}

/// The attacks are real: in a fully trusted workspace they succeed, cold and warm.
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
async fn directory_trusted_by_gemini_cli_is_still_ignored() {
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
    assert_eq!(std::fs::read_to_string(file).unwrap(), rules.to_string(), "the user's file is unchanged");
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
