//! The eleven properties that make a generic ACP client compatible with Gemini CLI, each under its established name.
//!
//! `agentline-tests` checks the same properties with the real program.

use super::harness::{AcpHarness, capabilities};
use crate::play::{RUN, spec};
use agentline_core::{
    DialogueConfig, Event, FailureKind, McpServer, PermissionMode, RunRequest, Surface, TurnSpec, Verdict,
    acp_dialogue,
};
use serde_json::{Value, json};
use std::time::Duration;

fn end(harness: &mut AcpHarness, id: &Value) {
    harness.end(id, &json!({"stopReason": "end_turn"}));
    harness.player.check();
}

fn with_server() -> TurnSpec {
    let mut spec = spec();
    let server = McpServer::Url { url: "http://127.0.0.1:1/mcp".into(), headers: [].into() };
    spec.servers.insert("wink-tools".into(), server);
    spec
}

#[test]
fn handshake_with_auth_methods() {
    let mut harness = AcpHarness::bare();
    harness.player.prompt(spec());
    let mut hello = capabilities("0.61.0");
    hello["authMethods"] = json!([{"id": "oauth-personal", "name": "Log in with Google"}]);
    harness.reply("initialize", &hello);
    assert_eq!(harness.frame()["method"], "session/new", "no sign-in is requested");
}

#[test]
fn text_content_block_extraction() {
    let (mut harness, id) = AcpHarness::running();
    harness.text("s", "one ");
    harness.text("s", "two");
    end(&mut harness, &id);
    assert_eq!(harness.player.outcome().text, "one two");
}

#[test]
fn image_content_block_fallback() {
    let (mut harness, id) = AcpHarness::running();
    let image = json!({"type": "image", "mimeType": "image/png", "data": "aGk="});
    harness.update("s", &json!({"sessionUpdate": "agent_message_chunk", "content": image}));
    harness.text("s", "a picture");
    end(&mut harness, &id);
    assert_eq!(
        (harness.player.outcome().verdict, harness.player.outcome().text.as_str()),
        (Verdict::Done, "a picture")
    );
    assert!(
        harness
            .player
            .events()
            .any(|e| matches!(e, Event::Content { block } if block.get().contains("aGk=")))
    );
}

#[test]
fn unhandled_update_types_dont_crash() {
    let (mut harness, id) = AcpHarness::running();
    for kind in ["usage_update", "plan", "available_commands_update", "current_mode_update", "brand_new"] {
        harness.update("s", &json!({"sessionUpdate": kind}));
    }
    harness.text("s", "still here");
    end(&mut harness, &id);
    assert_eq!(harness.player.outcome().text, "still here");
}

#[test]
fn usage_update_timestamps_last_update() {
    let mut harness = AcpHarness::gemini();
    let mut spec = spec();
    spec.timeouts.idle = 1000;
    harness.start(RUN, "s", spec);
    harness.player.wait(900);
    harness.update("s", &json!({"sessionUpdate": "usage_update", "used": 1, "size": 2}));
    harness.player.wait(900);
    assert!(!harness.frames().iter().any(|f| f["method"] == "session/cancel"), "the timeout was restarted");
    harness.player.wait(200);
    assert!(harness.frames().iter().any(|f| f["method"] == "session/cancel"), "the run is still active");
}

#[test]
fn mcp_http_server_type_field() {
    let mut harness = AcpHarness::gemini();
    harness.player.prompt(with_server());
    let servers = harness.frame()["params"]["mcpServers"].take();
    assert_eq!((&servers[0]["type"], &servers[0]["name"]), (&json!("http"), &json!("wink-tools")));
}

#[test]
fn gemini_config_defaults() {
    let request = RunRequest::preset("gemini_acp", "x").unwrap();
    assert_eq!((request.agent.as_str(), request.surface), ("gemini_acp", Some(Surface::Acp)));
    assert_eq!(request.agent_args, None);
    assert_eq!(request.permission_mode, PermissionMode::Auto);
    assert_eq!(request.quiet_period, Some(Duration::from_millis(500)));
}

#[test]
fn real_tool_call_ids_tracked_correctly() {
    let (mut harness, id) = AcpHarness::running();
    let tool = "read_file__read_file_1794751041076_0";
    let call = |kind: &str, status: &str| json!({"sessionUpdate": kind, "toolCallId": tool, "status": status, "title": "a", "kind": "read"});
    harness.update("s", &call("tool_call", "in_progress"));
    harness.update("s", &call("tool_call_update", "completed"));
    harness.text("s", "read");
    end(&mut harness, &id);
    let ids: Vec<&str> = harness
        .player
        .events()
        .filter_map(|event| match event {
            Event::ToolUse(call) => Some(call.id.as_str()),
            Event::ToolResult(result) => Some(&result.tool_use_id),
            _ => None,
        })
        .collect();
    assert_eq!(ids, [tool, tool], "no generated id");
}

#[test]
fn cached_read_tokens_mapped() {
    let (mut harness, id) = AcpHarness::running();
    harness.text("s", "x");
    let usage = json!({"inputTokens": 100, "outputTokens": 30, "cachedReadTokens": 40, "totalTokens": 130});
    harness.end(&id, &json!({"stopReason": "end_turn", "usage": usage}));
    let tokens = harness.player.outcome().usage.tokens;
    assert_eq!((tokens.input, tokens.output, tokens.cached), (Some(100), Some(30), Some(40)));
}

#[test]
fn prompt_sends_text_content_block() {
    let mut harness = AcpHarness::gemini();
    harness.start(RUN, "s", spec());
    assert_eq!(harness.frame()["params"]["prompt"], json!([{"type": "text", "text": spec().prompt}]));
}

#[test]
fn agent_capabilities_mcp_http_check() {
    for (http, fails) in [(true, false), (false, true)] {
        let mut harness = AcpHarness::with(acp_dialogue(&DialogueConfig::new(Surface::Acp, None)));
        let mut can = capabilities("1.0");
        can["agentCapabilities"]["mcpCapabilities"] = json!({"http": http, "sse": true});
        harness.reply("initialize", &can);
        harness.player.prompt(with_server());
        let opened = harness.frames().iter().any(|f| f["method"] == "session/new");
        assert_eq!(opened, !fails);
        if fails {
            assert_eq!(harness.player.outcome().error.as_ref().map(|e| e.kind), Some(FailureKind::Input));
        }
    }
}
