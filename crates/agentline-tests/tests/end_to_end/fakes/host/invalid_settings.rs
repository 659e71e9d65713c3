//! Tests invalid settings from a host: each is reported by its key, and the host continues.

use crate::fakes::host::{backpressure::wait_for, stage, start, start_with};
use agentline_tests::{exit_of, wait_until};
use serde_json::{Value, json};
use std::{fs, process::Command, time::Duration};

/// Returns the keys and messages of an error.
fn problems(answer: &Value) -> String {
    assert_eq!(answer["error"]["code"], -32602, "{answer}");
    assert!(answer["error"]["data"]["problems"][0]["key"].is_string(), "{answer}");
    answer["error"]["data"]["problems"].to_string()
}

#[test]
fn missing_named_program_is_an_error_without_fallback() {
    let stage = stage();
    let mut program = start_with(&stage, &json!({}));
    let before = stage.living().len();
    for missing in ["/nowhere/gemini", "no-such-gemini", "/"] {
        // The test's environment variable names a valid program.
        let id = program.send("run", json!({"prompt": "say hi", "agent_bin": missing}));
        let outcome = program.answer(id)["result"].clone();
        assert_eq!(outcome["verdict"], "not_installed", "{missing}: {outcome}");
        let hint = outcome["error"]["hint"].as_str().unwrap_or_default();
        assert!(hint.contains("agent_bin"), "{missing}: {outcome}");
        assert_eq!(stage.living().len(), before, "{missing}");
    }
    let ready = program.call("pool/prewarm", json!({"runs": 1, "agent_bin": "/nowhere/gemini"}));
    assert_eq!(ready, json!({"ready": 0}));
    // Settings in a file are below the environment.
    let folder = stage.path().join("home/.config/agentline");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("config.toml"), "[agents.gemini]\nprogram = '/nowhere/gemini'\n").unwrap();
    assert_eq!(program.run("say hi")["verdict"], "done");
}

#[test]
fn options_of_the_socket_are_refused_on_stdin() {
    let mut program = start();
    let caller = json!({"env": {}, "home": "/", "cwd": "/", "project": "/", "cache": "/"});
    for (method, params, key) in [
        ("initialize", json!({"caller": caller}), "caller"),
        ("run", json!({"request": {"prompt": "say hi"}}), "request"),
    ] {
        let id = program.send(method, params);
        assert!(problems(&program.answer(id)).contains(key), "{method}");
    }
    let id = program.send("pool/stop", json!({}));
    assert_eq!(program.answer(id)["error"]["code"], -32601);
    assert_eq!(program.run("say hi")["verdict"], "done");
}

#[test]
fn extreme_numbers_do_not_stop_the_host_or_its_runs() {
    let mut program = start();
    for key in ["max_processes", "lanes", "max_queue", "idle_s", "max_age_s", "max_memory_mb"] {
        for number in [json!(u64::MAX), json!(0), json!(4)] {
            program.call("pool/configure", json!({ key: number }));
        }
        let id = program.send("pool/configure", json!({ key: -1 }));
        assert!(problems(&program.answer(id)).contains(key), "{key}");
    }
    program.call(
        "pool/configure",
        json!({"max_queue": 100, "idle_s": 60, "max_age_s": 600, "max_memory_mb": 4096}),
    );
    for keys in [json!({"timeout": 1.8e19}), json!({"quiet_period_ms": u64::MAX})] {
        let mut params = json!({"prompt": "say hi"});
        params.as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
        let id = program.send("run", params);
        assert!(problems(&program.answer(id)).contains("100 years"));
    }
    program.call("pool/configure", json!({"max_processes": 2, "max_sessions": 3}));
    let ready = program.call("pool/prewarm", json!({"runs": u64::MAX}))["ready"].as_u64().unwrap();
    assert!(ready <= 6, "{ready}");
    assert_eq!(program.run("say hi")["verdict"], "done");
}

#[test]
fn invalid_values_are_reported_by_key() {
    let mut program = start();
    for (key, value) in [
        ("tools", json!("none")),
        ("run", json!(5)),
        ("events", json!(5)),
        ("answer_timeout_ms", json!(-1)),
        ("attachments", json!([{"name": "a\0b", "text": "x"}])),
        ("attachments", json!([{"name": "n".repeat(300), "text": "x"}])),
        ("attachments", json!(["/nowhere/file.txt"])),
    ] {
        let id = program.send("run", json!({"prompt": "say hi", key: value}));
        assert!(problems(&program.answer(id)).contains(key), "{key}");
    }
}

