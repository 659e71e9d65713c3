//! The output of the fake agent: Gemini's events and its JSON document, as the real one writes them.

use std::fs;
use std::io::{self, Read, Write};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use super::clock;

/// The version that the fake agent reports.
pub(super) const VERSION: &str = "0.61.0";

/// The file that a normal run writes, and its content.
pub(super) const FILE: (&str, &str) = ("hello.txt", "hi there\n");

/// The requested output format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FakeFormat {
    StreamJson,
    Json,
}

/// One run of the fake agent.
pub(super) struct FakeAgent {
    pub(super) format: FakeFormat,
    pub(super) session: String,
    pub(super) model: String,
    pub(super) prompt: String,
    /// Whether only the version is requested.
    pub(super) asks_version: bool,
    params: Value,
    sent_text: String,
    tools: u64,
}

impl FakeAgent {
    pub(super) fn new(args: &[String], params: Value, asks_version: bool) -> Self {
        let option = |short: &str, long: &str| {
            let joined = args.iter().find_map(|arg| arg.strip_prefix(long)?.strip_prefix('='));
            let after =
                args.iter().position(|arg| arg == short || arg == long).and_then(|at| args.get(at + 1));
            joined.or(after.map(String::as_str)).map(str::to_owned)
        };
        let json = option("-o", "--output-format").as_deref() == Some("json");
        Self {
            format: if json { FakeFormat::Json } else { FakeFormat::StreamJson },
            session: option("--session-id", "--session-id")
                .unwrap_or_else(|| "8fb09d0d-0abb-42a7-a54c-d8506947004f".to_owned()),
            model: option("-m", "--model").unwrap_or_else(|| "auto".to_owned()),
            prompt: String::new(),
            asks_version,
            params,
            sent_text: String::new(),
            tools: 0,
        }
    }
}

/// Parameters.
impl FakeAgent {
    pub(super) fn number(&self, name: &str, otherwise: u64) -> u64 {
        self.params[name].as_u64().unwrap_or(otherwise)
    }

    pub(super) fn size(&self, name: &str, otherwise: usize) -> usize {
        usize::try_from(self.number(name, otherwise as u64)).unwrap_or(otherwise)
    }

    pub(super) fn text(&self, name: &str) -> Option<String> {
        self.params[name].as_str().map(str::to_owned)
    }

    pub(super) fn flag(&self, name: &str) -> bool {
        self.params[name].as_bool().unwrap_or(false)
    }

    /// Returns the secret to leak: the parameter, or the agent's key.
    pub(super) fn secret(&self) -> String {
        let key = || std::env::var("GEMINI_API_KEY").ok();
        self.text("secret").or_else(key).unwrap_or_else(|| "sk-fake-secret-0123456789abcdef".to_owned())
    }

    /// Sleeps for the parameter `seconds`, or for ten minutes, which is longer than any test waits.
    pub(super) fn hang(&self) {
        thread::sleep(Duration::from_secs(self.number("seconds", 600)));
    }
}

/// Bytes.
impl FakeAgent {
    /// Writes raw bytes to standard output immediately.
    pub(super) fn raw(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        let mut out = io::stdout().lock();
        out.write_all(bytes.as_ref())?;
        out.flush()
    }

    pub(super) fn stderr(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        io::stderr().write_all(bytes.as_ref())
    }

    /// Reads the whole prompt.
    pub(super) fn read_prompt(&mut self) -> io::Result<()> {
        let mut bytes = Vec::new();
        io::stdin().read_to_end(&mut bytes)?;
        self.prompt = String::from_utf8_lossy(&bytes).into_owned();
        Ok(())
    }
}

