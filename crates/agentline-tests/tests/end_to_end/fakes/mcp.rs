//! Tests `agentline mcp` with a fake agent and a plain MCP client.
#![expect(clippy::unwrap_used, reason = "test helpers may panic")]

mod http;
mod http_limits;
mod inner;
mod output_schemas;
mod questions;

use agentline_tests::{FakeStage, HostProgram, exit_of, wait_until};
use output_schemas::OutputSchemas;
use serde_json::{Value, json};
use std::{
    collections::HashMap,
    fs,
    process::Command,
    sync::Arc,
    time::{Duration, Instant},
};

pub(super) const PROGRAM: &str = env!("CARGO_BIN_EXE_agentline-under-test");

/// An MCP client with its own test directory. It checks every result against the schema of its tool.
pub(super) struct McpTestClient {
    pub(super) program: HostProgram,
    schemas: OutputSchemas,
    /// The tools of the calls in progress.
    calls: HashMap<u64, String>,
}

pub(super) fn stage() -> Arc<FakeStage> {
    Arc::new(FakeStage::new(env!("CARGO_BIN_EXE_fake-acp")))
}

/// Returns the command of a server whose agent is the fake one.
pub(super) fn command(args: &[&str]) -> Command {
    let mut command = Command::new(PROGRAM);
    command.arg("mcp").args(args);
    command.envs([
        ("AGENTLINE_SURFACE", "acp"),
        ("AGENTLINE_PASS_ENV", "*"),
        ("AGENTLINE_QUIET_PERIOD_MS", "0"),
        // An agent that writes its answer as fast as the machine allows.
        ("AGENTLINE_PERMISSION_MODE", "bypass"),
    ]);
    command
}

impl McpTestClient {
    /// Starts a server and opens a session of protocol 2025-11-25.
    pub(super) fn start(args: &[&str], capabilities: Value) -> Self {
        let mut program = HostProgram::of_command(command(args), stage());
        let answer = program.call(
            "initialize",
            json!({"protocolVersion": "2025-11-25", "capabilities": capabilities,
                "clientInfo": {"name": "test", "version": "1"}}),
        );
        assert_eq!(answer["serverInfo"]["name"], "agentline", "{answer}");
        program.line(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}).to_string());
        let schemas = OutputSchemas::of(&program.call("tools/list", json!({}))["tools"]);
        Self { program, schemas, calls: HashMap::new() }
    }

    /// Sends a call of a tool.
    pub(super) fn send(&mut self, tool: &str, args: Value) -> u64 {
        let id = self.program.send("tools/call", json!({"name": tool, "arguments": args}));
        self.calls.insert(id, tool.to_owned());
        id
    }

    /// Returns the result of a call.
    pub(super) fn answer(&mut self, id: u64) -> Value {
        let answer = self.program.answer(id);
        assert!(answer.get("error").is_none(), "{answer}");
        let result = answer["result"].clone();
        if let Some(tool) = self.calls.remove(&id) {
            self.schemas.check(&tool, &result);
        }
        result
    }

    /// Calls a tool and returns its structured result.
    pub(super) fn tool(&mut self, tool: &str, args: Value) -> Value {
        let id = self.send(tool, args);
        let result = self.answer(id);
        assert!(result["content"][0]["text"].is_string(), "{result}");
        result["structuredContent"].clone()
    }

    /// Waits for the end of a run.
    pub(super) fn finish(&mut self, run: &Value) -> Value {
        let until = Instant::now() + agentline_tests::PATIENCE;
        loop {
            let result = self.tool("agent_wait", json!({"run": run}));
            if result["status"] != "running" && result["status"] != "starting" {
                return result;
            }
            assert!(Instant::now() < until, "{result}");
        }
    }

    fn living(&self) -> usize {
        self.program.stage.living().len()
    }
}

