//! Tests tool calls in the forms that agents use: without ids, with late arguments, and with permission requests under
//! other names.

use super::harness::AcpHarness;
use crate::play::{RUN, spec};
use agentline_core::{
    Event, HostRequest, HostResponse, PermissionDecision, PermissionRequest, ToolKind, ToolStatus, Verdict,
};
use serde_json::{Value, json};

fn uses(harness: &AcpHarness) -> Vec<(String, String, String)> {
    harness
        .player
        .events()
        .filter_map(|e| match e {
            Event::ToolUse(t) => Some((
                t.id.clone(),
                t.native_name.clone(),
                t.raw_input.as_ref().map(|r| r.get().to_owned()).unwrap_or_default(),
            )),
            _ => None,
        })
        .collect()
}

fn running_unknown() -> (AcpHarness, Value) {
    let mut harness = AcpHarness::unknown();
    harness.start(RUN, "s", spec());
    let id = harness.frame()["id"].clone();
    (harness, id)
}

fn finish(harness: &mut AcpHarness, id: &Value) {
    harness.text("s", "end");
    harness.end(id, &json!({"stopReason": "end_turn"}));
    harness.player.check();
}

fn request_permission(
    harness: &mut AcpHarness,
    id: &Value,
    call: &Value,
    options: &Value,
) -> PermissionRequest {
    harness.frames();
    let params = json!({"sessionId": "s", "toolCall": call, "options": options});
    harness
        .send(&json!({"jsonrpc": "2.0", "id": id, "method": "session/request_permission", "params": params}));
    match harness.asked().pop() {
        Some((_, HostRequest::Permission(asked))) => *asked,
        other => panic!("{other:?}"),
    }
}

fn answer_permission(harness: &mut AcpHarness, allow: bool) -> Value {
    let (ask, _) = harness.asked().pop().expect("a request is sent");
    let ruling =
        if allow { PermissionDecision::allow("test") } else { PermissionDecision::deny("test", "said_no") };
    harness.answer(ask, HostResponse::PermissionDecided(ruling));
    harness.frame()["result"]["outcome"].clone()
}

#[test]
fn calls_without_an_id_get_a_generated_one_and_stay_paired() {
    let (mut harness, id) = running_unknown();
    let call = |title: &str, status: &str| {
        json!({"sessionUpdate": "tool_call", "toolCallId": "", "title": title,
        "kind": "read", "status": status})
    };
    let end = |title: Option<&str>| json!({"sessionUpdate": "tool_call_update", "title": title, "status": "completed"});
    harness.update("s", &call("one", "in_progress"));
    harness.update("s", &call("two", "in_progress"));
    harness.update("s", &end(Some("one")));
    harness.update("s", &end(None));
    harness.update("s", &call("three", "completed"));
    // A call that was never announced.
    harness.update("s", &end(Some("four")));
    finish(&mut harness, &id);
    let ids: Vec<String> = uses(&harness).into_iter().map(|u| u.0).collect();
    assert_eq!(ids, ["_tc_1", "_tc_2", "_tc_3", "_tc_4"]);
    assert_eq!(harness.player.outcome().tool_calls, 4);
    let cancelled = harness
        .player
        .events()
        .filter(|e| matches!(e, Event::ToolResult(result) if result.status != ToolStatus::Ok))
        .count();
    assert_eq!(cancelled, 0);
}

