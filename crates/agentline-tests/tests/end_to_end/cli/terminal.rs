//! Tests the output on a terminal: the live answer, a line per tool call, a spinner, and the summary.

use crate::cli::{
    outputs::TEXT,
    user::{Done, User},
};
use agentline_tests::{exit_of, wait_until};
#[cfg(unix)]
use serde_json::json;
use std::{
    io::{Read, Write},
    process::{Child, Stdio},
    sync::{Arc, Mutex},
    thread,
};

/// Runs the program on a terminal created by `script`. Returns `None` if there is no `script`.
fn on_a_terminal(user: &User, args: &[&str]) -> Option<Done> {
    on_a_terminal_of(user, 100, args)
}

/// Runs the program on a terminal with this number of columns.
pub(crate) fn on_a_terminal_of(user: &User, columns: u32, args: &[&str]) -> Option<Done> {
    Some(user.on_a_terminal(columns, args)?.output().unwrap().into())
}

/// Returns the text that remains on a screen with this number of columns, without erased lines and colors. Long lines
/// continue on the next row, and the sequences that move the cursor and erase lines are carried out.
pub(crate) fn screen(output: &str, columns: usize) -> String {
    let (mut rows, mut row, mut column): (Vec<Vec<char>>, _, _) = (Vec::new(), 0, 0);
    let mut characters = output.chars();
    while let Some(character) = characters.next() {
        rows.resize(rows.len().max(row + 1), Vec::new());
        match character {
            '\r' => column = 0,
            '\n' => row += 1,
            '\u{1b}' => {
                let mut sequence = String::new();
                for character in characters.by_ref() {
                    sequence.push(character);
                    if character.is_ascii_alphabetic() {
                        break;
                    }
                }
                let count = sequence.trim_matches(|c: char| !c.is_ascii_digit()).parse().unwrap_or(1);
                match sequence.chars().last() {
                    Some('A') => row = row.saturating_sub(count),
                    Some('B') => row += count,
                    Some('K') => rows[row].clear(),
                    _ => {}
                }
            }
            _ => {
                if column == columns {
                    (row, column) = (row + 1, 0);
                    rows.resize(rows.len().max(row + 1), Vec::new());
                }
                let line = &mut rows[row];
                line.resize(line.len().max(column + 1), ' ');
                line[column] = character;
                column += 1;
            }
        }
    }
    let lines = rows.iter().map(|line| line.iter().collect::<String>().trim_end().to_owned() + "\n");
    lines.collect()
}

/// A program on a terminal that is typed on.
pub(crate) struct Typist {
    child: Child,
    /// Bytes, because a character may be split between two reads.
    seen: Arc<Mutex<Vec<u8>>>,
    reader: thread::JoinHandle<()>,
}

impl Typist {
    /// Starts the program. Returns `None` if there is no `script`.
    pub(crate) fn start(user: &User, args: &[&str]) -> Option<Self> {
        let mut command = user.on_a_terminal(100, args)?;
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (mut out, seen) = (child.stdout.take().unwrap(), Arc::new(Mutex::new(Vec::new())));
        let written = Arc::clone(&seen);
        let reader = thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(length @ 1..) = out.read(&mut buffer) {
                written.lock().unwrap().extend_from_slice(&buffer[..length]);
            }
        });
        Some(Self { child, seen, reader })
    }

    /// Returns everything that was on the terminal so far.
    fn seen(&self) -> String {
        String::from_utf8_lossy(&self.seen.lock().unwrap()).into_owned()
    }

    /// Waits for a text that appears this many times.
    pub(crate) fn until(&self, text: &str, times: usize) {
        wait_until(&format!("`{text}` on the terminal"), || self.seen().matches(text).count() >= times);
    }

    /// Waits until a condition holds for what is on the screen.
    fn until_shown(&self, what: &str, condition: impl Fn(&str) -> bool) {
        wait_until(what, || condition(&screen(&self.seen(), 100)));
    }

    pub(crate) fn type_in(&mut self, keys: &str) {
        self.child.stdin.as_mut().unwrap().write_all(keys.as_bytes()).unwrap();
    }

    /// Waits for the exit of the program, and returns its exit code and everything that was on the terminal.
    pub(crate) fn finish(self) -> (Option<i32>, String) {
        let Self { mut child, seen, reader } = self;
        let status = exit_of(&mut child, "the end of the run");
        reader.join().unwrap();
        (status.code(), String::from_utf8_lossy(&seen.lock().unwrap()).into_owned())
    }
}

