//! Tests every kind of update in the protocol, and unknown ones: each is reported, and none breaks the run.

use super::{
    harness::{AcpHarness, capabilities},
    recorded::find,
};
use crate::play::{RUN, spec};
use agentline_core::{ContextWindow, DialogueConfig, Event, Redactor, Surface, ToolStatus, Verdict, agents};
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
        Event::ToolResult(result) => Some((result.status, result.content.clone())),
        _ => None,
    });
    assert_eq!(result, Some((ToolStatus::Error, Some("File not found".into()))));
    assert_eq!(harness.player.outcome().tool_calls, 2);
}

#[test]
fn tool_events_carry_what_the_agent_sent() {
    let mut harness = AcpHarness::unknown();
    harness.start(RUN, "s", spec());
    let id = harness.frame()["id"].clone();
    let diff =
        |old: Value, new: &str| json!({"type": "diff", "path": "/ws/a.txt", "oldText": old, "newText": new});
    let input = json!({"file_path": "/ws/a.txt", "text": "two"});
    harness.update(
        "s",
        &json!({"sessionUpdate": "tool_call", "toolCallId": "t", "kind": "edit", "status": "in_progress",
        "title": "Edit a.txt", "rawInput": input, "content": [diff(json!("one"), "two")],
        "locations": [{"path": "/ws/a.txt"}]}),
    );
    let output = json!({"changed": 1});
    harness.update(
        "s",
        &json!({"sessionUpdate": "tool_call_update", "toolCallId": "t", "status": "completed",
        "title": "a.txt", "rawOutput": output, "content": [diff(json!(null), "one\ntwo")],
        "locations": [{"path": "/ws/a.txt", "line": 7}]}),
    );
    harness.text("s", "end");
    harness.end(&id, &json!({"stopReason": "end_turn"}));
    harness.player.check();
    let events: Vec<Value> = harness.player.events().filter_map(|e| serde_json::to_value(e).ok()).collect();
    assert_eq!(
        events[1],
        json!({"type": "tool_use", "id": "t", "name": "Edit", "native_name": "Edit a.txt",
        "input": {"file_path": "/ws/a.txt"}, "raw_input": input, "title": "Edit a.txt", "locations": [{"path": "/ws/a.txt"}],
        "diffs": [{"path": "/ws/a.txt", "old": "one", "new": "two"}]})
    );
    assert_eq!(
        events[2],
        json!({"type": "tool_result", "tool_use_id": "t", "status": "ok", "content": null, "is_error": false,
        "title": "a.txt", "locations": [{"path": "/ws/a.txt", "line": 7}], "raw_output": output,
        "diffs": [{"path": "/ws/a.txt", "old": null, "new": "one\ntwo"}]})
    );
}

#[test]
fn output_of_a_running_tool_is_reported_piece_by_piece() {
    let mut harness = AcpHarness::unknown();
    harness.start(RUN, "s", spec());
    let id = harness.frame()["id"].clone();
    let update = |kind: &str, status: &str, text: &str| {
        json!({"sessionUpdate": kind, "toolCallId": "t", "kind": "execute", "title": "make", "status": status,
        "content": [{"type": "content", "content": {"type": "text", "text": text}}]})
    };
    // The text of the first message describes the call.
    harness.update("s", &update("tool_call", "in_progress", "Builds it"));
    let long = "y".repeat(300);
    for (text, is_running) in [
        ("Builds it", true),
        ("one\n", true),
        ("one\n", true),
        ("one\ntwo\n", true),
        // An agent that limits the output drops its start.
        (&*format!("one\ntwo\n{long}"), true),
        (&*format!("...{long}three\n"), true),
        ("one\ntwo\nthree\nfour\n", false),
    ] {
        let status = if is_running { "in_progress" } else { "completed" };
        harness.update("s", &update("tool_call_update", status, text));
    }
    harness.text("s", "end");
    harness.end(&id, &json!({"stopReason": "end_turn"}));
    harness.player.check();
    assert_eq!(pieces_of_output(&harness), ["one\n", "two\n", &long, "three\n"]);
    let result = harness.player.events().find_map(|e| match e {
        Event::ToolResult(result) => result.content.as_deref(),
        _ => None,
    });
    assert_eq!(result, Some("one\ntwo\nthree\nfour\n"), "the result has the complete output");
}

