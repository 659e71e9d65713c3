//! Tests Gemini CLI's deviations from the protocol, each under its name: on recordings that show it, and with versions
//! that do not have it.

use super::{
    harness::{AcpHarness, gemini},
    recorded::{self, Replay},
};
use crate::play::{RUN, spec};
use agentline_core::{
    Attachment, AttachmentContent, DialogueConfig, Event, FailureKind, HostRequest, HostResponse, Outcome,
    RequestedModel, RunId, SessionTarget, Surface, ToolStatus, Verdict,
};
use serde_json::{Value, json};

fn outcome(replay: &Replay, run: u32) -> &Outcome {
    replay.harness.player.outcome_of(RunId(run))
}

fn results(replay: &Replay) -> Vec<(String, ToolStatus, String)> {
    replay
        .harness
        .player
        .events()
        .filter_map(|event| match event {
            Event::ToolResult(result) => {
                let content = result.content.clone().unwrap_or_default();
                Some((result.tool_use_id.clone(), result.status, content))
            }
            _ => None,
        })
        .collect()
}

/// Runs an answer of one chunk with this version of the agent.
fn text_of(version: &str, chunk: &str) -> (String, Vec<String>) {
    let mut harness = AcpHarness::gemini_of(version);
    harness.start(RUN, "s", spec());
    let id = harness.frame()["id"].clone();
    harness.text("s", chunk);
    harness.text("s", "ok");
    harness.end(&id, &json!({"stopReason": "end_turn"}));
    (harness.player.outcome().text.clone(), harness.story())
}

#[test]
fn mode_text() {
    assert_eq!(
        text_of("0.61.0", "[MODE_UPDATE] yolo"),
        ("ok".into(), vec!["started".into(), "mode".into(), "text".into()])
    );
    assert_eq!(text_of("0.61.0", "[MODE_UPDATE] is what it prints").0, "[MODE_UPDATE] is what it printsok");
    assert_eq!(text_of("0.36.0", "[MODE_UPDATE] yolo").0, "[MODE_UPDATE] yolook");
    // "Allow always" switched the mode during a turn. The notice is not part of the answer.
    let replay = recorded::find("gemini/allow_always_exec_edit").play();
    assert!(replay.harness.player.events().any(|e| matches!(e, Event::Mode { mode } if mode == "autoEdit")));
    assert!(!replay.harness.player.texts().concat().contains("MODE_UPDATE"));
}

#[test]
fn announces_in_permission() {
    let replay = recorded::find("gemini/basic_tools_default").play();
    let tools: Vec<_> = replay
        .harness
        .player
        .events()
        .filter_map(
            |e| if let Event::ToolUse(tool) = e { Some((&*tool.native_name, &*tool.name)) } else { None },
        )
        .collect();
    assert_eq!(
        tools,
        [("write_file", "Write"), ("replace", "Edit"), ("read_file", "Read"), ("run_shell_command", "Bash")]
    );
    let files: Vec<_> = outcome(&replay, 3).files.iter().map(|f| (&*f.path, f.tool.as_deref())).collect();
    assert_eq!(files, [("/srv/lab/runs/acp_basic_tools_default/ws/hello.txt", Some("Edit"))]);
}

#[test]
fn silent_refusal() {
    let replay = recorded::find("gemini/reject_and_cancel").play();
    let denied: Vec<_> = results(&replay).into_iter().filter(|r| r.1 == ToolStatus::Denied).collect();
    // The last two calls had further updates, which do not count as second results.
    assert_eq!(denied.len(), 4, "{denied:?}");
    for run in 2..=5 {
        assert_eq!(outcome(&replay, run).verdict, Verdict::DoneWithDenials);
        assert_eq!(outcome(&replay, run).denied[0].reason, "said_no");
    }
}

