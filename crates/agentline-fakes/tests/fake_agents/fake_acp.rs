//! Tests the fake agent over ACP: its normal behavior, and that each fault does what its name says.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use agentline_fakes::fake_acp::{AcpFault, FAULTS, WORDS};
use serde_json::{Value, json};
use tempfile::TempDir;

/// Long enough for a loaded machine; only a bug takes this long.
const PATIENCE: Duration = Duration::from_secs(60);

/// A client of one agent that does not outlive its test.
struct Client {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<Vec<u8>>,
    stderr: Option<JoinHandle<String>>,
    dir: TempDir,
    next_id: u64,
    /// The kind of option to choose for a permission request.
    choice: &'static str,
    /// Every update and request of the agent so far.
    seen: Vec<Value>,
    /// Lines that were not messages.
    junk: usize,
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        // Processes that the agent left running also end with the test.
        let mark = format!("FAKE_ACP_TEST_MARK={}", self.dir.path().display());
        for process in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
            let environment = std::fs::read(process.path().join("environ")).unwrap_or_default();
            if environment.split(|byte| *byte == 0).any(|variable| variable == mark.as_bytes()) {
                let _ =
                    Command::new("kill").arg("-9").arg(process.file_name()).stderr(Stdio::null()).status();
            }
        }
    }
}

impl Client {
    fn start(fault: &str) -> Self {
        Self::start_with(fault, &[])
    }

    fn start_with(fault: &str, env: &[(&str, &str)]) -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let mut child = Command::new(env!("CARGO_BIN_EXE_fake-acp-agent"))
            .env("FAKE_ACP_FAULT", fault)
            .env("FAKE_ACP_TEST_MARK", dir.path())
            .envs(env.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("started");
        let (sender, lines) = mpsc::channel();
        let mut stdout = BufReader::new(child.stdout.take().expect("a pipe"));
        thread::spawn(move || {
            loop {
                let mut line = Vec::new();
                match stdout.read_until(b'\n', &mut line) {
                    Ok(1..) if sender.send(line).is_ok() => {}
                    _ => return,
                }
            }
        });
        let mut pipe = child.stderr.take().expect("a pipe");
        let stderr = thread::spawn(move || {
            let mut text = Vec::new();
            let _ = pipe.read_to_end(&mut text);
            String::from_utf8_lossy(&text).into_owned()
        });
        let stdin = child.stdin.take();
        let choice = "allow_once";
        Self { child, stdin, lines, stderr: Some(stderr), dir, next_id: 0, choice, seen: Vec::new(), junk: 0 }
    }

    /// Initializes the agent and opens a session.
    fn open(&mut self) -> String {
        self.initialize();
        self.session()
    }

    fn initialize(&mut self) -> Value {
        self.call("initialize", json!({"protocolVersion": 1, "clientCapabilities": {}}))
    }

    fn session(&mut self) -> String {
        let params = json!({"cwd": self.dir.path(), "mcpServers": []});
        let answer = self.call("session/new", params);
        answer["result"]["sessionId"].as_str().unwrap_or_else(|| panic!("no session: {answer}")).to_owned()
    }

    fn prompt(&mut self, session: &str, text: &str) -> Value {
        let id = self.send_prompt(session, text);
        self.answer_to(id)
    }

    fn send_prompt(&mut self, session: &str, text: &str) -> u64 {
        let prompt = json!([{"type": "text", "text": text}]);
        self.send_request("session/prompt", json!({"sessionId": session, "prompt": prompt}))
    }

