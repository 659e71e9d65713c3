//! Checks that memory does not grow with the length of a saved session or of a tape.

use super::user::HostileUser;
use agentline_tests::{PATIENCE, Watchdog};
use serde_json::{Value, json};
use std::{
    fs::{self, File},
    io::{BufWriter, Read as _, Write},
    path::Path,
};

/// How much longer the second file is, in megabytes.
const MORE: usize = 4;

/// The most additional memory for it, in kB. Held in memory, a file takes more than three times its length.
const GROWTH: u64 = 6 << 10;

/// Returns the records of one turn.
type Turn = fn(usize, &str) -> Vec<Value>;

/// Writes a file of at least this many megabytes.
fn generate(path: &Path, first: &Value, megabytes: usize, turn: Turn) {
    let mut out = BufWriter::new(File::create(path).unwrap());
    writeln!(out, "{first}").unwrap();
    let mut written = 0;
    for n in 0.. {
        let output = format!("line {n} of some output\n").repeat(2000);
        for record in turn(n, &output) {
            let line = record.to_string();
            written += line.len();
            writeln!(out, "{line}").unwrap();
        }
        if written > megabytes << 20 {
            return;
        }
    }
}

/// Runs the program and reads all of its output. Returns its length and the peak memory in kB.
fn peak(user: &HostileUser, args: &[&str]) -> (u64, u64) {
    let mut child = user.agentline(args).stderr(std::process::Stdio::inherit()).spawn().unwrap();
    let _watchdog = Watchdog::over(&child, PATIENCE * 6, "the end of the output");
    let (mut out, mut buffer) = (child.stdout.take().unwrap(), vec![0; 64 << 10]);
    let status = format!("/proc/{}/status", child.id());
    let (mut length, mut peak) = (0, 0);
    loop {
        // The program cannot exit before its output was read, so the last of these measurements is near its end.
        let text = fs::read_to_string(&status).unwrap_or_default();
        let now = text.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB"));
        peak = now.and_then(|now| now.trim().parse().ok()).unwrap_or(0).max(peak);
        match out.read(&mut buffer).unwrap() {
            0 => break,
            read => length += read as u64,
        }
    }
    assert!(child.wait().unwrap().success(), "{args:?}");
    (length, peak)
}

/// Asserts that all of a file of `megabytes`, and of a longer one, is shown in the same memory. The buffers of the
/// program are full after less than the first file.
fn memory_is_bounded(name: &str, args: &[&str], first: &Value, megabytes: usize, turn: Turn) {
    let user = HostileUser::headless("ok", &json!({}));
    let peaks = [megabytes, megabytes + MORE].map(|megabytes| {
        let file = user.path(&format!("{megabytes}.jsonl"));
        generate(&file, first, megabytes, turn);
        let file = file.to_string_lossy();
        let args: Vec<&str> = args.iter().copied().chain([&*file]).collect();
        let (length, peak) = peak(&user, &args);
        assert!(length > (megabytes as u64) << 19, "{name}: {length} bytes of {megabytes} MB are shown");
        peak
    });
    let _ = writeln!(
        std::io::stderr(),
        "{name}: {} and {} kB for {megabytes} MB and {MORE} MB more",
        peaks[0],
        peaks[1]
    );
    assert!(peaks[1] < peaks[0] + GROWTH, "{name}: {peaks:?}");
}

#[test]
fn a_session_of_claude_code_is_shown_in_bounded_memory() {
    let line = |n: usize, kind: &str, message: Value| {
        json!({"type": kind, "uuid": format!("u{n}"), "parentUuid": format!("u{}", n.wrapping_sub(1)),
            "sessionId": "aaaaaaaa-0000-4000-8000-000000000001", "cwd": "/w", "version": "2.0.0",
            "timestamp": "2026-11-15T05:02:00.000Z", "requestId": format!("r{n}"), "message": message})
    };
    let first = line(0, "user", json!({"role": "user", "content": "do it"}));
    let turn: Turn = |n, output| {
        let line = |n: usize, kind: &str, message: Value| {
            json!({"type": kind, "uuid": format!("u{n}"), "parentUuid": format!("u{}", n - 1),
                "sessionId": "aaaaaaaa-0000-4000-8000-000000000001", "requestId": format!("r{n}"),
                "timestamp": "2026-11-15T05:02:00.000Z", "message": message})
        };
        let (call, blocks) = (format!("t{n}"), |blocks: Value| json!({"role": "user", "content": blocks}));
        let answer = json!({"role": "assistant", "id": format!("m{n}"), "model": "claude-x", "content":
            [{"type": "tool_use", "id": call, "name": "Bash", "input": {"command": "cat"}}]});
        let result = blocks(json!([{"type": "tool_result", "tool_use_id": call, "content": output}]));
        vec![line(2 * n + 1, "assistant", answer), line(2 * n + 2, "user", result)]
    };
    memory_is_bounded("claude", &["sessions", "show"], &first, 9, turn);
}

#[test]
fn a_session_of_gemini_is_exported_in_bounded_memory() {
    let first = json!({"sessionId": "aaaaaaaa-0000-4000-8000-000000000002", "projectHash": "x",
        "startTime": "2026-11-15T05:02:00.000Z", "lastUpdated": "2026-11-15T05:02:00.000Z", "kind": "main"});
    let turn: Turn = |n, output| {
        let at = "2026-11-15T05:02:00.000Z";
        let asked =
            json!({"id": format!("u{n}"), "timestamp": at, "type": "user", "content": [{"text": "go on"}]});
        vec![asked, json!({"id": format!("g{n}"), "timestamp": at, "type": "gemini", "content": output})]
    };
    memory_is_bounded("gemini", &["sessions", "export", "-o", "-", "-f", "html"], &first, 9, turn);
}

/// Plays a tape whose agent printed much output.
fn play_tape(args: &[&str]) {
    let first =
        json!({"schema": "agentline.tape/1", "agent": "gemini", "surface": "stream-json", "cwd": "/w"});
    let turn: Turn = |n, output| {
        let printed = json!({"type": "tool_result", "tool_id": "t", "status": "success", "output": output});
        let line = json!({"at": n, "ch": "out", "text": printed.to_string()});
        // A replay exits as the tape says, wherever the exit is recorded.
        if n == 0 { vec![json!({"ch": "exit", "exit": {"code": 0}}), line] } else { vec![line] }
    };
    memory_is_bounded("tape", args, &first, 9, turn);
}

#[test]
fn replay_as_agent_uses_bounded_memory() {
    play_tape(&["replay", "--as", "gemini"]);
}