/// Returns the session file's response to calls of these tools, as 0.61.0 writes it.
fn no_such_tool(names: &[&str]) -> String {
    let part = |name: &&str| {
        let (id, error) = (format!("{name}__{name}_1_0"), format!("Tool \"{name}\" not found in registry."));
        json!({"functionResponse": {"id": id, "name": name, "response": {"error": error}}})
    };
    let parts: Vec<Value> = names.iter().map(part).collect();
    json!({"id": "u1", "timestamp": "2026-11-15T14:47:07.264Z", "type": "user", "content": parts}).to_string()
}

#[test]
fn silent_unknown_tool() {
    for late in [false, true] {
        let mut harness = AcpHarness::gemini_of("0.61.0");
        harness.start(RUN, "s", spec());
        let id = harness.frame()["id"].clone();
        harness.text("s", "I ra");
        let record = no_such_tool(&["run_shell_command", "made_up"]);
        if late {
            // The file is read to its end after the answer.
            harness.player.late_lines = vec![record.clone(), record];
        } else {
            harness.player.side(&record);
            harness.player.side(&record);
        }
        harness.text("s", "n it");
        harness.end(&id, &json!({"stopReason": "end_turn"}));
        let outcome = harness.player.outcome();
        let denied: Vec<_> = outcome.denied.iter().map(|d| (&*d.tool, &*d.native_tool, &*d.reason)).collect();
        assert_eq!(denied, [("Bash", "run_shell_command", "not_offered")], "late: {late}");
        assert_eq!((outcome.verdict, outcome.tool_calls), (Verdict::DoneWithDenials, 2), "late: {late}");
        // An event for the call in the middle would split the answer.
        assert_eq!(outcome.text, "I ran it", "late: {late}");
    }
    // Text of the user is not a record of a call.
    let mut harness = AcpHarness::gemini_of("0.61.0");
    harness.start(RUN, "s", spec());
    let id = harness.frame()["id"].clone();
    harness.player.side(&json!({"type": "user", "content": [{"text": no_such_tool(&["glob"])}]}).to_string());
    harness.text("s", "fine");
    harness.end(&id, &json!({"stopReason": "end_turn"}));
    assert_eq!(harness.player.outcome().verdict, Verdict::Done);
}

#[test]
fn cancelled_reads_completed() {
    for name in ["reject_and_cancel", "v0.36.0_acp", "v0.45.2_acp"] {
        let replay = recorded::find(&format!("gemini/{name}")).play();
        let stopped: Vec<_> =
            results(&replay).into_iter().filter(|r| r.2.starts_with("Command cancelled by user.")).collect();
        assert_eq!(stopped.len(), 1, "{name}");
        assert_eq!(stopped[0].1, ToolStatus::Cancelled, "{name}");
    }
}

/// Returns the frame that answers a request for a missing file.
fn answer_for_a_missing_file(harness: &mut AcpHarness) -> Value {
    harness.frames();
    let params = json!({"sessionId": "s", "path": "/ws/new.txt", "line": 3, "limit": 2});
    harness.send(&json!({"jsonrpc": "2.0", "id": 4, "method": "fs/read_text_file", "params": params}));
    let (ask, question) = harness.asked().pop().expect("a request is sent");
    let HostRequest::ReadFile { path, line, limit } = question else { panic!("{question:?}") };
    assert_eq!((&*path, line, limit), ("/ws/new.txt", Some(3), Some(2)));
    harness.answer(ask, HostResponse::Error("not_found: /ws/new.txt".into()));
    harness.frame()
}

#[test]
fn empty_content_for_missing_files() {
    let mut dialogue = DialogueConfig::new(Surface::Acp, None);
    dialogue.read_files = true;
    let mut harness = AcpHarness::with(gemini(&dialogue));
    harness.reply("initialize", &super::harness::capabilities("0.61.0"));
    harness.start(RUN, "s", spec());
    assert_eq!(answer_for_a_missing_file(&mut harness)["result"], json!({"content": ""}));

    let mut harness = AcpHarness::with(agentline_core::acp_dialogue(&dialogue));
    harness.reply("initialize", &super::harness::capabilities("1.0.0"));
    harness.start(RUN, "s", spec());
    assert_eq!(answer_for_a_missing_file(&mut harness)["error"]["message"], "not_found: /ws/new.txt");

    let replay = recorded::find("gemini/fs_capability_empty_on_missing").play();
    assert!(results(&replay).iter().any(|r| r.0.starts_with("write_file") && r.1 == ToolStatus::Ok));
}