    fn cancel(&mut self, session: &str) {
        self.send(&json!({"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": session}}));
    }

    fn call(&mut self, method: &str, params: Value) -> Value {
        let id = self.send_request(method, params);
        self.answer_to(id)
    }

    fn send_request(&mut self, method: &str, params: Value) -> u64 {
        self.next_id += 1;
        self.send(&json!({"jsonrpc": "2.0", "id": self.next_id, "method": method, "params": params}));
        self.next_id
    }

    fn send(&mut self, message: &Value) {
        // The agent may have exited as part of the test.
        let _ = writeln!(self.stdin.as_mut().expect("open"), "{message}");
    }

    fn answer_to(&mut self, id: u64) -> Value {
        self.wait_for(id, PATIENCE)
            .unwrap_or_else(|error| panic!("no answer to {id}: {error}; seen {:?}", self.seen))
    }

    /// Reads until the response to this request, and serves the agent's requests meanwhile.
    fn wait_for(&mut self, id: u64, timeout: Duration) -> Result<Value, RecvTimeoutError> {
        let until = Instant::now() + timeout;
        loop {
            let message = self.next(until.saturating_duration_since(Instant::now()))?;
            let answers =
                message["id"] == id || message["id"].as_str().is_some_and(|text| text == id.to_string());
            if message.get("method").is_none() && answers {
                return Ok(message);
            }
        }
    }

    fn next(&mut self, timeout: Duration) -> Result<Value, RecvTimeoutError> {
        loop {
            let line = self.lines.recv_timeout(timeout)?;
            let line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&line);
            match serde_json::from_slice::<Value>(line) {
                Ok(message) if message.is_object() && message != json!({}) => {
                    self.serve(&message);
                    return Ok(message);
                }
                _ => self.junk += 1,
            }
        }
    }

    fn serve(&mut self, message: &Value) {
        let Some(method) = message["method"].as_str() else { return };
        self.seen.push(message.clone());
        let Some(id) = message.get("id") else { return };
        let answer = match method {
            "session/request_permission" if self.choice == "wait" => return,
            "session/request_permission" => {
                let options = message["params"]["options"].as_array().cloned().unwrap_or_default();
                let chosen = options.iter().find(|option| option["kind"] == self.choice);
                let outcome = match chosen {
                    Some(option) => json!({"outcome": "selected", "optionId": option["optionId"]}),
                    None => json!({"outcome": "cancelled"}),
                };
                json!({"jsonrpc": "2.0", "id": id, "result": {"outcome": outcome}})
            }
            "fs/read_text_file" => json!({"jsonrpc": "2.0", "id": id, "result": {"content": "the client's"}}),
            _ => {
                json!({"jsonrpc": "2.0", "id": id, "error": {"code": -32601, "message": "Method not found"}})
            }
        };
        self.send(&answer);
    }

    fn updates(&self, kind: &str) -> Vec<Value> {
        let updates = self.seen.iter().map(|message| &message["params"]["update"]);
        updates.filter(|update| update["sessionUpdate"] == kind).cloned().collect()
    }

    fn requests(&self, method: &str) -> Vec<Value> {
        self.seen.iter().filter(|message| message["method"] == method).cloned().collect()
    }

    /// Returns all text of the answers in a session.
    fn answer_text(&self, session: &str) -> String {
        let own = self.seen.iter().filter(|message| message["params"]["sessionId"] == session);
        let updates = own.map(|message| &message["params"]["update"]);
        let texts = updates.filter(|update| update["sessionUpdate"] == "agent_message_chunk");
        texts.filter_map(|update| update["content"]["text"].as_str()).collect()
    }

    /// Closes the agent's input and waits for its exit.
    fn close(&mut self) -> Option<i32> {
        self.stdin = None;
        let until = Instant::now() + PATIENCE;
        while Instant::now() < until {
            if let Some(status) = self.child.try_wait().expect("a status") {
                return status.code();
            }
            thread::sleep(Duration::from_millis(5));
        }
        panic!("the agent did not exit");
    }

    fn stderr(&mut self) -> String {
        let _ = self.child.kill();
        self.stderr.take().expect("once").join().expect("text")
    }

    fn file(&self, name: &str) -> Option<String> {
        std::fs::read_to_string(self.dir.path().join(name)).ok()
    }
}

