//! An agent that speaks ACP itself.

use crate::{
    Test,
    client::{self, TestClient, processes_of, prompt, run},
};
use agentline::PermissionMode;
use agentline_acp::ConnectionEnd;
use serde_json::{Value, json};
use std::time::Duration;

pub(crate) const TESTS: &[Test] = &[
    ("unknown_frames_pass_byte_for_byte", unknown_frames_pass_byte_for_byte),
    (
        "invalid_lines_of_the_agent_do_not_reach_the_client",
        invalid_lines_of_the_agent_do_not_reach_the_client,
    ),
    ("reports_to_agentline_do_not_reach_the_client", reports_to_agentline_do_not_reach_the_client),
    ("a_prompt_reports_what_changed", a_prompt_reports_what_changed),
    ("rules_decide_before_the_user", rules_decide_before_the_user),
    ("files_and_terminals_are_screened", files_and_terminals_are_screened),
    ("a_budget_stops_and_refuses_prompts", a_budget_stops_and_refuses_prompts),
    ("secrets_are_redacted_for_the_client_only", secrets_are_redacted_for_the_client_only),
    ("a_secret_with_pauses_is_redacted", a_secret_with_pauses_is_redacted),
    ("the_client_cancels", the_client_cancels),
    ("an_agent_that_dies_leaves_no_request_open", an_agent_that_dies_leaves_no_request_open),
    ("an_agent_that_is_silent_has_a_clock", an_agent_that_is_silent_has_a_clock),
    ("a_session_elsewhere_gets_an_agent_there", a_session_elsewhere_gets_an_agent_there),
    ("a_tape_has_the_messages_of_both_sides", a_tape_has_the_messages_of_both_sides),
    ("a_session_elsewhere_is_recorded", a_session_elsewhere_is_recorded),
    #[cfg(target_os = "linux")]
    ("a_client_waits_for_an_agent_that_does_not_read", a_client_waits_for_an_agent_that_does_not_read),
];

const SECRET: &str = "hush-hush-0123456789";

fn unknown_frames_pass_byte_for_byte() {
    run(async {
        let mut client = TestClient::start(|_| ());
        let session = client.open().await;
        let odd = [
            r#"{ "jsonrpc":"2.0" , "id":"odd \u0041", "method":"x/unknown","params":{"big":123456789012345678901234567890, "f":1.0} }"#,
            "{\"method\":\"x/note\",\t\"jsonrpc\":\"2.0\",\"params\":[null, 1e400,\"\\ud83d\\ude00\"]}",
            r#"{"id":99999999999999999999,"result":{"to":"nothing"},"jsonrpc":"2.0"}"#,
            r#"{"jsonrpc":"2.0","id":-7.50,"method":"session/unknown","params":{"sessionId":"unknown-session","a":{"a":1,"a":2}}}"#,
        ];
        for frame in odd {
            client.send(frame).await;
        }
        // The agent refuses unknown methods, with the ids as they were written.
        let mut refused = 0;
        while refused < 2 {
            let frame = client.receive().await;
            refused += usize::from(frame.contains("-32601"));
        }
        let log = client.log();
        for frame in odd {
            assert!(log.lines().any(|line| line == frame), "{frame}\n{log}");
        }
        let from_agent = [
            r#"{"jsonrpc" : "2.0", "method":"x/progress","params":{"n":12345678901234567890123,"f":1.50,"s":"\u0041"} }"#,
            r#"{ "jsonrpc":"2.0","method":"session/update","params":{"sessionId":"{session}","update":{"sessionUpdate":"of_the_future","x":[1,  2]}}}"#,
            r#"{"id":"q/1","method":"x/ask","jsonrpc":"2.0","params":{"deep":{"er":[0.10]}}}"#,
        ];
        let script = from_agent.map(|frame| format!("raw {frame}")).join("\n") + "\nsay over";
        client.prompt(&session, &script).await.expect("an answer");
        for frame in from_agent {
            let frame = frame.replace("{session}", &session);
            assert!(client.seen.contains(&frame), "{frame}\n{:#?}", client.seen);
        }
        client.disconnect().await;
    });
}

