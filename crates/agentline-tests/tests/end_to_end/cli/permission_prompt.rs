//! Tests the questions at the terminal on the real agent: one key answers, the change is shown, and a reason reaches the
//! model.

use crate::cli::{
    terminal::{Typist, screen},
    user::User,
};
use agentline_mock::gemini::{GeminiModel, GeminiStep, SETTINGS, Script};
use agentline_tests::{MODEL, RealSlot, needs_real_gemini, real_gemini};
use serde_json::json;
use std::{thread, time::Duration};

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
    let (code, seen) = typist.finish();
    let shown = screen(&seen, 100);
    let question = "? the agent wants to use Edit\n  a.txt (+1 -1)\n  1  one\n  2 -two\n  2 +2\n  3  three\n";
    assert!(shown.contains(question), "{shown}");
    assert!(seen.contains("\u{1b}[33mallow?\u{1b}[0m"), "{seen}");
    assert!(shown.contains("details: yes\n") && shown.contains("I use git.\n"), "{shown}");
    assert_eq!(user.read("a.txt"), "one\n2\nthree\n");
    let requests = model.requests_to_main();
    let last = requests.last().unwrap().body.to_string();
    assert!(last.contains("use git clean") && requests.len() == 4, "{last}");
    assert_eq!(code, Some(5), "{shown}");
}

#[test]
fn time_of_the_decision_is_not_time_of_the_tool() {
    let user = User::new().env("GEMINI_CLI_PATH", env!("CARGO_BIN_EXE_fake-acp"));
    let prompt = "ask run touch made.txt\nsay Done.";
    let args = ["run", "--surface", "acp", "--permission-mode", "prompt", prompt];
    let Some(mut typist) = Typist::start(&user, &args) else { return };
    typist.until("d\u{1b}[0m details: ", 1);
    thread::sleep(Duration::from_millis(2500));
    typist.type_in("y");
    let (code, seen) = typist.finish();
    let shown = screen(&seen, 100);
    let line =
        shown.lines().find(|line| line.starts_with("● Bash touch made.txt … ok (")).unwrap_or_default();
    // The summary counts the whole time.
    assert!(line.ends_with(" ms)") && shown.contains("done in ") && !shown.contains("done in 0"), "{shown}");
    assert_eq!(code, Some(0), "{shown}");
}
