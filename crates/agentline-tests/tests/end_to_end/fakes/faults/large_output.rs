//! Tests long lines, many events and slow readers: nothing is lost, and memory stays bounded.

use crate::fakes::faults::stage::{EXISTING_FILE, HeadlessStage, SECRET};
use agentline::{Event, FailureKind, Surface, Verdict, blocking};
use serde_json::json;
use std::{
    fs,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

#[test]
fn oversized_line_is_reported_with_its_length_and_the_run_continues() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    for surface in [Surface::StreamJson, Surface::Json] {
        let stage = HeadlessStage::new();
        let mut request = stage.request(surface, "huge_line", &json!({"bytes": 2_000_000}));
        request.max_line_bytes = 1_000_000;
        let played = runtime.block_on(stage.play(request));
        let (_, length) = played.unreadable()[0];
        assert!((2_000_000..2_000_200).contains(&length), "{length}");
        if surface == Surface::Json {
            // The line was the answer, so no valid document remains.
            assert_eq!(played.outcome.error.as_ref().map(|e| e.kind), Some(FailureKind::NoResult));
        } else {
            assert_eq!(played.outcome.verdict, Verdict::Done);
            assert_eq!((played.outcome.text.as_str(), played.outcome.unreadable_lines), ("All done. 4", 1));
        }
    }
}

#[test]
fn endless_line_is_reported_as_one_unreadable_line() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let stage = HeadlessStage::new();
    let mut request = stage.request(Surface::StreamJson, "endless_line", &json!({"bytes": 100_000_000}));
    request.max_line_bytes = 1_000_000;
    let played = runtime.block_on(stage.play(request));
    assert_eq!(played.unreadable(), [(3, 100_000_000)]);
    assert_eq!(played.outcome.error.as_ref().map(|e| e.kind), Some(FailureKind::NoResult));
}

/// Many times more than a pipe and all buffers hold.
const MANY: usize = 16_000;
/// The idle timeout: long enough for an agent that starts on a busy machine.
const IDLE: Duration = Duration::from_secs(4);
/// After this many events, the consumer pauses for longer than the idle timeout.
const PAUSE_AFTER: usize = 8_000;

#[test]
fn sleeping_consumer_loses_nothing_and_causes_no_idle_timeout() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let stage = HeadlessStage::new();
    let request = stage.request(Surface::StreamJson, "million_events", &json!({"count": MANY}));
    let request = request.idle_timeout(IDLE);
    runtime.block_on(async {
        let mut run = stage.agentline().run(request).await.expect("the request is valid");
        let (mut texts, mut outcome) = (0, None);
        while let Some(record) = run.next().await {
            match record.event {
                Event::Text { text } => {
                    assert_eq!(text, "x");
                    texts += 1;
                    if texts % PAUSE_AFTER == 1 {
                        tokio::time::sleep(IDLE + Duration::from_secs(1)).await;
                    }
                }
                Event::Outcome { outcome: last } => outcome = Some(last),
                _ => {}
            }
        }
        let outcome = outcome.expect("an outcome");
        assert_eq!((outcome.verdict, texts, outcome.text.len()), (Verdict::Done, MANY, MANY));
    });
}

#[test]
fn consumer_blocking_the_only_thread_loses_nothing() {
    let stage = HeadlessStage::new();
    let request = stage.request(Surface::StreamJson, "million_events", &json!({"count": MANY}));
    let request = request.idle_timeout(IDLE);
    let mut texts = 0;
    let outcome = blocking::run(&stage.agentline(), request, |record, _| {
        if matches!(record.event, Event::Text { .. }) {
            texts += 1;
            if texts % PAUSE_AFTER == 1 {
                std::thread::sleep(IDLE + Duration::from_secs(1));
            }
        }
    });
    let outcome = outcome.expect("the request is valid");
    assert_eq!((outcome.verdict, texts, outcome.text.len()), (Verdict::Done, MANY, MANY));
}

/// Runs the command-line program with a fault and returns its peak memory in bytes.
#[expect(clippy::print_stdout, reason = "a test prints its measurements")]
fn memory_of(fault: &str, args: &serde_json::Value, output: &str) -> u64 {
    let stage = HeadlessStage::new();
    let mut command = Command::new(env!("CARGO_BIN_EXE_agentline-under-test"));
    command.args(["run", "-o", output, "What is 2 + 2?"]).env_clear().envs(&stage.agentline().host_env().env);
    command.env("GEMINI_CLI_PATH", env!("CARGO_BIN_EXE_fake-gemini")).env("GEMINI_API_KEY", SECRET);
    command.env("FAKE_AGENT_FAULT", fault).env("FAKE_AGENT_ARGS", args.to_string());
    command.env("AGENTLINE_PASS_ENV", "FAKE_AGENT_FAULT,FAKE_AGENT_ARGS").current_dir(stage.workspace());
    let began = Instant::now();
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the program starts");
    let mut largest = 0;
    let ended = loop {
        if let Some(ended) = child.try_wait().expect("it is our child") {
            break ended;
        }
        let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = line.and_then(|l| l.split_whitespace().next()).and_then(|n| n.parse::<u64>().ok());
        largest = largest.max(kib.unwrap_or(0) << 10);
        std::thread::sleep(Duration::from_millis(2));
    };
    println!("{fault} {args}: {} MB, {:?}", largest >> 20, began.elapsed());
    assert_eq!(ended.code(), Some(0), "{fault}");
    assert_eq!(
        fs::read_to_string(stage.workspace().join(EXISTING_FILE.0)).ok().as_deref(),
        Some(EXISTING_FILE.1)
    );
    largest
}

#[test]
fn memory_depends_on_the_answer_not_the_output() {
    // About ten million bytes of lines; the answer in them is one byte each. As records, they are ninety million bytes.
    let many = memory_of("million_events", &json!({"count": 100_000}), "events");
    assert!(many < 80 << 20, "{many} bytes for 100,000 events");
    let unreadable = memory_of("many_unreadable", &json!({"count": 100_000}), "events");
    assert!(unreadable < 80 << 20, "{unreadable} bytes for 100,000 lines that cannot be read");
    // A line is held while it is read, and its text while it is reported: a few times its length, not more.
    let garbage = memory_of("huge_garbage_line", &json!({"bytes": 20_000_000}), "json");
    assert!(garbage < 120 << 20, "{garbage} bytes for a line of 20 MB that is not JSON");
    let long = memory_of("huge_line", &json!({"bytes": 10_000_000}), "json");
    assert!(long < 160 << 20, "{long} bytes for an event of 10 MB");
}
