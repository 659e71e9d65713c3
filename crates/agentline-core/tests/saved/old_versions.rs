//! Sessions of other versions, in handmade lines: current versions no longer write them, or only with the vendor's own
//! models.

use crate::recordings::{format_session, read};

#[test]
fn old_claude_code_file_has_sidechains_costs_and_summaries() {
    let text = r#"
{"type":"summary","summary":"Counting files","leafUuid":"a2"}
{"type":"summary","summary":"Of another session","leafUuid":"zz"}
{"parentUuid":null,"isSidechain":false,"type":"user","message":{"role":"user","content":"count"},"uuid":"u1","timestamp":"2025-06-01T10:00:00.000Z","cwd":"/p","sessionId":"s","version":"1.0.10"}
{"parentUuid":"u1","isSidechain":false,"type":"assistant","message":{"id":"m1","model":"claude-sonnet-4","content":[{"type":"tool_use","id":"t1","name":"Task","input":{"prompt":"look"}}],"stop_reason":null,"usage":{"input_tokens":5,"output_tokens":1}},"requestId":"r1","costUSD":0.25,"uuid":"a1","timestamp":"2025-06-01T10:00:01.000Z","sessionId":"s"}
{"parentUuid":null,"isSidechain":true,"type":"user","message":{"role":"user","content":"look"},"uuid":"s1","timestamp":"2025-06-01T10:00:02.000Z","sessionId":"s"}
{"parentUuid":"s1","isSidechain":true,"type":"assistant","message":{"id":"m2","model":"claude-haiku","content":[{"type":"text","text":"two"}],"stop_reason":"end_turn","usage":{"input_tokens":7,"output_tokens":2}},"requestId":"r2","costUSD":0.5,"uuid":"s2","timestamp":"2025-06-01T10:00:03.000Z","sessionId":"s"}
{"parentUuid":"a1","isSidechain":false,"type":"user","message":{"role":"user","content":[{"type":"tool_result","tool_use_id":"t1","content":[{"type":"text","text":"two"},{"type":"text","text":"files"}]}]},"uuid":"u2","timestamp":"2025-06-01T10:00:04.000Z","sessionId":"s"}
{"parentUuid":"u2","isSidechain":false,"type":"assistant","message":{"id":"m3","model":"claude-sonnet-4","content":[{"type":"redacted_thinking","data":"eA=="},{"type":"text","text":"There are two."}],"stop_reason":"end_turn","usage":{"input_tokens":9,"output_tokens":3}},"requestId":"r3","costUSD":0.125,"uuid":"a2","timestamp":"2025-06-01T10:00:05.000Z","sessionId":"s"}
"#;
    let session = read("claude", text);
    assert_eq!((session.info.title.as_deref(), session.info.cost_usd), (Some("Counting files"), Some(0.875)));
    insta::assert_snapshot!(format_session(&session));
}

