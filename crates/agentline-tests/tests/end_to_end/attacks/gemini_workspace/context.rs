//! Checks that the agent's own tools read the files of a workspace that do not take effect.

use agentline::{Surface, Verdict};
use agentline_mock::gemini::{GeminiStep, Script};
use agentline_tests::{TestStage, needs_real_gemini, shown};
use serde_json::json;

#[test]
fn agent_tools_can_still_read_workspace_files() {
    needs_real_gemini!();
    // The CLI itself lets no tool read `.env`.
    let calls = [".gemini/settings.json", ".gemini/commands/own.toml"]
        .map(|path| ("read_file", json!({"file_path": path})));
    let stage = TestStage::new(Script::new([GeminiStep::calls(calls), GeminiStep::text("read")]));
    stage.file(".gemini/settings.json", r#"{"model": {"name": "one-line"}}"#);
    stage.file(".gemini/commands/own.toml", "prompt = \"two-line\"\n");
    let outcome = stage.outcome(stage.request("Read them.").surface(Surface::StreamJson));
    assert_eq!(outcome.verdict, Verdict::Done, "{}", shown(&outcome));
    let body = stage.model.requests_to_main().pop().unwrap().body.to_string();
    for line in ["one-line", "two-line"] {
        assert!(body.contains(line), "{line} was not read: {body}");
    }
}
