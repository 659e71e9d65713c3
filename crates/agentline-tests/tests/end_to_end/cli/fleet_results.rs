//! Tests that workers give the results of a batch on one machine: classes, checks and stored files.

use crate::cli::batch::{batch, left, lines, suite};
use crate::cli::fleet::{BlockedCases, Fleet};
use crate::cli::user::{Done, User};
use agentline_tests::{engines::EngineKind, wait_until};
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    time::{Duration, Instant},
};

const CASES: &str = "workspace: template\nsetup: test -f in.txt\nteardown: test -f in.txt\ncases:\n\
    - {id: good, prompt: \"run cat in.txt > out.txt\\nsay done\", checks: [{contains: done}, \
       {file_contains: {path: out.txt, text: template}}, {only_changed: [out.txt]}, {command: \"cat in.txt; test -f out.txt\"}]}\n\
    - {id: wrong, prompt: \"run rm sub/gone.txt\\nsay something else\", checks: [{equals: done}, {command: \"exit 3\"}]}\n\
    - {id: hidden, hidden: answers, prompt: \"run ls -a . .. > seen.txt\\nsay done\", \
       checks: [{command: \"test -f hidden.txt\"}, {not: {file_contains: {path: seen.txt, text: hidden}}}]}\n\
    - {id: nothing, prompt: \"think only\", checks: [{verdict: empty}]}\n\
    - {id: broken, setup: \"exit 3\", prompt: \"say done\"}\n\
    - {id: judged, prompt: \"say hello\", checks: [{judge: {agent: fake, rubric: 'say {\"passed\": true, \"reason\": \"r\"}'}}]}\n\
    variants: [{id: one}, {id: two, model: other}]\n";

/// Returns what must be the same wherever a run is executed, by case, variant and attempt.
fn facts(user: &User, dir: &str, done: &Done) -> BTreeMap<(String, String, u64), Value> {
    let run = |(key, line): (_, Value)| {
        let keys =
            ["class", "verdict", "kind", "checks", "message", "isolation", "hidden_covered", "not_stored"];
        let mut facts: serde_json::Map<String, Value> =
            keys.iter().map(|key| ((*key).to_owned(), line[key].clone())).collect();
        facts.insert("text".into(), line["outcome"]["text"].clone());
        facts.insert("changed".into(), line["outcome"]["files"].clone());
        facts.insert("files".into(), files(&user.path(dir).join(line["dir"].as_str().unwrap())));
        (key, Value::Object(facts))
    };
    lines(done).into_iter().map(run).collect()
}

/// Returns the stored files of a run, with the content of those that must be the same.
fn files(dir: &Path) -> Value {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let text = fs::read_to_string(&path).unwrap_or_default();
        let content = match name.as_str() {
            "events.jsonl" => {
                let types = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
                let types: BTreeSet<String> = types.map(|event| event["type"].to_string()).collect();
                json!(types)
            }
            "changes.jsonl" | "patch" | "changes.patch" => json!(text),
            _ => json!("exists"),
        };
        found.insert(name, content);
    }
    json!(found)
}

