//! Checks the outcome of each recorded run. The table next to the captures was verified row by row against the
//! behavior of the scripted model and the contract. It is not a snapshot of the code's output.

use crate::capture::{self, Stderr};
use crate::play::spec;
use agentline_core::{Outcome, Verdict};
use std::{collections::BTreeMap, fmt::Write as _};

const TABLE: &str = include_str!("../captures/gemini/verdicts.txt");

/// Returns the row of an outcome in the format of the table.
fn row(outcome: &Outcome) -> Vec<String> {
    let dash = |text: String| if text.is_empty() { "-".to_owned() } else { text };
    let kind = outcome.error.as_ref().map(|e| serde_json::to_value(e.kind).expect("a word"));
    let denied: Vec<String> =
        outcome.denied.iter().map(|d| format!("{}:{}", d.native_tool, d.reason)).collect();
    vec![
        outcome.verdict.name().to_owned(),
        kind.map_or("-".into(), |k| k.as_str().expect("a word").to_owned()),
        outcome.turns.to_string(),
        outcome.tool_calls.to_string(),
        dash(denied.join(",")),
        outcome.usage.tokens.total.map_or("-".into(), |n| n.to_string()),
    ]
}

#[test]
fn every_recorded_run_has_the_expected_outcome() {
    let mut table: BTreeMap<&str, Vec<String>> = TABLE
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| {
            let mut fields = line.split_whitespace();
            (fields.next().expect("a name"), fields.map(str::to_owned).collect())
        })
        .collect();
    let mut wrong = String::new();
    for capture in capture::all() {
        let player = capture.play();
        player.check();
        let actual = row(player.outcome());
        match table.remove(&*capture.name) {
            Some(expected) if expected == actual => {}
            expected => {
                let _ = writeln!(wrong, "{}\n  expected {expected:?}\n  found    {actual:?}", capture.name);
            }
        }
        assert!(player.conn.is_finished(), "{}: something remains", capture.name);
    }
    assert_eq!(wrong, "");
    assert!(table.is_empty(), "captures are missing: {:?}", table.keys());
}

#[test]
fn failed_run_reports_a_reason_and_a_hint() {
    for capture in capture::all() {
        let player = capture.play();
        let outcome = player.outcome();
        let fine = matches!(outcome.verdict, Verdict::Done | Verdict::DoneWithDenials);
        assert_eq!(outcome.error.is_none(), fine, "{}", capture.name);
        if let Some(error) = &outcome.error {
            assert!(!error.message.trim().is_empty(), "{}", capture.name);
            assert!(!error.message.contains('\u{1b}'), "{}: {:?}", capture.name, error.message);
            assert!(!error.message.starts_with("[API Error"), "{}: {}", capture.name, error.message);
        }
        assert!(!outcome.stderr_tail.contains('\u{1b}'), "{}: {:?}", capture.name, outcome.stderr_tail);
    }
}

#[test]
fn recorded_lines_are_all_readable() {
    for capture in capture::all() {
        let player = capture.play();
        // Two recordings were truncated by a pipe, so their last line is incomplete.
        let cut = u32::from(matches!(
            &*capture.name,
            "misc/context_overflow" | "stream-json/shell_exit3_bigoutput_background"
        ));
        assert_eq!(player.outcome().unreadable_lines, cut, "{}", capture.name);
    }
}

#[test]
fn the_verdict_does_not_depend_on_how_stdout_and_stderr_interleave() {
    for capture in capture::all() {
        let mut expected: Option<Vec<String>> = None;
        for stderr in [Stderr::Last, Stderr::First, Stderr::Between] {
            // A killed recording ends by a timeout, which depends on the last input.
            if capture.exit.is_none() && stderr != Stderr::Last {
                continue;
            }
            let player = capture.play_with(spec(), &[], stderr);
            player.check();
            let actual = row(player.outcome());
            match &expected {
                None => expected = Some(actual),
                Some(expected) => assert_eq!(*expected, actual, "{} with stderr {stderr:?}", capture.name),
            }
        }
    }
}
