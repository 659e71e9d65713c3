//! Tests the phase from the handshake to the first prompt: every setting is applied or reported as unsupported before
//! the prompt is sent.

use super::harness::{AcpHarness, capabilities, gemini};
use crate::play::{RUN, spec};
use agentline_core::{
    Attachment, AttachmentContent, ConnectionOutput, DialogueConfig, FailureKind, InputKind, McpServer,
    Phase, RequestedMode, RequestedModel, RunId, SessionTarget, SideChannel, Signal, Stream, Surface,
    TurnSpec, Verdict, acp_dialogue,
};
use serde_json::{Value, json};
use std::collections::BTreeMap;

#[track_caller]
fn failed(harness: &mut AcpHarness, kind: FailureKind, part: &str) {
    assert!(harness.frames().is_empty(), "no further request is sent");
    let error = harness.player.outcome().error.clone().expect("why");
    assert_eq!((error.kind, harness.player.outcome().verdict != Verdict::Done), (kind, true), "{error:?}");
    assert!(error.message.contains(part), "`{}` does not contain `{part}`", error.message);
}

fn host(harness: &mut AcpHarness, line: &Value) {
    harness.player.line(Stream::Side(RUN, SideChannel::ToolHost), &line.to_string());
}

#[test]
fn only_provided_client_capabilities_are_offered() {
    for (read, write) in [(false, false), (true, false), (true, true)] {
        let mut dialogue = DialogueConfig::new(Surface::Acp, None);
        (dialogue.read_files, dialogue.write_files) = (read, write);
        let mut harness = AcpHarness::with(gemini(&dialogue));
        let hello = harness.frame();
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
    let (mut harness, _) = AcpHarness::running();
    for method in
        ["fs/read_text_file", "fs/write_text_file", "terminal/create", "terminal/output", "brand/new"]
    {
        harness.send(&json!({"jsonrpc": "2.0", "id": "x", "method": method, "params": {"sessionId": "s", "path": "/etc/passwd"}}));
        assert_eq!(harness.frame()["error"]["code"], -32601, "{method}");
        assert!(harness.asked().is_empty());
    }
}

#[test]
fn prompt_before_the_handshake_waits() {
    let mut harness = AcpHarness::with(acp_dialogue(&DialogueConfig::new(Surface::Acp, None)));
    let hello = harness.frame();
    harness.player.prompt(spec());
    harness.player.prompt_as(RunId(2), spec());
    assert!(harness.frames().is_empty());
    harness.end(&hello["id"], &capabilities("1.0"));
    let opened: Vec<_> = harness.frames().iter().map(|f| (f["id"].clone(), f["method"].clone())).collect();
    assert_eq!(opened, [(json!(4097), json!("session/new")), (json!(8193), json!("session/new"))]);
    assert!(harness.player.out.iter().any(|o| matches!(o, ConnectionOutput::Ready)));
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
        let mut harness = AcpHarness::with(acp_dialogue(&DialogueConfig::new(Surface::Acp, None)));
        harness.player.prompt(spec());
        let mut answer = answer;
        answer["id"] = harness.frame()["id"].clone();
        harness.send(&answer);
        failed(&mut harness, kind, part);
        // Later runs fail in the same way.
        harness.player.prompt_as(RunId(2), spec());
        assert_eq!(harness.player.outcome_of(RunId(2)).error.as_ref().map(|e| e.kind), Some(kind));
        harness.player.ticks_to_the_end();
        harness.player.check();
    }
    // An agent that reports neither a version nor capabilities is accepted.
    for quiet in [json!({}), json!(null), json!({"agentCapabilities": 7, "agentInfo": []})] {
        let mut harness = AcpHarness::with(acp_dialogue(&DialogueConfig::new(Surface::Acp, None)));
        harness.player.prompt(spec());
        harness.reply("initialize", &quiet);
        assert_eq!(harness.frame()["method"], "session/new", "{quiet}");
    }
}

