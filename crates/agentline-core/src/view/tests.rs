//! Tests both views of a handmade session.

use super::*;
use crate::{Media, SavedDiff, Tokens, ToolKind, ToolStatus, ToolUse};
use serde_json::{Value, json, value::to_raw_value};

fn tool(id: &str, name: &str, native: &str, status: Option<ToolStatus>, content: &str) -> SavedTool {
    let mut call = ToolUse::new(id, name, native, ToolKind::Other);
    call.raw_input = to_raw_value(&json!({"absolute_path": "/a"})).ok();
    call.input = to_raw_value(&json!({"file_path": "/a"})).ok();
    let mut tool = SavedTool::new(call);
    tool.result = status.map(|status| SavedResult::new(status, content));
    tool
}

fn session(entries: Vec<Entry>) -> SavedSession {
    let info = SessionInfo { agent: "gemini".into(), id: "s1".into(), ..SessionInfo::default() };
    SavedSession { info, entries, ..SavedSession::default() }
}

fn answer() -> Entry {
    let mut entry = Entry::new("m1", Role::Assistant);
    entry.timestamp = Some(1_761_734_168_000);
    entry.model = Some("gemini-2.5-pro".into());
    entry.usage = Some(Tokens {
        input: Some(100),
        output: Some(20),
        cached: Some(40),
        thoughts: Some(5),
        total: Some(125),
        ..Tokens::default()
    });
    entry.parts = vec![
        EntryPart::text("I look."),
        EntryPart::thinking("Plan: read it"),
        EntryPart::Tool(Box::new(tool("t1", "Read", "read_file", Some(ToolStatus::Ok), "def main()"))),
        EntryPart::Tool(Box::new(tool(
            "t2",
            "Bash",
            "run_shell_command",
            Some(ToolStatus::Cancelled),
            "stopped",
        ))),
        EntryPart::text("Done."),
    ];
    entry.originals = vec![RawJson::new("{\"id\":  \"m1\"}")];
    entry
}

fn unified(session: &SavedSession, order: BlockOrder) -> Vec<Value> {
    unified_view(session, order, false).map(|m| serde_json::to_value(&m).unwrap()).collect()
}

fn claude(session: &SavedSession) -> Vec<Value> {
    claude_view(session, false).map(|m| serde_json::to_value(&m).unwrap()).collect()
}

fn kinds(message: &Value) -> Vec<&str> {
    message["content"].as_array().unwrap().iter().map(|b| b["type"].as_str().unwrap()).collect()
}

#[test]
fn record_becomes_one_message_with_thinking_first_and_text_last() {
    let session = session(vec![answer()]);
    let [message] = <[Value; 1]>::try_from(unified(&session, BlockOrder::Grouped)).unwrap();
    assert_eq!(
        kinds(&message),
        ["thinking", "tool_use", "tool_result", "tool_use", "tool_result", "text", "text"]
    );
    assert_eq!(message["id"], "m1");
    assert_eq!((&message["role"], &message["type"]), (&json!("assistant"), &json!("message")));
    assert_eq!((&message["tool"], &message["model"]), (&json!("gemini"), &json!("gemini-2.5-pro")));
    assert_eq!(message["timestamp"], 1_761_734_168_000_u64);
    assert_eq!(
        message["usage"],
        json!({"input_tokens": 100, "output_tokens": 20, "total_tokens": 125, "cache_read_input_tokens": 40,
               "reasoning_tokens": 5})
    );
    assert_eq!(
        message["content"][1],
        json!({"type": "tool_use", "id": "t1", "name": "Read", "input": {"file_path": "/a"},
               "native_name": "read_file", "raw_input": {"absolute_path": "/a"}})
    );
    assert_eq!(
        message["content"][2],
        json!({"type": "tool_result", "tool_use_id": "t1", "content": "def main()", "is_error": false})
    );
    assert_eq!(
        message["content"][4],
        json!({"type": "tool_result", "tool_use_id": "t2", "content": "stopped", "is_error": true,
               "status": "cancelled"})
    );
}

#[test]
fn original_record_is_preserved_byte_for_byte() {
    let session = session(vec![answer()]);
    let message = unified_view(&session, BlockOrder::Grouped, false).next().unwrap();
    assert!(serde_json::to_string(&message).unwrap().contains("\"_original\":{\"id\":  \"m1\"}"));
    let owned = message.into_owned();
    drop(session);
    assert_eq!(owned.original, Some(Original::Record(RawJson::new("{\"id\":  \"m1\"}"))));
}

#[test]
fn original_block_order_is_available() {
    let session = session(vec![answer()]);
    let [message] = <[Value; 1]>::try_from(unified(&session, BlockOrder::Turn)).unwrap();
    assert_eq!(
        kinds(&message),
        ["text", "thinking", "tool_use", "tool_result", "tool_use", "tool_result", "text"]
    );
}

