//! Tests `agentline host` with a fake agent, as a program in another language would use it.
#![expect(clippy::unwrap_used, reason = "test helpers may panic")]

mod admission;
mod backpressure;
mod cache;
mod invalid_settings;

use agentline_tests::{FakeStage, HostProgram, exit_of, kill_amid_runs};
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

fn stage() -> Arc<FakeStage> {
    Arc::new(FakeStage::new(env!("CARGO_BIN_EXE_fake-acp")))
}

/// Starts a host with its own test directory, and sends the settings that all runs share.
fn start() -> HostProgram {
    start_with(&stage(), &json!({}))
}

fn start_with(stage: &Arc<FakeStage>, initialize: &Value) -> HostProgram {
    HostProgram::start(env!("CARGO_BIN_EXE_agentline-under-test"), Arc::clone(stage), initialize)
}

#[test]
fn runs_emit_events_and_return_their_outcome() {
    let mut program = start();
    let id =
        program.send("run", json!({"prompt": "say Hello\nsay  there.", "run": "mine", "name": "greeting"}));
    let outcome = program.answer(id)["result"].clone();
    assert_eq!(outcome["verdict"], "done", "{outcome}");
    assert_eq!(outcome["name"], "greeting");
    assert_eq!(outcome["text"], program.texts("mine"));
    assert!(program.buffered.iter().any(|m| m["params"]["event"]["type"] == "started"));
    // Only the requested events are sent.
    program.buffered.clear();
    let id = program.send("run", json!({"prompt": "say a\nplan\nsay b", "run": "few", "events": ["plan"]}));
    program.answer(id);
    let types: Vec<&str> =
        program.buffered.iter().filter_map(|m| m["params"]["event"]["type"].as_str()).collect();
    assert_eq!(types, ["plan"]);
}

