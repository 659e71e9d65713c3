//! Tests `agentline replay`: identical events and outcome, and a replacement for the agent's program.

use crate::cli::{DEMO_TAPE, user::User};
use std::{fs, process::Command};

#[test]
fn replay_equals_its_run_byte_for_byte() {
    let faults = [
        "ok",
        "garbage_between",
        "invalid_utf8",
        "two_on_a_line",
        "no_last_newline",
        "result_twice",
        "success_lie",
        "interleaved_tools",
        "exit_41",
        "error_events",
        "usual_noise",
        "secret_in_text",
        "no_output",
        "silent_write",
        "wrong_types",
        "unknown_events",
    ];
    for fault in faults {
        let user = User::with_fault(fault, "{}");
        let run = user.agentline(&["run", "--record", "tape", "-o", "events", "hi"]);
        let again = user.agentline(&["replay", "tape", "-o", "events"]);
        assert_eq!(run.out, again.out, "{fault}");
        assert_eq!(run.code, again.code, "{fault}");
    }
}

#[test]
fn replayed_outcome_is_equal_for_both_surfaces_and_cancelled_runs() {
    for (fault, args) in [
        ("ok", &["--surface", "json"][..]),
        ("many_tools", &["--max-tool-calls", "3"]),
        ("hang_mid_text", &["--idle-timeout", "1"]),
    ] {
        let user = User::with_fault(fault, "{}");
        let all: Vec<&str> =
            ["run", "--record", "tape", "-o", "json", "hi"].iter().chain(args).copied().collect();
        let run = user.agentline(&all);
        let again = user.agentline(&["replay", "tape", "-o", "json"]);
        assert_eq!((run.out, run.code), (again.out, again.code), "{fault}");
    }
}

#[test]
fn invalid_tape_is_refused() {
    let user = User::new();
    user.write("not-a-tape", "hello\n");
    let done = user.agentline(&["replay", "not-a-tape"]);
    assert_eq!(
        (done.err.as_str(), done.code),
        ("error: `TAPE`: is not a tape\n  hint: record one with `agentline run --record FILE …`\n", 2)
    );
    assert_eq!(user.agentline(&["replay", "nowhere"]).code, 2);
    let header = fs::read_to_string(DEMO_TAPE).unwrap().lines().next().unwrap().to_owned();
    user.write("only-a-header", &header);
    assert!(user.agentline(&["replay", "only-a-header"]).err.contains("contains no run"));
}

#[test]
fn replay_as_agent_reproduces_output_and_exit_code() {
    let user = User::with_fault("exit_code_after_text", r#"{"code":7}"#);
    user.agentline(&["run", "--record", "tape", "hi"]);
    let replayed = user.agentline_with_input(
        &["replay", "--as", "gemini", "tape", "--", "-o", "stream-json", "-m", "x"],
        &vec![b'p'; 300_000],
    );
    assert_eq!(replayed.code, 7);
    assert!(replayed.lines()[0]["type"] == "init", "{}", replayed.out);
    // The lines are those of the tape.
    let tape: Vec<serde_json::Value> =
        user.read("tape").lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    let channel = |name: &str| -> String {
        let lines = tape.iter().filter(|l| l["ch"] == name);
        lines.map(|l| format!("{}\n", l["text"].as_str().unwrap())).collect()
    };
    assert_eq!((replayed.out, replayed.err), (channel("out"), channel("err")));
}

#[cfg(unix)]
#[test]
fn signal_becomes_an_exit_code() {
    let user = User::with_fault("killed_sigkill", "{}");
    user.agentline(&["run", "--record", "tape", "hi"]);
    assert_eq!(user.agentline(&["replay", "--as", "gemini", "tape"]).code, 128 + 9);
}

#[cfg(unix)]
#[test]
fn generated_program_replaces_the_agent_for_any_tool() {
    let user = User::new();
    let done = user.agentline(&["replay", "--as", "gemini", DEMO_TAPE, "--write-program", "it's gemini"]);
    assert_eq!(done.code, 0, "{}", done.err);
    let program = user.path("it's gemini");
    let output = Command::new(&program).args(["-o", "stream-json", "--anything"]).env_clear().output();
    let output = output.unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert!(String::from_utf8(output.stdout).unwrap().contains(r#""type":"result""#));
    // Agentline is such a tool.
    let user = user.env("GEMINI_CLI_PATH", program.to_string_lossy());
    let done = user.agentline(&["run", "hi"]);
    assert_eq!(done.out, crate::cli::outputs::TEXT, "{}", done.err);
}

#[test]
fn replay_as_another_agent_is_refused() {
    let user = User::new();
    let tape =
        fs::read_to_string(DEMO_TAPE).unwrap().replacen(r#""agent":"gemini""#, r#""agent":"other""#, 1);
    user.write("tape", &tape);
    let done = user.agentline(&["replay", "--as", "gemini", "tape"]);
    assert!(done.err.contains("`--as`") && done.err.contains("--as other"), "{}", done.err);
    assert_eq!(done.code, 2);
    assert_eq!(user.agentline(&["replay", "tape", "--write-program", "x"]).code, 2);
}

#[test]
fn real_time_replay_keeps_the_pauses() {
    let user = User::with_fault("slow_drip", r#"{"interval_ms":2}"#);
    user.agentline(&["run", "--record", "tape", "hi"]);
    let outcome = user.agentline(&["replay", "tape", "-o", "json"]).json();
    let took = u128::from(outcome["first_event_ms"].as_u64().unwrap());
    let started_at = std::time::Instant::now();
    user.agentline(&["replay", "tape", "--real-time"]);
    assert!(started_at.elapsed().as_millis() >= took, "{took}");
}