#[test]
fn workers_give_the_results_of_an_embedded_batch() {
    let Some(fleet) = Fleet::start(EngineKind::Postgres) else { return };
    // The workers are there before the first experiment. None is lost, so leases need not be short; on a loaded machine,
    // short ones end.
    let workers = ["2", "1"].map(|slots| fleet.worker_with_lease("1m", &["-j", slots]));
    let user = &fleet.user;
    user.write("template/in.txt", "template\n");
    user.write("template/sub/gone.txt", "x\n");
    user.write("answers/hidden.txt", "secret\n");
    suite(user, CASES);
    let [first, second] = ["first", "second"].map(|dir| fleet.submit(dir, &[]));
    let alone = batch(user, &["-o", "jsonl"]);
    assert_eq!(alone.code, 1, "{}", alone.err);
    let expected = facts(user, "exp", &alone);
    assert_eq!(expected.len(), 12);
    for (dir, submitter) in [("first", first), ("second", second)] {
        let done = submitter.end();
        assert_eq!(done.code, 1, "{}", done.err);
        for (key, facts) in facts(user, dir, &done) {
            assert_eq!(facts, expected[&key], "{dir}: {key:?}");
        }
        assert_eq!(done.out.lines().count(), expected.len());
        let report = |dir: &str| user.agentline(&["report", dir, "-o", "json"]).json();
        let (mut found, mut known) = (report(dir), report("exp"));
        for variants in [&mut found["variants"], &mut known["variants"]] {
            let variants = variants.as_object_mut().unwrap();
            let counts = ["runs", "passed", "failed", "infrastructure", "pass_rate", "interval"];
            variants.values_mut().for_each(|variant| {
                variant.as_object_mut().unwrap().retain(|key, _| counts.contains(&key.as_str()));
            });
        }
        assert_eq!(found["variants"], known["variants"]);
        assert_eq!(fleet.status(dir)["state"], "finished");
    }
    // The results say nothing about how they came about, so `grade` works on them too.
    let graded = user.agentline(&["batch", "grade", "suite.yaml", "--dir", "first"]);
    assert_eq!(graded.code, 1, "{}", graded.err);
    for worker in workers {
        let folder = worker.folder.clone();
        let begun = Instant::now();
        worker.end();
        assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
        wait_until("the end of its agents", || {
            agentline_tests::survivors(&folder.to_string_lossy()).is_empty()
        });
    }
    assert!(left(user).is_empty(), "{:?}", left(user));
}

#[test]
fn worker_executes_one_run_for_two_experiments_at_once() {
    let fleet = Fleet::start(EngineKind::Sqlite).unwrap();
    let [begun, tokens] = ["begun", "tokens"].map(|dir| {
        fs::create_dir(fleet.user.path(dir)).unwrap();
        fleet.user.path(dir).canonicalize().unwrap()
    });
    // Whichever execution takes a token ends.
    let prompt = format!(
        "run echo x > made.txt; mktemp -p '{}'; until rm '{}'/token 2>&-; do sleep 0.02; done\\nsay done",
        begun.display(),
        tokens.display()
    );
    suite(&fleet.user, &format!("cases:\n- {{id: same, prompt: \"{prompt}\"}}\n"));
    let worker = fleet.worker_with_lease("1m", &["-j", "2"]);
    let submitters = ["first", "second"].map(|dir| fleet.submit(dir, &[]));
    wait_until("both executions", || fs::read_dir(&begun).unwrap().count() == 2);
    for ended in 1..=2 {
        fs::write(tokens.join("token"), "").unwrap();
        // The worker prints the result after it has removed what it stored about the run.
        wait_until("a result", || {
            worker.log().matches("same · default · attempt 0: passed").count() == ended
        });
    }
    for (dir, submitter) in ["first", "second"].into_iter().zip(submitters) {
        let done = submitter.end();
        assert_eq!(done.code, 0, "{}", done.err);
        let facts = facts(&fleet.user, dir, &done).into_values().next().unwrap();
        assert_eq!(facts["not_stored"], Value::Null, "{dir}");
        for file in ["events.jsonl", "changes.jsonl"] {
            assert!(!facts["files"][file].is_null(), "{dir}: {facts}");
        }
    }
    worker.end();
}

