//! Tests every key with which engines configure Gemini CLI, from the given map to the behavior of the real CLI.
//!
//! | key | shown by | how |
//! |---|---|---|
//! | `model` | `model_key_workspace_project_and_servers_reach_the_agent` | the model of the request to the service |
//! | `sandbox` | `sandbox_uses_the_named_program` | the CLI starts a stand-in for `docker` and `podman` |
//! | `approval_mode`, `yolo` | `each_mode_permits_what_is_documented` | which of two files a model can make, for each value |
//! | `include_directories` | `model_key_workspace_project_and_servers_reach_the_agent` | a file there is read, and one elsewhere is not |
//! | `allowed_tools`, `disable_tools` | `gemini_rules::rules_and_user_policies_decide_which_tools_are_available` | the tools that the model is offered |
//! | `working_dir` | `model_key_workspace_project_and_servers_reach_the_agent` | where a file lands, and what `pwd` prints |
//! | `timeout`, `timeout_ms` | `timeouts_and_limits_are_those_of_the_request` | the request; `gemini_processes` shows that it is enforced |
//! | `max_budget_usd`, `max_turns`, `max_output_tokens` | `timeouts_and_limits_are_those_of_the_request` | the request; `gemini_limits` shows that they are enforced |
//! | `apiKey` | `model_key_workspace_project_and_servers_reach_the_agent` | the header of the request to the service |
//! | `googleCloudProject` | `model_key_workspace_project_and_servers_reach_the_agent` | what the agent passes to a shell |
//! | `useVertexAI` | `vertex_ai_key_selects_the_auth_method` | the CLI requires Vertex AI's variables and uses its address |
//! | `mcp_settings_path` | `model_key_workspace_project_and_servers_reach_the_agent` | the tools that the model is offered |

use agentline::{Outcome, RunRequest, Verdict, blocking};
use agentline_core::{Config, Sandbox};
use agentline_mock::gemini::{GeminiStep, Script};
use agentline_tests::{MODEL, TestStage, needs_real_gemini, shown, tapes::replay};
use serde_json::{Value, json};
use std::{fs, path::Path, time::Duration};

/// Returns the request of an engine's map, in addition to the settings that isolate the test.
pub(crate) fn request(stage: &TestStage, keys: &Value) -> RunRequest {
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

/// Runs a request of an engine's map.
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

/// Returns the steps by which a model could obtain every permission itself: it plans, leaves plan mode, and works.
fn escalation() -> Vec<GeminiStep> {
    vec![
        GeminiStep::call("enter_plan_mode", json!({"reason": "x"})),
        GeminiStep::call("write_file", json!({"file_path": "plan.md", "content": "x"})),
        GeminiStep::call("exit_plan_mode", json!({"plan_filename": "plan.md"})),
    ]
}

/// In no mode can the model obtain more permissions than documented.
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
        let work = [
            GeminiStep::call("write_file", json!({"file_path": "written.txt", "content": "x"})),
            shell("touch made.txt"),
            GeminiStep::call("no_such_tool", json!({})),
            GeminiStep::text("done"),
        ];
        let before = if runs { Vec::new() } else { escalation() };
        let stage = TestStage::new(Script::new(before.into_iter().chain(work)));
        for other in same {
            let [one, two] = [&keys, other].map(|keys| format!("{:?}", request(&stage, keys)));
            assert_eq!(one, two, "{keys} and {other}");
        }
        let outcome = run(&stage, keys.clone());
        let changed = (stage.read("written.txt").is_some(), stage.read("made.txt").is_some());
        assert_eq!(changed, (writes, runs), "{keys}: {}", shown(&outcome));
        let verdict = if writes && runs { Verdict::Done } else { Verdict::DoneWithDenials };
        assert_eq!(outcome.verdict, verdict, "{keys}: {}", shown(&outcome));
        // A tool that is not offered is a denial. A tool that does not exist was not denied; the call was a mistake.
        let denied: Vec<_> = outcome.denied.iter().map(|d| (&*d.native_tool, &*d.reason)).collect();
        let expected: &[_] = match (writes, runs) {
            (true, true) => &[],
            (true, false) => &[("run_shell_command", "not_offered")],
            _ if keys["approval_mode"] == "plan" => &[("run_shell_command", "not_offered")],
            _ => &[("write_file", "not_offered"), ("run_shell_command", "not_offered")],
        };
        assert!(expected.iter().all(|denial| denied.contains(denial)), "{keys}: {}", shown(&outcome));
        assert!(denied.iter().all(|(tool, _)| *tool != "no_such_tool"), "{keys}: {}", shown(&outcome));
        let offered = stage.model.requests_to_main()[0].offered_tools();
        let has = |name: &str| offered.iter().any(|tool| tool == name);
        assert!(has("glob") && has("run_shell_command") == runs, "{keys}: {offered:?}");
        if keys["approval_mode"] != "plan" {
            assert_eq!([has("write_file"), has("replace")], [writes; 2], "{keys}: {offered:?}");
        }
    }
}