#[test]
fn invalid_requests_get_errors_and_the_host_continues() {
    let mut program = start();
    for (line, code) in [
        ("{not json", -32700),
        ("\u{1}\u{2}", -32700),
        ("[]", -32600),
        ("\"hello\"", -32600),
        ("{}", -32600),
        (r#"{"jsonrpc":"2.0","id":1,"method":"fly"}"#, -32601),
        (r#"{"jsonrpc":"2.0","id":2,"method":"run","params":{"prompt":""}}"#, -32602),
        (r#"{"jsonrpc":"2.0","id":3,"method":"run","params":{"prompt":"x","timeout":"soon"}}"#, -32602),
        (r#"{"jsonrpc":"2.0","id":4,"method":"run","params":{"prompt":"x","tools":"none"}}"#, -32602),
        (
            r#"{"jsonrpc":"2.0","id":5,"method":"run","params":{"prompt":"x","tools":[{"name":"a b"}]}}"#,
            -32602,
        ),
        (
            r#"{"jsonrpc":"2.0","id":6,"method":"session/prompt","params":{"session":"none","prompt":"x"}}"#,
            -32602,
        ),
        (
            r#"{"jsonrpc":"2.0","id":7,"method":"run","params":{"prompt":"x","agent":"unknown-agent"}}"#,
            -32602,
        ),
    ] {
        program.line(line);
        let error = program.wait("error", |m| m.get("error").is_some())["error"].clone();
        assert_eq!(error["code"], code, "{line}: {error}");
        assert!(!error["message"].as_str().unwrap().is_empty(), "{line}");
    }
    // A key that may belong to another program is a warning; an unexpected answer is ignored.
    program.line(r#"{"jsonrpc":"2.0","id":999,"result":{}}"#);
    let foreign = json!(["no_such_key", "future", "timeout", "absent"]);
    let id = program.send(
        "run",
        json!({"prompt": "say ok", "no_such_key": 1, "future": {"a": []}, "timeout": 60, "ignore_unknown": foreign}),
    );
    let outcome = program.answer(id)["result"].clone();
    assert_eq!(outcome["verdict"], "done", "{outcome}");
    assert!(outcome["warnings"].to_string().contains("no_such_key"), "{}", outcome["warnings"]);
    let id = program.send("run", json!({"prompt": "say ok", "timout": 1, "ignore_unknown": ["timout"]}));
    assert_eq!(
        program.answer(id)["error"]["data"]["problems"][0]["key"],
        "timout",
        "a misspelled key is refused"
    );
}

#[test]
fn parameters_can_be_validated_without_a_run() {
    let mut program = start();
    assert_eq!(program.call("validate", json!({"timeout": 5})), json!({"warnings": []}));
    for (params, key) in [
        (json!({"timeout": "soon"}), "timeout"),
        (json!({"timout": 5}), "timout"),
        (json!({"agent": "unknown-agent"}), "agent"),
        (json!({"output_schema": {"type": 5}}), "output_schema"),
        (json!({"max_turns": -1}), "max_turns"),
    ] {
        let id = program.send("validate", params.clone());
        let answer = program.answer(id);
        assert_eq!(answer["error"]["data"]["problems"][0]["key"], key, "{params}: {answer}");
    }
}

#[test]
fn cancelling_a_run_ends_everything_it_started() {
    let mut program = start();
    let id = program.send("run", json!({"prompt": "say begun\nrun sleep 600", "run": "long"}));
    program.wait("the tool", |m| m["params"]["event"]["type"] == "tool_use");
    assert_eq!(program.call("cancel", json!({"run": "long"}))["found"], true);
    assert_eq!(program.answer(id)["result"]["verdict"], "cancelled");
    assert_eq!(program.call("cancel", json!({"run": "long"}))["found"], false);
    assert_eq!(program.run("say still here")["text"], "still here");
}

#[test]
fn early_cancel_is_respected() {
    let mut program = start();
    program.run("say warm");
    for n in 0..60_u64 {
        let run = format!("early{n}");
        let id = program.send("run", json!({"prompt": "run sleep 600", "run": run}));
        std::thread::sleep(Duration::from_millis(n % 12));
        assert_eq!(program.call("cancel", json!({"run": run}))["found"], true);
        assert_eq!(program.answer(id)["result"]["verdict"], "cancelled", "cancelled after {} ms", n % 12);
    }
}

#[test]
fn invalid_utf8_is_reported_with_the_request_id() {
    let mut program = start();
    program.line(r#"{"jsonrpc":"2.0","id":"half","method":"run","params":{"prompt":"cut \ud83d"}}"#);
    let refused = program.wait("an answer", |m| m["id"] == "half");
    assert_eq!(refused["error"]["code"], -32700, "{refused}");
    // An invalid request has no usable id, because it could equal one of ours.
    program.line(r#"{"jsonrpc":"2.0","id":"answer","result":{"output":"cut \ud83d"}}"#);
    assert!(program.wait("an answer", |m| m["error"]["code"] == -32700)["id"].is_null());
}

#[test]
fn run_and_opening_conversation_can_be_cancelled_immediately() {
    let mut program = start();
    for n in 0..5 {
        let run = program.send("run", json!({"prompt": "sleep 60000", "run": format!("r{n}")}));
        let cancel = program.send("cancel", json!({"run": format!("r{n}")}));
        assert_eq!(program.answer(cancel)["result"]["found"], true);
        assert_eq!(program.answer(run)["result"]["verdict"], "cancelled");
    }
    let stalled = json!({"run": "talk", "env": {"FAKE_ACP_FAULT": "session_new_never"}});
    let open = program.send("session/open", stalled);
    let cancel = program.send("cancel", json!({"run": "talk"}));
    assert_eq!(program.answer(cancel)["result"]["found"], true);
    assert_eq!(program.answer(open)["error"]["code"], -32800);
    program.call("shutdown", json!({}));
    program.nothing_left(Duration::from_secs(20));
}

#[test]
fn permission_is_requested_from_the_host_and_no_answer_denies() {
    let mut program = start();
    let ask = |file: &str, more: Value| {
        let mut params = json!({"prompt": format!("ask write_file {file} hi\nsay done"),
            "permission_mode": "default", "ask_permission": true});
        params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        params
    };
    let id = program.send("run", ask("a.txt", json!({})));
    let question = program.question("permission/ask");
    assert_eq!(question["params"]["ask"]["tool"], "Write");
    assert_eq!(question["params"]["ask"]["diffs"][0]["new"], "hi");
    program.reply(&question, json!({"decision": "allow"}));
    assert_eq!(program.answer(id)["result"]["files"][0]["path"], "a.txt");

    let id = program.send("run", ask("b.txt", json!({})));
    let question = program.question("permission/ask");
    program.reply(&question, json!({"decision": "deny", "reason": "not on a Sunday"}));
    let outcome = program.answer(id)["result"].clone();
    assert_eq!(outcome["verdict"], "done_with_denials", "{outcome}");
    assert!(outcome["denied"].to_string().contains("not on a Sunday"), "{outcome}");

    // A host that does not answer blocks no other run.
    let id = program.send("run", ask("c.txt", json!({"answer_timeout_ms": 1500})));
    program.question("permission/ask");
    assert_eq!(program.run("say meanwhile")["text"], "meanwhile");
    assert_eq!(program.answer(id)["result"]["verdict"], "done_with_denials");
    assert!(!program.stage.workspace().join("c.txt").exists());
}

#[test]
fn host_functions_are_tools() {
    let mut program = start();
    let tools = json!([
        {"name": "add", "description": "Adds", "input_schema": {"type": "object",
            "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}, "required": ["a", "b"]}},
        {"name": "slow", "description": "Never answers", "timeout_ms": 700},
    ]);
    let prompt = "call agentline add {\"a\": 2, \"b\": 3}\ncall agentline slow {}";
    let id = program.send("run", json!({"prompt": prompt, "run": "tools", "tools": tools}));
    let call = program.question("tool/call");
    assert_eq!((&call["params"]["tool"], &call["params"]["run"]), (&json!("add"), &json!("tools")));
    assert_eq!(call["params"]["input"], json!({"a": 2, "b": 3}));
    program.reply(&call, json!({"output": {"sum": 5}}));
    let slow = program.question("tool/call");
    assert_eq!(slow["params"]["tool"], "slow");
    let cancelled = program.question("tool/cancel");
    assert_eq!(cancelled["params"]["call"], slow["params"]["call"]);
    let outcome = program.answer(id)["result"].clone();
    assert!(program.texts("tools").contains("\"sum\":5"), "{}", program.texts("tools"));
    assert_eq!(outcome["tool_calls"], 2, "{outcome}");
}

#[test]
fn answers_are_validated_by_schema_and_host_check() {
    let mut program = start();
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]});
    let outcome = program.call("run", json!({"prompt": "say {\"n\": 4}", "output_schema": schema}));
    assert_eq!(outcome["output"], json!({"n": 4}), "{outcome}");

    let id = program.send("run", json!({"prompt": "say first", "check": true, "max_rounds": 3}));
    let first = program.question("check");
    assert_eq!(first["params"]["text"], "first");
    program.reply(&first, json!({"done": false, "message": "say second"}));
    let second = program.question("check");
    program.reply(&second, json!({"done": true}));
    assert_eq!(program.answer(id)["result"]["verdict"], "done");
    assert!(second["params"]["text"].as_str().unwrap().contains("second"), "{second}");
}

#[test]
fn conversations_keep_context_and_end() {
    let mut program = start();
    let opened = program.call("session/open", json!({"prompt": ""}));
    let session = opened["session"].clone();
    let prompt_with = |p: &mut HostProgram, prompt: &str| {
        p.call("session/prompt", json!({"session": session, "prompt": prompt}))
    };
    assert_eq!(prompt_with(&mut program, "say one")["text"], "one");
    let history = prompt_with(&mut program, "history");
    assert!(history["text"].as_str().unwrap().contains("say one"), "{history}");
    assert_eq!(history["session_id"], opened["session_id"]);
    program.call("session/close", json!({"session": session}));
    let id = program.send("session/prompt", json!({"session": session, "prompt": "say x"}));
    assert_eq!(program.answer(id)["error"]["code"], -32602);
}

#[test]
fn run_can_have_a_temporary_workspace() {
    let mut program = start();
    let prompt = "tool write_file made.txt hi\nsay done";
    let outcome = program.call("run", json!({"prompt": prompt, "temporary_workspace": true}));
    assert_eq!(outcome["files"][0]["path"], "made.txt", "{outcome}");
    let own = std::path::Path::new(outcome["cwd"].as_str().unwrap());
    assert_ne!(own, program.stage.workspace());
    assert!(!own.exists() && !program.stage.workspace().join("made.txt").exists(), "{outcome}");
}

#[test]
fn attachments_may_be_inline() {
    let mut program = start();
    let files =
        json!([{"name": "note.txt", "text": "remember"}, {"name": "dot.png", "data": "iVBORw0KGgo="}]);
    let outcome = program.call("run", json!({"prompt": "echo_prompt", "attachments": files}));
    assert!(outcome["text"].as_str().unwrap().contains("image"), "{outcome}");
    let id = program.send("run", json!({"prompt": "x", "attachments": [{"name": "a", "data": "!"}]}));
    assert!(program.answer(id)["error"]["message"].as_str().unwrap().contains("attachments.0"));
}

#[test]
fn concurrent_runs_lose_no_answers() {
    let mut program = start();
    let prompt = |n: u64| format!("chunks 50 part{n} {{n}} \nsay end {n}");
    let ids: BTreeMap<u64, u64> = (0..24)
        .map(|n| (program.send("run", json!({"prompt": prompt(n), "permission_mode": "plan"})), n))
        .collect();
    for (id, n) in ids {
        let outcome = program.answer(id)["result"].clone();
        assert_eq!(outcome["verdict"], "done", "{outcome}");
        let text = program.texts(&id.to_string());
        assert!(text.ends_with(&format!("end {n}")) && text.contains(&format!("part{n} 50")), "{text}");
    }
    let standing = program.call("pool/status", json!({}));
    assert_eq!(standing["runs"]["active"], 0, "{standing}");
    assert!(standing["pool"]["started"].as_u64().unwrap() <= 4, "{standing}");
}

#[test]
fn overloaded_run_is_retried_and_reported() {
    let mut program = start();
    // The first attempt leaves a file that identifies the second one.
    let refused = "error 429 quota exceeded. Please retry in 1s";
    let id = program.send("run", json!({"prompt": refused, "max_retries": 1}));
    let retry = program.question("run/retry");
    assert_eq!(retry["params"]["attempt"], 2, "{retry}");
    assert!(retry["params"]["wait_ms"].as_u64().unwrap() >= 1000, "{retry}");
    let outcome = program.answer(id)["result"].clone();
    assert_eq!((&outcome["verdict"], &outcome["attempts"]), (&json!("rate_limited"), &json!(2)), "{outcome}");
    assert_eq!(outcome["error"]["retry_after_ms"], 1000);
    // A run that has changed files is not retried.
    let changed = format!("tool write_file x.txt hi\n{refused}");
    let outcome = program.call("run", json!({"prompt": changed, "max_retries": 2}));
    assert_eq!(outcome.get("attempts"), None, "{outcome}");
}

#[test]
fn closed_stdin_ends_all_runs() {
    let mut program = start();
    for n in 0..4 {
        program.send("run", json!({"prompt": "say up\nrun sleep 600", "run": format!("r{n}")}));
    }
    for _ in 0..4 {
        program.wait("a run", |m| m["params"]["event"]["type"] == "tool_use");
    }
    assert!(program.stage.living().len() >= 8);
    drop(program.stdin.take());
    let ended = Instant::now();
    assert!(exit_of(&mut program.child, "the end of the host").success());
    assert!(ended.elapsed() < Duration::from_secs(20), "{:?}", ended.elapsed());
    program.nothing_left(Duration::from_secs(30));
}

#[test]
fn killing_the_host_during_four_runs_leaves_nothing() {
    let times = kill_amid_runs(env!("CARGO_BIN_EXE_agentline-under-test"), &stage(), 15);
    // A busy machine may take longer for some of them.
    assert!(times[7] < Duration::from_secs(2), "{times:?}");
}

#[test]
fn pending_runs_finish_after_stdin_closes_on_request() {
    let mut program = HostProgram::silent(env!("CARGO_BIN_EXE_agentline-under-test"), stage(), &["--drain"]);
    let params =
        json!({"prompt": "sleep 300\nsay finished", "permission_mode": "bypass", "quiet_period_ms": 0});
    let id = program.send("run", params);
    drop(program.stdin.take());
    assert_eq!(program.answer(id)["result"]["text"], "finished");
}

#[test]
fn shutdown_ends_the_host_in_order() {
    let mut program = start();
    assert_eq!(program.run("say hi")["text"], "hi");
    program.call("shutdown", json!({}));
    assert!(exit_of(&mut program.child, "the end of the host").success());
    program.nothing_left(Duration::from_secs(30));
}

#[test]
fn missing_session_has_a_machine_readable_error() {
    let mut program = start();
    let id = program.send("sessions/load", json!({"session": "no-such-session"}));
    let error = program.answer(id)["error"].clone();
    assert_eq!(error["data"]["kind"], "no_session", "{error}");
    assert_eq!(error["data"]["problems"][0]["key"], "session", "{error}");
}

#[test]
fn outcome_includes_messages_on_request_and_agents_are_listed() {
    let mut program = start();
    let outcome = program.call("run", json!({"prompt": "Say hello", "messages": true}));
    let messages = outcome["messages"].as_array().unwrap();
    assert_eq!(messages.last().unwrap()["role"], "assistant", "{outcome}");
    assert!(messages.last().unwrap().to_string().contains(outcome["text"].as_str().unwrap()), "{outcome}");
    let without = program.call("run", json!({"prompt": "Say hello"}));
    assert!(without.get("messages").is_none(), "{without}");
    let found = program.call("detect", json!({}));
    assert!(found["path"].as_str().unwrap().contains("fake-acp"), "{found}");
    let can = program.call("capabilities", json!({"agent": "gemini"}));
    assert!(can["models"].is_array() && can["supports_thinking"].is_boolean(), "{can}");
    let id = program.send("detect", json!({"agent": "geminy"}));
    let unknown = program.answer(id);
    assert!(unknown["error"]["message"].as_str().unwrap().contains("gemini"), "{unknown}");
}

/// To update the schema on the page, run `UPDATE_DOCS=1 cargo test -p agentline-tests --test end_to_end fakes::host`.
#[test]
fn page_contains_the_message_schema() {
    let page = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/host-protocol.md");
    let written = std::fs::read_to_string(&page).unwrap();
    let (before, rest) = written.split_once("<!-- schema -->\n").unwrap();
    let (_, after) = rest.split_once("<!-- end of schema -->").unwrap();
    let schema = serde_json::to_string_pretty(&agentline::host::messages::schema()).unwrap();
    let current = format!("{before}<!-- schema -->\n```json\n{schema}\n```\n<!-- end of schema -->{after}");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&page, &current).unwrap();
    } else {
        assert!(written == current, "docs/host-protocol.md is out of date; run this test with UPDATE_DOCS=1");
    }
}
