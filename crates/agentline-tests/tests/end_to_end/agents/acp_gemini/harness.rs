//! Helpers for these tests: an environment whose model answers each prompt with its own script.

use agentline::{PermissionMode, RunRequest, Session};
use agentline_mock::gemini::{GeminiModel, GeminiStep, Script};
pub(crate) use agentline_tests::RunRecord;
use agentline_tests::TestStage;
use serde_json::{Value, json};

/// Settings of a user who forbids the bypass mode.
pub(crate) const SETTINGS_WITHOUT_BYPASS: &str =
    r#"{"security": {"disableYoloMode": true, "auth": {"selectedType": "gemini-api-key"}}}"#;

/// Creates an environment whose model answers each prompt with the first script whose words it contains.
pub(crate) fn stage<'a>(scripts: impl IntoIterator<Item = (&'a str, Script)>) -> TestStage {
    TestStage::with_model(GeminiModel::matching(scripts).expect("a free port on loopback"))
}

/// Returns a script for one prompt: these calls in one turn, then a text.
pub(crate) fn calling<N: Into<String>>(calls: impl IntoIterator<Item = (N, Value)>) -> Script {
    Script::new([GeminiStep::calls(calls), GeminiStep::text("said")])
}

/// Returns a call that writes a file.
pub(crate) fn write(path: &str) -> (&'static str, Value) {
    ("write_file", json!({"file_path": path, "content": "new\n"}))
}

/// Returns a call that runs a command.
pub(crate) fn command(text: &str) -> (&'static str, Value) {
    ("run_shell_command", json!({"command": text, "description": "d"}))
}

/// Returns a request in a permission mode.
pub(crate) fn in_mode(stage: &TestStage, mode: PermissionMode) -> RunRequest {
    stage.request("").permission_mode(mode)
}

/// Sends a prompt in a conversation and reads the run to its end.
pub(crate) async fn send_prompt(session: &Session, request: RunRequest, prompt: &str) -> RunRecord {
    let mut request = request;
    request.prompt = prompt.into();
    RunRecord::of(session.prompt_with(request).await.expect("a valid request")).await
}
