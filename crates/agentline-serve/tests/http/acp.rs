//! ACP over a WebSocket, with a fake agent.

use crate::{
    Test, run,
    stage::{ServerStage, eventually},
};
use agentline_fs::digest::{digest, hex};
use futures_util::{SinkExt as _, StreamExt as _};
use http_body_util::Empty;
use hyper::{Request, body::Bytes, client::conn::http1, upgrade::Upgraded};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use std::{net::SocketAddr, path::Path, time::Duration};
use tokio::net::TcpStream;
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{Message, protocol::Role},
};

pub(crate) const TESTS: &[Test] = &[
    ("acp::session_is_loaded_after_a_disconnect_and_ends_with_the_server", session_is_loaded),
    ("acp::upgrade_needs_a_token_and_an_own_origin", upgrade),
    ("acp::policy_and_roots_apply", policy),
    ("acp::frames_and_connections_are_limited", limits),
    ("acp::client_that_does_not_read_is_ended", does_not_read),
];

/// A client on a WebSocket.
struct AcpClient {
    socket: WebSocketStream<TokioIo<Upgraded>>,
    last: u64,
    /// The text of the agent.
    text: String,
}

impl AcpClient {
    /// Connects with these headers, or returns the status of the refusal.
    async fn open(address: SocketAddr, path: &str, headers: &[(&str, &str)]) -> Result<Self, u16> {
        let stream = TcpStream::connect(address).await.unwrap();
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection.with_upgrades());
        let mut request = Request::builder().uri(path).header("host", address.to_string());
        let upgrade = [
            ("connection", "Upgrade"),
            ("upgrade", "websocket"),
            ("sec-websocket-version", "13"),
            ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ];
        for (name, value) in upgrade.iter().chain(headers) {
            request = request.header(*name, *value);
        }
        let response = sender.send_request(request.body(Empty::<Bytes>::new()).unwrap()).await.unwrap();
        if response.status() != 101 {
            return Err(response.status().as_u16());
        }
        let stream = TokioIo::new(hyper::upgrade::on(response).await.unwrap());
        let socket = WebSocketStream::from_raw_socket(stream, Role::Client, None).await;
        Ok(Self { socket, last: 0, text: String::new() })
    }

    /// Connects with a token.
    async fn with_token(address: SocketAddr, path: &str, token: &str) -> Result<Self, u16> {
        Self::open(address, path, &[("authorization", &format!("Bearer {token}"))]).await
    }

    async fn of(stage: &ServerStage) -> Self {
        let client = Self::with_token(stage.client.address, "/acp?agent=gemini", &stage.client.token).await;
        let mut client = client.expect("a connection");
        let params = json!({"protocolVersion": 1, "clientCapabilities": {}});
        let initialized = client.call("initialize", params).await.expect("initialized");
        assert_eq!(initialized["agentCapabilities"]["loadSession"], true, "{initialized}");
        client
    }

    async fn send(&mut self, message: Message) {
        self.socket.send(message).await.expect("an open connection");
    }

    /// Returns the next message, or `None` at the end of the connection.
    async fn next(&mut self) -> Option<Value> {
        loop {
            match self.socket.next().await {
                Some(Ok(Message::Text(text))) => return Some(serde_json::from_str(&text).expect("JSON")),
                Some(Ok(Message::Close(_)) | Err(_)) | None => return None,
                Some(Ok(_)) => {}
            }
        }
    }

    async fn begin(&mut self, method: &str, params: Value) -> u64 {
        self.last += 1;
        let message = json!({"jsonrpc": "2.0", "id": self.last, "method": method, "params": params});
        self.send(Message::text(message.to_string())).await;
        self.last
    }

    async fn call(&mut self, method: &str, params: Value) -> Result<Value, Value> {
        let id = self.begin(method, params).await;
        loop {
            let message = self.next().await.expect("a response");
            if let Some(text) = message["params"]["update"]["content"]["text"].as_str()
                && message["params"]["update"]["sessionUpdate"] == "agent_message_chunk"
            {
                self.text.push_str(text);
            }
            if message["id"] == id && message["method"].is_null() {
                let failed = message["error"].is_object();
                return if failed { Err(message["error"].clone()) } else { Ok(message["result"].clone()) };
            }
        }
    }

    async fn new_session(&mut self, cwd: &Path) -> Result<String, Value> {
        let opened = self.call("session/new", json!({"cwd": cwd, "mcpServers": []})).await?;
        Ok(opened["sessionId"].as_str().expect("an id").to_owned())
    }

    /// Sends a prompt and returns the text of the answer.
    async fn prompt(&mut self, session: &str, script: &str) -> String {
        self.text.clear();
        let answer = self.call("session/prompt", prompt(session, script)).await.expect("an answer");
        assert_eq!(answer["stopReason"], "end_turn", "{answer}");
        self.text.clone()
    }
}

