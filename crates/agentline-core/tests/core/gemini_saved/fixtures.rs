//! Small sessions, each for one feature: how they are read, and the messages that they become.

use crate::saved_text::load;
use agentline_core::{
    BlockOrder, EntryPart, Role, SavedSession, SavedTool, SessionFormat, ToolStatus, unified_view,
};
use serde_json::{Value, json};
use std::path::Path;

fn text(name: &str) -> String {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/captures/gemini/fixtures/{name}.json"));
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn session(name: &str) -> SavedSession {
    let session = load("gemini", SessionFormat::Whole, &text(name));
    assert!(session.damage.is_empty(), "{:?}", session.damage);
    session
}

/// Returns the messages of the view `unified`, after checking their common properties.
fn messages(name: &str) -> Vec<Value> {
    let file: Value = serde_json::from_str(&text(name)).expect("it is JSON");
    let session = session(name);
    let messages: Vec<Value> = unified_view(&session, BlockOrder::Grouped, false)
        .map(|message| serde_json::to_string(&message).expect("the value can be formatted"))
        .map(|line| serde_json::from_str(&line).expect("it is JSON"))
        .collect();
    let originals = file["messages"].as_array().expect("a list");
    assert_eq!(messages.len(), originals.len());
    for (message, original) in messages.iter().zip(originals) {
        let role = if original["type"] == "user" { "user" } else { "assistant" };
        assert_eq!(message["role"], role);
        assert_eq!(message["tool"], "gemini");
        assert_eq!(&message["_original"], original);
        assert_eq!(message["id"], original["id"]);
        assert!(message["timestamp"].as_u64().is_some_and(|ms| ms > 1_761_000_000_000), "{message}");
    }
    messages
}

/// Returns the only message of a fixture, and the only tool in it.
fn one(name: &str) -> (Value, SavedTool) {
    let session = session(name);
    let [entry] = &session.entries[..] else { panic!("{:?}", session.entries) };
    assert_eq!(entry.role, Role::Assistant);
    let tools: Vec<&SavedTool> = entry.tools().collect();
    let [tool] = &tools[..] else { panic!("{tools:?}") };
    let [message] = &messages(name)[..] else { panic!("one message") };
    (message.clone(), (*tool).clone())
}

/// Returns the blocks of a type.
fn blocks<'a>(message: &'a Value, kind: &str) -> Vec<&'a Value> {
    message["content"].as_array().expect("blocks").iter().filter(|block| block["type"] == kind).collect()
}

/// Checks the call and result of a fixture with one tool, and returns the tool for further checks.
fn check(name: &str, tool_name: &str, input: &Value, status: ToolStatus, content: &str) -> SavedTool {
    let (message, tool) = one(name);
    assert_eq!(tool.call.name, tool_name);
    let result = tool.result.as_ref().expect("a result");
    assert_eq!((result.status, result.content.as_str()), (status, content));
    let (calls, results) = (blocks(&message, "tool_use"), blocks(&message, "tool_result"));
    assert_eq!((calls.len(), results.len()), (1, 1));
    assert_eq!((&calls[0]["name"], &calls[0]["input"]), (&json!(tool_name), input));
    assert_eq!(calls[0]["id"], tool.call.id.as_str());
    assert_eq!((&results[0]["tool_use_id"], &results[0]["content"]), (&calls[0]["id"], &json!(content)));
    assert_eq!(results[0]["is_error"].as_bool().unwrap_or(false), status != ToolStatus::Ok);
    tool
}

