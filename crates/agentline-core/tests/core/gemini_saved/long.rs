//! A session of two thousand turns, as the CLI writes it: lines that are told again, and lists of everything so far.

use crate::saved_text::load;
use agentline_core::{SavedForm, SavedSession};
use std::fmt::Write as _;

const TURNS: usize = 2_000;

/// One turn: a prompt, an answer with a tool that is written twice, its response, and a last word.
fn turn(out: &mut String, n: usize, output: &str) {
    let at = format!("2026-11-15T{:02}:{:02}:{:02}.000Z", n / 3600, n / 60 % 60, n % 60);
    let tokens =
        r#""tokens":{"input":100,"output":20,"cached":30,"thoughts":5,"tool":0,"total":125},"model":"m""#;
    let head = format!(
        r#"{{"id":"{n}-a","timestamp":"{at}","type":"gemini","content":"Looking.","thoughts":[],{tokens}"#
    );
    let response = format!(
        r#"{{"functionResponse":{{"id":"{n}-c","name":"read_file","response":{{"output":"{output}"}}}}}}"#
    );
    let _ = writeln!(
        out,
        r#"{{"id":"{n}-u","timestamp":"{at}","type":"user","content":[{{"text":"Question {n}"}}]}}"#
    );
    let _ = writeln!(out, r#"{{"$set":{{"lastUpdated":"{at}"}}}}"#);
    let _ = writeln!(out, "{head}}}");
    let _ = writeln!(
        out,
        r#"{head},"toolCalls":[{{"id":"{n}-c","name":"read_file","args":{{"file_path":"f{n}"}},"result":[{response}],"status":"success","timestamp":"{at}"}}]}}"#
    );
    let _ = writeln!(out, r#"{{"id":"{n}-r","timestamp":"{at}","type":"user","content":[{response}]}}"#);
    let _ = writeln!(
        out,
        r#"{{"id":"{n}-z","timestamp":"{at}","type":"gemini","content":"Answer {n}",{tokens}}}"#
    );
}

/// A session of so many turns, rewound once, with outputs of this length.
pub(crate) fn session(turns: usize, output: usize) -> String {
    let mut out = String::from(
        "{\"sessionId\":\"long\",\"projectHash\":\"h\",\"startTime\":\"2026-11-15T00:00:00.000Z\"}\n",
    );
    let output = "a line of \\\"output\\\" with a few words\\n".repeat(output / 38 + 1);
    for n in 0..turns {
        turn(&mut out, n, &output);
    }
    let _ = writeln!(out, r#"{{"$rewindTo":"{}-u"}}"#, turns - 1);
    out
}

fn check(session: &SavedSession, turns: usize) {
    assert!(session.damage.is_empty(), "{:?}", session.damage);
    assert_eq!(session.entries.len(), (turns - 1) * 3);
    assert_eq!(session.abandoned.len(), 3);
    assert_eq!(session.entries.iter().filter(|entry| entry.is_prompt()).count(), turns - 1);
    let input: u64 = session.entries.iter().filter_map(|entry| entry.usage?.input).sum();
    assert_eq!(input, (turns as u64 - 1) * 200);
    let (first, last) = (&session.entries[0], &session.entries[session.entries.len() - 1]);
    assert_eq!((first.text(), last.text()), ("Question 0".to_owned(), format!("Answer {}", turns - 2)));
}

#[test]
fn a_session_of_two_thousand_turns_is_read_in_order() {
    check(&load("gemini", SavedForm::Lines, &session(TURNS, 100)), TURNS);
}

/// Measured by hand in a release build: `cargo test --release -p agentline-core --test core fifty -- --ignored --nocapture`.
#[test]
#[ignore = "its time means something in a release build alone"]
#[expect(clippy::print_stderr, reason = "a measurement is told")]
fn a_session_of_fifty_megabytes_is_read_at_once() {
    let text = session(TURNS, 12_500);
    let (before, start, cpu) = (resident(), std::time::Instant::now(), on_cpu());
    let read = load("gemini", SavedForm::Lines, &text);
    let (took, worked) = (start.elapsed(), on_cpu().saturating_sub(cpu));
    eprintln!(
        "{} MB: {} ms, {} ms of them at work; {} MB of memory, with the text",
        text.len() >> 20,
        took.as_millis(),
        worked.as_millis(),
        resident().saturating_sub(before) >> 20
    );
    check(&read, TURNS);
    // Others may be at work on the machine, so the time of this thread alone counts where it is told.
    let counts = if worked.is_zero() { took } else { worked };
    assert!(counts.as_millis() < 1000, "{counts:?}");
}

/// How long this thread has worked; nothing where it is not told.
fn on_cpu() -> std::time::Duration {
    let told = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanos = told.split_whitespace().next().and_then(|n| n.parse().ok()).unwrap_or(0);
    std::time::Duration::from_nanos(nanos)
}

/// Memory in use now, in bytes; nothing where it is not told.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|kib| kib.parse::<usize>().ok()).unwrap_or(0) * 1024
}
