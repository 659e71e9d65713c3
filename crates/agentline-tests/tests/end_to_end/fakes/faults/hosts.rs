//! Tests hosts that end during a run: a dropped run, a dropped runtime, a panic, a signal. Nothing remains.

use crate::fakes::faults::stage::{HeadlessStage, SECRET, nothing_runs};
use agentline::{Event, FailureKind, Run, Surface, Verdict, blocking};
use agentline_tests::{exit_of, survivors, wait_in_runtime, wait_until};
use serde_json::json;
use std::{
    fs,
    os::unix::process::ExitStatusExt as _,
    process::{Child, Command, Stdio},
};
use tokio::runtime::{Builder, Runtime};

/// Faults with all kinds of children. A stubborn agent first gets a chance to exit.
const WITH_CHILDREN: [&str; 2] = ["hang_with_children", "stubborn_with_children"];

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("a runtime")
}

/// Starts a run and waits until its agent has started its children.
async fn start_run(stage: &HeadlessStage, fault: &str) -> Run {
    let args = json!({"pid_file": true, "stubborn": fault.starts_with("stubborn")});
    let request = stage.request(Surface::StreamJson, fault, &args);
    let mut run = stage.agentline().run(request).await.expect("the request is valid");
    while let Some(record) = run.next().await {
        if matches!(record.event, Event::Text { .. }) {
            return run;
        }
    }
    panic!("the run ended before it started");
}

#[test]
fn dropped_run_leaves_nothing_running() {
    for fault in WITH_CHILDREN {
        let stage = HeadlessStage::new();
        runtime().block_on(async {
            let run = start_run(&stage, fault).await;
            let id = run.id().to_owned();
            assert!(!survivors(&id).is_empty());
            drop(run);
            // The runtime continues, and the run ends on its own.
            wait_in_runtime(&format!("{fault}: the end of the processes"), || survivors(&id).is_empty())
                .await;
        });
        stage.no_child_lives();
    }
}

#[test]
fn dropped_runtime_leaves_nothing_running() {
    for fault in WITH_CHILDREN {
        let stage = HeadlessStage::new();
        let first = runtime();
        let mut run = first.block_on(start_run(&stage, fault));
        drop(first);
        nothing_runs(run.id());
        stage.no_child_lives();
        // A caller that still holds the run is notified.
        let records = runtime().block_on(async {
            let mut records = Vec::new();
            while let Some(record) = run.next().await {
                records.push(record);
            }
            records
        });
        let Some(Event::Outcome { outcome }) = records.last().map(|r| &r.event) else {
            panic!("no outcome: {records:?}")
        };
        assert_eq!(outcome.verdict, Verdict::Failed);
        assert_eq!(outcome.error.as_ref().map(|e| e.kind), Some(FailureKind::Crashed));
    }
}

#[test]
fn panicking_consumer_leaves_nothing_running() {
    for fault in WITH_CHILDREN {
        let stage = HeadlessStage::new();
        let args = json!({"pid_file": true, "stubborn": fault.starts_with("stubborn")});
        let request = stage.request(Surface::StreamJson, fault, &args);
        let agentline = stage.agentline();
        let (id, receiver) = std::sync::mpsc::channel();
        let panicked = std::thread::spawn(move || {
            blocking::run(&agentline, request, |record, _| match &record.event {
                Event::Started(started) => id.send(started.run_id.clone()).expect("the test waits"),
                Event::Text { .. } => std::panic::resume_unwind(Box::new("as planned")),
                _ => {}
            })
        });
        assert!(panicked.join().is_err(), "the panic is propagated");
        nothing_runs(&receiver.recv().expect("the run started"));
        stage.no_child_lives();
    }
}

/// Starts the command-line program, with its agent and all children running.
fn program(stage: &HeadlessStage, fault: &str) -> Child {
    let args = json!({"pid_file": stage.pids(), "stubborn": fault.starts_with("stubborn")});
    let mut command = Command::new(env!("CARGO_BIN_EXE_agentline-under-test"));
    command.args(["run", "-o", "json", "What is 2 + 2?"]).env_clear().envs(&stage.agentline().host_env().env);
    command.env("GEMINI_CLI_PATH", env!("CARGO_BIN_EXE_fake-gemini")).env("GEMINI_API_KEY", SECRET);
    command.env("FAKE_AGENT_FAULT", fault).env("FAKE_AGENT_ARGS", args.to_string());
    command.env("AGENTLINE_PASS_ENV", "FAKE_AGENT_FAULT,FAKE_AGENT_ARGS").current_dir(stage.workspace());
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let child = child.expect("the program starts");
    let started = || fs::read_to_string(stage.pids()).map_or(0, |pids| pids.lines().count());
    wait_until("three children", || started() >= 3);
    child
}

#[test]
fn signal_to_the_program_leaves_nothing_running() {
    for fault in WITH_CHILDREN {
        for (signal, code) in [("INT", Some(130)), ("TERM", Some(143)), ("KILL", None)] {
            let stage = HeadlessStage::new();
            let mut child = program(&stage, fault);
            let sent = Command::new("kill").args(["-s", signal, &child.id().to_string()]).status();
            assert!(sent.expect("`kill` is available").success());
            let ended = exit_of(&mut child, &format!("{fault}: the end of the program after SIG{signal}"));
            assert_eq!(ended.code(), code, "{fault}: {signal}");
            assert_eq!(ended.signal(), code.is_none().then_some(9), "{fault}: {signal}");
            // Every process of this run has the test's directory in its environment.
            nothing_runs(&stage.pids().to_string_lossy());
            stage.no_child_lives();
        }
    }
}
