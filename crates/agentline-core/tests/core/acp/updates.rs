//! Tests every kind of update in the protocol, and unknown ones: each is reported, and none breaks the run.

use super::harness::AcpHarness;
use agentline_core::{Event, ToolStatus, Verdict};
use serde_json::{Value, json};

/// Returns the events of one update in a run that then succeeds.
fn events_of(update: &Value) -> Vec<Value> {
    let (mut harness, id) = AcpHarness::running();
    harness.update("s", update);
    let events: Vec<Value> =
        harness.player.events().skip(1).map(|e| serde_json::to_value(e).expect("an event is JSON")).collect();
    harness.text("s", "end");
    harness.end(&id, &json!({"stopReason": "end_turn"}));
    harness.player.check();
    assert_eq!(harness.player.outcome().verdict, Verdict::Done, "{update}");
    events
}

fn chunk(kind: &str, content: &Value) -> Vec<Value> {
    events_of(&json!({"sessionUpdate": kind, "content": content, "messageId": "m"}))
}

#[test]
fn agent_message_chunk() {
    let text = |text: &str| json!({"type": "text", "text": text});
    assert_eq!(chunk("agent_message_chunk", &text("a")), [text("a")]);
    assert_eq!(chunk("agent_message_chunk", &json!([text("a"), text("b")])), [text("ab")]);
    assert_eq!(chunk("agent_message_chunk", &json!("bare")), [text("bare")]);
    for block in [
        json!({"type": "image", "mimeType": "image/png", "data": "aGk="}),
        json!({"type": "audio", "mimeType": "audio/wav", "data": "aGk="}),
        json!({"type": "resource", "resource": {"uri": "file:///a", "text": "t"}}),
        json!({"type": "resource_link", "uri": "file:///a", "name": "a"}),
        json!({"type": "brand_new", "x": 1}),
    ] {
        assert_eq!(
            chunk("agent_message_chunk", &json!([text("a"), block, text("b")])),
            [text("a"), json!({"type": "content", "block": block}), text("b")]
        );
    }
    // Content without text gives no text and breaks nothing.
    for odd in [json!(null), json!(7), json!({}), json!([]), json!([[1]]), json!({"type": "text"})] {
        assert!(chunk("agent_message_chunk", &odd).iter().all(|e| e["type"] != "text"), "{odd}");
    }
}

#[test]
fn agent_thought_chunk() {
    let (mut harness, id) = AcpHarness::running();
    let content = json!({"type": "text", "text": "**Plan** it"});
    harness.update("s", &json!({"sessionUpdate": "agent_thought_chunk", "content": content}));
    harness.text("s", "answer");
    harness.end(&id, &json!({"stopReason": "end_turn"}));
    assert_eq!(harness.story(), ["started", "thinking", "text"]);
    assert_eq!(harness.player.outcome().text, "answer", "thoughts are not part of the answer");
}

#[test]
fn user_message_chunk() {
    let events = chunk("user_message_chunk", &json!({"type": "text", "text": "my words"}));
    assert_eq!(events.len(), 1);
    assert_eq!(events[0]["type"], "agent");
}

#[test]
fn tool_call_and_tool_call_update() {
    let (mut harness, id) = AcpHarness::running();
    let path = json!([{"path": "/ws/none.txt"}]);
    harness.update(
        "s",
        &json!({"sessionUpdate": "tool_call", "toolCallId": "read_file__read_file_1_0", "kind": "read",
        "status": "in_progress", "title": "none.txt", "content": [], "locations": path}),
    );
    let content = json!([{"type": "content", "content": {"type": "text", "text": "File not found"}}]);
    let failed = json!({"sessionUpdate": "tool_call_update", "toolCallId": "read_file__read_file_1_0",
        "status": "failed", "content": content});
    harness.update("s", &failed);
    // A repeated update is passed on and closes nothing.
    harness.update("s", &failed);
    // A call that was never announced is announced by its end.
    harness.update(
        "s",
        &json!({"sessionUpdate": "tool_call_update", "toolCallId": "glob__glob_1_1", "status": "completed"}),
    );
    harness.text("s", "end");
    harness.end(&id, &json!({"stopReason": "end_turn"}));
    harness.player.check();
    assert_eq!(
        harness.story(),
        ["started", "tool_use", "tool_result", "agent", "tool_use", "tool_result", "text"]
    );
    let result = harness.player.events().find_map(|e| match e {
        Event::ToolResult { status, content, .. } => Some((*status, content.clone())),
        _ => None,
    });
    assert_eq!(result, Some((ToolStatus::Error, Some("File not found".into()))));
    assert_eq!(harness.player.outcome().tool_calls, 2);
}

#[test]
fn plan() {
    let entries = json!([{"content": "a", "priority": "high", "status": "pending"}]);
    assert_eq!(
        events_of(&json!({"sessionUpdate": "plan", "entries": entries})),
        [json!({"type": "plan", "entries": entries})]
    );
}

#[test]
fn available_commands_update() {
    let commands = json!([{"name": "help", "description": "d"}]);
    assert_eq!(
        events_of(&json!({"sessionUpdate": "available_commands_update", "availableCommands": commands})),
        [json!({"type": "commands", "commands": commands})]
    );
}

#[test]
fn current_mode_update() {
    assert_eq!(
        events_of(&json!({"sessionUpdate": "current_mode_update", "currentModeId": "plan"})),
        [json!({"type": "mode", "mode": "plan"})]
    );
}

#[test]
fn config_option_update() {
    let options = json!([{"id": "model", "category": "model", "currentValue": "a", "options": []}]);
    assert_eq!(
        events_of(&json!({"sessionUpdate": "config_option_update", "configOptions": options})),
        [json!({"type": "config_option", "options": options})]
    );
}

#[test]
fn session_info_update() {
    let events = events_of(&json!({"sessionUpdate": "session_info_update", "title": "A title"}));
    assert_eq!(
        (&events[0]["type"], &events[0]["info"]["title"]),
        (&json!("session_info"), &json!("A title"))
    );
}

#[test]
fn usage_update() {
    let update = |cost: f64| {
        let cost = json!({"amount": cost, "currency": "USD"});
        json!({"sessionUpdate": "usage_update", "used": 53, "size": 1000, "cost": cost})
    };
    let events = events_of(&update(0.5));
    assert_eq!((&events[0]["type"], &events[0]["raw"]["used"]), (&json!("agent"), &json!(53)));
    // The fill level of the context window is not the usage.
    let (mut harness, id) = AcpHarness::running();
    harness.update("s", &update(0.25));
    harness.update("s", &update(0.75));
    harness.text("s", "end");
    harness.end(&id, &json!({"stopReason": "end_turn"}));
    assert_eq!(harness.player.outcome().usage.tokens.input, None);
    assert_eq!(harness.player.outcome().cost_usd, Some(0.75));
}

#[test]
fn unknown_updates_are_kept() {
    for update in [json!({"sessionUpdate": "brand_new", "x": [1]}), json!({"x": 1}), json!(7), json!(null)] {
        assert_eq!(events_of(&update), [json!({"type": "agent", "raw": update})], "{update}");
    }
}

#[test]
fn update_without_a_session_belongs_to_the_only_run() {
    let (mut harness, id) = AcpHarness::running();
    let update = json!({"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "here"}});
    harness.send(&json!({"jsonrpc": "2.0", "method": "session/update", "params": {"update": update}}));
    harness.text("somebody-else", "not mine");
    harness.end(&id, &json!({"stopReason": "end_turn"}));
    assert_eq!(harness.player.outcome().text, "here");
}
