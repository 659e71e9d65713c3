//! The agent as a client of MCP servers: lists their tools when a session opens, and calls them on request.

mod http;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Mutex;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::control::Control;
use super::peer::lock;
use http::HttpLink;

/// The time limit for one response from a server.
const PATIENCE: Duration = Duration::from_secs(60);

/// The servers of one session.
#[derive(Debug, Default)]
pub(super) struct Servers(BTreeMap<String, Server>);

#[derive(Debug)]
struct Server {
    link: Mutex<Result<Link, String>>,
    /// The tools that it listed, or why there are none.
    tools: Result<Vec<String>, String>,
}

#[derive(Debug)]
enum Link {
    Http(HttpLink),
    Stdio(StdioLink),
}

#[derive(Debug)]
struct StdioLink {
    child: Child,
    stdin: ChildStdin,
    lines: Receiver<Value>,
    next_id: u64,
}

impl Servers {
    /// Connects to all servers. As in Gemini, a server that does not respond is neither an error nor reported.
    pub(super) fn connect(list: &Value) -> Self {
        let control = Control::default();
        let connect = |server: &Value| {
            let name = server["name"].as_str().unwrap_or_default().to_owned();
            let mut link = Link::open(server);
            let tools = link.as_mut().map_err(|error| error.clone()).and_then(|link| link.greet(&control));
            (name, Server { link: Mutex::new(link), tools })
        };
        Self(list.as_array().into_iter().flatten().map(connect).collect())
    }

    /// Returns the tools of each server by its name.
    pub(super) fn listed(&self) -> Value {
        let tools = |server: &Server| match &server.tools {
            Ok(tools) => json!(tools),
            Err(error) => json!({"error": error}),
        };
        self.0
            .iter()
            .map(|(name, server)| (name.clone(), tools(server)))
            .collect::<serde_json::Map<_, _>>()
            .into()
    }

    /// Calls a tool and returns the result of `tools/call`.
    pub(super) fn call(
        &self,
        server: &str,
        tool: &str,
        args: &Value,
        control: &Control,
    ) -> Result<Value, String> {
        let server = self.0.get(server).ok_or_else(|| format!("there is no MCP server `{server}`"))?;
        let mut link = lock(&server.link);
        let link = link.as_mut().map_err(|error| error.clone())?;
        link.ask("tools/call", &json!({"name": tool, "arguments": args}), control)
    }
}

impl Link {
    fn open(server: &Value) -> Result<Self, String> {
        match server["type"].as_str() {
            Some("http") => HttpLink::open(server).map(Self::Http),
            None | Some("stdio") => StdioLink::open(server).map(Self::Stdio),
            Some(other) => Err(format!("servers of type {other} are not supported")),
        }
    }

    fn greet(&mut self, control: &Control) -> Result<Vec<String>, String> {
        let hello = json!({
            "protocolVersion": "2025-06-18", "capabilities": {},
            "clientInfo": {"name": "fake-acp", "version": super::version()},
        });
        self.ask("initialize", &hello, control)?;
        self.notify("notifications/initialized", control)?;
        let list = self.ask("tools/list", &json!({}), control)?;
        let tools = list["tools"].as_array().into_iter().flatten();
        Ok(tools.filter_map(|tool| tool["name"].as_str().map(str::to_owned)).collect())
    }

    fn ask(&mut self, method: &str, params: &Value, control: &Control) -> Result<Value, String> {
        let answer = match self {
            Self::Http(link) => link.ask(method, params, control)?,
            Self::Stdio(link) => link.ask(method, params, control)?,
        };
        match answer.get("error") {
            Some(error) => {
                Err(format!("{} {}", error["code"], error["message"].as_str().unwrap_or_default()))
            }
            None => Ok(answer["result"].clone()),
        }
    }

    fn notify(&mut self, method: &str, control: &Control) -> Result<(), String> {
        let message = json!({"jsonrpc": "2.0", "method": method});
        match self {
            Self::Http(link) => link.post(&message, None, control).map(drop),
            Self::Stdio(link) => link.send(&message),
        }
    }
}

impl StdioLink {
    fn open(server: &Value) -> Result<Self, String> {
        let list = |key: &str| server[key].as_array().cloned().unwrap_or_default();
        let mut command = Command::new(server["command"].as_str().unwrap_or_default());
        command.args(list("args").iter().filter_map(Value::as_str));
        let pair =
            |entry: &Value| Some((entry["name"].as_str()?.to_owned(), entry["value"].as_str()?.to_owned()));
        command.envs(list("env").iter().filter_map(pair));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().map_err(|error| error.to_string())?;
        let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err("the server has no pipes".to_owned());
        };
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || {
            let lines = BufReader::new(stdout).lines().map_while(Result::ok);
            let messages = lines.filter_map(|line| serde_json::from_str(&line).ok());
            messages.map_while(|message: Value| sender.send(message).ok()).count()
        });
        Ok(Self { child, stdin, lines, next_id: 0 })
    }

    fn send(&mut self, message: &Value) -> Result<(), String> {
        writeln!(self.stdin, "{message}").and_then(|()| self.stdin.flush()).map_err(|error| error.to_string())
    }

    fn ask(&mut self, method: &str, params: &Value, control: &Control) -> Result<Value, String> {
        self.next_id += 1;
        let id = self.next_id;
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))?;
        let until = Instant::now() + PATIENCE;
        loop {
            match self.lines.recv_timeout(Duration::from_millis(10)) {
                Ok(answer) if answer["id"] == id => return Ok(answer),
                Ok(_) => {}
                Err(RecvTimeoutError::Disconnected) => return Err("the server is gone".to_owned()),
                Err(RecvTimeoutError::Timeout) if control.cancelled() => {
                    let cancelled = json!({"requestId": id, "reason": "cancelled"});
                    let method = "notifications/cancelled";
                    self.send(&json!({"jsonrpc": "2.0", "method": method, "params": cancelled}))?;
                    return Err("cancelled".to_owned());
                }
                Err(RecvTimeoutError::Timeout) if Instant::now() > until => {
                    return Err("the server does not answer".to_owned());
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }
}

impl Drop for StdioLink {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
