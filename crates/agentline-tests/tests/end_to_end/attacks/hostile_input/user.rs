//! Creates a user for one test: a separate home, workspace and temporary directory, and a fake agent.

use serde_json::Value;
use std::{
    fs,
    io::Write as _,
    path::PathBuf,
    process::{Child, Command, Output, Stdio},
    time::{Duration, Instant},
};

/// The maximum wait before the test fails. Limits under test are much shorter.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// The program under test.
pub(super) const AGENTLINE: &str = env!("CARGO_BIN_EXE_agentline-under-test");

/// A user with everything that a run needs. It is removed with the test.
pub(super) struct HostileUser {
    dir: tempfile::TempDir,
    env: Vec<(String, String)>,
}

/// The result of a command.
#[derive(Debug)]
pub(super) struct TimedOutput {
    pub(super) code: i32,
    pub(super) out: String,
    pub(super) err: String,
    pub(super) took: Duration,
}

impl HostileUser {
    /// Creates a user of the fake stream-json agent with a fault.
    pub(super) fn headless(fault: &str, args: &Value) -> Self {
        let user = Self::of(env!("CARGO_BIN_EXE_fake-gemini"));
        user.env("FAKE_AGENT_FAULT", fault)
            .env("FAKE_AGENT_ARGS", &args.to_string())
            .env("AGENTLINE_PASS_ENV", "FAKE_AGENT_FAULT,FAKE_AGENT_ARGS")
    }

    /// Creates a user of the fake ACP agent. Prompts are scripts.
    pub(super) fn live() -> Self {
        Self::of(env!("CARGO_BIN_EXE_fake-acp")).env("AGENTLINE_SURFACE", "acp")
    }

    /// Creates a user whose agent is a shell script.
    pub(super) fn scripted(commands: &str) -> Self {
        use std::os::unix::fs::PermissionsExt as _;
        let user = Self::of("");
        let program = user.dir.path().join("agent");
        fs::write(&program, format!("#!/bin/sh\ncat > /dev/null\n{commands}\n")).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let program = program.to_string_lossy().into_owned();
        user.env("GEMINI_CLI_PATH", &program)
    }

    fn of(program: &str) -> Self {
        let dir = tempfile::Builder::new().prefix("agentline-hostile-").tempdir().unwrap();
        for part in ["home", "ws", "tmp"] {
            fs::create_dir(dir.path().join(part)).unwrap();
        }
        let tmp = dir.path().join("tmp").to_string_lossy().into_owned();
        Self { dir, env: Vec::new() }
            .env("PATH", &std::env::var("PATH").unwrap_or_default())
            .env("TMPDIR", &tmp)
            .env("GEMINI_CLI_PATH", program)
            .env("GEMINI_API_KEY", "no-key-of-anything")
    }

    pub(super) fn env(mut self, name: &str, value: &str) -> Self {
        self.env.retain(|(have, _)| have != name);
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Returns a path in the workspace; `../tmp` and `../home` are next to it.
    pub(super) fn path(&self, path: &str) -> PathBuf {
        self.dir.path().join("ws").join(path)
    }

    pub(super) fn write(&self, path: &str, text: &str) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// Creates a pipe without a writer.
    pub(super) fn pipe(&self, path: &str) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
    }

    /// Returns a command with this user's environment, in the workspace.
    pub(super) fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command
            .current_dir(self.path("."))
            .env_clear()
            .env("HOME", self.dir.path().join("home"))
            .envs(self.env.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// Returns the program under test with 4 GB of memory: an endless read must not take all memory of the machine.
    pub(super) fn agentline(&self, args: &[&str]) -> Command {
        let mut command = self.command("sh");
        command.args(["-c", "ulimit -v 4000000; exec \"$0\" \"$@\"", AGENTLINE]).args(args);
        command
    }

    /// Runs the program to its end.
    pub(super) fn done(&self, args: &[&str]) -> TimedOutput {
        finish(self.agentline(args))
    }

    /// Runs the program with this standard input.
    pub(super) fn done_with_input(&self, args: &[&str], input: &str) -> TimedOutput {
        let started_at = Instant::now();
        let mut child = self.agentline(args).stdin(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        wait(child, started_at)
    }
}

/// Runs a command to its end, with a timeout.
pub(super) fn finish(mut command: Command) -> TimedOutput {
    let started_at = Instant::now();
    wait(command.spawn().unwrap(), started_at)
}

/// Waits for a command, with a timeout, and reads its output.
pub(super) fn wait(child: Child, started_at: Instant) -> TimedOutput {
    let pid = child.id().to_string();
    let (send, ended) = std::sync::mpsc::channel();
    let reader = std::thread::spawn(move || {
        let output = child.wait_with_output();
        let _ = send.send(());
        output
    });
    if ended.recv_timeout(PATIENCE).is_err() {
        // This is the command that this test started.
        let _ = Command::new("kill").args(["-s", "KILL", &pid]).status();
        panic!("it did not end within {PATIENCE:?}");
    }
    let Output { status, stdout, stderr } = reader.join().unwrap().unwrap();
    TimedOutput {
        code: status.code().unwrap_or(-1),
        out: String::from_utf8_lossy(&stdout).into_owned(),
        err: String::from_utf8_lossy(&stderr).into_owned(),
        took: started_at.elapsed(),
    }
}

/// Waits for a command whose output is not read.
pub(super) fn wait_unread(child: &mut Child) -> i32 {
    let started_at = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status.code().unwrap_or(-1);
        }
        if started_at.elapsed() > PATIENCE {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("it did not end within {PATIENCE:?}");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

pub(super) fn signal(child: &Child, name: &str) {
    let sent = Command::new("kill").args(["-s", name, &child.id().to_string()]).status();
    assert!(sent.unwrap().success());
}

/// Waits until a condition holds.
pub(super) fn until(name: &str, mut holds: impl FnMut() -> bool) {
    let started_at = Instant::now();
    while !holds() {
        assert!(started_at.elapsed() < PATIENCE, "{name} did not arrive");
        std::thread::sleep(Duration::from_millis(20));
    }
}

impl TimedOutput {
    /// Returns standard output as one JSON value.
    pub(super) fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Asserts the verdict and the exit code, and that the duration is well within the limit.
    #[track_caller]
    pub(super) fn is(&self, verdict: &str, code: i32) -> Value {
        let outcome = self.json();
        assert_eq!((outcome["verdict"].as_str(), self.code), (Some(verdict), code), "{self:?}");
        outcome
    }
}
