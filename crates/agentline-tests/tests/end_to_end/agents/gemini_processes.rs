//! Tests timeouts, cancellation and crashes with the real Gemini CLI: a run always ends, reports why, and leaves
//! nothing running.

use agentline::{Event, FailureKind, Outcome, RunRequest, Verdict, blocking};
use agentline_core::Phase;
use agentline_mock::gemini::{GeminiStep, Script};
use agentline_tests::{TestStage, needs_real_gemini, shown, survivors, tapes::replay};
use serde_json::json;
use std::{
    process::Command,
    time::{Duration, Instant},
};

fn default_request(stage: &TestStage) -> RunRequest {
    stage.request("Say hello").timeout(Duration::from_secs(90))
}

fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// Returns a script that writes a file and then waits for a command of five minutes.
fn write_then_sleep() -> Script {
    Script::new([
        GeminiStep::text("First a file.")
            .and_call("write_file", json!({"file_path": "kept.txt", "content": "kept\n"})),
        GeminiStep::text("Then a long command.")
            .and_call("run_shell_command", json!({"command": "touch begun && sleep 300"})),
        GeminiStep::text("Never said."),
    ])
}

/// Asserts which timeout stopped a run, and that the message has its length and the last activity.
#[track_caller]
fn timed_out(outcome: &Outcome, kind: FailureKind, phase: Phase, expected: &[&str]) {
    let all = shown(outcome);
    let error = outcome.error.as_ref().unwrap_or_else(|| panic!("no error: {all}"));
    assert_eq!((outcome.verdict, error.kind, error.phase), (Verdict::TimedOut, kind, phase), "{all}");
    assert!(expected.iter().all(|part| error.message.contains(part)), "{all}");
    assert!(error.hint.is_some() && error.retryable, "{all}");
    assert_eq!(survivors(&outcome.run_id), [0_u32; 0], "{all}");
}

/// The conformance kit shows the same with the real agent on `stream-json`.
#[test]
fn silence_before_the_answer_times_out() {
    let outcome = replay("idle.json").run.outcome;
    let expected = ["idle timeout of 3 s", "last activity: started"];
    timed_out(&outcome, FailureKind::TimeoutIdle, Phase::Response, &expected);
    assert!(outcome.text.is_empty() && outcome.session_id.is_some(), "{}", shown(&outcome));
    let started_at = outcome.first_event_ms.unwrap();
    assert!((started_at + 3000..started_at + 9000).contains(&outcome.duration_ms), "{}", shown(&outcome));
}

#[test]
fn idle_timeout_during_an_answer_keeps_the_partial_text() {
    let outcome = replay("idle_midway.stream-json").run.outcome;
    timed_out(
        &outcome,
        FailureKind::TimeoutIdle,
        Phase::Response,
        &["idle timeout of 3 s", "last activity: text"],
    );
    assert_eq!(outcome.text, "Half an ", "{}", shown(&outcome));
}

#[test]
fn silent_tool_has_its_own_timeout() {
    // The idle timeout is longer; it applies while no tool is open.
    let outcome = replay("tool_timeout.stream-json").run.outcome;
    let expected = ["tool timeout of 4 s", "last activity: tool_use run_shell_command"];
    timed_out(&outcome, FailureKind::TimeoutIdle, Phase::Response, &expected);
}

#[test]
fn agent_that_does_not_start_in_time_is_stopped() {
    needs_real_gemini!();
    let stage = TestStage::new(Script::new([GeminiStep::text("Hello.")]));
    let mut request = default_request(&stage);
    request.startup_timeout = Duration::from_millis(300);
    let outcome = stage.outcome(request);
    let expected = ["startup timeout of 0.3 s", "no earlier activity"];
    timed_out(&outcome, FailureKind::TimeoutStartup, Phase::Request, &expected);
    assert!(outcome.duration_ms < 8000 && outcome.first_event_ms.is_none(), "{}", shown(&outcome));
}

/// Returns the agent's own process among those of a run.
fn agent_of(run_id: &str) -> u32 {
    let is_agent = |pid: &u32| {
        let line = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.contains("gemini") && line.contains("stream-json")
    };
    survivors(run_id).into_iter().find(is_agent).expect("the agent runs")
}

