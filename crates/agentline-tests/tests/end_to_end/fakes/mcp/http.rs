//! The server over HTTP: its checks, its sessions, and the end of clients that are gone.

use super::{command, questions, stage};
use agentline_tests::{FakeStage, wait_until};
use serde_json::{Value, json};
use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpStream,
    process::{Child, Stdio},
    sync::Arc,
    time::Duration,
};

pub(super) const TOKEN: &str = "a-token-of-this-test-only";

/// A server on a free port.
pub(super) struct McpHttpServer {
    pub(super) stage: Arc<FakeStage>,
    child: Child,
    pub(super) address: String,
}

/// A response: its status, session and body.
#[derive(Debug)]
pub(super) struct McpHttpResponse {
    pub(super) status: u16,
    session: Option<String>,
    body: String,
}

impl McpHttpServer {
    pub(super) fn start(args: &[&str]) -> Self {
        let stage = stage();
        let mut command = command(&["--listen", "127.0.0.1:0"]);
        command.args(args).envs(stage.variables()).env("AGENTLINE_MCP_TOKEN", TOKEN);
        command.current_dir(stage.workspace()).stdin(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stderr.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().trim_end_matches("/mcp").rsplit('/').next().unwrap().to_owned();
        Self { stage, child, address }
    }

    /// Sends a request with these additional headers, and returns the connection.
    fn begin(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> TcpStream {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(agentline_tests::PATIENCE)).unwrap();
        let mut head = format!("{method} {path} HTTP/1.1\r\nconnection: close\r\n");
        let length = body.len().to_string();
        let given = |name: &str| headers.iter().any(|(given, _)| given == &name);
        for (name, value) in [
            ("host", self.address.as_str()),
            ("content-length", &length),
            ("authorization", &format!("Bearer {TOKEN}")),
            ("content-type", "application/json"),
            ("accept", "application/json, text/event-stream"),
        ] {
            if !given(name) {
                head.push_str(&format!("{name}: {value}\r\n"));
            }
        }
        for (name, value) in headers.iter().filter(|(_, value)| !value.is_empty()) {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        stream.write_all(format!("{head}\r\n{body}").as_bytes()).unwrap();
        stream
    }

    /// Sends a request with these additional headers.
    fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> McpHttpResponse {
        let mut stream = self.begin(method, path, headers, body);
        let mut text = Vec::new();
        stream.read_to_end(&mut text).unwrap();
        let text = String::from_utf8_lossy(&text).into_owned();
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
        let header = |line: &str| line.to_lowercase().strip_prefix("mcp-session-id: ").map(str::to_owned);
        McpHttpResponse {
            status: head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0),
            session: head.lines().find_map(header),
            body: body.to_owned(),
        }
    }

    pub(super) fn post(&self, headers: &[(&str, &str)], message: &Value) -> McpHttpResponse {
        self.send("POST", "/mcp", headers, &message.to_string())
    }

    /// Opens a session.
    pub(super) fn open(&self) -> String {
        self.open_with(&json!({}))
    }

    /// Opens a session of a client with these capabilities.
    fn open_with(&self, capabilities: &Value) -> String {
        let mut initialize = initialize();
        initialize["params"]["capabilities"] = capabilities.clone();
        let session = self.post(&[], &initialize).session.unwrap();
        let ready = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        assert_eq!(self.post(&[("mcp-session-id", &session)], &ready).status, 202);
        session
    }

    pub(super) fn tool(&self, session: &str, tool: &str, args: &Value) -> Value {
        self.call(&[("mcp-session-id", session)], json!({"name": tool, "arguments": args}))
    }

    /// Calls a tool as a client of protocol 2026-07-28, which has no sessions.
    pub(super) fn tool_without_session(&self, tool: &str, args: &Value) -> Value {
        let headers =
            [("mcp-protocol-version", "2026-07-28"), ("mcp-method", "tools/call"), ("mcp-name", tool)];
        self.call(&headers, json!({"name": tool, "arguments": args, "_meta": questions::meta(&json!({}))}))
    }

    fn call(&self, headers: &[(&str, &str)], params: Value) -> Value {
        let call = json!({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params});
        let response = self.post(headers, &call);
        let messages = response.body.lines().map(|line| line.strip_prefix("data: ").unwrap_or(line));
        let answer = messages
            .filter_map(|data| serde_json::from_str::<Value>(data).ok())
            .find(|message| message["id"] == 7);
        answer.unwrap_or_else(|| panic!("{response:?}"))["result"]["structuredContent"].clone()
    }
}

impl Drop for McpHttpServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn initialize() -> Value {
    json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params":
        {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}})
}