/// Starts a run that loads a session, up to the agent's reply.
fn loading(version: &str) -> AcpHarness {
    let mut harness = AcpHarness::gemini_of(version);
    let mut spec = spec();
    spec.session = SessionTarget::Load("old".into());
    harness.player.prompt(spec);
    let params =
        harness.reply("session/load", &json!({"modes": {"currentModeId": "plan", "availableModes": []}}));
    assert_eq!((&params["sessionId"], &params["cwd"]), (&json!("old"), &json!("/ws")));
    harness
}

#[test]
fn history_after_load() {
    let mut harness = loading("0.61.0");
    // While history arrives between two requests, the prompt waits.
    for round in 0..4 {
        harness.text("old", "history");
        assert_eq!(harness.reply("session/set_mode", &json!({}))["modeId"], "plan", "round {round}");
    }
    // Two consecutive requests without history in between show that it is complete. Updates caused by the request
    // itself do not count.
    for _ in 0..2 {
        harness.text("old", "[MODE_UPDATE] plan");
        harness.reply("session/set_mode", &json!({}));
    }
    let prompt = harness.frame();
    assert_eq!(prompt["method"], "session/prompt");
    harness.text("old", "new");
    harness.end(&prompt["id"], &json!({"stopReason": "end_turn"}));
    assert_eq!(harness.player.outcome().text, "new");
    assert_eq!(harness.player.outcome().verdict, Verdict::Done);
    assert_eq!(harness.story(), ["started", "session_info", "text"]);

    // In the recording, none of the twenty-seven replayed updates is reported.
    let replay = recorded::find("gemini/load_replay_next_minute").play();
    assert_eq!(replay.harness.player.texts(), ["continued"]);
    assert!(results(&replay).is_empty());
    // An agent that replies after replaying the history is prompted immediately.
    let mut harness = AcpHarness::unknown();
    let mut spec = spec();
    spec.session = SessionTarget::Load("old".into());
    harness.player.prompt(spec);
    let load = harness.frame();
    harness.text("old", "history");
    harness.end(&load["id"], &json!({}));
    assert_eq!(harness.frame()["method"], "session/prompt");
    assert!(harness.player.texts().is_empty());
}

#[test]
fn session_context_replayed() {
    let replay = recorded::find("gemini/load_replay_next_minute").play();
    let output = format!("{:?}", replay.harness.player.out);
    assert!(!output.contains("session_context"));
    // During a turn, text of the user is passed on, but is not part of the answer.
    let (mut harness, id) = AcpHarness::running();
    let content = json!({"type": "text", "text": "<session_context>secret folder</session_context>"});
    harness.update("s", &json!({"sessionUpdate": "user_message_chunk", "content": content}));
    harness.end(&id, &json!({"stopReason": "end_turn"}));
    assert_eq!(harness.player.outcome().verdict, Verdict::Empty);
    assert_eq!(harness.story()[1], "agent");
}

#[test]
fn folder_as_thought() {
    for (version, story) in [("0.36.0", "agent"), ("0.24.0", "thinking"), ("0.61.0", "thinking")] {
        let mut harness = AcpHarness::gemini_of(version);
        harness.start(RUN, "s", spec());
        let content = json!({"type": "text", "text": "[current working directory /ws]"});
        harness.update("s", &json!({"sessionUpdate": "agent_thought_chunk", "content": content}));
        assert_eq!(harness.story()[1], story, "{version}");
    }
    let replay = recorded::find("gemini/v0.36.0_acp").play();
    let thoughts = replay.harness.player.events().filter(|e| matches!(e, Event::Thinking { .. })).count();
    assert_eq!(thoughts, 1);
}

