//! A client of `agentline host`, as in another language: lines of JSON over its standard streams.

use crate::{FakeStage, PATIENCE, exit_of};
use serde_json::{Value, json};
use std::{
    io::{BufRead as _, BufReader, Read, Write as _},
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    sync::{
        Arc, Condvar, Mutex, PoisonError,
        mpsc::{Receiver, RecvTimeoutError, channel},
    },
    time::{Duration, Instant},
};

/// A program that uses agentline over the host protocol.
#[derive(Debug)]
pub struct HostProgram {
    /// The test environment.
    pub stage: Arc<FakeStage>,
    /// The host process.
    pub child: Child,
    /// Its standard input. Dropping it ends the host.
    pub stdin: Option<ChildStdin>,
    /// Messages that arrived while another one was awaited.
    pub buffered: Vec<Value>,
    lines: Receiver<Value>,
    last_id: u64,
    reading: Arc<Gate>,
}

/// Whether the program reads agentline's output.
#[derive(Debug, Default)]
struct Gate {
    closed: Mutex<bool>,
    wakeup: Condvar,
}

impl Gate {
    fn set(&self, closed: bool) {
        *self.closed.lock().unwrap_or_else(PoisonError::into_inner) = closed;
        self.wakeup.notify_all();
    }

    fn pass(&self) {
        let closed = self.closed.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.wakeup.wait_while(closed, |closed| *closed).unwrap_or_else(PoisonError::into_inner));
    }
}

/// A pipe that is read only while the gate is open.
struct Gated {
    from: ChildStdout,
    gate: Arc<Gate>,
}

impl Read for Gated {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        self.gate.pass();
        self.from.read(into)
    }
}

/// Kills a host during four runs this many times, and returns how long processes remained each time.
///
/// # Panics
/// Panics if a process remains for half a minute.
#[must_use]
pub fn kill_amid_runs(program: &str, stage: &Arc<FakeStage>, rounds: usize) -> Vec<Duration> {
    let mut times: Vec<Duration> = (0..rounds)
        .map(|_| {
            let mut host = HostProgram::start(program, Arc::clone(stage), &json!({}));
            for n in 0..4 {
                host.send("run", json!({"prompt": "say up\nrun sleep 600", "run": format!("r{n}")}));
            }
            for _ in 0..4 {
                host.wait("a run", |m| m["params"]["event"]["type"] == "tool_use");
            }
            assert!(stage.living().len() >= 8, "four agents, each with its processes");
            host.child.kill().expect("our child");
            exit_of(&mut host.child, "the end of a killed host");
            let killed = Instant::now();
            host.nothing_left(Duration::from_secs(30));
            killed.elapsed()
        })
        .collect();
    times.sort();
    times
}

/// Returns the settings that all of these tests use.
#[must_use]
pub fn common() -> Value {
    json!({"permission_mode": "bypass", "pass_env": ["*"], "quiet_period_ms": 0, "timeout": 90})
}

#[expect(clippy::unwrap_used, reason = "test helpers may panic")]
impl HostProgram {
    /// Starts this program as a host, without sending anything.
    ///
    /// # Panics
    /// Panics if it cannot be started.
    #[must_use]
    pub fn silent(program: impl AsRef<Path>, stage: Arc<FakeStage>, args: &[&str]) -> Self {
        let mut command = Command::new(program.as_ref());
        command.arg("host").args(args);
        Self::of_command(command, stage)
    }

