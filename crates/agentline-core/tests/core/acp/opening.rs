//! Tests the phase from the handshake to the first prompt: every setting is applied or reported as unsupported before
//! the prompt is sent.

use super::desk::{Desk, capabilities, gemini};
use crate::play::{RUN, order};
use agentline_core::{
    Attachment, AttachmentContent, ConnectionOutput, DialogueConfig, FailureKind, InputKind, McpServer,
    Phase, RequestedMode, RequestedModel, RunId, SessionTarget, SideChannel, Stream, Surface, TurnSpec,
    Verdict, acp_dialogue,
};
use serde_json::{Value, json};
use std::collections::BTreeMap;

#[track_caller]
fn failed(desk: &mut Desk, kind: FailureKind, part: &str) {
    assert!(desk.frames().is_empty(), "no further request is sent");
    let error = desk.player.outcome().error.clone().expect("why");
    assert_eq!((error.kind, desk.player.outcome().verdict != Verdict::Done), (kind, true), "{error:?}");
    assert!(error.message.contains(part), "`{}` does not contain `{part}`", error.message);
}

fn host(desk: &mut Desk, line: &Value) {
    desk.player.line(Stream::Side(RUN, SideChannel::ToolHost), &line.to_string());
}

#[test]
fn only_provided_client_capabilities_are_offered() {
    for (read, write) in [(false, false), (true, false), (true, true)] {
        let mut talk = DialogueConfig::new(Surface::Acp, None);
        (talk.read_files, talk.write_files) = (read, write);
        let mut desk = Desk::with(gemini(&talk));
        let hello = desk.frame();
        assert_eq!((&hello["id"], &hello["method"]), (&json!(0), &json!("initialize")));
        let params = &hello["params"];
        assert_eq!(params["protocolVersion"], 1);
        assert_eq!(
            params["clientCapabilities"],
            json!({"fs": {"readTextFile": read, "writeTextFile": write}, "terminal": false})
        );
        assert_eq!(params["clientInfo"]["name"], "agentline");
    }
    // Capabilities that were not offered are refused.
    let (mut desk, _) = Desk::going();
    for method in
        ["fs/read_text_file", "fs/write_text_file", "terminal/create", "terminal/output", "brand/new"]
    {
        desk.send(&json!({"jsonrpc": "2.0", "id": "x", "method": method, "params": {"sessionId": "s", "path": "/etc/passwd"}}));
        assert_eq!(desk.frame()["error"]["code"], -32601, "{method}");
        assert!(desk.asked().is_empty());
    }
}

#[test]
fn prompt_before_the_handshake_waits() {
    let mut desk = Desk::with(acp_dialogue(&DialogueConfig::new(Surface::Acp, None)));
    let hello = desk.frame();
    desk.player.prompt(order());
    desk.player.prompt_as(RunId(2), order());
    assert!(desk.frames().is_empty());
    desk.end(&hello["id"], &capabilities("1.0"));
    let opened: Vec<_> = desk.frames().iter().map(|f| (f["id"].clone(), f["method"].clone())).collect();
    assert_eq!(opened, [(json!(4097), json!("session/new")), (json!(8193), json!("session/new"))]);
    assert!(desk.player.out.iter().any(|o| matches!(o, ConnectionOutput::Ready)));
}

#[test]
fn incompatible_agent_is_reported() {
    for (answer, kind, part) in [
        (json!({"result": {"protocolVersion": 2}}), FailureKind::Input, "version 2"),
        (
            json!({"error": {"code": -32000, "message": "sign in first"}}),
            FailureKind::NotAuthenticated,
            "sign in",
        ),
        (json!({"error": {"code": -32603, "message": "boom"}}), FailureKind::Input, "boom"),
    ] {
        let mut desk = Desk::with(acp_dialogue(&DialogueConfig::new(Surface::Acp, None)));
        desk.player.prompt(order());
        let mut answer = answer;
        answer["id"] = desk.frame()["id"].clone();
        desk.send(&answer);
        failed(&mut desk, kind, part);
        // Later runs fail in the same way.
        desk.player.prompt_as(RunId(2), order());
        assert_eq!(desk.player.outcome_of(RunId(2)).error.as_ref().map(|e| e.kind), Some(kind));
        desk.player.ticks_to_the_end();
        desk.player.check();
    }
    // An agent that reports neither a version nor capabilities is accepted.
    for quiet in [json!({}), json!(null), json!({"agentCapabilities": 7, "agentInfo": []})] {
        let mut desk = Desk::with(acp_dialogue(&DialogueConfig::new(Surface::Acp, None)));
        desk.player.prompt(order());
        desk.reply("initialize", &quiet);
        assert_eq!(desk.frame()["method"], "session/new", "{quiet}");
    }
}

