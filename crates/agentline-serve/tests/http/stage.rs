//! A directory with a workspace, and a server whose agent is this program.

use crate::client::HttpClient;
use agentline::{Agentline, HostEnv};
use agentline_fs::digest::{digest, hex};
use agentline_serve::{ServeOptions, Server};
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

/// Set in the environment of the agent. Agents receive the variables with their own prefix.
pub(crate) const AGENT: &str = "GEMINI_IS_FAKE_OF_SERVE_TESTS";
/// Set to the directory in the environment of a server that is killed.
pub(crate) const SERVER: &str = "AGENTLINE_SERVE_TEST_DIR";

/// A directory with a workspace, and a running server.
pub(crate) struct ServerStage {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) server: Option<Server>,
    pub(crate) client: HttpClient,
}

impl ServerStage {
    /// Starts a server with the default options.
    pub(crate) async fn start() -> Self {
        Self::with(|_| {}).await
    }

    /// Starts a server with other options.
    pub(crate) async fn with(change: impl FnOnce(&mut ServeOptions)) -> Self {
        let dir = directory();
        let mut options = options(dir.path());
        change(&mut options);
        let server = Server::start(agentline(dir.path()), options).await.expect("a server");
        let client = HttpClient::new(server.address(), server.token());
        Self { dir, server: Some(server), client }
    }

    /// Stops the server and starts another one in the same directory.
    pub(crate) async fn restart(&mut self) {
        self.server.take().unwrap().stop().await.expect("a clean stop");
        let path = self.dir.path();
        let server = Server::start(agentline(path), options(path)).await.expect("a server");
        self.client = HttpClient::new(server.address(), server.token());
        self.server = Some(server);
    }

    pub(crate) fn workspace(&self) -> PathBuf {
        self.dir.path().join("ws")
    }

    /// Returns the entries of the audit log.
    pub(crate) fn audit_log(&self) -> Vec<Value> {
        let text = fs::read_to_string(self.dir.path().join("serve/audit.jsonl")).expect("a log");
        text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
    }

    /// Starts a run with this script and returns its id.
    pub(crate) async fn run(&self, script: &str) -> String {
        self.run_with(json!({"prompt": script})).await
    }

    /// Starts a run with these fields and returns its id.
    pub(crate) async fn run_with(&self, body: Value) -> String {
        let answer = self.client.post("/v1/runs", body).await;
        assert_eq!(answer.status, 201, "{}", answer.text());
        answer.json()["run"].as_str().unwrap().to_owned()
    }

    /// Waits for the outcome of a run.
    pub(crate) async fn outcome(&self, run: &str) -> Value {
        loop {
            let answer = self.client.get(&format!("/v1/runs/{run}/outcome?wait_ms=20000")).await.json();
            if !answer["outcome"].is_null() {
                return answer["outcome"].clone();
            }
        }
    }
}

/// Creates a directory with a home and a workspace.
pub(crate) fn directory() -> tempfile::TempDir {
    let dir = tempfile::Builder::new().prefix("agentline-serve-").tempdir().expect("a directory");
    for name in ["home", "ws", "tmp"] {
        fs::create_dir(dir.path().join(name)).expect("a directory");
    }
    dir
}

/// Returns the options of a server in a directory.
pub(crate) fn options(dir: &Path) -> ServeOptions {
    let mut options = ServeOptions::new(dir.join("serve"));
    options.roots = vec![dir.join("ws")];
    options.limits.changes_per_minute = 10_000;
    options
}

/// Adds tokens to the options of a server. The text of each is its name.
pub(crate) trait AddTokens {
    /// Adds tokens by their names and the lines of their policies.
    fn add_tokens(&mut self, tokens: &[(&str, &str)]);
}

impl AddTokens for ServeOptions {
    fn add_tokens(&mut self, tokens: &[(&str, &str)]) {
        let row = |(name, policy): &(&str, &str)| {
            let sha256 = hex(&digest(name.as_bytes()));
            format!("[[token]]\nname = \"{name}\"\nsha256 = \"{sha256}\"\n{policy}\n")
        };
        let file = self.dir.with_file_name("tokens.toml");
        fs::write(&file, tokens.iter().map(row).collect::<String>()).expect("a file");
        self.tokens = Some(file);
    }
}

/// Returns the library with this program as an agent.
pub(crate) fn agentline(dir: &Path) -> Agentline {
    let program = std::env::current_exe().expect("a path");
    let path = |name: &str| dir.join(name).to_string_lossy().into_owned();
    let variables: BTreeMap<String, String> = [
        ("PATH", std::env::var("PATH").unwrap_or_default()),
        ("HOME", path("home")),
        ("TMPDIR", path("tmp")),
        ("GEMINI_API_KEY", "no-key-of-anything".to_owned()),
        ("GEMINI_CLI_PATH", program.to_string_lossy().into_owned()),
        (AGENT, "1".to_owned()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into();
    Agentline::new(HostEnv::new(variables, dir.join("home"), dir.join("ws")))
}

/// The main function of a server that is killed. It prints its address and token.
pub(crate) fn serve_until_killed(dir: &Path) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let server = Server::start(agentline(dir), options(dir)).await.expect("a server");
        println!("{} {}", server.address(), server.token());
        #[cfg(unix)]
        {
            use tokio::signal::unix::{SignalKind, signal};
            signal(SignalKind::terminate()).expect("a signal").recv().await;
        }
        server.stop().await.expect("a clean stop");
    });
}

/// A server in a process of its own.
pub(crate) struct ServerProcess {
    pub(crate) child: Child,
    pub(crate) client: HttpClient,
}

impl ServerProcess {
    pub(crate) fn start(dir: &Path) -> Self {
        let program = std::env::current_exe().expect("a path");
        let mut child = Command::new(program)
            .env(SERVER, dir)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a process");
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).expect("a line");
        let (address, token) = line.trim().split_once(' ').expect("an address and a token");
        let client = HttpClient::new(address.parse().unwrap(), token);
        Self { child, client }
    }

    #[cfg(unix)]
    pub(crate) fn terminate(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("a signal");
        self.child.wait().expect("an exit");
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("a signal");
        self.child.wait().expect("an exit");
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        // It may have exited already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits until something holds.
pub(crate) async fn eventually(mut holds: impl AsyncFnMut() -> bool) {
    while !holds().await {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
