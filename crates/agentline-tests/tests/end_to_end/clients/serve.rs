//! Tests `agentline serve` as other programs use it: a run on the real Gemini CLI with a permission that is answered
//! over HTTP, and a TypeScript client that is generated from the OpenAPI document.

use crate::clients::served::Served;
use agentline_mock::gemini::{GeminiStep, Script};
use agentline_tests::{
    TestStage, TypeScript, needs_real_gemini, real_gemini, skipped, survivors, wait_until,
};
use serde_json::json;
use std::path::PathBuf;

#[test]
fn permission_of_the_real_gemini_cli_is_answered_over_http() {
    needs_real_gemini!();
    let write = json!({"file_path": "hello.txt", "content": "hello\n"});
    let stage = TestStage::new(Script::new([
        GeminiStep::call("write_file", write),
        GeminiStep::text("It is written."),
    ]));
    let mut variables = stage.variables().clone();
    variables.insert("GEMINI_CLI_PATH".into(), real_gemini().unwrap().path.to_string_lossy().into_owned());
    let served = Served::start(&stage.home(), &stage.workspace(), &variables);
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
    let outcome = served.outcome(run);
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
fn demo_is_a_server_that_needs_no_account() {
    needs_real_gemini!();
    let stage = TestStage::new(Script::new([GeminiStep::text("This model is not asked.")]));
    let mut variables = stage.variables().clone();
    variables.retain(|name, _| !name.starts_with("GEMINI") && !name.starts_with("GOOGLE"));
    let program = real_gemini().expect("real agents are enabled").path;
    variables.insert("GEMINI_CLI_PATH".into(), program.to_string_lossy().into_owned());
    let served = Served::start_with(&["--demo"], &stage.workspace(), &variables);
    let info = served.get("/v1/info");
    let workspace = PathBuf::from(info["roots"][0].as_str().expect("a root"));
    assert!(!workspace.starts_with(stage.workspace()), "{info}");
    for path in ["/v1/runs", "/v1/conversations"] {
        let (status, refused) = served.send("POST", path, Some(&json!({"prompt": "x", "agent": "claude"})));
        assert_eq!(status, 403, "{path}: {refused}");
    }
    let start = json!({"prompt": info["demo_prompt"], "permission_mode": "bypass"});
    let (status, run) = served.send("POST", "/v1/runs", Some(&start));
    assert_eq!(status, 201, "{run}");
    let outcome = served.outcome(run["run"].as_str().unwrap());
    assert_eq!(outcome["verdict"], "done", "{outcome}");
    assert!(outcome["cost_usd"].as_f64().unwrap() > 0.0, "{outcome}");
    assert!(workspace.join("primes.py").is_file());
    let sessions = served.get("/v1/sessions");
    assert_eq!(sessions["sessions"].as_array().map(Vec::len), Some(1), "{sessions}");
    assert!(served.stop().success());
    assert!(!workspace.exists(), "the workspace is removed");
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