fn with_servers(http: bool) -> (Desk, TurnSpec) {
    let mut desk = Desk::with(acp_dialogue(&DialogueConfig::new(Surface::Acp, None)));
    let mut can = capabilities("1.0");
    can["agentCapabilities"]["mcpCapabilities"]["http"] = json!(http);
    desk.reply("initialize", &can);
    let pair = |k: &str, v: &str| BTreeMap::from([(k.to_owned(), v.to_owned())]);
    let mut order = order();
    let command =
        McpServer::Command { command: "node".into(), args: vec!["s.js".into()], env: pair("A", "1") };
    let url =
        McpServer::Url { url: "http://127.0.0.1:1/mcp".into(), headers: pair("Authorization", "Bearer t") };
    order.servers = BTreeMap::from([("local".to_owned(), command), ("web".to_owned(), url)]);
    (desk, order)
}

#[test]
fn servers_are_passed_in_protocol_format() {
    let (mut desk, order) = with_servers(true);
    desk.player.prompt(order.clone());
    let params = desk.reply("session/new", &json!({"sessionId": "s"}));
    assert_eq!(params["cwd"], "/ws");
    assert_eq!(
        params["mcpServers"],
        json!([
            {"name": "local", "command": "node", "args": ["s.js"], "env": [{"name": "A", "value": "1"}]},
            {"type": "http", "name": "web", "url": "http://127.0.0.1:1/mcp",
                "headers": [{"name": "Authorization", "value": "Bearer t"}]},
        ])
    );
    let (mut desk, order) = with_servers(false);
    desk.player.prompt(order);
    failed(&mut desk, FailureKind::Input, "`web`");
    assert_eq!(desk.player.outcome().error.as_ref().map(|e| e.phase), Some(Phase::Request));
}

#[test]
fn attachments_become_blocks_the_agent_supports() {
    let mut order = order();
    let base64 = |mime: &str| Attachment::new("file:///a", mime, AttachmentContent::Base64("aGk=".into()));
    order.attachments = vec![
        base64("image/png"),
        base64("audio/wav"),
        Attachment::new("file:///t.rs", "text/x-rust", AttachmentContent::Text("fn".into())),
        base64("application/pdf"),
    ];
    let mut desk = Desk::unknown();
    desk.start(RUN, "s", order.clone());
    let prompt = desk.frame();
    assert_eq!(
        prompt["params"]["prompt"],
        json!([
            {"type": "text", "text": "Do it"},
            {"type": "image", "mimeType": "image/png", "data": "aGk="},
            {"type": "audio", "mimeType": "audio/wav", "data": "aGk="},
            {"type": "resource", "resource": {"uri": "file:///t.rs", "mimeType": "text/x-rust", "text": "fn"}},
            {"type": "resource", "resource": {"uri": "file:///a", "mimeType": "application/pdf", "blob": "aGk="}},
        ])
    );
    for (missing, part) in [("image", "images"), ("audio", "audio"), ("embeddedContext", "embedded files")] {
        let mut desk = Desk::with(gemini(&DialogueConfig::new(Surface::Acp, None)));
        let mut can = capabilities("0.61.0");
        can["agentCapabilities"]["promptCapabilities"][missing] = json!(false);
        desk.reply("initialize", &can);
        desk.player.prompt(order.clone());
        failed(&mut desk, FailureKind::Input, part);
        assert!(desk.player.outcome().error.as_ref().is_some_and(|e| e.message.contains("`attachments`")));
    }
}

#[test]
fn prompt_waits_for_our_own_tools() {
    let hosted = || {
        let mut desk = Desk::gemini();
        let mut order = order();
        order.hosted = vec!["ask".into(), "tell".into()];
        desk.player.prompt(order);
        desk
    };
    // The tools may be listed before or after the session is open.
    let mut desk = hosted();
    desk.reply("session/new", &json!({"sessionId": "s"}));
    host(&mut desk, &json!({"listed": ["ask"]}));
    assert!(desk.frames().is_empty());
    host(&mut desk, &json!({"listed": ["ask", "tell", "more"]}));
    assert_eq!(desk.frame()["method"], "session/prompt");
    let mut desk = hosted();
    let open = desk.frame();
    host(&mut desk, &json!({"listed": ["tell", "ask"]}));
    desk.end(&open["id"], &json!({"sessionId": "s"}));
    assert_eq!(desk.frame()["method"], "session/prompt");
    // If they are not listed, the reason is reported, whenever it arrives.
    for (line, part) in [
        (json!({"unlisted": "nobody came in 10 s"}), "nobody came in 10 s"),
        (json!({"refused": "a wrong token"}), "a wrong token"),
        (json!({"refused": {"status": 401}}), "401"),
    ] {
        for early in [true, false] {
            let mut desk = hosted();
            let open = desk.frame();
            if early {
                host(&mut desk, &line);
            }
            desk.end(&open["id"], &json!({"sessionId": "s"}));
            if !early {
                host(&mut desk, &line);
            }
            failed(&mut desk, FailureKind::Mcp, part);
        }
    }
}

