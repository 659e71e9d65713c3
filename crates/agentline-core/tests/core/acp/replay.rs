//! Checks the outcome of each prompt of the recorded conversations. The table next to the recordings was verified row
//! by row against the behavior of the scripted model and the agents.

use super::recorded::{self, Replay};
use agentline_core::{ConnectionOutput, RunId, Verdict};
use std::fmt::Write as _;

const TABLE: &str = include_str!("../../captures/acp_verdicts.txt");

fn rows(name: &str, replay: &Replay) -> String {
    let mut rows = String::new();
    for run in (1..=replay.runs).map(RunId) {
        let outcome = replay.harness.player.outcome_of(run);
        if replay.openers.contains(&run) && outcome.verdict == Verdict::Done {
            continue;
        }
        let kind = outcome.error.as_ref().map(|e| serde_json::to_value(e.kind).expect("a word"));
        let denied: Vec<String> =
            outcome.denied.iter().map(|d| format!("{}:{}", d.native_tool, d.reason)).collect();
        let dash = |text: String| if text.is_empty() { "-".to_owned() } else { text };
        let text: String = outcome.text.chars().take(30).collect();
        let used = outcome.usage.tokens;
        let _ = writeln!(
            rows,
            "{name} {} {} {} {} {} {} {} {}",
            run.0,
            outcome.verdict.name(),
            kind.map_or("-".into(), |k| k.as_str().expect("a word").to_owned()),
            outcome.turns,
            outcome.tool_calls,
            dash(denied.join(",").replace(char::is_whitespace, "_")),
            used.input.map_or("-".into(), |i| format!("{i}/{}", used.output.unwrap_or(0))),
            dash(text.replace(char::is_whitespace, "_")),
        );
    }
    rows
}

#[test]
fn every_recorded_prompt_has_the_expected_outcome() {
    let actual: String = recorded::all()
        .iter()
        .map(|recording| {
            let replay = recording.play();
            replay.harness.player.check();
            assert!(replay.harness.player.conn.is_finished(), "{}: something remains", recording.name);
            rows(&recording.name, &replay)
        })
        .collect();
    let expected: Vec<&str> = TABLE.lines().filter(|line| !line.starts_with('#')).collect();
    let actual: Vec<&str> = actual.lines().collect();
    for (actual, expected) in actual.iter().zip(&expected) {
        assert_eq!(actual, expected);
    }
    assert_eq!(actual.len(), expected.len());
}

#[test]
fn no_recorded_answer_is_lost() {
    let mut runs = 0;
    for recording in recorded::all() {
        let replay = recording.play();
        let done =
            replay.harness.player.out.iter().filter(|o| matches!(o, ConnectionOutput::Done(..))).count();
        assert_eq!(done, replay.runs as usize, "{}", recording.name);
        runs += done;
    }
    assert!(runs > 150, "{runs}");
}
