//! Runs a suite with the real Gemini CLI on workers with their own homes, of which some are killed, and compares the
//! results with those of a batch on one machine. Where this user may, each worker has its own network namespace.
//!
//! `AGENTLINE_FLEET_CASES` and `AGENTLINE_FLEET_WORKERS` are the numbers of cases and workers; half of the workers are
//! killed.

use crate::cli::fleet::{Submitter, Worker};
use agentline_mock::{
    agents::ServedRequest,
    answer::{Action, Answer},
};
use agentline_tests::{
    ScriptedStage,
    engines::nats::{NATS, NatsServer},
    in_network_namespace, skipped, wait_until,
};
use serde_json::{Value, json};
use std::{
    cell::Cell,
    collections::BTreeMap,
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    process::Command,
    time::Instant,
};

const AGENTLINE: &str = env!("CARGO_BIN_EXE_agentline-under-test");

/// Returns a number of the environment.
fn number(name: &str, default: usize) -> usize {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}

/// Answers as a model that solves the tasks, except for every fifth one. The first task takes as long as a file exists.
fn answer(request: &ServedRequest, marks: &Path) -> Answer {
    let task =
        request.user_texts.iter().find_map(|text| text.split_once("Write the number ")?.1.split('.').next());
    let Some(task) = task.filter(|_| request.is_turn) else { return Answer::text("A title") };
    match (task, request.tool_results.len()) {
        ("0", 0) => {
            let (begun, block) = (marks.join("begun"), marks.join("block"));
            let (begun, block) = (begun.display(), block.display());
            let command = format!(
                "echo $HOME >> {begun}; while test -e {block}; do sleep 0.05; done; echo 0 > out.txt"
            );
            Answer::using(Action::shell(command))
        }
        (task, 0) if task.ends_with(['4', '9']) => Answer::text(format!("I will not write {task}.")),
        (task, 0) => Answer::using(Action::shell(format!("echo {task} > out.txt"))),
        (task, _) => Answer::text(format!("Done with {task}.")),
    }
}

fn write_suite(dir: &Path, cases: usize) -> PathBuf {
    fs::create_dir_all(dir.join("template")).unwrap();
    fs::create_dir_all(dir.join("hidden")).unwrap();
    fs::write(dir.join("template/in.txt"), "template\n").unwrap();
    let case = |number: usize| {
        fs::write(dir.join(format!("hidden/expected-{number}.txt")), format!("{number}\n")).unwrap();
        json!({
            "id": format!("c{number:03}"),
            "prompt": format!("Write the number {number}."),
            "hidden": format!("hidden/expected-{number}.txt"),
            "checks": [
                {"command": format!("diff out.txt expected-{number}.txt")},
                {"contains": format!("Done with {number}.")},
                {"only_changed": ["out.txt"]},
            ],
        })
    };
    let suite = json!({
        "name": "numbers",
        "defaults": {"agent": "gemini", "permission_mode": "bypass"},
        "workspace": "template",
        "cases": (0..cases).map(case).collect::<Vec<_>>(),
    });
    let path = dir.join("suite.json");
    fs::write(&path, suite.to_string()).unwrap();
    path
}

/// Returns the class, the checks and the answer of each case.
fn facts(lines: &str) -> BTreeMap<String, Value> {
    let lines = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let fact = |line: Value| {
        let keys = ["class", "verdict", "checks", "hidden_covered"];
        let mut facts: Vec<Value> = keys.iter().map(|key| line[key].clone()).collect();
        facts.push(line["outcome"]["text"].clone());
        (line["case"].as_str().unwrap().to_owned(), json!(facts))
    };
    lines.map(fact).collect()
}