fn pieces_of_output(harness: &AcpHarness) -> Vec<String> {
    let text = |e: &Event| if let Event::ToolOutput { text, .. } = e { Some(text.clone()) } else { None };
    harness.player.events().filter_map(text).collect()
}

#[test]
fn recorded_agents_report_the_output_of_running_tools() {
    let recorded = find("opencode/full").play();
    assert_eq!(pieces_of_output(&recorded.harness)[..3], ["hello\nthere\n", "err\n", "ok-from-shell\n"]);
    // Codex sends the pieces in an extension of the protocol.
    let codex = agents::find("codex").expect("a built-in agent");
    let mut harness = AcpHarness::with(codex.dialogue(&DialogueConfig::new(Surface::Acp, None)));
    harness.reply("initialize", &capabilities("1.13.4"));
    harness.start(RUN, "s", spec());
    let id = harness.frame()["id"].clone();
    let messages = find("codex/full").messages("session/update");
    for update in messages.into_iter().map(|mut message| message["params"]["update"].take()) {
        if update["sessionUpdate"].as_str().is_some_and(|kind| kind.starts_with("tool_call")) {
            harness.update("s", &update);
        }
    }
    harness.text("s", "end");
    harness.end(&id, &json!({"stopReason": "end_turn"}));
    let pieces = pieces_of_output(&harness);
    let missing = ["cat: ", "/srv/lab/ws_codex/missing.txt", ": No such file or directory", "\n"];
    assert_eq!(pieces[..5], [&missing[..], &["ok-from-shell\n"]].concat());
}

#[test]
fn secret_in_the_output_of_a_running_tool_is_redacted_at_any_split() {
    const SECRET: &str = "s3cr3t-\"value\"/of-ours";
    for cut in 0..=SECRET.len() {
        let mut harness = AcpHarness::unknown();
        harness.player.conn.set_redactor(Redactor::new([SECRET]));
        harness.start(RUN, "s", spec());
        let id = harness.frame()["id"].clone();
        let call =
            json!({"sessionUpdate": "tool_call", "toolCallId": "t", "kind": "execute", "title": "env"});
        harness.update("s", &call);
        for text in [format!("key={}", &SECRET[..cut]), format!("key={SECRET}\nend\n")] {
            let content = json!([{"type": "content", "content": {"type": "text", "text": text}}]);
            let update = json!({"sessionUpdate": "tool_call_update", "toolCallId": "t",
                "status": "in_progress", "content": content});
            harness.update("s", &update);
        }
        harness.text("s", "end");
        harness.end(&id, &json!({"stopReason": "end_turn"}));
        harness.player.check();
        let output = pieces_of_output(&harness).concat();
        assert!(output.starts_with("key=") && output.ends_with("[redacted]\nend\n"), "{cut}: {output}");
        assert!(!output.contains("value"), "{cut}: {output}");
    }
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
    let context = json!({"used": 53, "size": 1000});
    assert_eq!((&events[0]["type"], &events[0]["context"]), (&json!("usage"), &context));
    assert_eq!(
        events_of(&json!({"sessionUpdate": "usage_update", "used": 1}))[0]["context"]["size"],
        json!(null)
    );
    // The fill level of the context window is not the usage.
    let (mut harness, id) = AcpHarness::running();
    harness.update("s", &update(0.25));
    harness.update("s", &update(0.75));
    harness.text("s", "end");
    harness.end(&id, &json!({"stopReason": "end_turn"}));
    assert_eq!(harness.story(), ["started", "usage", "text"], "the same fill is reported once");
    assert_eq!(harness.player.outcome().usage.tokens.input, None);
    assert_eq!(harness.player.outcome().usage.context, Some(ContextWindow::new(53, Some(1000))));
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