#[test]
fn short_run_returns_answer_files_cost_and_tokens() {
    let mut client = McpTestClient::start(&[], json!({}));
    let tools = client.program.call("tools/list", json!({}))["tools"].clone();
    let names: Vec<&str> =
        tools.as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    assert_eq!(
        names,
        [
            "agent_run",
            "agent_start",
            "agent_wait",
            "agent_result",
            "agent_cancel",
            "agent_list",
            "sessions_search"
        ]
    );
    let prompt = "tool write_file made.txt hello\nusage 100 20\nsay All done.";
    let id = client.send("agent_run", json!({"prompt": prompt}));
    let result = client.answer(id);
    let structured = &result["structuredContent"];
    assert_eq!(result["isError"], false, "{result}");
    assert_eq!(structured["verdict"], "done", "{structured}");
    assert_eq!(structured["text"], "All done.");
    assert_eq!(structured["files"][0]["path"], "made.txt");
    assert_eq!(structured["files"][0]["change"], "created");
    assert_eq!(structured["tokens"]["input"], 100);
    assert!(structured["run_id"].is_string() && structured["session_id"].is_string(), "{structured}");
    let text = result["content"][0]["text"].as_str().unwrap();
    assert!(text.starts_with("run-1: done (gemini, "), "{text}");
    assert!(text.contains("\nAll done.\n") && text.contains("- created made.txt"), "{text}");
    // The result can be read again, by either id.
    let again = client.tool("agent_result", json!({"run": structured["run_id"]}));
    assert_eq!(again["text"], "All done.");
    let list = client.tool("agent_list", json!({}));
    assert_eq!((&list["runs"][0]["run"], &list["runs"][0]["status"]), (&json!("run-1"), &json!("over")));
}

/// A run of ten minutes and calls of 45 seconds, both 150 times as fast.
#[test]
fn long_run_is_awaited_with_calls_that_end_in_time() {
    let mut client = McpTestClient::start(&["--max-wait", "300ms"], json!({}));
    let prompt = "say begun\nsleep 4000\nsay , ended";
    let started = Instant::now();
    let first = client.tool("agent_run", json!({"prompt": prompt}));
    assert_eq!(first["run"], "run-1", "{first}");
    assert_ne!(first["status"], "over");
    let (mut calls, mut longest) = (0, Duration::ZERO);
    let result = loop {
        let called = Instant::now();
        let result = client.tool("agent_wait", json!({"run": "run-1", "timeout_s": 60}));
        longest = longest.max(called.elapsed());
        calls += 1;
        if result["status"] == "over" {
            break result;
        }
    };
    assert_eq!(result["text"], "begun, ended", "{result}");
    assert!(started.elapsed() >= Duration::from_secs(4) && calls > 3, "{calls} calls");
    // Generous: the machine may be busy. A call that ignores its limit takes four seconds.
    assert!(longest < Duration::from_secs(3), "a call took {longest:?}");
}

#[test]
fn several_runs_overlap_and_one_is_cancelled() {
    let mut client = McpTestClient::start(&["--max-runs", "2"], json!({}));
    let first = client.tool("agent_start", json!({"prompt": "say first\nrun sleep 600"}));
    let second = client.tool("agent_start", json!({"prompt": "say second"}));
    assert_eq!(client.finish(&second["run"])["text"], "second");
    wait_until("the tool of the first run", || {
        let row = client.tool("agent_result", json!({"run": first["run"]}));
        row["progress"]["tool_calls"] == 1
    });
    let third = client.tool("agent_start", json!({"prompt": "hang"}));
    let refused = client.tool("agent_start", json!({"prompt": "say no"}));
    assert!(refused["reason"].as_str().unwrap().contains("2 agents are already at work"), "{refused}");
    let cancelled = client.tool("agent_cancel", json!({"run": first["run"]}));
    assert_eq!(cancelled["verdict"], "cancelled", "{cancelled}");
    client.tool("agent_cancel", json!({"run": third["run"]}));
    let unknown = client.tool("agent_wait", json!({"run": "run-99"}));
    assert!(unknown["reason"].as_str().unwrap().contains("there is no run `run-99`"), "{unknown}");
}

