//! Compares three real agents, and applies the changes of one.

use crate::agents::acp_agents::harness::{AgentScripts, CLAUDE, CODEX, TestedAgent, stage};
use agentline::{Agentline, HostEnv, PermissionMode, RunRequest, Verdict, compare::ComparedRun};
use agentline_mock::{
    gemini::{GeminiStep, Script},
    scripted::ModelStep,
};
use agentline_tests::{MODEL, TestStage, needs_real_gemini, shown};
use serde_json::json;
use std::{fs, time::Duration};

/// A script in which the agent writes its name to a file.
fn script(agent: TestedAgent) -> AgentScripts {
    let command = format!("echo {} > made.txt", agent.name);
    vec![("Make a file", vec![agent.shell(&command), ModelStep::text(format!("{} made it.", agent.name))])]
}

#[tokio::test]
async fn three_agents_are_compared_and_one_result_is_applied() {
    needs_real_gemini!();
    let (claude, codex) = (stage!(CLAUDE, script(CLAUDE)), stage!(CODEX, script(CODEX)));
    let command = json!({"command": "echo gemini > made.txt"});
    let steps = [GeminiStep::call("run_shell_command", command), GeminiStep::text("gemini made it.")];
    let gemini = TestStage::new(Script::new(steps));
    // One user has all three agents.
    let (home, workspace) = (claude.stage.home(), claude.stage.workspace());
    for (from, file) in [(codex.stage.home(), ".codex/config.toml"), (gemini.home(), ".gemini/settings.json")]
    {
        fs::create_dir_all(home.join(file).parent().unwrap()).unwrap();
        fs::copy(from.join(file), home.join(file)).unwrap();
    }
    let mut env = gemini.variables().clone();
    env.extend(codex.stage.variables().clone());
    env.extend(claude.stage.variables().clone());
    let agentline = Agentline::new(HostEnv::new(env, home.clone(), workspace.clone()))
        .program("gemini", agentline_tests::real_gemini().unwrap().path)
        .program("claude", &claude.stage.agent.program)
        .program("codex", &codex.stage.agent.program);
    fs::write(workspace.join("kept.txt"), "kept\n").unwrap();
    let request = RunRequest::new("Make a file")
        .permission_mode(PermissionMode::Bypass)
        .working_dir(&workspace)
        .startup_timeout(Duration::from_secs(120))
        .timeout(Duration::from_secs(180));
    let mut requests = ["gemini", "claude", "codex"].map(|agent| request.clone().agent(agent)).to_vec();
    requests[0].model = Some(MODEL.into());
    let mut comparison = agentline.compare(requests).await.unwrap();
    let mut seen = [0; 3];
    while let Some((index, _)) = comparison.next().await {
        seen[index] += 1;
    }
    assert!(seen.iter().all(|events| *events > 2), "{seen:?}");
    let results = comparison.finish().await;
    for (ComparedRun { competitor, outcome, .. }, name) in
        results.rows().iter().zip(["gemini", "claude", "codex"])
    {
        assert_eq!((&*competitor.agent, outcome.verdict), (name, Verdict::Done), "{}", shown(outcome));
        assert_eq!(outcome.text.trim(), format!("{name} made it."));
        assert!(outcome.usage.tokens.total.is_some(), "{}", shown(outcome));
        let [file] = &*outcome.files else { panic!("{}", shown(outcome)) };
        assert!(file.path == "made.txt" && file.diff.as_ref().unwrap().ends_with(&format!("+{name}\n")));
    }
    assert!(!workspace.join("made.txt").exists(), "the workspace is unchanged");
    let applied = results.apply("codex").await.unwrap();
    assert_eq!(applied, [std::path::PathBuf::from("made.txt")]);
    assert_eq!(fs::read_to_string(workspace.join("made.txt")).unwrap(), "codex\n");
    drop(results);
    let left: Vec<_> = fs::read_dir(home.join(".cache/agentline/compare")).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
}
