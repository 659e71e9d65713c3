//! Tests `agentline sessions transplant`, with a recorded session and without agents.

use crate::cli::user::User;
use serde_json::Value;
use std::{fs, path::Path};

const CLAUDE: &str = "9112afee-a34c-4f04-b9d3-06e99eab0e3a";

/// Creates a user with a recorded session of Claude Code, whose project is gone.
fn user() -> User {
    let user = User::new();
    let capture = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../agentline-core/tests/captures/claude/saved/full.jsonl");
    user.write(
        &format!("../home/.claude/projects/-srv-space/{CLAUDE}.jsonl"),
        &fs::read_to_string(capture).unwrap(),
    );
    user
}

/// Returns all texts of a session in their order, with the names of its tools.
fn content(user: &User, id: &str) -> Vec<String> {
    let shown = user.agentline(&["sessions", "show", id, "-o", "json", "--order", "turn"]).json();
    let mut content = Vec::new();
    for message in shown["messages"].as_array().unwrap() {
        let blocks = match &message["content"] {
            Value::String(text) => vec![Value::from(text.as_str())],
            blocks => blocks.as_array().cloned().unwrap_or_default(),
        };
        for block in blocks {
            match block["type"].as_str() {
                Some("tool_use") => content.push(format!("call {}", block["name"].as_str().unwrap())),
                Some("thinking") => {}
                _ => {
                    let text = block.as_str().or(block["text"].as_str()).or(block["content"].as_str());
                    content.extend(text.map(str::to_owned));
                }
            }
        }
    }
    content
}

#[test]
fn session_is_written_for_another_agent_and_shown_the_same() {
    let user = user();
    let source = content(&user, CLAUDE);
    assert!(source.len() > 8 && source.contains(&"call Write".to_owned()), "{source:?}");
    let mut ids = Vec::new();
    for agent in ["gemini", "codex", "codex"] {
        let done = user.agentline(&["sessions", "transplant", CLAUDE, "--to", agent, "-C", "."]);
        assert_eq!(done.code, 0, "{}", done.err);
        let id = done.out.trim();
        assert!(
            done.err.contains("signatures") && done.err.contains(&format!("--resume {id}")),
            "{}",
            done.err
        );
        let shown = content(&user, id);
        let texts = |content: &[String]| {
            content.iter().filter(|line| !line.starts_with("call ")).cloned().collect::<Vec<_>>()
        };
        assert_eq!(texts(&shown), texts(&source), "{agent}");
        ids.push(id.to_owned());
    }
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 3, "every transplant is a new session");
    let listed = user.agentline(&["sessions", "list", "-o", "json"]).json();
    assert_eq!(listed.as_array().unwrap().len(), 4, "nothing was overwritten");
}

#[test]
fn report_lists_the_losses_and_a_dry_run_writes_nothing() {
    let user = user();
    let flags = ["sessions", "transplant", CLAUDE, "--to", "codex", "-C", ".", "-o", "json"];
    let dry = user.agentline(&[&flags[..], &["--dry-run"]].concat());
    assert_eq!(dry.code, 0, "{}", dry.err);
    assert!(!user.path("../home/.codex").exists());
    let done = user.agentline(&flags).json();
    assert_eq!(dry.json()["losses"], done["losses"]);
    let kinds: Vec<&str> =
        done["losses"].as_array().unwrap().iter().map(|loss| loss["kind"].as_str().unwrap()).collect();
    assert!(kinds.contains(&"thinking") && kinds.contains(&"usage"), "{kinds:?}");
    assert!(!kinds.contains(&"text") && !kinds.contains(&"results"), "{kinds:?}");
    assert!(Path::new(done["files"][0].as_str().unwrap()).is_file(), "{done}");
}

#[test]
fn invalid_transplants_write_nothing() {
    let user = user();
    user.write("../home/.config/agentline/config.toml", "[agents.own]\ncommand = ['own']\n");
    for (flags, code, message) in [
        (vec!["--to", "gemni", "-C", "."], 2, "`gemni` is not a known agent"),
        (vec!["--to", "claude", "-C", "."], 2, "already belongs to Claude Code"),
        (vec!["--to", "own", "-C", "."], 2, "cannot write sessions of own"),
        (vec!["--to", "codex"], 2, "is not a directory"),
        (vec!["--to", "codex", "-C", "missing"], 2, "is not a directory"),
        (vec!["--to", "opencode", "-C", "."], 2, "OpenCode is not installed"),
        (vec![], 2, "--to"),
    ] {
        let done = user.agentline(&[&["sessions", "transplant", CLAUDE][..], &flags].concat());
        assert_eq!(done.code, code, "{flags:?}: {}", done.err);
        assert!(done.err.contains(message), "{flags:?}: {}", done.err);
        assert_eq!(done.out, "", "{flags:?}");
    }
    let listed = user.agentline(&["sessions", "list", "-o", "json"]).json();
    assert_eq!(listed.as_array().unwrap().len(), 1);
}