fn with_servers(http: bool) -> (AcpHarness, TurnSpec) {
    let mut harness = AcpHarness::with(acp_dialogue(&DialogueConfig::new(Surface::Acp, None)));
    let mut can = capabilities("1.0");
    can["agentCapabilities"]["mcpCapabilities"]["http"] = json!(http);
    harness.reply("initialize", &can);
    let pair = |k: &str, v: &str| BTreeMap::from([(k.to_owned(), v.to_owned())]);
    let mut spec = spec();
    let command =
        McpServer::Command { command: "node".into(), args: vec!["s.js".into()], env: pair("A", "1") };
    let url =
        McpServer::Url { url: "http://127.0.0.1:1/mcp".into(), headers: pair("Authorization", "Bearer t") };
    spec.servers = BTreeMap::from([("local".to_owned(), command), ("web".to_owned(), url)]);
    (harness, spec)
}

#[test]
fn servers_are_passed_in_protocol_format() {
    let (mut harness, spec) = with_servers(true);
    harness.player.prompt(spec.clone());
    let params = harness.reply("session/new", &json!({"sessionId": "s"}));
    assert_eq!(params["cwd"], "/ws");
    assert_eq!(
        params["mcpServers"],
        json!([
            {"name": "local", "command": "node", "args": ["s.js"], "env": [{"name": "A", "value": "1"}]},
            {"type": "http", "name": "web", "url": "http://127.0.0.1:1/mcp",
                "headers": [{"name": "Authorization", "value": "Bearer t"}]},
        ])
    );
    let (mut harness, spec) = with_servers(false);
    harness.player.prompt(spec);
    failed(&mut harness, FailureKind::Input, "`web`");
    assert_eq!(harness.player.outcome().error.as_ref().map(|e| e.phase), Some(Phase::Request));
}

#[test]
fn attachments_become_blocks_the_agent_supports() {
    let mut spec = spec();
    let base64 = |mime: &str| Attachment::new("file:///a", mime, AttachmentContent::Base64("aGk=".into()));
    spec.attachments = vec![
        base64("image/png"),
        base64("audio/wav"),
        Attachment::new("file:///t.rs", "text/x-rust", AttachmentContent::Text("fn".into())),
        base64("application/pdf"),
    ];
    let mut harness = AcpHarness::unknown();
    harness.start(RUN, "s", spec.clone());
    let prompt = harness.frame();
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
        let mut harness = AcpHarness::with(gemini(&DialogueConfig::new(Surface::Acp, None)));
        let mut can = capabilities("0.61.0");
        can["agentCapabilities"]["promptCapabilities"][missing] = json!(false);
        harness.reply("initialize", &can);
        harness.player.prompt(spec.clone());
        failed(&mut harness, FailureKind::Input, part);
        assert!(harness.player.outcome().error.as_ref().is_some_and(|e| e.message.contains("`attachments`")));
    }
}

#[test]
fn prompt_waits_for_our_own_tools() {
    let hosted = || {
        let mut harness = AcpHarness::gemini();
        let mut spec = spec();
        spec.hosted = vec!["ask".into(), "tell".into()];
        harness.player.prompt(spec);
        harness
    };
    // The tools may be listed before or after the session is open.
    let mut harness = hosted();
    harness.reply("session/new", &json!({"sessionId": "s"}));
    host(&mut harness, &json!({"listed": ["ask"]}));
    assert!(harness.frames().is_empty());
    host(&mut harness, &json!({"listed": ["ask", "tell", "more"]}));
    assert_eq!(harness.frame()["method"], "session/prompt");
    let mut harness = hosted();
    let open = harness.frame();
    host(&mut harness, &json!({"listed": ["tell", "ask"]}));
    harness.end(&open["id"], &json!({"sessionId": "s"}));
    assert_eq!(harness.frame()["method"], "session/prompt");
    // If they are not listed, the reason is reported, whenever it arrives.
    for (line, part) in [
        (json!({"unlisted": "no client connected within 10 s"}), "no client connected within 10 s"),
        (json!({"refused": "a wrong token"}), "a wrong token"),
        (json!({"refused": {"status": 401}}), "401"),
    ] {
        for early in [true, false] {
            let mut harness = hosted();
            let open = harness.frame();
            if early {
                host(&mut harness, &line);
            }
            harness.end(&open["id"], &json!({"sessionId": "s"}));
            if !early {
                host(&mut harness, &line);
            }
            failed(&mut harness, FailureKind::Mcp, part);
        }
    }
}

