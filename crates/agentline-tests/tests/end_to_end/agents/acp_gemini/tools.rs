//! Tests functions of the host program as tools of the agent, and MCP servers behind the relay.

use crate::agents::acp_gemini::harness::{RunRecord, calling, in_mode, send_prompt, stage};
use agentline::{
    FailureKind, McpServer, PermissionMode as Mode, RunOptions, Session, Surface, ToolStatus, Verdict,
    tools::{CallDecision, StopRun, Tool, ToolHost},
};
use agentline_core::Phase;
use agentline_mock::gemini::{GeminiStep, SETTINGS, Script};
use agentline_tests::{TestStage, needs_real_gemini};
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

/// The calls and their arguments.
type Calls = Arc<Mutex<Vec<Value>>>;

fn any_object() -> Value {
    json!({"type": "object", "properties": {"n": {"type": "integer"}}})
}

/// The values that the tools of [`host`] return, by the name of the tool, and the texts that the model reads.
fn values() -> [(&'static str, Value, &'static str); 8] {
    [
        ("int", json!(42), "42"),
        ("float", json!(0.5), "0.5"),
        ("list", json!([1, "two"]), "[1,\\\"two\\\"]"),
        ("bool", json!(false), "false"),
        ("none", Value::Null, "done"),
        ("text", json!("42"), "42"),
        ("nested", json!([{"a": [null, {"b": 1.5}]}]), "[{\\\"a\\\":[null,{\\\"b\\\":1.5}]}]"),
        ("object", json!({"sum": 42}), "{\\\"sum\\\":42}"),
    ]
}

/// Returns a host with one tool for each possible result of a call.
fn host(calls: &Calls) -> ToolHost {
    let seen = calls.clone();
    let double = Tool::new("double", "Doubles", any_object(), move |args: Value, _| {
        seen.lock().expect("the lock is not poisoned").push(args.clone());
        async move { Ok(format!("twice is {}", args["n"].as_i64().unwrap_or(0) * 2)) }
    });
    let fails =
        Tool::new("fails", "Fails", any_object(), |_, _| async { Err::<(), _>("out of cheese".into()) });
    let panics = Tool::new("panics", "Panics", any_object(), |args: Value, _| async move {
        assert!(args.is_null(), "on purpose");
        Ok(())
    });
    let slow = Tool::new("slow", "Takes long", any_object(), |_, _| async {
        tokio::time::sleep(Duration::from_secs(600)).await;
        Ok(())
    });
    let guarded = Tool::new("guarded", "Is guarded", any_object(), |_, _| async { Ok("never") });
    let noted = Tool::new("noted", "Has a hook", any_object(), |_, _| async { Ok("first") });
    let stops = Tool::new("stops", "Ends the run", any_object(), |_, _| async {
        Err::<(), _>(StopRun::new("section 2 is needed").into())
    });
    let mut host = ToolHost::new();
    for (name, value, _) in values() {
        host = host.tool(Tool::new(name, "Returns a value", any_object(), move |_, _| {
            let value = value.clone();
            async { Ok(value) }
        }));
    }
    host.server_name("shop")
        .tool(stops)
        .tool(double)
        .tool(fails)
        .tool(panics)
        .tool(slow.timeout(Duration::from_millis(200)))
        .tool(guarded.policy(|_, _| CallDecision::deny("not on a Sunday")))
        .tool(noted.after(|_, _, _| async { Some("second".into()) }))
}

/// Returns the result of a tool as the model received it.
fn answered(stage: &TestStage, tool: &str) -> String {
    let found = stage.model.requests_to_main().pop().map(|request| request.tool_responses());
    let found = found.into_iter().flatten().rfind(|(name, _)| name == tool);
    found.map(|(_, response)| response.to_string()).unwrap_or_default()
}

