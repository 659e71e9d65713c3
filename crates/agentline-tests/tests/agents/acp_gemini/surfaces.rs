//! Tests the choice of the surface, and the preset `gemini_acp`.

use crate::acp_gemini::harness::{RunRecord, calling, stage, write};
use agentline::{
    Agentline, Error, RunOptions, RunRequest, Schema, Surface, Verdict,
    detect::HostEnv,
    tools::{Tool, ToolHost},
};
use agentline_core::Sandbox;
use agentline_tests::needs_real_gemini;
use serde_json::json;

fn refused(result: Result<impl std::fmt::Debug, Error>, key: &str) -> String {
    match result {
        Err(Error::Usage(problems)) => {
            let problem = problems.0.iter().find(|problem| problem.key == key);
            let problem = problem.unwrap_or_else(|| panic!("{key} is not in {problems}"));
            assert!(problem.hint.is_some(), "{problem}");
            problem.message.clone()
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn incompatible_options_are_refused_with_a_reason() {
    // Nothing is started, so no agent is needed.
    let dir = tempfile::tempdir().unwrap();
    let agentline = Agentline::new(HostEnv::new([].into(), dir.path(), dir.path()));
    let request = || RunRequest::new("x").working_dir(dir.path());
    let sandboxed = request().surface(Surface::Acp).sandbox(Sandbox::On);
    assert!(refused(agentline.run(sandboxed.clone()).await, "sandbox").contains("does not respond"));
    refused(agentline.session(request().sandbox(Sandbox::On)).await, "sandbox");
    let plain = request().surface(Surface::StreamJson);
    refused(agentline.session(plain.clone()).await, "surface");
    let tool = Tool::new("t", "", json!({"type": "object"}), |_, _| async { Ok(()) });
    let tools = RunOptions::new().tools(ToolHost::new().tool(tool));
    refused(agentline.run_with(plain.clone(), tools).await, "surface");
    let schema = RunOptions::new().schema(Schema::from_value(json!({"type": "object"})).unwrap());
    refused(agentline.run_with(plain, schema.clone()).await, "surface");
    // No surface supports both a schema and a sandbox.
    refused(agentline.run_with(request().sandbox(Sandbox::On), schema).await, "sandbox");
}

#[tokio::test]
async fn preset_runs_with_its_documented_defaults() {
    needs_real_gemini!();
    let stage = stage([("", calling([write("by-preset.txt")]))]);
    let mut request = RunRequest::preset("gemini_acp", "go").unwrap();
    request.model = Some(agentline_tests::MODEL.into());
    request.working_dir = Some(stage.workspace());
    let run = stage.agentline().run(request).await.unwrap();
    let command = run.launched().unwrap().command.clone();
    assert!(command.contains(&"--experimental-acp".to_owned()), "{command:?}");
    let told = RunRecord::of(run).await;
    assert_eq!(told.outcome.verdict, Verdict::Done, "{}", told.shown());
    assert_eq!((told.outcome.agent.as_str(), told.outcome.surface), ("gemini", Some(Surface::Acp)));
    assert_eq!(told.decisions(), ["Write allow mode auto -"], "{}", told.shown());
    assert_eq!(stage.read("by-preset.txt").as_deref(), Some("new\n"));
    // Updates within half a second after the answer belong to it.
    assert!(told.outcome.duration_ms > 500, "{}", told.shown());
}
