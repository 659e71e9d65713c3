//! A small HTTP client that uses MCP as an agent would, on a plain socket.

use agentline::{McpServer, tools::RunningTools};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

/// Longer than anything here takes, even on a busy machine.
pub(crate) const LONG: Duration = Duration::from_secs(30);

/// One server as an agent reaches it.
#[derive(Clone)]
pub(crate) struct ToolClient {
    pub(crate) address: String,
    pub(crate) path: String,
    pub(crate) headers: Vec<(String, String)>,
}

impl ToolClient {
    /// Creates a client of one of the servers that are passed to the agent.
    pub(crate) fn of(serving: &RunningTools, name: &str) -> Self {
        let Some(McpServer::Url { url, headers }) = serving.servers().get(name) else {
            panic!("no server {name} in {:?}", serving.servers());
        };
        let (address, path) = url.strip_prefix("http://").and_then(|rest| rest.split_once('/')).unwrap();
        let headers = headers.iter().map(|(name, value)| (name.clone(), value.clone())).collect();
        Self { address: address.into(), path: format!("/{path}"), headers }
    }

    /// Returns the same client with a header replaced or added.
    pub(crate) fn with(mut self, name: &str, value: &str) -> Self {
        self.headers.retain(|(old, _)| old != name);
        self.headers.push((name.into(), value.into()));
        self
    }

    /// Sends a message and keeps the connection.
    pub(crate) async fn send(&self, message: &Value) -> TcpStream {
        let mut stream = TcpStream::connect(&self.address).await.unwrap();
        let body = message.to_string();
        let host = if self.headers.iter().any(|(name, _)| name == "Host") {
            String::new()
        } else {
            format!("Host: {}\r\n", self.address)
        };
        let headers: String =
            self.headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let head = format!(
            "POST {} HTTP/1.1\r\n{host}{headers}Accept: application/json, text/event-stream\r\nContent-Type: \
             application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
            self.path,
            body.len()
        );
        stream.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
        stream
    }

    /// Sends a message, and returns the status and body of the response.
    pub(crate) async fn post(&self, message: &Value) -> (u16, String) {
        let mut stream = self.send(message).await;
        let mut answer = String::new();
        timeout(LONG, stream.read_to_string(&mut answer)).await.expect("an answer in time").unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
        (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
    }

    /// Sends a request, and returns the whole response as JSON.
    pub(crate) async fn request(&self, id: u64, method: &str, params: Value) -> Value {
        let (status, body) =
            self.post(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})).await;
        assert_eq!(status, 200, "{body}");
        let answer: Value = serde_json::from_str(&body).unwrap();
        assert_eq!(answer["id"], id, "{answer}");
        answer
    }

    pub(crate) async fn initialize(&self) -> Value {
        let params = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
        self.request(0, "initialize", params).await["result"].clone()
    }

    /// Returns the names of the tools.
    pub(crate) async fn list(&self) -> Vec<String> {
        let answer = self.request(1, "tools/list", json!({})).await;
        let tools = answer["result"]["tools"].as_array().unwrap_or_else(|| panic!("{answer}"));
        tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
    }

    /// Calls a tool, and returns whether it failed and its text.
    pub(crate) async fn call(&self, name: &str, args: Value) -> (bool, String) {
        let answer = self.request(2, "tools/call", json!({"name": name, "arguments": args})).await;
        let result = &answer["result"];
        let text = result["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{answer}"));
        (result["isError"] == true, text.to_owned())
    }

    /// Sends a notification to the server.
    pub(crate) async fn notify(&self, method: &str, params: Value) {
        let (status, body) = self.post(&json!({"jsonrpc": "2.0", "method": method, "params": params})).await;
        assert_eq!(status, 202, "{body}");
    }

    /// Returns whether the port has a listener.
    pub(crate) async fn is_open(&self) -> bool {
        TcpStream::connect(&self.address).await.is_ok()
    }
}

/// Reads reports until one matches. Returns all of them as JSON; the match is the last.
pub(crate) async fn lines_until(serving: &mut RunningTools, fits: impl Fn(&Value) -> bool) -> Vec<Value> {
    let mut seen: Vec<Value> = Vec::new();
    loop {
        let lines =
            timeout(LONG, serving.next()).await.unwrap_or_else(|_| panic!("no such line after {seen:?}"));
        seen.extend(lines.iter().map(|line| serde_json::from_str::<Value>(line).unwrap()));
        if seen.iter().any(&fits) {
            return seen;
        }
    }
}

/// Returns all reports so far.
pub(crate) fn lines(serving: &mut RunningTools) -> Vec<Value> {
    serving.drain().iter().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Waits until a condition holds.
pub(crate) async fn until(condition: &str, is_so: impl AsyncFn() -> bool) {
    timeout(LONG, async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await
    .unwrap_or_else(|_| panic!("{condition}: not in time"));
}
