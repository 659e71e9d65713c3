//! A client of `agentline host` for tests with real agents.

use agentline_tests::Watchdog;
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    io::{BufRead as _, BufReader, Lines, Write as _},
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    time::Duration,
};

/// The time limit for one request. A real agent may take minutes on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(400);

/// A host process and its standard streams. The process ends with the value.
pub(crate) struct AttackedHost {
    process: Child,
    stdin: Option<ChildStdin>,
    lines: Lines<BufReader<ChildStdout>>,
    last_id: u64,
}

impl AttackedHost {
    /// Starts a host in a directory. `agent` is the variable that names the agent's program, and its path.
    pub(crate) fn start(variables: &BTreeMap<String, String>, agent: (&str, &Path), cwd: &Path) -> Self {
        let mut process = Command::new(env!("CARGO_BIN_EXE_agentline-under-test"))
            .arg("host")
            .env_clear()
            .envs(variables)
            .env(agent.0, agent.1)
            .current_dir(cwd)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let stdin = process.stdin.take();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let mut host = Self { process, stdin, lines, last_id: 0 };
        host.call("initialize", json!({"client": {"name": "test", "version": "1"}}));
        host
    }

    /// Sends a request and waits for its result.
    pub(crate) fn call(&mut self, method: &str, params: Value) -> Value {
        self.last_id += 1;
        let request = json!({"jsonrpc": "2.0", "id": self.last_id, "method": method, "params": params});
        writeln!(self.stdin.as_mut().unwrap(), "{request}").unwrap();
        let _watchdog = Watchdog::over(&self.process, PATIENCE, method);
        loop {
            let line =
                self.lines.next().unwrap_or_else(|| panic!("the host ended before it answered {method}"));
            let message: Value = serde_json::from_str(&line.unwrap()).unwrap();
            if message["id"] == self.last_id && message.get("method").is_none() {
                assert!(message.get("error").is_none(), "{method}: {message}");
                return message["result"].clone();
            }
        }
    }

    /// Runs a prompt, and returns its outcome.
    pub(crate) fn run(&mut self, mut params: Value, prompt: &str) -> Value {
        params["prompt"] = prompt.into();
        self.call("run", params)
    }

    /// Runs a prompt in a conversation of its own, and returns its outcome.
    pub(crate) fn converse(&mut self, params: Value, prompt: &str) -> Value {
        let session = self.call("session/open", params)["session"].clone();
        let outcome = self.call("session/prompt", json!({"session": session, "prompt": prompt}));
        self.call("session/close", json!({"session": session}));
        outcome
    }
}

impl Drop for AttackedHost {
    fn drop(&mut self) {
        drop(self.stdin.take());
        let _watchdog = Watchdog::over(&self.process, PATIENCE, "the end of the host");
        let _ = self.process.wait();
    }
}
