//! The real agents of the other vendors answer over ACP on their scripted models, asked by the smallest client.

use agentline_mock::{anthropic, openai, responses, scripted::Step};
use agentline_tests::{AcpAgent, AcpStage, example_agent, skipped};
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Child, ChildStdin, Command, Stdio},
    sync::mpsc::{self, Receiver},
    thread,
    time::{Duration, Instant},
};

/// OpenCode takes 20 s to its first answer on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(180);

/// An agent and what it has said so far.
struct Client {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<Value>,
    text: String,
    permissions: usize,
    next_id: u64,
}

impl Drop for Client {
    fn drop(&mut self) {
        // Adapters end the programs behind them when their input ends, and only then.
        self.stdin = None;
        let until = Instant::now() + Duration::from_secs(20);
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < until {
            thread::sleep(Duration::from_millis(20));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Client {
    fn start(agent: &AcpAgent, env: &BTreeMap<String, String>, cwd: &Path) -> Self {
        let mut child = Command::new(&agent.program)
            .args(&agent.args)
            .env_clear()
            .envs(env)
            .current_dir(cwd)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|e| panic!("{}: {e}", agent.program.display()));
        let stdin = child.stdin.take();
        let stdout = BufReader::new(child.stdout.take().expect("a pipe"));
        let (tell, lines) = mpsc::channel();
        thread::spawn(move || {
            let messages =
                stdout.lines().map_while(Result::ok).filter_map(|line| serde_json::from_str(&line).ok());
            messages.map_while(|message: Value| tell.send(message).ok()).count()
        });
        Self { child, stdin, lines, text: String::new(), permissions: 0, next_id: 0 }
    }

    fn send(&mut self, message: &Value) {
        let stdin = self.stdin.as_mut().expect("it is open");
        writeln!(stdin, "{message}").and_then(|()| stdin.flush()).expect("a reader");
    }

    fn call(&mut self, method: &str, params: &Value) -> Value {
        self.next_id += 1;
        let id = self.next_id;
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        let until = Instant::now() + PATIENCE;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let message = self.lines.recv_timeout(left).unwrap_or_else(|e| panic!("{method}: {e}"));
            match message["method"].as_str() {
                None if message["id"] == id => return message,
                Some("session/request_permission") => self.allow(&message),
                _ => {}
            }
            let update = &message["params"]["update"];
            if update["sessionUpdate"] == "agent_message_chunk" {
                self.text.push_str(update["content"]["text"].as_str().unwrap_or_default());
            }
        }
    }

    fn allow(&mut self, request: &Value) {
        self.permissions += 1;
        let options = request["params"]["options"].as_array().expect("options");
        let option = options.iter().find(|option| option["kind"] == "allow_once").expect("a way to allow");
        let outcome = json!({"outcome": {"outcome": "selected", "optionId": option["optionId"]}});
        self.send(&json!({"jsonrpc": "2.0", "id": request["id"], "result": outcome}));
    }

    /// One prompt in a session of its own.
    fn prompt(&mut self, cwd: &Path, text: &str) -> Value {
        let hello = self.call("initialize", &json!({"protocolVersion": 1, "clientCapabilities": {}}));
        assert_eq!(hello["result"]["protocolVersion"], 1, "{hello}");
        let opened = self.call("session/new", &json!({"cwd": cwd, "mcpServers": []}));
        let session = &opened["result"]["sessionId"];
        assert!(session.is_string(), "{opened}");
        let prompt = json!([{"type": "text", "text": text}]);
        self.call("session/prompt", &json!({"sessionId": session, "prompt": prompt}))
    }
}

/// The agent writes a file with its tool, runs a command, and the results reach the model.
fn writes_a_file(stage: &AcpStage) {
    let mut client = Client::start(&stage.agent, stage.variables(), &stage.workspace());
    let answer = client.prompt(&stage.workspace(), "Write hello.txt");
    assert_eq!(answer["result"]["stopReason"], "end_turn", "{answer}");
    assert_eq!(fs::read_to_string(stage.workspace().join("hello.txt")).expect("a file"), "hi\n");
    assert!(client.text.ends_with("All done. 4"), "{}", client.text);
    let turns = stage.model.turns();
    assert_eq!(turns.len(), 3);
    assert!(
        turns[0].user_texts().iter().any(|text| text.contains("Write hello.txt")),
        "{:?}",
        turns[0].user_texts()
    );
    assert!(turns[2].tool_results()[1].contains("shell-ran"), "{:?}", turns[2].tool_results());
    assert_eq!([turns[0].turn(), turns[2].turn()], [0, 2]);
}

#[test]
fn opencode() {
    let model = openai::model_by(|request| match request.turn() {
        0 => Step::thought("Hm.").and_call("write", json!({"filePath": "hello.txt", "content": "hi\n"})),
        1 => Step::call("bash", json!({"command": "echo shell-ran", "description": "says so"})),
        _ => Step::text("All done. 4"),
    });
    match AcpStage::opencode(model.expect("a port")) {
        Some(stage) => writes_a_file(&stage),
        None => skipped("real_acp_agents opencode"),
    }
}

#[test]
fn claude() {
    let model = anthropic::model_by(|request| match request.turn() {
        0 => Step::thought("Hm.").and_call("Write", json!({"file_path": "hello.txt", "content": "hi\n"})),
        1 => Step::call("Bash", json!({"command": "echo shell-ran", "description": "says so"})),
        _ => Step::text("All done. 4"),
    });
    match AcpStage::claude(model.expect("a port")) {
        Some(stage) => writes_a_file(&stage),
        None => skipped("real_acp_agents claude"),
    }
}

#[test]
fn codex() {
    let model = responses::model_by(|request| match request.turn() {
        0 => Step::plain_call("apply_patch", responses::add_file("hello.txt", "hi\n")),
        1 => Step::call("exec_command", json!({"cmd": "echo shell-ran"})),
        _ => Step::text("All done. 4"),
    });
    match AcpStage::codex(model.expect("a port")) {
        Some(stage) => writes_a_file(&stage),
        None => skipped("real_acp_agents codex"),
    }
}

#[test]
fn the_protocol_s_own_example() {
    let Some(agent) = example_agent() else { return skipped("real_acp_agents example") };
    let dir = tempfile::tempdir().expect("a folder");
    let env = BTreeMap::from([("PATH".to_owned(), std::env::var("PATH").unwrap_or_default())]);
    let mut client = Client::start(&agent, &env, dir.path());
    let answer = client.prompt(dir.path(), "Hello");
    assert_eq!(answer["result"]["stopReason"], "end_turn", "{answer}");
    assert_eq!(client.permissions, 1);
    assert!(!client.text.is_empty());
}
