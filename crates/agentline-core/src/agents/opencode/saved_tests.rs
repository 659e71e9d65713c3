//! Tests of reading OpenCode's sessions: the export of a real run, and each kind of part.

use crate::agents::opencode::{session_reader::OpenCodeReader, sessions::form};
use crate::{
    Agent as _, Entry, EntryPart, RawJson, Role, SavedSession, SessionFormat, SessionReader as _, ToolStatus,
    agents::opencode, memory_fs::MemoryFs,
};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::{collections::BTreeMap, path::Path};

const EXPORT: &str = include_str!("../../../tests/captures/opencode/sessions/export.json");

fn fold(records: &[String]) -> SavedSession {
    let mut fold = OpenCodeReader::new();
    for record in records {
        fold.take(RawJson::new(record.as_str()));
    }
    let live = format!("{:?}", fold.session());
    let done = Box::new(fold).finish();
    assert_eq!(live, format!("{done:?}"));
    done
}

/// Returns the database records for the session of an export.
fn rows(export: &str) -> Vec<String> {
    let export: Value = serde_json::from_str(export).unwrap();
    let mut rows = vec![json!({"session": export["info"]}).to_string()];
    let messages = export["messages"].as_array().unwrap();
    rows.extend(messages.iter().map(|message| json!({"message": message}).to_string()));
    rows
}

fn message(id: &str, info: Value, parts: Value) -> String {
    let mut all = json!({"id": id, "role": "assistant", "modelID": "m", "time": {"created": 1}});
    all.as_object_mut().unwrap().extend(info.as_object().unwrap().clone());
    let mut parts = parts;
    for (i, part) in parts.as_array_mut().unwrap().iter_mut().enumerate() {
        part["id"] = format!("prt_{i}").into();
    }
    json!({"message": {"info": all, "parts": parts}}).to_string()
}

fn one(info: Value, parts: Value) -> Vec<Entry> {
    let session = fold(&[message("msg_1", info, parts)]);
    assert_eq!(session.damage, []);
    session.entries
}

/// Reads one tool part. Returns its status, its content and its canonical and native names.
fn tool(name: &str, state: Value) -> (Option<ToolStatus>, String, String) {
    let entries = one(json!({}), json!([{"type": "tool", "tool": name, "callID": "c", "state": state}]));
    let tool = entries[0].tools().next().unwrap();
    let result = tool.result.as_ref();
    (
        result.map(|r| r.status),
        result.map(|r| r.content.clone()).unwrap_or_default(),
        format!("{}:{}", tool.call.name, tool.call.native_name),
    )
}

fn outline(session: &SavedSession) -> Vec<String> {
    let part = |part: &EntryPart| match part {
        EntryPart::Text { text } => format!("text {text:?}"),
        EntryPart::Thinking { text, .. } => format!("thinking {text:?}"),
        EntryPart::Tool(tool) => {
            let result = tool.result.as_ref().map(|r| (r.status, r.content.as_str()));
            format!("{} {} {result:?} diff={}", tool.call.name, tool.call.native_name, tool.diff.is_some())
        }
        EntryPart::Media(media) => format!("{media:?}"),
    };
    session.entries.iter().flat_map(|e| e.parts.iter().map(part)).collect()
}

