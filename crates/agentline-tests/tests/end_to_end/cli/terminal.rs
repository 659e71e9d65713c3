//! Tests the output on a terminal: the live answer, a line per tool call, a spinner, and the summary.

use crate::cli::{
    outputs::TEXT,
    user::{Done, User},
};

/// Runs the program on a terminal created by `script`. Returns `None` if there is no `script`.
fn on_a_terminal(user: &User, args: &[&str]) -> Option<Done> {
    on_a_terminal_of(user, 100, args)
}

/// Runs the program on a terminal with this number of columns.
pub(crate) fn on_a_terminal_of(user: &User, columns: u32, args: &[&str]) -> Option<Done> {
    Some(user.on_a_terminal(columns, args)?.output().unwrap().into())
}

/// Returns the text that remains on the screen, without erased lines and colors.
pub(crate) fn screen(done: &Done) -> String {
    let mut shown = String::new();
    for line in done.out.lines() {
        let last = line.rsplit("\u{1b}[2K").next().unwrap_or_default();
        let mut rest = last.trim_end_matches('\r').split('\u{1b}');
        shown.push_str(rest.next().unwrap_or_default());
        for part in rest {
            shown.push_str(part.split_once('m').map_or("", |(_, text)| text));
        }
        shown.push('\n');
    }
    shown
}

#[test]
fn run_is_shown_live_with_tools_and_summary() {
    let Some(done) = on_a_terminal(&User::new(), &["run", "hi"]) else { return };
    let screen = screen(&done);
    let lines: Vec<&str> = screen.lines().collect();
    assert_eq!((lines[0], lines[2]), ("I will write it.", "All done. 4"), "{screen}");
    assert!(lines[1].starts_with("● Write hello.txt … ok ("), "{screen}");
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

#[test]
fn missing_prompt_is_not_awaited() {
    let Some(done) = on_a_terminal(&User::new(), &["run"]) else { return };
    assert!(done.out.contains("`PROMPT`: missing prompt") && done.out.contains("hint:"), "{}", done.out);
    assert_eq!(done.code, 2);
}

#[test]
fn demo_replay_looks_identical() {
    let Some(done) = on_a_terminal(&User::new(), &["demo", "--replay"]) else { return };
    let screen = screen(&done);
    for line in TEXT.lines().chain(["● Write primes.py … ok (159 ms)", "  created  primes.py (+8 -0)"]) {
        assert!(screen.lines().any(|shown| shown == line), "{line} is missing in {screen}");
    }
    assert_eq!(done.code, 0);
}
