//! Tests tool calls in the forms that agents use: without ids, with late arguments, and with permission requests under
//! other names.

use super::desk::Desk;
use crate::play::{RUN, order};
use agentline_core::{
    Event, HostRequest, HostResponse, PermissionDecision, PermissionRequest, ToolKind, ToolStatus, Verdict,
};
use serde_json::{Value, json};

fn uses(desk: &Desk) -> Vec<(String, String, String)> {
    desk.player
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

fn going_unknown() -> (Desk, Value) {
    let mut desk = Desk::unknown();
    desk.start(RUN, "s", order());
    let id = desk.frame()["id"].clone();
    (desk, id)
}

fn finish(desk: &mut Desk, id: &Value) {
    desk.text("s", "end");
    desk.end(id, &json!({"stopReason": "end_turn"}));
    desk.player.check();
}

fn ask(desk: &mut Desk, id: &Value, call: &Value, options: &Value) -> PermissionRequest {
    desk.frames();
    let params = json!({"sessionId": "s", "toolCall": call, "options": options});
    desk.send(&json!({"jsonrpc": "2.0", "id": id, "method": "session/request_permission", "params": params}));
    match desk.asked().pop() {
        Some((_, HostRequest::Permission(asked))) => *asked,
        other => panic!("{other:?}"),
    }
}

fn rule(desk: &mut Desk, allow: bool) -> Value {
    let (ask, _) = desk.asked().pop().expect("a request is sent");
    let ruling =
        if allow { PermissionDecision::allow("test") } else { PermissionDecision::deny("test", "said_no") };
    desk.answer(ask, HostResponse::Ruled(ruling));
    desk.frame()["result"]["outcome"].clone()
}

#[test]
fn calls_without_an_id_get_a_generated_one_and_stay_paired() {
    let (mut desk, id) = going_unknown();
    let call = |title: &str, status: &str| {
        json!({"sessionUpdate": "tool_call", "toolCallId": "", "title": title,
        "kind": "read", "status": status})
    };
    let end = |title: Option<&str>| json!({"sessionUpdate": "tool_call_update", "title": title, "status": "completed"});
    desk.update("s", &call("one", "in_progress"));
    desk.update("s", &call("two", "in_progress"));
    desk.update("s", &end(Some("one")));
    desk.update("s", &end(None));
    desk.update("s", &call("three", "completed"));
    // A call that was never announced.
    desk.update("s", &end(Some("four")));
    finish(&mut desk, &id);
    let ids: Vec<String> = uses(&desk).into_iter().map(|u| u.0).collect();
    assert_eq!(ids, ["_tc_1", "_tc_2", "_tc_3", "_tc_4"]);
    assert_eq!(desk.player.outcome().tool_calls, 4);
    let cancelled = desk
        .player
        .events()
        .filter(|e| matches!(e, Event::ToolResult { status, .. } if *status != ToolStatus::Ok))
        .count();
    assert_eq!(cancelled, 0);
}

#[test]
fn late_arguments_are_reported_with_the_call() {
    let (mut desk, id) = going_unknown();
    let call = |more: Value| {
        let mut update = json!({"sessionUpdate": "tool_call_update", "toolCallId": "c"});
        update.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        update
    };
    desk.update(
        "s",
        &json!({"sessionUpdate": "tool_call", "toolCallId": "c", "name": "Write", "rawInput": {},
        "status": "pending", "title": "Preparing file…", "kind": "edit", "content": [], "locations": []}),
    );
    assert!(uses(&desk).is_empty());
    let diff = json!([{"type": "diff", "path": "/ws/a", "oldText": null, "newText": "x"}]);
    desk.update("s", &call(json!({"rawInput": {"file_path": "/ws/a"}, "title": "Write a", "content": diff})));
    assert_eq!(uses(&desk), [("c".into(), "Write".into(), r#"{"file_path":"/ws/a"}"#.into())]);
    desk.update("s", &call(json!({"status": "completed", "rawOutput": "File created"})));
    finish(&mut desk, &id);
    let outcome = desk.player.outcome();
    assert_eq!((outcome.tool_calls, outcome.files[0].path.as_str()), (1, "a"));
    let content = desk.player.events().find_map(|e| match e {
        Event::ToolResult { content, .. } => content.clone(),
        _ => None,
    });
    assert_eq!(content.as_deref(), Some("File created"));
}

#[test]
fn call_without_arguments_is_reported_at_the_end_of_the_turn() {
    let (mut desk, id) = going_unknown();
    desk.update(
        "s",
        &json!({"sessionUpdate": "tool_call", "toolCallId": "c", "rawInput": {}, "status": "pending",
        "title": "t", "kind": "execute"}),
    );
    desk.text("s", "end");
    desk.end(&id, &json!({"stopReason": "end_turn"}));
    desk.player.wait(1000);
    desk.player.check();
    assert_eq!(desk.player.outcome().tool_calls, 1);
}

#[test]
fn every_file_of_a_patch_is_claimed_even_if_reported_with_the_result() {
    let (mut desk, id) = going_unknown();
    let diff = |path: &str| json!({"type": "diff", "path": path, "oldText": "a", "newText": "b"});
    desk.update(
        "s",
        &json!({"sessionUpdate": "tool_call", "toolCallId": "p", "kind": "edit", "title": "Editing files",
        "status": "in_progress", "content": [diff("/ws/a"), diff("/ws/b")]}),
    );
    desk.update(
        "s",
        &json!({"sessionUpdate": "tool_call_update", "toolCallId": "p", "status": "completed",
        "content": [diff("/ws/a"), diff("/ws/b"), diff("/ws/c")]}),
    );
    finish(&mut desk, &id);
    let files: Vec<&str> = desk.player.outcome().files.iter().map(|f| f.path.as_str()).collect();
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
        for (allow, wanted) in [(true, &yes), (false, &no)] {
            let (mut desk, id) = Desk::going();
            let call = json!({"toolCallId": "run_shell_command__run_shell_command_1_0", "title": "touch a", "kind": "execute"});
            ask(&mut desk, &json!("q"), &call, &options);
            assert_eq!(rule(&mut desk, allow), *wanted, "{options}");
            let open = allow && *wanted != cancelled;
            finish(&mut desk, &id);
            desk.player.wait(1000);
            let verdict = if open { Verdict::Done } else { Verdict::DoneWithDenials };
            assert_eq!(desk.player.outcome().verdict, verdict);
        }
    }
}

#[test]
fn permission_request_contains_the_tool_details() {
    let (mut desk, _) = Desk::going();
    let options = json!([{"optionId": "y", "kind": "allow_once"}]);
    let shell = json!({"toolCallId": "run_shell_command__run_shell_command_1_0", "title": "rm -rf x", "kind": "execute"});
    let asked = ask(&mut desk, &json!(1), &shell, &options);
    assert_eq!(
        (&*asked.tool, asked.kind, asked.command.as_deref()),
        ("Bash", ToolKind::Shell, Some("rm -rf x"))
    );
    rule(&mut desk, true);

    let mcp = json!({"toolCallId": "mcp_my-tiny_echo__mcp_my-tiny_echo_1_0", "title": "echo (my-tiny MCP Server)", "kind": "other"});
    let asked = ask(&mut desk, &json!(2), &mcp, &options);
    assert_eq!((asked.kind, asked.server.as_deref()), (ToolKind::Mcp, Some("my-tiny")));
    rule(&mut desk, true);

    let edit = json!({"toolCallId": "replace__replace_1_0", "title": "a: b => c", "kind": "edit",
        "locations": [{"path": "/ws/a"}], "content": [{"type": "diff", "path": "/ws/a", "oldText": "b", "newText": "c"}]});
    let asked = ask(&mut desk, &json!(3), &edit, &options);
    assert_eq!((asked.paths, asked.diffs[0].old.as_deref()), (vec!["/ws/a".to_owned()], Some("b")));

    let (mut desk, _) = going_unknown();
    let words =
        json!({"toolCallId": "c", "kind": "execute", "title": "t", "rawInput": {"command": ["git", "push"]}});
    assert_eq!(ask(&mut desk, &json!(4), &words, &options).command.as_deref(), Some("git push"));
}

#[test]
fn agent_that_reports_a_refusal_closes_the_tool_itself() {
    let (mut desk, id) = going_unknown();
    let call = json!({"toolCallId": "c", "title": "t", "kind": "edit"});
    ask(&mut desk, &json!(1), &call, &json!([{"optionId": "n", "kind": "reject_once"}]));
    assert_eq!(rule(&mut desk, false)["optionId"], "n");
    let count = |desk: &Desk| desk.player.events().filter(|e| matches!(e, Event::ToolResult { .. })).count();
    assert_eq!(count(&desk), 0, "the agent may still report it");
    let content = json!([{"type": "content", "content": {"type": "text", "text": "User refused"}}]);
    desk.update("s", &json!({"sessionUpdate": "tool_call_update", "toolCallId": "c", "status": "failed", "content": content}));
    // The second call gets no further updates.
    let call = json!({"toolCallId": "d", "title": "t", "kind": "edit"});
    ask(&mut desk, &json!(2), &call, &json!([{"optionId": "n", "kind": "reject_once"}]));
    rule(&mut desk, false);
    finish(&mut desk, &id);
    let statuses: Vec<_> = desk
        .player
        .events()
        .filter_map(|e| {
            if let Event::ToolResult { status, content, .. } = e {
                Some((*status, content.clone()))
            } else {
                None
            }
        })
        .collect();
    assert_eq!(statuses, [(ToolStatus::Denied, Some("User refused".into())), (ToolStatus::Denied, None)]);
    assert_eq!(desk.player.outcome().denied.len(), 2);
}