#[tokio::test]
async fn agent_calls_functions_of_the_program() {
    needs_real_gemini!();
    let all = ["double", "fails", "panics", "slow", "guarded", "noted"];
    let calls = all.map(|name| (format!("mcp_shop_{name}"), json!({"n": 21})));
    let double = || calling([("mcp_shop_double", json!({"n": 4}))]);
    let returning = values().map(|(name, ..)| (format!("mcp_shop_{name}"), json!({})));
    let stopping = calling([("mcp_shop_stops", json!({}))]);
    let stage = stage([
        ("all", calling(calls)),
        ("strict", double()),
        ("plan", double()),
        ("values", calling(returning)),
        ("stop", stopping),
    ]);
    let called = Calls::default();
    let options = RunOptions::new().tools(host(&called));
    let session = stage.agentline().session_with(in_mode(&stage, Mode::Plan), options).await.unwrap();

    let result = send_prompt(&session, in_mode(&stage, Mode::Default), "all").await;
    let offered = stage.model.requests_to_main()[0].offered_tools();
    for name in all {
        assert!(offered.contains(&format!("mcp_shop_{name}")), "{name} is not in {offered:?}");
    }
    assert_eq!(*called.lock().unwrap(), [json!({"n": 21})], "{}", result.shown());
    for (tool, expected) in [
        ("double", "twice is 42"),
        ("fails", "out of cheese"),
        ("panics", "the tool panicked: on purpose"),
        ("slow", "the tool timed out after 200 ms"),
        ("guarded", "not on a Sunday"),
        ("noted", "first\\n\\nsecond"),
    ] {
        let answer = answered(&stage, &format!("mcp_shop_{tool}"));
        assert!(answer.contains(expected), "{tool}: {answer}\n{}", result.shown());
    }
    let mut ends = result.ends();
    ends.sort_by_key(|end| format!("{end:?}"));
    use ToolStatus::{Error, Ok};
    assert_eq!(ends, [Error, Error, Error, Error, Ok, Ok], "{}", result.shown());
    assert_eq!(result.outcome.verdict, Verdict::Done, "{}", result.shown());
    assert!(result.decisions().iter().all(|d| d.contains("allow agentline own_tool")), "{}", result.shown());

    for (mode, prompt) in [(Mode::Deny, "strict"), (Mode::Plan, "plan")] {
        called.lock().unwrap().clear();
        let result = send_prompt(&session, in_mode(&stage, mode), prompt).await;
        assert_eq!(result.outcome.verdict, Verdict::Done, "{mode:?} {}", result.shown());
        assert_eq!(*called.lock().unwrap(), [json!({"n": 4})], "{mode:?} {}", result.shown());
    }
    every_result_reaches_the_model(&stage, &session).await;

    // A tool can end the run.
    let requests = stage.model.requests_to_main().len();
    let result = send_prompt(&session, in_mode(&stage, Mode::Default), "stop").await;
    assert_eq!(result.outcome.verdict, Verdict::Cancelled, "{}", result.shown());
    let warning = result.outcome.warnings.iter().find(|warning| warning.code == "stopped_by_tool");
    assert!(
        warning.is_some_and(|warning| warning.message.contains("section 2 is needed")),
        "{}",
        result.shown()
    );
    assert_eq!(stage.model.requests_to_main().len(), requests + 1, "the model is not asked again");
    session.close().await;
}

/// Gemini CLI rejects a result whose only content is JSON that is not an object.
async fn every_result_reaches_the_model(stage: &TestStage, session: &Session) {
    let result = send_prompt(session, in_mode(stage, Mode::Default), "values").await;
    assert_eq!(result.ends(), [ToolStatus::Ok; 8], "{}", result.shown());
    for (tool, _, expected) in values() {
        let answer = answered(stage, &format!("mcp_shop_{tool}"));
        assert!(
            answer.contains(expected) && !answer.contains("rror"),
            "{tool}: {answer}\n{}",
            result.shown()
        );
    }
}

