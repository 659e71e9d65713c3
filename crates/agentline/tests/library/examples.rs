//! Checks that every example runs to completion with the real agent.

use std::{path::PathBuf, process::Command};

/// The name of each example and a text that it must print.
const EXAMPLES: &[(&str, &str)] = &[
    ("minimal", "done: "),
    ("one_prompt", "done: Done."),
    ("live_events", "cancelled: "),
    ("workflow_provider", "\"response\": "),
    ("replay_tape", "played again: done"),
    ("acp_basic", "done: Done."),
    ("acp_custom_env", "done: Done."),
    ("acp_structured", "done: 9 of 10: Small and clear. [\"no test\"]"),
];

#[test]
fn example_without_features_drives_an_agent() {
    let output = Command::new(built("minimal")).output().expect("a built example");
    assert!(output.status.success(), "{output:?}");
    assert!(output.stdout.starts_with(b"done: "), "{output:?}");
}

/// Kills the program of an example while its agent hangs, and waits until nothing of it is left.
#[cfg(target_os = "linux")]
#[test]
fn killed_example_leaves_no_process() {
    use std::{
        fs,
        process::Stdio,
        time::{Duration, Instant},
    };
    let dir = tempfile::tempdir().expect("a temporary directory");
    let program = dir.path().join("minimal");
    fs::copy(built("minimal"), &program).expect("a copy of the example");
    let running = || {
        let pids = fs::read_dir("/proc").into_iter().flatten().flatten();
        let is_ours = |pid: &fs::DirEntry| {
            let target = fs::read_link(pid.path().join("exe"));
            target.is_ok_and(|target| target.starts_with(dir.path()))
        };
        pids.filter(is_ours).count()
    };
    let wait = |count: &dyn Fn(usize) -> bool| {
        let until = Instant::now() + Duration::from_secs(30);
        while !count(running()) {
            assert!(Instant::now() < until, "{} processes are running", running());
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    let mut host = Command::new(&program)
        .env("FAKE_AGENT_FAULT", "hang_with_tool")
        .stdout(Stdio::null())
        .spawn()
        .expect("the example");
    // The host, its supervisor, the init and the agent.
    wait(&|running| running >= 4);
    host.kill().expect("a running host");
    host.wait().expect("a dead host");
    wait(&|running| running == 0);
}

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
