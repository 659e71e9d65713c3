//! Checks that every example of the library runs to completion with the real agents.

#[cfg(target_os = "linux")]
mod killed_program;

use agentline_tests::{RealSlot, are_disabled};
use std::{path::PathBuf, process::Command, sync::OnceLock};

/// Builds the examples once, and returns their directory.
fn built() -> &'static PathBuf {
    static DIR: OnceLock<PathBuf> = OnceLock::new();
    DIR.get_or_init(|| {
        // `cargo test --workspace` has built them with the same features of the dependencies, so this is quick.
        // Without `--workspace`, it would build all dependencies again.
        let build = Command::new(env!("CARGO")).args(["build", "-q", "--workspace", "--examples"]).status();
        assert!(build.expect("cargo").success());
        let test = std::env::current_exe().expect("this test");
        test.parent().and_then(|deps| deps.parent()).expect("the build directory").join("examples")
    })
}

/// Runs an example, which must print this text, and returns its output. Returns `None` if real agents are disabled.
fn prints(name: &str, text: &str) -> Option<String> {
    // The example `minimal` has a fake agent.
    let is_real = name != "minimal";
    if is_real && are_disabled() {
        return None;
    }
    let built = built();
    let _slot = is_real.then(RealSlot::take);
    let output = Command::new(built.join(name)).output().expect("a built example");
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && out.contains(text), "{name}: {out}\n{err}");
    Some(out.into_owned())
}

/// One test for each example, so that they run in parallel, with a text that it must print.
macro_rules! examples {
    ($($name:ident: $text:literal;)*) => {
        $(#[test]
        fn $name() {
            let _ = prints(stringify!($name), $text);
        })*

        const NAMES: &[&str] = &[$(stringify!($name)),*];
    };
}

examples! {
    minimal: "done: ";
    one_prompt: "done: Done.";
    live_events: "cancelled: ";
    workflow_provider: "\"response\": ";
    replay_tape: "replayed: done";
    acp_basic: "done: Done.";
    acp_custom_env: "done: Done.";
    acp_structured: "done: 9 of 10: Small and clear. [\"no test\"]";
}

/// The program changes one word, and gets the same events, files, usage and verdict from another agent. Only prices
/// differ.
#[test]
fn any_agent() {
    let Some(out) = prints("any_agent", "# gemini\n") else { return };
    let mut names = Vec::new();
    for block in out.split("# ").skip(1) {
        let mut lines: Vec<&str> = block.lines().collect();
        names.push(lines.remove(0));
        let cost = lines.pop().expect("a cost");
        // OpenCode's scripted model has no price.
        let is_known = names.last() != Some(&"opencode");
        assert!(cost.starts_with(if is_known { "cost: 0.00" } else { "cost: unknown" }), "{out}");
        let expected = [
            "uses: Write",
            "result: Ok",
            "says: Counting.",
            "uses: Bash",
            "result: Ok",
            "says: There are 4 primes below ten.",
            "verdict: done",
            "text: There are 4 primes below ten.",
            "file: Created primes.txt, on the disk: true",
            "requests: 3",
            "tokens: 300 in, 390 in all",
        ];
        assert_eq!(lines, expected, "{out}");
    }
    assert_eq!(names, ["gemini", "claude", "codex", "opencode"]);
}

#[test]
fn every_example_is_tested() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../agentline/examples");
    let files = std::fs::read_dir(folder).expect("the examples").map(|entry| entry.expect("a file").path());
    let is_source = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "rs");
    let mut found: Vec<String> = files
        .filter(is_source)
        .map(|path| path.file_stem().expect("a name").to_string_lossy().into_owned())
        .collect();
    found.sort();
    let mut tested = [NAMES, &["any_agent"]].concat();
    tested.sort_unstable();
    assert_eq!(found, tested);
}
