//! A client that speaks ACP over a transport in memory, and the workspace of its test.

use agentline::{Agentline, RunRequest, agents::AgentRegistry, detect::HostEnv};
use agentline_acp::{AcpServer, AcpTransport, ConnectionEnd, Workspace};
use agentline_core::agents::CustomAgent;
use serde_json::{Value, json};
use std::{collections::BTreeMap, io::Write as _, path::PathBuf, sync::Arc, time::Duration};
use tokio::task::JoinHandle;

/// The argument with which this program is the fake agent.
pub(crate) const AS_AGENT: &str = "--fake-agent";
/// The time limit of each wait.
const LIMIT: Duration = Duration::from_secs(60);

/// The result of a request.
pub(crate) type CallResult = Result<Value, Value>;

/// A client with its server.
pub(crate) struct TestClient {
    transport: AcpTransport,
    server: AcpServer,
    served: JoinHandle<Result<ConnectionEnd, agentline::Error>>,
    pub(crate) dir: tempfile::TempDir,
    last: u64,
    /// The frames that were read while the client waited for another one.
    pub(crate) seen: Vec<String>,
    /// The option that the client picks when it is asked for permission.
    pub(crate) picks: Option<&'static str>,
    /// The requests that the client got.
    pub(crate) asked: Vec<Value>,
}

impl TestClient {
    /// Starts a server with the fake agent, whose messages are passed on.
    pub(crate) fn start(change: impl Fn(&mut RunRequest) + Send + Sync + 'static) -> Self {
        Self::adapted(change, |server| server)
    }

    /// Starts a server that translates the surface of the fake agent.
    pub(crate) fn translated(change: impl Fn(&mut RunRequest) + Send + Sync + 'static) -> Self {
        Self::adapted(change, AcpServer::translating)
    }