#[test]
fn claude_code_file_has_server_tools_titles_and_injected_user_text() {
    let text = r#"
{"type":"ai-title","aiTitle":"A title of the model's","sessionId":"s"}
{"type":"custom-title","customTitle":"A title of the user's","sessionId":"s"}
{"type":"ai-title","aiTitle":"A later title of the model's","sessionId":"s"}
{"parentUuid":null,"type":"user","message":{"role":"user","content":[{"type":"text","text":"see"},{"type":"image","source":{"type":"url","url":"https://example.com/a.png"}},{"type":"document","source":{"type":"base64","media_type":"application/pdf","data":"JVBERg=="}}]},"uuid":"u1","sessionId":"s"}
{"parentUuid":"u1","type":"assistant","message":{"id":"m1","model":"claude-opus-5","content":[{"type":"server_tool_use","id":"st1","name":"web_search","input":{"query":"x"}},{"type":"web_search_tool_result","tool_use_id":"st1","content":[{"type":"web_search_result","url":"https://example.com","title":"X"}]},{"type":"text","text":"found"}],"stop_reason":"end_turn","usage":{"input_tokens":3,"output_tokens":40,"output_tokens_details":{"thinking_tokens":15}}},"uuid":"a1","sessionId":"s"}
{"parentUuid":"a1","type":"attachment","attachment":{"type":"queued_command","prompt":"typed meanwhile","commandMode":"prompt"},"uuid":"q1","sessionId":"s"}
{"parentUuid":"q1","type":"assistant","message":{"id":"m2","model":"claude-opus-5","content":[{"type":"tool_use","id":"n1","name":"NotebookEdit","input":{"notebook_path":"/p/a.ipynb","new_source":"2"}},{"type":"tool_use","id":"n2","name":"Bash","input":{"command":"sleep 9"}}],"stop_reason":"tool_use","usage":{}},"uuid":"a2","sessionId":"s"}
{"parentUuid":"a2","type":"user","message":{"role":"user","content":[{"type":"tool_result","tool_use_id":"n1","content":"ok"}]},"toolUseResult":{"notebook_path":"/p/a.ipynb","original_file":"1","updated_file":"2"},"uuid":"r1","sessionId":"s"}
{"parentUuid":"a2","type":"user","message":{"role":"user","content":[{"type":"tool_result","tool_use_id":"n2","content":"","is_error":false}]},"toolUseResult":{"stdout":"","stderr":"","interrupted":true},"uuid":"r2","sessionId":"s"}
{"parentUuid":"r2","type":"user","message":{"role":"user","content":[{"type":"tool_result","tool_use_id":"lost","content":"of a call that is not here"}]},"uuid":"r3","sessionId":"s"}
{"parentUuid":"r3","type":"assistant","message":{"id":"x","model":"<synthetic>","content":[{"type":"text","text":"No response requested."}]},"uuid":"a3","sessionId":"s"}
{"parentUuid":"a3","type":"user","isMeta":true,"message":{"role":"user","content":"Caveat"},"uuid":"u4","sessionId":"s"}
{"parentUuid":"u4","type":"system","subtype":"informational","content":"A notice","uuid":"y1","sessionId":"s"}
{"parentUuid":"y1","type":"system","subtype":"turn_duration","uuid":"y2","sessionId":"s"}
{"parentUuid":"y1","type":"user","message":{"role":"user","content":"go on"},"uuid":"u5","sessionId":"s"}
{"parentUuid":"y1","type":"user","message":{"role":"user","content":"go on"},"uuid":"u5","sessionId":"s"}
"#;
    insta::assert_snapshot!(format_session(&read("claude", text)));
}

#[test]
fn title_that_agentline_gives_to_sessions_of_claude_code_is_ignored() {
    let text = r#"
{"type":"custom-title","customTitle":"agentline","sessionId":"s"}
{"type":"user","message":{"role":"user","content":"hi"},"uuid":"u1","sessionId":"s"}
"#;
    assert_eq!(read("claude", text).info.title, None);
    let renamed = r#"{"type":"custom-title","customTitle":"Mine","sessionId":"s"}"#;
    assert_eq!(read("claude", &format!("{text}{renamed}\n")).info.title.as_deref(), Some("Mine"));
}

