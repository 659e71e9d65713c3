//! Everything that reads text from an agent, a model or a workspace, with texts that are meant to be slow.

use agentline::{
    PermissionRequest, Policy, RunRequest, Schema, ToolKind, agents,
    internals::{
        disk_fs::DiskFs,
        snapshot::{Snapshot, SnapshotOptions},
    },
};
use agentline_core::{
    Connection, ConnectionOutput, Input, InputKind, LineRedactor, LineSplitter, Redactor, RunId,
    SetupContext, SplitItem, Stream, TurnSpec, extract_json_text, json_candidates,
};
use std::{collections::BTreeMap, fs, hint::black_box, path::Path};

/// The secrets of a run.
const SECRETS: [&str; 3] =
    ["AIzaSyD-9tSrke72PouQMnMX-a7eZSW0jkFMBWY", "Plum/Tree-Correct+Horse", "ssssssssssssssssssss"];
/// An ordinary text.
const PLAIN: &str = "The function returns a list of names; see `src/lib.rs`, line 42.\n";
/// An answer that is JSON.
const PLAIN_JSON: &str = "{\"name\": \"value\", \"list\": [1, 2, 3]}\n";
/// Typical commands of agents.
const PLAIN_COMMAND: &str = "cargo test --all -- --nocapture && git commit -am 'names' ;\n";
const PLAIN_PATH: &str = "crates/agentline-core/src/";
const PLAIN_IGNORE: &str = "*a.log\n";
const PLAIN_ENV: &str = "a=b c d e\n";
/// Parts whose repetition slows down a scanner that reads anything twice.
const HOSTILE: &[&str] = &[
    "\\",
    "\\u",
    "\\u00",
    "\\u0073",
    "\\\"",
    "\"",
    "%",
    "%4",
    "%73",
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
    "a\n",
    "**/",
    "*a\n",
    "a=\"\n",
    "$(",
    "a;",
    "../",
];

/// The work per line of a text, regardless of its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Work {
    /// None: only the bytes count.
    Bytes,
    /// Each line produces an item, so a text is compared with one that has as many lines.
    Lines,
}

/// One scanner and how it is called.
#[derive(Clone, Copy, Debug)]
pub struct ScannerUnderTest {
    /// Its name.
    pub name: &'static str,
    /// The factor by which its texts are shorter, because it does more for each byte or starts with files.
    pub share: usize,
    scan: fn(&str),
    plain: &'static str,
    work: Work,
}

const fn scanner(name: &'static str, scan: fn(&str), plain: &'static str, work: Work) -> ScannerUnderTest {
    ScannerUnderTest { name, share: 1, scan, plain, work }
}

/// The scanners that read the output of an agent.
pub const SCANNERS: &[ScannerUnderTest] = &[
    scanner("redactor", redact, PLAIN, Work::Bytes),
    scanner("tape redactor", redact_lines, PLAIN, Work::Bytes),
    scanner("line splitter", split, PLAIN, Work::Lines),
    scanner("JSON finder", find_json, PLAIN_JSON, Work::Lines),
    scanner("JSON with a schema", check_json, PLAIN_JSON, Work::Bytes),
    scanner("streamed answer", answer, PLAIN, Work::Bytes),
    scanner("tool call and result", tool, PLAIN, Work::Bytes),
    scanner("lines that are not JSON", junk, PLAIN, Work::Lines),
];

/// The scanners that read rules, requests and files of a workspace. The benchmark measures them; the test does not.
pub const WORKSPACE_SCANNERS: &[ScannerUnderTest] = &[
    scanner("path rules", judge_path, PLAIN_PATH, Work::Bytes),
    ScannerUnderTest { share: 64, ..scanner("command rules", judge_command, PLAIN_COMMAND, Work::Lines) },
    ScannerUnderTest { share: 16, ..scanner("ignore file", ignore, PLAIN_IGNORE, Work::Lines) },
    scanner("changed line count", change, PLAIN, Work::Lines),
    scanner("`.env` file", sign_in, PLAIN_ENV, Work::Lines),
];