#[test]
fn export_of_a_real_run_is_read_completely() {
    assert_eq!(form(EXPORT.as_bytes()), Some(SessionFormat::Whole));
    let session = fold(&[EXPORT.to_owned()]);
    assert_eq!(session.damage, []);
    let info = &session.info;
    assert_eq!((&*info.agent, &*info.id), ("opencode", "ses_e2284fcedffee19cN6tTngdR0V"));
    assert_eq!(info.project.as_deref(), Some("/srv/lab/ws_opencode"));
    assert_eq!((info.title.as_deref(), info.model.as_deref()), (Some("Fake title"), Some("fake-model")));
    assert_eq!((info.started, info.updated), (Some(1_794_717_188_885), Some(1_794_717_199_506)));
    assert_eq!((info.agent_version.as_deref(), info.cost_usd), (Some("1.18.33"), Some(0.000_867)));
    assert_eq!(
        outline(&session)[..5],
        [
            r#"text "\"do [[full:/srv/lab/ws_opencode]]\"""#,
            r#"thinking "I should create the file first.""#,
            r#"text "Creating the file.""#,
            r#"Write write Some((Ok, "Wrote file successfully.")) diff=true"#,
            r#"thinking "Now edit it.""#,
        ]
    );
    let mut tools = session.entries.iter().flat_map(Entry::tools);
    let failed =
        |tool: &crate::SavedTool| tool.result.as_ref().is_some_and(|r| r.status == ToolStatus::Error);
    let exits =
        |tool: &crate::SavedTool| tool.call.input.as_ref().is_some_and(|i| i.get().contains("exit 3"));
    assert!(tools.any(|tool| failed(tool) && exits(tool)), "OpenCode reports a failed command as completed");
    let spent =
        session.entries.iter().filter_map(|e| e.usage).fold(crate::Tokens::default(), |a, b| a.plus(b));
    let counted = (spent.input, spent.output, spent.thoughts, spent.cached);
    assert_eq!(counted, (Some(495 + 120), Some(150), Some(30), Some(120)));
    assert_eq!(session.entries.iter().filter_map(|e| e.requests).sum::<u64>(), 6);
    let cost: f64 = session.entries.iter().filter_map(|e| e.cost_usd).sum();
    assert!((cost - 0.000_867).abs() < 1e-9, "the answers add up to the cost of the session: {cost}");
    assert_eq!(session.entries[1].stop_reason.as_deref(), Some("tool_use"));
    assert_eq!(session.entries.last().unwrap().stop_reason.as_deref(), Some("end_turn"));
    let original = session.entries[1].originals[0].as_str();
    assert!(EXPORT.contains(original) && original.contains("msg_1dd7b0ed0001bUXVlPVWCQp1xJ"));
}

#[test]
fn cost_is_read_per_step_or_per_message() {
    let message = |parts: Value| {
        let info = json!({"id": "msg_1", "role": "assistant", "modelID": "claude-sonnet-4-5", "cost": 0.5,
            "tokens": {"input": 1000, "output": 10, "reasoning": 0, "cache": {"read": 0, "write": 0}}});
        json!({"message": {"info": info, "parts": parts}}).to_string()
    };
    let step =
        |cost: Value| json!({"type": "step-finish", "tokens": {"input": 500, "output": 5}, "cost": cost});
    let cost = |parts: Value| fold(&[message(parts)]).entries[0].cost_usd;
    assert_eq!(cost(json!([step(json!(0.25)), step(json!(0.125))])), Some(0.375));
    assert_eq!(cost(json!([step(json!("odd"))])), None, "a step without a valid cost");
    assert_eq!(cost(json!([])), Some(0.5), "the cost of the message without steps");
    let ledger = crate::session_usage(&fold(&[message(json!([]))]), &crate::PriceTable::built_in());
    assert_eq!(ledger.total.cost_usd, Some(0.5), "the reported cost takes precedence over a list price");
    assert_eq!(ledger.total.cost_source, Some(crate::CostSource::Agent));
}

#[test]
fn shuffled_and_repeated_rows_give_the_same_session() {
    let rows = rows(EXPORT);
    let whole = outline(&fold(&[EXPORT.to_owned()]));
    assert_eq!(outline(&fold(&rows)), whole);
    let mut shuffled: Vec<String> = rows.iter().rev().cloned().collect();
    shuffled.extend(rows.iter().step_by(2).cloned());
    let session = fold(&shuffled);
    assert_eq!(outline(&session), whole);
    assert_eq!(session.info.title.as_deref(), Some("Fake title"));
}