#[test]
fn timeouts_and_limits_are_those_of_the_request() {
    let stage = answering();
    for keys in [json!({"timeout": 6}), json!({"timeout_ms": 6000})] {
        assert_eq!(request(&stage, &keys).timeout, Duration::from_secs(6), "{keys}");
    }
    let keys = json!({"max_budget_usd": 0.25, "max_turns": 2, "max_output_tokens": 1});
    let limits = request(&stage, &keys).limits;
    let found = (limits.max_cost, limits.max_turns, limits.max_output_tokens);
    assert_eq!(found, (Some(0.25), Some(2), Some(1)));
}

#[test]
fn model_key_workspace_project_and_servers_reach_the_agent() {
    needs_real_gemini!();
    let [included, elsewhere] = [(), ()].map(|()| tempfile::tempdir().expect("a folder"));
    let [included, elsewhere] = [&included, &elsewhere].map(|f| f.path().canonicalize().expect("a path"));
    for folder in [&included, &elsewhere] {
        fs::write(folder.join("x.txt"), "from outside").expect("a file");
    }
    let read = |folder: &Path| GeminiStep::call("read_file", json!({"file_path": folder.join("x.txt")}));
    let stage = TestStage::new(Script::new([
        GeminiStep::call("write_file", json!({"file_path": "here.txt", "content": "x"})),
        shell("pwd; echo project=$GOOGLE_CLOUD_PROJECT."),
        read(&included),
        read(&elsewhere),
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
    let outcome = run(
        &stage,
        json!({
            "model": "gemini-2.5-flash-lite", "apiKey": "key-of-the-engine", "working_dir": folder, "yolo": true,
            "googleCloudProject": "project-of-the-engine", "mcp_settings_path": file,
            "include_directories": [included],
        }),
    );
    // The file that may not be read is a denial.
    assert_eq!(outcome.verdict, Verdict::DoneWithDenials, "{}", shown(&outcome));
    let requests = stage.model.requests_to_main();
    let response = |turn: usize| requests[turn].tool_responses().last().expect("a response").1.to_string();
    assert!(response(3).contains("from outside") && !response(4).contains("from outside"), "{}", response(4));
    assert_eq!(requests[0].model, "gemini-2.5-flash-lite", "{}", shown(&outcome));
    assert_eq!(requests[0].headers["x-goog-api-key"], "key-of-the-engine");
    assert!(!shown(&outcome).contains("key-of-the-engine"));
    assert!(offered(&stage).contains(&"mcp_filed_shout".to_owned()), "{:?}", offered(&stage));
    assert_eq!(stage.read("deep/er/here.txt").as_deref(), Some("x"), "{}", shown(&outcome));
    assert_eq!(outcome.files[0].path, "here.txt", "{}", shown(&outcome));
    let printed = response(2);
    assert!(printed.contains(&*folder.to_string_lossy()), "{printed}");
    assert!(printed.contains("project=project-of-the-engine."), "{printed}");
}

#[test]
fn vertex_ai_key_selects_the_auth_method() {
    needs_real_gemini!();
    // Whatever the user's settings are, the run requests what Vertex AI needs, which is missing on this tape.
    let taped = replay("vertex_ai_without_a_project.stream-json");
    assert_eq!(taped.run.outcome.verdict, Verdict::NotAuthenticated, "{}", taped.run.shown());
    assert!(taped.run.outcome.stderr_tail.contains("Vertex"), "{}", taped.run.shown());
    assert_eq!(taped.facts.model_requests, 0, "the key was not used");
    // With a key, the request uses the Vertex AI service.
    let stage = answering();
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
    let outcome = run(&stage, json!({"sandbox": "podman"}));
    let log = fs::read_to_string(&asked).unwrap_or_default();
    assert!(log.starts_with("podman "), "`{log}` {}", shown(&outcome));
    assert_eq!(outcome.verdict, Verdict::Failed, "{}", shown(&outcome));
    assert!(stage.model.requests().is_empty(), "nothing ran without it");
    let stage = answering();
    // Every other test runs without a sandbox.
    let [off, none] = [json!({"sandbox": false}), json!({})].map(|keys| request(&stage, &keys).sandbox);
    assert_eq!(off, none);
    // The core's tests show the flag and the variable of each value.
    assert_eq!(request(&stage, &json!({"sandbox": true})).sandbox, Sandbox::On);
    assert_eq!(request(&stage, &json!({"sandbox": "docker"})).sandbox, Sandbox::By("docker".into()));
}