fn invalid_lines_of_the_agent_do_not_reach_the_client() {
    run(async {
        let mut client = TestClient::start(|_| ());
        let session = client.open().await;
        let script = "raw Loaded cached credentials.\nraw {\"jsonrpc\":\"2.0\",\nraw []\nsay fine";
        client.prompt(&session, script).await.expect("an answer");
        assert_eq!(client.text(), "fine");
        let is_message =
            |frame: &String| serde_json::from_str::<Value>(frame).is_ok_and(|frame| frame.is_object());
        assert!(client.seen.iter().all(is_message), "{:#?}", client.seen);
        client.disconnect().await;
    });
}

fn reports_to_agentline_do_not_reach_the_client() {
    run(async {
        let mut client = TestClient::start(|_| ());
        let session = client.open().await;
        let report = r#"{"jsonrpc":"2.0","method":"_agentline/of_a_script"}"#;
        let script = format!("raw {report}\nraw {}\nsay fine", report.replace("_agentline", "_agent"));
        client.prompt(&session, &script).await.expect("an answer");
        let seen = client.seen.join("\n");
        assert!(seen.contains("_agent/of_a_script") && !seen.contains("_agentline/"), "{seen}");
        client.disconnect().await;
    });
}

fn a_prompt_reports_what_changed() {
    run(async {
        let mut client = TestClient::start(|_| ());
        let session = client.open().await;
        let answer =
            client.prompt(&session, "tool write_file a.txt hi\nrun touch b.txt\nsay x\nusage 100 20").await;
        let answer = answer.expect("an answer");
        let files = answer["_meta"]["agentline"]["files"].as_array().expect("files");
        let found: Vec<_> = files.iter().filter_map(|file| file["path"].as_str()).collect();
        assert_eq!(found, ["a.txt", "b.txt"], "{answer}");
        assert_eq!(answer["_meta"]["agentline"]["usage"]["input_tokens"], 100, "{answer}");
        assert_eq!(answer["stopReason"], "end_turn");
        let second = client.prompt(&session, "say nothing").await.expect("an answer");
        assert_eq!(second["_meta"]["agentline"]["files"], json!([]), "{second}");
        client.disconnect().await;
    });
}

fn rules_decide_before_the_user() {
    run(async {
        let mut client = TestClient::start(|request| {
            request.allow = vec!["Write(free.txt)".parse().expect("a rule")];
        });
        client.picks = Some("allow_always");
        let session = client.open().await;
        let script = "ask write_file free.txt a\nask write_file other.txt b\nsay x";
        client.prompt(&session, script).await.expect("an answer");
        assert_eq!(client.asked.len(), 1, "{:?}", client.asked);
        assert!(client.asked[0].to_string().contains("other.txt"), "{:?}", client.asked);
        // The agent gets the client's own answer.
        assert!(client.log().contains("\"allow_always\""), "{}", client.log());
        client.disconnect().await;
        let mut client = TestClient::start(|request| request.permission_mode = PermissionMode::Deny);
        let session = client.open().await;
        let answer = client.prompt(&session, "ask write_file a.txt a\nsay x").await.expect("an answer");
        assert!(client.asked.is_empty() && !client.workspace().join("a.txt").exists());
        assert_eq!(answer["_meta"]["agentline"]["denied"].as_array().map(Vec::len), Some(1), "{answer}");
        client.disconnect().await;
    });
}

fn files_and_terminals_are_screened() {
    run(async {
        let mut client = TestClient::start(|_| ());
        let session = client.open().await;
        let outside = client.dir.path().join("home").join("x.txt");
        let script = format!(
            "fs_read a.txt\nfs_read {}\nfs_write {} y\nterminal\nsay over",
            outside.display(),
            outside.display()
        );
        let answer = client.prompt(&session, &script).await.expect("an answer");
        // The client has the file in its workspace, with changes that are not saved.
        assert_eq!(client.asked.len(), 2, "{:?}", client.asked);
        assert!(client.text().contains("unsaved text") && client.text().contains("t1"), "{}", client.text());
        assert!(client.log().matches("outside").count() >= 2, "{}", client.log());
        assert!(!outside.exists());
        assert_eq!(answer["stopReason"], "end_turn");
        client.disconnect().await;
    });
}

fn a_budget_stops_and_refuses_prompts() {
    run(async {
        let mut client = TestClient::start(|request| request.limits.max_tool_calls = Some(1));
        let session = client.open().await;
        let script = "tool write_file a.txt a\ntool write_file b.txt b\nsleep 50000\nsay never";
        let stopped = client.prompt(&session, script).await.expect_err("the limit");
        assert_eq!(stopped["code"], -32010, "{stopped}");
        assert!(stopped["data"]["agentline"]["files"][0]["path"] == "a.txt", "{stopped}");
        let refused = client.prompt(&session, "say y").await.expect_err("a used-up budget");
        assert_eq!(refused["data"]["agentline"]["limit"], "max_tool_calls", "{refused}");
        assert!(!client.log().contains("say y"), "it is not sent");
        client.disconnect().await;
    });
}