/// Events.
impl FakeAgent {
    /// Returns one line of an event, with Gemini's field order.
    pub(super) fn line(&self, kind: &str, fields: &[(&str, Value)]) -> String {
        let mut line = format!(r#"{{"type":{},"timestamp":"{}""#, json!(kind), clock::timestamp());
        for (name, value) in fields {
            line.push_str(&format!(",{}:{value}", json!(name)));
        }
        line.push_str("}\n");
        line
    }

    /// Writes one event, or nothing in the JSON format, which has none.
    pub(super) fn event(&mut self, kind: &str, fields: &[(&str, Value)]) -> io::Result<()> {
        if self.format == FakeFormat::Json {
            return Ok(());
        }
        let line = self.line(kind, fields);
        self.raw(line)
    }

    pub(super) fn init(&mut self) -> io::Result<()> {
        let (session, model) = (self.session.clone(), self.model.clone());
        self.event("init", &[("session_id", json!(session)), ("model", json!(model))])
    }

    /// Reads the prompt, then writes `init` and the echo of the prompt.
    pub(super) fn begin(&mut self) -> io::Result<()> {
        self.read_prompt()?;
        self.init()?;
        let prompt = self.prompt.clone();
        self.event("message", &[("role", json!("user")), ("content", json!(prompt))])
    }

    pub(super) fn send_text(&mut self, text: &str) -> io::Result<()> {
        self.sent_text.push_str(text);
        let line = self.delta(text);
        if self.format == FakeFormat::Json { Ok(()) } else { self.raw(line) }
    }

    /// Returns the line of a text delta.
    pub(super) fn delta(&self, text: &str) -> String {
        let role = ("role", json!("assistant"));
        self.line("message", &[role, ("content", json!(text)), ("delta", json!(true))])
    }

    pub(super) fn tool_use(&mut self, name: &str, id: &str, parameters: Value) -> io::Result<()> {
        self.tools += 1;
        // The JSON document contains only the text of the last turn.
        self.sent_text.clear();
        let fields = [("tool_name", json!(name)), ("tool_id", json!(id)), ("parameters", parameters)];
        self.event("tool_use", &fields)
    }

    pub(super) fn tool_done(&mut self, id: &str) -> io::Result<()> {
        self.event("tool_result", &[("tool_id", json!(id)), ("status", json!("success"))])
    }

    pub(super) fn tool_failed(&mut self, id: &str, kind: &str, message: &str) -> io::Result<()> {
        let error = json!({"type": kind, "message": message});
        let fields = [
            ("tool_id", json!(id)),
            ("status", json!("error")),
            ("output", json!(message)),
            ("error", error),
        ];
        self.event("tool_result", &fields)
    }

    /// Announces a file write, writes the file, and reports the result.
    pub(super) fn write_file(&mut self, id: &str) -> io::Result<()> {
        self.tool_use("write_file", id, json!({"file_path": FILE.0, "content": FILE.1}))?;
        fs::write(FILE.0, FILE.1)?;
        self.tool_done(id)
    }

    /// Ends a successful run.
    pub(super) fn succeed(&mut self) -> io::Result<u8> {
        self.result("success", None)?;
        Ok(0)
    }

    /// Ends a failed run. The JSON format reports the failure on standard error.
    pub(super) fn fail(&mut self, kind: &str, message: &str, code: u8) -> io::Result<u8> {
        self.result("error", Some(json!({"type": kind, "message": message, "code": code})))?;
        Ok(code)
    }

    /// Writes the result: the event, or the document.
    pub(super) fn result(&mut self, status: &str, error: Option<Value>) -> io::Result<()> {
        match (self.format, error) {
            (FakeFormat::StreamJson, error) => {
                let mut fields = vec![("status", json!(status))];
                if let Some(mut error) = error {
                    error.as_object_mut().map(|error| error.remove("code"));
                    fields.push(("error", error));
                }
                fields.push(("stats", self.stats()));
                self.event("result", &fields)
            }
            (FakeFormat::Json, None) => {
                let document = self.document();
                self.raw(document)
            }
            (FakeFormat::Json, Some(error)) => {
                let document = json!({"session_id": self.session, "error": error});
                self.stderr(format!("{document:#}\n"))
            }
        }
    }

    /// Returns the `stats` of stream-json.
    pub(super) fn stats(&self) -> Value {
        let tokens =
            json!({"total_tokens": 125, "input_tokens": 100, "output_tokens": 20, "cached": 30, "input": 70});
        let mut stats = tokens.clone();
        stats["duration_ms"] = json!(75);
        stats["tool_calls"] = json!(self.tools);
        stats["models"] = json!({"gemini-2.5-flash": tokens});
        stats
    }

    /// Returns the document of `-o json`.
    pub(super) fn document(&self) -> String {
        let tokens = json!({
            "input": 70, "prompt": 100, "candidates": 20, "total": 125, "cached": 30, "thoughts": 5, "tool": 0,
        });
        let api = json!({"totalRequests": 1, "totalErrors": 0, "totalLatencyMs": 50, "errorsByType": {}});
        let decisions = json!({"accept": 0, "reject": 0, "modify": 0, "auto_accept": self.tools});
        let stats = json!({
            "models": {"gemini-2.5-flash": {"api": api, "tokens": tokens, "roles": {}}},
            "tools": {
                "totalCalls": self.tools, "totalSuccess": self.tools, "totalFail": 0, "totalDurationMs": 5,
                "totalDecisions": decisions, "byName": {},
            },
            "files": {"totalLinesAdded": self.tools, "totalLinesRemoved": 0},
        });
        format!("{:#}\n", json!({"session_id": self.session, "response": self.sent_text, "stats": stats}))
    }
}
