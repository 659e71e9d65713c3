//! Everything that reads text which an agent, a model or a workspace made, with texts that are made to be slow.

use agentline::{
    Connection, Input, LineSplitter, LineVeil, Order, Output, Piece, RunId, Stream, Veil, What, agents,
    extract_json_text, json_candidates,
};
use std::{hint::black_box, time::Instant};

/// The secrets of a run.
const SECRETS: [&str; 3] =
    ["AIzaSyD-9tSrke72PouQMnMX-a7eZSW0jkFMBWY", "Plum/Tree-Correct+Horse", "ssssssssssssssssssss"];
const JSON_FINDER: &str = "JSON finder";
/// An answer that is JSON.
const PLAIN_JSON: &str = "{\"name\": \"value\", \"list\": [1, 2, 3]}\n";
/// What most texts look like.
const PLAIN: &str = "The function returns a list of names; see `src/lib.rs`, line 42.\n";
/// Parts whose repetition makes a scanner slow that reads anything twice.
const HOSTILE: &[&str] = &[
    "\\",
    "\\u",
    "\\u00",
    "\\\"",
    "\"",
    "%",
    "%4",
    "s",
    "sk-",
    "sk-ant-",
    "AIza",
    "AIzaSyD-9tSrke72 ",
    "eyJ",
    "eyJhbGciOi.",
    "-----BEGIN ",
    "-----BEGIN PRIVATE KEY-----\n",
    "-",
    "ghp_",
    "416",
    "QUl6",
    "{",
    "[",
    "{\"a\":",
    "[[]",
    "```json\n",
    "```\n",
    "~",
    "{\"",
    "\r",
    "\u{feff}",
    "é",
    "\n",
];

/// One scanner and how it is used.
#[derive(Clone, Copy, Debug)]
pub struct Scanner {
    /// What it is.
    pub name: &'static str,
    scan: fn(&str),
}

/// All scanners that a run goes through.
pub const SCANNERS: &[Scanner] = &[
    Scanner { name: "redactor", scan: redact },
    Scanner { name: "redactor of tapes", scan: redact_lines },
    Scanner { name: "line splitter", scan: split },
    Scanner { name: JSON_FINDER, scan: find_json },
    Scanner { name: "stream of one answer", scan: answer },
    Scanner { name: "tool call and result", scan: tool },
    Scanner { name: "lines that are no JSON", scan: junk },
];

impl Scanner {
    /// How long a text takes, in seconds: the least of several runs, so that a busy machine counts little.
    #[must_use]
    pub fn time(&self, text: &str, runs: usize) -> f64 {
        let one = || {
            let begun = Instant::now();
            (self.scan)(black_box(text));
            begun.elapsed().as_secs_f64()
        };
        (0..runs.max(1)).map(|_| one()).fold(f64::MAX, f64::min).max(1e-7)
    }
}

impl Scanner {
    /// An ordinary text of about this many bytes: what this scanner is made for.
    #[must_use]
    pub fn plain_text(&self, bytes: usize) -> String {
        let part = if self.name == JSON_FINDER { PLAIN_JSON } else { PLAIN };
        part.repeat(bytes / part.len() + 1)
    }
}

/// An ordinary text with as many lines, of the same lengths: work for each line is not the fault of what stands in it.
#[must_use]
pub fn plain_text_with_lines_of(text: &str) -> String {
    let mut words = "The function returns a list of names. ".chars().cycle();
    text.bytes().map(|byte| if byte == b'\n' { '\n' } else { words.next().unwrap_or(' ') }).collect()
}

/// Hostile texts of about this many bytes, each with the part that it repeats.
pub fn hostile_texts(bytes: usize) -> impl Iterator<Item = (&'static str, String)> {
    HOSTILE.iter().map(move |part| (*part, part.repeat(bytes / part.len() + 1)))
}

fn redact(text: &str) {
    black_box(Veil::new(SECRETS).text(text));
}

fn redact_lines(text: &str) {
    let mut veil = LineVeil::new(Veil::new(SECRETS));
    // As many lines as one answer has, and one that is as long as all.
    for piece in pieces(text, 200) {
        let line = serde_json::json!({"ch": "out", "text": format!("{{\"content\":{}}}", quoted(piece))});
        veil.push(&line.to_string(), |line| _ = black_box(line.len()));
    }
    veil.push(text, |line| _ = black_box(line.len()));
    veil.finish(|line| _ = black_box(line.len()));
}

fn split(text: &str) {
    let mut splitter = LineSplitter::new(1 << 20);
    for chunk in text.as_bytes().chunks(100) {
        splitter.push(chunk, |piece| _ = black_box(matches!(piece, Piece::Line(_))));
    }
    splitter.finish(|piece| _ = black_box(matches!(piece, Piece::Line(_))));
}

fn find_json(text: &str) {
    black_box(extract_json_text(text));
    black_box(json_candidates(text).len());
}

fn answer(text: &str) {
    let delta = |piece| {
        format!(
            "{{\"type\":\"message\",\"role\":\"assistant\",\"content\":{},\"delta\":true}}",
            quoted(piece)
        )
    };
    play(pieces(text, 200).map(delta));
}

fn tool(text: &str) {
    let text = quoted(text);
    play([
        format!(
            "{{\"type\":\"tool_use\",\"tool_name\":\"run_shell_command\",\"tool_id\":\"1\",\"parameters\":{{\"command\":{text}}}}}"
        ),
        format!("{{\"type\":\"tool_result\",\"tool_id\":\"1\",\"status\":\"success\",\"output\":{text}}}"),
    ]);
}

fn junk(text: &str) {
    play(text.split('\n').map(str::to_owned));
}

/// Plays lines of the agent on a connection.
fn play(lines: impl IntoIterator<Item = String>) {
    let Ok(agent) = agents::find("gemini") else { return };
    let talk = agent.dialogue(&agentline::Talk::default());
    let mut connection = Connection::new(talk, agentline::Clocks::default()).with_veil(Veil::new(SECRETS));
    let mut out: Vec<Output> = Vec::new();
    let mut feed = |what: What<'_>| {
        connection.take(&Input { at: 1, what }, &mut out);
        black_box(out.len());
        out.clear();
    };
    feed(What::Up);
    feed(What::Prompt { run: RunId(1), order: Box::new(Order::default()) });
    for text in lines {
        feed(What::Line { stream: Stream::Stdout, text: text.into() });
    }
}

fn quoted(text: &str) -> String {
    serde_json::to_string(text).unwrap_or_default()
}

fn pieces(text: &str, bytes: usize) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let mut end = bytes.min(rest.len());
        while !rest.is_char_boundary(end) {
            end += 1;
        }
        let (piece, after) = rest.split_at(end);
        rest = after;
        (!piece.is_empty()).then_some(piece)
    })
}
