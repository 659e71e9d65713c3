//! Tests every key with which engines configure Gemini CLI, from the given map to the behaviour of the real CLI.
//!
//! | key | shown by | how |
//! |---|---|---|
//! | `model` | `model_key_selects_the_model` | the model of the request to the service |
//! | `sandbox` | `sandbox_uses_the_named_program` | the CLI starts a stand-in for `docker` and `podman` |
//! | `approval_mode`, `yolo` | `each_mode_permits_what_is_documented` | which of two files a model can make, for each value |
//! | `include_directories` | `directory_is_included_or_inaccessible` | a file outside is read, and is not without the key |
//! | `allowed_tools`, `disable_tools` | `tools_are_allowed_and_excluded` | the tools that the model is offered |
//! | `working_dir` | `working_dir_key_sets_the_workspace` | where a file lands, and what `pwd` prints |
//! | `timeout`, `timeout_ms` | `run_ends_at_its_timeout` | a model that never answers |
//! | `max_budget_usd`, `max_turns`, `max_output_tokens` | `limits_are_enforced` | a model that never ends |
//! | `apiKey` | `api_key_in_the_map_authenticates` | the header of the request to the service |
//! | `googleCloudProject` | `cloud_project_is_passed_to_the_agent` | what the agent hands on to a shell |
//! | `useVertexAI` | `vertex_ai_key_selects_the_auth_method` | the CLI asks for what Vertex AI needs, and talks to its address |
//! | `mcp_settings_path` | `servers_of_a_settings_file_are_available` | the tools that the model is offered |

use agentline::{Outcome, Verdict, blocking};
use agentline_core::Config;
use agentline_mock::gemini::{GeminiStep, Script};
use agentline_tests::{MODEL, TestStage, needs_real_gemini, shown};
use serde_json::{Value, json};
use std::{fs, time::Duration};

/// Runs the request of an engine's map, in addition to the settings that isolate the test.
fn run(stage: &TestStage, keys: Value) -> Outcome {
    let mut map = json!({"model": MODEL, "working_dir": stage.workspace(), "extensions": [], "timeout": 120});
    for (key, value) in keys.as_object().expect("keys are a map") {
        if key == "timeout_ms" {
            map.as_object_mut().expect("a map").remove("timeout");
        }
        map[key] = value.clone();
    }
    let config = Config::from_map(map.as_object().cloned().expect("a map")).expect("the map is valid");
    assert!(config.notices.is_empty(), "every key is known: {:?}", config.notices);
    let mut request = config.request;
    request.prompt = "go".into();
    blocking::run(&stage.agentline(), request, |_, _| {}).expect("the request is valid")
}

fn done(stage: &TestStage, keys: Value) -> Outcome {
    let outcome = run(stage, keys);
    assert_eq!(outcome.verdict, Verdict::Done, "{}", shown(&outcome));
    outcome
}

fn answering() -> TestStage {
    TestStage::new(Script::always(GeminiStep::text("ok")))
}

fn offered(stage: &TestStage) -> Vec<String> {
    stage.model.requests_to_main().last().expect("a request").offered_tools()
}

fn shell(command: &str) -> GeminiStep {
    GeminiStep::call("run_shell_command", json!({"command": command, "description": "d"}))
}

#[test]
fn model_key_selects_the_model() {
    needs_real_gemini!();
    let stage = answering();
    let outcome = done(&stage, json!({"model": "gemini-2.5-flash-lite"}));
    assert_eq!(stage.model.requests_to_main()[0].model, "gemini-2.5-flash-lite", "{}", shown(&outcome));
}

#[test]
fn each_mode_permits_what_is_documented() {
    needs_real_gemini!();
    for (keys, writes, runs) in [
        (json!({}), false, false),
        (json!({"approval_mode": "default"}), false, false),
        (json!({"approval_mode": "suggest"}), false, false),
        (json!({"approval_mode": "plan"}), false, false),
        (json!({"approval_mode": "auto_edit"}), true, false),
        (json!({"approval_mode": "yolo"}), true, true),
        (json!({"approval_mode": "full_auto"}), true, true),
        (json!({"yolo": true}), true, true),
        (json!({"yolo": true, "approval_mode": "yolo"}), true, true),
        (json!({"yolo": false, "approval_mode": "auto_edit"}), true, false),
    ] {
        let stage = TestStage::new(Script::new([
            GeminiStep::call("write_file", json!({"file_path": "written.txt", "content": "x"})),
            shell("touch made.txt"),
            GeminiStep::text("done"),
        ]));
        let outcome = run(&stage, keys.clone());
        let made = (stage.read("written.txt").is_some(), stage.read("made.txt").is_some());
        assert_eq!(made, (writes, runs), "{keys}: {}", shown(&outcome));
        let verdict = if writes && runs { Verdict::Done } else { Verdict::DoneWithDenials };
        assert_eq!(outcome.verdict, verdict, "{keys}: {}", shown(&outcome));
    }
}

