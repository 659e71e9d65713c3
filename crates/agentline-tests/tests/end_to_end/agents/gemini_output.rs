//! Checks that no output of the real Gemini CLI is lost, late or duplicated, and that its tape replays identically.

use agentline::{Event, FailureKind, Outcome, Record, RunRequest, Surface, Verdict, blocking};
use agentline_core::{ConnectionOutput, Phase, Tape};
use agentline_mock::gemini::{FAKE_KEY, GeminiPart, GeminiStep, Script};
use agentline_tests::{TestStage, needs_real_gemini, shown, tapes::replay};
use serde_json::{Value, json};
use std::{
    path::Path,
    time::{Duration, Instant},
};

/// The agent's loop detection is slower than the answer and mistakes a long answer for a loop.
const NO_LOOP_WATCH: &str =
    r#"{"security":{"auth":{"selectedType":"gemini-api-key"}},"model":{"disableLoopDetection":true}}"#;

fn default_request(stage: &TestStage) -> RunRequest {
    stage.request("Say much").timeout(Duration::from_secs(90))
}

fn texts(records: &[Record]) -> Vec<&str> {
    let text = |record: &'_ Record| matches!(record.event, Event::Text { .. });
    records
        .iter()
        .filter(|r| text(r))
        .filter_map(|r| match &r.event {
            Event::Text { text } => Some(text.as_str()),
            _ => None,
        })
        .collect()
}

#[test]
fn an_answer_of_five_megabytes_arrives_complete_on_both_surfaces() {
    needs_real_gemini!();
    const SIZE: usize = 5_000_000;
    for surface in [Surface::StreamJson, Surface::Json] {
        let stage = TestStage::new(Script::new([GeminiStep::big_text(SIZE)]));
        stage.settings(NO_LOOP_WATCH);
        let (records, outcome) = stage.play(default_request(&stage).surface(surface));
        let details =
            format!("{surface}: {:?}, {} bytes, {:?}", outcome.verdict, outcome.text.len(), outcome.error);
        assert_eq!(
            (outcome.verdict, outcome.text.len(), outcome.unreadable_lines),
            (Verdict::Done, SIZE, 0),
            "{details}"
        );
        assert!(
            outcome
                .text
                .lines()
                .enumerate()
                .take(SIZE / 15)
                .all(|(i, line)| line == format!("line {:09}", i + 1)),
            "{details}"
        );
        assert_eq!(texts(&records).concat(), outcome.text, "the events agree");
    }
}

#[test]
fn text_is_streamed_while_the_model_answers_and_the_outcome_is_complete() {
    needs_real_gemini!();
    let parts = (1..=10).map(|n| GeminiPart::Text(format!("word {n} ")));
    let stage = TestStage::new(Script::new([GeminiStep::chunks(parts).chunk_delay(400)]));
    let (mut seen, mut started) = (Vec::new(), None);
    let request = default_request(&stage).name("greeting");
    let outcome = blocking::run(&stage.agentline(), request, |record, _| match &record.event {
        Event::Text { .. } => seen.push((Instant::now(), record.at_ms)),
        Event::Started(first) => started = Some((first.run_id.clone(), first.session_id.clone())),
        _ => {}
    })
    .unwrap();
    let all = shown(&outcome);
    assert_eq!((outcome.verdict, seen.len()), (Verdict::Done, 10), "{all}");
    // There are ten words, 400 ms apart: the first one arrives long before the last one is sent.
    let (first, last) = (seen[0], seen[9]);
    assert!(last.0 - first.0 > Duration::from_millis(2400), "{:?}: {all}", last.0 - first.0);
    assert!(last.1 - first.1 > 2400, "{all}");

    assert_eq!((outcome.error.is_none(), outcome.agent_exit_code), (true, Some(0)), "{all}");
    assert_eq!((outcome.turns, outcome.tool_calls), (1, 0), "{all}");
    assert_eq!(
        (outcome.name.as_deref(), outcome.agent_version.as_deref()),
        (Some("greeting"), Some("0.61.0")),
        "{all}"
    );
    assert!(outcome.files.is_empty() && outcome.denied.is_empty() && outcome.warnings.is_empty(), "{all}");
    assert_eq!((outcome.unreadable_lines, outcome.stop_reason.as_deref()), (0, None), "{all}");
    assert!(outcome.first_event_ms.is_some_and(|first| first <= outcome.duration_ms), "{all}");
    assert_eq!(outcome.surface, Some(Surface::StreamJson), "the default: {all}");
    assert!(outcome.session_id.is_some(), "{all}");
    assert_eq!(started, Some((outcome.run_id.clone(), outcome.session_id.clone())), "{all}");
}