#[test]
fn tool_read_file() {
    let input = json!({"file_path": "/home/you/project/src/main.rs"});
    let tool = check("tool-read_file", "Read", &input, ToolStatus::Ok, "fn main() {}\n");
    assert_eq!(tool.call.raw_input.unwrap().get(), r#"{"absolute_path":"/home/you/project/src/main.rs"}"#);
}

#[test]
fn tool_write_file() {
    let input = json!({"file_path": "/home/you/project/hello.txt", "content": "Hello\n"});
    let output = "Successfully created and wrote to new file: /home/you/project/hello.txt.";
    let tool = check("tool-write-file", "Write", &input, ToolStatus::Ok, output);
    let diff = tool.diff.unwrap();
    assert_eq!(
        (diff.path.as_str(), diff.old, diff.new.as_deref(), diff.unified),
        ("/home/you/project/hello.txt", None, Some("Hello\n"), None)
    );
}

#[test]
fn tool_replace() {
    let input =
        json!({"file_path": "/home/you/project/hello.txt", "old_string": "Hello", "new_string": "Goodbye"});
    let output = "Successfully modified file: /home/you/project/hello.txt (1 replacements).";
    let tool = check("tool-replace", "Edit", &input, ToolStatus::Ok, output);
    let diff = tool.diff.unwrap();
    assert_eq!((diff.old.as_deref(), diff.new.as_deref()), (Some("Hello\n"), Some("Goodbye\n")));
    assert!(tool.call.raw_input.unwrap().get().contains("\"instruction\""));
}

#[test]
fn tool_run_shell_command() {
    let input = json!({"command": "ls -a", "description": "List the files."});
    let output = ".\n..\nhello.txt";
    check("tool-run_shell_command", "Bash", &input, ToolStatus::Ok, output);
}

#[test]
fn tool_google_web_search() {
    let output = "Web search results for \"rust edition 2024\":\n\nRust 2024 is an edition[1].\n\nSources:\n[1] rust-lang.org (https://www.rust-lang.org/)";
    check(
        "tool-google_web_search",
        "WebSearch",
        &json!({"query": "rust edition 2024"}),
        ToolStatus::Ok,
        output,
    );
}

#[test]
fn tool_list_directory() {
    let input = json!({"pattern": "*", "path": "/home/you/project/"});
    check(
        "tool-list_directory",
        "Glob",
        &input,
        ToolStatus::Ok,
        "Directory listing for /home/you/project/:\nhello.txt",
    );
}

#[test]
fn tool_result_error() {
    let input = json!({"file_path": "/home/you/project/none.txt"});
    check(
        "tool-result-error",
        "Read",
        &input,
        ToolStatus::Error,
        "File not found: /home/you/project/none.txt",
    );
}

#[test]
fn tool_result_cancelled() {
    let output = "[Operation Cancelled] Reason: User did not allow tool call";
    check("tool-result-cancelled", "Bash", &json!({"command": "rm -r build"}), ToolStatus::Cancelled, output);
}

#[test]
fn tool_result_success() {
    let (message, tool) = one("tool-result-success");
    assert_eq!(tool.result.unwrap().status, ToolStatus::Ok);
    let kinds: Vec<&str> =
        message["content"].as_array().unwrap().iter().filter_map(|block| block["type"].as_str()).collect();
    assert_eq!(kinds, ["tool_use", "tool_result", "text"], "the text is last");
    assert_eq!(message["model"], "gemini-2.5-pro");
    assert_eq!(message["usage"]["total_tokens"], 2030);
    let session = session("tool-result-success");
    let usage = session.entries[0].usage.unwrap();
    assert_eq!(
        (usage.input, usage.output, usage.cached, usage.thoughts, usage.tool),
        (Some(2000), Some(30), Some(500), Some(0), None)
    );
}

#[test]
fn with_thoughts() {
    let session = session("with-thoughts");
    let thoughts: Vec<&str> = session.entries[0]
        .parts
        .iter()
        .filter_map(|part| match part {
            EntryPart::Thinking { text, .. } => Some(text.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(thoughts, ["Adding: Two and two are to be added.", "Nothing else is asked.", "Done"]);
    let [message] = &messages("with-thoughts")[..] else { panic!("one message") };
    let found: Vec<&Value> = blocks(message, "thinking").iter().map(|block| &block["thinking"]).collect();
    assert_eq!(found, thoughts);
    assert_eq!(blocks(message, "text")[0]["text"], "The answer is 4.");
    assert_eq!(message["content"].as_array().unwrap().last().unwrap()["type"], "text");
}

#[test]
fn session_of_18_messages() {
    let messages = messages("session-of-18");
    assert_eq!(messages.len(), 18);
    let session = session("session-of-18");
    assert_eq!(session.entries.iter().filter(|entry| entry.is_prompt()).count(), 5);
    let tools: Vec<(&str, ToolStatus)> = session
        .entries
        .iter()
        .flat_map(agentline_core::Entry::tools)
        .map(|tool| (tool.call.name.as_str(), tool.result.as_ref().unwrap().status))
        .collect();
    let ok = |name| (name, ToolStatus::Ok);
    assert_eq!(
        tools,
        [
            ok("Glob"),
            ok("Read"),
            ok("Read"),
            ok("WebSearch"),
            ok("Write"),
            ok("Bash"),
            ok("Edit"),
            ("Read", ToolStatus::Error),
            ("Bash", ToolStatus::Cancelled)
        ]
    );
    assert_eq!(session.info.started, session.entries[0].timestamp);
    assert_eq!(session.info.updated, session.entries[17].timestamp);
}

#[test]
fn session_of_5_messages() {
    let messages = messages("session-of-5");
    let roles: Vec<&str> = messages.iter().filter_map(|message| message["role"].as_str()).collect();
    assert_eq!(roles, ["user", "assistant", "assistant", "user", "assistant"]);
    assert_eq!(blocks(&messages[1], "thinking")[0]["thinking"], "Greeting: A short one.");
}

/// Checks a session of three messages: a prompt, an answer with this tool, and an answer in text.
fn session_of_3(name: &str, tool: &str, text: &str) {
    let messages = messages(name);
    assert_eq!(messages.len(), 3);
    assert_eq!(blocks(&messages[1], "tool_use")[0]["name"], tool);
    assert_eq!(blocks(&messages[2], "text")[0]["text"], text);
}

#[test]
fn session_of_3_messages_with_read_file() {
    session_of_3("session-of-3-read", "Read", "An empty main.");
}

#[test]
fn session_of_3_messages_with_search() {
    session_of_3("session-of-3-search", "WebSearch", "The edition of 2024.");
}

#[test]
fn session_of_3_messages_with_list_directory() {
    session_of_3("session-of-3-list", "Glob", "hello.txt");
}

#[test]
fn session_of_2_messages() {
    let messages = messages("session-of-2");
    assert_eq!(messages.len(), 2);
    assert_eq!(messages[1]["usage"]["total_tokens"], 503);
}
