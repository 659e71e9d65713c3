//! Tests where sessions are stored and how session files are recognized.

use agentline_core::{FileSystem, RootFormat, SessionFile, SessionFormat, agents};
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use crate::recordings::recordings;

struct Only(&'static str);

impl FileSystem for Only {
    fn read(&self, _path: &Path) -> Option<Vec<u8>> {
        None
    }
    fn list(&self, _path: &Path) -> Option<Vec<String>> {
        None
    }
    fn exists(&self, path: &Path) -> bool {
        path == Path::new(self.0)
    }
}

fn roots(agent: &str, env: &[(&str, &str)], existing: &'static str) -> Vec<PathBuf> {
    let env: BTreeMap<_, _> =
        env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let roots = agents::find(agent).expect("the agent is listed").sessions().roots(
        &env,
        Path::new("/home/u"),
        &Only(existing),
    );
    assert!(roots.iter().all(|root| matches!(root.form, RootFormat::Files { .. })));
    roots.into_iter().map(|root| root.path).collect()
}

#[test]
fn session_roots_follow_variables_or_home() {
    assert_eq!(roots("claude", &[], ""), [PathBuf::from("/home/u/.claude/projects")]);
    assert_eq!(roots("claude", &[("CLAUDE_CONFIG_DIR", "/c")], ""), [PathBuf::from("/c/projects")]);
    assert_eq!(roots("codex", &[], ""), [PathBuf::from("/home/u/.codex/sessions")]);
    assert_eq!(
        roots("codex", &[("CODEX_HOME", "/c")], "/c/archived_sessions"),
        [PathBuf::from("/c/sessions"), PathBuf::from("/c/archived_sessions")]
    );
}

fn file(agent: &str, path: &str) -> Option<(Option<String>, Option<String>)> {
    let found: SessionFile =
        agents::find(agent).expect("the agent is listed").sessions().file(Path::new(path))?;
    assert_eq!(found.form, Some(SessionFormat::Lines));
    Some((found.id, found.parent))
}

#[test]
fn session_files_are_recognized_by_name() {
    let id = |id: &str| Some((Some(id.to_owned()), None));
    assert_eq!(file("claude", "-p/9112afee.jsonl"), id("9112afee"));
    assert_eq!(file("claude", "-p/agent-a1.jsonl"), id("a1"));
    let child = Some((Some("a1".to_owned()), Some("9112afee".to_owned())));
    assert_eq!(file("claude", "-p/9112afee/subagents/agent-a1.jsonl"), child);
    assert_eq!(file("claude", "-p/9112afee/subagents/workflows/w1/agent-a1.jsonl"), child);
    for other in
        ["-p/9112afee/subagents/agent-a1.meta.json", "-p/9112afee/x/journal.jsonl", "x.jsonl", "-p/a.json"]
    {
        assert_eq!(file("claude", other), None, "{other}");
    }
    let thread = "01a1e028-4dfa-75a2-adcd-efcf14d329b2";
    let day = "2026/11/15/rollout-2026-11-15T17-01-40-";
    assert_eq!(file("codex", &format!("{day}{thread}.jsonl")), id(thread));
    // A rewound thread continues in another file.
    assert_eq!(
        file("codex", &format!("{day}{thread}_01a1e028-4f30-79f0-b27c-19248346fcce.jsonl")),
        id(thread)
    );
    assert_eq!(file("codex", "rollout-short.jsonl"), Some((None, None)));
    assert_eq!(file("codex", "2026/11/15/history.jsonl"), None);
}

#[test]
fn agent_is_recognized_by_the_start_of_a_file() {
    let form = |agent: &str, head: &str| {
        agents::find(agent).expect("the agent is listed").sessions().format(head.as_bytes())
    };
    for (agent, other) in [("claude", "codex"), ("codex", "claude")] {
        for (name, text) in recordings(agent) {
            for length in [200, 1000, text.len()] {
                let head: String = text.chars().take(length).collect();
                assert_eq!(form(agent, &head), Some(SessionFormat::Lines), "{name} at {length}");
                assert_eq!(form(other, &head), None, "{name} at {length}");
            }
        }
    }
    let bare = r#"{"id":"5973b6c0","timestamp":"2025-05-07T17:24:21Z","instructions":null}"#;
    assert_eq!(form("codex", bare), Some(SessionFormat::Lines));
    let gemini =
        r#"{"sessionId":"s","projectHash":"h","startTime":"2026-11-15T04:31:09Z","lastUpdated":"x"}"#;
    for agent in ["claude", "codex"] {
        for text in ["", "[]", "{", "text", gemini, r#"{"type":"result","session_id":"s"}"#] {
            assert_eq!(form(agent, text), None, "{agent} {text}");
        }
        assert!(
            agents::find(agent)
                .expect("the agent is listed")
                .sessions()
                .reader(SessionFormat::Whole)
                .is_none()
        );
    }
}