#[test]
fn claude_code_session_returns_to_an_abandoned_branch() {
    let prompt = |uuid: &str, parent: &str| {
        format!(r#"{{"type":"user","uuid":"{uuid}","parentUuid":{parent},"message":{{"content":"{uuid}"}}}}"#)
    };
    let lines = [
        prompt("a", "null"),
        prompt("b", "\"a\""),
        prompt("c", "\"a\""),
        prompt("d", "\"b\""),
        prompt("e", "\"lost\""),
        prompt("f", "null"),
    ];
    let ids = |count: usize| {
        let session = read("claude", &lines[..count].join("\n"));
        let names =
            |entries: &[agentline_core::Entry]| entries.iter().map(|e| e.id.as_str()).collect::<String>();
        (names(&session.entries), names(&session.abandoned))
    };
    assert_eq!(ids(3), ("ac".into(), "b".into()));
    assert_eq!(ids(4), ("abd".into(), "c".into()));
    assert_eq!(ids(5), ("abde".into(), "c".into()));
    assert_eq!(ids(6), ("f".into(), "abcde".into()));
}

#[test]
fn oldest_codex_rollouts_have_no_envelope() {
    let text = r#"
{"id":"5973b6c0","timestamp":"2025-05-07T17:24:21.123Z","instructions":"be good"}
{"record_type":"state"}
{"type":"message","role":"user","content":[{"type":"input_text","text":"<environment_context>x</environment_context>"}]}
{"type":"message","role":"user","content":[{"type":"input_text","text":"list"},{"type":"input_image","image_url":"https://example.com/a.png"}]}
{"type":"reasoning","id":"rs1","summary":[],"encrypted_content":"eA=="}
{"type":"local_shell_call","id":"ls1","call_id":"c1","status":"completed","action":{"type":"exec","command":["bash","-lc","ls"]}}
{"type":"function_call_output","call_id":"c1","output":"{\"output\":\"a.txt\\n\",\"metadata\":{\"exit_code\":2,\"duration_seconds\":0.1}}"}
{"type":"function_call","name":"shell","arguments":"{\"command\":[\"git\",\"status\"]}","call_id":"c2"}
{"type":"function_call_output","call_id":"c2","output":{"content":"clean","success":false}}
{"type":"function_call","name":"shell","arguments":"not JSON","call_id":"c3"}
{"type":"function_call","name":"apply_patch","arguments":"{\"input\":\"*** Begin Patch\\n*** Delete File: a.txt\\n*** End Patch\"}","call_id":"c4"}
{"type":"function_call_output","call_id":"c4","output":{"odd":1}}
{"type":"function_call_output","call_id":"lost","output":"of a call that is not here"}
{"type":"message","role":"assistant","content":[{"type":"output_text","text":"done"}]}
"#;
    insta::assert_snapshot!(format_session(&read("codex", text)));
}

#[test]
fn old_codex_events_report_counts_and_command_ends() {
    let text = r#"
{"timestamp":"2025-10-01T08:00:00.000Z","type":"session_meta","payload":{"id":"t1","cwd":"/p","cli_version":"0.42.0","source":{"subagent":{"thread_spawn":{"parent_thread_id":"t0","depth":1}}}}}
{"timestamp":"2025-10-01T08:00:00.100Z","type":"turn_context","payload":{"model":"gpt-5-codex"}}
{"timestamp":"2025-10-01T08:00:01.000Z","type":"response_item","payload":{"type":"message","role":"user","content":[{"type":"input_text","text":"go"}]}}
{"timestamp":"2025-10-01T08:00:01.000Z","type":"event_msg","payload":{"type":"user_message","message":"go"}}
{"timestamp":"2025-10-01T08:00:02.000Z","type":"event_msg","payload":{"type":"agent_reasoning","text":"**Look**"}}
{"timestamp":"2025-10-01T08:00:02.000Z","type":"response_item","payload":{"type":"reasoning","summary":[{"type":"summary_text","text":"**Look**"}],"content":null}}
{"timestamp":"2025-10-01T08:00:02.100Z","type":"response_item","payload":{"type":"web_search_call","status":"completed","action":{"type":"search","query":"rust"}}}
{"timestamp":"2025-10-01T08:00:02.200Z","type":"response_item","payload":{"type":"function_call","name":"search","namespace":"mcp__docs__","arguments":"{\"q\":1}","call_id":"c1"}}
{"timestamp":"2025-10-01T08:00:02.300Z","type":"event_msg","payload":{"type":"token_count","info":null,"rate_limits":{}}}
{"timestamp":"2025-10-01T08:00:02.400Z","type":"event_msg","payload":{"type":"token_count","info":{"total_token_usage":{"input_tokens":1000,"cached_input_tokens":400,"output_tokens":50,"reasoning_output_tokens":20,"total_tokens":1050},"last_token_usage":{"input_tokens":100,"cached_input_tokens":40,"output_tokens":50,"reasoning_output_tokens":20,"total_tokens":150}}}}
{"timestamp":"2025-10-01T08:00:03.000Z","type":"event_msg","payload":{"type":"mcp_tool_call_end","call_id":"c1","success":false}}
{"timestamp":"2025-10-01T08:00:03.100Z","type":"response_item","payload":{"type":"function_call_output","call_id":"c1","output":"nothing"}}
{"timestamp":"2025-10-01T08:00:04.000Z","type":"response_item","payload":{"type":"custom_tool_call","call_id":"c2","name":"apply_patch","input":"*** Begin Patch\n*** Update File: a\n@@ one\n-1\n+2\n@@ two\n-3\n+4\n*** End Patch"}}
{"timestamp":"2025-10-01T08:00:04.100Z","type":"response_item","payload":{"type":"custom_tool_call_output","call_id":"c2","output":"{\"output\":\"done\",\"metadata\":{\"exit_code\":0}}"}}
{"timestamp":"2025-10-01T08:00:04.200Z","type":"event_msg","payload":{"type":"patch_apply_end","call_id":"c2","success":true,"changes":{"a":{"type":"update","unified_diff":"@@ -1 +1 @@\n-1\n+2\n"}}}}
{"timestamp":"2025-10-01T08:00:04.300Z","type":"response_item","payload":{"type":"custom_tool_call","call_id":"c3","name":"other","input":"words"}}
{"timestamp":"2025-10-01T08:00:04.400Z","type":"event_msg","payload":{"type":"token_count","info":{"total_token_usage":{"input_tokens":1300,"cached_input_tokens":500,"output_tokens":80,"reasoning_output_tokens":30,"total_tokens":1380},"last_token_usage":{"input_tokens":300}}}}
{"timestamp":"2025-10-01T08:00:04.400Z","type":"event_msg","payload":{"type":"token_count","info":{"total_token_usage":{"input_tokens":1300,"cached_input_tokens":500,"output_tokens":80,"reasoning_output_tokens":30,"total_tokens":1380},"last_token_usage":{"input_tokens":300}}}}
{"timestamp":"2025-10-01T08:00:05.000Z","type":"event_msg","payload":{"type":"turn_aborted"}}
{"timestamp":"2025-10-01T08:00:05.100Z","type":"event_msg","payload":{"type":"error","message":"You have hit your limit"}}
{"timestamp":"2025-10-01T08:00:06.000Z","type":"response_item","payload":{"type":"message","role":"user","content":[{"type":"input_text","text":"again"}]}}
{"timestamp":"2025-10-01T08:00:07.000Z","type":"response_item","payload":{"type":"message","role":"assistant","content":[{"type":"output_text","text":"yes"}]}}
{"timestamp":"2025-10-01T08:00:08.000Z","type":"event_msg","payload":{"type":"thread_rolled_back","num_turns":1}}
{"timestamp":"2025-10-01T08:00:09.000Z","type":"event_msg","payload":{"type":"thread_name_updated","thread_name":"A name"}}
"#;
    insta::assert_snapshot!(format_session(&read("codex", text)));
}

#[test]
fn tokens_before_the_first_answer_are_counted() {
    let text = r#"
{"type":"session_meta","payload":{"id":"t1"}}
{"type":"token_usage_record","payload":{"response_id":"r0","usage":{"input_tokens":10,"output_tokens":1}}}
{"type":"token_usage_record","payload":{"response_id":"r1","usage":{"input_tokens":20,"output_tokens":2}}}
{"type":"response_item","payload":{"type":"message","role":"assistant","content":[{"type":"output_text","text":"hi"}]}}
"#;
    let session = read("codex", text);
    let usage = session.entries[0].usage.unwrap();
    assert_eq!((usage.input, usage.output, session.entries[0].requests), (Some(30), Some(3), Some(2)));
}

#[test]
fn unreadable_lines_are_reported_and_the_rest_is_read() {
    let text = r#"{"type":"summary","summary":"Too early","leafUuid":"zz"}
{"type":"user","uuid":"u1","parentUuid":null,"message":{"content":"half of a pair: \ud83d"}}
[1, 2]
not JSON
{"type":"assistant","uuid":"a1","parentUuid":"u1","message":{"id":"m1","content":[{"type":"tool_use","id":"t1","name":"Bash","input":{}}]}}
{"type":"user","uuid":"u2","parentUuid":"a1","message":{"content":{"type":"tool_result","tool_use_id":"t1","content":"one"}}}
{"type":"user","uuid":"u3","parentUuid":"a1","message":{"content":[{"type":"tool_result","tool_use_id":"t1","content":null},{"type":"odd"}]}}
{"type":"summary","summary":"Just in time","leafUuid":"u3"}
{"type":"user","uuid":"u4"#;
    let session = read("claude", text);
    let lines: Vec<_> = session.damage.iter().map(|damage| damage.line).collect();
    assert_eq!(lines, [Some(3), Some(4), Some(9)]);
    assert_eq!(session.info.title.as_deref(), Some("Just in time"));
    assert_eq!(session.entries[0].text(), "half of a pair: \u{fffd}");
    let results: Vec<_> = session.entries[1].tools().filter_map(|tool| tool.result.as_ref()).collect();
    assert_eq!(results.iter().map(|result| result.content.as_str()).collect::<Vec<_>>(), ["one\n"]);
}