#[test]
fn plain_conversation() {
    let mut client = Client::start("");
    let hello = client.initialize();
    assert_eq!(hello["result"]["agentInfo"]["name"], "fake-acp");
    assert_eq!(hello["result"]["agentInfo"]["version"], "1.2.3");
    let session = client.session();
    let answer = client.prompt(&session, "What is 2+2?");
    assert_eq!(answer["result"], json!({"stopReason": "end_turn"}));
    assert_eq!(client.answer_text(&session), "You said: What is 2+2?");
    assert_eq!(client.call("session/close", json!({}))["error"]["code"], -32601);
    assert_eq!(client.close(), Some(0));
}

#[test]
fn scripted_turn() {
    let mut client = Client::start("");
    let session = client.open();
    let script = "A preface that is not a script.\nthink Hm.\ntool write_file sub/a.txt one\\ntwo\\n\n\
                  run cat sub/a.txt; exit 3\nplan\nsay Done.\nusage 100 20 30 5\nstop max_tokens";
    let answer = client.prompt(&session, script);
    assert_eq!(
        answer["result"],
        json!({"stopReason": "max_tokens", "usage": {
            "inputTokens": 100, "outputTokens": 20, "totalTokens": 120, "cachedReadTokens": 30, "thoughtTokens": 5,
        }})
    );
    assert_eq!(client.file("sub/a.txt").as_deref(), Some("one\ntwo\n"));
    assert_eq!(client.answer_text(&session), "Done.");
    assert_eq!(client.updates("agent_thought_chunk").len(), 1);
    assert_eq!(client.updates("plan").len(), 1);
    let ended = client.updates("tool_call_update");
    assert_eq!(ended[0]["status"], "completed");
    assert_eq!(ended[1]["status"], "failed");
    assert_eq!(ended[1]["rawOutput"], json!({"exitCode": 3, "output": "one\ntwo\n"}));
}

#[test]
fn permission_is_requested_and_respected() {
    let mut client = Client::start("");
    let session = client.open();
    client.prompt(&session, "ask write_file a.txt a\nsay Done.");
    client.prompt(&session, "ask write_file a.txt b\nsay Done.");
    assert_eq!(client.requests("session/request_permission").len(), 2);
    assert_eq!(client.file("a.txt").as_deref(), Some("b"));
    client.choice = "reject_once";
    client.prompt(&session, "ask write_file a.txt c\nsay Refused.");
    assert_eq!(client.file("a.txt").as_deref(), Some("b"));
    assert_eq!(client.updates("tool_call_update").last().expect("one")["status"], "failed");
    client.choice = "allow_always";
    client.prompt(&session, "ask write_file a.txt d\nask write_file a.txt e\nsay Done.");
    assert_eq!(client.requests("session/request_permission").len(), 4);
    assert_eq!(client.file("a.txt").as_deref(), Some("e"));
}

#[test]
fn files_are_requested_from_the_client() {
    let mut client = Client::start("");
    let session = client.open();
    client.prompt(&session, "fs_read a.txt 2 3\nfs_write a.txt x\nterminal");
    let read = &client.requests("fs/read_text_file")[0]["params"];
    assert_eq!((&read["line"], &read["limit"]), (&json!(2), &json!(3)));
    let answer = client.answer_text(&session);
    assert!(answer.starts_with("read: the client's"), "{answer}");
    assert!(answer.contains("write failed: -32601"), "{answer}");
    assert!(answer.contains("terminal failed: -32601"), "{answer}");
}

#[test]
fn modes_and_models_are_per_session() {
    let mut client = Client::start("");
    let (one, two) = (client.open(), client.session());
    client.call("session/set_mode", json!({"sessionId": one, "modeId": "yolo"}));
    client.call("session/set_model", json!({"sessionId": one, "modelId": "anything"}));
    client.prompt(&one, "state");
    client.prompt(&two, "state");
    let state = |session: &str| serde_json::from_str::<Value>(&client.answer_text(session)).expect("JSON");
    assert_eq!(state(&one)["mode"], "yolo");
    assert_eq!(state(&one)["model"], "anything");
    assert_eq!(state(&two)["mode"], "default");
    assert_eq!(state(&two)["prompts"], 1);
    let wrong = client.call("session/set_mode", json!({"sessionId": one, "modeId": "auto_edit"}));
    assert_eq!(wrong["error"]["code"], -32603);
    let set = json!({"sessionId": two, "configId": "mode", "value": "plan"});
    let options = client.call("session/set_config_option", set);
    assert_eq!(options["result"]["configOptions"][1]["currentValue"], "plan");
}

