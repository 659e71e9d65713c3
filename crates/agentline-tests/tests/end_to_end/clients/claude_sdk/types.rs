//! Checks that the SDK's types accept both views of messages and the lines of `--output claude`.

use agentline_core::{
    BlockOrder, ClaudeLines, Entry, EntryPart, Event, Failure, FailureKind, Media, Origin, Outcome,
    PermissionMode, RawJson, Record, Role, RunInfo, SavedDiff, SavedResult, SavedSession, SavedTool, Started,
    Tokens, ToolKind, ToolResult, ToolStatus, ToolUse, Verdict, claude_view, unified_view,
};
use agentline_tests::{ClaudeSdk, skipped};
use serde_json::{Value, json, value::to_raw_value};
use std::{fmt::Write as _, process::Command};

const DEMO_TAPE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../agentline-cli/src/demo.tape.jsonl");

/// A generic function preserves literals and accepts fields that the types do not have.
const HEAD: &str = "
import type { SDKAssistantMessage, SDKResultMessage, SDKSystemMessage, SDKUserMessage, SDKMessage }
  from '@anthropic-ai/claude-agent-sdk';
import type { BetaMessage } from '@anthropic-ai/sdk/resources/beta/messages/messages.mjs';
import type { MessageParam } from '@anthropic-ai/sdk/resources';
function is<Wanted>() { return <T extends Wanted>(value: T): T => value; }
";

