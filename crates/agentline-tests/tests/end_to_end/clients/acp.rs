//! Tests `agentline acp` with the client of the public TypeScript SDK, with `acpx` and with real agents on scripted models:
//! one that speaks ACP, and one whose own surface is translated.
#![expect(clippy::unwrap_used, reason = "test helpers may panic")]

mod command_line;
mod slow_editor;
mod web_socket;

use crate::agents::acp_agents::harness::{CODEX, CODEX_NATIVE, stage};
use agentline_mock::{
    gemini::{GeminiModel, GeminiStep, Script},
    scripted::ModelStep,
};
use agentline_tests::{
    AcpSdk, MODEL, TestStage, acpx, needs_real_gemini, output_of, real_gemini, skipped, survivors, wait_until,
};
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    path::Path,
    process::{Command, Stdio},
};

const CLIENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/end_to_end/clients/acp/client.mjs");
const PROGRAM: &str = env!("CARGO_BIN_EXE_agentline-under-test");

/// Plays a prompt with the SDK's client, and returns what the client has seen.
fn play(sdk: &AcpSdk, args: &[&str], workspace: &Path, variables: &BTreeMap<String, String>) -> Value {
    let mut command = Command::new(sdk.node());
    command.args([CLIENT, "Do it", PROGRAM, "acp"]).args(args).current_dir(workspace);
    command.env_clear().envs(variables).env("MODULES", sdk.modules());
    seen_by(command)
}

/// Runs a client of the SDK, and returns the JSON that it prints.
fn seen_by(mut client: Command) -> Value {
    client.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let done = output_of(client.spawn().unwrap(), "the client of the SDK");
    let stdout = String::from_utf8_lossy(&done.stdout);
    assert!(done.status.success(), "{stdout}\n{}", String::from_utf8_lossy(&done.stderr));
    serde_json::from_str(&stdout).unwrap()
}

/// Returns the text of the agent in these updates.
fn texts(updates: &Value) -> String {
    let updates = updates.as_array().unwrap();
    let chunks = updates.iter().filter(|update| update["sessionUpdate"] == "agent_message_chunk");
    chunks.filter_map(|chunk| chunk["content"]["text"].as_str()).collect()
}

#[test]
fn sdk_drives_the_real_gemini_cli_through_the_proxy() {
    needs_real_gemini!();
    let Some(sdk) = AcpSdk::find() else { return skipped("the SDK of ACP") };
    let write = |path: &str| GeminiStep::call("write_file", json!({"file_path": path, "content": "new\n"}));
    let script = Script::new([write("made.txt"), write("free.txt"), GeminiStep::text("It is written.")]);
    let stage = TestStage::with_model(GeminiModel::matching([("Do it", script)]).unwrap());
    let variables = gemini_variables(&stage);
    let args = ["--allow", "Write(free.txt)", "--", "gemini"];
    let seen = play(&sdk, &args, &stage.workspace(), &variables);
    assert_eq!((&seen["answer"]["stopReason"], &seen["exit"]), (&json!("end_turn"), &json!(0)), "{seen}");
    assert!(texts(&seen["updates"]).contains("It is written."), "{seen}");
    assert_eq!(seen["asked"].as_array().unwrap().len(), 1, "the rule decides on the other file: {seen}");
    let files = seen["answer"]["_meta"]["agentline"]["files"].as_array().unwrap();
    let paths: Vec<_> = files.iter().map(|file| file["path"].as_str().unwrap()).collect();
    assert_eq!(paths, ["free.txt", "made.txt"], "{seen}");
    nothing_left(&stage.home());
}

#[test]
fn acpx_drives_the_real_gemini_cli_through_the_proxy() {
    needs_real_gemini!();
    let Some(mut client) = acpx() else { return skipped("acpx") };
    let write = GeminiStep::call("write_file", json!({"file_path": "made.txt", "content": "new\n"}));
    let script = Script::new([write, GeminiStep::text("It is written.")]);
    let stage = TestStage::with_model(GeminiModel::matching([("Do it", script)]).unwrap());
    let variables = gemini_variables(&stage);
    let agent = format!("{PROGRAM} acp -- gemini");
    client.args(["--agent", &agent, "--approve-all", "--format", "json", "exec", "Do it"]);
    client.current_dir(stage.workspace()).env_clear().envs(&variables).stdin(Stdio::null());
    let done =
        output_of(client.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap(), "the end of acpx");
    let stdout = String::from_utf8_lossy(&done.stdout);
    assert!(done.status.success(), "{stdout}\n{}", String::from_utf8_lossy(&done.stderr));
    // The client prints all messages of both sides.
    let messages: Vec<Value> = stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let asks = |message: &&Value| message["method"] == "session/request_permission";
    assert_eq!(messages.iter().filter(asks).count(), 1, "{stdout}");
    assert!(!stdout.contains("_agentline/"), "a report of a script to agentline: {stdout}");
    assert!(stdout.contains("It is written."), "{stdout}");
    let answer = messages.iter().find(|message| message["result"]["stopReason"] == "end_turn").unwrap();
    assert_eq!(answer["result"]["_meta"]["agentline"]["files"][0]["path"], "made.txt", "{answer}");
    assert!(stage.workspace().join("made.txt").is_file());
    nothing_left(&stage.home());
}

/// Waits until no process has this home.
fn nothing_left(home: &Path) {
    let mark = format!("HOME={}", home.display());
    wait_until("the end of all processes", || survivors(&mark).is_empty());
}

/// Returns the variables with which the program finds the real Gemini CLI and its scripted model.
fn gemini_variables(stage: &TestStage) -> BTreeMap<String, String> {
    let mut variables = stage.variables().clone();
    variables.insert("GEMINI_CLI_PATH".into(), real_gemini().unwrap().path.to_string_lossy().into_owned());
    variables.insert("AGENTLINE_MODEL".into(), MODEL.into());
    variables
}

#[test]
fn sdk_drives_the_real_codex_whose_surface_is_translated() {
    let Some(sdk) = AcpSdk::find() else { return skipped("the SDK of ACP") };
    let steps = vec![CODEX.shell("touch by-shell.txt"), ModelStep::text("All done.")];
    let stage = stage!(CODEX_NATIVE, vec![("Do it", steps)]);
    let mut variables = stage.stage.variables().clone();
    let program = stage.stage.agent.program.to_string_lossy().into_owned();
    variables.insert("CODEX_CLI_PATH".into(), program);
    // The default mode of this agent cannot write.
    let args = ["--permission-mode", "bypass", "--", "codex"];
    let seen = play(&sdk, &args, &stage.stage.workspace(), &variables);
    assert_eq!((&seen["answer"]["stopReason"], &seen["exit"]), (&json!("end_turn"), &json!(0)), "{seen}");
    assert!(texts(&seen["updates"]).contains("All done."), "{seen}");
    assert_eq!(seen["modes"]["currentModeId"], "bypass", "{seen}");
    let updates = seen["updates"].as_array().unwrap();
    assert!(updates.iter().any(|update| update["kind"] == "execute"), "{seen}");
    let files = &seen["answer"]["_meta"]["agentline"]["files"];
    assert_eq!(files[0]["path"], "by-shell.txt", "{seen}");
}