#[test]
fn directory_is_included_or_inaccessible() {
    needs_real_gemini!();
    let outside = tempfile::tempdir().expect("a folder");
    let real = outside.path().canonicalize().expect("a path");
    fs::write(real.join("x.txt"), "from outside").expect("a file");
    for included in [true, false] {
        let read = GeminiStep::call("read_file", json!({"file_path": real.join("x.txt")}));
        let stage = TestStage::new(Script::new([read, GeminiStep::text("done")]));
        let folders = if included { vec![real.clone()] } else { Vec::new() };
        let outcome = run(&stage, json!({"include_directories": folders}));
        let response = stage.model.requests_to_main()[1].tool_responses()[0].1.to_string();
        assert_eq!(response.contains("from outside"), included, "{response} {}", shown(&outcome));
    }
}

#[test]
fn tools_are_allowed_and_excluded() {
    needs_real_gemini!();
    let stage = answering();
    let has = |name: &str| offered(&stage).iter().any(|tool| tool == name);
    done(&stage, json!({}));
    assert!(has("glob") && !has("write_file") && !has("run_shell_command"), "{:?}", offered(&stage));
    let keys = json!({"allowed_tools": ["write_file", "ShellTool(echo)"], "disable_tools": ["glob"]});
    done(&stage, keys);
    assert!(!has("glob") && has("write_file") && has("run_shell_command"), "{:?}", offered(&stage));
}

#[test]
fn working_dir_key_sets_the_workspace() {
    needs_real_gemini!();
    let stage = TestStage::new(Script::new([
        GeminiStep::call("write_file", json!({"file_path": "here.txt", "content": "x"})),
        shell("pwd"),
        GeminiStep::text("done"),
    ]));
    stage.file("deep/er/old.txt", "old");
    let folder = stage.workspace().join("deep/er").canonicalize().expect("a path");
    let outcome = done(&stage, json!({"working_dir": folder, "yolo": true}));
    assert_eq!(stage.read("deep/er/here.txt").as_deref(), Some("x"), "{}", shown(&outcome));
    assert_eq!(outcome.files[0].path, "here.txt", "{}", shown(&outcome));
    let printed =
        stage.model.requests_to_main()[2].tool_responses().last().expect("a response").1.to_string();
    assert!(printed.contains(&*folder.to_string_lossy()), "{printed}");
}

#[test]
fn run_ends_at_its_timeout() {
    needs_real_gemini!();
    for keys in [json!({"timeout": 6}), json!({"timeout_ms": 6000})] {
        let stage = TestStage::new(Script::always(GeminiStep::hang()));
        let outcome = run(&stage, keys.clone());
        assert_eq!(outcome.verdict, Verdict::TimedOut, "{keys}: {}", shown(&outcome));
        let message = outcome.error.as_ref().expect("a reason").message.clone();
        assert!(message.contains("6 s"), "{keys}: {message}");
        let took = Duration::from_millis(outcome.duration_ms);
        assert!(took >= Duration::from_secs(6) && took < Duration::from_secs(60), "{keys}: {took:?}");
    }
}

#[test]
fn limits_are_enforced() {
    needs_real_gemini!();
    let endless = || TestStage::new(Script::always(shell("sleep 0.3")));
    let stage = endless();
    let outcome = run(&stage, json!({"yolo": true, "max_turns": 2, "max_output_tokens": 4321}));
    assert_eq!(outcome.verdict, Verdict::LimitReached, "{}", shown(&outcome));
    let requests = stage.model.requests_to_main();
    assert_eq!(requests.len(), 2, "turn 3 was never requested");
    assert_eq!(requests[0].body["generationConfig"]["maxOutputTokens"], 4321);

    for (key, value) in [("max_budget_usd", json!(0.000_001)), ("max_output_tokens", json!(1))] {
        let stage = endless();
        let outcome = run(&stage, json!({"yolo": true, key: value}));
        assert_eq!(outcome.verdict, Verdict::LimitReached, "{key}: {}", shown(&outcome));
        assert!(stage.model.requests_to_main().len() < 20, "{key}: the run was stopped");
    }
}

#[test]
fn api_key_in_the_map_authenticates() {
    needs_real_gemini!();
    let stage = answering().env("GEMINI_API_KEY", None);
    stage.settings("{}");
    let outcome = done(&stage, json!({"apiKey": "key-of-the-engine"}));
    assert_eq!(stage.model.requests_to_main()[0].headers["x-goog-api-key"], "key-of-the-engine");
    assert!(!shown(&outcome).contains("key-of-the-engine"));
}