#[test]
fn worker_that_drains_finishes_its_runs_or_returns_them() {
    let fleet = Fleet::start(EngineKind::Sqlite).unwrap();
    let blocks = BlockedCases::new(&fleet.user);
    suite(&fleet.user, &format!("cases:\n{}{}", blocks.case("a"), blocks.case("b")));
    let mut finishing = fleet.worker(&["-j", "1"]);
    let submitter = fleet.submit("exp", &[]);
    blocks.wait("a", 1);
    finishing.signal("TERM");
    wait_until("the status of the worker", || {
        let status = fleet.status("exp");
        let worker = status["workers"].as_object().unwrap().values().next().cloned();
        worker.is_some_and(|worker| worker["is_draining"] == true)
    });
    assert!(finishing.is_running(), "{}", finishing.log());
    let text = fleet.agentline(&["batch", "status", "exp"]).out;
    assert!(text.contains("draining · 1 of 1 slots") && text.contains("a · default · attempt 0"), "{text}");
    blocks.release("a");
    assert_eq!(finishing.exit().code(), Some(0), "{}", finishing.log());
    wait_until("its result", || submitter.results() == 1);

    let mut signalled = fleet.worker(&["-j", "1"]);
    blocks.wait("b", 1);
    signalled.signal("TERM");
    wait_until("the first signal", || signalled.log().contains("finishing the runs"));
    signalled.signal("TERM");
    assert_eq!(signalled.exit().code(), Some(0), "{}", signalled.log());
    let draining = fleet.worker(&["-j", "1", "--drain", "1s"]);
    blocks.wait("b", 2);
    let log = draining.end();
    assert!(log.contains("b · default · attempt 0: no result here"), "{log}");

    let last = fleet.worker(&[]);
    blocks.wait("b", 3);
    blocks.release("b");
    let done = submitter.end();
    assert_eq!((done.code, done.out.lines().count(), blocks.runs("a")), (0, 2, 1), "{}", done.err);
    // What a worker returns was not lost.
    assert_eq!(fleet.status("exp")["duplicates"], 0);
    last.end();
}

#[test]
fn submitter_attaches_again_and_experiments_are_controlled_by_directory_and_name() {
    let Some(fleet) = Fleet::start(EngineKind::Nats) else { return };
    let blocks = BlockedCases::new(&fleet.user);
    let cases: String = ["a", "b", "c"].map(|case| format!("- {{id: {case}, prompt: say done}}\n")).concat();
    suite(&fleet.user, &format!("cases:\n{cases}{}", blocks.case("last")));
    let worker = fleet.worker(&["-j", "1"]);
    let first = fleet.submit("exp", &[]);
    wait_until("two results", || first.results() >= 2);
    first.interrupt();
    let first = first.end();
    assert_eq!(first.code, 130, "{}", first.err);
    assert!(first.err.contains("the same command attaches again"), "{}", first.err);
    blocks.wait("last", 1);
    let status = fleet.status("exp");
    let name = status["experiment"].as_str().unwrap().to_owned();
    let remain = format!("{} runs remain", 4 - first.out.lines().count());
    assert!(first.err.contains(&remain) && first.err.contains(&name), "{}", first.err);

    // Paused by the name, continued by the directory.
    let paused = fleet.agentline(&["batch", "pause", &name]);
    assert_eq!((paused.code, fleet.status("exp")["state"].as_str()), (0, Some("paused")), "{}", paused.err);
    blocks.release("last");
    let second = fleet.submit("exp", &[]).end();
    assert_eq!(second.code, 0, "what was claimed is finished: {}", second.err);
    let mut all: Vec<_> = lines(&first).into_keys().chain(lines(&second).into_keys()).collect();
    all.sort();
    assert_eq!(all.iter().map(|(case, ..)| case.as_str()).collect::<Vec<_>>(), ["a", "b", "c", "last"]);
    assert_eq!(first.out.lines().count() + second.out.lines().count(), 4, "each result is printed once");
    let third = fleet.submit("exp", &[]).end();
    assert_eq!((third.code, third.out.as_str()), (0, ""), "{}", third.err);

    // A report of the queue is the report of the directory.
    let [by_name, by_dir] = [&*name, "exp"].map(|experiment| {
        let done = fleet.agentline(&["report", experiment, "-o", "csv"]);
        assert_eq!(done.code, 0, "{}", done.err);
        let mut rows: Vec<String> = done.out.lines().map(str::to_owned).collect();
        rows.sort();
        rows
    });
    assert_eq!(by_name, by_dir);
    worker.end();
    control_another(&fleet, &blocks);
    let deleted = fleet.agentline(&["batch", "delete", &name]);
    assert_eq!(deleted.code, 0, "{}", deleted.err);
    let unknown = fleet.agentline(&["batch", "status", &name]);
    assert!(unknown.code == 2 && unknown.err.contains(&name), "{}", unknown.err);
    assert_eq!(fleet.user.agentline(&["report", "exp"]).code, 0, "the directory stays");
}

