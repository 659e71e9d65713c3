//! Tests a host that reads slowly, does not answer, or sends invalid data: it delays no run and loses nothing.

use crate::fakes::host::start;
use agentline_tests::{HostProgram, exit_of, wait_until};
use serde_json::{Value, json};
use std::{collections::BTreeMap, path::Path, time::Duration};

const PIECES: u64 = 20_000;

/// Returns the private memory of a process in kilobytes.
fn memory(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("RssAnon:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

pub(crate) fn wait_for(file: &Path) {
    wait_until(&file.to_string_lossy(), || file.exists());
}

#[test]
fn blocked_reader_delays_no_run_and_gets_everything_later() {
    let mut program = start();
    program.run("say warm");
    let before = memory(program.child.id());
    let outside = program.stage.path().to_owned();
    program.reads(false);
    // Each run creates a file when it is done, because its output is not read.
    let script = |n: u64| {
        format!("chunks {PIECES} run {n} says {{n}}\\n\nrun touch {}/through-{n}\nsay end", outside.display())
    };
    let ids: BTreeMap<u64, u64> = (0..4)
        .map(|n| (n, program.send("run", json!({"prompt": script(n), "run": format!("r{n}")}))))
        .collect();
    for n in 0..4 {
        wait_for(&outside.join(format!("through-{n}")));
    }
    // While they wait, another run starts and ends.
    let late = format!("run touch {}/late\nsay late", outside.display());
    let late_id = program.send("run", json!({"prompt": late, "run": "late"}));
    wait_for(&outside.join("late"));
    std::thread::sleep(Duration::from_secs(1));
    let grown = memory(program.child.id()).saturating_sub(before);
    program.reads(true);
    for (n, id) in ids {
        let outcome = program.answer(id)["result"].clone();
        assert_eq!(outcome["verdict"], "done", "{outcome}");
        let expected: String = (1..=PIECES).map(|i| format!("run {n} says {i}\n")).collect();
        assert_eq!(program.texts(&format!("r{n}")), format!("{expected}end"));
        // Nothing is lost: joined text adds up, and the numbers have no gap.
        let of_run = |m: &&Value| m["method"] == "run/event" && m["params"]["run"] == format!("r{n}");
        let (mut last, mut pieces) = (0, 0);
        for message in program.buffered.iter().filter(of_run) {
            let joined = message["params"]["joined"].as_u64().unwrap_or(1);
            let event = &message["params"]["event"];
            last += joined;
            assert_eq!(event["seq"].as_u64(), Some(last), "{message}");
            pieces += if event["type"] == "text" { joined } else { 0 };
        }
        assert_eq!(pieces, PIECES + 1);
    }
    assert_eq!(program.answer(late_id)["result"]["text"], "late");
    // All output together is about 2 MB.
    assert!(grown < 100_000, "grew by {grown} kB");
}

#[test]
fn pending_request_delays_neither_cancel_nor_shutdown() {
    let mut program = start();
    let params = |n: u32| {
        json!({"prompt": format!("ask write_file {n}.txt hi\nsay done"), "run": format!("q{n}"),
            "permission_mode": "default", "ask_permission": true})
    };
    let first = program.send("run", params(1));
    let question = program.question("permission/ask");
    assert_eq!(program.run("say meanwhile")["text"], "meanwhile");
    program.call("cancel", json!({"run": "q1"}));
    assert_eq!(program.answer(first)["result"]["verdict"], "cancelled");
    // An answer to a withdrawn request has no effect.
    program.reply(&question, json!({"decision": "allow"}));
    assert_eq!(program.run("say still here")["text"], "still here");
    assert!(!program.stage.workspace().join("1.txt").exists());
    program.send("run", params(2));
    program.question("permission/ask");
    drop(program.stdin.take());
    assert!(exit_of(&mut program.child, "the end of the host").success());
    program.nothing_left(Duration::from_secs(10));
    assert!(!program.stage.workspace().join("2.txt").exists());
}

/// Returns the answer to the line with this number.
fn answered(program: &mut HostProgram, id: &Value) -> Value {
    program.wait(&format!("answer to {id}"), |m| m["id"] == *id && m.get("method").is_none())
}

#[test]
fn garbage_input_is_answered_and_the_host_continues() {
    let mut program = start();
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let deep_params = format!("{{\"id\":1,\"method\":\"run\",\"params\":{}}}", "{\"a\":".repeat(5_000));
    let big = format!("\"{}", "x".repeat(3 << 20));
    let lines: [(&[u8], i64); 16] = [
        (b"\0", -32700),
        (b"\x00\x01\x02\xff\xfe", -32700),
        (b"\xc3\x28", -32700),
        (b"{\"id\":1,\"method\":\"ru\xffn\"}", -32700),
        (b"{\"id\":1,\"method\":\"run\"", -32700),
        (b"{\"id\":1} {\"id\":2}", -32700),
        (b"<?xml version=\"1.0\"?>", -32700),
        (b"Content-Length: 10\r", -32700),
        (deep.as_bytes(), -32700),
        (deep_params.as_bytes(), -32700),
        (big.as_bytes(), -32700),
        (b"[]", -32600),
        (b"[{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"agents\"}]", -32600),
        (b"null", -32600),
        (b"1e999", -32700),
        (b"{\"method\":5,\"params\":{}}", -32600),
    ];
    for (line, code) in lines {
        program.bytes(line);
        let error = program.wait("error", |m| m.get("error").is_some());
        let shown = String::from_utf8_lossy(&line[..line.len().min(60)]).into_owned();
        assert_eq!(error["error"]["code"], code, "{shown}: {error}");
        // If the id can be read, the error has it.
        let asker =
            if line.contains(&0xff) && line.starts_with(b"{\"id\":1,") { json!(1) } else { Value::Null };
        assert_eq!(error["id"], asker, "{shown}");
    }
    // Blank lines are ignored.
    program.bytes(b"  \t \r");
    assert_eq!(program.run("say still here")["text"], "still here");
}

#[test]
fn wrong_types_in_every_method_get_an_error() {
    let mut program = start();
    let initialized =
        program.call("initialize", json!({"defaults": agentline_tests::common(), "from_the_future": [1]}));
    let methods: Vec<String> = serde_json::from_value(initialized["methods"].clone()).unwrap();
    let wrong = [
        json!("text"),
        json!(7),
        json!(true),
        json!([{"a": 1}, 2, null]),
        json!({"run": 5, "session": [], "prompt": {}, "agent": 3, "defaults": 1, "pool": "x", "limit": -1, "runs": "many",
            "words": 1, "dir": {}, "max_processes": "x", "text": 2}),
    ];
    let mut number = 0;
    for method in methods.iter().filter(|method| *method != "shutdown") {
        for params in &wrong {
            number += 1;
            // Any JSON value may be an id.
            let id = if number % 2 == 0 { json!(format!("w-{number}")) } else { json!(number) };
            let message =
                json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params, "later": {}});
            program.line(&message.to_string());
            let answer = answered(&mut program, &id);
            let takes_nothing = matches!(method.as_str(), "agents" | "pool/status");
            // A list may contain the fields in order.
            if !takes_nothing && !params.is_array() {
                assert_eq!(answer["error"]["code"], -32602, "{message}: {answer}");
            }
            assert!(answer.get("error").is_some() != answer.get("result").is_some(), "{message}: {answer}");
        }
    }
    // A notification gets no answer, not even an error.
    program.line(&json!({"jsonrpc": "2.0", "method": "run", "params": {"prompt": 5}}).to_string());
    program.line(&json!({"jsonrpc": "2.0", "method": "no/such"}).to_string());
    program.buffered.clear();
    assert_eq!(program.run("say still here")["text"], "still here");
    assert!(program.buffered.iter().all(|m| m["method"] == "run/event"), "{:?}", program.buffered);
    // Unknown fields are ignored.
    let params = json!({"run": "x", "also": {"deep": [1, 2]}});
    assert_eq!(program.call("cancel", params)["found"], false);
}