/// Returns a program that passes each value to the type of its name.
fn program(values: impl IntoIterator<Item = (&'static str, Value)>) -> String {
    values.into_iter().fold(HEAD.to_owned(), |mut text, (name, value)| {
        writeln!(text, "is<{name}>()({value});").unwrap();
        text
    })
}

fn tool(status: Option<ToolStatus>) -> SavedTool {
    let mut call = ToolUse::new("t1", "Read", "read_file", ToolKind::Read);
    call.raw_input = to_raw_value(&json!({"absolute_path": "/a"})).ok();
    call.input = to_raw_value(&json!({"file_path": "/a"})).ok();
    let mut tool = SavedTool::new(call);
    tool.result = status.map(|status| SavedResult::new(status, "text"));
    let mut diff = SavedDiff::default();
    (diff.path, diff.new) = ("/a".into(), Some("new".into()));
    tool.diff = Some(diff);
    tool
}

/// Returns a session with every kind of content.
fn session() -> SavedSession {
    let mut session = SavedSession::default();
    session.info.agent = "gemini".into();
    let mut user = Entry::new("u1", Role::User);
    user.parts = vec![
        EntryPart::text("Look at this."),
        EntryPart::Media(Media::new("image/png", Some("AA==".into()), None)),
        EntryPart::Media(Media::new("application/pdf", Some("AA==".into()), None)),
        EntryPart::Media(Media::new("audio/wav", Some("AA==".into()), None)),
    ];
    user.timestamp = Some(1_761_734_168_000);
    let mut answer = Entry::new("m1", Role::Assistant);
    let mut shot = tool(Some(ToolStatus::Ok));
    if let Some(result) = &mut shot.result {
        result.media.push(Media::new("image/png", Some("AA==".into()), None));
    }
    answer.parts = vec![
        EntryPart::thinking("hm"),
        EntryPart::text("I look."),
        EntryPart::Tool(Box::new(tool(Some(ToolStatus::Ok)))),
        EntryPart::Tool(Box::new(tool(Some(ToolStatus::Cancelled)))),
        EntryPart::Tool(Box::new(tool(Some(ToolStatus::Error)))),
        EntryPart::Tool(Box::new(shot)),
        EntryPart::Tool(Box::new(tool(None))),
        EntryPart::text("Seen."),
    ];
    answer.model = Some("gemini-2.5-pro".into());
    answer.usage = Some(Tokens { input: Some(100), cached: Some(40), output: Some(7), ..Tokens::default() });
    answer.stop_reason = Some("end_turn".into());
    answer.originals = vec![RawJson::new(r#"{"id":"m1"}"#)];
    let bare = Entry::new("m2", Role::Assistant);
    session.entries = vec![user, answer, bare, Entry::new("u2", Role::User)];
    session
}

fn failed_lines() -> Vec<Value> {
    let mut started = Started::default();
    started.run_id = "11111111-2222-4333-8444-555555555555".into();
    let mut info = RunInfo::default();
    info.run_id.clone_from(&started.run_id);
    let outcome = Outcome::not_started(&info, Verdict::Failed, Failure::new(FailureKind::ApiError, "no"));
    let events = [
        Event::from(started),
        Event::Thinking { text: "hm".into() },
        Event::from(ToolUse::new("t1", "Read", "read_file", ToolKind::Read)),
        Event::from(ToolResult::new("t1", ToolStatus::Cancelled, None)),
        Event::Outcome { outcome: Box::new(outcome) },
    ];
    let mut fold = ClaudeLines::new(PermissionMode::Plan);
    let mut lines = Vec::new();
    for (seq, event) in (1..).zip(events) {
        let record = Record::new(seq, 0, Origin::Stdout, None, event);
        fold.take(&record, |line| lines.push(serde_json::from_str(&line).unwrap()));
    }
    lines
}

/// Returns the output of the demo: a run with text, tools and a failed tool.
pub(crate) fn demo_lines() -> Vec<Value> {
    let mut replay = Command::new(env!("CARGO_BIN_EXE_agentline-under-test"));
    let done = replay.args(["replay", DEMO_TAPE, "--output", "claude"]).output().unwrap();
    let text = String::from_utf8(done.stdout).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn type_of(line: &Value) -> &'static str {
    match line["type"].as_str() {
        Some("system") => "SDKSystemMessage",
        Some("assistant") => "SDKAssistantMessage",
        Some("user") => "SDKUserMessage",
        Some("result") => "SDKResultMessage",
        other => panic!("{other:?} is not a line of Claude Code"),
    }
}

/// Returns a program with the messages of both views of a session.
fn views() -> String {
    let session = session();
    let unified = [BlockOrder::Grouped, BlockOrder::Turn].into_iter().flat_map(|order| {
        let messages = unified_view(&session, order, true);
        messages.map(|m| ("MessageParam", serde_json::to_value(&m).unwrap())).collect::<Vec<_>>()
    });
    let claude = claude_view(&session, true).flat_map(|m| {
        let value = serde_json::to_value(&m).unwrap();
        // An answer of the model is also a valid input message.
        let whole = (m.role == Role::Assistant).then(|| ("BetaMessage", value.clone()));
        whole.into_iter().chain([("MessageParam", value)])
    });
    let values: Vec<_> = unified.chain(claude).collect();
    assert_eq!(values.iter().filter(|(name, _)| *name == "BetaMessage").count(), 3);
    program(values)
}

/// Returns a program with the lines of a complete run and of a failed one.
fn runs() -> String {
    let mut lines = demo_lines();
    assert!(lines.len() > 8, "{lines:?}");
    lines.extend(failed_lines());
    program(lines.into_iter().flat_map(|line| [(type_of(&line), line.clone()), ("SDKMessage", line)]))
}

/// Returns a program with a wrong value and a missing field.
fn invalid() -> String {
    let mut result = failed_lines().pop().unwrap();
    result["total_cost_usd"] = Value::Null;
    program([
        ("SDKResultMessage", result),
        ("MessageParam", json!({"role": "user", "content": [{"type": "tool_result", "content": "x"}]})),
    ])
}

/// One test, because the compiler takes most of its time for the types themselves.
#[test]
fn the_types_accept_views_and_lines_and_reject_invalid_values() {
    let Some(sdk) = ClaudeSdk::find() else { return skipped("the types of Claude's SDK") };
    let [of_views, of_runs, of_invalid] = sdk.complaints([&views(), &runs(), &invalid()]);
    assert_eq!((of_views.as_str(), of_runs.as_str()), ("", ""));
    for part in ["'null' is not assignable to type 'number'", "tool_use_id"] {
        assert!(of_invalid.contains(part), "{part} is not in {of_invalid}");
    }
}
