//! Tests retries and fallback models with a fake agent: cold, in a pool, on the command line and in a host.

use agentline::{Event, Outcome, Pool, PoolOptions, Record, Run, RunRequest, Surface, Verdict};
use agentline_tests::{FakeStage, shown};
use serde_json::Value;
use std::{
    fs,
    process::Command,
    time::{Duration, Instant},
};

const FALLBACK: &str = "gemini-2.5-pro";
const EXHAUSTED: &str = "You have exhausted your daily quota on this model.";

fn stage() -> FakeStage {
    FakeStage::new(env!("CARGO_BIN_EXE_fake-acp"))
}

/// Returns a run over ACP.
fn request(stage: &FakeStage, script: &str) -> RunRequest {
    stage.request(script).surface(Surface::Acp)
}

/// Returns a script that is refused the first `times`, and the file that counts the attempts.
fn refused(stage: &FakeStage, times: u32, message: &str, then: &str) -> String {
    format!("refused {times} {} {message}\n{then}", stage.path().join("refusals").display())
}

fn attempts(stage: &FakeStage) -> usize {
    fs::read(stage.path().join("refusals")).map_or(0, |bytes| bytes.len())
}

async fn collect(mut run: Run) -> (Vec<Record>, Outcome) {
    let (id, mut records) = (run.id().to_owned(), Vec::new());
    while let Some(record) = run.next().await {
        records.push(record);
    }
    let Some(Event::Outcome { outcome }) = records.last().map(|record| record.event.clone()) else {
        panic!("{records:?}");
    };
    assert_eq!(outcome.run_id, id, "all attempts are one run");
    (records, *outcome)
}

/// Asserts that the attempts are one sequence of events with one outcome.
fn assert_joined(records: &[Record], outcome: &Outcome) {
    let numbers: Vec<u32> = records.iter().map(|record| record.seq).collect();
    assert_eq!(numbers, (1..=records.len() as u32).collect::<Vec<_>>());
    assert!(records.is_sorted_by_key(|record| record.at_ms), "{records:?}");
    let of_type = |word: &str| records.iter().filter(|record| record.event.type_word() == word).count();
    assert_eq!((of_type("started"), of_type("retry"), of_type("outcome")), (2, 1, 1), "{records:?}");
    for record in records {
        if let Event::Started(started) = &record.event {
            assert_eq!(started.run_id, outcome.run_id);
        }
    }
}

#[tokio::test]
async fn a_refused_run_is_retried_after_a_wait_and_is_one_run() {
    let stage = stage();
    let script = refused(&stage, 1, "Too many requests", "say at last\nusage 100 20");
    let started_at = Instant::now();
    let run = stage.agentline().run(request(&stage, &script).retries(2)).await.unwrap();
    let (records, outcome) = collect(run).await;
    assert_eq!((outcome.verdict, outcome.text.as_str()), (Verdict::Done, "at last"), "{}", shown(&outcome));
    assert_eq!((outcome.attempts, attempts(&stage)), (Some(2), 2), "{}", shown(&outcome));
    assert_joined(&records, &outcome);
    let waited = records.iter().find_map(|record| match &record.event {
        Event::Retry { attempt: 2, wait_ms, reason, model: None } if reason.contains("Too many") => {
            Some(*wait_ms)
        }
        _ => None,
    });
    let waited = waited.unwrap_or_else(|| panic!("{records:?}"));
    assert!(waited >= 1000 && outcome.duration_ms >= waited, "{waited} {}", shown(&outcome));
    assert!(started_at.elapsed() >= Duration::from_millis(waited));
    // The same on a pool, whose process serves both attempts.
    fs::remove_file(stage.path().join("refusals")).unwrap();
    let pool = Pool::new(stage.agentline(), PoolOptions::default());
    let outcome = pool.run(request(&stage, &script).retries(1)).await.unwrap().outcome().await;
    assert_eq!((outcome.text.as_str(), outcome.attempts), ("at last", Some(2)), "{}", shown(&outcome));
    assert_eq!(pool.status().started, 1);
    pool.close().await;
}

#[tokio::test]
async fn a_run_without_options_is_not_retried_and_other_models_are_tried_at_once() {
    let stage = stage();
    let script = refused(&stage, 1, EXHAUSTED, "say second model");
    let plain = stage.agentline().run(request(&stage, &script)).await.unwrap().outcome().await;
    assert_eq!((plain.verdict, plain.attempts), (Verdict::RateLimited, None), "{}", shown(&plain));
    assert_eq!(attempts(&stage), 1);
    fs::remove_file(stage.path().join("refusals")).unwrap();
    let other = request(&stage, &script).fallback_model(FALLBACK).retries(3);
    let (records, outcome) = collect(stage.agentline().run(other).await.unwrap()).await;
    assert_eq!((outcome.verdict, outcome.attempts), (Verdict::Done, Some(2)), "{}", shown(&outcome));
    assert_joined(&records, &outcome);
    assert!(
        records.iter().any(|record| matches!(
            &record.event,
            Event::Retry { wait_ms: 0, model: Some(model), .. } if model == FALLBACK
        )),
        "an exhausted quota is not waited for: {records:?}"
    );
}

