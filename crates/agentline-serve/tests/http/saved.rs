//! An experiment and a saved session on disk.

use agentline_batch::{Experiment, RunResult};
use serde_json::json;
use std::path::Path;

/// The id of the saved session.
pub(crate) const SESSION: &str = "10000000-0000-4000-8000-000000000082";

/// Stores an experiment with one of two results.
pub(crate) fn store_experiment(dir: &Path) {
    let experiment = Experiment::open(dir).expect("an experiment");
    let meta =
        [("name", "words"), ("cases", "[\"one\",\"two\"]"), ("variants", "[\"plain\"]"), ("repeat", "1")];
    experiment.set_all_meta(&meta).expect("a description");
    let result: RunResult = serde_json::from_value(json!({
        "key": "0123456789abcdef", "case": "one", "variant": "plain", "attempt": 0, "tries": 1,
        "class": "passed", "verdict": "done", "kind": null, "message": null, "checks": [],
        "agent": "gemini", "agent_version": "1.2.3", "model": "a-model", "cost_usd": 0.25,
        "judge_cost_usd": null, "tokens": 1200, "turns": 2, "tool_calls": 1, "duration_ms": 900,
        "tools": [], "files": 1, "isolation": "none", "hidden_covered": null,
        "finished_ms": 1_760_000_000_000_u64, "dir": "runs/01/0123456789abcdef/1",
    }))
    .expect("a result");
    experiment.commit(&result).expect("a committed result");
}

/// Stores a session of the agent in the home below a directory.
pub(crate) fn store_session(dir: &Path) {
    let chats = dir.join("home/.gemini/tmp").join("6".repeat(64)).join("chats");
    std::fs::create_dir_all(&chats).expect("a directory");
    let message = |number: u32, kind: &str, content: &str| {
        json!({
            "id": format!("00000000-0000-4000-8000-00000000000{number}"),
            "timestamp": "2025-10-29T09:01:20.960Z",
            "type": kind,
            "content": content,
        })
    };
    let mut answer = message(2, "gemini", "Hello!");
    answer["model"] = "gemini-2.5-flash".into();
    answer["tokens"] = json!({"input": 20, "output": 5, "cached": 0, "thoughts": 0, "tool": 0, "total": 25});
    let session = json!({
        "sessionId": SESSION,
        "projectHash": "6".repeat(64),
        "startTime": "2025-10-29T09:01:20.960Z",
        "lastUpdated": "2025-10-29T09:01:21.997Z",
        "messages": [message(1, "user", "Say hello"), answer],
    });
    let name = "session-2025-10-29T09-01-10000000.json";
    std::fs::write(chats.join(name), session.to_string()).expect("a file");
}
