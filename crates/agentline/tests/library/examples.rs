//! Checks that every example runs to completion with the real agent.

use std::{path::PathBuf, process::Command};

/// The name of each example and a text that it must print.
const EXAMPLES: &[(&str, &str)] = &[
    ("one_prompt", "done: Done."),
    ("live_events", "cancelled: "),
    ("workflow_provider", "\"response\": "),
    ("replay_tape", "played again: done"),
    ("acp_basic", "done: Done."),
    ("acp_custom_env", "done: Done."),
    ("acp_structured", "done: 9 of 10: Small and clear. [\"no test\"]"),
];

fn built(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("this test");
    test.parent().and_then(|deps| deps.parent()).expect("the build directory").join("examples").join(name)
}

#[test]
fn every_example_runs_to_completion() {
    if std::env::var("AGENTLINE_REAL_AGENTS").is_ok_and(|v| v == "off") {
        assert!(std::env::var("CI").is_err(), "AGENTLINE_REAL_AGENTS=off is refused if CI=true");
        return;
    }
    // `cargo test` has built them already, unless only this file was requested.
    let build = Command::new(env!("CARGO")).args(["build", "-q", "-p", "agentline", "--examples"]).status();
    assert!(build.expect("cargo").success());
    for (name, text) in EXAMPLES {
        let output = Command::new(built(name)).output().expect("a built example");
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success() && out.contains(text), "{name}: {out}\n{err}");
    }
}