#[test]
fn tool_status_is_derived_from_status_and_metadata() {
    use ToolStatus::{Cancelled, Denied, Error, Ok};
    let done = |output: &str, metadata: Value| json!({"status": "completed", "output": output, "metadata": metadata});
    let failed =
        |error: &str, metadata: Value| json!({"status": "error", "error": error, "metadata": metadata});
    let killed = "x\n\n<shell_metadata>\nUser aborted the command\n</shell_metadata>";
    let late =
        "<shell_metadata>\nshell tool terminated command after exceeding timeout 5 ms.\n</shell_metadata>";
    for (name, state, status, full) in [
        ("bash", done("a", json!({"exit": 0})), Some(Ok), "Bash:bash"),
        ("bash", done("a", json!({"exit": 3})), Some(Error), "Bash:bash"),
        ("bash", done(killed, json!({"exit": null})), Some(Cancelled), "Bash:bash"),
        ("bash", done(late, json!({"exit": null})), Some(Error), "Bash:bash"),
        ("read", failed("File not found", json!({})), Some(Error), "Read:read"),
        ("task", failed("Tool execution aborted", json!({})), Some(Cancelled), "Task:task"),
        (
            "echo_add",
            failed("stopped", json!({"interrupted": true})),
            Some(Cancelled),
            "mcp__echo__add:echo_add",
        ),
        (
            "edit",
            failed("The user rejected permission to use this specific tool call.", json!({})),
            Some(Denied),
            "Edit:edit",
        ),
        (
            "edit",
            failed("The user has specified a rule which prevents you", json!({})),
            Some(Denied),
            "Edit:edit",
        ),
        ("bash", json!({"status": "running", "input": {}}), None, "Bash:bash"),
        ("bash", json!({"status": "pending", "input": {}}), None, "Bash:bash"),
    ] {
        let (found, _, names) = tool(name, state.clone());
        assert_eq!((found, &*names), (status, full), "{state}");
    }
    let unknown = json!({"status": "completed", "output": "Model tried to call unavailable tool 'bash'.",
        "input": {"tool": "bash", "error": "x"}});
    assert_eq!(tool("invalid", unknown).0, Some(Denied));
    let odd = json!({"status": "completed", "output": {"a": [1]}});
    assert_eq!(tool("weird", odd), (Some(Ok), r#"{"a":[1]}"#.into(), "weird:weird".into()));
}

#[test]
fn file_changes_are_preserved() {
    let state = |input: Value, metadata: Value| json!({"status": "completed", "input": input, "output": "ok", "metadata": metadata});
    let diff = |name: &str, input, metadata| {
        let parts = json!([{"type": "tool", "tool": name, "callID": "c", "state": state(input, metadata)}]);
        one(json!({}), parts)[0].tools().next().unwrap().diff.clone()
    };
    let file = json!({"filePath": "/a", "oldString": "x", "newString": "y"});
    let edited = diff(
        "edit",
        file.clone(),
        json!({"diff": "@@", "filediff": {"file": "/a", "before": "x", "after": "y"}}),
    );
    let edited = edited.unwrap();
    assert_eq!((&*edited.path, edited.old.as_deref(), edited.new.as_deref()), ("/a", Some("x"), Some("y")));
    assert_eq!(edited.unified.as_deref(), Some("@@"));
    let written = diff("write", json!({"filePath": "/b", "content": "new"}), json!({})).unwrap();
    assert_eq!((&*written.path, written.old, written.new.as_deref()), ("/b", None, Some("new")));
    let patched = diff(
        "apply_patch",
        json!({"patchText": "p"}),
        json!({"diff": "@@ all", "files": [{"filePath": "/c"}]}),
    );
    assert_eq!((&*patched.unwrap().path), "/c");
    assert_eq!(diff("read", file, json!({})), None);
}

#[test]
fn user_files_and_agent_additions_are_distinguished() {
    let parts = json!([
        {"type": "text", "text": "look"},
        {"type": "file", "mime": "image/png", "url": "data:image/png;base64,QUJD"},
        {"type": "text", "text": "Called the Read tool", "synthetic": true},
        {"type": "file", "mime": "text/plain", "url": "file:///a.txt"},
        {"type": "agent", "name": "x"}, {"type": "snapshot"}, {"type": "brand-new"},
    ]);
    let entries = one(json!({"role": "user"}), parts);
    let shape: Vec<_> = entries.iter().map(|e| (e.role, e.context, e.parts.len())).collect();
    assert_eq!(shape, [(Role::User, false, 3), (Role::User, true, 1)]);
    let media = entries[0].parts.iter().filter_map(|p| match p {
        EntryPart::Media(m) => Some((&*m.mime_type, m.data.as_deref(), m.uri.as_deref())),
        _ => None,
    });
    assert_eq!(
        media.collect::<Vec<_>>(),
        [("image/png", Some("QUJD"), None), ("text/plain", None, Some("file:///a.txt"))]
    );
}

#[test]
fn compactions_summaries_errors_and_signatures_are_kept() {
    let compaction = one(json!({"role": "user"}), json!([{"type": "compaction", "auto": true}]));
    assert_eq!((compaction[0].role, &*compaction[0].text()), (Role::System, "Conversation compacted"));
    let summary = one(json!({"summary": true}), json!([{"type": "text", "text": "so far"}]));
    assert!(summary[0].context);
    let error = json!({"error": {"name": "APIError", "data": {"message": "no key", "statusCode": 401}}});
    let failed = one(error, json!([]));
    assert_eq!((failed.len(), failed[0].role, &*failed[0].text()), (1, Role::System, "no key"));
    let thought = json!([{"type": "reasoning", "text": "hm", "metadata": {"anthropic": {"signature": "sig"}}},
        {"type": "reasoning", "text": " "}]);
    let thought = one(json!({}), thought);
    assert!(matches!(&thought[0].parts[..], [EntryPart::Thinking { signature: Some(s), .. }] if s == "sig"));
    let subtask =
        one(json!({"role": "user"}), json!([{"type": "subtask", "prompt": "do it", "agent": "general"}]));
    assert_eq!(subtask[0].text(), "do it");
}

#[test]
fn steps_are_summed_and_message_copies_counted_once() {
    let step = |input: u64| {
        json!({"type": "step-finish", "reason": "length", "cost": 0.1,
        "tokens": {"input": input, "output": 2, "reasoning": 1, "cache": {"read": 5, "write": 3}}})
    };
    let info = json!({"time": {"created": 1, "completed": 9}, "tokens": {"input": 1, "output": 1}});
    let entry = one(info.clone(), json!([step(10), step(20)])).remove(0);
    let usage = entry.usage.unwrap();
    assert_eq!((usage.input, usage.output, usage.thoughts), (Some(46), Some(4), Some(2)));
    assert_eq!((usage.cached, usage.cache_write, usage.total), (Some(10), Some(6), Some(52)));
    assert_eq!((entry.requests, entry.stop_reason.as_deref()), (Some(2), Some("max_tokens")));
    let copy = fold(&[message("msg_other", info.clone(), json!([step(10), step(20)]))]);
    assert!(entry.counted_as.is_some() && copy.entries[0].counted_as == entry.counted_as);
    let by_message =
        one(json!({"tokens": {"input": 7, "output": 1}}), json!([{"type": "text", "text": "a"}]));
    assert_eq!(by_message[0].usage.unwrap().total, Some(8));
}

#[test]
fn reverted_messages_are_hidden_until_restored() {
    let text = |id: &str, at: u64| {
        message(
            id,
            json!({"time": {"created": at}}),
            json!([{"type": "text", "text": id}, {"type": "text", "text": "more"}]),
        )
    };
    let session = |revert: Value| {
        json!({"session": {"id": "ses_1", "parentID": "ses_0", "title": "New session - 2026", "revert": revert}}).to_string()
    };
    let all = [text("msg_1", 1), text("msg_2", 2), text("msg_3", 3)];
    let with = |revert: Value| {
        let mut rows = all.to_vec();
        rows.push(session(revert));
        let folded = fold(&rows);
        rows.rotate_right(1);
        assert_eq!(outline(&fold(&rows)), outline(&folded));
        assert_eq!((folded.info.title.as_deref(), folded.info.parent.as_deref()), (None, Some("ses_0")));
        let parts = |entries: &[Entry]| entries.iter().map(|e| e.parts.len()).collect::<Vec<_>>();
        (parts(&folded.entries), parts(&folded.abandoned))
    };
    assert_eq!(with(Value::Null), (vec![2, 2, 2], vec![]));
    assert_eq!(with(json!({"messageID": "msg_2"})), (vec![2], vec![2, 2]));
    assert_eq!(with(json!({"messageID": "msg_2", "partID": "prt_1"})), (vec![2, 1], vec![1, 2]));
    let mut rows = all.to_vec();
    rows.extend([session(json!({"messageID": "msg_2"})), session(Value::Null)]);
    let returned = fold(&rows);
    assert_eq!((returned.entries.len(), returned.abandoned.len()), (3, 0));
}

#[test]
fn unreadable_data_is_reported() {
    for (record, expected) in [
        ("[1]", "not a session of OpenCode"),
        ("{}", "not a session of OpenCode"),
        ("nonsense", "not JSON"),
        (r#"{"session":3}"#, "not an object"),
        (r#"{"message":{"parts":[]}}"#, "has no id"),
    ] {
        let session = fold(&[record.to_owned()]);
        assert!(session.damage[0].message.contains(expected), "{record}: {:?}", session.damage);
    }
    let half = r#"{"message":{"info":{"id":"msg_1","role":"user"},"parts":[{"id":"p","type":"text","text":"\ud83d!"}]}}"#;
    assert_eq!(fold(&[half.to_owned()]).entries[0].text(), "\u{fffd}!");
}

#[test]
fn database_is_found_in_the_data_directory() {
    let roots = |variables: &[(&str, &str)], files: &[&str]| {
        let env: BTreeMap<String, String> =
            variables.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect();
        let mut fs = MemoryFs::default();
        for file in files {
            fs = fs.file(file, "");
        }
        let roots = opencode::OpenCode.sessions().roots(&env, Path::new("/home/a"), &fs);
        roots.into_iter().map(|root| root.path.to_string_lossy().replace('\\', "/")).collect::<Vec<_>>()
    };
    assert_eq!(roots(&[], &[]), ["/home/a/.local/share/opencode/opencode.db"]);
    let both = ["/data/opencode/opencode-dev.db", "/data/opencode/opencode.db", "/data/opencode/auth.json"];
    assert_eq!(
        roots(&[("XDG_DATA_HOME", "/data")], &both),
        ["/data/opencode/opencode.db", "/data/opencode/opencode-dev.db",]
    );
    assert_eq!(roots(&[("OPENCODE_DB", "/x/my.db")], &[]), ["/x/my.db"]);
    assert_eq!(roots(&[("OPENCODE_DB", "my.db")], &[]), ["/home/a/.local/share/opencode/my.db"]);
    assert!(roots(&[("OPENCODE_DB", ":memory:")], &[]).is_empty());
    assert_eq!(form(b"SQLite format 3\0..."), Some(SessionFormat::Database));
    assert_eq!(form(b"{\"sessionId\":1}"), None);
}

proptest! {
    #[test]
    fn truncated_export_yields_its_complete_messages(cut in 0..EXPORT.trim_end().len()) {
        let session = fold(&[EXPORT[..cut].to_owned()]);
        let whole = fold(&[EXPORT.to_owned()]);
        prop_assert!(!session.damage.is_empty());
        let (some, all) = (outline(&session), outline(&whole));
        prop_assert_eq!(&some[..], &all[..some.len()]);
        if cut > EXPORT.trim_end().len() - 20 {
            prop_assert_eq!(some.len(), all.len());
        }
    }
}
