//! Tests signals, readers that close their end, and readers that do not read.

use crate::cli::user::{Done, User};
use agentline_tests::{exit_of, output_of, wait_until};
use std::{
    io::{BufRead, BufReader, Read},
    process::{Child, Command},
    time::{Duration, Instant},
};

fn kill(child: &Child, signal: &str) {
    let status = Command::new("kill").args(["-s", signal, &child.id().to_string()]).status();
    assert!(status.unwrap().success());
}

/// Waits for the program, with a timeout.
fn wait(mut child: Child) -> Done {
    exit_of(&mut child, "the end of the program");
    child.wait_with_output().unwrap().into()
}

/// Reads the first line of standard output. The rest stays unread.
fn first_line(child: &mut Child) -> String {
    let mut line = Vec::new();
    let out = child.stdout.as_mut().unwrap();
    let mut byte = [0];
    while out.read(&mut byte).unwrap() == 1 && byte[0] != b'\n' {
        line.push(byte[0]);
    }
    String::from_utf8(line).unwrap()
}

#[test]
fn signal_stops_the_run_and_the_outcome_is_printed() {
    for (signal, code) in [("INT", 130), ("TERM", 143)] {
        let user = User::with_fault("hang_mid_text", r#"{"seconds":100}"#);
        let mut child = user.start(&["run", "-o", "events", "--record", "tape", "hi"]);
        assert!(first_line(&mut child).contains("started"));
        kill(&child, signal);
        let done = wait(child);
        assert_eq!(done.code, code, "{}", done.err);
        let last = done.lines().pop().unwrap();
        assert_eq!(last["outcome"]["verdict"], "cancelled");
        assert!(last["outcome"]["error"]["message"].as_str().unwrap().contains(&format!("SIG{signal}")));
        let again = user.agentline(&["replay", "tape", "-o", "events"]);
        assert_eq!(again.code, code);
        assert!(again.out.ends_with(&done.out), "a cancelled run replays identically");
    }
}

#[test]
fn cancelled_run_prints_the_command_that_resumes() {
    let user = User::with_fault("hang_mid_text", r#"{"seconds":100}"#);
    let mut child = user.start(&["run", "hi"]);
    // The answer has begun.
    assert_eq!(child.stdout.as_mut().unwrap().read(&mut [0]).unwrap(), 1);
    kill(&child, "INT");
    let done = wait(child);
    assert_eq!(done.code, 130, "{}", done.err);
    let hint = done.err.lines().find(|line| line.starts_with("hint: ")).unwrap_or_default();
    assert!(hint.starts_with("hint: continue with `agentline run --agent gemini"), "{}", done.err);
    assert!(hint.ends_with("--resume 8fb09d0d-0abb-42a7-a54c-d8506947004f \"continue\"`"), "{}", done.err);
}

#[test]
fn second_signal_ends_immediately() {
    let user = User::with_fault("ignores_signals", r#"{"seconds":100}"#);
    let mut child = user.start(&["run", "-o", "events", "hi"]);
    let started: serde_json::Value = serde_json::from_str(&first_line(&mut child)).unwrap();
    let run_id = started["run_id"].as_str().unwrap().to_owned();
    kill(&child, "INT");
    std::thread::sleep(Duration::from_millis(300));
    kill(&child, "INT");
    let started_at = Instant::now();
    assert_eq!(wait(child).code, 130);
    assert!(started_at.elapsed() < Duration::from_secs(20), "{:?}", started_at.elapsed());
    if cfg!(target_os = "linux") {
        let is_gone = || agentline_tests::survivors(&run_id).is_empty();
        wait_until("the end of the agent", is_gone);
    }
}

/// A stopped supervisor cannot clean up, so it must be resumed.
#[cfg(target_os = "linux")]
#[test]
fn stopped_supervisor_still_cleans_up() {
    let user = User::new();
    let pids = user.path("../pids").to_string_lossy().into_owned();
    let args = serde_json::json!({"seconds": 100, "pid_file": pids}).to_string();
    let user = user.env("FAKE_AGENT_FAULT", "hang_with_children").env("FAKE_AGENT_ARGS", args);
    let mut child = user.start(&["run", "-o", "events", "--timeout", "2", "hi"]);
    assert!(first_line(&mut child).contains("started"));
    let children = format!("/proc/{0}/task/{0}/children", child.id());
    let supervisor = std::fs::read_to_string(children).unwrap();
    assert!(Command::new("kill").args(["-s", "STOP", supervisor.trim()]).status().unwrap().success());
    let done = wait(child);
    assert_eq!(done.code, 8, "{}", done.err);
    let mut left = agentline_tests::running_with(&pids);
    left.extend(
        supervisor
            .trim()
            .parse::<u32>()
            .ok()
            .filter(|pid| std::path::Path::new("/proc").join(pid.to_string()).exists()),
    );
    for pid in &left {
        // Ensures that a failing test leaves nothing behind.
        let _ = Command::new("kill").args(["-s", "CONT", &pid.to_string()]).status();
    }
    assert!(!user.read("../pids").is_empty() && left.is_empty(), "{left:?}");
}

#[test]
fn closed_stdout_ends_the_run_quietly() {
    for form in ["text", "events"] {
        let user = User::with_fault("talks_without_end", r#"{"seconds":100,"interval_ms":10}"#);
        let mut child = user.start(&["run", "-o", form, "hi"]);
        let mut out = BufReader::new(child.stdout.take().unwrap());
        assert!(!out.fill_buf().unwrap().is_empty());
        drop(out);
        let done = wait(child);
        assert_eq!((done.code, done.err.as_str()), (141, ""), "{form}");
    }
    let output = Command::new("sh")
        .args(["-c", "\"$0\" completions bash | head -1", env!("CARGO_BIN_EXE_agentline-under-test")])
        .output();
    assert_eq!(String::from_utf8(output.unwrap().stderr).unwrap(), "");
}

#[cfg(target_os = "linux")]
#[test]
fn blocked_reader_does_not_delay_timeouts() {
    let user = User::with_fault("talks_without_end", r#"{"seconds":100,"interval_ms":1}"#);
    let mut child = user.start(&["run", "-o", "events", "--timeout", "4", "hi"]);
    let started: serde_json::Value = serde_json::from_str(&first_line(&mut child)).unwrap();
    let agent = || agentline_tests::survivors(started["run_id"].as_str().unwrap());
    assert!(!agent().is_empty());
    wait_until("the end of the agent although nothing is read", || agent().is_empty());
    // A reader that then continues still gets everything.
    let done: Done = output_of(child, "the end of the program").into();
    assert_eq!((done.code, &done.lines().pop().unwrap()["outcome"]["verdict"]), (8, &"timed_out".into()));
}
