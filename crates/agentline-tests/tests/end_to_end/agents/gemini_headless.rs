//! Tests the main workflow with the real Gemini CLI: a write, an edit, a failing read and a shell command, reported
//! correctly. The run is recorded, and its tape gives the same events and outcome. Tapes show the other surfaces, which
//! `run_messages` runs with the real agent.

use crate::agents::gemini_output::run_and_replay;
use agentline::{Event, Outcome, Surface, Verdict};
use agentline_core::{ChangeSource, FileChangeKind};
use agentline_mock::gemini::demo_script;
use agentline_tests::{RunRecord, TestStage, needs_real_gemini, tapes::replay};

#[test]
fn stream_json_run_reports_events_files_and_usage() {
    needs_real_gemini!();
    let stage = TestStage::new(demo_script());
    let tape = stage.outside().join("tape.jsonl");
    let (records, outcome, _) =
        run_and_replay(&stage, stage.request("Write a small program").surface(Surface::StreamJson), &tape);
    let shown = serde_json::to_string_pretty(&outcome).unwrap();
    assert_eq!(outcome.verdict, Verdict::Done, "{shown}");
    assert!(!outcome.text.is_empty(), "{shown}");
    assert_demo_changes(&outcome, &shown);
    assert_eq!(outcome.usage.requests, Some(5), "{shown}");
    assert!(outcome.usage.tokens.thoughts.is_some_and(|t| t > 0), "{shown}");
    assert!(outcome.cost_usd.is_some_and(|c| c > 0.0), "{shown}");
    assert!(matches!(records[0].event, Event::Started(_)), "{:?}", records[0]);
    assert!(records.iter().enumerate().all(|(i, r)| r.seq as usize == i + 1), "numbered without a gap");
    assert!(records.len() > 15, "{shown}");
    assert_eq!(outcome.tape.as_deref(), tape.to_str());
}

#[test]
fn json_run_reports_the_same_from_the_session_file() {
    let RunRecord { records, outcome } = replay("demo.json").run;
    let shown = serde_json::to_string_pretty(&outcome).unwrap();
    assert_eq!(outcome.verdict, Verdict::Done, "{shown}");
    assert_eq!((outcome.tool_calls, outcome.turns), (4, 5), "{shown}");
    let by_tool = outcome.files.iter().find(|f| f.path == "primes.py").expect("the written file");
    assert_eq!((by_tool.source, by_tool.tool.as_deref()), (ChangeSource::Tool, Some("Edit")), "{shown}");
    let results = records.iter().filter(|r| matches!(r.event, Event::ToolResult(_))).count();
    assert_eq!(results, 4, "{records:?}");
    assert!(records.len() > 15 && outcome.files.len() == 2, "{shown}");
}

#[test]
fn acp_run_reports_events_files_and_usage() {
    let RunRecord { records, outcome } = replay("demo.acp").run;
    let shown = serde_json::to_string_pretty(&outcome).unwrap();
    assert_eq!(outcome.verdict, Verdict::Done, "{shown}");
    assert_demo_changes(&outcome, &shown);
    assert!(outcome.usage.tokens.thoughts.is_some_and(|t| t > 0), "{shown}");
    assert!(records.iter().any(|r| matches!(r.event, Event::Thinking { .. })), "{records:#?}");
    assert_eq!(outcome.stop_reason.as_deref(), Some("end_turn"), "{shown}");
    // The CLI runs the scripted model but does not list it.
    let codes: Vec<&str> = outcome.warnings.iter().map(|w| w.code.as_str()).collect();
    assert_eq!(codes, ["unknown_model"], "{shown}");
}

/// Checks the files that the demo creates, and its numbers of tool calls and turns.
fn assert_demo_changes(outcome: &Outcome, shown: &str) {
    let files: Vec<_> =
        outcome.files.iter().map(|f| (f.path.as_str(), f.change, f.source, f.verified)).collect();
    assert_eq!(
        files,
        [
            ("SUMMARY.txt", FileChangeKind::Created, ChangeSource::Shell, true),
            ("primes.py", FileChangeKind::Created, ChangeSource::Tool, true)
        ],
        "{shown}"
    );
    assert_eq!((outcome.tool_calls, outcome.turns), (4, 5), "{shown}");
}
