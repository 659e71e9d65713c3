//! Tests that settings of a workspace, which could run anything, apply only if the workspace is trusted.

use agentline::{Agentline, RunRequest, Trust, Verdict, detect::HostEnv};
use agentline_mock::{anthropic, openai, scripted::ModelStep};
use agentline_tests::{AcpStage, shown, skipped};
use serde_json::json;
use std::{fs, time::Duration};

/// OpenCode takes up to 20 s for its first answer on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(180);

/// Returns whether a hook or server of the workspace has created its file.
async fn has_run(agent: &str, trust: Trust) -> Option<bool> {
    let stage = match agent {
        "claude" => AcpStage::claude(anthropic::model([ModelStep::text("hi")]).unwrap())?,
        _ => AcpStage::opencode(openai::model([ModelStep::text("hi")]).unwrap())?,
    };
    let mark = stage.home().join("was-run");
    let touch = format!("touch {}", mark.display());
    let hook = json!([{"hooks": [{"type": "command", "command": touch}]}]);
    let claude = json!({"hooks": {"SessionStart": hook, "UserPromptSubmit": hook}});
    let opencode = json!({"mcp": {"evil": {"type": "local", "command": ["touch", mark]}}});
    fs::create_dir_all(stage.workspace().join(".claude")).unwrap();
    fs::write(stage.workspace().join(".claude/settings.json"), claude.to_string()).unwrap();
    fs::write(stage.workspace().join("opencode.json"), opencode.to_string()).unwrap();
    let here = HostEnv::new(stage.variables().clone(), stage.home(), stage.workspace());
    let agentline = Agentline::new(here).program(agent, &stage.agent.program);
    let request = RunRequest::new("hi").agent(agent).trust(trust).working_dir(stage.workspace());
    let request = request.startup_timeout(PATIENCE).timeout(PATIENCE * 2);
    let outcome = agentline.run(request).await.unwrap().outcome().await;
    assert_eq!(outcome.verdict, Verdict::Done, "{}", shown(&outcome));
    Some(mark.exists())
}

#[tokio::test]
async fn workspace_settings_run_nothing_without_trust() {
    for agent in ["claude", "opencode"] {
        let Some(ran) = has_run(agent, Trust::Run).await else { return skipped("trust") };
        assert!(!ran, "{agent}");
        let trusted = has_run(agent, Trust::Full).await;
        assert_eq!(trusted, Some(true), "{agent}: otherwise the test proves nothing");
    }
}
