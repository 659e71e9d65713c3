//! Tests single records of saved sessions: commands, results without calls, lines of `codex exec`, bare messages, and
//! the records behind every message.

use crate::{
    gemini_saved,
    saved_text::{load, text_of},
};
use agentline_core::{
    BlockOrder, Message, SavedSession, SessionFormat, ToolStatus, agents, claude_view, unified_view,
};
use serde_json::{Value, json};
use std::path::Path;

fn lines(agent: &str, records: &[Value]) -> SavedSession {
    let text: String = records.iter().map(|record| format!("{record}\n")).collect();
    load(agent, SessionFormat::Lines, &text)
}

fn views(session: &SavedSession) -> [Vec<Value>; 2] {
    fn json(message: Message<'_>) -> Value {
        serde_json::to_value(message).expect("a message")
    }
    [
        unified_view(session, BlockOrder::Grouped, false).map(json).collect(),
        claude_view(session, false).map(json).collect(),
    ]
}

/// Returns a record that follows the one with the letter before.
fn user(uuid: &str, content: &Value) -> Value {
    let parent = match uuid {
        "b" => Some("a"),
        "c" => Some("b"),
        _ => None,
    };
    json!({"type": "user", "uuid": uuid, "parentUuid": parent, "sessionId": "s", "timestamp": "2026-11-15T04:00:00.000Z",
           "message": {"role": "user", "content": content}})
}

#[test]
fn slash_commands_are_shown_as_prompts() {
    let clear = "<command-name>/clear</command-name>\n            <command-message>clear</command-message>\n            <command-args></command-args>";
    let custom = "<command-message>fix is running…</command-message>\n<command-name>/fix</command-name>\n<command-args>issue 13</command-args>";
    let session = lines(
        "claude",
        &[
            user("a", &json!(clear)),
            user("b", &json!("<local-command-stdout></local-command-stdout>")),
            user("c", &json!(custom)),
        ],
    );
    let prompts: Vec<String> =
        session.entries.iter().filter(|entry| entry.is_prompt()).map(agentline_core::Entry::text).collect();
    assert_eq!(prompts, ["/clear", "/fix issue 13"]);
    let [unified, claude] = views(&session);
    assert_eq!(
        unified[0]["content"],
        json!([{"type": "slash_command", "command": "/clear", "message": "clear", "args": ""}])
    );
    assert_eq!(
        unified[1]["content"],
        json!([{"type": "slash_command", "command": "/fix", "message": "fix is running…", "args": "issue 13"}])
    );
    assert_eq!(claude[1]["content"], json!([{"type": "text", "text": "/fix issue 13"}]));
    let quoted = lines("claude", &[user("a", &json!("What does <command-name>/clear</command-name> mean?"))]);
    assert_eq!(views(&quoted)[0][0]["content"][0]["type"], "text");
}

#[test]
fn results_without_their_calls_are_shown() {
    let result =
        json!([{"type": "tool_result", "tool_use_id": "toolu_1", "content": "found", "is_error": true}]);
    let claude = lines("claude", &[user("a", &result)]);
    let codex = lines(
        "codex",
        &[json!({"timestamp": "2026-11-15T04:00:00.000Z", "type": "response_item",
                 "payload": {"type": "function_call_output", "call_id": "call_1", "output": "found"}})],
    );
    for (session, id, is_error) in [(&claude, "toolu_1", true), (&codex, "call_1", false)] {
        let expected =
            json!([{"type": "tool_result", "tool_use_id": id, "content": "found", "is_error": is_error}]);
        for view in views(session) {
            assert_eq!((view.len(), &view[0]["role"], &view[0]["content"]), (1, &json!("user"), &expected));
            assert!(view[0]["_original"].is_object(), "{view:?}");
        }
        assert!(!session.entries[0].is_prompt());
    }
}

