//! Runs a program that was written for Claude's SDK on Gemini CLI, unchanged except for the path of the executable.

use agentline_mock::gemini::{GeminiStep, Script};
use agentline_tests::{ClaudeSdk, MODEL, TestStage, needs_real_gemini, real_gemini};
use serde_json::Value;
use std::{fs, path::Path, process::Command};

const BRIDGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/examples/claude-agent-sdk.mjs");

/// A typical program for Claude Code.
const CONSUMER: &str = "
import { query } from '@anthropic-ai/claude-agent-sdk';
const [bridge, cwd, model] = process.argv.slice(2);
const options = { pathToClaudeCodeExecutable: bridge, cwd, model, permissionMode: 'acceptEdits', env: process.env };
for await (const message of query({ prompt: 'Say hello', options })) console.log(JSON.stringify(message));
";

#[test]
fn sdk_query_drives_gemini() {
    needs_real_gemini!();
    let Some(sdk) = ClaudeSdk::find() else { return };
    let file = serde_json::json!({"file_path": "hello.txt", "content": "hello\n"});
    let stage = TestStage::new(Script::new([
        GeminiStep::text("I write it.").and_call("write_file", file),
        GeminiStep::text("Hello from another agent."),
    ]));
    let consumer = sdk.folder().join("consumer.mjs");
    fs::write(&consumer, CONSUMER).unwrap();
    let gemini = real_gemini().expect("it is needed").path;
    let mut command = Command::new(sdk.node());
    command.arg(&consumer).arg(Path::new(BRIDGE)).arg(stage.workspace()).arg(MODEL);
    command.env_clear().envs(stage.variables());
    command.env("GEMINI_CLI_PATH", gemini).env("AGENTLINE_BIN", env!("CARGO_BIN_EXE_agentline-under-test"));
    let done = sdk.run(&mut command);
    let output =
        format!("{}{}", String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    let lines = String::from_utf8(done.stdout).unwrap();
    let messages: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).expect(&output)).collect();
    let types: Vec<&str> = messages.iter().map(|m| m["type"].as_str().unwrap()).collect();
    assert_eq!(types, ["system", "assistant", "assistant", "user", "assistant", "result"], "{output}");
    assert_eq!(
        (&messages[0]["subtype"], &messages[0]["permissionMode"]),
        (&"init".into(), &"acceptEdits".into())
    );
    assert_eq!(messages[2]["message"]["content"][0]["name"], "Write");
    let result = &messages[5];
    assert_eq!(
        (&result["subtype"], &result["result"]),
        (&"success".into(), &"Hello from another agent.".into())
    );
    assert!(result["usage"]["input_tokens"].as_u64().is_some_and(|n| n > 0), "{result}");
    assert_eq!(stage.read("hello.txt").as_deref(), Some("hello\n"));
}