#[test]
fn sessions_run_concurrently() {
    let mut client = Client::start("one_character_chunks");
    let (one, two) = (client.open(), client.session());
    let slow = client.send_prompt(&one, "sleep 300\nsay aaaaaaaa");
    let fast = client.send_prompt(&two, "say bbbbbbbb");
    client.answer_to(fast);
    client.answer_to(slow);
    assert_eq!(
        (client.answer_text(&one).as_str(), client.answer_text(&two).as_str()),
        ("aaaaaaaa", "bbbbbbbb")
    );
}

#[test]
fn turn_can_be_cancelled() {
    for script in ["hang", "sleep 60000", "run sleep 60", "chunks 10000000 x"] {
        let mut client = Client::start("");
        let session = client.open();
        let id = client.send_prompt(&session, script);
        thread::sleep(Duration::from_millis(100));
        client.cancel(&session);
        assert_eq!(client.answer_to(id)["result"], json!({"stopReason": "cancelled"}), "{script}");
        client.prompt(&session, "say Alive.");
        assert!(client.answer_text(&session).ends_with("Alive."), "{script}");
    }
}

#[test]
fn cancel_waits_for_the_pending_permission_request() {
    let mut client = Client::start("");
    let session = client.open();
    client.choice = "wait";
    let id = client.send_prompt(&session, "ask write_file a.txt a");
    while client.requests("session/request_permission").is_empty() {
        client.next(PATIENCE).expect("a request");
    }
    client.cancel(&session);
    assert_eq!(client.wait_for(id, Duration::from_millis(300)), Err(RecvTimeoutError::Timeout));
    let outcome = json!({"outcome": {"outcome": "cancelled"}});
    client.send(&json!({"jsonrpc": "2.0", "id": 0, "result": outcome}));
    assert_eq!(client.answer_to(id)["result"]["stopReason"], "cancelled");
    assert_eq!(client.file("a.txt"), None);
}

#[test]
fn session_can_be_loaded_by_another_process() {
    let store = tempfile::tempdir().expect("a folder");
    let env = [("FAKE_ACP_STORE", store.path().to_str().expect("text"))];
    let mut first = Client::start_with("", &env);
    let session = first.open();
    first.prompt(&session, "say The answer.\ntool write_file a.txt a");
    first.close();
    let mut second = Client::start_with("", &env);
    second.initialize();
    let params = json!({"sessionId": session, "cwd": second.dir.path(), "mcpServers": []});
    assert!(second.call("session/load", params)["result"]["modes"].is_object());
    assert_eq!(second.answer_text(&session), "The answer.");
    assert_eq!(second.updates("user_message_chunk").len(), 1);
    second.prompt(&session, "history");
    assert!(second.answer_text(&session).contains("say The answer."), "{}", second.answer_text(&session));
}

#[test]
fn late_updates_follow_the_answer() {
    let mut client = Client::start("late_text");
    let session = client.open();
    client.prompt(&session, "hello");
    assert_eq!(client.answer_text(&session), "Early.");
    while client.answer_text(&session) == "Early." {
        client.next(PATIENCE).expect("an update");
    }
    assert_eq!(client.answer_text(&session), "Early.Late.");
    assert_eq!(client.updates("from_the_future").len(), 1);
}

