//! Checks that memory does not grow with the length of the stream: a million pieces of text need no more than their
//! answer.
//!
//! This is a separate test binary, because it measures the memory of the whole process.
#![cfg(target_os = "linux")]

use agentline_core::{
    Connection, ConnectionOutput, ExitReason, Input, InputKind, RunId, Stream, Timeouts, TurnSpec, agents,
};

const RUN: RunId = RunId(1);
const CONVERSATIONS: usize = 2;
/// The pieces of one conversation.
const PIECES: usize = 1_000_000 / CONVERSATIONS;

/// Returns the resident memory in bytes.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux reports memory");
    let line = status.lines().find(|l| l.starts_with("VmRSS:")).expect("a line about memory");
    let kib: usize = line.split_whitespace().nth(1).and_then(|n| n.parse().ok()).expect("a number");
    kib * 1024
}

fn take(conn: &mut Connection, kind: InputKind<'_>) -> Vec<ConnectionOutput> {
    let mut out = Vec::new();
    conn.take(&Input { at: 0, kind }, &mut out);
    out
}

/// Two conversations at the same time, which takes half the time of one.
#[test]
fn million_text_chunks_use_no_more_memory_than_the_answers() {
    std::thread::scope(|scope| {
        for _ in 0..CONVERSATIONS {
            scope.spawn(play);
        }
    });
}

fn play() {
    let agent = agents::find("gemini").expect("the agent is listed");
    let mut conn =
        Connection::new(agent.dialogue(&agentline_core::DialogueConfig::default()), Timeouts::default());
    take(&mut conn, InputKind::Started);
    take(&mut conn, InputKind::Prompt { run: RUN, spec: Box::new(TurnSpec::default()) });
    let line = |text: &'static str| InputKind::Line { stream: Stream::Stdout, text: text.into() };
    let tool = r#"{"type":"tool_use","tool_name":"list_directory","tool_id":"t","parameters":{}}"#;
    let result = r#"{"type":"tool_result","tool_id":"t","status":"success"}"#;
    let text = r#"{"type":"message","timestamp":"2026-11-15T04:28:24.844Z","role":"assistant","content":"a few words ","delta":true}"#;
    take(&mut conn, line(r#"{"type":"init","session_id":"s","model":"m"}"#));
    let before = resident();
    let mut events = 0;
    for n in 0..PIECES {
        events += take(&mut conn, line(text)).len();
        // From time to time, end a turn, which discards the text of the previous one.
        if n % 50_000 == 49_999 {
            take(&mut conn, line(tool));
            take(&mut conn, line(result));
        }
    }
    let grown = resident().saturating_sub(before);
    assert_eq!(events, PIECES);
    // The text of a turn is 0.6 MB. Buffers may be a few times that; all text together would be 12 MB.
    assert!(grown < 8 << 20, "memory grew by {grown} bytes");
    for _ in 0..PIECES / 10 {
        take(&mut conn, line("not JSON at all"));
        take(
            &mut conn,
            InputKind::Line { stream: Stream::Stderr, text: "Attempt 1 failed with status 429.".into() },
        );
    }
    let grown = resident().saturating_sub(before);
    assert!(grown < 8 << 20, "warnings and noise made memory grow by {grown} bytes");
    take(&mut conn, line(r#"{"type":"result","status":"success"}"#));
    let out = take(&mut conn, InputKind::Exit(ExitReason::Code(0)));
    assert!(matches!(out.last(), Some(ConnectionOutput::Done(..))), "{out:?}");
}