    /// Starts a command of the program that speaks JSON-RPC with lines. The variables of the command are added to those
    /// of the test environment.
    ///
    /// # Panics
    /// Panics if it cannot be started.
    #[must_use]
    pub fn of_command(mut command: Command, stage: Arc<FakeStage>) -> Self {
        let own: Vec<_> =
            command.get_envs().map(|(name, value)| (name.to_owned(), value.map(ToOwned::to_owned))).collect();
        command.env_clear().envs(stage.variables());
        command.envs(own.into_iter().filter_map(|(name, value)| Some((name, value?))));
        let mut child = command
            .current_dir(stage.workspace())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let reading = Arc::<Gate>::default();
        let from = Gated { from: child.stdout.take().unwrap(), gate: Arc::clone(&reading) };
        let (send, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(from).lines() {
                let Ok(line) = line else { return };
                let value = serde_json::from_str(&line).unwrap_or_else(|_| panic!("not JSON: {line}"));
                if send.send(value).is_err() {
                    return;
                }
            }
        });
        let stdin = child.stdin.take();
        Self { stage, child, stdin, lines, last_id: 100, buffered: Vec::new(), reading }
    }

    /// Starts a host and sends the settings that all of its runs share.
    ///
    /// # Panics
    /// Panics if it cannot be started.
    #[must_use]
    pub fn start(program: impl AsRef<Path>, stage: Arc<FakeStage>, initialize: &Value) -> Self {
        let mut host = Self::silent(program, stage, &[]);
        let mut params = json!({"defaults": common(), "client": {"name": "test", "version": "1"}});
        for (key, value) in initialize.as_object().into_iter().flatten() {
            match (params.get_mut(key), value) {
                (Some(Value::Object(existing)), Value::Object(more)) => existing.extend(more.clone()),
                _ => params[key] = value.clone(),
            }
        }
        host.call("initialize", params);
        host
    }

    /// Stops or resumes reading agentline's output.
    pub fn reads(&self, reads: bool) {
        self.reading.set(!reads);
    }

    /// Sends raw bytes and a line end.
    ///
    /// # Panics
    /// Panics if the host has exited.
    pub fn bytes(&mut self, bytes: &[u8]) {
        let stdin = self.stdin.as_mut().unwrap();
        stdin.write_all(bytes).unwrap();
        stdin.write_all(b"\n").unwrap();
        stdin.flush().unwrap();
    }

    /// Sends a line.
    ///
    /// # Panics
    /// Panics if the host has exited.
    pub fn line(&mut self, line: &str) {
        self.bytes(line.as_bytes());
    }

    /// Sends a request, and returns its id.
    ///
    /// # Panics
    /// Panics if the host has exited.
    pub fn send(&mut self, method: &str, params: Value) -> u64 {
        self.last_id += 1;
        let id = self.last_id;
        self.line(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string());
        id
    }

    /// Answers a request of agentline.
    ///
    /// # Panics
    /// Panics if the host has exited.
    pub fn reply(&mut self, question: &Value, result: Value) {
        self.line(&json!({"jsonrpc": "2.0", "id": question["id"], "result": result}).to_string());
    }

    /// Returns the next matching message, and keeps the others.
    ///
    /// # Panics
    /// Panics if it does not arrive.
    pub fn wait(&mut self, description: &str, matches: impl Fn(&Value) -> bool) -> Value {
        if let Some(at) = self.buffered.iter().position(&matches) {
            return self.buffered.remove(at);
        }
        let until = Instant::now() + PATIENCE;
        loop {
            match self.lines.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(message) if matches(&message) => return message,
                Ok(message) => self.buffered.push(message),
                Err(RecvTimeoutError::Timeout) => {
                    panic!("no {description} arrived; received: {:#?}", self.buffered)
                }
                Err(RecvTimeoutError::Disconnected) => {
                    panic!("the host exited before {description} arrived: {:#?}", self.buffered)
                }
            }
        }
    }

    /// Returns the next message.
    ///
    /// # Panics
    /// Panics if no message arrives.
    pub fn message(&mut self) -> Value {
        if self.buffered.is_empty() { self.wait("message", |_| true) } else { self.buffered.remove(0) }
    }

    /// Returns the response to a request.
    ///
    /// # Panics
    /// Panics if no message arrives.
    pub fn answer(&mut self, id: u64) -> Value {
        self.wait("answer", |m| m["id"] == id && m.get("method").is_none())
    }

    /// Returns the next request or notification of this name.
    ///
    /// # Panics
    /// Panics if no message arrives.
    pub fn question(&mut self, method: &str) -> Value {
        self.wait(method, |m| m["method"] == method)
    }

    /// Sends a request and returns its result.
    ///
    /// # Panics
    /// Panics if the request fails.
    pub fn call(&mut self, method: &str, params: Value) -> Value {
        let id = self.send(method, params);
        let answer = self.answer(id);
        assert!(answer.get("error").is_none(), "{method}: {answer}");
        answer["result"].clone()
    }

    /// Runs a script and returns the outcome.
    ///
    /// # Panics
    /// Panics if the request fails.
    pub fn run(&mut self, prompt: &str) -> Value {
        self.call("run", json!({"prompt": prompt}))
    }

    /// Returns the kept events of a run in order.
    #[must_use]
    pub fn events(&self, run: &str) -> Vec<&Value> {
        let of_run = |m: &&Value| m["method"] == "run/event" && m["params"]["run"] == run;
        self.buffered.iter().filter(of_run).map(|m| &m["params"]["event"]).collect()
    }

    /// Returns the joined text of a run's events.
    #[must_use]
    pub fn texts(&self, run: &str) -> String {
        let texts = self.events(run).into_iter().filter(|e| e["type"] == "text");
        texts.filter_map(|e| e["text"].as_str()).collect()
    }

    /// Waits until no process of the test is alive.
    ///
    /// # Panics
    /// Panics if a process is alive after that time.
    #[cfg(target_os = "linux")]
    pub fn nothing_left(&self, within: Duration) {
        let until = Instant::now() + within;
        while !self.stage.living().is_empty() {
            assert!(Instant::now() < until, "still alive: {:?}", self.stage.living());
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for HostProgram {
    fn drop(&mut self) {
        self.reading.set(false);
        drop(self.stdin.take());
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
