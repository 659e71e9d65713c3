//! An ACP client on a WebSocket.

use crate::stage::{ServerStage, eventually};
use futures_util::{SinkExt as _, StreamExt as _};
use http_body_util::Empty;
use hyper::{Request, body::Bytes, client::conn::http1, upgrade::Upgraded};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use std::{net::SocketAddr, path::Path};
use tokio::net::TcpStream;
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{Message, protocol::Role},
};

/// A client on a WebSocket.
pub(crate) struct AcpClient {
    pub(crate) socket: WebSocketStream<TokioIo<Upgraded>>,
    last: u64,
    /// The text of the agent.
    pub(crate) text: String,
}

impl AcpClient {
    /// Connects with these headers, or returns the status of the refusal.
    pub(crate) async fn open(address: SocketAddr, path: &str, headers: &[(&str, &str)]) -> Result<Self, u16> {
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
    pub(crate) async fn with_token(address: SocketAddr, path: &str, token: &str) -> Result<Self, u16> {
        Self::open(address, path, &[("authorization", &format!("Bearer {token}"))]).await
    }

    pub(crate) async fn of(stage: &ServerStage) -> Self {
        let client = Self::with_token(stage.client.address, "/acp?agent=gemini", &stage.client.token).await;
        client.expect("a connection").initialized().await
    }

    /// Waits until a token has a slot for another connection, and connects with it.
    pub(crate) async fn when_free(stage: &ServerStage, token: &str) -> Self {
        let mut client = None;
        eventually(async || {
            client = Self::with_token(stage.client.address, "/acp?agent=gemini", token).await.ok();
            client.is_some()
        })
        .await;
        client.expect("a connection").initialized().await
    }

    pub(crate) async fn initialized(mut self) -> Self {
        let params = json!({"protocolVersion": 1, "clientCapabilities": {}});
        let initialized = self.call("initialize", params).await.expect("initialized");
        assert_eq!(initialized["agentCapabilities"]["loadSession"], true, "{initialized}");
        self
    }

    pub(crate) async fn send(&mut self, message: Message) {
        self.socket.send(message).await.expect("an open connection");
    }

    /// Returns the next message, or `None` at the end of the connection.
    pub(crate) async fn next(&mut self) -> Option<Value> {
        loop {
            match self.socket.next().await {
                Some(Ok(Message::Text(text))) => return Some(serde_json::from_str(&text).expect("JSON")),
                Some(Ok(Message::Close(_)) | Err(_)) | None => return None,
                Some(Ok(_)) => {}
            }
        }
    }

    pub(crate) async fn begin(&mut self, method: &str, params: Value) -> u64 {
        self.last += 1;
        let message = json!({"jsonrpc": "2.0", "id": self.last, "method": method, "params": params});
        self.send(Message::text(message.to_string())).await;
        self.last
    }

    pub(crate) async fn call(&mut self, method: &str, params: Value) -> Result<Value, Value> {
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

    pub(crate) async fn new_session(&mut self, cwd: &Path) -> Result<String, Value> {
        let opened = self.call("session/new", json!({"cwd": cwd, "mcpServers": []})).await?;
        Ok(opened["sessionId"].as_str().expect("an id").to_owned())
    }

    /// Loads a session.
    pub(crate) async fn load(&mut self, session: &str, cwd: &Path) -> Result<Value, Value> {
        let params = json!({"sessionId": session, "cwd": cwd, "mcpServers": []});
        self.call("session/load", params).await
    }

    /// Returns the process of the agent.
    pub(crate) async fn pid(&mut self, session: &str) -> u64 {
        let state = self.prompt(session, "state").await;
        serde_json::from_str::<Value>(&state).expect("JSON")["pid"].as_u64().expect("a number")
    }

    /// Sends a prompt and returns the text of the answer.
    pub(crate) async fn prompt(&mut self, session: &str, script: &str) -> String {
        self.text.clear();
        let answer = self.call("session/prompt", prompt(session, script)).await.expect("an answer");
        assert_eq!(answer["stopReason"], "end_turn", "{answer}");
        self.text.clone()
    }
}

pub(crate) fn prompt(session: &str, script: &str) -> Value {
    json!({"sessionId": session, "prompt": [{"type": "text", "text": script}]})
}

/// Returns the processes whose environment names a directory.
pub(crate) fn processes_of(dir: &Path) -> usize {
    let mark = dir.to_string_lossy().into_owned();
    let all = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let has_mark = |entry: &std::fs::DirEntry| {
        let environ = std::fs::read(entry.path().join("environ")).unwrap_or_default();
        String::from_utf8_lossy(&environ).contains(&mark)
    };
    all.filter(has_mark).count()
}
