//! Compares splitting, decoding and a connection with a plain newline scan and `serde_json::Value`: interleaved, best
//! of five, in processor time, so that a busy machine has little effect.

use crate::transport::usage;
use agentline::agents;
use agentline_core::{
    Connection, ConnectionOutput, Input, InputKind, LineSplitter, RunId, SplitItem, Stream, TurnSpec,
};

const ROUNDS: usize = 5;
const CHUNK: usize = 256 << 10;

pub(crate) fn run() {
    println!(
        "{:<34} {:>12} {:>14} {:>12} {:>10}",
        "input", "scan MB/s", "Value MB/s", "core MB/s", "M events/s"
    );
    for (name, lines) in corpora() {
        measure(name, &lines);
    }
    long_line();
}

fn corpora() -> Vec<(&'static str, Vec<u8>)> {
    let delta = |i: usize| {
        format!(
            r#"{{"type":"message","timestamp":"2026-11-15T04:28:24.844Z","role":"assistant","content":"word {i:07}","delta":true}}"#
        )
    };
    let text = |i: usize| {
        let body = "lorem ipsum dolor sit amet ".repeat(36);
        format!(
            r#"{{"type":"message","timestamp":"2026-11-15T04:28:24.844Z","role":"assistant","content":"{i} {body}","delta":true}}"#
        )
    };
    let tool = |i: usize| {
        let body = "let value = compute(input);  ".repeat(170);
        format!(
            r#"{{"type":"tool_use","timestamp":"2026-11-15T04:28:24.844Z","tool_name":"write_file","tool_id":"w{i}","parameters":{{"file_path":"a{i}.txt","content":"{body}"}}}}"#
        ) + "\n"
            + &format!(
                r#"{{"type":"tool_result","timestamp":"2026-11-15T04:28:24.844Z","tool_id":"w{i}","status":"success"}}"#
            )
    };
    vec![
        ("1,000,000 text deltas of 115 B", join(1_000_000, delta)),
        ("100,000 texts of 1.1 KB", join(100_000, text)),
        ("20,000 writes of 5 KB with results", join(20_000, tool)),
    ]
}

fn join(count: usize, line: impl Fn(usize) -> String) -> Vec<u8> {
    let mut bytes = Vec::new();
    for i in 0..count {
        bytes.extend_from_slice(line(i).as_bytes());
        bytes.push(b'\n');
    }
    bytes
}

fn measure(name: &str, bytes: &[u8]) {
    let mut best = [f64::MAX; 3];
    let mut events = 0;
    for _ in 0..ROUNDS {
        let kinds: [fn(&[u8]) -> usize; 3] = [scan, values, core];
        for (best, kind) in best.iter_mut().zip(kinds) {
            let start = usage().0;
            events = std::hint::black_box(kind(bytes));
            *best = best.min(usage().0 - start);
        }
    }
    let mb = bytes.len() as f64 / 1e6;
    let [scan, value, core] = best.map(|s| mb / s);
    println!("{name:<34} {scan:>12.0} {value:>14.0} {core:>12.0} {:>10.2}", events as f64 / best[2] / 1e6);
}

fn scan(bytes: &[u8]) -> usize {
    memchr::memchr_iter(b'\n', bytes).count()
}

fn values(bytes: &[u8]) -> usize {
    let lines = bytes.split(|b| *b == b'\n').filter(|l| !l.is_empty());
    lines
        .map(|l| serde_json::from_slice::<serde_json::Value>(l).expect("JSON"))
        .filter(|v| v.is_object())
        .count()
}

/// Does everything that the core does with the bytes of one run.
fn core(bytes: &[u8]) -> usize {
    let agent = agents::find("gemini").expect("it is listed");
    let mut connection = Connection::new(
        agent.dialogue(&agentline_core::DialogueConfig::default()),
        agentline_core::Timeouts::default(),
    );
    let (mut out, mut events) = (Vec::new(), 0);
    let mut feed = |kind: InputKind<'_>, out: &mut Vec<ConnectionOutput>| {
        connection.take(&Input { at: 1, kind }, out);
        events += out.iter().filter(|o| matches!(o, ConnectionOutput::Event(..))).count();
        out.clear();
    };
    feed(InputKind::Started, &mut out);
    feed(InputKind::Prompt { run: RunId(1), spec: Box::new(TurnSpec::default()) }, &mut out);
    let mut splitter = LineSplitter::new(256 << 20);
    for chunk in bytes.chunks(CHUNK) {
        splitter.push(chunk, |piece| {
            if let SplitItem::Line(text) = piece {
                feed(InputKind::Line { stream: Stream::Stdout, text }, &mut out);
            }
        });
    }
    events
}

fn long_line() {
    let body = "x".repeat(50 << 20);
    let line =
        format!("{{\"type\":\"message\",\"role\":\"assistant\",\"content\":\"{body}\",\"delta\":true}}\n");
    let best = (0..ROUNDS).map(|_| time(|| core(line.as_bytes()))).fold(f64::MAX, f64::min);
    let value = (0..ROUNDS).map(|_| time(|| values(line.as_bytes()))).fold(f64::MAX, f64::min);
    println!("one line of 50 MB: core {best:.3} s, `serde_json::Value` {value:.3} s");
}

fn time(work: impl FnOnce() -> usize) -> f64 {
    let start = usage().0;
    std::hint::black_box(work());
    usage().0 - start
}
