//! The floors: a client of a few lines for the long-lived process of each agent.

use super::PROMPT;
use agentline_tests::ScriptedStage;
use serde_json::{Value, json};
use std::{
    io::{BufRead, BufReader, Read as _, Write as _},
    net::TcpStream,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    time::Instant,
};

/// A long-lived process of an agent.
pub(crate) trait AgentFloor {
    /// Returns the seconds of a new session and a prompt in it.
    fn prompt(&mut self) -> f64;
}

/// A process that reads and writes lines of JSON.
struct LineProcess {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    id: u64,
}

impl LineProcess {
    fn start(mut command: Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().expect("the agent");
        let stdin = child.stdin.take().expect("a pipe");
        let stdout = BufReader::new(child.stdout.take().expect("a pipe"));
        Self { child, stdin, stdout, id: 0 }
    }

    fn send(&mut self, message: &Value) {
        writeln!(self.stdin, "{message}").expect("the agent listens");
    }

    fn until(&mut self, matches: impl Fn(&Value) -> bool) -> Value {
        let mut line = String::new();
        loop {
            line.clear();
            assert!(self.stdout.read_line(&mut line).expect("a line") > 0, "the agent is gone");
            let message: Value = serde_json::from_str(&line).expect("a message");
            if matches(&message) {
                return message;
            }
        }
    }

    /// Calls a method of JSON-RPC.
    fn call(&mut self, method: &str, params: &Value) -> Value {
        self.id += 1;
        let id = self.id;
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        let response = self.until(|message| message["id"] == id && message.get("method").is_none());
        assert!(response.get("error").is_none(), "{method}: {response}");
        response["result"].clone()
    }
}

impl Drop for LineProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn command(stage: &ScriptedStage, args: &[&str]) -> Command {
    let mut command = stage.command(&stage.program);
    command.args(args);
    command
}

/// Gemini CLI over ACP.
pub(crate) fn gemini(stage: &ScriptedStage) -> Box<dyn AgentFloor> {
    struct Acp(LineProcess, String);
    impl AgentFloor for Acp {
        fn prompt(&mut self) -> f64 {
            let start = Instant::now();
            let opened = self.0.call("session/new", &json!({"cwd": self.1, "mcpServers": []}));
            let prompt = json!([{"type": "text", "text": PROMPT}]);
            let params = json!({"sessionId": opened["sessionId"], "prompt": prompt});
            assert_eq!(self.0.call("session/prompt", &params)["stopReason"], "end_turn");
            start.elapsed().as_secs_f64()
        }
    }
    let mut command = command(stage, &["--acp", "--approval-mode", "yolo", "-e", "none"]);
    command.envs([("GEMINI_CLI_NO_RELAUNCH", "1"), ("GEMINI_CLI_TRUST_WORKSPACE", "true")]);
    let mut process = LineProcess::start(command);
    process.call("initialize", &json!({"protocolVersion": 1, "clientCapabilities": {}}));
    Box::new(Acp(process, stage.workspace().to_string_lossy().into_owned()))
}

/// Codex on `app-server`.
pub(crate) fn codex(stage: &ScriptedStage) -> Box<dyn AgentFloor> {
    struct AppServer(LineProcess, String);
    impl AgentFloor for AppServer {
        fn prompt(&mut self) -> f64 {
            let start = Instant::now();
            let params = json!({"cwd": self.1, "approvalPolicy": "never", "sandbox": "danger-full-access"});
            let opened = self.0.call("thread/start", &params);
            let input = json!([{"type": "text", "text": PROMPT}]);
            self.0.call("turn/start", &json!({"threadId": opened["thread"]["id"], "input": input}));
            let ended = self.0.until(|message| message["method"] == "turn/completed");
            assert_eq!(ended["params"]["turn"]["status"], "completed", "{ended}");
            start.elapsed().as_secs_f64()
        }
    }
    let mut process = LineProcess::start(command(stage, &["app-server"]));
    process.call("initialize", &json!({"clientInfo": {"name": "floor", "title": "floor", "version": "1"}}));
    process.send(&json!({"jsonrpc": "2.0", "method": "initialized"}));
    Box::new(AppServer(process, stage.workspace().to_string_lossy().into_owned()))
}

