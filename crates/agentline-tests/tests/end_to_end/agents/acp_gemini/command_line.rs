//! Tests values and checks on the command line: `--schema` and `--until`. `acp_agents::configured` tests how values and
//! reasoning are printed, which does not depend on the agent.

use crate::agents::acp_gemini::harness::stage;
use agentline_mock::gemini::{GeminiStep, Script};
use agentline_tests::{MODEL, TestStage, needs_real_gemini, real_gemini};
use serde_json::json;
use std::process::{Command, Stdio};

/// Runs the program, and returns its standard output, standard error and exit code.
fn agentline(stage: &TestStage, args: &[&str]) -> (String, String, i32) {
    let program = real_gemini().expect("real agents are enabled").path;
    let mut command = Command::new(env!("CARGO_BIN_EXE_agentline-under-test"));
    command.args(["run", "-m", MODEL, "go"]).args(args);
    command.env_clear().envs(stage.variables()).env("GEMINI_CLI_PATH", program);
    let output = command.current_dir(stage.workspace()).stdin(Stdio::null()).output().expect("it starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr), output.status.code().unwrap_or(-1))
}

#[test]
fn schema_and_check_are_passed_as_flags() {
    needs_real_gemini!();
    let hand_in = |n: u8| GeminiStep::call("mcp_agentline_structured_output", json!({"data": {"n": n}}));
    let stage = stage([
        ("not complete", Script::new([hand_in(2), GeminiStep::text("Two.")])),
        ("", Script::new([hand_in(1), GeminiStep::text("One.")])),
    ]);
    stage.file("n.json", r#"{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}"#);
    // The check passes the second time.
    let check = "test -e tried || { touch tried; echo try again; exit 1; }";
    let (out, err, code) = agentline(&stage, &["--schema", "n.json", "--until", check]);
    // Standard output has the value and nothing else, not even the text around it.
    assert_eq!((out.as_str(), code), ("{\"n\":2}\n", 0), "{err}");
    let prompts: Vec<String> = stage.model.requests_to_main().iter().map(|r| r.prompt()).collect();
    assert!(prompts.last().unwrap().contains("try again"), "{prompts:?}");
}
