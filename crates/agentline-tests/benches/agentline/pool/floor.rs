//! The floor: one process, pipes, and a minimal ACP client.

use agentline_core::Program;
use agentline_tests::{MODEL, TestStage};
use serde_json::{Value, json};
use std::{
    io::{BufRead, BufReader, Write},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    time::Instant,
};

pub(crate) struct PoolFloor {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    cwd: String,
    id: u64,
}

impl PoolFloor {
    /// Starts the agent and initializes it.
    pub(crate) fn start(stage: &TestStage, program: &Program) -> Self {
        let mut command = Command::new(&program.path);
        command.args(&program.args).args(["--acp", "-m", MODEL, "--approval-mode", "yolo", "-e", "none"]);
        command.env_clear().envs(stage.variables()).current_dir(stage.workspace());
        command.envs([
            ("GEMINI_CLI_NO_RELAUNCH", "1"),
            ("NO_COLOR", "1"),
            ("GEMINI_CLI_TRUST_WORKSPACE", "true"),
        ]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().expect("the agent");
        let stdin = child.stdin.take().expect("a pipe");
        let stdout = BufReader::new(child.stdout.take().expect("a pipe"));
        let cwd = stage.workspace().to_string_lossy().into_owned();
        let mut floor = Self { child, stdin, stdout, cwd, id: 0 };
        floor.ask("initialize", &json!({"protocolVersion": 1, "clientCapabilities": {}}));
        floor
    }

    /// Opens a new session.
    pub(crate) fn open(&mut self) -> String {
        let cwd = self.cwd.clone();
        let opened = self.ask("session/new", &json!({"cwd": cwd, "mcpServers": []}));
        opened["sessionId"].as_str().expect("a session").to_owned()
    }

    /// Measures a prompt in an open session.
    pub(crate) fn prompt(&mut self, session: &str) -> f64 {
        let start = Instant::now();
        let prompt = json!([{"type": "text", "text": super::child::PROMPT}]);
        let answer = self.ask("session/prompt", &json!({"sessionId": session, "prompt": prompt}));
        assert_eq!(answer["stopReason"], "end_turn");
        start.elapsed().as_secs_f64()
    }

    /// Measures a new session and a prompt in it.
    pub(crate) fn prompt_in_new_session(&mut self) -> f64 {
        let start = Instant::now();
        let session = self.open();
        self.prompt(&session);
        start.elapsed().as_secs_f64()
    }

    fn ask(&mut self, method: &str, params: &Value) -> Value {
        self.id += 1;
        let request = json!({"jsonrpc": "2.0", "id": self.id, "method": method, "params": params});
        writeln!(self.stdin, "{request}").expect("the agent listens");
        let mut line = String::new();
        loop {
            line.clear();
            assert!(self.stdout.read_line(&mut line).expect("a line") > 0, "the agent is gone");
            let message: Value = serde_json::from_str(&line).expect("a message");
            if message["id"] == self.id && message.get("method").is_none() {
                return message["result"].clone();
            }
        }
    }
}

/// Returns the processor time of this thread, which does all work of the floor, in seconds, or `None` if it is not
/// available.
pub(crate) fn cpu() -> f64 {
    let schedstat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    schedstat.split_whitespace().next().and_then(|nanos| nanos.parse::<f64>().ok()).unwrap_or(f64::NAN) / 1e9
}

impl Drop for PoolFloor {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
