//! Tests every key with which engines configure Gemini CLI, from the given map to the behavior of the real CLI.
//!
//! | key | shown by | how |
//! |---|---|---|
//! | `model` | `model_key_workspace_project_and_servers_reach_the_agent` | the model of the request to the service |
//! | `sandbox` | `sandbox_uses_the_named_program` | the CLI starts a stand-in for `docker` and `podman` |
//! | `approval_mode`, `yolo` | `each_mode_permits_what_is_documented` | which of two files a model can create, for each value |
//! | `include_directories` | `directory_is_included_or_inaccessible` | a file outside is read, and is not without the key |
//! | `allowed_tools`, `disable_tools` | `tools_are_allowed_and_excluded` | the tools that the model is offered |
//! | `working_dir` | `model_key_workspace_project_and_servers_reach_the_agent` | where a file lands, and what `pwd` prints |
//! | `timeout`, `timeout_ms` | `run_ends_at_its_timeout` | a model that never answers |
//! | `max_budget_usd`, `max_turns`, `max_output_tokens` | `limits_are_enforced` | a model that never ends |
//! | `apiKey` | `model_key_workspace_project_and_servers_reach_the_agent` | the header of the request to the service |
//! | `googleCloudProject` | `model_key_workspace_project_and_servers_reach_the_agent` | what the agent passes to a shell |
//! | `useVertexAI` | `vertex_ai_key_selects_the_auth_method` | the CLI requires Vertex AI's variables and uses its address |
//! | `mcp_settings_path` | `model_key_workspace_project_and_servers_reach_the_agent` | the tools that the model is offered |

use agentline::{Outcome, RunRequest, Verdict, blocking};
use agentline_core::{Config, Sandbox};
use agentline_mock::gemini::{GeminiStep, Script};
use agentline_tests::{MODEL, TestStage, needs_real_gemini, shown};
use serde_json::{Value, json};
use std::{fs, time::Duration};

/// Returns the request of an engine's map, in addition to the settings that isolate the test.
fn request(stage: &TestStage, keys: &Value) -> RunRequest {
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
    request
}

fn run(stage: &TestStage, keys: Value) -> Outcome {
    blocking::run(&stage.agentline(), request(stage, &keys), |_, _| {}).expect("the request is valid")
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
fn each_mode_permits_what_is_documented() {
    needs_real_gemini!();
    // Each value that is not run means the same as one that is.
    for (keys, same, writes, runs) in [
        (
            json!({}),
            &[json!({"approval_mode": "default"}), json!({"approval_mode": "suggest"})][..],
            false,
            false,
        ),
        (json!({"approval_mode": "plan"}), &[], false, false),
        (
            json!({"approval_mode": "auto_edit"}),
            &[json!({"yolo": false, "approval_mode": "auto_edit"})],
            true,
            false,
        ),
        (
            json!({"approval_mode": "yolo"}),
            &[
                json!({"approval_mode": "full_auto"}),
                json!({"yolo": true}),
                json!({"yolo": true, "approval_mode": "yolo"}),
            ],
            true,
            true,
        ),
    ] {
        let stage = TestStage::new(Script::new([
            GeminiStep::call("write_file", json!({"file_path": "written.txt", "content": "x"})),
            shell("touch made.txt"),
            GeminiStep::text("done"),
        ]));
        for other in same {
            let [one, two] = [&keys, other].map(|keys| format!("{:?}", request(&stage, keys)));
            assert_eq!(one, two, "{keys} and {other}");
        }
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
fn run_ends_at_its_timeout() {
    needs_real_gemini!();
    let stage = TestStage::new(Script::always(GeminiStep::hang()));
    let [seconds, keys] = [json!({"timeout": 6}), json!({"timeout_ms": 6000})];
    let same = [&seconds, &keys].map(|keys| format!("{:?}", request(&stage, keys)));
    assert_eq!(same[0], same[1]);
    let outcome = run(&stage, keys);
    assert_eq!(outcome.verdict, Verdict::TimedOut, "{}", shown(&outcome));
    let message = outcome.error.as_ref().expect("a reason").message.clone();
    assert!(message.contains("6 s"), "{message}");
    let took = Duration::from_millis(outcome.duration_ms);
    assert!(took >= Duration::from_secs(6) && took < Duration::from_secs(60), "{took:?}");
}

#[test]
fn limits_are_enforced() {
    needs_real_gemini!();
    let stage = TestStage::new(Script::always(shell("sleep 0.3")));
    let outcome = run(&stage, json!({"yolo": true, "max_turns": 2, "max_output_tokens": 4321}));
    assert_eq!(outcome.verdict, Verdict::LimitReached, "{}", shown(&outcome));
    let requests = stage.model.requests_to_main();
    assert_eq!(requests.len(), 2, "turn 3 was never requested");
    assert_eq!(requests[0].body["generationConfig"]["maxOutputTokens"], 4321);

    // Both are limits of the request; `max_cost` and `max_output_tokens` on tapes show that they end a run.
    let limits = request(&stage, &json!({"max_budget_usd": 0.25, "max_output_tokens": 1})).limits;
    assert_eq!((limits.max_cost, limits.max_output_tokens), (Some(0.25), Some(1)));
}

#[test]
fn model_key_workspace_project_and_servers_reach_the_agent() {
    needs_real_gemini!();
    let stage = TestStage::new(Script::new([
        GeminiStep::call("write_file", json!({"file_path": "here.txt", "content": "x"})),
        shell("pwd; echo project=$GOOGLE_CLOUD_PROJECT."),
        GeminiStep::text("done"),
    ]))
    .env("GEMINI_API_KEY", None);
    stage.settings("{}");
    stage.file("deep/er/old.txt", "old");
    let folder = stage.workspace().join("deep/er").canonicalize().expect("a path");
    let server = stage.outside().join("server.js");
    fs::write(&server, SERVER).expect("a file");
    let file = stage.outside().join("mcp.json");
    let settings = json!({"mcpServers": {"filed": {"command": "node", "args": [server]}}});
    fs::write(&file, settings.to_string()).expect("a file");
    let outcome = done(
        &stage,
        json!({
            "model": "gemini-2.5-flash-lite", "apiKey": "key-of-the-engine", "working_dir": folder, "yolo": true,
            "googleCloudProject": "project-of-the-engine", "mcp_settings_path": file,
        }),
    );
    let requests = stage.model.requests_to_main();
    assert_eq!(requests[0].model, "gemini-2.5-flash-lite", "{}", shown(&outcome));
    assert_eq!(requests[0].headers["x-goog-api-key"], "key-of-the-engine");
    assert!(!shown(&outcome).contains("key-of-the-engine"));
    assert!(offered(&stage).contains(&"mcp_filed_shout".to_owned()), "{:?}", offered(&stage));
    assert_eq!(stage.read("deep/er/here.txt").as_deref(), Some("x"), "{}", shown(&outcome));
    assert_eq!(outcome.files[0].path, "here.txt", "{}", shown(&outcome));
    let printed = requests[2].tool_responses().last().expect("a response").1.to_string();
    assert!(printed.contains(&*folder.to_string_lossy()), "{printed}");
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
    for (sandbox, maker) in [(json!(true), "docker"), (json!("podman"), "podman")] {
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
    // Every other test runs without a sandbox.
    let [off, none] = [json!({"sandbox": false}), json!({})].map(|keys| request(&stage, &keys).sandbox);
    assert_eq!(off, none);
    assert_eq!(request(&stage, &json!({"sandbox": "docker"})).sandbox, Sandbox::By("docker".into()));
}
