//! Tests values, checks and reasoning on the command line: `--schema`, `--until` with their exit codes, and
//! `--emit-thoughts`.

use crate::acp_gemini::harness::stage;
use agentline_mock::gemini::{GeminiStep, Script};
use agentline_tests::{MODEL, TestStage, needs_real_gemini, real_gemini};
use serde_json::{Value, json};
use std::process::{Command, Stdio};

/// Runs the program, and returns its JSON outcome and exit code.
fn agentline(stage: &TestStage, args: &[&str]) -> (Value, i32) {
    let program = real_gemini().expect("real agents are enabled").path;
    let mut command = Command::new(env!("CARGO_BIN_EXE_agentline-under-test"));
    command.args(["run", "-o", "json", "-m", MODEL, "go"]).args(args);
    command.env_clear().envs(stage.variables()).env("GEMINI_CLI_PATH", program);
    let output = command.current_dir(stage.workspace()).stdin(Stdio::null()).output().expect("it starts");
    let text = String::from_utf8_lossy(&output.stdout);
    let outcome = serde_json::from_str(&text)
        .unwrap_or_else(|why| panic!("{why}: {text}\n{}", String::from_utf8_lossy(&output.stderr)));
    (outcome, output.status.code().unwrap_or(-1))
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
    let (outcome, code) = agentline(&stage, &["--schema", "n.json", "--until", check]);
    assert_eq!((outcome["verdict"].as_str(), code), (Some("done"), 0), "{outcome:#}");
    assert_eq!((&outcome["output"], &outcome["text"]), (&json!({"n": 2}), &json!("Two.")), "{outcome:#}");
    assert_eq!(outcome["surface"], "acp");
    let asked: Vec<String> = stage.model.requests_to_main().iter().map(|r| r.prompt()).collect();
    assert!(asked.last().unwrap().contains("try again"), "{asked:?}");
}

#[test]
fn value_is_printed_to_stdout_in_text_format() {
    needs_real_gemini!();
    let answer = GeminiStep::thought("**Look** I wonder why.").and_text(r#"{"n": 7}"#);
    let stage = stage([("", Script::new([answer]))]);
    stage.file("n.json", r#"{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}"#);
    let program = real_gemini().expect("real agents are enabled").path;
    let mut command = Command::new(env!("CARGO_BIN_EXE_agentline-under-test"));
    command.args(["run", "-m", MODEL, "go", "--schema", "n.json"]).current_dir(stage.workspace());
    command.env_clear().envs(stage.variables()).env("GEMINI_CLI_PATH", program).stdin(Stdio::null());
    let output = command.output().expect("it starts");
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(text.lines().last(), Some(r#"{"n":7}"#), "{text}");
    // Reasoning is shown on request only.
    let beside = String::from_utf8_lossy(&output.stderr);
    assert!(!beside.contains("wonder") && !text.contains("wonder"), "{text}{beside}");
}

#[test]
fn missing_value_is_exit_code_10() {
    needs_real_gemini!();
    let stage = stage([("", Script::always(GeminiStep::text("no idea")))]);
    stage.file("n.json", r#"{"type":"integer"}"#);
    let (outcome, code) = agentline(&stage, &["--schema", "n.json", "--repair-turns", "1"]);
    assert_eq!((outcome["verdict"].as_str(), code), (Some("invalid_output"), 10), "{outcome:#}");
    assert_eq!(
        (&outcome["error"]["kind"], &outcome["error"]["phase"]),
        (&json!("invalid_output"), &json!("response"))
    );
    let message = outcome["error"]["message"].as_str().unwrap();
    assert!(message.contains("no JSON value") && message.contains("no idea"), "{message}");
    assert_eq!(outcome["output"], Value::Null);
}

#[test]
fn reasoning_is_shown_with_the_answer_on_request() {
    needs_real_gemini!();
    let stage =
        stage([("", Script::new([GeminiStep::thought("**Look** I wonder why.").and_text("Because.")]))]);
    let program = real_gemini().expect("real agents are enabled").path;
    let mut command = Command::new(env!("CARGO_BIN_EXE_agentline-under-test"));
    command.args(["run", "-m", MODEL, "why", "--emit-thoughts"]).stdin(Stdio::null());
    command.env_clear().envs(stage.variables()).env("GEMINI_CLI_PATH", program);
    let output = command.current_dir(stage.workspace()).output().expect("it starts");
    let [answer, beside] =
        [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    assert_eq!(answer, "Because.\n", "{beside}");
    assert!(beside.contains("I wonder why."), "{beside}");
}
