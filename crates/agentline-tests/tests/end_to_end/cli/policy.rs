//! Tests how a policy is explained, and how permission requests are shown on a terminal.

use crate::cli::user::{Done, User};
use agentline_tests::{PATIENCE, Watchdog};
use serde_json::Value;
use std::{
    io::{Read, Write},
    process::Stdio,
};

#[test]
fn policy_is_explained_for_each_surface() {
    let user = User::new();
    let done = user.agentline(&["policy", "explain", "--deny", "Bash(rm *)", "--permission-mode", "auto"]);
    assert_eq!((done.code, done.err.as_str()), (0, ""));
    for title in ["gemini over json", "gemini over stream-json", "gemini over acp"] {
        assert!(done.out.lines().any(|line| line == title), "{}", done.out);
    }
    let explained =
        user.agentline(&["policy", "explain", "--json", "--deny", "Bash(rm *)", "-a", "gemini-cli"]).json();
    let acp = explained["agents"].as_array().unwrap().iter().find(|row| row["surface"] == "acp").unwrap();
    let uses = acp["uses"].as_array().unwrap();
    let row = |name: &str| -> Vec<&str> {
        let row = uses.iter().find(|row| row["use"] == name).unwrap();
        ["decision", "by", "held_by"].map(|key| row[key].as_str().unwrap()).to_vec()
    };
    assert_eq!(row("Write(src/new.txt)"), ["ask", "mode", "agentline"]);
    assert_eq!(row("Write(../outside.txt)"), ["deny", "agentline", "agent"]);
    assert_eq!(row("Bash(rm -rf build)"), ["deny", "rule", "agentline"]);
    assert_eq!(row("Bash(git status)"), ["ask", "mode", "agentline"]);
    assert!(done.out.contains("cannot start: `--deny`: `Bash(rm *)` cannot be enforced"), "{}", done.out);
    assert_eq!(row("mcp__agentline__tool"), ["allow", "agentline", "agentline"]);
}

#[test]
fn invalid_uses_are_reported_by_name() {
    let user = User::new();
    let args =
        ["policy", "explain", "-o", "json", "--surface", "stream-json", "--ask", "WebFetch", "WebFetch"];
    let explained = user.agentline(&args).json();
    assert_eq!(explained["agents"][0]["uses"][0]["decision"], "deny", "{explained}");
    for (args, word) in [
        (&["policy", "explain", "--allow", "Bash(git"][..], "`--allow`"),
        (&["policy", "explain", "Bash(git"], "`USE`"),
        (&["policy", "explain", "--surface", "telepathy"], "`--surface`"),
        (&["policy", "explain", "--permission-mode", "maybe"], "`--permission-mode`"),
    ] {
        let done = user.agentline(args);
        assert!(
            done.code == 2 && done.err.contains(word) && done.err.contains("hint:"),
            "{args:?}: {}",
            done.err
        );
    }
    user.write(
        "../home/.config/agentline/config.toml",
        "[agents.mine]\ncommand = \"mine\"\nsurface = \"acp\"\n",
    );
    let mine = user.agentline(&["policy", "explain", "--json", "-a", "mine", "Bash(ls)"]).json();
    assert_eq!(mine["agents"][0]["uses"][0]["held_by"], "agentline", "{mine}");
    let refused = user.agentline(&["policy", "explain", "--allow", "Grep(secret)"]);
    assert!(refused.code == 0 && refused.out.contains("cannot start: `--allow`"), "{}", refused.out);
}

/// Creates a user whose agent requests permission over ACP.
fn user_of_acp_agent() -> User {
    User::new().env("GEMINI_CLI_PATH", env!("CARGO_BIN_EXE_fake-acp"))
}

const PROMPT: &str = "ask run touch made.txt\nask write_file hello.txt hi\nsay Done.";

#[test]
fn permission_requests_are_denied_without_a_terminal() {
    let user = user_of_acp_agent();
    let done = user.agentline(&["run", "--permission-mode", "prompt", "-o", "json", PROMPT]);
    let outcome = done.json();
    assert_eq!((done.code, &outcome["text"]), (5, &Value::from("Done.")), "{}{}", done.out, done.err);
    let reasons: Vec<_> = outcome["denied"].as_array().unwrap().iter().map(|d| &d["reason"]).collect();
    assert_eq!(reasons.len(), 2, "{outcome}");
    assert!(!user.path("made.txt").exists() && !user.path("hello.txt").exists());
}

/// Runs the program on a terminal and presses each key when its prompt appears. Returns `None` if there is no
/// `script`.
fn run_with_answers(user: &User, args: &[&str], answers: &[&str]) -> Option<Done> {
    let mut script = user.on_a_terminal(100, args)?;
    let mut child = script.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let _watchdog = Watchdog::over(&child, PATIENCE, "the end of a run on a terminal");
    let (mut keys, mut screen) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let (mut out, mut piece, mut seen) = (Vec::new(), [0; 4096], 0);
    let mut answers = answers.iter();
    loop {
        let read = screen.read(&mut piece).unwrap_or(0);
        if read == 0 {
            break;
        }
        out.extend_from_slice(&piece[..read]);
        let questions = String::from_utf8_lossy(&out).matches("details: ").count();
        while seen < questions {
            seen += 1;
            // Unexpected requests are denied, so that the test ends with a message.
            write!(keys, "{}", answers.next().unwrap_or(&"n")).unwrap();
        }
    }
    let code = child.wait().unwrap().code().unwrap_or(-1);
    Some(Done { code, out: String::from_utf8_lossy(&out).replace('\r', ""), err: String::new() })
}

#[test]
fn permission_is_requested_on_a_terminal() {
    let user = user_of_acp_agent();
    let args = ["--color", "never", "run", "--permission-mode", "prompt", PROMPT];
    let Some(done) = run_with_answers(&user, &args, &["d", "y", "n"]) else { return };
    for line in ["the agent wants to use Bash", "  touch made.txt", "  command   touch made.txt", "  1 +hi"] {
        assert!(done.out.lines().any(|shown| shown.ends_with(line)), "{line} is missing in {}", done.out);
    }
    assert!(
        done.out.contains("hello.txt (new file, +1 -0)") || done.out.contains("hello.txt (+1 -0)"),
        "{}",
        done.out
    );
    assert!(user.path("made.txt").exists() && !user.path("hello.txt").exists(), "{}", done.out);
    assert_eq!(done.code, 5, "{}", done.out);
}

#[test]
fn always_skips_the_next_prompt_and_rules_skip_the_first() {
    let user = user_of_acp_agent();
    let prompt = "ask run touch a.txt\nask run touch b.txt\nask run mkdir c\nsay Done.";
    let args = ["run", "--permission-mode", "prompt", "--allow", "Bash(mkdir *)", prompt];
    let Some(done) = run_with_answers(&user, &args, &["a"]) else { return };
    assert_eq!(done.out.matches("details: ").count(), 1, "{}", done.out);
    assert!(["a.txt", "b.txt", "c"].iter().all(|name| user.path(name).exists()), "{}", done.out);
    assert_eq!(done.code, 0, "{}", done.out);
}