#[tokio::test]
async fn cancel_ends_tool_calls_and_mcp_tools_obey_permissions() {
    needs_real_gemini!();
    let stage = stage([
        ("endless", calling([("mcp_agentline_endless", json!({}))])),
        ("foreign", calling([("mcp_tiny_shout", json!({"word": "hey"}))])),
    ]);
    let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel();
    let endless = Tool::new("endless", "Never answers", any_object(), move |_, call| {
        let sender = sender.clone();
        async move {
            // The receiver is gone only if the test has already failed.
            let _ = sender.send(call);
            std::future::pending::<Result<(), _>>().await
        }
    });
    let options = RunOptions::new().tools(ToolHost::new().tool(endless));
    let request = || in_mode(&stage, Mode::Default).mcp_server("tiny", tiny("", &stage));
    let session = stage.agentline().session_with(request(), options).await.unwrap();

    let run = session.prompt("endless").await.unwrap();
    let call = tokio::time::timeout(Duration::from_secs(60), receiver.recv()).await.unwrap().unwrap();
    assert!(!call.is_cancelled());
    run.cancel();
    let result = RunRecord::of(run).await;
    assert_eq!(result.outcome.verdict, Verdict::Cancelled, "{}", result.shown());
    // The agent itself sends nothing to the server when a turn is cancelled.
    tokio::time::timeout(Duration::from_secs(20), call.cancelled()).await.unwrap();

    // A server that the caller named can be used in the modes in which the agent offers it.
    let allowed = ["mcp__tiny__shout allow agentline trusted_server -"];
    for mode in [Mode::Default, Mode::AcceptEdits] {
        let result = send_prompt(&session, request().permission_mode(mode), "foreign").await;
        assert_eq!(result.decisions(), allowed, "{mode:?} {}", result.shown());
        assert_eq!(result.outcome.verdict, Verdict::Done, "{mode:?} {}", result.shown());
    }
    let result = send_prompt(&session, request().permission_mode(Mode::Deny), "foreign").await;
    assert_eq!(result.decisions(), ["mcp__tiny__shout deny mode mode -"], "{}", result.shown());
    assert_eq!(result.outcome.verdict, Verdict::DoneWithDenials, "{}", result.shown());
    let result = send_prompt(&session, request().ask("mcp__tiny"), "foreign").await;
    assert_eq!(result.decisions(), ["mcp__tiny__shout deny rule rule mcp__tiny"], "{}", result.shown());
    let result = send_prompt(&session, request().allow("mcp__tiny"), "foreign").await;
    assert_eq!(result.decisions(), ["mcp__tiny__shout allow rule - mcp__tiny"], "{}", result.shown());
    assert!(answered(&stage, "mcp_tiny_shout").contains("HEY"), "{}", result.shown());
    assert!(!result.warnings().contains(&"mcp_server"), "{}", result.shown());
    // `trust` of a settings file that the caller named decides, and not that of the workspace's own file.
    let settings =
        |trust: bool| json!({"mcpServers": {"tiny": {"command": "false", "trust": trust}}}).to_string();
    stage.file(".gemini/settings.json", &settings(true));
    for (trust, expected) in [(true, allowed[0]), (false, "mcp__tiny__shout deny mode mode -")] {
        let file = stage.outside().join("mcp.json");
        std::fs::write(&file, settings(trust)).unwrap();
        let mut request = in_mode(&stage, Mode::Default);
        request.mcp_settings_path = Some(file);
        let result = send_prompt(&session, request, "foreign").await;
        assert_eq!(result.decisions(), [expected], "{}", result.shown());
    }
    // A session keeps the servers that it was opened with.
    let result = send_prompt(
        &session,
        in_mode(&stage, Mode::Default).mcp_server("other", tiny("", &stage)),
        "foreign",
    )
    .await;
    assert!(result.warnings().contains(&"mcp_server"), "{}", result.shown());
    session.close().await;
}