#[test]
fn late_arguments_are_reported_with_the_call() {
    let (mut harness, id) = running_unknown();
    let call = |more: Value| {
        let mut update = json!({"sessionUpdate": "tool_call_update", "toolCallId": "c"});
        update.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        update
    };
    harness.update(
        "s",
        &json!({"sessionUpdate": "tool_call", "toolCallId": "c", "name": "Write", "rawInput": {},
        "status": "pending", "title": "Preparing file…", "kind": "edit", "content": [], "locations": []}),
    );
    assert!(uses(&harness).is_empty());
    let diff = json!([{"type": "diff", "path": "/ws/a", "oldText": null, "newText": "x"}]);
    harness
        .update("s", &call(json!({"rawInput": {"file_path": "/ws/a"}, "title": "Write a", "content": diff})));
    assert_eq!(uses(&harness), [("c".into(), "Write".into(), r#"{"file_path":"/ws/a"}"#.into())]);
    harness.update("s", &call(json!({"status": "completed", "rawOutput": "File created"})));
    finish(&mut harness, &id);
    let outcome = harness.player.outcome();
    assert_eq!((outcome.tool_calls, outcome.files[0].path.as_str()), (1, "a"));
    let content = harness.player.events().find_map(|e| match e {
        Event::ToolResult(result) => result.content.clone(),
        _ => None,
    });
    assert_eq!(content.as_deref(), Some("File created"));
}

#[test]
fn call_without_arguments_is_reported_at_the_end_of_the_turn() {
    let (mut harness, id) = running_unknown();
    harness.update(
        "s",
        &json!({"sessionUpdate": "tool_call", "toolCallId": "c", "rawInput": {}, "status": "pending",
        "title": "t", "kind": "execute"}),
    );
    harness.text("s", "end");
    harness.end(&id, &json!({"stopReason": "end_turn"}));
    harness.player.wait(1000);
    harness.player.check();
    assert_eq!(harness.player.outcome().tool_calls, 1);
}

#[test]
fn every_file_of_a_patch_is_claimed_even_if_reported_with_the_result() {
    let (mut harness, id) = running_unknown();
    let diff = |path: &str| json!({"type": "diff", "path": path, "oldText": "a", "newText": "b"});
    harness.update(
        "s",
        &json!({"sessionUpdate": "tool_call", "toolCallId": "p", "kind": "edit", "title": "Editing files",
        "status": "in_progress", "content": [diff("/ws/a"), diff("/ws/b")]}),
    );
    harness.update(
        "s",
        &json!({"sessionUpdate": "tool_call_update", "toolCallId": "p", "status": "completed",
        "content": [diff("/ws/a"), diff("/ws/b"), diff("/ws/c")]}),
    );
    finish(&mut harness, &id);
    let files: Vec<&str> = harness.player.outcome().files.iter().map(|f| f.path.as_str()).collect();
    assert_eq!(files, ["a", "b", "c"]);
}

#[test]
fn options_are_chosen_by_kind_not_by_position_or_id() {
    let option = |id: &str, kind: &str| json!({"optionId": id, "name": id, "kind": kind});
    let picked = |id: &str| json!({"outcome": "selected", "optionId": id});
    let cancelled = json!({"outcome": "cancelled"});
    for (options, yes, no) in [
        (
            json!([option("no", "reject_once"), option("ever", "allow_always"), option("x", "allow_once")]),
            picked("x"),
            picked("no"),
        ),
        (
            json!([option("reject", "allow_always"), option("allow", "reject_always")]),
            picked("reject"),
            picked("allow"),
        ),
        (json!([option("allow_once", "brand_new")]), cancelled.clone(), cancelled.clone()),
        (json!([]), cancelled.clone(), cancelled.clone()),
        (json!("broken"), cancelled.clone(), cancelled.clone()),
    ] {
        for (allow, expected) in [(true, &yes), (false, &no)] {
            let (mut harness, id) = AcpHarness::running();
            let call = json!({"toolCallId": "run_shell_command__run_shell_command_1_0", "title": "touch a", "kind": "execute"});
            request_permission(&mut harness, &json!("q"), &call, &options);
            assert_eq!(answer_permission(&mut harness, allow), *expected, "{options}");
            let open = allow && *expected != cancelled;
            finish(&mut harness, &id);
            harness.player.wait(1000);
            let verdict = if open { Verdict::Done } else { Verdict::DoneWithDenials };
            assert_eq!(harness.player.outcome().verdict, verdict);
        }
    }
}

#[test]
fn permission_request_contains_the_tool_details() {
    let (mut harness, _) = AcpHarness::running();
    let options = json!([{"optionId": "y", "kind": "allow_once"}]);
    let shell = json!({"toolCallId": "run_shell_command__run_shell_command_1_0", "title": "rm -rf x", "kind": "execute"});
    let asked = request_permission(&mut harness, &json!(1), &shell, &options);
    assert_eq!(
        (&*asked.tool, asked.kind, asked.command.as_deref()),
        ("Bash", ToolKind::Shell, Some("rm -rf x"))
    );
    answer_permission(&mut harness, true);

    let mcp = json!({"toolCallId": "mcp_my-tiny_echo__mcp_my-tiny_echo_1_0", "title": "echo (my-tiny MCP Server)", "kind": "other"});
    let asked = request_permission(&mut harness, &json!(2), &mcp, &options);
    assert_eq!((asked.kind, asked.server.as_deref()), (ToolKind::Mcp, Some("my-tiny")));
    answer_permission(&mut harness, true);

    let edit = json!({"toolCallId": "replace__replace_1_0", "title": "a: b => c", "kind": "edit",
        "locations": [{"path": "/ws/a"}], "content": [{"type": "diff", "path": "/ws/a", "oldText": "b", "newText": "c"}]});
    let asked = request_permission(&mut harness, &json!(3), &edit, &options);
    assert_eq!((asked.paths, asked.diffs[0].old.as_deref()), (vec!["/ws/a".to_owned()], Some("b")));

    let (mut harness, _) = running_unknown();
    let args =
        json!({"toolCallId": "c", "kind": "execute", "title": "t", "rawInput": {"command": ["git", "push"]}});
    assert_eq!(
        request_permission(&mut harness, &json!(4), &args, &options).command.as_deref(),
        Some("git push")
    );
}

#[test]
fn agent_that_reports_a_refusal_closes_the_tool_itself() {
    let (mut harness, id) = running_unknown();
    let call = json!({"toolCallId": "c", "title": "t", "kind": "edit"});
    request_permission(&mut harness, &json!(1), &call, &json!([{"optionId": "n", "kind": "reject_once"}]));
    assert_eq!(answer_permission(&mut harness, false)["optionId"], "n");
    let count =
        |harness: &AcpHarness| harness.player.events().filter(|e| matches!(e, Event::ToolResult(_))).count();
    assert_eq!(count(&harness), 0, "the agent may still report it");
    let content = json!([{"type": "content", "content": {"type": "text", "text": "User refused"}}]);
    harness.update("s", &json!({"sessionUpdate": "tool_call_update", "toolCallId": "c", "status": "failed", "content": content}));
    // The second call gets no further updates.
    let call = json!({"toolCallId": "d", "title": "t", "kind": "edit"});
    request_permission(&mut harness, &json!(2), &call, &json!([{"optionId": "n", "kind": "reject_once"}]));
    answer_permission(&mut harness, false);
    finish(&mut harness, &id);
    let statuses: Vec<_> = harness
        .player
        .events()
        .filter_map(|e| {
            if let Event::ToolResult(result) = e {
                Some((result.status, result.content.clone()))
            } else {
                None
            }
        })
        .collect();
    assert_eq!(statuses, [(ToolStatus::Denied, Some("User refused".into())), (ToolStatus::Denied, None)]);
    assert_eq!(harness.player.outcome().denied.len(), 2);
}