#[test]
fn progress_is_reported_and_a_cancelled_call_ends_its_run() {
    let mut client = McpTestClient::start(&[], json!({}));
    let params = json!({"name": "agent_run", "arguments": {"prompt": "say up\nrun sleep 600"},
        "_meta": {"progressToken": "mine"}});
    let id = client.program.send("tools/call", params);
    let progress = client.program.wait("the tool", |m| {
        m["method"] == "notifications/progress" && m["params"]["message"].to_string().contains("using Bash")
    });
    assert_eq!(progress["params"]["progressToken"], "mine");
    let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}});
    client.program.line(&cancel.to_string());
    assert_eq!(client.finish(&json!("run-1"))["verdict"], "cancelled");
}

#[test]
fn runs_end_with_the_input_of_the_client() {
    let mut client = McpTestClient::start(&[], json!({}));
    client.send("agent_run", json!({"prompt": "say up\nrun sleep 600"}));
    client.tool("agent_start", json!({"prompt": "say up\nrun sleep 600"}));
    wait_until("both tools", || {
        let list = client.tool("agent_list", json!({}));
        let calls = |run: &Value| run["progress"]["tool_calls"] == 1;
        list["runs"].as_array().unwrap().iter().filter(|run| calls(run)).count() == 2
    });
    assert!(client.living() >= 5, "the server and two agents with their tools");
    drop(client.program.stdin.take());
    let status = exit_of(&mut client.program.child, "the end of the server after its input");
    assert!(status.success(), "{status}");
    client.program.nothing_left(Duration::from_secs(30));
}

#[test]
fn nothing_outlives_a_killed_server() {
    let mut client = McpTestClient::start(&[], json!({}));
    client.tool("agent_start", json!({"prompt": "say up\nrun sleep 600"}));
    wait_until("the tool", || {
        client.tool("agent_result", json!({"run": "run-1"}))["progress"]["tool_calls"] == 1
    });
    client.program.child.kill().unwrap();
    exit_of(&mut client.program.child, "the end of the killed server");
    client.program.nothing_left(Duration::from_secs(30));
}

#[test]
fn arguments_cannot_widen_what_the_server_allows() {
    let mut client =
        McpTestClient::start(&["--agents", "gemini", "--permission-mode", "accept-edits"], json!({}));
    let workspace = client.program.stage.workspace();
    fs::create_dir(workspace.join("sub")).unwrap();
    std::os::unix::fs::symlink(client.program.stage.path().join("home"), workspace.join("link")).unwrap();
    for (args, reason) in [
        (json!({"cwd": ".."}), "is not in the directories of this server"),
        (json!({"cwd": "link"}), "is not in the directories of this server"),
        (json!({"cwd": "/"}), "is not in the directories of this server"),
        (json!({"cwd": "absent"}), "does not exist"),
        (json!({"permission_mode": "bypass"}), "allows more than `accept-edits`"),
        (json!({"permission_mode": "all"}), "`permission_mode` must be one of `plan`, `default`,"),
        (json!({"agent": "claude"}), "does not offer `claude`"),
        (json!({"agent": "unknown-agent"}), "does not offer `unknown-agent`"),
        (json!({"agent": "gemini@0.1.0"}), "the version cannot be chosen"),
        (json!({"timeout_s": -1}), "`timeout_s` must be a number above 0, not -1"),
        (json!({"timeout_s": 1e300}), "is not a time"),
        (json!({"max_cost": 0}), "`max_cost` must be a number above 0, not 0"),
        (json!({"modle": "x"}), "`modle` is not an argument of this tool; did you mean `model`?"),
        (json!({"surface": "acp"}), "`surface` is not an argument of this tool; use `"),
        (json!({"resume": "../../secret"}), "there is no session"),
        (json!({"resume": "latest"}), "there is no session"),
        (json!({"prompt": ""}), "`prompt` must be a text that is not empty"),
    ] {
        let mut call = json!({"prompt": "say started"});
        call.as_object_mut().unwrap().extend(args.as_object().unwrap().clone());
        let id = client.send("agent_run", call);
        let result = client.answer(id);
        assert_eq!(result["isError"], true, "{args}: {result}");
        let text = result["content"][0]["text"].as_str().unwrap();
        assert!(text.contains(reason), "{args}: {text}");
    }
    let list = client.tool("agent_list", json!({}));
    assert_eq!(list["runs"], json!([]), "nothing was started");
    let result = client.tool("agent_run", json!({"prompt": "cwd", "cwd": "sub", "permission_mode": "plan"}));
    assert!(result["text"].as_str().unwrap().ends_with("/ws/sub"), "{result}");
    for (tool, args, reason) in [
        ("agent_run", json!({}), "`prompt` is missing; the task for the agent"),
        ("agent_wait", json!({}), "`run` is missing"),
        ("agent_wait", json!({"run": "run-1", "timeout_s": "9"}), "`timeout_s` must be a number above 0"),
        ("agent_result", json!({"run": 1}), "`run` must be a text"),
        ("agent_cancel", json!({"id": "run-1"}), "`run` is missing"),
        ("agent_list", json!({"all": true}), "`all` is not an argument of this tool"),
        ("sessions_search", json!({"query": ""}), "`query` must be a text that is not empty"),
        (
            "sessions_search",
            json!({"query": "x", "limit": -1}),
            "`limit` must be a whole number of at least 0",
        ),
    ] {
        let id = client.send(tool, args.clone());
        let result = client.answer(id);
        assert_eq!(result["isError"], true, "{tool} {args}: {result}");
        let text = result["content"][0]["text"].as_str().unwrap();
        assert!(text.contains(reason), "{tool} {args}: {text}");
    }
}