    /// Starts a server that is changed by a function.
    pub(crate) fn adapted(
        change: impl Fn(&mut RunRequest) + Send + Sync + 'static,
        adapt: impl Fn(AcpServer) -> AcpServer,
    ) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        for name in ["home", "ws", "tmp", "store"] {
            std::fs::create_dir(dir.path().join(name)).expect("a directory");
        }
        let path = |name: &str| dir.path().join(name);
        let variables: BTreeMap<String, String> = [
            ("PATH".to_owned(), std::env::var("PATH").unwrap_or_default()),
            ("TMPDIR".to_owned(), path("tmp").to_string_lossy().into_owned()),
        ]
        .into();
        let program = std::env::current_exe().expect("this program");
        let mut registry = AgentRegistry::default();
        let agent = CustomAgent::new("fake", [program.to_string_lossy().into_owned(), AS_AGENT.to_owned()]);
        registry.register(Arc::new(agent)).expect("a new agent");
        let agentline = Agentline::new(HostEnv::new(variables, path("home"), path("ws"))).agents(registry);
        let (log, store) = (path("log"), path("store"));
        let server = AcpServer::new(move |directory| {
            let mut request = RunRequest::default().agent("fake").working_dir(directory);
            for (name, path) in [("FAKE_ACP_LOG", &log), ("FAKE_ACP_STORE", &store)] {
                request.env.insert(name.to_owned(), path.to_string_lossy().into_owned());
            }
            change(&mut request);
            Ok(Workspace::new(agentline.clone(), request))
        });
        let server = adapt(server);
        let (transport, served) = connect(&server, path("ws"));
        Self { transport, server, served, dir, last: 0, seen: Vec::new(), picks: None, asked: Vec::new() }
    }

    /// Disconnects, and waits until the server has ended the connection.
    pub(crate) async fn leave(&mut self) {
        let (transport, _) = AcpTransport::pair();
        self.transport = transport;
        let end = tokio::time::timeout(LIMIT, &mut self.served).await.expect("the end of the connection");
        assert_eq!(end.expect("no panic").expect("valid settings"), ConnectionEnd::Disconnected);
    }

    /// Connects again with a new client, which has seen nothing. A connection that is still open is closed first.
    pub(crate) async fn reconnect(&mut self) {
        if !self.served.is_finished() {
            self.leave().await;
        }
        (self.transport, self.served) = connect(&self.server, self.workspace());
        self.seen.clear();
        self.asked.clear();
        self.last = 0;
    }

    /// Ends the agents that the server keeps.
    pub(crate) async fn close_kept_sessions(&self) {
        self.server.close_kept_sessions().await;
    }

    /// Returns the workspace.
    pub(crate) fn workspace(&self) -> PathBuf {
        self.dir.path().join("ws")
    }

    /// Sends a frame as it is.
    pub(crate) async fn send(&self, frame: impl Into<Vec<u8>>) {
        assert!(self.transport.send(frame).await, "the server has ended");
    }

    /// Receives the next frame.
    pub(crate) async fn receive(&mut self) -> String {
        let frame = tokio::time::timeout(LIMIT, self.transport.receive()).await;
        let frame = frame.expect("a frame in time").expect("a frame");
        String::from_utf8(frame).expect("UTF-8")
    }

    /// Sends a request, answers the agent's requests, and waits for the response.
    pub(crate) async fn call(&mut self, method: &str, params: Value) -> CallResult {
        let id = self.begin(method, params).await;
        self.response(id).await
    }

    /// Sends a request without waiting.
    pub(crate) async fn begin(&mut self, method: &str, params: Value) -> u64 {
        self.last += 1;
        let request = json!({"jsonrpc": "2.0", "id": self.last, "method": method, "params": params});
        self.send(request.to_string()).await;
        self.last
    }

    /// Waits for the response to a request.
    pub(crate) async fn response(&mut self, id: u64) -> CallResult {
        loop {
            let frame = self.receive().await;
            let message: Value = serde_json::from_str(&frame).unwrap_or_default();
            if message["method"] == "session/request_permission" {
                let option = self.picks;
                let outcome = match option {
                    Some(option) => json!({"outcome": "selected", "optionId": option}),
                    None => json!({"outcome": "cancelled"}),
                };
                let answer = json!({"jsonrpc": "2.0", "id": message["id"], "result": {"outcome": outcome}});
                self.asked.push(message["params"].clone());
                self.send(answer.to_string()).await;
                continue;
            }
            if let Some(answer) = self.file_answer(&message) {
                self.asked.push(message["params"].clone());
                self.send(answer).await;
                continue;
            }
            if message["id"] == id && message["method"].is_null() {
                return match message.get("error") {
                    Some(error) => Err(error.clone()),
                    None => Ok(message["result"].clone()),
                };
            }
            self.seen.push(frame);
        }
    }

    /// Returns the response to a request for a file or a terminal.
    fn file_answer(&self, message: &Value) -> Option<String> {
        let result = match message["method"].as_str()? {
            "fs/read_text_file" => json!({"content": "unsaved text"}),
            "fs/write_text_file" => json!({}),
            "terminal/create" => json!({"terminalId": "t1"}),
            _ => return None,
        };
        Some(json!({"jsonrpc": "2.0", "id": message["id"], "result": result}).to_string())
    }

    /// Returns the lines that the agent received.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }

    /// Opens a session in the workspace and returns its id.
    pub(crate) async fn open(&mut self) -> String {
        let init = json!({"protocolVersion": 1, "clientCapabilities": {}});
        self.call("initialize", init).await.expect("initialized");
        let opened = self.call("session/new", json!({"cwd": self.workspace(), "mcpServers": []})).await;
        opened.expect("a session")["sessionId"].as_str().expect("an id").to_owned()
    }

    /// Sends a prompt and waits for its end.
    pub(crate) async fn prompt(&mut self, session: &str, text: &str) -> CallResult {
        self.call("session/prompt", prompt(session, text)).await
    }

    /// Sends a prompt and returns the text of its answer.
    pub(crate) async fn text_of(&mut self, session: &str, text: &str) -> String {
        let before = self.text().len();
        self.prompt(session, text).await.expect("an answer");
        self.text().split_off(before)
    }

    /// Receives frames until this text is in the answers.
    pub(crate) async fn wait_for_text(&mut self, text: &str) {
        while !self.text().contains(text) {
            let frame = self.receive().await;
            self.seen.push(frame);
        }
    }

    /// Returns the updates of this kind that were received.
    pub(crate) fn updates(&self, kind: &str) -> Vec<Value> {
        let all = self.seen.iter().filter_map(|frame| serde_json::from_str::<Value>(frame).ok());
        let updates = all.map(|message| message["params"]["update"].clone());
        updates.filter(|update| update["sessionUpdate"] == kind).collect()
    }

    /// Returns the text of the answers.
    pub(crate) fn text(&self) -> String {
        let chunks = self.updates("agent_message_chunk");
        chunks.iter().filter_map(|chunk| chunk["content"]["text"].as_str()).collect()
    }

    /// Disconnects, and waits until the server has ended everything.
    pub(crate) async fn disconnect(self) {
        let (end, dir) = self.end().await;
        assert_eq!(end, ConnectionEnd::Disconnected);
        assert_eq!(processes_of(dir.path()), Vec::<String>::new());
    }

    /// Disconnects, and returns how the connection has ended.
    pub(crate) async fn end(self) -> (ConnectionEnd, tempfile::TempDir) {
        drop(self.transport);
        let ended = tokio::time::timeout(LIMIT, self.served).await.expect("the end of the server");
        self.server.close_kept_sessions().await;
        (ended.expect("no panic").expect("valid settings"), self.dir)
    }
}

fn connect(
    server: &AcpServer,
    ws: PathBuf,
) -> (AcpTransport, JoinHandle<Result<ConnectionEnd, agentline::Error>>) {
    let (transport, theirs) = AcpTransport::pair();
    let server = server.clone();
    (transport, tokio::spawn(async move { server.serve(ws, theirs).await }))
}

/// Returns the processes with this directory in their environment, as far as the system shows them.
pub(crate) fn processes_of(dir: &std::path::Path) -> Vec<String> {
    let mark = dir.to_string_lossy().into_owned();
    let all = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let has_mark = |entry: &std::fs::DirEntry| {
        let environ = std::fs::read(entry.path().join("environ")).unwrap_or_default();
        String::from_utf8_lossy(&environ).contains(&mark)
    };
    all.filter(has_mark).map(|entry| entry.path().display().to_string()).collect()
}

/// Returns the parameters of a prompt.
pub(crate) fn prompt(session: &str, text: &str) -> Value {
    json!({"sessionId": session, "prompt": [{"type": "text", "text": text}]})
}

/// Runs a test on a runtime of its own.
pub(crate) fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(test);
}

/// Writes a line to standard output.
pub(crate) fn report(line: &str) {
    writeln!(std::io::stdout(), "{line}").expect("standard output");
}