impl ScannerUnderTest {
    /// Returns the time for a text in seconds: the minimum of several runs, which reduces the effect of a busy machine.
    #[must_use]
    pub fn time(&self, text: &str, runs: usize) -> f64 {
        let one = || {
            let start = crate::cpu_time();
            (self.scan)(black_box(text));
            (crate::cpu_time() - start).as_secs_f64()
        };
        (0..runs.max(1)).map(|_| one()).fold(f64::MAX, f64::min).max(1e-7)
    }

    /// Returns an ordinary text of about this many bytes for this scanner.
    #[must_use]
    pub fn plain_text(&self, bytes: usize) -> String {
        self.plain.repeat(bytes / self.plain.len() + 1)
    }

    /// Returns an ordinary text with as many lines of the same lengths, if each line is work.
    #[must_use]
    pub fn counterpart(&self, hostile: &str) -> Option<String> {
        let line = |line: &str| self.plain.trim_end().chars().cycle().take(line.len()).collect::<String>();
        (self.work == Work::Lines).then(|| hostile.split('\n').map(line).collect::<Vec<_>>().join("\n"))
    }

    /// Returns the time of the ordinary text with which an adversarial one is compared: one of the same length, or one
    /// with as many lines, whichever takes longer.
    #[must_use]
    pub fn plain_time(&self, hostile: &str, runs: usize) -> f64 {
        let lines = self.counterpart(hostile).map_or(0.0, |text| self.time(&text, runs));
        lines.max(self.time(&self.plain_text(hostile.len()), runs))
    }
}

/// Returns adversarial texts of about this many bytes, each with its repeated part.
pub fn hostile_texts(bytes: usize) -> impl Iterator<Item = (&'static str, String)> {
    HOSTILE.iter().map(move |part| (*part, part.repeat(bytes / part.len() + 1)))
}

fn redact(text: &str) {
    black_box(Redactor::new(SECRETS).text(text));
}

fn redact_lines(text: &str) {
    let mut redactor = LineRedactor::new(Redactor::new(SECRETS));
    // Lines of a tape with about as many bytes as the text, all of one answer, and then one line of the same total length.
    let mut bytes = 0;
    for piece in pieces(text, 200) {
        if bytes >= text.len() {
            break;
        }
        let line = serde_json::json!({"ch": "out", "text": format!("{{\"content\":{}}}", quoted(piece))});
        let line = line.to_string();
        bytes += line.len();
        redactor.push(&line, |line| _ = black_box(line.len()));
    }
    redactor.push(text, |line| _ = black_box(line.len()));
    redactor.finish(|line| _ = black_box(line.len()));
}

fn split(text: &str) {
    let mut splitter = LineSplitter::new(1 << 20);
    for chunk in text.as_bytes().chunks(100) {
        splitter.push(chunk, |piece| _ = black_box(matches!(piece, SplitItem::Line(_))));
    }
    splitter.finish(|piece| _ = black_box(matches!(piece, SplitItem::Line(_))));
}

fn find_json(text: &str) {
    black_box(extract_json_text(text));
    black_box(json_candidates(text).len());
}

fn check_json(text: &str) {
    let document = serde_json::json!({"type": "object", "properties": {"name": {"type": "string"}}});
    let Ok(schema) = Schema::from_value(document) else { return };
    black_box(json_candidates(text).iter().filter(|value| schema.check(value).is_ok()).count());
}

fn answer(text: &str) {
    let text = of_quoted_length(text);
    let delta = |piece| {
        format!(
            "{{\"type\":\"message\",\"role\":\"assistant\",\"content\":{},\"delta\":true}}",
            quoted(piece)
        )
    };
    play(pieces(text, 200).map(delta));
}