#[test]
fn default_agent_is_one_that_is_offered() {
    let mut client = McpTestClient::start(&["--agents", "claude,gemini"], json!({}));
    assert_eq!(client.tool("agent_run", json!({"prompt": "say hi"}))["agent"], "gemini");
    let mut client = McpTestClient::start(&["--agents", "claude,codex"], json!({}));
    assert_eq!(client.tool("agent_start", json!({"prompt": "say hi"}))["agent"], "claude");
}

#[test]
fn budget_is_shared_by_all_runs() {
    let mut client = McpTestClient::start(&["--max-cost", "1"], json!({}));
    let first = client.tool("agent_start", json!({"prompt": "hang", "max_cost": 0.75}));
    let refused = client.tool("agent_run", json!({"prompt": "say no", "max_cost": 0.5}));
    let reason = refused["reason"].as_str().unwrap();
    assert!(reason.contains("$0.2500 of the budget of $1.0000 remains"), "{reason}");
    client.tool("agent_cancel", json!({"run": first["run"]}));
    let list = client.tool("agent_list", json!({}));
    assert!(list["remaining_usd"].is_number() && list["spent_usd"].is_number(), "{list}");
}

#[test]
fn bad_flags_start_nothing() {
    let stage = stage();
    for (args, message) in [
        (vec!["--root", "/nowhere/at/all"], "--root"),
        (vec!["--agents", "unknown-agent"], "--agents"),
        (vec!["--agents", "gemini@0.1.0"], "--agents"),
        (vec!["--agent", "unknown-agent"], "`--agent`: `unknown-agent` is not a known agent"),
        (
            vec!["--agent", "codex", "--agents", "gemini,claude"],
            "`--agent`: `codex` is not one of the agents",
        ),
        (vec!["--permission-mode", "all"], "--permission-mode"),
        (vec!["--deny", "Bash("], "deny"),
        (vec!["--max-cost", "-1"], "--max-cost"),
        (vec!["--max-depth", "0"], "--max-depth"),
        (vec!["--idle-end", "soon"], "--idle-end"),
        (vec!["--timeout", "never"], "timeout"),
        (vec!["--listen", "everywhere"], "must be an IP address with a port, such as 127.0.0.1:8931"),
        (vec!["--listen", "0.0.0.0:0"], "is not a loopback address"),
    ] {
        let mut command = command(&args);
        command.envs(stage.variables()).current_dir(stage.workspace());
        let output = command.stdin(std::process::Stdio::null()).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {stderr}");
        assert!(stderr.contains(message) && output.stdout.is_empty(), "{args:?}: {stderr}");
    }
}
