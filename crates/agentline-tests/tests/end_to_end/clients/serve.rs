//! Tests `agentline serve` as other programs use it: a run on the real Gemini CLI with a permission that is answered
//! over HTTP, and a TypeScript client that is generated from the OpenAPI document.
#![expect(clippy::unwrap_used, reason = "test helpers may panic")]

use agentline_mock::gemini::{GeminiStep, Script};
use agentline_tests::{
    PATIENCE, TestStage, TypeScript, needs_real_gemini, real_gemini, skipped, survivors, wait_until,
};
use serde_json::{Value, json};
use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpStream,
    process::{Child, Command, Stdio},
    time::Instant,
};

/// A server in a process of its own.
struct Served {
    child: Child,
    address: String,
    token: String,
}

impl Served {
    fn start(stage: &TestStage) -> Self {
        let dir = stage.home().join("serve");
        let mut child = Command::new(env!("CARGO_BIN_EXE_agentline-under-test"))
            .args(["serve", "--listen", "127.0.0.1:0", "--root"])
            .arg(stage.workspace())
            .arg("--dir")
            .arg(&dir)
            .env_clear()
            .envs(stage.variables())
            .env("GEMINI_CLI_PATH", real_gemini().expect("real agents are enabled").path)
            .current_dir(stage.workspace())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut link = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut link).unwrap();
        let address = link.strip_prefix("http://").and_then(|rest| rest.split_once('/')).expect("a link").0;
        let token = std::fs::read_to_string(dir.join("token")).unwrap();
        Self { child, address: address.to_owned(), token }
    }

    /// Sends a request and returns the status and the JSON of the answer.
    fn send(&self, method: &str, path: &str, body: Option<&Value>) -> (u16, Value) {
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

    fn get(&self, path: &str) -> Value {
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

#[test]
fn permission_of_the_real_gemini_cli_is_answered_over_http() {
    needs_real_gemini!();
    let write = json!({"file_path": "hello.txt", "content": "hello\n"});
    let stage = TestStage::new(Script::new([
        GeminiStep::call("write_file", write),
        GeminiStep::text("It is written."),
    ]));
    let served = Served::start(&stage);
    let (status, run) = served.send("POST", "/v1/runs", Some(&json!({"prompt": "Write hello.txt"})));
    assert_eq!(status, 201, "{run}");
    let run = run["run"].as_str().unwrap();
    let pending = || served.get(&format!("/v1/runs/{run}/permissions"))["permissions"][0].clone();
    let end = || served.get(&format!("/v1/runs/{run}/outcome?wait_ms=0"))["outcome"].clone();
    wait_until("a permission request", || {
        assert!(end().is_null(), "the run ended: {}", end());
        !pending().is_null()
    });
    let request = pending();
    assert!(request["ask"].to_string().contains("hello.txt"), "{request}");
    let path = format!("/v1/runs/{run}/permissions/{}", request["id"].as_str().unwrap());
    assert_eq!(served.send("POST", &path, Some(&json!({"decision": "allow"}))).0, 200);
    let start = Instant::now();
    let outcome = loop {
        let answer = served.get(&format!("/v1/runs/{run}/outcome?wait_ms=10000"));
        if !answer["outcome"].is_null() {
            break answer["outcome"].clone();
        }
        assert!(start.elapsed() < PATIENCE, "the run does not end");
    };
    assert_eq!(
        (&outcome["verdict"], &outcome["text"]),
        (&json!("done"), &json!("It is written.")),
        "{outcome}"
    );
    assert_eq!(stage.read("hello.txt").as_deref(), Some("hello\n"));
    let files = served.get(&format!("/v1/runs/{run}/files"));
    assert!(files["files"][0]["diff"].as_str().unwrap().contains("+hello"), "{files}");
    let polled = served.get(&format!("/v1/runs/{run}/poll"));
    let usage = polled["events"].as_array().unwrap().iter().filter(|event| event["event"] == "usage");
    let costs: Vec<f64> = usage.filter_map(|event| event["data"]["cost_usd"].as_f64()).collect();
    assert!(costs.len() > 1 && costs.is_sorted(), "the cost grows: {costs:?}");
    assert_eq!(costs.last().copied(), outcome["cost_usd"].as_f64());
    drop(served);
    let mark = format!("HOME={}", stage.home().display());
    wait_until("the end of all processes", || survivors(&mark).is_empty());
}

#[test]
fn generated_typescript_client_compiles() {
    let Some(typescript) = TypeScript::find() else {
        return skipped("the TypeScript client of `agentline serve`");
    };
    let dir = tempfile::tempdir().unwrap();
    let document = dir.path().join("openapi.json");
    std::fs::write(&document, agentline_serve::openapi::document().to_string()).unwrap();
    typescript.generate(&document, &dir.path().join("api.ts"));
    let client = dir.path().join("client.ts");
    std::fs::write(&client, CLIENT).unwrap();
    typescript.compile(&client);
}

/// A client that uses the generated types. A field that does not exist would not compile.
const CLIENT: &str = r#"
import type { components, paths } from "./api.js";

type Run = components["schemas"]["ServedRun"];
type Start = paths["/v1/runs"]["post"]["requestBody"]["content"]["application/json"];
type Poll = paths["/v1/runs/{run}/poll"]["get"]["responses"][200]["content"]["application/json"];
type Reply = components["schemas"]["PermissionReply"];

async function call<T>(method: string, path: string, body?: unknown): Promise<T> {
  const answer = await fetch("http://127.0.0.1:4517" + path, {
    method,
    headers: { Authorization: "Bearer token", "Content-Type": "application/json" },
    body: body === undefined ? undefined : JSON.stringify(body),
  });
  if (!answer.ok) {
    const failure = (await answer.json()) as components["schemas"]["ErrorBody"];
    throw new Error(failure.error.message);
  }
  return (await answer.json()) as T;
}

export async function ask(prompt: string): Promise<string | null | undefined> {
  const start: Start = { prompt, on_disconnect: "cancel" };
  const run: Run = await call<Run>("POST", "/v1/runs", start);
  let after = 0;
  for (;;) {
    const batch: Poll = await call<Poll>("GET", `/v1/runs/${run.run}/poll?after=${after}`);
    for (const event of batch.events) {
      after = event.id;
      if (event.event === "permission_request") {
        const reply: Reply = { decision: "allow", reason: null, always: true };
        await call("POST", `/v1/runs/${run.run}/permissions/p1`, reply);
      }
    }
    if (batch.ended) return (await call<Run>("GET", `/v1/runs/${run.run}`)).verdict;
  }
}
// @ts-expect-error a field that does not exist
export const wrong: Run = { nothing: true };
"#;