fn tool(text: &str) {
    let text = quoted(of_quoted_length(text));
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

/// Feeds lines of the agent to a connection.
fn play(lines: impl IntoIterator<Item = String>) {
    let Ok(agent) = agents::find("gemini") else { return };
    let dialogue = agent.dialogue(&agentline_core::DialogueConfig::default());
    let mut connection =
        Connection::new(dialogue, agentline_core::Timeouts::default()).with_redactor(Redactor::new(SECRETS));
    let mut out: Vec<ConnectionOutput> = Vec::new();
    let mut feed = |kind: InputKind<'_>| {
        connection.take(&Input { at: 1, kind }, &mut out);
        black_box(out.len());
        out.clear();
    };
    feed(InputKind::Started);
    feed(InputKind::Prompt { run: RunId(1), spec: Box::new(TurnSpec::default()) });
    for text in lines {
        feed(InputKind::Line { stream: Stream::Stdout, text: text.into() });
    }
}

fn judge_path(text: &str) {
    let mut ask = PermissionRequest::default();
    (ask.tool, ask.kind, ask.paths) = ("Read".into(), ToolKind::Read, vec![text.into()]);
    decide(&ask);
}

fn judge_command(text: &str) {
    let mut ask = PermissionRequest::default();
    (ask.tool, ask.kind, ask.command) = ("Bash".into(), ToolKind::Shell, Some(text.into()));
    decide(&ask);
}

fn decide(ask: &PermissionRequest) {
    let request = RunRequest::default()
        .allow("Read(src/**/*.rs)")
        .allow("Bash(cargo *)")
        .deny("Read(**/.env*)")
        .deny("Read(**/a*b*/**)")
        .deny("Bash(rm *)")
        .deny("Bash(* --force*)");
    let Ok(policy) = Policy::new(&request, Path::new("/work")) else { return };
    black_box(policy.decide(ask, &|path| policy.resolve(path)));
}

fn ignore(text: &str) {
    let Ok(workspace) = tempfile::tempdir() else { return };
    let files = ["a.rs", "b.txt"].map(|name| fs::write(workspace.path().join(name), "x"));
    if files.iter().any(Result::is_err) || fs::write(workspace.path().join(".gitignore"), text).is_err() {
        return;
    }
    black_box(Snapshot::take(workspace.path(), &SnapshotOptions::default()).file_count());
}

/// Counts the changed lines of a file whose halves are swapped.
fn change(text: &str) {
    let Ok(workspace) = tempfile::tempdir() else { return };
    let file = workspace.path().join("file");
    let (first, second) = text.as_bytes().split_at(text.len() / 2);
    if fs::write(&file, text).is_err() {
        return;
    }
    let before = Snapshot::take(workspace.path(), &SnapshotOptions::default());
    if fs::write(&file, [second, b"new\n", first].concat()).is_ok() {
        let after = before.take_again(&SnapshotOptions::default());
        black_box(before.compare(&after, &[]).len());
    }
}

fn sign_in(text: &str) {
    let (Ok(agent), Ok(home)) = (agents::find("gemini"), tempfile::tempdir()) else { return };
    if fs::write(home.path().join(".env"), text).is_ok() {
        let env = BTreeMap::new();
        let context = SetupContext { cwd: Path::new("/"), env: &env, home: home.path(), fs: &DiskFs };
        black_box(agent.setup().sign_in(&context).len());
    }
}

fn quoted(text: &str) -> String {
    serde_json::to_string(text).unwrap_or_default()
}

/// Returns the longest prefix of a text that is no longer than the text when quoted: a quotation mark then takes two bytes.
fn of_quoted_length(text: &str) -> &str {
    let mut sent = 0;
    let is_over = |(_, c): &(usize, char)| {
        sent += if matches!(c, '"' | '\\' | '\n' | '\r') { 2 } else { c.len_utf8() };
        sent > text.len()
    };
    let end = text.char_indices().find(is_over).map_or(text.len(), |(at, _)| at);
    &text[..end]
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