#[test]
fn one_time_fault_affects_only_the_first_process() {
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("once");
    let env = [("FAKE_ACP_FAULT_ONCE", file.to_str().expect("text"))];
    let mut first = Client::start_with("exit_at_start:7", &env);
    assert_eq!(first.close(), Some(7));
    let mut second = Client::start_with("exit_at_start:7", &env);
    second.open();
    assert_eq!(second.close(), Some(0));
}

#[test]
fn unknown_fault_is_refused() {
    let mut client = Client::start("no_such_fault");
    assert_eq!(client.close(), Some(2));
    assert!(client.stderr().contains("there is no fault `no_such_fault`"));
}

#[test]
fn gemini_specific_behaviour() {
    let mut client = Client::start("gemini_manners");
    let session = client.open();
    client.choice = "reject_once";
    let answer = client.prompt(&session, "ask write_file a.txt a\nsay Refused.");
    assert_eq!(client.updates("tool_call").len() + client.updates("tool_call_update").len(), 0);
    assert_eq!(answer["result"]["_meta"]["quota"]["token_count"]["input_tokens"], 100);
    client.call("session/set_mode", json!({"sessionId": session, "modeId": "autoEdit"}));
    assert!(client.answer_text(&session).ends_with("[MODE_UPDATE] autoEdit"));
}

/// Plays every fault with its own prompt: the agent never panics, and never waits forever.
#[test]
fn every_fault_can_be_played() {
    let names: BTreeSet<_> = FAULTS.iter().map(|fault| fault.name).collect();
    assert_eq!(names.len(), FAULTS.len(), "names are unique");
    assert!(FAULTS.len() >= 100, "{}", FAULTS.len());
    let words: BTreeSet<_> = WORDS.iter().map(|word| word.name).collect();
    assert_eq!(words.len(), WORDS.len(), "words are unique");
    // They wait more than they work.
    thread::scope(|scope| {
        for faults in FAULTS.chunks(FAULTS.len() / 12) {
            scope.spawn(|| faults.iter().for_each(play_fault));
        }
    });
}

fn play_fault(fault: &AcpFault) {
    let short = Duration::from_millis(500);
    let mut client = Client::start(fault.name);
    client.next_id = 100;
    let id = client.send_request("initialize", json!({"protocolVersion": 1}));
    if client.wait_for(id, short).is_ok() {
        let id = client.send_request("session/new", json!({"cwd": client.dir.path(), "mcpServers": []}));
        let session = client.wait_for(id, short).ok();
        let session = session.as_ref().and_then(|answer| answer["result"]["sessionId"].as_str());
        if let Some(session) = session.map(str::to_owned) {
            let id = client.send_prompt(&session, fault.prompt);
            let _ = client.wait_for(id, short);
            client.cancel(&session);
            let _ = client.wait_for(id, short);
        }
    }
    client.stdin = None;
    let stderr = client.stderr();
    assert!(!stderr.contains("panicked"), "{}: {stderr}", fault.name);
}

/// The lines of some faults.
#[test]
fn lines_are_damaged_as_requested() {
    for (fault, least) in
        [("junk_between", 3), ("invalid_utf8", 3), ("truncated_lines", 3), ("blank_lines", 9)]
    {
        let mut client = Client::start(fault);
        let session = client.open();
        client.prompt(&session, "say Whole.");
        assert_eq!(client.answer_text(&session), "Whole.", "{fault}");
        assert!(client.junk >= least, "{fault}: {}", client.junk);
    }
    let mut client = Client::start("answer_ids_as_strings");
    assert_eq!(client.initialize()["id"], "1");
    let mut client = Client::start("long_line");
    let session = client.open();
    client.prompt(&session, "say End.");
    assert!(client.answer_text(&session).len() > 3_000_000);
}

/// Starts a small MCP server: JSON for `initialize`, a chunked event stream for the rest.
fn mcp_server() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || answer_mcp(stream));
        }
    });
    format!("http://{address}/mcp")
}

