//! Tests the package for Node.js: its own tests with a fake agent and with the real Gemini CLI, using the built
//! program, and the compiler on its types and on the values of those runs.
#![expect(clippy::unwrap_used, reason = "test helpers may panic")]

use crate::clients::tool_values;
use agentline_mock::gemini::{GeminiModel, GeminiStep, Script};
use agentline_tests::{
    FakeStage, MODEL, TestStage, TypeScript, needs_real_gemini, real_gemini, skipped, survivors, wait_until,
};
use serde_json::json;
use std::{collections::BTreeMap, path::Path, process::Command};

const PACKAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../integrations/typescript");

/// Runs test files of the package one after the other, because they look for live processes.
fn play(files: &[&str], workspace: &Path, variables: &BTreeMap<String, String>) {
    let Some(typescript) = TypeScript::find() else {
        return skipped(&format!("{files:?} of the package for Node.js"));
    };
    let done = Command::new(typescript.node())
        .args(["--test", "--test-concurrency=1"])
        .args(files.iter().map(|file| format!("{PACKAGE}/test/{file}.test.mjs")))
        .env_clear()
        .envs(variables)
        .env("AGENTLINE_BIN", env!("CARGO_BIN_EXE_agentline-under-test"))
        .env("MODULES", typescript.modules())
        .current_dir(workspace)
        .output()
        .unwrap();
    let stdout = String::from_utf8_lossy(&done.stdout);
    assert!(done.status.success(), "{files:?}\n{stdout}\n{}", String::from_utf8_lossy(&done.stderr));
}

/// Runs test files, and then compiles the values that were received, which must contain all of these types.
fn play_and_compile(files: &[&str], workspace: &Path, mut variables: BTreeMap<String, String>, types: &str) {
    let samples = tempfile::tempdir().unwrap();
    variables.insert("SAMPLES".into(), samples.path().to_string_lossy().into_owned());
    variables.insert("EXPECTED_SAMPLES".into(), types.to_owned());
    play(files, workspace, &variables);
    play(&["samples"], workspace, &variables);
}

/// Asserts that no process with the mark remains.
fn nothing_left(mark: &str) {
    wait_until("the end of all processes", || survivors(mark).is_empty());
}

/// The model's answers to each prompt of the tests and of the README.
fn model() -> GeminiModel {
    let hello = || json!({"file_path": "hello.txt", "content": "hello\n"});
    let weather = || {
        Script::new([
            GeminiStep::call("run_shell_command", json!({"command": "rm -rf build"})),
            GeminiStep::call("mcp_agentline_weather", json!({"city": "Paris"})),
            GeminiStep::call("mcp_agentline_structured_output", json!({"data": {"degrees": 21}})),
            GeminiStep::text("It is mild."),
        ])
    };
    GeminiModel::matching([
        (
            "Say hello",
            Script::new([
                GeminiStep::call("write_file", hello()),
                GeminiStep::text("Hello! {\"greeting\": \"hello\"}"),
            ]),
        ),
        (
            "Write hello.txt",
            Script::new([GeminiStep::call("write_file", hello()), GeminiStep::text("It is written.")]),
        ),
        ("weather in Paris", weather()),
        ("Use every value", Script::new([tool_values::call_all(), GeminiStep::text("I have them.")])),
        ("My name is Ada", Script::always(GeminiStep::text("Good day, Ada."))),
        ("What is my name", Script::always(GeminiStep::text("Ada"))),
        (
            "Wait for me",
            Script::always(GeminiStep::call("run_shell_command", json!({"command": "sleep 621"}))),
        ),
        ("Exceed the quota", Script::always(GeminiStep::daily_quota())),
        ("", Script::always(GeminiStep::text("Hm."))),
    ])
    .unwrap()
}

/// Creates an environment of the real agent with everything that a Node.js program needs.
fn real_stage() -> (TestStage, BTreeMap<String, String>, String) {
    let stage = TestStage::with_model(model());
    let mark = stage.outside().to_string_lossy().into_owned();
    let mut variables = stage.variables().clone();
    let gemini = real_gemini().unwrap().path;
    variables.insert("GEMINI_CLI_PATH".into(), gemini.to_string_lossy().into_owned());
    variables.insert("AGENTLINE_MODEL".into(), MODEL.into());
    variables.insert("MARK_OF_THE_TEST".into(), mark.clone());
    (stage, variables, format!("MARK_OF_THE_TEST={mark}"))
}

#[test]
fn on_a_fake_agent() {
    let stage = FakeStage::new(env!("CARGO_BIN_EXE_fake-acp"));
    let types = "Outcome RunEvent ClaudeMessage PermissionAsk CheckQuestion PoolStatus RunRetry Problem AgentInfo \
                 AgentCapabilities ExecuteResult<any> SdkMessage ToolCapabilities";
    play_and_compile(&["fake", "options", "agent-cli"], &stage.workspace(), stage.variables(), types);
    nothing_left(&stage.mark());
}

#[test]
fn on_the_real_gemini_cli() {
    needs_real_gemini!();
    let (stage, variables, mark) = real_stage();
    let types = "Outcome RunEvent SdkMessage PermissionAsk ToolCapabilities ExecuteResult<any> SessionSummary \
                 LoadedSession LoadedSession<T.ClaudeMessage> SearchResult";
    play_and_compile(&["real"], &stage.workspace(), variables, types);
    nothing_left(&mark);
    tool_values::assert_received(&stage.model);
}

#[test]
fn documented_examples_run_on_the_real_gemini_cli() {
    needs_real_gemini!();
    let (stage, variables, mark) = real_stage();
    play(&["readme"], &stage.workspace(), &variables);
    nothing_left(&mark);
}

#[test]
fn typescript_types_match_the_program() {
    let folder = tempfile::tempdir().unwrap();
    let path = std::env::var("PATH").unwrap_or_default();
    play(&["types"], folder.path(), &BTreeMap::from([("PATH".to_owned(), path)]));
    let package = std::fs::read(format!("{PACKAGE}/package.json")).unwrap();
    let package: serde_json::Value = serde_json::from_slice(&package).unwrap();
    assert_eq!(package["version"], env!("CARGO_PKG_VERSION"), "the package has the version of the program");
    assert!(package.get("dependencies").is_none() && package.get("scripts").is_none(), "{package}");
}