#[test]
fn cloud_project_is_passed_to_the_agent() {
    needs_real_gemini!();
    let stage =
        TestStage::new(Script::new([shell("echo project=$GOOGLE_CLOUD_PROJECT."), GeminiStep::text("done")]));
    done(&stage, json!({"yolo": true, "googleCloudProject": "project-of-the-engine"}));
    let printed = stage.model.requests_to_main()[1].tool_responses()[0].1.to_string();
    assert!(printed.contains("project=project-of-the-engine."), "{printed}");
}

#[test]
fn vertex_ai_key_selects_the_auth_method() {
    needs_real_gemini!();
    // Whatever the user's settings are, the run requests what Vertex AI needs, which is missing here.
    let stage = answering();
    let outcome = run(&stage, json!({"useVertexAI": true}));
    assert_eq!(outcome.verdict, Verdict::NotAuthenticated, "{}", shown(&outcome));
    assert!(outcome.stderr_tail.contains("Vertex"), "{}", shown(&outcome));
    assert!(stage.model.requests().is_empty(), "the key was not used");
    // With a key, the request uses the Vertex AI service.
    let url = stage.model.url();
    let stage =
        stage.env("GOOGLE_API_KEY", Some("key-of-vertex-ai")).env("GOOGLE_VERTEX_BASE_URL", Some(&url));
    let outcome = done(&stage, json!({"useVertexAI": true}));
    let request = &stage.model.requests_to_main()[0];
    assert!(request.path.contains("publishers/google"), "{} {}", request.path, shown(&outcome));
    assert_eq!(request.headers["x-goog-api-key"], "key-of-vertex-ai");
}

#[test]
fn servers_of_a_settings_file_are_available() {
    needs_real_gemini!();
    let stage = answering();
    let server = stage.outside().join("server.js");
    fs::write(&server, SERVER).expect("a file");
    let file = stage.outside().join("mcp.json");
    let settings = json!({"mcpServers": {"filed": {"command": "node", "args": [server]}}});
    fs::write(&file, settings.to_string()).expect("a file");
    done(&stage, json!({"mcp_settings_path": file}));
    assert!(offered(&stage).contains(&"mcp_filed_shout".to_owned()), "{:?}", offered(&stage));
}

/// An MCP server with one tool, in the language of the agent's runtime.
const SERVER: &str = r#"
require("readline").createInterface({ input: process.stdin }).on("line", line => {
  const { id, method, params } = JSON.parse(line);
  if (id === undefined) return;
  const result = {
    "initialize": { protocolVersion: params?.protocolVersion, capabilities: { tools: {} }, serverInfo: { name: "s", version: "1" } },
    "tools/list": { tools: [{ name: "shout", description: "d", inputSchema: { type: "object", properties: {} } }] },
  }[method] ?? {};
  process.stdout.write(JSON.stringify({ jsonrpc: "2.0", id, result }) + "\n");
});
"#;

#[cfg(unix)]
#[test]
fn sandbox_uses_the_named_program() {
    use std::os::unix::fs::PermissionsExt as _;
    needs_real_gemini!();
    // Records the arguments with which the agent calls a sandbox program. No installed one is started.
    for (sandbox, maker) in
        [(json!(true), "docker"), (json!("docker"), "docker"), (json!("podman"), "podman")]
    {
        let stage = answering();
        let (folder, asked) = (stage.outside().join("bin"), stage.outside().join("asked"));
        fs::create_dir(&folder).expect("a folder");
        for name in ["docker", "podman"] {
            let stand_in = format!("#!/bin/sh\necho {name} \"$@\" >> '{}'\nexit 3\n", asked.display());
            fs::write(folder.join(name), stand_in).expect("a file");
            fs::set_permissions(folder.join(name), fs::Permissions::from_mode(0o755)).expect("a program");
        }
        let path = format!("{}:{}", folder.display(), stage.variables()["PATH"]);
        let stage = stage.env("PATH", Some(&path));
        let outcome = run(&stage, json!({"sandbox": sandbox}));
        let heard = fs::read_to_string(&asked).unwrap_or_default();
        assert!(heard.starts_with(&format!("{maker} ")), "{sandbox}: `{heard}` {}", shown(&outcome));
        assert_eq!(outcome.verdict, Verdict::Failed, "{sandbox}: {}", shown(&outcome));
        assert!(stage.model.requests().is_empty(), "{sandbox}: nothing ran without it");
    }
    let stage = answering();
    done(&stage, json!({"sandbox": false}));
}