#[test]
fn auto_in_usage() {
    let replay = recorded::find("gemini/basic_tools_default").play();
    let usage = &outcome(&replay, 3).usage;
    assert_eq!((usage.tokens.input, usage.tokens.output), (Some(400), Some(80)));
    assert!(usage.by_model.is_empty(), "{usage:?}");
    // If all names are models, they are reported.
    assert_eq!(outcome(&replay, 2).usage.by_model["gemini-3.8-flash"].input, Some(100));
}

#[test]
fn models_unchecked() {
    let models = json!({"sessionId": "s", "models": {"currentModelId": "auto",
        "availableModels": [{"modelId": "auto"}, {"modelId": "gemini-3.8-flash"}]}});
    let wish = |id: &str, strict| {
        let mut harness = AcpHarness::gemini();
        let mut spec = spec();
        spec.model = Some(RequestedModel::new(id, strict));
        harness.player.prompt(spec);
        harness.reply("session/new", &models);
        harness
    };
    // A model outside the list causes a warning with the list and the most similar name, but is still set.
    let mut harness = wish("gemini-3.9-flash", false);
    assert_eq!(harness.reply("session/set_model", &json!({}))["modelId"], "gemini-3.9-flash");
    assert_eq!(harness.frame()["method"], "session/prompt");
    let events = format!("{:?}", harness.player.events().collect::<Vec<_>>());
    assert!(
        events.contains("unknown_model") && events.contains("did you mean `gemini-3.8-flash`?"),
        "{events}"
    );
    assert!(events.contains("auto, gemini-3.8-flash"), "{events}");
    // In strict mode, the model is not set and no prompt is sent.
    let mut harness = wish("gemini-3.9-flash", true);
    assert!(harness.frames().is_empty());
    let error = harness.player.outcome().error.as_ref().expect("why");
    assert_eq!((error.kind, error.phase), (FailureKind::UnknownModel, agentline_core::Phase::Request));
    assert!(error.hint.as_ref().is_some_and(|h| h.contains("gemini-3.8-flash")), "{error:?}");
    // An agent that lists no models and cannot set one accepts any, even in strict mode.
    let mut harness = AcpHarness::gemini();
    let mut unlisted = spec();
    unlisted.model = Some(RequestedModel::new("any", true));
    harness.player.prompt(unlisted);
    harness.reply("session/new", &json!({"sessionId": "s"}));
    harness.refuse("session/set_model", -32601, "Method not found");
    assert_eq!(harness.frame()["method"], "session/prompt");
    let events = format!("{:?}", harness.player.events().collect::<Vec<_>>());
    assert!(events.contains("model_not_set"), "{events}");
    // The current model is not set again; another one in the list is.
    assert_eq!(wish("auto", true).frame()["method"], "session/prompt");
    assert_eq!(wish("gemini-3.8-flash", true).frame()["method"], "session/set_model");
    // A model outside the list is also reported if the agent was started with it.
    let models = json!({"sessionId": "s", "models": {"currentModelId": "gemini-3.9-flash",
        "availableModels": [{"modelId": "auto"}]}});
    for strict in [false, true] {
        let mut harness = AcpHarness::gemini();
        let mut spec = spec();
        spec.model = Some(RequestedModel::new("gemini-3.9-flash", strict));
        harness.player.prompt(spec);
        harness.reply("session/new", &models);
        let methods: Vec<_> = harness.frames().iter().map(|frame| frame["method"].clone()).collect();
        assert_eq!(methods, if strict { vec![] } else { vec![json!("session/prompt")] });
        let events = format!("{:?}", harness.player.events().collect::<Vec<_>>());
        assert_eq!(events.contains("unknown_model"), !strict, "{events}");
    }
    // The warning appears once per session and only in a run with a prompt, not in one that only opens the session.
    let mut harness = AcpHarness::gemini();
    let mut spec = spec();
    spec.model = Some(RequestedModel::new("gemini-3.9-flash", false));
    let warnings = |harness: &AcpHarness| {
        format!("{:?}", harness.player.events().collect::<Vec<_>>()).matches("unknown_model").count()
    };
    spec.only_open = true;
    harness.player.prompt(spec.clone());
    harness.reply("session/new", &models);
    let opened = warnings(&harness);
    spec.only_open = false;
    spec.session = SessionTarget::Open("s".into());
    for _ in 0..2 {
        harness.player.prompt(spec.clone());
        harness.reply("session/prompt", &json!({"stopReason": "end_turn"}));
    }
    assert_eq!(warnings(&harness) - opened, 1);
    // A model that was set without a check fails at the prompt.
    assert_eq!(
        outcome(&recorded::find("gemini/errors").play(), 13).error.as_ref().unwrap().kind,
        FailureKind::UnknownModel
    );
}