#[test]
fn experiment_is_deleted_after_its_runs_have_ended() {
    let Some(fleet) = Fleet::start(EngineKind::Sqlite) else { return };
    let blocks = BlockedCases::new(&fleet.user);
    suite(&fleet.user, &format!("cases:\n- {{id: x, prompt: say done}}\n{}", blocks.case("y")));
    // The claim does not end by itself during the test.
    let worker = fleet.worker_with_lease("10m", &["-j", "1"]);
    let submitter = fleet.submit("exp", &[]);
    blocks.wait("y", 1);
    submitter.interrupt();
    assert_eq!(submitter.end().code, 130);
    let deleted = fleet.agentline(&["batch", "delete", "exp"]);
    assert_eq!(deleted.code, 0, "{}", deleted.err);
    assert!(blocks.waiting(&worker).is_empty(), "the run has ended");
    worker.end();
    let address = fleet.engine.address();
    let file = address.strip_prefix("sqlite:").expect("a file");
    let database = rusqlite::Connection::open(file).unwrap();
    for table in ["jobs", "results", "artifacts"] {
        let count = format!("SELECT count(*) FROM {table}");
        let left: i64 = database.query_row(&count, [], |row| row.get(0)).unwrap();
        assert_eq!(left, 0, "{table}");
    }
}

/// Pauses, continues and cancels an experiment while its submitter waits.
fn control_another(fleet: &Fleet, blocks: &BlockedCases) {
    suite(&fleet.user, &format!("cases:\n- {{id: x, prompt: say done}}\n{}", blocks.case("y")));
    let submitter = fleet.submit("other", &[]);
    let experiments = || fleet.agentline(&["batch", "status", "-o", "json"]).lines();
    wait_until("the experiment", || experiments().iter().any(|experiment| experiment["waiting"] == 2));
    let control = |what: &str, experiment: &str| {
        let done = fleet.agentline(&["batch", what, experiment]);
        (done.code, done.err)
    };
    assert_eq!(control("pause", "other").0, 0);
    let worker = fleet.worker(&["-j", "1"]);
    wait_until("the worker's status", || {
        fleet.status("other")["workers"].as_object().is_some_and(|all| !all.is_empty())
    });
    let status = fleet.status("other");
    let counts = ["waiting", "claimed", "finished"].map(|key| status[key].as_u64().unwrap());
    assert_eq!((counts, &status["state"]), ([2, 0, 0], &json!("paused")));
    assert_eq!(control("resume", status["experiment"].as_str().unwrap()).0, 0);
    blocks.wait("y", 1);
    wait_until("the result of the other run", || submitter.results() == 1);
    assert_eq!(control("cancel", "other").0, 0);
    let done = submitter.end();
    assert_eq!((done.code, done.out.lines().count()), (130, 1), "{}", done.err);
    assert!(done.err.contains("cancelled; 1 runs remain"), "{}", done.err);
    wait_until("the end of the cancelled run", || blocks.waiting(&worker).is_empty());
    let (code, message) = control("resume", "other");
    assert!(code == 1 && message.contains("already cancelled"), "{message}");
    // The same command submits what remains.
    blocks.release("y");
    let done = fleet.submit("other", &[]).end();
    assert_eq!((done.code, done.out.lines().count()), (0, 1), "{}", done.err);
    worker.end();
}
