//! A session of two thousand turns in the CLI's format, with repeated lines and lists of all messages so far.

use crate::saved_text::load;
use agentline_core::{SavedSession, SessionFormat};
use std::fmt::Write as _;

const TURNS: usize = 2_000;

/// Writes one turn: a prompt, an answer with a tool that is written twice, its response, and a final answer.
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

/// Returns a session with this number of turns, rewound once, with outputs of this length.
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
    check(&load("gemini", SessionFormat::Lines, &session(TURNS, 100)), TURNS);
}