#[test]
fn status_as_code() {
    for (name, runs) in [
        (
            "gemini/errors",
            &[
                (2, FailureKind::NotAuthenticated),
                (3, FailureKind::NotAuthenticated),
                (4, FailureKind::ApiError),
            ][..],
        ),
        ("gemini/v0.11.3_experimental-acp", &[(4, FailureKind::NotAuthenticated)]),
        ("gemini/v0.24.0_experimental-acp", &[(4, FailureKind::NotAuthenticated)]),
        ("gemini/v0.36.0_acp", &[(4, FailureKind::NotAuthenticated)]),
    ] {
        let replay = recorded::find(name).play();
        for (run, kind) in runs {
            let error = outcome(&replay, *run).error.clone().expect("why");
            assert_eq!(error.kind, *kind, "{name} {run}");
            assert!(!error.message.contains('{'), "{}", error.message);
        }
    }
}

#[test]
fn empty_end_turn() {
    let replay = recorded::find("gemini/errors").play();
    for run in [8, 9, 11] {
        assert_eq!(outcome(&replay, run).verdict, Verdict::Empty, "{run}");
        assert_eq!(outcome(&replay, run).stop_reason.as_deref(), Some("end_turn"));
    }
    for old in ["v0.11.3_experimental-acp", "v0.24.0_experimental-acp", "v0.36.0_acp"] {
        let replay = recorded::find(&format!("gemini/{old}")).play();
        assert_eq!(outcome(&replay, 5).verdict, Verdict::Empty, "{old}");
    }
}

#[test]
fn no_shell_output() {
    let shell = |name: &str| {
        let all = results(&recorded::find(name).play());
        all.into_iter().find(|r| r.0.starts_with("run_shell") && r.1 == ToolStatus::Ok).expect("a shell").2
    };
    assert_eq!(shell("gemini/basic_tools_default"), "");
    assert_eq!(shell("gemini/shell_noninteractive_setting"), "visible-output");
    assert_eq!(shell("gemini/v0.36.0_acp"), "hi");
}

#[test]
fn shell_never_asks() {
    let replay = recorded::find("gemini/v0.11.3_experimental-acp").play();
    assert_eq!(outcome(&replay, 2).denied.len(), 2);
    assert_eq!(outcome(&replay, 2).denied[0].reason, "confirmation_required");
}

#[test]
fn resources_drop_media() {
    let file = |mime: &str, content| Attachment::new(format!("file:///{mime}"), mime, content);
    let text = || file("text/plain", AttachmentContent::Text("hi".into()));
    let data = |mime| file(mime, AttachmentContent::Base64("aGk=".into()));
    let sent = |mut harness: AcpHarness, attachments: Vec<Attachment>| {
        let mut spec = spec();
        spec.attachments = attachments;
        harness.start(RUN, "s", spec);
        let blocks = harness.frame()["params"]["prompt"].take();
        let kinds = blocks.as_array().unwrap().iter().map(|b| b["type"].as_str().unwrap().to_owned());
        (kinds.collect::<Vec<_>>().join(" "), blocks)
    };
    let all = || vec![data("image/png"), text(), data("application/pdf"), data("audio/wav")];
    let (kinds, blocks) = sent(AcpHarness::gemini(), all());
    assert_eq!(kinds, "text image text image audio");
    assert_eq!(blocks[2]["text"], "\n--- Content of file:///text/plain ---\nhi\n");
    assert_eq!(blocks[3]["mimeType"], "application/pdf");
    // Without media, files are embedded as resources. For an agent without this quirk, they always are.
    assert_eq!(sent(AcpHarness::gemini(), vec![text(), data("application/pdf")]).0, "text resource resource");
    assert_eq!(sent(AcpHarness::unknown(), all()).0, "text image resource resource audio");
}