#[test]
fn large_error_body_is_read_completely_from_stderr() {
    needs_real_gemini!();
    let body = "details of the failure ".repeat(300_000 / 23);
    let stage =
        TestStage::new(Script::always(GeminiStep::api_error(400, "INVALID_ARGUMENT", &body, json!(null))));
    let outcome = stage.outcome(default_request(&stage).surface(Surface::Json));
    let error = outcome.error.as_ref().unwrap();
    assert_eq!(
        (outcome.verdict, error.kind, error.phase),
        (Verdict::Failed, FailureKind::ApiError, Phase::Response),
        "{}",
        shown(&outcome)
    );
    assert_eq!(outcome.agent_exit_code, Some(144), "{}", shown(&outcome));
    assert!(error.message.starts_with("details of the failure details"), "{error:?}");
    assert!(error.message.len() <= 1000 && outcome.stderr_tail.len() <= 9000, "kept short: {error:?}");
    assert!(outcome.session_id.is_some(), "the document was read: {}", shown(&outcome));
}

#[test]
fn text_repeated_by_a_retry_appears_once_in_the_outcome() {
    let run = replay("text_repeated.stream-json").run;
    let (outcome, all) = (&run.outcome, shown(&run.outcome));
    assert_eq!(texts(&run.records).concat(), "The answer The answer is 4.", "as the agent reported it");
    assert_eq!((outcome.verdict, outcome.text.as_str()), (Verdict::Done, "The answer is 4."), "{all}");
    assert!(outcome.warnings.iter().any(|w| w.code == "text_repeated"), "{all}");
}

/// Runs with a tape, replays the tape, and asserts that both are equal. Returns the events, the outcome and the tape.
#[track_caller]
pub(crate) fn run_and_replay(
    stage: &TestStage,
    request: RunRequest,
    tape: &Path,
) -> (Vec<Record>, Outcome, String) {
    let (records, outcome) = stage.play(request.record(tape));
    let text = std::fs::read_to_string(tape).expect("the tape was written");
    let (mut again, mut ends) = (Vec::new(), Vec::new());
    let played = Tape::read(&text).expect("a tape").play(|output| match output {
        ConnectionOutput::Event(_, record) => again.push(serde_json::to_value(&record).expect("JSON")),
        ConnectionOutput::Done(_, outcome) => ends.push(serde_json::to_value(&outcome).expect("JSON")),
        _ => {}
    });
    played.expect("the agent is known");
    let live: Vec<Value> = records.iter().map(|r| serde_json::to_value(r).expect("JSON")).collect();
    for (live, again) in live.iter().zip(&again) {
        assert_eq!(live, again);
    }
    assert_eq!(live.len(), again.len(), "the same number of events");
    assert_eq!(ends, [serde_json::to_value(&outcome).expect("JSON")], "the same outcome");
    (records, outcome, text)
}

#[test]
fn agent_sees_only_listed_variables_and_printed_secrets_are_redacted_everywhere() {
    needs_real_gemini!();
    let script = Script::new([
        GeminiStep::call("run_shell_command", json!({"command": "env | tee env.txt; env >&2"})),
        GeminiStep::text("It says fake-key-for-")
            .and_text("the-scripted-model, and tok-in-")
            .and_text("the-request too."),
    ]);
    let stage = TestStage::new(script)
        .env("DATABASE_PASSWORD", Some("correct-horse-battery"))
        .env("UNRELATED", Some("not for the agent"))
        .env("PASSED", Some("yes"))
        .env("LC_ALL", Some("C"));
    let tape = stage.outside().join("tape.jsonl");
    let request = default_request(&stage)
        .pass_env("PASSED")
        .env("MY_TOKEN", "tok-in-the-request")
        .env("MY_PLACE", "somewhere nice");
    let (records, outcome, tape) = run_and_replay(&stage, request, &tape);
    let all = shown(&outcome);
    assert_eq!(outcome.verdict, Verdict::Done, "{all}");

    // The command saw only the variables that it should see.
    let seen = stage.read("env.txt").expect("the command ran");
    for line in [
        format!("GEMINI_API_KEY={FAKE_KEY}"),
        "MY_TOKEN=tok-in-the-request".into(),
        "MY_PLACE=somewhere nice".into(),
        "PASSED=yes".into(),
        "LC_ALL=C".into(),
    ] {
        assert!(seen.lines().any(|l| l == line), "{line} is not in {seen}");
    }
    assert!(!seen.contains("DATABASE_PASSWORD") && !seen.contains("UNRELATED"), "{seen}");

    // Its output is reported without the secrets.
    let events = serde_json::to_string(&records).unwrap();
    for (name, text) in [("events", &events), ("outcome", &all), ("tape", &tape)] {
        for secret in [FAKE_KEY, "tok-in-the-request", "correct-horse-battery", "fake-key-for-"] {
            assert!(!text.contains(secret), "{secret} is in the {name}: {text}");
        }
    }
    assert!(
        events.contains("MY_PLACE=somewhere nice") && events.contains("GEMINI_API_KEY=[redacted]"),
        "{events}"
    );
    assert!(tape.contains("MY_PLACE=somewhere nice"), "{tape}");
    assert_eq!(outcome.text, "It says [redacted], and [redacted] too.", "{all}");
    assert_eq!(texts(&records).concat(), outcome.text);
}