#[tokio::test]
async fn run_fails_before_the_prompt_if_the_agent_does_not_list_its_tools() {
    needs_real_gemini!();
    let stage = stage([("", Script::always(GeminiStep::text("without tools")))]);
    let mut settings: Value = serde_json::from_str(SETTINGS).unwrap();
    settings["mcp"] = json!({"excluded": ["shop"]});
    stage.settings(&settings.to_string());
    let options = RunOptions::new().tools(host(&Calls::default()));
    let started_at = Instant::now();
    // The agent itself may take half of this to start on a loaded machine; the run then waits for the list.
    let request = stage.request("go").startup_timeout(Duration::from_secs(30));
    let result = RunRecord::of(stage.agentline().run_with(request, options).await.unwrap()).await;
    let error = result.outcome.error.as_ref().unwrap_or_else(|| panic!("{}", result.shown()));
    assert_eq!((error.kind, error.phase), (FailureKind::Mcp, Phase::Tool), "{}", result.shown());
    assert!(error.message.contains("did not list the tools"), "{}", result.shown());
    assert_eq!(stage.model.requests_to_main().len(), 0);
    assert!(started_at.elapsed() < Duration::from_secs(120), "{:?}", started_at.elapsed());
}

/// Returns the small server of the relay's tests, which logs its starts.
fn tiny(fault: &str, stage: &TestStage) -> McpServer {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../agentline/tests/library/tools/server.mjs");
    let log = stage.outside().join("starts").to_string_lossy().into_owned();
    McpServer::Command {
        command: "node".into(),
        args: vec![script.into(), fault.into()],
        env: BTreeMap::from([("STARTS".to_owned(), log)]),
    }
}

#[tokio::test]
async fn given_mcp_servers_work_on_both_surfaces_and_a_dead_one_is_reported() {
    needs_real_gemini!();
    for (surface, mode) in [(Surface::Acp, Mode::Bypass), (Surface::StreamJson, Mode::Default)] {
        let stage = stage([(
            "",
            calling([
                ("mcp_tiny_shout", json!({"word": "hey"})),
                ("mcp_tiny_folder", json!({})),
                ("mcp_tiny_variable", json!({"name": "SERVER_TOKEN"})),
            ]),
        )]);
        if surface == Surface::StreamJson {
            // The user's settings allow only another server.
            let mut settings: Value = serde_json::from_str(SETTINGS).unwrap();
            settings["mcp"] = json!({"allowed": ["other"]});
            stage.settings(&settings.to_string());
        }
        let mut server = tiny("", &stage);
        if let McpServer::Command { env, .. } = &mut server {
            env.insert("SERVER_TOKEN".into(), "token-of-the-server".into());
        }
        let request = stage
            .request("go")
            .surface(surface)
            .permission_mode(mode)
            .deny("mcp__tiny__folder")
            .mcp_server("tiny", server)
            .mcp_server("broken", tiny("dead", &stage));
        let result = RunRecord::of(stage.agentline().run(request).await.unwrap()).await;
        assert_eq!(result.outcome.verdict, Verdict::Done, "{surface} {}", result.shown());
        assert!(answered(&stage, "mcp_tiny_shout").contains("HEY"), "{surface} {}", result.shown());
        let refused = answered(&stage, "mcp_tiny_folder");
        assert!(!refused.is_empty() && !refused.contains("/ws"), "{surface} {refused}");
        // The server gets its secret, which is redacted.
        let secret = answered(&stage, "mcp_tiny_variable");
        assert!(secret.contains("token-of-the-server"), "{surface} {secret} {}", result.shown());
        let reported = result.shown();
        assert!(reported.contains("[redacted]") && !reported.contains("token-of-the-server"), "{reported}");
        let warnings: Vec<_> = result.outcome.warnings.iter().filter(|w| w.code == "mcp_server").collect();
        assert_eq!(warnings.len(), 1, "{surface} {}", result.shown());
        assert!(warnings[0].message.contains("broken"), "{surface} {}", result.shown());
        assert!(warnings[0].message.contains("no licence key"), "{surface} {}", result.shown());
        // Each server was started exactly once, and none remains.
        let starts = std::fs::read_to_string(stage.outside().join("starts")).unwrap();
        let pids: Vec<&str> = starts.lines().collect();
        assert_eq!(pids.len(), 2, "{surface}: {starts}");
        #[cfg(target_os = "linux")]
        for pid in pids {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
            assert!(stat.as_ref().map_or(true, |stat| stat.contains(") Z ")), "{surface} {stat:?}");
        }
    }
}