#[test]
fn authenticate_rewrites_settings() {
    // Authentication is never requested by default, whatever the agent offers.
    let mut harness = AcpHarness::with(gemini(&DialogueConfig::new(Surface::Acp, None)));
    harness.player.prompt(spec());
    let mut offers = super::harness::capabilities("0.61.0");
    offers["authMethods"] = json!([{"id": "oauth-personal"}, {"id": "gemini-api-key"}]);
    harness.reply("initialize", &offers);
    harness.reply("session/new", &json!({"sessionId": "s"}));
    assert_eq!(harness.frame()["method"], "session/prompt");

    let mut dialogue = DialogueConfig::new(Surface::Acp, None);
    dialogue.authenticate = Some("oauth-personal".into());
    let mut harness = AcpHarness::with(gemini(&dialogue));
    harness.player.prompt(spec());
    harness.reply("initialize", &offers);
    assert_eq!(harness.reply("authenticate", &json!({}))["methodId"], "oauth-personal");
    assert_eq!(harness.frame()["method"], "session/new");

    let mut harness = AcpHarness::with(gemini(&dialogue));
    harness.player.prompt(spec());
    harness.reply("initialize", &offers);
    harness.refuse("authenticate", -32602, "Invalid params");
    let error = harness.player.outcome().error.clone().expect("why");
    assert_eq!(error.kind, FailureKind::NotAuthenticated);
    assert!(error.hint.unwrap().contains("gemini-api-key"));
}

#[test]
fn file_permission_request_completes_when_allowed() {
    let replay = recorded::find("gemini/content_blocks").play();
    let asked: Vec<_> = results(&replay);
    assert_eq!((asked.len(), asked[0].1), (1, ToolStatus::Ok), "{asked:?}");
}

#[test]
fn loop_reads_turn_limit() {
    // With no turn limit, or with one that was not reached, only a loop ends like this.
    for (limit, calls, kind) in [
        (None, 5, FailureKind::Loop),
        (Some(20), 5, FailureKind::Loop),
        (Some(5), 5, FailureKind::AgentTurns),
        (Some(2), 2, FailureKind::AgentTurns),
    ] {
        let mut config = DialogueConfig::new(Surface::Acp, None);
        config.agent_max_turns = limit;
        let mut harness = AcpHarness::with(gemini(&config));
        harness.reply("initialize", &super::harness::capabilities("0.61.0"));
        harness.start(RUN, "s", spec());
        let id = harness.frame()["id"].clone();
        for n in 0..calls {
            let call = format!("list_directory__list_directory_{n}_0");
            harness.update(
                "s",
                &json!({"sessionUpdate": "tool_call", "toolCallId": call, "title": ".", "kind": "search"}),
            );
            harness.update(
                "s",
                &json!({"sessionUpdate": "tool_call_update", "toolCallId": call, "status": "completed"}),
            );
        }
        harness.end(&id, &json!({"stopReason": "max_turn_requests"}));
        let outcome = harness.player.outcome();
        let verdict = if kind == FailureKind::Loop { Verdict::Failed } else { Verdict::LimitReached };
        let error = outcome.error.as_ref().unwrap();
        assert_eq!((outcome.verdict, error.kind), (verdict, kind), "{limit:?} {calls}: {}", error.message);
    }
}
