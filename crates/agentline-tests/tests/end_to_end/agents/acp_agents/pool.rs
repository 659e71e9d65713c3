//! Tests these agents on a warm pool: two runs share one process, each has its own session, and nothing remains.
//! OpenCode, which starts slowly, is also tested here with tools, rules about MCP tools, and a trusted workspace.

use crate::agents::acp_agents::{
    harness::{CLAUDE, CODEX, CODEX_NATIVE, OPENCODE, TestedAgent, stage, tokens},
    rules, tools,
};
use agentline::{PermissionMode as Mode, Pool, PoolOptions, Trust, Verdict};
use agentline_mock::scripted::ModelStep;
use agentline_tests::RunRecord;
use std::time::{Duration, Instant};

#[tokio::test]
async fn claude() {
    warm(CLAUDE).await;
}

#[tokio::test]
async fn codex() {
    warm(CODEX).await;
}

#[tokio::test]
async fn codex_native() {
    warm(CODEX_NATIVE).await;
}

#[tokio::test]
async fn opencode() {
    warm(OPENCODE).await;
}

async fn warm(tested: TestedAgent) {
    let left = tested.shell("(sleep 600 >/dev/null 2>&1 &); echo left");
    let mut scripts = vec![
        ("first of two", vec![left, ModelStep::text("left")]),
        ("second of two", vec![ModelStep::text("done")]),
    ];
    scripts.extend(tools::scripts(tested).into_iter().chain(rules::mcp_scripts(tested)));
    let mut stage = stage!(tested, scripts);
    let mark = stage.command_in_workspace_settings();
    // OpenCode is also tested with tools on the same process, so it has to be started to ask.
    let is_opencode = tested.name == "opencode";
    let mode = if is_opencode { Mode::Auto } else { Mode::Bypass };
    if is_opencode {
        stage.trust = Trust::Full;
    }
    let pool = Pool::new(stage.agentline(), PoolOptions::default());
    let mut runs = Vec::new();
    for prompt in ["first of two", "second of two"] {
        let mut request = stage.request(mode);
        request.prompt = prompt.into();
        let result = RunRecord::of(pool.run(request).await.unwrap()).await;
        assert_eq!(
            (result.outcome.verdict, result.outcome.turns),
            (Verdict::Done, if prompt == "first of two" { 2 } else { 1 })
        );
        runs.push(result);
    }
    let [first, second] = &runs[..] else { unreachable!("two commands ran") };
    let status = pool.status();
    assert_eq!((status.started, status.runs), (1, 2), "{status:?}");
    assert_ne!(first.outcome.session_id, second.outcome.session_id, "{}", second.shown());
    // The second run has neither text nor tokens of the first.
    assert_eq!(tokens(&second.outcome)[0], Some(100), "{}", second.shown());
    let texts = stage.stage.model.turns().last().unwrap().user_texts().concat();
    assert!(texts.contains("second of two") && !texts.contains("first of two"), "{texts}");
    if tested.name == "claude" {
        // The adapter keeps a process for each session until the session is closed.
        let end = Instant::now() + Duration::from_secs(30);
        while stage.live_processes().len() > 1 && Instant::now() < end {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert_eq!(stage.live_processes(), [status.processes[0].pid.unwrap()]);
    }
    if is_opencode {
        tools::check_call(&stage, Some(&pool)).await;
        rules::check_rules_about_mcp_tools(&stage, Some(&pool)).await;
        assert_eq!(pool.status().started, 1, "{:?}", pool.status());
    }
    // Settings of a workspace apply only if it is trusted.
    assert_eq!(mark.exists(), is_opencode);
    pool.close().await;
    #[cfg(target_os = "linux")]
    assert_eq!(stage.live_processes(), [0_u32; 0]);
}