#[test]
fn run_is_shown_live_with_tools_and_summary() {
    let Some(done) = on_a_terminal(&User::new(), &["run", "hi"]) else { return };
    let screen = screen(&done.out, 100);
    let lines: Vec<&str> = screen.lines().collect();
    assert_eq!(lines[..2], ["I will write it.", ""], "{screen}");
    assert!(lines[2].starts_with("● Write hello.txt (+1 -0) … ok ("), "{screen}");
    assert_eq!(lines[3..6], ["  1 +hi there", "", "All done. 4"], "{screen}");
    assert!(screen.contains("done in ") && screen.contains("2 turns · 1 tool call"), "{screen}");
    assert!(screen.contains("  created  hello.txt (+1 -0)") && screen.contains("  tokens: "), "{screen}");
    assert!(done.out.contains("starting the agent") && done.out.contains("\u{1b}[32m●"), "{}", done.out);
    assert_eq!(done.code, 0);
}

#[test]
fn quiet_run_prints_only_the_answer() {
    let Some(done) = on_a_terminal(&User::new(), &["-q", "run", "hi"]) else { return };
    assert_eq!(done.out.replace('\r', ""), "I will write it.\nAll done. 4\n");
}

#[test]
fn agent_cannot_emit_terminal_escapes() {
    let user = User::with_fault("ansi_escapes", "{}");
    let Some(done) = on_a_terminal(&user, &["-q", "--color", "never", "run", "hi"]) else { return };
    assert!(!done.out.contains('\u{1b}') && !done.out.is_empty(), "{}", done.out);
}

/// An agent that answers with Markdown and searches.
#[cfg(unix)]
fn markdown_user(answer: &str) -> User {
    let lines = [
        json!({"type": "init", "timestamp": "2026-11-15T04:00:00.000Z", "session_id": "5e55", "model": "gemini-2.5-flash"}),
        json!({"type": "tool_use", "timestamp": "2026-11-15T04:00:01.000Z", "tool_name": "grep_search", "tool_id": "g1",
            "parameters": {"pattern": "fn main", "dir_path": "src"}}),
        json!({"type": "tool_result", "timestamp": "2026-11-15T04:00:01.500Z", "tool_id": "g1", "status": "success", "output": "Found 1 match"}),
        json!({"type": "message", "timestamp": "2026-11-15T04:00:02.000Z", "role": "assistant", "content": answer, "delta": true}),
        json!({"type": "result", "timestamp": "2026-11-15T04:00:03.000Z", "status": "success",
            "stats": {"total_tokens": 30, "input_tokens": 20, "output_tokens": 10, "duration_ms": 5, "tool_calls": 1}}),
    ];
    let lines: Vec<String> = lines.iter().map(ToString::to_string).collect();
    User::with_script(&format!("cat <<'END'\n{}\nEND", lines.join("\n")))
}

#[cfg(unix)]
#[test]
fn answer_is_rendered_on_a_terminal_and_unchanged_on_a_pipe() {
    let answer =
        "## Plan\n\nThe **sieve** is `fast` and this sentence is too long for forty columns.\n\n- [x] one\n";
    let user = markdown_user(answer);
    let Some(done) =
        on_a_terminal_of(&user, 40, &["--color", "always", "run", "--surface", "stream-json", "hi"])
    else {
        return;
    };
    let shown = screen(&done.out, 40);
    let rendered = "\nPlan\n\nThe sieve is fast and this sentence is\ntoo long for forty columns.\n\n☑ one\n";
    assert!(shown.contains(rendered), "{shown}");
    assert!(shown.contains("● Grep fn main in src … ok"), "{shown}");
    assert!(done.out.contains("\u{1b}[1msieve\u{1b}[0m"), "{}", done.out);
    let piped = user.agentline(&["run", "--surface", "stream-json", "hi"]);
    assert_eq!((piped.out.as_str(), piped.code), (answer, 0), "{}", piped.err);
}

