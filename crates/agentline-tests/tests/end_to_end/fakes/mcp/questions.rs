//! Permission requests that go to the client, in both generations of the protocol, and tasks.

use super::{McpTestClient, command, stage};
use agentline_tests::HostProgram;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const ASK: &str = "ask write_file asked.txt hi\nsay done";

/// The metadata that requests of protocol 2026-07-28 have.
fn meta(capabilities: &Value) -> Value {
    json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": capabilities,
    })
}

/// A client of protocol 2026-07-28, which has no sessions.
struct NewClient {
    program: HostProgram,
    capabilities: Value,
}

impl NewClient {
    fn start(args: &[&str], capabilities: Value) -> Self {
        Self { program: HostProgram::of_command(command(args), stage()), capabilities }
    }

    fn call(&mut self, method: &str, mut params: Value) -> Value {
        params["_meta"] = meta(&self.capabilities);
        self.program.call(method, params)
    }

    fn task(&mut self, task: &Value, status: &str) -> Value {
        let until = Instant::now() + agentline_tests::PATIENCE;
        loop {
            let state = self.call("tasks/get", json!({"taskId": task}));
            if state["status"] == status {
                return state;
            }
            assert!(Instant::now() < until && state["status"] != "failed", "{state}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

#[test]
fn client_without_elicitation_is_never_asked() {
    let mut client = McpTestClient::start(&["--permission-mode", "default"], json!({}));
    let result = client.tool("agent_run", json!({"prompt": ASK}));
    assert_eq!(result["verdict"], "done_with_denials", "{result}");
    assert_eq!(result["denied"][0]["tool"], "Write");
    assert!(!client.program.stage.workspace().join("asked.txt").exists());
}

#[test]
fn client_with_elicitation_decides() {
    let mut client = McpTestClient::start(&["--permission-mode", "default"], json!({"elicitation": {}}));
    for (action, verdict) in [("decline", "done_with_denials"), ("accept", "done")] {
        let id = client.send("agent_run", json!({"prompt": ASK}));
        let question = client.program.question("elicitation/create");
        let message = question["params"]["message"].as_str().unwrap();
        assert!(message.contains("asked.txt"), "{message}");
        client.program.reply(&question, json!({"action": action, "content": {}}));
        let result = client.answer(id)["structuredContent"].clone();
        assert_eq!(result["verdict"], verdict, "{result}");
    }
    assert!(client.program.stage.workspace().join("asked.txt").exists());
}

#[test]
fn question_without_an_answer_is_refused() {
    let flags = ["--permission-mode", "default", "--ask-timeout", "500ms"];
    let mut client = McpTestClient::start(&flags, json!({"elicitation": {}}));
    let id = client.send("agent_run", json!({"prompt": ASK}));
    client.program.question("elicitation/create");
    let result = client.answer(id)["structuredContent"].clone();
    assert_eq!(result["verdict"], "done_with_denials", "{result}");
    assert!(result["denied"].to_string().contains("did not answer within 500ms"), "{result}");
    // No client waits for this run, so its request is refused without a question.
    let run = client.tool("agent_start", json!({"prompt": ASK}));
    std::thread::sleep(Duration::from_millis(700));
    assert_eq!(client.finish(&run["run"])["verdict"], "done_with_denials");
}

#[test]
fn new_protocol_asks_with_the_result_of_the_call() {
    let mut client =
        NewClient::start(&["--permission-mode", "default"], json!({"elicitation": {"form": {}}}));
    let call = json!({"name": "agent_run", "arguments": {"prompt": ASK}});
    let asked = client.call("tools/call", call.clone());
    assert_eq!(asked["resultType"], "input_required", "{asked}");
    let (id, request) = asked["inputRequests"].as_object().unwrap().iter().next().unwrap();
    assert_eq!(request["method"], "elicitation/create", "{request}");
    let mut again = call;
    again["requestState"] = asked["requestState"].clone();
    again["inputResponses"] = json!({id: {"action": "accept", "content": {}}});
    let result = client.call("tools/call", again);
    assert_eq!(result["structuredContent"]["verdict"], "done", "{result}");
    assert!(client.program.stage.workspace().join("asked.txt").exists());
}

#[test]
fn run_is_a_task_for_clients_that_declare_tasks() {
    let tasks = json!({"io.modelcontextprotocol/tasks": {}});
    let capabilities = json!({"extensions": tasks, "elicitation": {"form": {}}});
    let mut client = NewClient::start(&["--permission-mode", "default"], capabilities);
    let run = |client: &mut NewClient, prompt: &str| {
        let created =
            client.call("tools/call", json!({"name": "agent_run", "arguments": {"prompt": prompt}}));
        assert_eq!(created["resultType"], "task", "{created}");
        created["taskId"].clone()
    };
    let task = run(&mut client, ASK);
    let state = client.task(&task, "input_required");
    let id = state["inputRequests"].as_object().unwrap().keys().next().unwrap().clone();
    client.call("tasks/update", json!({"taskId": task, "inputResponses": {id: {"action": "accept"}}}));
    let state = client.task(&task, "completed");
    assert_eq!(state["result"]["structuredContent"]["verdict"], "done", "{state}");

    let task = run(&mut client, "hang");
    client.call("tasks/cancel", json!({"taskId": task}));
    client.task(&task, "cancelled");
}