#[test]
fn lines_of_codex_exec_are_read_like_a_session() {
    let item = |item: Value| json!({"type": "item.completed", "item": item});
    let session = lines(
        "codex",
        &[
            json!({"type": "thread.started", "thread_id": "t1"}),
            json!({"type": "turn.started"}),
            item(json!({"id": "item_0", "type": "reasoning", "text": "**Plan**"})),
            item(json!({"id": "item_1", "type": "command_execution", "command": "bash -lc 'exit 3'",
                        "aggregated_output": "no\n", "exit_code": 3, "status": "failed"})),
            item(json!({"id": "item_2", "type": "file_change", "status": "completed",
                        "changes": [{"path": "/a", "kind": "add"}, {"path": "/b", "kind": "update"}]})),
            item(json!({"id": "item_3", "type": "agent_message", "text": "Done."})),
            json!({"type": "turn.completed", "usage": {"input_tokens": 615, "cached_input_tokens": 120,
                   "output_tokens": 180, "reasoning_output_tokens": 30}}),
        ],
    );
    assert_eq!(session.info.id, "t1");
    assert!(session.damage.is_empty(), "{:?}", session.damage);
    let tools: Vec<_> = session.entries.iter().flat_map(agentline_core::Entry::tools).collect();
    let names: Vec<&str> = tools.iter().map(|tool| tool.call.name.as_str()).collect();
    assert_eq!(names, ["Bash", "Write", "Edit"]);
    assert_eq!(tools[0].result.as_ref().map(|result| result.status), Some(ToolStatus::Error));
    assert_eq!(tools[2].call.path.as_deref(), Some("/b"));
    let last = session.entries.last().expect("an answer");
    assert_eq!((last.text().as_str(), last.usage.and_then(|usage| usage.input)), ("Done.", Some(615)));
    let head = br#"{"type":"thread.started","thread_id":"t1"}"#;
    let codex = agents::find("codex").expect("it is listed");
    assert_eq!(codex.sessions().format(head), Some(SessionFormat::Lines));
}

#[test]
fn bare_gemini_message_is_a_session_of_one_message() {
    let fixture =
        std::fs::read_to_string(captures().join("gemini/fixtures/tool-read_file.json")).expect("a file");
    let session: Value = serde_json::from_str(&fixture).expect("JSON");
    let message = serde_json::to_string_pretty(&session["messages"][0]).expect("JSON");
    let gemini = agents::find("gemini").expect("it is listed");
    assert_eq!(gemini.sessions().format(message.as_bytes()), Some(SessionFormat::Whole));
    let read = load("gemini", SessionFormat::Whole, &message);
    let [unified, _] = views(&read);
    assert_eq!((unified.len(), &unified[0]["_original"]), (1, &session["messages"][0]));
    assert_eq!(unified[0]["content"][0]["name"], "Read");
}

#[test]
fn gemini_shell_output_has_no_wrapper_and_exit_3_failed() {
    for recording in ["0.11.3/full_tools", "0.24.0/full_tools", "0.61.0/full_tools"] {
        let mut statuses = Vec::new();
        for file in gemini_saved::files(recording) {
            let session = file.load();
            for tool in session.entries.iter().flat_map(agentline_core::Entry::tools) {
                let Some(result) = tool.result.as_ref().filter(|_| tool.call.name == "Bash") else {
                    continue;
                };
                for added in ["untrusted_context", "Output:", "Process Group", "Directory:"] {
                    assert!(!result.content.contains(added), "{recording}: {}", result.content);
                }
                let command = tool.call.raw_input.as_ref().map_or("", |input| input.get()).to_owned();
                statuses.push((command.contains("exit 3"), result.status));
            }
        }
        assert!(statuses.contains(&(true, ToolStatus::Error)), "{recording}: {statuses:?}");
        assert!(statuses.contains(&(false, ToolStatus::Ok)), "{recording}: {statuses:?}");
    }
}

#[test]
fn every_message_of_every_view_has_its_original() {
    let mut sessions: Vec<(String, SavedSession)> = Vec::new();
    for recording in gemini_saved::recordings() {
        let files = gemini_saved::files(&recording);
        sessions.extend(files.into_iter().map(|file| (format!("{recording}/{}", file.name), file.load())));
    }
    for agent in ["claude", "codex"] {
        for file in std::fs::read_dir(captures().join(agent).join("saved")).expect("captures") {
            let path = file.expect("a file").path();
            let text = std::fs::read_to_string(&path).expect("text");
            sessions.push((path.display().to_string(), load(agent, SessionFormat::Lines, &text)));
        }
    }
    assert!(sessions.len() > 30, "{}", sessions.len());
    for (name, session) in &sessions {
        for message in unified_view(session, BlockOrder::Turn, true).chain(claude_view(session, true)) {
            assert!(message.original.is_some(), "{name}: {message:?}\n{}", text_of(session));
        }
    }
}

fn captures() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/captures")
}