fn answer_mcp(mut stream: TcpStream) {
    let mut reader = BufReader::new(stream.try_clone().expect("a stream"));
    let (mut head, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).unwrap_or(0) <= 2 {
            break;
        }
        if let Some(value) = line.strip_prefix("content-length: ") {
            length = value.trim().parse().expect("a number");
        }
        head += &line;
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).expect("a body");
    let message: Value = serde_json::from_slice(&body).expect("JSON");
    let (id, params) = (&message["id"], &message["params"]);
    if !head.contains("authorization: Bearer right") {
        let _ = write!(stream, "HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\n\r\n");
        return;
    }
    let result = match message["method"].as_str() {
        Some("initialize") => {
            let body = json!({"jsonrpc": "2.0", "id": id, "result": {"serverInfo": {}}}).to_string();
            let head = "HTTP/1.1 200 OK\r\nmcp-session-id: s1\r\ncontent-type: application/json";
            let _ = write!(stream, "{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
            return;
        }
        Some("tools/list") => json!({"tools": [{"name": "shout"}]}),
        Some("tools/call") => {
            assert!(head.contains("mcp-session-id: s1"), "{head}");
            let text = params["arguments"]["text"].as_str().unwrap_or_default().to_uppercase();
            json!({"content": [{"type": "text", "text": text}], "isError": text.is_empty()})
        }
        _ => {
            let _ = write!(stream, "HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n");
            return;
        }
    };
    let event =
        format!("event: message\ndata: {}\n\n", json!({"jsonrpc": "2.0", "id": id, "result": result}));
    let _ = write!(stream, "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n");
    // Chunks that split the event in the middle of a line.
    for chunk in event.as_bytes().chunks(7) {
        let _ = write!(stream, "{:x}\r\n", chunk.len());
        let _ = stream.write_all(chunk).and_then(|()| stream.write_all(b"\r\n"));
    }
    // The stream stays open, which servers may do.
    thread::sleep(Duration::from_secs(2));
}

#[test]
fn mcp_server_tools_are_listed_and_called() {
    let url = mcp_server();
    let http = |name: &str, token: &str| {
        let headers = json!([{"name": "authorization", "value": format!("Bearer {token}")}]);
        json!({"type": "http", "name": name, "url": url, "headers": headers})
    };
    let script = r#"while read -r line; do case "$line" in
        *'"initialize"'*) echo '{"jsonrpc":"2.0","id":1,"result":{}}';;
        *'tools/list'*) echo '{"jsonrpc":"2.0","id":2,"result":{"tools":[{"name":"mark"}]}}';;
        *'tools/call'*) echo "{\"jsonrpc\":\"2.0\",\"id\":3,\"result\":{\"content\":[{\"type\":\"text\",\"text\":\"$MARK\"}]}}";;
        esac; done"#;
    let stdio = json!({
        "name": "pipe", "command": "sh", "args": ["-c", script], "env": [{"name": "MARK", "value": "given"}],
    });
    let mut client = Client::start("");
    client.initialize();
    let servers = json!([http("loud", "right"), http("shut", "wrong"), stdio]);
    let opened = client.call("session/new", json!({"cwd": client.dir.path(), "mcpServers": servers}));
    let session = opened["result"]["sessionId"].as_str().expect("a session").to_owned();
    client.prompt(&session, "list_tools");
    let listed: Value = serde_json::from_str(&client.answer_text(&session)).expect("JSON");
    assert_eq!((&listed["loud"], &listed["pipe"]), (&json!(["shout"]), &json!(["mark"])));
    assert!(listed["shut"]["error"].as_str().is_some_and(|error| error.contains("401")), "{listed}");
    client.prompt(&session, "call loud shout {\"text\":\"hi\"}\ncall loud shout {}\nask_call pipe mark {}");
    assert!(
        client.answer_text(&session).ends_with("shout: HIshout failed: mark: given"),
        "{}",
        client.answer_text(&session)
    );
    assert_eq!(client.requests("session/request_permission").len(), 1);
    assert_eq!(client.updates("tool_call")[0]["title"], "shout (loud MCP Server)");
}