#[test]
fn tool_host_reports_are_passed_on() {
    let (mut desk, id) = Desk::going();
    host(&mut desk, &json!({"server": "web", "error": "connection refused"}));
    host(&mut desk, &json!({"called": "ask"}));
    host(&mut desk, &json!({"value": {"a": [1]}}));
    host(&mut desk, &json!("nonsense"));
    desk.end(&id, &json!({"stopReason": "end_turn"}));
    assert_eq!(desk.player.warnings(), ["mcp_server"]);
    assert_eq!(desk.player.outcome().output.as_ref().map(|v| v.get()), Some(r#"{"a":[1]}"#));
    assert_eq!(desk.player.outcome().verdict, Verdict::Done, "a value is an answer");
}

#[test]
fn session_can_be_opened_without_a_prompt_and_continued() {
    let mut desk = Desk::gemini();
    let mut open = order();
    open.only_open = true;
    open.mode = Some(RequestedMode::new("yolo", true));
    desk.player.prompt(open);
    desk.reply(
        "session/new",
        &json!({"sessionId": "s", "modes": {"currentModeId": "default", "availableModes": []}}),
    );
    assert_eq!(desk.reply("session/set_mode", &json!({}))["modeId"], "yolo");
    assert_eq!(desk.player.outcome().verdict, Verdict::Done);
    assert!(desk.frames().is_empty(), "no prompt is sent");
    // The agent announces its commands between runs, which is no reason for a warning.
    desk.update("s", &json!({"sessionUpdate": "available_commands_update", "availableCommands": []}));
    let mut next = order();
    next.session = SessionTarget::Open("s".into());
    next.mode = Some(RequestedMode::new("yolo", true));
    desk.player.prompt_as(RunId(2), next.clone());
    let prompt = desk.frame();
    assert_eq!(prompt["method"], "session/prompt", "the session is in that mode");
    // Two prompts in one session would cancel each other.
    desk.player.prompt_as(RunId(3), next.clone());
    let busy = desk.player.outcome_of(RunId(3)).error.clone().expect("why");
    assert_eq!(busy.kind, FailureKind::Input);
    assert!(desk.frames().is_empty());
    desk.text("s", "fine");
    desk.end(&prompt["id"], &json!({"stopReason": "end_turn"}));
    assert_eq!(desk.player.outcome_of(RunId(2)).text, "fine");
    assert_eq!(desk.player.outcome_of(RunId(2)).session_id.as_deref(), Some("s"));
    next.session = SessionTarget::Open("never".into());
    desk.player.prompt_as(RunId(4), next);
    assert_eq!(
        desk.player.outcome_of(RunId(4)).error.as_ref().map(|e| e.kind),
        Some(FailureKind::SessionNotFound)
    );
}

#[test]
fn model_is_set_with_the_method_the_session_supports() {
    let wish = |result: &Value| {
        let mut desk = Desk::unknown();
        let mut order = order();
        order.model = Some(RequestedModel::new("big", false));
        desk.player.prompt(order);
        desk.reply("session/new", result);
        desk
    };
    let option =
        json!([{"id": "model", "category": "model", "currentValue": "small", "options": [{"value": "big"}]}]);
    let mut desk = wish(&json!({"sessionId": "s", "configOptions": option}));
    let params = desk.reply("session/set_config_option", &json!({}));
    assert_eq!(params, json!({"sessionId": "s", "configId": "model", "value": "big"}));
    assert_eq!(desk.frame()["method"], "session/prompt");
    // If a listed method does not exist, the configuration option is used instead.
    let models = json!({"currentModelId": "small", "availableModels": [{"modelId": "big"}]});
    let mut desk = wish(&json!({"sessionId": "s", "models": models, "configOptions": option}));
    desk.refuse("session/set_model", -32601, "Method not found");
    desk.reply("session/set_config_option", &json!({}));
    let id = desk.frame()["id"].clone();
    desk.text("s", "x");
    desk.end(&id, &json!({"stopReason": "end_turn"}));
    assert_eq!(desk.player.outcome().model.as_deref(), Some("big"));
    assert!(desk.player.warnings().is_empty());
    // Without a list, the request is sent anyway, and its failure is reported.
    let mut desk = wish(&json!({"sessionId": "s"}));
    desk.refuse("session/set_model", -32601, "Method not found");
    assert_eq!(desk.frame()["method"], "session/prompt");
    assert_eq!(desk.player.warnings(), ["model_not_set"]);
}

/// Returns the stages at which a run can be stopped, each with a connection at that stage.
fn stages() -> Vec<(&'static str, Desk)> {
    let mut all = Vec::new();
    let mut desk = Desk::with(gemini(&DialogueConfig::new(Surface::Acp, None)));
    desk.player.prompt(order());
    all.push(("before the handshake", desk));

    let mut desk = Desk::gemini();
    desk.player.prompt(order());
    all.push(("while the session opens", desk));

    let mut desk = Desk::gemini();
    let mut wish = order();
    wish.mode = Some(RequestedMode::new("plan", true));
    desk.start(RUN, "s", wish);
    all.push(("while the mode is set", desk));

    let mut desk = Desk::gemini();
    let mut wish = order();
    wish.model = Some(RequestedModel::new("m", false));
    desk.start(RUN, "s", wish);
    all.push(("while the model is set", desk));

    let mut desk = Desk::gemini();
    let mut wish = order();
    wish.hosted = vec!["ask".into()];
    desk.start(RUN, "s", wish);
    all.push(("while tools are waited for", desk));

    let mut desk = Desk::gemini();
    let mut wish = order();
    wish.session = SessionTarget::Load("s".into());
    desk.player.prompt(wish);
    desk.reply("session/load", &json!({}));
    all.push(("while history comes", desk));
    all
}

#[test]
fn run_cancelled_before_its_prompt_sends_none() {
    for (when, mut desk) in stages() {
        let pending = desk.frames();
        desk.player.take(InputKind::Cancel { run: RUN, signal: 15 });
        assert_eq!(desk.player.outcome().verdict, Verdict::Cancelled, "{when}");
        // Late replies to pending requests have no effect.
        for frame in pending {
            desk.end(&frame["id"], &json!({"sessionId": "late", "protocolVersion": 1}));
        }
        host(&mut desk, &json!({"listed": ["ask"]}));
        desk.text("late", "of nobody");
        desk.player.check();
        assert!(desk.frames().iter().all(|f| f["method"] == "initialize"), "{when}");
        // The process is intact and accepts the next run.
        assert!(desk.player.conn.vacant(), "{when}");
        desk.player.prompt_as(RunId(2), order());
        let frames = desk.frames();
        assert!(frames.iter().any(|f| f["method"] == "session/new"), "{when}: {frames:?}");
    }
}

#[test]
fn session_open_failure_is_reported_with_its_reason() {
    for (want, code, message, kind) in [
        (
            SessionTarget::New,
            -32000,
            "Gemini API key is missing or not configured.",
            FailureKind::NotAuthenticated,
        ),
        (SessionTarget::New, -32603, "Directory does not exist: /x", FailureKind::Input),
        (
            SessionTarget::Load("x".into()),
            -32603,
            "Invalid session identifier \"x\".",
            FailureKind::SessionNotFound,
        ),
        (SessionTarget::Load("x".into()), -32603, "something else", FailureKind::SessionNotFound),
    ] {
        let mut desk = Desk::gemini();
        let mut order = order();
        order.session = want.clone();
        desk.player.prompt(order);
        let method = if want == SessionTarget::New { "session/new" } else { "session/load" };
        desk.refuse(method, code, message);
        failed(&mut desk, kind, message);
        assert_eq!(desk.player.outcome().error.as_ref().map(|e| e.phase), Some(Phase::Request));
    }
    // An agent that cannot load sessions is not asked to.
    let mut desk = Desk::gemini_of("0.24.0");
    let mut order = order();
    order.session = SessionTarget::Load("x".into());
    let mut can = capabilities("0.24.0");
    can["agentCapabilities"]["loadSession"] = json!(false);
    let mut old = Desk::with(gemini(&DialogueConfig::new(Surface::Acp, None)));
    old.reply("initialize", &can);
    old.player.prompt(order);
    failed(&mut old, FailureKind::Input, "stored session");
    // A session without an id cannot be used.
    desk.player.prompt(crate::play::order());
    desk.reply("session/new", &json!({}));
    failed(&mut desk, FailureKind::NoResult, "id");
}