fn prompt(session: &str, script: &str) -> Value {
    json!({"sessionId": session, "prompt": [{"type": "text", "text": script}]})
}

/// Returns the processes whose environment names a directory.
fn processes_of(dir: &Path) -> usize {
    let mark = dir.to_string_lossy().into_owned();
    let all = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let has_mark = |entry: &std::fs::DirEntry| {
        let environ = std::fs::read(entry.path().join("environ")).unwrap_or_default();
        String::from_utf8_lossy(&environ).contains(&mark)
    };
    all.filter(has_mark).count()
}

fn session_is_loaded() {
    run(async {
        let mut stage = ServerStage::start().await;
        let mut client = AcpClient::of(&stage).await;
        let session = client.new_session(&stage.workspace()).await.unwrap();
        assert_eq!(client.prompt(&session, "say first").await, "first");
        let pid = client.prompt(&session, "state").await;
        let pid = serde_json::from_str::<Value>(&pid).expect("JSON")["pid"].clone();
        client.send(Message::text("[{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"initialize\"}]")).await;
        assert_eq!(client.next().await.expect("a response")["error"]["code"], -32600);
        client.send(Message::binary(&b"{}"[..])).await;
        assert_eq!(client.next().await.expect("a response")["error"]["code"], -32600);
        drop(client);

        // The server may notice the disconnect later, so the session is not kept at once.
        let params = json!({"sessionId": session, "cwd": stage.workspace(), "mcpServers": []});
        let mut client = AcpClient::of(&stage).await;
        eventually(async || {
            client = AcpClient::of(&stage).await;
            client.text.clear();
            client.call("session/load", params.clone()).await.is_ok() && client.text.starts_with("first")
        })
        .await;
        let again = client.prompt(&session, "state").await;
        assert_eq!(serde_json::from_str::<Value>(&again).expect("JSON")["pid"], pid, "the same process");

        let audit = std::fs::read_to_string(stage.dir.path().join("serve/audit.jsonl")).unwrap();
        let actions: Vec<Value> = audit.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let opened = actions.iter().find(|entry| entry["action"] == "acp_session").expect("an entry");
        assert_eq!((&opened["agent"], &opened["token"]), (&json!("gemini"), &json!("owner")));

        // One agent is in use and one waits for its client.
        let mut waiting = AcpClient::of(&stage).await;
        waiting.new_session(&stage.workspace()).await.unwrap();
        drop(waiting);
        assert!(cfg!(not(target_os = "linux")) || processes_of(stage.dir.path()) > 1);
        stage.server.take().unwrap().stop().await;
        assert_eq!(client.next().await, None, "the server closes the connection");
        eventually(async || processes_of(stage.dir.path()) == 0).await;
    });
}

fn upgrade() {
    run(async {
        let stage = ServerStage::start().await;
        let address = stage.client.address;
        let own = format!("http://{address}");
        let bearer = format!("Bearer {}", stage.client.token);
        let cookie = format!("agentline_token={}", stage.client.token);
        let evil = ("origin", "http://evil.example");
        let (bearer, cookie) = (("authorization", bearer.as_str()), ("cookie", cookie.as_str()));
        for (headers, status) in [
            (vec![], Some(401)),
            (vec![("origin", own.as_str())], Some(401)),
            (vec![("authorization", "Bearer x"), cookie], Some(401)),
            (vec![cookie], Some(403)),
            (vec![cookie, evil], Some(403)),
            (vec![cookie, ("origin", "null")], Some(403)),
            (vec![bearer, evil], Some(403)),
            (vec![bearer], None),
            (vec![bearer, ("origin", own.as_str())], None),
            (vec![cookie, ("origin", own.as_str())], None),
        ] {
            assert_eq!(AcpClient::open(address, "/acp", &headers).await.err(), status, "{headers:?}");
        }
        let token = &stage.client.token;
        for (path, status) in [
            (format!("/acp?token={token}"), 401),
            ("/acp?agent=/bin/sh".to_owned(), 400),
            ("/acp?agent=sh%20-c%20true".to_owned(), 400),
            ("/acp?command=sh".to_owned(), 400),
        ] {
            let headers: &[(&str, &str)] = if status == 401 { &[] } else { &[bearer] };
            assert_eq!(AcpClient::open(address, &path, headers).await.err(), Some(status), "{path}");
        }
        // A request without an upgrade.
        assert_eq!(stage.client.send_plain("GET", "/acp", &[bearer], None).await.status, 400);
    });
}

