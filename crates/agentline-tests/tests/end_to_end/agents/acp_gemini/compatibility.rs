//! Checks the compatibility matrix of a generic ACP client with Gemini CLI against the real program, on one recorded
//! run. The core's tests check the same rows at the protocol level.

use crate::agents::acp_gemini::harness::{RunRecord, calling, stage};
use agentline::{
    Event, PermissionMode as Mode, RunOptions, Surface, Verdict,
    tools::{Tool, ToolHost},
};
use agentline_tests::{MODEL, needs_real_gemini};
use serde_json::{Value, json};

/// Returns the messages from and to the agent.
struct Wire {
    from_agent: Vec<Value>,
    to_agent: Vec<Value>,
}

impl Wire {
    fn of(tape: &str) -> Self {
        let mut wire = Self { from_agent: Vec::new(), to_agent: Vec::new() };
        for line in tape.lines() {
            let line: Value = serde_json::from_str(line).expect("a line is JSON");
            let message = line["text"].as_str().and_then(|text| serde_json::from_str(text).ok());
            match (line["ch"].as_str(), message) {
                (Some("out"), Some(message)) => wire.from_agent.push(message),
                (Some("in"), Some(message)) => wire.to_agent.push(message),
                _ => {}
            }
        }
        wire
    }

    fn request(&self, method: &str) -> &Value {
        let found = self.to_agent.iter().find(|message| message["method"] == method);
        &found.unwrap_or_else(|| panic!("no {method} in {:#?}", self.to_agent))["params"]
    }

    fn answer(&self, method: &str) -> &Value {
        let asked =
            self.to_agent.iter().find(|message| message["method"] == method).expect("a request was sent");
        let found = self.from_agent.iter().find(|m| m["id"] == asked["id"] && m["method"].is_null());
        &found.unwrap_or_else(|| panic!("no answer to {method}"))["result"]
    }
}

#[tokio::test]
async fn real_gemini_cli_matches_the_compatibility_matrix() {
    needs_real_gemini!();
    let calls = [
        ("write_file", json!({"file_path": "a.txt", "content": "a\\n"})),
        ("mcp_wink-tools_echo", json!({})),
    ];
    let stage = stage([("", calling(calls))]);
    let echo = Tool::new("echo", "Echoes", json!({"type": "object"}), |_, _| async { Ok("heard") });
    let options = RunOptions::new().tools(ToolHost::new().server_name("wink-tools").tool(echo));
    let tape = stage.outside().join("run.tape.jsonl");
    let request = stage.request("go").permission_mode(Mode::Auto).record(&tape);
    let result = RunRecord::of(stage.agentline().run_with(request, options).await.unwrap()).await;
    assert_eq!(
        (result.outcome.verdict, result.outcome.surface),
        (Verdict::Done, Some(Surface::Acp)),
        "{}",
        result.shown()
    );
    let wire = Wire::of(&std::fs::read_to_string(&tape).unwrap());
    let methods: Vec<&str> = wire.to_agent.iter().filter_map(|m| m["method"].as_str()).collect();

    // Handshake with `auth_methods`: they are reported, and no sign-in is requested.
    let hello = wire.answer("initialize");
    assert!(hello["authMethods"].as_array().is_some_and(|all| !all.is_empty()), "{hello}");
    assert_eq!(methods[..2], ["initialize", "session/new"], "{methods:?}");
    // `TextContentBlock` extraction.
    let mut updates = wire.from_agent.iter().map(|m| &m["params"]["update"]);
    let chunk = updates.rfind(|u| u["sessionUpdate"] == "agent_message_chunk").expect("a chunk");
    assert_eq!(
        (&chunk["content"]["type"], result.outcome.text.as_str()),
        (&json!("text"), "said"),
        "{chunk}"
    );
    // `ImageContentBlock` fallback: this program sends no image; the core's test has one.
    assert!(!result.records.iter().any(|r| matches!(r.event, Event::Content { .. })));
    // Unhandled update types: updates that others ignore are reported.
    assert!(result.records.iter().any(|r| matches!(r.event, Event::Commands { .. })), "{}", result.shown());
    // MCP HTTP server `type="http"`.
    let server = &wire.request("session/new")["mcpServers"][0];
    assert_eq!((&server["type"], &server["name"]), (&json!("http"), &json!("wink-tools")), "{server}");
    assert!(server["url"].as_str().is_some_and(|url| url.starts_with("http://127.0.0.1:")), "{server}");
    assert_eq!(server["headers"][0]["name"], "Authorization", "{server}");
    // Real tool call ids.
    let ids: Vec<&str> = result
        .records
        .iter()
        .filter_map(|r| if let Event::ToolUse(call) = &r.event { Some(call.id.as_str()) } else { None })
        .collect();
    assert!(ids.len() == 2 && ids.iter().all(|id| !id.is_empty() && !id.starts_with("_tc_")), "{ids:?}");
    // `cached_read_tokens` mapping: the program omits them, but its session file has them.
    assert_eq!(wire.answer("session/prompt")["usage"], Value::Null);
    assert_eq!(result.outcome.usage.tokens.cached, Some(60), "{}", result.shown());
    // `TextContentBlock` prompt format.
    assert_eq!(wire.request("session/prompt")["prompt"], json!([{"type": "text", "text": "go"}]));
    // `mcp_capabilities` parsing.
    assert_eq!(hello["agentCapabilities"]["mcpCapabilities"], json!({"http": true, "sse": true}));
    // Config defaults: the preset is tested separately; here the program was started for the model of the request.
    assert_eq!(wire.answer("session/new")["models"]["currentModelId"], MODEL);
    // No tape contains the token of our tool server.
    let token = server["headers"][0]["value"].as_str().unwrap_or_default();
    assert!(token.len() < 30, "the token was recorded: {} characters", token.len());
}
