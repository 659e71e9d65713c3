//! Records with rare forms: results that are not text, roles of the agent itself, and calls known only from their
//! responses.

use crate::saved_text::{load, text_of};
use agentline_core::{Entry, EntryPart, Role, SavedSession, SavedTool, SessionFormat, ToolStatus};

fn read(lines: &[&str]) -> SavedSession {
    load("gemini", SessionFormat::Lines, &lines.join("\n"))
}

/// Returns the only tool of a session with this result.
fn tool(status: &str, result: &str) -> SavedTool {
    let call = format!(
        r#"{{"id":"c","name":"glob","args":{{"pattern":"*"}},"status":"{status}","result":{result}}}"#
    );
    let line = format!(r#"{{"id":"1","type":"gemini","content":"","toolCalls":[{call}]}}"#);
    let session = read(&[&line]);
    let tools: Vec<SavedTool> = session.entries.iter().flat_map(Entry::tools).cloned().collect();
    let [tool] = &tools[..] else { panic!("{tools:?}") };
    tool.clone()
}

fn response(body: &str) -> String {
    format!(r#"{{"functionResponse":{{"id":"c","name":"glob","response":{body}}}}}"#)
}

#[test]
fn non_text_results_keep_their_format() {
    for (result, content, raw) in [
        (response(r#"{"output":"a"}"#), "a", None),
        (format!("[{},{}]", response(r#"{"output":"a"}"#), response(r#"{"output":"b"}"#)), "a\nb", None),
        (response(r#"{"output":{"n": 1}}"#), r#"{"n": 1}"#, Some(r#"{"n": 1}"#)),
        (response(r#"{"output":[1]}"#), "[1]", Some("[1]")),
        (
            response(r#"{"result":true,"x":null}"#),
            r#"{"result":true,"x":null}"#,
            Some(r#"{"result":true,"x":null}"#),
        ),
        (format!("[{},{}]", response(r#"{"output":1}"#), response(r#"{"output":2}"#)), "1\n2", Some("[1,2]")),
        (response("{}"), "", None),
        (response(r#"{"output":null}"#), r#"{"output":null}"#, Some(r#"{"output":null}"#)),
        (r#""plain""#.to_owned(), "plain", None),
        (r#"[{"text":"part"}]"#.to_owned(), "part", None),
    ] {
        let saved = tool("success", &result).result.expect("the tool has a result");
        assert_eq!((saved.status, saved.content.as_str()), (ToolStatus::Ok, content), "{result}");
        assert_eq!(saved.raw.as_deref().map(serde_json::value::RawValue::get), raw, "{result}");
    }
}

#[test]
fn results_of_other_calls_in_the_turn_are_skipped() {
    let other = r#"{"functionResponse":{"id":"d","name":"glob","response":{"output":"not mine"}}}"#;
    let both = format!("[{},{other}]", response(r#"{"output":"mine"}"#));
    assert_eq!(tool("success", &both).result.expect("the tool has a result").content, "mine");
    // If there is no result with the id of the call, the other one is used.
    assert_eq!(
        tool("success", &format!("[{other}]")).result.expect("the tool has a result").content,
        "not mine"
    );
}

#[test]
fn tool_status_is_derived_from_the_result_text() {
    for (status, result, expected) in [
        ("error", response(r#"{"error":"it broke"}"#), ToolStatus::Error),
        ("success", response(r#"{"error":"it broke"}"#), ToolStatus::Error),
        ("cancelled", "null".to_owned(), ToolStatus::Cancelled),
        ("error", response(r#"{"error":"[Operation Cancelled] Reason: x"}"#), ToolStatus::Cancelled),
        ("error", response(r#"{"error":"Tool execution denied by policy."}"#), ToolStatus::Denied),
        ("", response(r#"{"output":"a"}"#), ToolStatus::Ok),
    ] {
        assert_eq!(
            tool(status, &result).result.expect("the tool has a result").status,
            expected,
            "{status} {result}"
        );
    }
    assert!(tool("executing", "null").result.is_none());
}

#[test]
fn files_in_a_result_are_kept() {
    let image = r#"{"inlineData":{"mimeType":"image/png","data":"AA=="}}"#;
    let inside = format!(
        r#"{{"functionResponse":{{"id":"c","name":"glob","response":{{"output":"seen"}},"parts":[{image}]}}}}"#
    );
    let outside = format!(
        r#"[{},{{"fileData":{{"mimeType":"text/plain","fileUri":"gs://a"}}}}]"#,
        response(r#"{"output":"seen"}"#)
    );
    for (result, mime, uri) in [(inside, "image/png", None), (outside, "text/plain", Some("gs://a"))] {
        let saved = tool("success", &result).result.expect("the tool has a result");
        assert_eq!(saved.content, "seen");
        assert_eq!((saved.media[0].mime_type.as_str(), saved.media[0].uri.as_deref()), (mime, uri));
    }
}

#[test]
fn diff_without_texts_is_a_unified_diff() {
    let line = |display: &str| {
        format!(
            r#"{{"id":"1","type":"gemini","content":"","toolCalls":[{{"id":"c","name":"replace","status":"success","resultDisplay":{display}}}]}}"#
        )
    };
    let diff = |display: &str| {
        let session = read(&[&line(display)]);
        session.entries[0].tools().next().expect("a tool").diff.clone()
    };
    let only = diff(r#"{"fileDiff":"--- a","fileName":"a.txt"}"#).expect("a diff");
    assert_eq!((only.path.as_str(), only.new, only.unified.as_deref()), ("a.txt", None, Some("--- a")));
    assert_eq!(diff(r#"{"isSubagentProgress":true}"#), None);
    assert_eq!(diff(r#""text""#), None);
    // The displayed text replaces a missing result.
    let session = read(&[&line(r#""done""#)]);
    assert_eq!(
        session.entries[0]
            .tools()
            .next()
            .expect("a tool")
            .result
            .as_ref()
            .expect("the tool has a result")
            .content,
        "done"
    );
}

#[test]
fn notices_of_the_agent_have_the_system_role() {
    let session = read(&[
        r#"{"id":"1","type":"info","content":"imported"}"#,
        r#"{"id":"2","type":"warning","content":[{"text":"careful"}]}"#,
        r#"{"id":"3","type":"error","content":{"text":"broken"}}"#,
        r#"{"id":"4","type":"user","content":[{"text":"<hook_context>x</hook_context>"}]}"#,
    ]);
    let entries: Vec<(Role, String)> =
        session.entries.iter().map(|entry| (entry.role, entry.text())).collect();
    let system = |text: &str| (Role::System, text.to_owned());
    assert_eq!(entries[..3], [system("imported"), system("careful"), system("broken")]);
    assert!(session.entries[3].context && !session.entries[3].is_prompt());
}

#[test]
fn call_is_reconstructed_from_its_response() {
    let answer = r#"{"id":"r","type":"user","content":[{"functionResponse":{"id":"c","name":"write_file","response":{"error":"Tool \"write_file\" was canceled by the user."}}}]}"#;
    // The call belongs to the answer before it, or else to an answer that was not recorded.
    for before in [&[r#"{"id":"a","type":"gemini","content":""}"#][..], &[]] {
        let mut lines = before.to_vec();
        lines.push(answer);
        let session = read(&lines);
        let [entry] = &session.entries[..] else { panic!("{}", text_of(&session)) };
        assert_eq!(entry.role, Role::Assistant);
        let tool = entry.tools().next().expect("the call");
        assert_eq!((tool.call.name.as_str(), tool.call.input.is_none()), ("Write", true));
        let result = tool.result.as_ref().expect("its result");
        assert_eq!(result.status, ToolStatus::Cancelled);
        assert!(result.original.is_some());
        // The call may follow its response.
        lines.push(r#"{"id":"z","type":"gemini","content":[{"functionCall":{"id":"c","name":"write_file","args":{"file_path":"a"}}}]}"#);
        let session = read(&lines);
        let tools: Vec<&SavedTool> = session.entries.iter().flat_map(Entry::tools).collect();
        assert_eq!(tools.len(), 1);
        assert_eq!(tools[0].call.path.as_deref(), Some("a"));
        assert!(tools[0].result.is_some());
    }
}

#[test]
fn unrecorded_answer_is_identified_by_its_call() {
    let responds = |id: &str, call: &str| {
        format!(
            r#"{{"id":"{id}","type":"user","content":[{{"functionResponse":{{"id":"{call}","name":"glob","response":{{"output":"y"}}}}}}]}}"#
        )
    };
    // Two calls are rewound, and then the first of them is recorded again.
    let lines =
        [responds("1", "c1"), responds("2", "c2"), r#"{"$rewindTo":"1"}"#.to_owned(), responds("3", "c1")];
    let session = read(&lines.iter().map(String::as_str).collect::<Vec<_>>());
    let ids = |entries: &[Entry]| entries.iter().map(|entry| entry.id.clone()).collect::<Vec<_>>();
    assert_eq!(
        (ids(&session.entries), ids(&session.abandoned)),
        (vec!["c1".to_owned()], vec!["c2".to_owned()])
    );
    // An unrecorded answer without calls disappears: its call belongs to the answer that made it.
    let answer = r#"{"id":"a","type":"gemini","content":"so"}"#;
    let session = read(&[&responds("1", "c1"), answer, &responds("2", "c1")]);
    assert_eq!(ids(&session.entries), ["a"]);
    assert_eq!(session.entries[0].tools().count(), 1);
}

#[test]
fn call_belongs_to_the_answer_that_made_it() {
    // Over ACP, the record of the first turn contains the calls of all turns.
    let call =
        |id: &str| format!(r#"{{"id":"{id}","name":"glob","args":{{}},"status":"success","result":"{id}"}}"#);
    let answer = |id: &str| {
        format!(
            r#"{{"id":"r{id}","type":"user","content":[{{"functionResponse":{{"id":"{id}","name":"glob","response":{{"output":"{id}"}}}}}}]}}"#
        )
    };
    let first =
        format!(r#"{{"id":"b","type":"gemini","content":"","toolCalls":[{},{}]}}"#, call("1"), call("2"));
    let session = read(&[
        &first,
        &answer("1"),
        r#"{"id":"c","type":"gemini","content":"","tokens":{"input":1}}"#,
        &answer("2"),
        r#"{"id":"d","type":"gemini","content":"done"}"#,
    ]);
    let calls: Vec<(&str, Vec<&str>)> = session
        .entries
        .iter()
        .map(|entry| (entry.id.as_str(), entry.tools().map(|tool| tool.call.id.as_str()).collect()))
        .collect();
    assert_eq!(calls, [("b", vec!["1"]), ("c", vec!["2"]), ("d", vec![])]);
    assert_eq!(session.entries[1].originals.len(), 2, "its own record, and the one with the call");
    assert_eq!(session.entries[1].stop_reason.as_deref(), Some("tool_use"));
    assert_eq!(session.entries[2].stop_reason, None);
}

#[test]
fn lone_surrogate_loses_no_record() {
    let session = read(&[
        r#"{"sessionId":"s","projectHash":"h","summary":"half \ud83d"}"#,
        r#"{"id":"1","type":"user","content":[{"text":"half \ud83d"}]}"#,
        r#"{"id":"2","type":"gemini","content":"","toolCalls":[{"id":"c","name":"glob","status":"success","result":[{"functionResponse":{"id":"c","response":{"output":"\udc00"}}}]}]}"#,
    ]);
    assert!(session.damage.is_empty(), "{:?}", session.damage);
    assert_eq!(session.info.title.as_deref(), Some("half \u{fffd}"));
    assert_eq!(session.entries[0].text(), "half \u{fffd}");
    assert!(session.entries[0].originals[0].as_str().contains("\\ud83d"), "unchanged");
    assert_eq!(
        session.entries[1].tools().next().expect("a tool").result.as_ref().expect("over").content,
        "\u{fffd}"
    );
}

#[test]
fn invalid_records_are_reported() {
    let session =
        read(&["", "7", "{}", r#"{"$set":{"messages":[5,{"type":"user","content":"no id"}]}}"#, "{\"id\""]);
    let damage: Vec<(Option<u64>, &str)> =
        session.damage.iter().map(|damage| (damage.line, damage.message.as_str())).collect();
    assert_eq!(damage.len(), 4, "{damage:?}");
    assert_eq!(damage[1], (Some(3), "unknown kind of record"));
    assert_eq!(damage[2], (Some(4), "not a message: 5"));
    assert_eq!(damage[3], (Some(5), "truncated"));
    assert!(matches!(&session.entries[0].parts[..], [EntryPart::Text { text }] if text == "no id"));
    assert_eq!(session.entries[0].id, "message 1");
}