/// Runs until the first text, then sends the agent a signal. The conformance kit kills it.
fn stopped_by(signal: &str) -> Outcome {
    let stage = TestStage::new(Script::always(GeminiStep::text("Half an ").and_text("answer").hang_midway()));
    let mut run_id = String::new();
    let outcome =
        blocking::run(&stage.agentline(), default_request(&stage), |record, _| match &record.event {
            Event::Started(started) => run_id.clone_from(&started.run_id),
            Event::Text { .. } => {
                let pid = agent_of(&run_id).to_string();
                assert!(Command::new("kill").args([signal, &pid]).status().is_ok_and(|s| s.success()));
            }
            _ => {}
        });
    let outcome = outcome.expect("the request is valid");
    assert_eq!(survivors(&outcome.run_id), [0_u32; 0], "{}", shown(&outcome));
    assert!(outcome.duration_ms < 60_000, "{}", shown(&outcome));
    outcome
}

#[test]
fn exit_code_zero_without_a_result_is_not_a_success() {
    needs_real_gemini!();
    // The agent catches this signal and then exits as if it had succeeded.
    let outcome = stopped_by("-TERM");
    let (all, error) = (shown(&outcome), outcome.error.as_ref().unwrap());
    assert_eq!((outcome.verdict, error.kind), (Verdict::Failed, FailureKind::NoResult), "{all}");
    assert_eq!((outcome.agent_exit_code, outcome.text.as_str()), (Some(0), "Half an "), "{all}");
}

#[test]
fn background_processes_end_with_the_run() {
    needs_real_gemini!();
    let stage = TestStage::new(Script::new([
        GeminiStep::call(
            "run_shell_command",
            json!({"command": "echo $$ > pid; sleep 300", "is_background": true}),
        ),
        GeminiStep::call(
            "run_shell_command",
            json!({"command": "setsid sleep 301 >/dev/null 2>&1 & echo started"}),
        ),
        GeminiStep::text("Started."),
    ]));
    let outcome = stage.outcome(default_request(&stage));
    assert_eq!((outcome.verdict, outcome.text.as_str()), (Verdict::Done, "Started."), "{}", shown(&outcome));
    let pid = stage.read("pid").expect("the command ran");
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
    assert!(stat.is_empty() || stat.contains(") Z "), "the background command still runs: {stat}");
    assert_eq!(survivors(&outcome.run_id), [0_u32; 0]);
}

/// A run that is out of time ends in the same way: `fakes::faults` shows its verdict, and `process_kills` with real agents
/// that nothing is left.
#[test]
fn cancelled_run_ends_quickly_and_keeps_its_results() {
    needs_real_gemini!();
    let stage = TestStage::new(write_then_sleep());
    let mut cancelled_at = None;
    let outcome = blocking::run(&stage.agentline(), default_request(&stage), |record, stop| {
        if matches!(&record.event, Event::ToolUse(tool) if tool.native_name == "run_shell_command") {
            // The command itself must have started.
            let began = Instant::now();
            while stage.read("begun").is_none() && began.elapsed() < secs(20) {
                std::thread::sleep(Duration::from_millis(20));
            }
            cancelled_at = Some(Instant::now());
            stop.cancel();
        }
    })
    .unwrap();
    let (all, took) = (shown(&outcome), cancelled_at.expect("the command was seen").elapsed());
    let error = outcome.error.as_ref().unwrap();
    assert_eq!((outcome.verdict, error.kind), (Verdict::Cancelled, FailureKind::Cancelled), "{all}");
    // All shutdown steps together take six seconds; a busy machine may need more than the first step.
    assert!(took < secs(20), "the cancel took {took:?}: {all}");
    assert_eq!(survivors(&outcome.run_id), [0_u32; 0], "{all}");
    let files: Vec<_> = outcome.files.iter().map(|f| (f.path.as_str(), f.verified)).collect();
    assert_eq!(files, [("begun", true), ("kept.txt", true)], "{all}");
    assert_eq!((outcome.text.as_str(), outcome.tool_calls), ("Then a long command.", 2), "{all}");
    assert!(outcome.usage.tokens.total.is_some_and(|t| t >= 125), "known from the session file: {all}");
}

#[test]
fn dropped_run_leaves_nothing_behind() {
    needs_real_gemini!();
    let stage = TestStage::new(write_then_sleep());
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let run_id = runtime.block_on(async {
        let mut run = stage.agentline().run(default_request(&stage)).await.unwrap();
        while let Some(record) = run.next().await {
            if matches!(&record.event, Event::ToolUse(tool) if tool.native_name == "run_shell_command") {
                break;
            }
        }
        assert!(!survivors(run.id()).is_empty(), "the mark is in the expected place");
        run.id().to_owned()
    });
    let dropped = Instant::now();
    while !survivors(&run_id).is_empty() && dropped.elapsed() < secs(10) {
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(survivors(&run_id), [0_u32; 0], "after {:?}", dropped.elapsed());
}