#[cfg(unix)]
#[test]
fn last_lines_of_a_running_command_are_shown() {
    let update = |kind: &str, status: &str, text: &str| {
        let content = json!([{"type": "content", "content": {"type": "text", "text": text}}]);
        let update = json!({"sessionUpdate": kind, "toolCallId": "t", "status": status, "title": "make all", "kind": "execute",
            "content": content, "locations": [], "rawInput": {"command": "make all"}});
        format!("update {update}")
    };
    let lines: String = (1..=9).map(|n| format!("compiled part {n}\n")).collect();
    let script = [
        update("tool_call", "in_progress", ""),
        update("tool_call_update", "in_progress", &lines),
        "sleep 600".to_owned(),
        update("tool_call_update", "completed", &format!("{lines}built it\n")),
        "say Done.".to_owned(),
    ];
    let user = User::new().env("GEMINI_CLI_PATH", env!("CARGO_BIN_EXE_fake-acp"));
    let Some(done) = on_a_terminal(&user, &["run", "--surface", "acp", &script.join("\n")]) else { return };
    let live = "\u{1b}[2m  compiled part 9\u{1b}[0m";
    assert!(done.out.contains(live) && !done.out.contains("\u{1b}[2m  compiled part 4"), "{}", done.out);
    let shown = screen(&done.out, 100);
    assert!(shown.contains("● Bash make all … ok ("), "{shown}");
    let end = "  … 5 lines\n  compiled part 6\n  compiled part 7\n  compiled part 8\n  compiled part 9\n  built it\n\nDone.\n";
    assert!(shown.contains(end), "{shown}");
    // The session of a run that can be continued is named with its command.
    assert!(shown.contains("continue with `agentline run --agent gemini --resume "), "{shown}");
}

#[test]
fn no_spinner_remains_after_ctrl_c() {
    let user = User::new().env("GEMINI_CLI_PATH", env!("CARGO_BIN_EXE_fake-acp"));
    let args = ["run", "--surface", "acp", "tool write_file a.txt hi\nsleep 600000"];
    let Some(mut typist) = Typist::start(&user, &args) else { return };
    // The spinner of the first request has the same text, so only one after the tool call counts.
    typist.until_shown("the spinner after the tool call", |shown| {
        let call = shown.lines().position(|line| line.starts_with("● Write a.txt") && line.contains("… ok"));
        call.is_some_and(|call| shown.lines().skip(call).any(|line| line.contains("waiting for the model")))
    });
    typist.type_in("\u{3}");
    let (code, seen) = typist.finish();
    let shown = screen(&seen, 100);
    for spinner in ["waiting for the model", "stopping", "starting the agent", "^C"] {
        assert!(!shown.contains(spinner), "{spinner} remains: {shown}");
    }
    assert!(shown.contains("● Write a.txt") && shown.contains("cancelled"), "{shown}");
    assert!(shown.contains("continue with `agentline run --agent gemini"), "{shown}");
    assert_eq!(code, Some(130), "{shown}");
}

#[test]
fn missing_prompt_is_not_awaited() {
    let Some(done) = on_a_terminal(&User::new(), &["run"]) else { return };
    assert!(done.out.contains("`PROMPT`: missing prompt") && done.out.contains("hint:"), "{}", done.out);
    assert_eq!(done.code, 2);
}

#[test]
fn demo_replay_looks_identical() {
    let Some(done) = on_a_terminal(&User::new(), &["demo", "--replay"]) else { return };
    let screen = screen(&done.out, 100);
    // The last line has markup and is too long for the terminal.
    let end = [
        "Done. primes.py prints the primes below 50, and SUMMARY.txt says so. I asked for WISHES.txt too, but",
        "there is no such file.",
    ];
    let calls = ["● Write primes.py (+8 -0) … ok (159 ms)", "  created  primes.py (+8 -0)"];
    for line in TEXT.lines().take(4).chain(end).chain(calls) {
        assert!(screen.lines().any(|shown| shown == line), "{line} is missing in {screen}");
    }
    assert_eq!(done.code, 0);
}