fn secrets_are_redacted_for_the_client_only() {
    run(async {
        let mut client = TestClient::start(|request| {
            request.env.insert("SOME_API_KEY".to_owned(), SECRET.to_owned());
        });
        let session = client.open().await;
        let script = format!("say it is {SECRET} here\nsay hush-hush-01\nsay 23456789\nsay over");
        client.prompt(&session, &script).await.expect("an answer");
        let shown = client.seen.join("\n");
        assert!(!shown.contains("0123456789") && !shown.contains("23456789"), "{shown}");
        assert!(client.text().ends_with("over"), "{}", client.text());
        assert!(client.log().contains(SECRET), "the agent gets what the client sends");
        client.disconnect().await;
    });
}

fn a_secret_with_pauses_is_redacted() {
    run(async {
        let mut client = TestClient::start(|request| {
            request.env.insert("SOME_API_KEY".to_owned(), SECRET.to_owned());
        });
        let session = client.open().await;
        let script = "say it is hush-hush-01\nsleep 300\nsay 23456789.\nsay a hush-\nsleep 300\nsay end";
        client.prompt(&session, script).await.expect("an answer");
        assert_eq!(client.text(), "it is [redacted].a hush-end");
        // What the agent says last is not held back beyond its prompt.
        client.prompt(&session, "say it is hush-hush-01\nsleep 300").await.expect("an answer");
        assert!(client.text().ends_with("it is hush-hush-01"), "{}", client.text());
        client.disconnect().await;
    });
}

