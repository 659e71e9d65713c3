//! Tests the course of one run: handshake, session, prompt, updates, answer.

use super::desk::Desk;
use crate::play::{RUN, order};
use agentline_core::{
    Event, FailureKind, HostRequest, HostResponse, InputKind, PermissionDecision, Phase, RequestedMode,
    Verdict,
};
use serde_json::json;

#[test]
fn run_from_handshake_to_outcome() {
    let (mut desk, id) = Desk::going();
    desk.update(
        "s",
        &json!({"sessionUpdate": "agent_thought_chunk", "content": {"type": "text", "text": "hm"}}),
    );
    desk.text("s", "Hel");
    desk.text("s", "lo");
    let quota = json!({"quota": {"token_count": {"input_tokens": 100, "output_tokens": 20},
        "model_usage": [{"model": "gemini-3.8-flash", "token_count": {"input_tokens": 100, "output_tokens": 20}}]}});
    desk.end(&id, &json!({"stopReason": "end_turn", "_meta": quota}));
    desk.player.check();
    let outcome = desk.player.outcome();
    assert_eq!((outcome.verdict, outcome.text.as_str()), (Verdict::Done, "Hello"));
    assert_eq!(outcome.stop_reason.as_deref(), Some("end_turn"));
    assert_eq!(outcome.session_id.as_deref(), Some("s"));
    assert_eq!(outcome.usage.tokens.input, Some(100));
    assert_eq!(desk.story(), ["started", "thinking", "text", "text", "usage"]);
    assert!(!desk.player.conn.gone() && desk.player.conn.vacant());
}

#[test]
fn tool_permission_is_requested_answered_by_kind_and_closed() {
    let (mut desk, id) = Desk::going();
    let call = json!({"toolCallId": "write_file__write_file_1_0", "status": "pending", "title": "Writing to a.txt",
        "kind": "edit", "locations": [{"path": "/ws/a.txt"}],
        "content": [{"type": "diff", "path": "/ws/a.txt", "oldText": "", "newText": "x"}]});
    let options = json!([{"optionId": "proceed_always", "kind": "allow_always"}, {"optionId": "p1", "kind": "allow_once"},
        {"optionId": "cancel", "kind": "reject_once"}]);
    for (n, allow) in [(7, true), (8, false)] {
        let params = json!({"sessionId": "s", "options": options, "toolCall": call});
        desk.send(
            &json!({"jsonrpc": "2.0", "id": n, "method": "session/request_permission", "params": params}),
        );
        let (ask, question) = desk.asked().pop().expect("a request is sent");
        let HostRequest::Permission(asked) = question else { panic!("{question:?}") };
        assert_eq!((&*asked.tool, &*asked.native_tool), ("Write", "write_file"));
        assert_eq!(asked.diffs[0].new, "x");
        let ruling = if allow {
            PermissionDecision::allow("test")
        } else {
            PermissionDecision::deny("rule", "rule").rule("Write(b)")
        };
        desk.answer(ask, HostResponse::Ruled(ruling));
        let frame = desk.frame();
        let chosen = if allow { "p1" } else { "cancel" };
        assert_eq!(
            frame,
            json!({"jsonrpc": "2.0", "id": n, "result": {"outcome": {"outcome": "selected", "optionId": chosen}}})
        );
        if allow {
            desk.update("s", &json!({"sessionUpdate": "tool_call_update", "toolCallId": call["toolCallId"], "status": "completed"}));
        }
    }
    desk.text("s", "done");
    desk.end(&id, &json!({"stopReason": "end_turn"}));
    desk.player.check();
    let outcome = desk.player.outcome();
    assert_eq!(outcome.verdict, Verdict::DoneWithDenials);
    assert_eq!(outcome.denied.len(), 1);
    assert_eq!((&*outcome.denied[0].reason, outcome.denied[0].rule.as_deref()), ("rule", Some("Write(b)")));
    assert_eq!(outcome.files[0].path, "a.txt");
    let denied =
        desk.player.events().filter(|e| matches!(e, Event::ToolResult { is_error: true, .. })).count();
    assert_eq!(denied, 1);
}

#[test]
fn cancel_is_sent_in_band_and_pending_requests_are_answered() {
    let (mut desk, id) = Desk::going();
    let params = json!({"sessionId": "s", "options": [{"optionId": "ok", "kind": "allow_once"}],
        "toolCall": {"toolCallId": "run_shell_command__run_shell_command_1_0", "title": "sleep 9", "kind": "execute"}});
    desk.send(
        &json!({"jsonrpc": "2.0", "id": "q", "method": "session/request_permission", "params": params}),
    );
    desk.player.take(InputKind::Cancel { run: RUN, signal: 2 });
    assert_eq!(
        desk.frames(),
        [
            json!({"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": "s"}}),
            json!({"jsonrpc": "2.0", "id": "q", "result": {"outcome": {"outcome": "cancelled"}}}),
        ]
    );
    desk.end(&id, &json!({"stopReason": "cancelled"}));
    desk.player.check();
    assert_eq!(desk.player.outcome().verdict, Verdict::Cancelled);
    // The session remains usable.
    let mut next = order();
    next.session = agentline_core::SessionTarget::Open("s".into());
    desk.player.prompt_as(agentline_core::RunId(2), next);
    assert_eq!(desk.frame()["method"], "session/prompt");
}