fn policy() {
    run(async {
        let stage = ServerStage::with(|options| {
            let file = options.dir.with_file_name("tokens.toml");
            let row = |name: &str, rest: &str| {
                let sha256 = hex(&digest(name.as_bytes()));
                format!("[[token]]\nname = \"{name}\"\nsha256 = \"{sha256}\"\n{rest}\n")
            };
            let rows = [
                row("ci", "agents = [\"gemini\"]\npermission_modes = [\"default\"]\nmax_concurrent = 1"),
                row("daily", "daily_cost_usd = 1.0"),
                row("reader", "read_only = true"),
            ];
            std::fs::write(&file, rows.concat()).unwrap();
            options.tokens = Some(file);
        })
        .await;
        let address = stage.client.address;
        for (token, path) in [("ci", "/acp?agent=claude"), ("daily", "/acp"), ("reader", "/acp")] {
            assert_eq!(AcpClient::with_token(address, path, token).await.err(), Some(403), "{token}");
        }
        let mut client = AcpClient::with_token(address, "/acp", "ci").await.expect("its first agent");
        assert_eq!(AcpClient::with_token(address, "/acp", "ci").await.err(), Some(429), "its only place");
        let params = json!({"protocolVersion": 1, "clientCapabilities": {}});
        client.call("initialize", params).await.expect("initialized");
        let outside = stage.dir.path().join("home");
        let mut refused = vec![stage.dir.path().to_owned(), outside.clone(), stage.workspace().join("..")];
        #[cfg(unix)]
        {
            let link = stage.workspace().join("link");
            std::os::unix::fs::symlink(&outside, &link).unwrap();
            refused.push(link);
        }
        for cwd in refused {
            for method in ["session/new", "session/load"] {
                let params = json!({"cwd": cwd, "sessionId": "a", "mcpServers": []});
                let error = client.call(method, params).await.expect_err("refused");
                assert_eq!(error["code"], -32602, "{cwd:?} {error}");
                assert!(error["message"].as_str().unwrap().contains("not in a directory"), "{error}");
            }
        }
        let server = json!({"name": "a", "command": "touch", "args": ["x"], "env": []});
        let params = json!({"cwd": stage.workspace(), "mcpServers": [server]});
        assert_eq!(client.call("session/new", params).await.expect_err("refused")["code"], -32602);
        let session = client.new_session(&stage.workspace()).await.unwrap();
        let params = json!({"sessionId": session, "modeId": "yolo"});
        assert_eq!(client.call("session/set_mode", params).await.expect_err("refused")["code"], -32602);
        assert_eq!(client.prompt(&session, "say it works").await, "it works");
    });
}

fn limits() {
    run(async {
        let stage = ServerStage::with(|options| {
            options.limits.start_bytes = 100_000;
            options.limits.acp_connections = 2;
        })
        .await;
        let mut client = AcpClient::of(&stage).await;
        let _other = AcpClient::of(&stage).await;
        let (address, token) = (stage.client.address, stage.client.token.clone());
        assert_eq!(AcpClient::with_token(address, "/acp", &token).await.err(), Some(429));
        client.send(Message::text("x".repeat(200_000))).await;
        assert_eq!(client.next().await, None, "the connection is closed");
        eventually(async || AcpClient::with_token(address, "/acp", &token).await.is_ok()).await;
    });
}

fn does_not_read() {
    run(async {
        let stage = ServerStage::with(|options| {
            options.limits.acp_connections = 2;
            options.limits.write_timeout = Duration::from_secs(1);
        })
        .await;
        let mut stuck = AcpClient::of(&stage).await;
        let session = stuck.new_session(&stage.workspace()).await.unwrap();
        let script = format!("say {}\n", "x".repeat(2 << 20)).repeat(12);
        stuck.begin("session/prompt", prompt(&session, &script)).await;
        let mut other = AcpClient::of(&stage).await;
        let session = other.new_session(&stage.workspace()).await.unwrap();
        assert_eq!(other.prompt(&session, "say it works").await, "it works");
        // The place of the client that does not read becomes free.
        let (address, token) = (stage.client.address, stage.client.token.clone());
        eventually(async || AcpClient::with_token(address, "/acp", &token).await.is_ok()).await;
        drop(stuck);
    });
}
