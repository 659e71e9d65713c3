//! What the stories share: a stage whose model answers each prompt by its own script.

use agentline::{PermissionMode, RunRequest, Session};
use agentline_mock::gemini::{GeminiModel, GeminiStep, Script};
pub(crate) use agentline_tests::RunRecord;
use agentline_tests::TestStage;
use serde_json::{Value, json};

/// A stage whose model answers each prompt by the first script whose words stand in it.
pub(crate) fn stage<'a>(scripts: impl IntoIterator<Item = (&'a str, Script)>) -> TestStage {
    TestStage::with_model(GeminiModel::matching(scripts).expect("a free port on loopback"))
}

/// A script for one prompt: these calls in one turn, then a word.
pub(crate) fn calling<N: Into<String>>(calls: impl IntoIterator<Item = (N, Value)>) -> Script {
    Script::new([GeminiStep::calls(calls), GeminiStep::text("said")])
}

/// A call that writes a file.
pub(crate) fn write(path: &str) -> (&'static str, Value) {
    ("write_file", json!({"file_path": path, "content": "new\n"}))
}

/// A call that runs a command.
pub(crate) fn command(text: &str) -> (&'static str, Value) {
    ("run_shell_command", json!({"command": text, "description": "d"}))
}

/// A request in a mode.
pub(crate) fn in_mode(stage: &TestStage, mode: PermissionMode) -> RunRequest {
    stage.request("").permission_mode(mode)
}

/// Says something in a conversation and reads the run to its end.
pub(crate) async fn say(session: &Session, request: RunRequest, prompt: &str) -> RunRecord {
    let mut request = request;
    request.prompt = prompt.into();
    RunRecord::of(session.prompt_with(request).await.expect("a good request")).await
}