#[test]
fn tool_host_reports_are_passed_on() {
    let (mut harness, id) = AcpHarness::running();
    host(&mut harness, &json!({"server": "web", "error": "connection refused"}));
    host(&mut harness, &json!({"called": "ask"}));
    host(&mut harness, &json!({"value": {"a": [1]}}));
    host(&mut harness, &json!("nonsense"));
    harness.end(&id, &json!({"stopReason": "end_turn"}));
    assert_eq!(harness.player.warnings(), ["mcp_server"]);
    assert_eq!(harness.player.outcome().output.as_ref().map(|v| v.get()), Some(r#"{"a":[1]}"#));
    assert_eq!(harness.player.outcome().verdict, Verdict::Done, "a value is an answer");
}

#[test]
fn session_can_be_opened_without_a_prompt_and_continued() {
    let mut harness = AcpHarness::gemini();
    let mut open = spec();
    open.only_open = true;
    open.mode = Some(RequestedMode::new("yolo", true));
    harness.player.prompt(open);
    harness.reply(
        "session/new",
        &json!({"sessionId": "s", "modes": {"currentModeId": "default", "availableModes": []}}),
    );
    assert_eq!(harness.reply("session/set_mode", &json!({}))["modeId"], "yolo");
    assert_eq!(harness.player.outcome().verdict, Verdict::Done);
    assert!(harness.frames().is_empty(), "no prompt is sent");
    // The agent announces its commands between runs, which is no reason for a warning.
    harness.update("s", &json!({"sessionUpdate": "available_commands_update", "availableCommands": []}));
    let mut next = spec();
    next.session = SessionTarget::Open("s".into());
    next.mode = Some(RequestedMode::new("yolo", true));
    harness.player.prompt_as(RunId(2), next.clone());
    let prompt = harness.frame();
    assert_eq!(prompt["method"], "session/prompt", "the session is in that mode");
    // Two prompts in one session would cancel each other.
    harness.player.prompt_as(RunId(3), next.clone());
    let busy = harness.player.outcome_of(RunId(3)).error.clone().expect("why");
    assert_eq!(busy.kind, FailureKind::Input);
    assert!(harness.frames().is_empty());
    harness.text("s", "fine");
    harness.end(&prompt["id"], &json!({"stopReason": "end_turn"}));
    assert_eq!(harness.player.outcome_of(RunId(2)).text, "fine");
    assert_eq!(harness.player.outcome_of(RunId(2)).session_id.as_deref(), Some("s"));
    next.session = SessionTarget::Open("never".into());
    harness.player.prompt_as(RunId(4), next);
    assert_eq!(
        harness.player.outcome_of(RunId(4)).error.as_ref().map(|e| e.kind),
        Some(FailureKind::SessionNotFound)
    );
}

#[test]
fn model_is_set_with_the_method_the_session_supports() {
    let wish = |result: &Value| {
        let mut harness = AcpHarness::unknown();
        let mut spec = spec();
        spec.model = Some(RequestedModel::new("big", false));
        harness.player.prompt(spec);
        harness.reply("session/new", result);
        harness
    };
    let option =
        json!([{"id": "model", "category": "model", "currentValue": "small", "options": [{"value": "big"}]}]);
    let mut harness = wish(&json!({"sessionId": "s", "configOptions": option}));
    let params = harness.reply("session/set_config_option", &json!({}));
    assert_eq!(params, json!({"sessionId": "s", "configId": "model", "value": "big"}));
    assert_eq!(harness.frame()["method"], "session/prompt");
    // If a listed method does not exist, the configuration option is used instead.
    let models = json!({"currentModelId": "small", "availableModels": [{"modelId": "big"}]});
    let mut harness = wish(&json!({"sessionId": "s", "models": models, "configOptions": option}));
    harness.refuse("session/set_model", -32601, "Method not found");
    harness.reply("session/set_config_option", &json!({}));
    let id = harness.frame()["id"].clone();
    harness.text("s", "x");
    harness.end(&id, &json!({"stopReason": "end_turn"}));
    assert_eq!(harness.player.outcome().model.as_deref(), Some("big"));
    assert!(harness.player.warnings().is_empty());
    // Without a list, the request is sent anyway, and its failure is reported.
    let mut harness = wish(&json!({"sessionId": "s"}));
    harness.refuse("session/set_model", -32601, "Method not found");
    assert_eq!(harness.frame()["method"], "session/prompt");
    assert_eq!(harness.player.warnings(), ["model_not_set"]);
}

/// Returns the stages at which a run can be stopped, each with a connection at that stage.
fn stages() -> Vec<(&'static str, AcpHarness)> {
    let mut all = Vec::new();
    let mut harness = AcpHarness::with(gemini(&DialogueConfig::new(Surface::Acp, None)));
    harness.player.prompt(spec());
    all.push(("before the handshake", harness));

    let mut harness = AcpHarness::gemini();
    harness.player.prompt(spec());
    all.push(("while the session opens", harness));

    let mut harness = AcpHarness::gemini();
    let mut wish = spec();
    wish.mode = Some(RequestedMode::new("plan", true));
    harness.start(RUN, "s", wish);
    all.push(("while the mode is set", harness));

    let mut harness = AcpHarness::gemini();
    let mut wish = spec();
    wish.model = Some(RequestedModel::new("m", false));
    harness.start(RUN, "s", wish);
    all.push(("while the model is set", harness));

    let mut harness = AcpHarness::gemini();
    let mut wish = spec();
    wish.hosted = vec!["ask".into()];
    harness.start(RUN, "s", wish);
    all.push(("while tools are waited for", harness));

    let mut harness = AcpHarness::gemini();
    let mut wish = spec();
    wish.session = SessionTarget::Load("s".into());
    harness.player.prompt(wish);
    harness.reply("session/load", &json!({}));
    all.push(("while history comes", harness));
    all
}

#[test]
fn run_cancelled_before_its_prompt_sends_none() {
    for (when, mut harness) in stages() {
        let pending = harness.frames();
        harness.player.take(InputKind::Cancel { run: RUN, signal: Signal::Terminate });
        assert_eq!(harness.player.outcome().verdict, Verdict::Cancelled, "{when}");
        // Late replies to pending requests have no effect.
        for frame in pending {
            harness.end(&frame["id"], &json!({"sessionId": "late", "protocolVersion": 1}));
        }
        host(&mut harness, &json!({"listed": ["ask"]}));
        harness.text("late", "too late");
        harness.player.check();
        assert!(harness.frames().iter().all(|f| f["method"] == "initialize"), "{when}");
        // The process is intact and accepts the next run.
        assert!(harness.player.conn.vacant(), "{when}");
        harness.player.prompt_as(RunId(2), spec());
        let frames = harness.frames();
        assert!(frames.iter().any(|f| f["method"] == "session/new"), "{when}: {frames:?}");
    }
}

#[test]
fn session_open_failure_is_reported_with_its_reason() {
    for (target, code, message, kind) in [
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
        let mut harness = AcpHarness::gemini();
        let mut spec = spec();
        spec.session = target.clone();
        harness.player.prompt(spec);
        let method = if target == SessionTarget::New { "session/new" } else { "session/load" };
        harness.refuse(method, code, message);
        failed(&mut harness, kind, message);
        assert_eq!(harness.player.outcome().error.as_ref().map(|e| e.phase), Some(Phase::Request));
    }
    // An agent that cannot load sessions is not asked to.
    let mut harness = AcpHarness::gemini_of("0.24.0");
    let mut spec = spec();
    spec.session = SessionTarget::Load("x".into());
    let mut can = capabilities("0.24.0");
    can["agentCapabilities"]["loadSession"] = json!(false);
    let mut old = AcpHarness::with(gemini(&DialogueConfig::new(Surface::Acp, None)));
    old.reply("initialize", &can);
    old.player.prompt(spec);
    failed(&mut old, FailureKind::Input, "stored session");
    // A session without an id cannot be used.
    harness.player.prompt(crate::play::spec());
    harness.reply("session/new", &json!({}));
    failed(&mut harness, FailureKind::NoResult, "id");
}