#[test]
fn failure_to_set_a_required_mode_ends_the_run_before_the_prompt() {
    for (must, verdict) in [(true, Verdict::Failed), (false, Verdict::Done)] {
        let mut desk = Desk::unknown();
        let mut order = order();
        order.mode = Some(RequestedMode::new("plan", must));
        desk.start(RUN, "s", order);
        desk.refuse("session/set_mode", -32603, "no such mode");
        if must {
            assert!(desk.frames().is_empty(), "no prompt is sent");
            let error = desk.player.outcome().error.as_ref().expect("why");
            assert_eq!((error.kind, error.phase), (FailureKind::Policy, Phase::Request));
        } else {
            let id = desk.frame()["id"].clone();
            desk.text("s", "ok");
            desk.end(&id, &json!({"stopReason": "end_turn"}));
            assert_eq!(desk.player.warnings(), ["mode_not_set"]);
        }
        assert_eq!(desk.player.outcome().verdict, verdict);
    }
}

#[test]
fn refused_handshake_fails_before_any_model_request() {
    let talk = agentline_core::DialogueConfig::new(agentline_core::Surface::Acp, None);
    let mut desk = Desk::with(agentline_core::acp_dialogue(&talk));
    desk.player.prompt_as(RUN, order());
    desk.refuse("initialize", -32603, "cannot initialize");
    let error = desk.player.outcome().error.clone().expect("an error");
    assert_eq!((error.kind, error.phase), (FailureKind::Input, Phase::Request), "{error:?}");
}

#[test]
fn request_without_a_session_belongs_to_the_only_run() {
    let (mut desk, _) = Desk::going();
    let ask = |desk: &mut Desk| {
        let options = json!([{"optionId": "y", "kind": "allow_once"}]);
        let params = json!({"options": options, "toolCall": {"toolCallId": "write_file-1", "kind": "edit"}});
        desk.send(
            &json!({"jsonrpc": "2.0", "id": 7, "method": "session/request_permission", "params": params}),
        );
    };
    ask(&mut desk);
    assert_eq!(desk.asked().len(), 1);
    // With another run active, the owner of the request is unknown, so it is cancelled instead of left waiting.
    desk.start(agentline_core::RunId(2), "t", order());
    desk.frames();
    ask(&mut desk);
    assert_eq!(desk.asked().len(), 1);
    assert_eq!(desk.frame()["result"], json!({"outcome": {"outcome": "cancelled"}}));
}

#[test]
fn unknown_tool_gets_its_kind_from_the_protocol() {
    let (mut desk, _) = Desk::going();
    let options = json!([{"optionId": "y", "kind": "allow_once"}]);
    let call = json!({"toolCallId": "brand_new_shell-1", "title": "rm -rf /", "kind": "execute"});
    let params = json!({"sessionId": "s", "options": options, "toolCall": call});
    desk.send(&json!({"jsonrpc": "2.0", "id": 7, "method": "session/request_permission", "params": params}));
    let Some((_, HostRequest::Permission(asked))) = desk.asked().pop() else { panic!("a request is sent") };
    assert_eq!((&*asked.tool, &*asked.native_tool), ("Bash", "brand_new_shell"));
    assert_eq!(asked.command.as_deref(), Some("rm -rf /"));
}

#[test]
fn sessions_with_the_same_id_are_never_mixed() {
    let (mut desk, id) = Desk::going();
    let second = agentline_core::RunId(2);
    desk.player.prompt_as(second, order());
    desk.reply("session/new", &json!({"sessionId": "s"}));
    assert!(desk.frames().is_empty(), "no prompt is sent in it");
    let error = desk.player.outcome_of(second).error.clone().expect("an error");
    assert!(error.kind == FailureKind::NoResult && error.message.contains("id of another"), "{error:?}");
    desk.text("s", "hello");
    desk.end(&id, &json!({"stopReason": "end_turn"}));
    assert_eq!(desk.player.outcome().text, "hello");
}

#[test]
fn agent_with_closed_stdout_is_not_awaited() {
    let (mut desk, _) = Desk::going();
    desk.text("s", "half");
    desk.player.take(InputKind::Mute);
    assert!(!desk.player.conn.vacant(), "no other run uses it");
    desk.player.take(InputKind::Exit(agentline_core::ExitReason::Code(0)));
    let outcome = desk.player.outcome();
    let error = outcome.error.clone().expect("an error");
    assert_eq!((error.kind, outcome.text.as_str()), (FailureKind::Crashed, "half"), "{error:?}");
    assert!(error.message.contains("closed its output"), "{error:?}");
}