fn the_client_cancels() {
    run(async {
        let mut client = TestClient::start(|_| ());
        let session = client.open().await;
        let id = client.begin("session/prompt", prompt(&session, "say begun\nsleep 50000\nsay never")).await;
        while !client.text().contains("begun") {
            let frame = client.receive().await;
            client.seen.push(frame);
        }
        let cancel =
            format!(r#"{{"jsonrpc":"2.0", "method":"session/cancel","params":{{"sessionId":"{session}"}}}}"#);
        client.send(cancel.clone()).await;
        let answer = client.response(id).await.expect("an answer");
        assert_eq!(answer["stopReason"], "cancelled", "{answer}");
        assert_eq!(client.log().matches("session/cancel").count(), 1, "{}", client.log());
        assert!(client.log().lines().any(|line| line == cancel), "{}", client.log());
        let next = client.prompt(&session, "say again").await.expect("an answer");
        assert_eq!(next["stopReason"], "end_turn");
        client.disconnect().await;
    });
}

fn an_agent_that_dies_leaves_no_request_open() {
    run(async {
        let mut client = TestClient::start(|_| ());
        let session = client.open().await;
        let died = client.prompt(&session, "say half\ndie 9").await.expect_err("a crash");
        assert_eq!(died["data"]["agentline"]["verdict"], "failed", "{died}");
        let (end, dir) = client.end().await;
        assert_eq!(end, ConnectionEnd::AgentExited);
        assert!(processes_of(dir.path()).is_empty());
    });
}

fn an_agent_that_is_silent_has_a_clock() {
    run(async {
        let mut client = TestClient::start(|request| {
            request.env.insert("FAKE_ACP_FAULT".to_owned(), "initialize_never".to_owned());
            request.startup_timeout = Duration::from_millis(500);
        });
        let silent = client.call("initialize", json!({"protocolVersion": 1})).await.expect_err("no answer");
        assert!(silent["message"].to_string().contains("in time"), "{silent}");
        client.disconnect().await;
        // A response that comes too late is dropped: the request has one.
        let mut client = TestClient::start(|request| {
            request.env.insert("FAKE_ACP_FAULT".to_owned(), "initialize_slow:1000".to_owned());
            request.startup_timeout = Duration::from_millis(200);
        });
        client.call("initialize", json!({"protocolVersion": 1})).await.expect_err("no answer");
        tokio::time::sleep(Duration::from_millis(1500)).await;
        client.call("x/unknown", json!({})).await.expect_err("an unknown method");
        assert!(!client.seen.join("\n").contains("protocolVersion"), "{:#?}", client.seen);
        client.disconnect().await;
    });
}

fn a_session_elsewhere_gets_an_agent_there() {
    run(async {
        let mut client = TestClient::start(|_| ());
        let other = client.dir.path().join("home");
        client
            .call("initialize", json!({"protocolVersion": 1, "clientCapabilities": {}}))
            .await
            .expect("initialized");
        let opened =
            client.call("session/new", json!({"cwd": other, "mcpServers": []})).await.expect("a session");
        let session = opened["sessionId"].as_str().expect("an id").to_owned();
        let answer = client.prompt(&session, "tool write_file a.txt a\ncwd").await.expect("an answer");
        assert_eq!(answer["_meta"]["agentline"]["files"][0]["path"], "a.txt");
        assert!(client.text().contains("home"), "{}", client.text());
        let third = client.call("session/new", json!({"cwd": client.workspace(), "mcpServers": []})).await;
        assert_eq!(third.expect_err("one directory")["code"], -32602);
        client.disconnect().await;
    });
}

fn a_session_elsewhere_is_recorded() {
    run(async {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("tape.jsonl");
        let record = file.clone();
        let mut client = TestClient::start(move |request| request.record = Some(record.clone()));
        let other = client.dir.path().join("home");
        client.call("initialize", json!({"protocolVersion": 1})).await.expect("initialized");
        let opened =
            client.call("session/new", json!({"cwd": other, "mcpServers": []})).await.expect("a session");
        let session = opened["sessionId"].as_str().expect("an id").to_owned();
        client.prompt(&session, "say recorded").await.expect("an answer");
        client.disconnect().await;
        let tape = std::fs::read_to_string(file).expect("a tape");
        let mut kinds = Vec::new();
        let tape = agentline::tape::Tape::read(&tape).expect("a valid tape");
        tape.records(|record| kinds.push(record.event.type_word())).expect("a replay");
        assert!(kinds.contains(&"text") && kinds.contains(&"outcome"), "{kinds:?}");
    });
}

/// The agent is found and stopped by means of `/proc`.
#[cfg(target_os = "linux")]
fn a_client_waits_for_an_agent_that_does_not_read() {
    run(async {
        let mut client = TestClient::start(|_| ());
        client.open().await;
        // The ids of processes that the agent itself knows may be those of its own namespace.
        let is_agent = |process: &String| {
            std::fs::read_to_string(format!("{process}/cmdline"))
                .is_ok_and(|line| line.contains(client::AS_AGENT))
        };
        let found: Vec<String> = processes_of(client.dir.path()).into_iter().filter(is_agent).collect();
        let pids = found.iter().filter_map(|process| process.strip_prefix("/proc/"));
        let pids: Vec<&str> = pids.collect();
        assert!(!pids.is_empty());
        let stopped = std::process::Command::new("kill").arg("-STOP").args(&pids).status();
        assert!(stopped.expect("a signal").success());
        let note = format!(r#"{{"jsonrpc":"2.0","method":"x/note","params":"{}"}}"#, "x".repeat(128 << 10));
        let mut sent = 0;
        while tokio::time::timeout(Duration::from_secs(3), client.send(note.clone())).await.is_ok() {
            sent += 1;
            assert!(sent < 500, "the server takes everything");
        }
        // The end of the client is noticed nevertheless.
        client.disconnect().await;
    });
}

fn a_tape_has_the_messages_of_both_sides() {
    run(async {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("tape.jsonl");
        let record = file.clone();
        let mut client = TestClient::start(move |request| {
            request.record = Some(record.clone());
            request.env.insert("SOME_API_KEY".to_owned(), SECRET.to_owned());
        });
        let session = client.open().await;
        client.prompt(&session, &format!("say {SECRET}\ntool write_file a.txt a")).await.expect("an answer");
        client.disconnect().await;
        let tape = std::fs::read_to_string(file).expect("a tape");
        assert!(!tape.contains(SECRET), "{tape}");
        for channel in ["\"client\"", "\"to-client\"", "\"in\"", "\"out\""] {
            assert!(
                tape.lines().any(|line| line.contains(&format!("\"ch\":{channel}"))),
                "{channel}\n{tape}"
            );
        }
        let mut calls = 0;
        let tape = agentline::tape::Tape::read(&tape).expect("a valid tape");
        tape.records(|record| calls += usize::from(record.event.type_word() == "tool_use"))
            .expect("a replay");
        assert_eq!(calls, 1);
    });
}
