//! Tests the command `agentline acp` with a fake agent: what AGENT can be, its errors, secrets, and the end of everything.

use super::nothing_left;
use agentline_tests::{FakeStage, output_of, survivors};
use serde_json::{Value, json};
use std::{
    io::{BufRead as _, BufReader, Write as _},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

const PROGRAM: &str = env!("CARGO_BIN_EXE_agentline-under-test");
pub(super) const FAKE: &str = env!("CARGO_BIN_EXE_fake-acp");
const SECRET: &str = "hush-hush-0123456789";

/// A client on the standard input and output of `agentline acp`.
pub(super) struct LineClient {
    pub(super) child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    session: Value,
    /// Everything that the client has received.
    seen: String,
}

impl LineClient {
    /// Starts the program with these arguments, and opens a session in the workspace.
    pub(super) fn start(stage: &FakeStage, args: &[&str]) -> Self {
        let mut child = program(stage, args).stdin(Stdio::piped()).spawn().unwrap();
        let (stdin, stdout) = (child.stdin.take(), BufReader::new(child.stdout.take().unwrap()));
        let mut client = Self { child, stdin, stdout, session: Value::Null, seen: String::new() };
        client.send(1, "initialize", &json!({"protocolVersion": 1, "clientCapabilities": {}}));
        client.response(1);
        client.send(2, "session/new", &json!({"cwd": stage.workspace(), "mcpServers": []}));
        client.session = client.response(2)["result"]["sessionId"].clone();
        client
    }

    fn send(&mut self, id: u64, method: &str, params: &Value) {
        let request = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        writeln!(self.stdin.as_ref().unwrap(), "{request}").unwrap();
    }

    pub(super) fn prompt(&mut self, id: u64, text: &str) {
        let params = json!({"sessionId": self.session, "prompt": [{"type": "text", "text": text}]});
        self.send(id, "session/prompt", &params);
    }

    pub(super) fn receive(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        assert!(!line.is_empty(), "the program has exited: {}", self.seen);
        self.seen.push_str(&line);
        line
    }

    pub(super) fn response(&mut self, id: u64) -> Value {
        loop {
            let frame: Value = serde_json::from_str(&self.receive()).unwrap();
            if frame["id"] == id && frame["method"].is_null() {
                return frame;
            }
        }
    }

    /// Closes standard input.
    pub(super) fn close_stdin(&mut self) {
        self.stdin = None;
    }

    /// Closes standard input, and returns the exit code and standard error.
    pub(super) fn disconnect(mut self) -> (Option<i32>, String) {
        self.close_stdin();
        let done = output_of(self.child, "the end of the program");
        (done.status.code(), String::from_utf8_lossy(&done.stderr).into_owned())
    }

    /// Returns the process of the fake agent.
    pub(super) fn agent(&self, home: &Path) -> u32 {
        let is_agent = |pid: &u32| {
            let line = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            line.trim_end_matches('\0') == FAKE
        };
        let all = survivors(&format!("HOME={}", home.display()));
        all.into_iter().find(is_agent).expect("the agent is running")
    }
}

fn program(stage: &FakeStage, args: &[&str]) -> Command {
    let mut command = Command::new(PROGRAM);
    command.arg("acp").args(args).current_dir(stage.workspace()).env_clear().envs(stage.variables());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

pub(super) fn home(stage: &FakeStage) -> PathBuf {
    stage.path().join("home")
}

#[test]
fn wrong_agents_and_flags_are_usage_errors() {
    let stage = FakeStage::new(FAKE);
    for (args, message) in [
        (&["--", "gemni"][..], "`gemni` is neither an agent nor a program"),
        (&["--", "gemini", "--yolo"], "no words can follow it"),
        (&["--", "./missing", "--acp"], "`./missing` is neither an agent nor a program"),
        (&["--permission-mode", "sometimes", "--", "gemini"], "`sometimes` is not a permission mode"),
        (&["--max-turns", "many", "--", "gemini"], "--max-turns"),
        (&["--surface", "json", "--", "gemini"], "--surface"),
        (&["--deny", "Bash(git *)", "--", FAKE], "cannot be enforced"),
        (&[], "AGENT"),
    ] {
        let done = output_of(program(&stage, args).spawn().unwrap(), "the end of the program");
        let stderr = String::from_utf8_lossy(&done.stderr);
        assert_eq!(done.status.code(), Some(2), "{args:?}: {stderr}");
        assert!(done.stdout.is_empty() && stderr.contains(message), "{args:?}: {stderr}");
    }
}

#[test]
fn agent_is_a_name_of_the_configuration_or_a_command_line() {
    let stage = FakeStage::new(FAKE);
    let config = format!("[agents.mine]\ncommand = [{FAKE:?}]\n");
    let dir = stage.path().join("home/.config/agentline");
    std::fs::create_dir_all(&dir).unwrap();
    std::fs::write(dir.join("config.toml"), config).unwrap();
    for agent in ["mine", FAKE] {
        let mut client = LineClient::start(&stage, &["--", agent]);
        client.prompt(3, "tool write_file a.txt hi\nsay fine");
        let answer = client.response(3);
        assert_eq!(answer["result"]["stopReason"], "end_turn", "{agent}: {answer}");
        assert_eq!(answer["result"]["_meta"]["agentline"]["files"][0]["path"], "a.txt", "{agent}: {answer}");
        let (code, stderr) = client.disconnect();
        assert_eq!(code, Some(0), "{agent}: {stderr}");
        std::fs::remove_file(stage.workspace().join("a.txt")).unwrap();
    }
    nothing_left(&home(&stage));
}

#[test]
fn secrets_reach_only_the_agent() {
    let stage = FakeStage::new(FAKE);
    let (log, tape) = (stage.path().join("log"), stage.path().join("tape.jsonl"));
    let log_variable = format!("FAKE_ACP_LOG={}", log.display());
    let secret = format!("SOME_API_KEY={SECRET}");
    let tape_file = tape.to_string_lossy().into_owned();
    let args = ["-v", "--env", &log_variable, "--env", &secret, "--record", &tape_file, "--", FAKE];
    let mut client = LineClient::start(&stage, &args);
    client.prompt(3, &format!("stderr it is {SECRET}\nsay it is {SECRET}\nsay over"));
    client.response(3);
    let seen = client.seen.clone();
    let (code, stderr) = client.disconnect();
    assert_eq!(code, Some(0), "{stderr}");
    assert!(seen.contains("over") && !seen.contains(SECRET), "{seen}");
    let tape = std::fs::read_to_string(tape).unwrap();
    assert!(tape.contains("it is") && !tape.contains(SECRET), "{tape}");
    assert!(!stderr.contains(SECRET), "{stderr}");
    assert!(std::fs::read_to_string(log).unwrap().contains(SECRET), "the agent gets what the client sends");
}

#[test]
fn everything_ends_with_standard_input_and_with_the_program() {
    for is_killed in [false, true] {
        let stage = FakeStage::new(FAKE);
        let mut client = LineClient::start(&stage, &["--permission-mode", "bypass", "--", FAKE]);
        client.prompt(3, "say begun\nrun sleep 600");
        while !client.receive().contains("begun") {}
        client.agent(&home(&stage));
        if is_killed {
            client.child.kill().unwrap();
            client.child.wait().unwrap();
        } else {
            let (code, stderr) = client.disconnect();
            assert_eq!(code, Some(0), "{stderr}");
        }
        nothing_left(&home(&stage));
    }
}

#[test]
fn exit_of_the_agent_is_reported() {
    let stage = FakeStage::new(FAKE);
    let mut client = LineClient::start(&stage, &["--", FAKE]);
    client.prompt(3, "say half\ndie 9");
    let answer = client.response(3);
    assert!(answer["error"]["message"].is_string(), "{answer}");
    let done = output_of(client.child, "the end of the program");
    let stderr = String::from_utf8_lossy(&done.stderr);
    assert_eq!(done.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("the agent has exited"), "{stderr}");
    nothing_left(&home(&stage));
}
