//! Tests the course of one run: handshake, session, prompt, updates, answer.

use super::harness::AcpHarness;
use crate::play::{RUN, spec};
use agentline_core::{
    Event, FailureKind, HostRequest, HostResponse, InputKind, PermissionDecision, Phase, RequestedMode,
    Signal, Verdict,
};
use serde_json::json;

#[test]
fn run_from_handshake_to_outcome() {
    let (mut harness, id) = AcpHarness::running();
    harness.update(
        "s",
        &json!({"sessionUpdate": "agent_thought_chunk", "content": {"type": "text", "text": "hm"}}),
    );
    harness.text("s", "Hel");
    harness.text("s", "lo");
    let quota = json!({"quota": {"token_count": {"input_tokens": 100, "output_tokens": 20},
        "model_usage": [{"model": "gemini-3.8-flash", "token_count": {"input_tokens": 100, "output_tokens": 20}}]}});
    harness.end(&id, &json!({"stopReason": "end_turn", "_meta": quota}));
    harness.player.check();
    let outcome = harness.player.outcome();
    assert_eq!((outcome.verdict, outcome.text.as_str()), (Verdict::Done, "Hello"));
    assert_eq!(outcome.stop_reason.as_deref(), Some("end_turn"));
    assert_eq!(outcome.session_id.as_deref(), Some("s"));
    assert_eq!(outcome.usage.tokens.input, Some(100));
    assert_eq!(harness.story(), ["started", "thinking", "text", "text", "usage"]);
    assert!(!harness.player.conn.is_finished() && harness.player.conn.vacant());
}

#[test]
fn tool_permission_is_requested_answered_by_kind_and_closed() {
    let (mut harness, id) = AcpHarness::running();
    let call = json!({"toolCallId": "write_file__write_file_1_0", "status": "pending", "title": "Writing to a.txt",
        "kind": "edit", "locations": [{"path": "/ws/a.txt"}],
        "content": [{"type": "diff", "path": "/ws/a.txt", "oldText": "", "newText": "x"}]});
    let options = json!([{"optionId": "proceed_always", "kind": "allow_always"}, {"optionId": "p1", "kind": "allow_once"},
        {"optionId": "cancel", "kind": "reject_once"}]);
    for (n, allow) in [(7, true), (8, false)] {
        let params = json!({"sessionId": "s", "options": options, "toolCall": call});
        harness.send(
            &json!({"jsonrpc": "2.0", "id": n, "method": "session/request_permission", "params": params}),
        );
        let (ask, question) = harness.asked().pop().expect("a request is sent");
        let HostRequest::Permission(asked) = question else { panic!("{question:?}") };
        assert_eq!((&*asked.tool, &*asked.native_tool), ("Write", "write_file"));
        assert_eq!(asked.diffs[0].new, "x");
        let ruling = if allow {
            PermissionDecision::allow("test")
        } else {
            PermissionDecision::deny("rule", "rule").rule("Write(b)")
        };
        harness.answer(ask, HostResponse::PermissionDecided(ruling));
        let frame = harness.frame();
        let chosen = if allow { "p1" } else { "cancel" };
        assert_eq!(
            frame,
            json!({"jsonrpc": "2.0", "id": n, "result": {"outcome": {"outcome": "selected", "optionId": chosen}}})
        );
        if allow {
            harness.update("s", &json!({"sessionUpdate": "tool_call_update", "toolCallId": call["toolCallId"], "status": "completed"}));
        }
    }
    harness.text("s", "done");
    harness.end(&id, &json!({"stopReason": "end_turn"}));
    harness.player.check();
    let outcome = harness.player.outcome();
    assert_eq!(outcome.verdict, Verdict::DoneWithDenials);
    assert_eq!(outcome.denied.len(), 1);
    assert_eq!((&*outcome.denied[0].reason, outcome.denied[0].rule.as_deref()), ("rule", Some("Write(b)")));
    assert_eq!(outcome.files[0].path, "a.txt");
    let denied =
        harness.player.events().filter(|e| matches!(e, Event::ToolResult(result) if result.is_error)).count();
    assert_eq!(denied, 1);
}

#[test]
fn cancel_is_sent_in_band_and_pending_requests_are_answered() {
    let (mut harness, id) = AcpHarness::running();
    let params = json!({"sessionId": "s", "options": [{"optionId": "ok", "kind": "allow_once"}],
        "toolCall": {"toolCallId": "run_shell_command__run_shell_command_1_0", "title": "sleep 9", "kind": "execute"}});
    harness.send(
        &json!({"jsonrpc": "2.0", "id": "q", "method": "session/request_permission", "params": params}),
    );
    harness.player.take(InputKind::Cancel { run: RUN, signal: Signal::Interrupt });
    assert_eq!(
        harness.frames(),
        [
            json!({"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": "s"}}),
            json!({"jsonrpc": "2.0", "id": "q", "result": {"outcome": {"outcome": "cancelled"}}}),
        ]
    );
    harness.end(&id, &json!({"stopReason": "cancelled"}));
    harness.player.check();
    assert_eq!(harness.player.outcome().verdict, Verdict::Cancelled);
    // The session remains usable.
    let mut next = spec();
    next.session = agentline_core::SessionTarget::Open("s".into());
    harness.player.prompt_as(agentline_core::RunId(2), next);
    assert_eq!(harness.frame()["method"], "session/prompt");
}

