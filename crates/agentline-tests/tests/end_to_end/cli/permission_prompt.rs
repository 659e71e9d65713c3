//! Tests the questions at the terminal on the real agent: one key answers, the change is shown, and a reason reaches the
//! model.

use crate::cli::{terminal::screen, user::User};
use agentline_mock::gemini::{GeminiModel, GeminiStep, SETTINGS, Script};
use agentline_tests::{MODEL, RealSlot, exit_of, needs_real_gemini, real_gemini, wait_until};
use serde_json::json;
use std::{
    io::{Read, Write},
    process::{Child, Stdio},
    sync::{Arc, Mutex},
    thread,
};

/// A program on a terminal that is typed on.
struct Typist {
    child: Child,
    seen: Arc<Mutex<String>>,
}

impl Typist {
    /// Starts the program. Returns `None` if there is no `script`.
    fn start(user: &User, args: &[&str]) -> Option<Self> {
        let mut command = user.on_a_terminal(100, args)?;
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (mut out, seen) = (child.stdout.take().unwrap(), Arc::new(Mutex::new(String::new())));
        let written = Arc::clone(&seen);
        thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(length @ 1..) = out.read(&mut buffer) {
                written.lock().unwrap().push_str(&String::from_utf8_lossy(&buffer[..length]));
            }
        });
        Some(Self { child, seen })
    }

    /// Waits for a text that appears this many times.
    fn until(&self, text: &str, times: usize) {
        wait_until(&format!("`{text}` on the terminal"), || {
            self.seen.lock().unwrap().matches(text).count() >= times
        });
    }

    fn type_in(&mut self, keys: &str) {
        self.child.stdin.as_mut().unwrap().write_all(keys.as_bytes()).unwrap();
    }
}

#[test]
fn one_key_answers_and_a_reason_reaches_the_model() {
    needs_real_gemini!();
    let _slot = RealSlot::take();
    let edit = json!({"file_path": "a.txt", "instruction": "i", "old_string": "two", "new_string": "2"});
    let model = GeminiModel::start(Script::new([
        GeminiStep::call("replace", edit),
        GeminiStep::call("run_shell_command", json!({"command": "rm -rf build"})),
        GeminiStep::text("I stop."),
        GeminiStep::text("I use git."),
    ]))
    .unwrap();
    let program = real_gemini().unwrap().path.to_string_lossy().into_owned();
    let mut user = User::new().env("GEMINI_CLI_PATH", program);
    for (name, value) in model.env() {
        user = user.env(&name, value);
    }
    user.write("../home/.gemini/settings.json", SETTINGS);
    user.write("a.txt", "one\ntwo\nthree\n");
    let args = ["run", "-m", MODEL, "--permission-mode", "prompt", "edit it"];
    let Some(mut typist) = Typist::start(&user, &args) else { return };
    typist.until("d\u{1b}[0m details: ", 1);
    // The agent's tools wait for this key, without Enter.
    typist.type_in("y");
    typist.until("d\u{1b}[0m details: ", 2);
    typist.type_in("b");
    typist.until("no, because ", 3);
    typist.type_in("use git clean\n");
    let status = exit_of(&mut typist.child, "the end of the run");
    let seen = typist.seen.lock().unwrap().clone();
    let shown = screen(&seen, 100);
    let question = "? the agent wants to use Edit\n  a.txt (+1 -1)\n  1  one\n  2 -two\n  2 +2\n  3  three\n";
    assert!(shown.contains(question), "{shown}");
    assert!(seen.contains("\u{1b}[33mallow?\u{1b}[0m"), "{seen}");
    assert!(shown.contains("details: yes\n") && shown.contains("I use git.\n"), "{shown}");
    assert_eq!(user.read("a.txt"), "one\n2\nthree\n");
    let requests = model.requests_to_main();
    let last = requests.last().unwrap().body.to_string();
    assert!(last.contains("use git clean") && requests.len() == 4, "{last}");
    assert_eq!(status.code(), Some(5), "{shown}");
}
