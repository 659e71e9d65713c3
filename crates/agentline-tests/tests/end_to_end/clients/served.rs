//! A running `agentline serve` in a process of its own.
#![expect(clippy::unwrap_used, reason = "test helpers may panic")]

use agentline_tests::{PATIENCE, exit_of};
use serde_json::Value;
use std::{
    collections::BTreeMap,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpStream,
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
    time::Instant,
};

/// A server that offers a workspace. It is killed with this value.
pub(super) struct Served {
    child: Child,
    /// The host and the port.
    pub(super) address: String,
    /// The token of the owner.
    pub(super) token: String,
}

impl Served {
    /// Starts a server with these variables and no others. Its files are below `home`.
    pub(super) fn start(home: &Path, workspace: &Path, variables: &BTreeMap<String, String>) -> Self {
        let dir = home.join("serve");
        let [root, dir] = [workspace.to_string_lossy(), dir.to_string_lossy()];
        Self::start_with(&["--root", &root, "--dir", &dir], workspace, variables)
    }

    /// Starts a server with these flags and variables in a directory.
    pub(super) fn start_with(flags: &[&str], cwd: &Path, variables: &BTreeMap<String, String>) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_agentline-under-test"))
            .args(["serve", "--listen", "127.0.0.1:0"])
            .args(flags)
            .env_clear()
            .envs(variables)
            .current_dir(cwd)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut link = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut link).unwrap();
        let address = link.strip_prefix("http://").and_then(|rest| rest.split_once('/')).expect("a link").0;
        let mut messages = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
        let named = messages.find_map(|line| line.split_once(", from ").map(|(_, path)| path.to_owned()));
        let token = std::fs::read_to_string(named.expect("the file of the token")).unwrap();
        std::thread::spawn(move || messages.for_each(drop));
        Self { child, address: address.to_owned(), token }
    }

    /// Returns the id of its process.
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Asks the server to stop and waits for its end.
    pub(super) fn stop(mut self) -> ExitStatus {
        let sent = Command::new("kill").args(["-s", "TERM", &self.pid().to_string()]).status();
        assert!(sent.unwrap().success());
        exit_of(&mut self.child, "the end of the server")
    }

    /// Sends a request and returns the status and the JSON of the answer.
    pub(super) fn send(&self, method: &str, path: &str, body: Option<&Value>) -> (u16, Value) {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let body = body.map(Value::to_string).unwrap_or_default();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\nConnection: close\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            self.address,
            self.token,
            body.len()
        );
        stream.write_all(format!("{head}{body}").as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").expect("an answer");
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap();
        (status, serde_json::from_str(body).unwrap_or_default())
    }

    /// Waits for the outcome of a run.
    pub(super) fn outcome(&self, run: &str) -> Value {
        let start = Instant::now();
        loop {
            let answer = self.get(&format!("/v1/runs/{run}/outcome?wait_ms=10000"));
            if !answer["outcome"].is_null() {
                return answer["outcome"].clone();
            }
            assert!(start.elapsed() < PATIENCE, "the run does not end");
        }
    }

    pub(super) fn get(&self, path: &str) -> Value {
        self.send("GET", path, None).1
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // It may have exited already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