#[test]
fn claude_view_puts_results_in_user_messages_and_splits_later_text() {
    let session = session(vec![answer()]);
    let messages = claude(&session);
    let roles: Vec<&str> = messages.iter().map(|m| m["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["assistant", "user", "assistant"]);
    assert_eq!(kinds(&messages[0]), ["text", "thinking", "tool_use", "tool_use"]);
    assert_eq!(kinds(&messages[1]), ["tool_result", "tool_result"]);
    assert_eq!(kinds(&messages[2]), ["text"]);
    assert_eq!((&messages[0]["id"], &messages[2]["id"]), (&json!("m1"), &json!("m1#2")));
    assert_eq!(messages[0]["stop_reason"], "tool_use");
    assert_eq!(messages[2]["stop_reason"], Value::Null);
    let counts = |m: &Value| {
        ["input_tokens", "cache_read_input_tokens", "output_tokens"]
            .map(|name| m["usage"][name].as_u64().unwrap())
    };
    assert_eq!((counts(&messages[0]), counts(&messages[2])), ([60, 40, 25], [0, 0, 0]));
    assert_eq!(messages[1].get("usage"), None);
    assert_eq!(messages[1].get("id"), None);
    assert!(messages.iter().all(|message| message["_original"]["id"] == "m1"), "{messages:?}");
}

#[test]
fn blank_content_is_kept_as_a_string() {
    let mut user = Entry::new("u", Role::User);
    user.parts = vec![EntryPart::text(" \n")];
    let mut notice = Entry::new("i", Role::System);
    notice.parts = vec![EntryPart::text("Request cancelled.")];
    let session = session(vec![user, Entry::new("e", Role::Assistant), notice]);
    let messages = unified(&session, BlockOrder::Grouped);
    assert_eq!((&messages[0]["content"], &messages[1]["content"]), (&json!(" \n"), &json!("")));
    assert_eq!(messages[2]["role"], "system");
    assert_eq!(messages[2]["content"], json!([{"type": "text", "text": "Request cancelled."}]));
    assert_eq!(claude(&session)[1]["content"], json!([]));
}

#[test]
fn context_is_hidden_unless_requested() {
    let mut context = Entry::new("c", Role::User);
    context.context = true;
    let session = session(vec![context, answer()]);
    assert_eq!(unified_view(&session, BlockOrder::Grouped, false).count(), 1);
    assert_eq!(unified_view(&session, BlockOrder::Grouped, true).count(), 2);
    assert_eq!(claude_view(&session, true).count(), 4);
}

#[test]
fn images_changes_and_unusual_results_are_preserved() {
    let mut edit = tool("t1", "Edit", "replace", Some(ToolStatus::Error), "");
    edit.diff = Some(SavedDiff {
        path: "/a".into(),
        old: Some("x".into()),
        new: Some("y".into()),
        ..SavedDiff::default()
    });
    if let Some(result) = &mut edit.result {
        result.raw = to_raw_value(&json!([1, {"b": 2}])).ok();
    }
    let mut shot = tool("t2", "Shot", "Shot", Some(ToolStatus::Ok), "here");
    if let Some(result) = &mut shot.result {
        result.media.push(Media::new("image/png", Some("AA==".into()), None));
    }
    let mut entry = Entry::new("m", Role::Assistant);
    entry.parts = vec![
        EntryPart::Media(Media::new("audio/wav", Some("AA==".into()), None)),
        EntryPart::Media(Media::new("application/pdf", None, Some("https://x/y.pdf".into()))),
        EntryPart::Tool(Box::new(edit)),
        EntryPart::Tool(Box::new(shot)),
        EntryPart::Tool(Box::new(tool("t3", "Read", "Read", None, ""))),
    ];
    let session = session(vec![entry]);
    let content = &unified(&session, BlockOrder::Turn)[0]["content"];
    assert_eq!(content[0], json!({"type": "text", "text": "[audio/wav]"}));
    assert_eq!(content[1], json!({"type": "document", "source": {"type": "url", "url": "https://x/y.pdf"}}));
    assert_eq!(content[3]["content"], "[1,{\"b\":2}]");
    assert_eq!(content[3]["is_error"], true);
    assert_eq!(content[3].get("status"), None);
    assert_eq!(content[3]["diff"], json!({"path": "/a", "old": "x", "new": "y"}));
    assert_eq!(
        content[5]["content"],
        json!([{"type": "text", "text": "here"},
               {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}}])
    );
    assert_eq!(kinds(&unified(&session, BlockOrder::Turn)[0]).len(), 7, "a call without a result has none");
}
