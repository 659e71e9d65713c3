//! Tests output that is not read, and peers that send without end.

use super::user::{HostileUser, PATIENCE, signal, until, wait_unread};
use agentline_tests::{Watchdog, unread_bytes};
use serde_json::{Value, json};
use std::{
    io::{BufRead as _, BufReader, Write as _},
    os::unix::net::UnixStream,
    process::{Child, Stdio},
    time::{Duration, Instant},
};

/// Starts a run that writes more than a pipe holds, none of which is read.
fn unread_run(args: &[&str]) -> (HostileUser, Child) {
    let user = HostileUser::headless("talks_without_end", &json!({"seconds": 200, "interval_ms": 1}));
    let args = [&["run", "-o", "events"], args, &["hi"]].concat();
    let mut child = user.agentline(&args).spawn().unwrap();
    // The agent writes every millisecond. If nothing was added for a while, the pipe is full, and the output thread
    // waits in a write.
    let mut seen = (0, Instant::now());
    until("a full pipe", || {
        let unread = unread_bytes(child.stdout.as_ref().unwrap());
        if unread != seen.0 {
            seen = (unread, Instant::now());
        }
        seen.0 > 0 && seen.1.elapsed() > Duration::from_millis(1500)
    });
    assert!(child.try_wait().unwrap().is_none(), "it ended before its pipe was full");
    (user, child)
}

#[test]
fn timeout_ends_the_program_although_output_is_not_read() {
    let (_user, mut child) = unread_run(&["--timeout", "6"]);
    assert_eq!(wait_unread(&mut child), 8);
}

#[test]
fn signal_ends_the_program_although_output_is_not_read() {
    let (_user, mut child) = unread_run(&["--timeout", "600"]);
    signal(&child, "TERM");
    assert_eq!(wait_unread(&mut child), 143);
}

#[test]
fn second_signal_ends_the_program_immediately_although_output_is_not_read() {
    let (_user, mut child) = unread_run(&["--timeout", "600"]);
    signal(&child, "INT");
    std::thread::sleep(Duration::from_millis(300));
    signal(&child, "INT");
    let started_at = Instant::now();
    assert_eq!(wait_unread(&mut child), 130);
    // Without a second signal, it takes ten seconds longer than the end of the run.
    assert!(started_at.elapsed() < Duration::from_secs(9), "{:?}", started_at.elapsed());
}

#[test]
fn second_signal_ends_a_host_whose_output_is_not_read() {
    let user = HostileUser::live();
    let mut host = user.agentline(&["host"]).stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = host.stdin.take().unwrap();
    let request = json!({"jsonrpc": "2.0", "id": 1, "method": "run", "params": {
        "prompt": "repeat 100000 say more and more unread words", "events": true, "timeout": 600}});
    writeln!(stdin, "{request}").unwrap();
    std::thread::sleep(Duration::from_secs(2));
    signal(&host, "TERM");
    std::thread::sleep(Duration::from_millis(300));
    signal(&host, "TERM");
    let started_at = Instant::now();
    wait_unread(&mut host);
    assert!(started_at.elapsed() < Duration::from_secs(9), "{:?}", started_at.elapsed());
}

/// An endless check occupies its own thread, blocks no other run, and has a limit of its own.
#[test]
fn endless_schema_check_does_not_stall_other_host_runs() {
    let user = HostileUser::live();
    let mut host = user.agentline(&["host"]).stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = host.stdin.take().unwrap();
    let mut lines = BufReader::new(host.stdout.take().unwrap()).lines();
    let _watchdog = Watchdog::over(&host, PATIENCE, "the outcomes of two runs");
    let mut schema = json!({"type": "string"});
    for _ in 0..40 {
        schema = json!({"anyOf": [schema.clone()]});
    }
    let mut levels = serde_json::Map::new();
    for n in 0..40 {
        let next = json!({"$ref": format!("#/$defs/l{}", n + 1)});
        levels.insert(format!("l{n}"), json!({"anyOf": [next, next]}));
    }
    levels.insert("l40".into(), schema);
    let schema = json!({"$ref": "#/$defs/l0", "$defs": levels});
    let mut ask = |id: u32, method: &str, params: Value| {
        writeln!(stdin, "{}", json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))
            .unwrap();
    };
    ask(1, "run", json!({"prompt": "say [1]", "output_schema": schema, "repair_turns": 0, "timeout": 120}));
    let started_at = Instant::now();
    // The other runs start during the first check, which takes ten seconds.
    std::thread::sleep(Duration::from_secs(3));
    ask(2, "pool/status", json!({}));
    ask(3, "run", json!({"prompt": "say hello", "timeout": 120}));
    let mut spec = Vec::new();
    while spec.len() < 3 {
        let line: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        if let Some(id) = line["id"].as_u64().filter(|_| line.get("method").is_none()) {
            if id == 1 {
                assert_eq!(line["result"]["verdict"], "invalid_output", "{line:#}");
                let error = &line["result"]["error"];
                let message = "the check of the answer against the schema did not finish within 10 s";
                assert!(error["message"].as_str().unwrap().contains(message), "{error:#}");
                assert!(error["hint"].as_str().unwrap().contains("anyOf"), "{error:#}");
            }
            if id == 3 {
                assert_eq!(line["result"]["verdict"], "done", "{line:#}");
            }
            spec.push(id);
        }
    }
    assert_eq!(spec.last(), Some(&1), "{spec:?} after {:?}", started_at.elapsed());
    drop(stdin);
    wait_unread(&mut host);
}

#[test]
fn daemon_refuses_an_endless_line() {
    let user = HostileUser::live();
    let mut daemon =
        user.agentline(&["pool", "start", "--foreground"]).stderr(Stdio::null()).spawn().unwrap();
    let socket = user.path("../home/.cache/agentline/run/pool.sock");
    let mut stream = None;
    until("the daemon", || {
        stream = UnixStream::connect(&socket).ok();
        stream.is_some()
    });
    let mut stream = stream.unwrap();
    let answers = stream.try_clone().unwrap();
    answers.set_read_timeout(Some(Duration::from_secs(300))).unwrap();
    let chunk = vec![b'x'; 1 << 20];
    let sender = std::thread::spawn(move || {
        (0..257).all(|_| stream.write_all(&chunk).is_ok()) && stream.write_all(b"\n").is_ok()
    });
    let mut answer = String::new();
    BufReader::new(answers).read_line(&mut answer).unwrap();
    assert!(sender.join().unwrap(), "the connection ended");
    assert!(answer.contains("the line is longer than 256 MB"), "{answer}");
    // The daemon still serves others.
    let status = user.done(&["pool", "status"]);
    assert_eq!(status.code, 0, "{status:?}");
    assert_eq!(user.done(&["pool", "stop"]).code, 0);
    wait_unread(&mut daemon);
}