#[test]
fn unknown_keys_and_fields_are_refused_with_the_nearest_name() {
    let stage = stage();
    let mut program = start_with(&stage, &json!({}));
    let before = stage.living().len();
    for (method, params, key, hint) in [
        ("run", json!({"prompt": "say hi", "max_turn": 3}), "max_turn", "did you mean `max_turns`?"),
        ("run", json!({"prompt": "say hi", "ask_permision": true}), "ask_permision", "`ask_permission`"),
        ("run", json!({"prompt": "say hi", "agents": {"a": {"comand": "x"}}}), "agents.a.comand", "command"),
        ("run", json!({"prompt": "say hi", "cache": {"maxage": 3}}), "cache", "max_age_s"),
        ("run", json!({"prompt": "say hi", "tools": [{"name": "f", "shema": {}}]}), "tools", "input_schema"),
        ("session/open", json!({"modle": "x"}), "modle", "`model`"),
        ("session/open", json!({"messages": true}), "messages", "pass it with each prompt"),
        ("pool/prewarm", json!({"modle": "x"}), "modle", "`model`"),
        ("initialize", json!({"defaults": {"timout": 3}}), "timout", "`timeout`"),
        ("initialize", json!({"defaults": {"timeout": "soon"}}), "timeout", "10m"),
        ("initialize", json!({"pool": {"max_process": 3}}), "pool", "max_processes"),
        ("pool/configure", json!({"max_process": 3}), "max_process", "`max_processes`"),
        ("sessions/list", json!({"agnet": "gemini"}), "agnet", "`agent`"),
        ("sessions/load", json!({"xyzzy": 1}), "xyzzy", "agent, context"),
    ] {
        let id = program.send(method, params.clone());
        let answer = program.answer(id);
        let found = problems(&answer);
        assert_eq!(answer["error"]["data"]["problems"][0]["key"], key, "{params}");
        assert!(found.contains(hint), "{params}: {found}");
    }
    assert_eq!(stage.living().len(), before, "nothing was started");
    // A file may have been written for another version.
    let folder = stage.path().join("home/.config/agentline");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("config.toml"), "no_such_key = 1\n").unwrap();
    program.call("initialize", json!({}));
    let outcome = program.run("say hi");
    assert!(outcome["warnings"].to_string().contains("no_such_key"), "{outcome}");
}

#[test]
fn answer_may_contain_a_null_error() {
    let mut program = start();
    let id = program.send(
        "run",
        json!({"prompt": "call agentline f {}", "tools": [{"name": "f", "input_schema": {"type": "object"}}]}),
    );
    let asked = program.question("tool/call");
    program.line(
        &json!({"jsonrpc": "2.0", "id": asked["id"], "error": null, "result": {"output": "forty-two"}})
            .to_string(),
    );
    let outcome = program.answer(id)["result"].clone();
    assert!(outcome["text"].as_str().unwrap_or_default().contains("forty-two"), "{outcome}");
}

#[test]
fn closing_the_host_does_not_wait_for_prewarming() {
    let stage = stage();
    let mut program = start_with(&stage, &json!({}));
    let before = stage.living().len();
    program.send(
        "pool/prewarm",
        json!({"runs": 1, "startup_timeout": 600, "timeout": 600,
        "env": {"FAKE_ACP_FAULT": "initialize_never"}}),
    );
    wait_until("the start of an agent", || stage.living().len() > before);
    drop(program.stdin.take());
    program.nothing_left(Duration::from_secs(60));
}

#[test]
fn failed_check_call_costs_no_rounds() {
    let mut program = start();
    let refusals: [fn(&Value) -> Value; 2] = [
        |id| json!({"jsonrpc": "2.0", "id": id, "error": {"code": 1, "message": "the checker broke"}}),
        |id| json!({"jsonrpc": "2.0", "id": id, "result": {"done": "perhaps"}}),
    ];
    for refusal in refusals {
        let id = program.send("run", json!({"prompt": "say first", "check": true}));
        let asked = program.question("check");
        program.line(&refusal(&asked["id"]).to_string());
        let outcome = program.answer(id)["result"].clone();
        assert_eq!(
            (&outcome["verdict"], &outcome["error"]["kind"]),
            (&json!("failed"), &json!("tool")),
            "{outcome}"
        );
        assert!(program.buffered.iter().all(|message| message["method"] != "check"), "asked again");
    }
}

#[test]
fn signal_ends_the_host_although_its_output_is_not_read() {
    let stage = stage();
    let mut program = start_with(&stage, &json!({}));
    program.reads(false);
    // This is more than fits into a pipe and the reader's buffer.
    let marker = stage.path().join("said");
    program.send("run", json!({"prompt": format!("big 4000000\nrun touch {}\nhang", marker.display())}));
    wait_for(&marker);
    // The output has been written and waits to be read.
    std::thread::sleep(Duration::from_millis(500));
    let killed = Command::new("kill").args(["-TERM", &program.child.id().to_string()]).status().unwrap();
    assert!(killed.success());
    program.nothing_left(Duration::from_secs(60));
    assert!(exit_of(&mut program.child, "the end of the host").success());
}