#[tokio::test]
async fn a_run_that_changed_files_is_retried_only_on_request() {
    let stage = stage();
    let script = format!("tool write_file half.txt half\n{}", refused(&stage, 1, EXHAUSTED, "say done"));
    let refusing = || request(&stage, &script).fallback_model(FALLBACK);
    let run = async |request: RunRequest| stage.agentline().run(request).await.unwrap().outcome().await;
    let outcome = run(refusing()).await;
    assert_eq!((outcome.verdict, outcome.attempts), (Verdict::RateLimited, None), "{}", shown(&outcome));
    assert_eq!(attempts(&stage), 1, "{}", shown(&outcome));
    fs::remove_file(stage.path().join("refusals")).unwrap();
    fs::remove_file(stage.workspace().join("half.txt")).unwrap();
    let outcome = run(refusing().retry_after_changes(true)).await;
    assert_eq!((outcome.verdict, outcome.attempts), (Verdict::Done, Some(2)), "{}", shown(&outcome));
    assert_eq!(outcome.files.iter().map(|row| &*row.path).collect::<Vec<_>>(), ["half.txt"]);
    assert_eq!(outcome.tool_calls, 2, "of both attempts: {}", shown(&outcome));
}

#[tokio::test]
async fn a_run_can_be_cancelled_while_it_waits() {
    let stage = stage();
    let script = refused(&stage, 9, "Please retry in 100s", "say never");
    let mut run = stage.agentline().run(request(&stage, &script).retries(9)).await.unwrap();
    while let Some(record) = run.next().await {
        if matches!(record.event, Event::Retry { .. }) {
            break;
        }
    }
    run.cancel();
    let outcome = run.outcome().await;
    assert_eq!(outcome.verdict, Verdict::Cancelled, "{}", shown(&outcome));
    let message = &outcome.error.as_ref().unwrap().message;
    assert!(message.contains("before attempt 2") && message.contains("100s"), "{message}");
    assert_eq!(attempts(&stage), 1);
}

/// A conversation is not retried, which its prompts say.
#[tokio::test]
async fn a_prompt_of_a_conversation_is_not_retried() {
    let stage = stage();
    let session = stage.agentline().session(request(&stage, "say hi").retries(2)).await.unwrap();
    let outcome = session.prompt("error 429 Too many requests").await.unwrap().outcome().await;
    assert_eq!((outcome.verdict, outcome.attempts), (Verdict::RateLimited, None), "{}", shown(&outcome));
    assert!(outcome.warnings.iter().any(|warning| warning.code == "not_retried"), "{}", shown(&outcome));
    session.close().await;
}

#[test]
fn the_command_line_retries_cold_and_warm() {
    let stage = stage();
    let agentline = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_agentline-under-test"));
        command.args(args).env_clear().envs(stage.variables()).current_dir(stage.workspace());
        let done = command.output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (done.status.code(), text(done.stdout), text(done.stderr))
    };
    let script = refused(&stage, 1, EXHAUSTED, "say second model");
    let run = |flags: &[&str]| {
        let _ = fs::remove_file(stage.path().join("refusals"));
        let common = ["run", "--surface", "acp", "--permission-mode", "bypass", "--fallback-model", FALLBACK];
        agentline(&[&common, flags, &[script.as_str()]].concat())
    };
    let (code, out, err) = run(&[]);
    assert_eq!((code, out.as_str()), (Some(0), "second model\n"), "{err}");
    assert!(err.contains(&format!("starting attempt 2 with {FALLBACK}")), "{err}");
    assert_eq!(agentline(&["pool", "start"]).0, Some(0));
    for flags in [["-o", "events"].as_slice(), &["-o", "events", "--warm"]] {
        let (code, out, err) = run(flags);
        assert_eq!(code, Some(0), "{flags:?} {out} {err}");
        let events: Vec<Value> = out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let retry = events.iter().find(|event| event["type"] == "retry").unwrap_or_else(|| panic!("{out}"));
        assert_eq!((&retry["attempt"], &retry["model"]), (&2.into(), &FALLBACK.into()), "{flags:?}");
        assert_eq!(events.last().unwrap()["outcome"]["attempts"], 2, "{flags:?} {out}");
    }
    assert_eq!(agentline(&["pool", "stop"]).0, Some(0));
}
