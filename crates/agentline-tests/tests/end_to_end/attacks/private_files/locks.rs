//! Checks that a private directory is removed only when its owner has exited, even by runs in another pid
//! namespace.

use agentline_tests::{FakeStage, exit_of, skipped, survivors, wait_until};
use std::{
    fs,
    path::PathBuf,
    process::{Child, Command, Stdio},
};

/// Runs a program in its own pid namespace, in which our process ids are invalid.
const OTHER_NAMESPACE: [&str; 3] = ["unshare", "-Urpf", "--mount-proc"];

fn agentline(stage: &FakeStage, before: &[&str], script: &str) -> Command {
    let args = ["run", "--surface", "acp", "--quiet-period", "0", "--permission-mode", "bypass"];
    let launcher: Vec<&str> =
        before.iter().copied().chain([env!("CARGO_BIN_EXE_agentline-under-test")]).collect();
    let mut command = Command::new(launcher[0]);
    command.args(&launcher[1..]).args(args).args(["--pass-env", "MARK_OF_THE_TEST", script]);
    command.env_clear().envs(stage.variables()).current_dir(stage.workspace());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn private_directories(stage: &FakeStage) -> Vec<PathBuf> {
    let all = fs::read_dir(stage.path().join("tmp")).into_iter().flatten().flatten().map(|e| e.path());
    all.filter(|path| path.to_string_lossy().contains("agentline-run-")).collect()
}

/// Starts a run that continues until it is stopped, and returns it with its private directory.
fn endless_run(stage: &FakeStage) -> (Child, PathBuf) {
    let at_work = stage.workspace().join("at-work");
    let script = "run touch at-work\nhang";
    let run = agentline(stage, &[], script).spawn().expect("it starts");
    wait_until("the agent is at work", || at_work.exists());
    let directories = private_directories(stage);
    assert_eq!(directories.len(), 1, "{directories:?}");
    (run, directories[0].clone())
}

#[track_caller]
fn assert_hello(command: &mut Command) {
    let done = command.output().expect("it starts");
    assert!(done.status.success(), "{done:?}");
    assert_eq!(String::from_utf8_lossy(&done.stdout).trim(), "hello", "{done:?}");
}

fn signal(signal: &str, pids: &[u32]) {
    let pids = pids.iter().map(u32::to_string);
    let _ = Command::new("kill").arg(signal).args(pids).stderr(Stdio::null()).status();
}

#[test]
fn run_in_another_pid_namespace_keeps_a_live_directory() {
    let may = Command::new(OTHER_NAMESPACE[0]).args(&OTHER_NAMESPACE[1..]).arg("true").output();
    if !may.is_ok_and(|output| output.status.success()) {
        return skipped("this system permits no pid namespaces");
    }
    let stage = FakeStage::new(env!("CARGO_BIN_EXE_fake-acp"));
    let (mut run, directory) = endless_run(&stage);
    assert_hello(&mut agentline(&stage, &OTHER_NAMESPACE, "say hello"));
    assert!(
        directory.join("given").exists(),
        "the run in the other namespace removed {}",
        directory.display()
    );
    signal("-TERM", &[run.id()]);
    exit_of(&mut run, "the end of the run");
    assert_eq!(private_directories(&stage), Vec::<PathBuf>::new());
}

#[test]
fn directory_of_a_killed_run_is_removed_by_the_next_run() {
    let stage = FakeStage::new(env!("CARGO_BIN_EXE_fake-acp"));
    let (mut run, directory) = endless_run(&stage);
    // All at once, so that none of them can clean up.
    let mut all = survivors(&stage.mark());
    all.push(run.id());
    signal("-KILL", &all);
    exit_of(&mut run, "the end of a killed run");
    wait_until("nothing is left running", || survivors(&stage.mark()).is_empty());
    assert_hello(&mut agentline(&stage, &[], "say hello"));
    assert!(!directory.exists(), "{}", directory.display());
}

#[test]
fn supervisor_removes_the_directory_of_a_killed_agentline() {
    let stage = FakeStage::new(env!("CARGO_BIN_EXE_fake-acp"));
    let (mut run, directory) = endless_run(&stage);
    run.kill().expect("the process was killed");
    exit_of(&mut run, "the end of a killed run");
    wait_until("the supervisor removes the directory", || !directory.exists());
    wait_until("nothing is left running", || survivors(&stage.mark()).is_empty());
}