#[test]
fn killed_workers_change_no_result_of_the_real_agent() {
    let (cases, count) = (number("AGENTLINE_FLEET_CASES", 20), number("AGENTLINE_FLEET_WORKERS", 2));
    let marks = tempfile::tempdir().unwrap();
    let marks = marks.path().canonicalize().unwrap();
    let stage = || {
        let marks = marks.clone();
        ScriptedStage::new("gemini", move |request| answer(request, &marks))
    };
    let Some(submitter) = stage() else { return skipped("the real agent on several workers") };
    let Some(server) = NatsServer::start(NATS) else { return };
    let suite = write_suite(&marks.join("suite"), cases);
    let agentline = |stage: &ScriptedStage, args: &[&str]| -> Command {
        let mut command = stage.command(Path::new(AGENTLINE));
        command.args(args);
        command
    };
    let batch = |dir: &str, flags: &[&str]| {
        let mut command =
            agentline(&submitter, &["batch", suite.to_str().unwrap(), "-o", "jsonl", "--dir", dir]);
        if let Some(model) = submitter.agent.model {
            command.args(["-m", model]);
        }
        command.args(flags);
        Submitter::start(command, &submitter.path().join(dir))
    };
    let begun = Instant::now();
    let alone = batch("alone", &["-j", "2"]).end();
    assert_eq!(alone.code, 1, "{}", alone.err);
    let alone_took = begun.elapsed();

    let (begun, block) = (marks.join("begun"), marks.join("block"));
    fs::write(&begun, "").unwrap();
    fs::write(&block, "").unwrap();
    let queue = server.url();
    let stages: Vec<_> = (0..count).map(|_| stage().unwrap()).collect();
    let namespaces = Cell::new(0);
    let start = |stage: &ScriptedStage| {
        let start = || {
            let command = agentline(stage, &["worker", "--queue", &queue, "--lease", "2s", "-j", "1"]);
            Worker::start(command, &[], &stage.path().canonicalize().unwrap())
        };
        let model = stage.model.url().rsplit(':').next().unwrap().parse().unwrap();
        let worker = in_network_namespace(&[server.port(), model], start);
        namespaces.set(namespaces.get() + usize::from(worker.is_some()));
        worker.unwrap_or_else(start)
    };
    let mut workers: Vec<Worker> = stages.iter().map(start).collect();
    let started = Instant::now();
    let fleet = batch("fleet", &["--queue", &queue, "--max-claims", &(count + 1).to_string()]);
    // The workers that execute the first case are killed, one after another.
    for kill in 1..=count / 2 {
        wait_until("the first case", || fs::read_to_string(&begun).unwrap().lines().count() == kill);
        let homes = fs::read_to_string(&begun).unwrap();
        let home = homes.lines().last().unwrap().to_owned();
        let position =
            workers.iter().position(|worker| Path::new(&home).starts_with(&worker.folder)).unwrap();
        let mut killed = workers.remove(position);
        killed.kill();
        wait_until("the end of its agents", || killed.processes().is_empty());
    }
    fs::remove_file(&block).unwrap();
    let done = fleet.end();
    let took = started.elapsed();
    assert_eq!(done.code, 1, "{}", done.err);
    let (found, expected) = (facts(&done.out), facts(&alone.out));
    assert_eq!((found.len(), done.out.lines().count()), (cases, cases));
    assert_eq!(found, expected);
    let status = agentline(&submitter, &["batch", "status", "fleet", "-o", "json", "--queue", &queue]);
    let status = { status }.output().unwrap();
    let status: Value = serde_json::from_slice(&status.stdout).unwrap();
    assert_eq!(status["duplicates"], count / 2, "{status:#}");
    for worker in workers {
        worker.end();
    }
    // A print macro would be captured by the test runner.
    let _ = writeln!(
        std::io::stderr(),
        "{cases} cases: {alone_took:.1?} on one machine with 2 jobs, {took:.1?} on {count} workers ({} in a network \
         namespace), of which {} were killed; the same cases, classes and checks; {} executions were repeated",
        namespaces.get(),
        count / 2,
        status["duplicates"]
    );
}