#[test]
fn failure_to_set_a_required_mode_ends_the_run_before_the_prompt() {
    for (must, verdict) in [(true, Verdict::Failed), (false, Verdict::Done)] {
        let mut harness = AcpHarness::unknown();
        let mut spec = spec();
        spec.mode = Some(RequestedMode::new("plan", must));
        harness.start(RUN, "s", spec);
        harness.refuse("session/set_mode", -32603, "no such mode");
        if must {
            assert!(harness.frames().is_empty(), "no prompt is sent");
            let error = harness.player.outcome().error.as_ref().expect("why");
            assert_eq!((error.kind, error.phase), (FailureKind::Policy, Phase::Request));
        } else {
            let id = harness.frame()["id"].clone();
            harness.text("s", "ok");
            harness.end(&id, &json!({"stopReason": "end_turn"}));
            assert_eq!(harness.player.warnings(), ["mode_not_set"]);
        }
        assert_eq!(harness.player.outcome().verdict, verdict);
    }
}

#[test]
fn refused_handshake_fails_before_any_model_request() {
    let dialogue = agentline_core::DialogueConfig::new(agentline_core::Surface::Acp, None);
    let mut harness = AcpHarness::with(agentline_core::acp_dialogue(&dialogue));
    harness.player.prompt_as(RUN, spec());
    harness.refuse("initialize", -32603, "cannot initialize");
    let error = harness.player.outcome().error.clone().expect("an error");
    assert_eq!((error.kind, error.phase), (FailureKind::Input, Phase::Request), "{error:?}");
}

#[test]
fn request_without_a_session_belongs_to_the_only_run() {
    let (mut harness, _) = AcpHarness::running();
    let ask = |harness: &mut AcpHarness| {
        let options = json!([{"optionId": "y", "kind": "allow_once"}]);
        let params = json!({"options": options, "toolCall": {"toolCallId": "write_file-1", "kind": "edit"}});
        harness.send(
            &json!({"jsonrpc": "2.0", "id": 7, "method": "session/request_permission", "params": params}),
        );
    };
    ask(&mut harness);
    assert_eq!(harness.asked().len(), 1);
    // With another run active, the owner of the request is unknown, so it is cancelled instead of left waiting.
    harness.start(agentline_core::RunId(2), "t", spec());
    harness.frames();
    ask(&mut harness);
    assert_eq!(harness.asked().len(), 1);
    assert_eq!(harness.frame()["result"], json!({"outcome": {"outcome": "cancelled"}}));
}

#[test]
fn unknown_tool_gets_its_kind_from_the_protocol() {
    let (mut harness, _) = AcpHarness::running();
    let options = json!([{"optionId": "y", "kind": "allow_once"}]);
    let call = json!({"toolCallId": "brand_new_shell-1", "title": "rm -rf /", "kind": "execute"});
    let params = json!({"sessionId": "s", "options": options, "toolCall": call});
    harness
        .send(&json!({"jsonrpc": "2.0", "id": 7, "method": "session/request_permission", "params": params}));
    let Some((_, HostRequest::Permission(asked))) = harness.asked().pop() else {
        panic!("a request is sent")
    };
    assert_eq!((&*asked.tool, &*asked.native_tool), ("Bash", "brand_new_shell"));
    assert_eq!(asked.command.as_deref(), Some("rm -rf /"));
}

#[test]
fn sessions_with_the_same_id_are_never_mixed() {
    let (mut harness, id) = AcpHarness::running();
    let second = agentline_core::RunId(2);
    harness.player.prompt_as(second, spec());
    harness.reply("session/new", &json!({"sessionId": "s"}));
    assert!(harness.frames().is_empty(), "no prompt is sent in it");
    let error = harness.player.outcome_of(second).error.clone().expect("an error");
    assert!(
        error.kind == FailureKind::NoResult && error.message.contains("id of an active session"),
        "{error:?}"
    );
    harness.text("s", "hello");
    harness.end(&id, &json!({"stopReason": "end_turn"}));
    assert_eq!(harness.player.outcome().text, "hello");
}

#[test]
fn agent_with_closed_stdout_is_not_awaited() {
    let (mut harness, _) = AcpHarness::running();
    harness.text("s", "half");
    harness.player.take(InputKind::StdoutClosed);
    assert!(!harness.player.conn.vacant(), "no other run uses it");
    harness.player.take(InputKind::Exit(agentline_core::ExitReason::Code(0)));
    let outcome = harness.player.outcome();
    let error = outcome.error.clone().expect("an error");
    assert_eq!((error.kind, outcome.text.as_str()), (FailureKind::Crashed, "half"), "{error:?}");
    assert!(error.message.contains("closed its output"), "{error:?}");
}