/// Claude Code on `stream-json`. A process has one session, so each prompt gets a process that was initialized before.
pub(crate) fn claude(stage: &ScriptedStage) -> Box<dyn AgentFloor> {
    struct Stream(Box<dyn Fn() -> LineProcess>);
    impl AgentFloor for Stream {
        fn prompt(&mut self) -> f64 {
            let mut process = (self.0)();
            let start = Instant::now();
            let message = json!({"role": "user", "content": PROMPT});
            process.send(&json!({"type": "user", "message": message}));
            let result = process.until(|message| message["type"] == "result");
            assert_eq!(result["is_error"], false, "{result}");
            start.elapsed().as_secs_f64()
        }
    }
    let args = ["--print", "--input-format=stream-json", "--output-format=stream-json", "--verbose"];
    let (program, path) = (stage.program.clone(), command(stage, &args));
    let envs: Vec<_> =
        path.get_envs().map(|(name, value)| (name.to_owned(), value.map(ToOwned::to_owned))).collect();
    let workspace = stage.workspace();
    Box::new(Stream(Box::new(move || {
        let mut command = Command::new(&program);
        command.args(args).env_clear().current_dir(&workspace);
        command.envs(envs.iter().filter_map(|(name, value)| Some((name, value.as_ref()?))));
        let mut process = LineProcess::start(command);
        let request = json!({"subtype": "initialize"});
        process.send(&json!({"type": "control_request", "request_id": "1", "request": request}));
        process.until(|message| message["type"] == "control_response");
        // It still prepares something after its response.
        std::thread::sleep(std::time::Duration::from_millis(300));
        process
    })))
}

/// OpenCode on `serve`.
pub(crate) fn opencode(stage: &ScriptedStage) -> Box<dyn AgentFloor> {
    struct Serve {
        child: Child,
        _stdout: BufReader<ChildStdout>,
        address: String,
        directory: String,
    }
    impl Serve {
        fn post(&self, path: &str, body: &Value) -> Value {
            let body = body.to_string();
            let mut stream = TcpStream::connect(&self.address).expect("the server");
            write!(
                stream,
                "POST {path} HTTP/1.1\r\nhost: {}\r\nx-opencode-directory: {}\r\ncontent-type: application/json\r\n\
                 connection: close\r\ncontent-length: {}\r\n\r\n{body}",
                self.address,
                self.directory,
                body.len()
            )
            .expect("the server listens");
            let mut response = String::new();
            stream.read_to_string(&mut response).expect("a response");
            // The body may be chunked: its JSON is between the first and the last brace.
            let body = response.split_once("\r\n\r\n").map(|(_, body)| body).unwrap_or_default();
            let json = body.find('{').zip(body.rfind('}')).map(|(from, to)| &body[from..=to]);
            json.and_then(|json| serde_json::from_str(json).ok()).unwrap_or_else(|| panic!("{response}"))
        }
    }
    impl AgentFloor for Serve {
        fn prompt(&mut self) -> f64 {
            let start = Instant::now();
            let opened = self.post("/session", &json!({}));
            let session = opened["id"].as_str().expect("a session");
            let parts = json!([{"type": "text", "text": PROMPT}]);
            let answer = self.post(&format!("/session/{session}/message"), &json!({"parts": parts}));
            assert!(answer["parts"].to_string().contains('4'), "{answer}");
            start.elapsed().as_secs_f64()
        }
    }
    impl Drop for Serve {
        fn drop(&mut self) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
    let mut command = command(stage, &["serve", "--hostname", "127.0.0.1", "--port", "0"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("the agent");
    let mut stdout = BufReader::new(child.stdout.take().expect("a pipe"));
    let line = stdout.by_ref().lines().map_while(Result::ok).find(|line| line.contains("http://"));
    let address = line.as_deref().and_then(|line| line.rsplit("http://").next()).expect("its address");
    let (address, directory) = (address.trim().to_owned(), stage.workspace().to_string_lossy().into_owned());
    Box::new(Serve { child, _stdout: stdout, address, directory })
}