#[test]
fn requests_without_the_token_or_from_web_pages_are_refused() {
    let server = McpHttpServer::start(&[]);
    let url = format!("http://{}", server.address);
    for (headers, status) in [
        (vec![("authorization", "")], 401),
        (vec![("authorization", "Bearer wrong")], 401),
        (vec![("authorization", "Basic YTpi")], 401),
        (vec![("authorization", &format!("Bearer {TOKEN}x")[..])], 401),
        (vec![("host", "evil.example")], 403),
        (vec![("host", "127.0.0.1:1")], 403),
        (vec![("origin", "http://evil.example")], 403),
        (vec![("origin", "null")], 403),
        (vec![("origin", &url)], 403),
        (vec![("content-length", "5000000")], 413),
        (vec![("mcp-session-id", "unknown")], 404),
    ] {
        let response = server.post(&headers, &initialize());
        assert_eq!(response.status, status, "{headers:?}: {response:?}");
        assert!(response.session.is_none(), "{headers:?}");
    }
    assert_eq!(server.send("GET", "/", &[], "").status, 404);
    assert_eq!(
        server.send("POST", &format!("/mcp?token={TOKEN}"), &[("authorization", "")], "{}").status,
        401
    );
    assert_eq!(server.post(&[], &initialize()).status, 200);
}

#[test]
fn session_runs_agents_and_its_end_is_the_end_of_its_runs() {
    let server = McpHttpServer::start(&[]);
    let (first, second) = (server.open(), server.open());
    let result = server.tool(&first, "agent_run", &json!({"prompt": "say over HTTP"}));
    assert_eq!(result["text"], "over HTTP", "{result}");
    // Another session does not see the runs of the first.
    assert_eq!(server.tool(&second, "agent_list", &json!({}))["runs"], json!([]));
    server.tool(&first, "agent_start", &json!({"prompt": "say up\nrun sleep 600"}));
    wait_until("the tool", || {
        server.tool(&first, "agent_result", &json!({"run": "run-2"}))["progress"]["tool_calls"] == 1
    });
    assert!(server.stage.living().len() > 2);
    let ended = server.send("DELETE", "/mcp", &[("mcp-session-id", &first)], "");
    assert!((200..300).contains(&ended.status), "{ended:?}");
    wait_until("the end of the run", || server.stage.living().len() <= 1);
    assert_eq!(
        server
            .post(&[("mcp-session-id", &first)], &json!({"jsonrpc": "2.0", "id": 2, "method": "ping"}))
            .status,
        404
    );
}

#[test]
fn token_of_the_server_does_not_reach_agents() {
    let server = McpHttpServer::start(&[]);
    let session = server.open();
    let script = "run test -n \"$AGENTLINE_PASS_ENV\" && test -z \"$AGENTLINE_MCP_TOKEN\" && touch withheld";
    let result = server.tool(&session, "agent_run", &json!({"prompt": script}));
    assert!(server.stage.workspace().join("withheld").exists(), "{result}");
}

#[test]
fn client_decides_for_an_inner_agent_and_sees_its_progress() {
    let server = McpHttpServer::start(&["--max-depth", "2", "--permission-mode", "default"]);
    let session = server.open_with(&json!({"elicitation": {}}));
    let inner = json!({"prompt": "ask write_file asked.txt hi\nsay done"});
    let params = json!({"name": "agent_run", "_meta": {"progressToken": "mine"},
        "arguments": {"prompt": format!("call agentline agent_run {inner}")}});
    let call = json!({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params});
    let headers = [("mcp-session-id", session.as_str())];
    let stream = server.begin("POST", "/mcp", &headers, &call.to_string());
    let lines = BufReader::new(stream).lines().map_while(Result::ok);
    let messages = lines.filter_map(|line| serde_json::from_str::<Value>(line.strip_prefix("data: ")?).ok());
    let (mut asked, mut progress, mut result) = (0, 0, Value::Null);
    for message in messages {
        if message["method"] == "elicitation/create" {
            assert!(message["params"]["message"].to_string().contains("asked.txt"), "{message}");
            asked += 1;
            let accepted = json!({"action": "accept", "content": {}});
            let answer = json!({"jsonrpc": "2.0", "id": message["id"], "result": accepted});
            assert_eq!(server.post(&headers, &answer).status, 202);
        }
        progress += usize::from(message["method"] == "notifications/progress");
        if message["id"] == 7 {
            result = message["result"]["structuredContent"].clone();
        }
    }
    assert_eq!((&result["verdict"], asked), (&json!("done"), 1), "{result}");
    assert!(progress > 0 && result["text"].to_string().contains("done"), "{result}");
    assert!(server.stage.workspace().join("asked.txt").exists());
}

#[test]
fn runs_of_a_client_that_is_gone_end_after_a_while() {
    let server = McpHttpServer::start(&["--idle-end", "1s"]);
    let session = server.open();
    server.tool(&session, "agent_start", &json!({"prompt": "say up\nrun sleep 600"}));
    // An open stream keeps the client.
    let mut stream = TcpStream::connect(&server.address).unwrap();
    let head = format!(
        "GET /mcp HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {TOKEN}\r\naccept: text/event-stream\r\nmcp-session-id: {session}\r\n\r\n",
        server.address
    );
    stream.write_all(head.as_bytes()).unwrap();
    wait_until("the agent", || server.stage.living().len() > 2);
    std::thread::sleep(Duration::from_secs(2));
    assert!(server.stage.living().len() > 2, "the run ended although its client has an open stream");
    drop(stream);
    wait_until("the end of the run", || server.stage.living().len() <= 1);
    let ping = json!({"jsonrpc": "2.0", "id": 2, "method": "ping"});
    assert_eq!(server.post(&[("mcp-session-id", &session)], &ping).status, 404, "the session is over");
}
