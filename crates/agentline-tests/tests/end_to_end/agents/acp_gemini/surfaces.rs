//! Tests the choice of the surface, the preset `gemini_acp`, and attachments.

use crate::agents::acp_gemini::harness::{RunRecord, calling, stage, write};
use agentline::{
    Agentline, Error, Event, RunOptions, RunRequest, Schema, Surface, Verdict,
    detect::HostEnv,
    tools::{Tool, ToolHost},
};
use agentline_core::{EVENTS_SCHEMA, Sandbox};
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
async fn preset_runs_with_its_documented_defaults_and_attachments_reach_the_model() {
    needs_real_gemini!();
    let search = ("glob", json!({"pattern": "*.txt"}));
    let stage = stage([("", calling([write("by-preset.txt"), search]))]);
    let png = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x01\0\0\0\x01\x08\x06\0\0\0";
    let mut wav = b"RIFF\x24\0\0\0WAVEfmt \x10\0\0\0\x01\0\x01\0".to_vec();
    wav.extend([0; 24]);
    std::fs::write(stage.workspace().join("dot.png"), png).unwrap();
    std::fs::write(stage.workspace().join("click.wav"), wav).unwrap();
    stage.file("note.txt", "the password is swordfish\n");
    let mut request = RunRequest::preset("gemini_acp", "look at these").unwrap();
    request.attachments =
        ["dot.png", "click.wav", "note.txt"].map(|name| stage.workspace().join(name)).into();
    request.model = Some(agentline_tests::MODEL.into());
    request.working_dir = Some(stage.workspace());
    let run = stage.agentline().run(request).await.unwrap();
    let command = run.launched().unwrap().command.clone();
    assert!(command.contains(&"--acp".to_owned()), "{command:?}");
    let result = RunRecord::of(run).await;
    assert_eq!(result.outcome.verdict, Verdict::Done, "{}", result.shown());
    assert_eq!((result.outcome.agent.as_str(), result.outcome.surface), ("gemini", Some(Surface::Acp)));
    assert_eq!(result.decisions(), ["Write allow mode auto -"], "{}", result.shown());
    assert_eq!(stage.read("by-preset.txt").as_deref(), Some("new\n"));
    check_tool_events(&result, &stage.workspace().join("by-preset.txt").to_string_lossy());
    // Updates within half a second after the answer belong to it.
    assert!(result.outcome.duration_ms > 500, "{}", result.shown());
    let model_request = &stage.model.requests_to_main()[0];
    let types: Vec<String> = model_request.attachments().into_iter().map(|(mime, _)| mime).collect();
    assert_eq!(types.len(), 2, "{types:?} {}", model_request.body["contents"]);
    assert!(types[0] == "image/png" && types[1].starts_with("audio/"), "{types:?}");
    let texts = model_request.user_texts().concat();
    assert!(texts.contains("look at these") && texts.contains("swordfish"), "{texts}");
}

/// Checks that the events have what the agent sent about its calls, and that the run begins with its start.
fn check_tool_events(result: &RunRecord, path: &str) {
    assert!(
        matches!(&result.records[0].event, Event::Started(started) if started.schema == EVENTS_SCHEMA),
        "{}",
        result.shown()
    );
    let tools = result.tools();
    assert_eq!(tools.len(), 2, "{}", result.shown());
    let written = tools.iter().find(|tool| tool.name == "Write").expect("a write");
    assert_eq!(written.title.as_deref(), Some("Writing to by-preset.txt"));
    assert_eq!(written.locations.iter().map(|at| at.path.as_str()).collect::<Vec<_>>(), [path]);
    let search = tools.iter().find(|tool| tool.name == "Glob").expect("a search");
    assert_eq!(search.title.as_deref(), Some("'*.txt'"));
    assert_eq!(search.input.as_ref().map(|input| input.get()), Some(r#"{"pattern":"*.txt"}"#));
    let reported = result.records.iter().find_map(|record| match &record.event {
        Event::ToolResult(result) if result.tool_use_id == written.id => Some(&result.diffs),
        _ => None,
    });
    for diffs in [&written.diffs, reported.expect("a result")] {
        assert_eq!(diffs.len(), 1, "{}", result.shown());
        assert_eq!((diffs[0].path.as_str(), diffs[0].new.as_str()), (path, "new\n"), "{}", result.shown());
    }
}
