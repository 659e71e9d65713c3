//! An agent whose surface is translated.

use crate::{
    Test,
    client::{TestClient, prompt, run},
};
use serde_json::json;

pub(crate) const TESTS: &[Test] = &[
    ("a_prompt_is_translated", a_prompt_is_translated),
    ("the_user_decides_where_no_rule_does", the_user_decides_where_no_rule_does),
    ("the_user_is_asked_without_secrets", the_user_is_asked_without_secrets),
    ("every_session_has_its_own_tape", every_session_has_its_own_tape),
    ("a_prompt_is_cancelled", a_prompt_is_cancelled),
    ("limits_are_a_budget_of_the_connection", limits_are_a_budget_of_the_connection),
    ("invalid_frames_get_errors", invalid_frames_get_errors),
    ("a_client_has_a_limited_number_of_open_sessions", a_client_has_a_limited_number_of_open_sessions),
];

fn a_prompt_is_translated() {
    run(async {
        let mut client = TestClient::translated(|_| ());
        client.picks = Some("allow");
        let session = client.open().await;
        let answer = client
            .prompt(&session, "think hm\nask write_file hello.txt hi\nsay Done.")
            .await
            .expect("an answer");
        assert_eq!(answer["stopReason"], "end_turn");
        assert_eq!(answer["_meta"]["agentline"]["files"][0]["path"], "hello.txt", "{answer}");
        assert_eq!(client.text(), "Done.");
        assert_eq!(client.updates("agent_thought_chunk").len(), 1);
        assert_eq!(client.updates("tool_call")[0]["kind"], "edit");
        assert_eq!(client.updates("tool_call_update").last().expect("an update")["status"], "completed");
        assert!(client.workspace().join("hello.txt").is_file());
        client.disconnect().await;
    });
}

fn the_user_decides_where_no_rule_does() {
    run(async {
        let mut client = TestClient::translated(|request| {
            request.allow = vec!["Write(free.txt)".parse().expect("a rule")];
        });
        client.picks = Some("reject");
        let session = client.open().await;
        let script = "ask write_file free.txt a\nask write_file other.txt c\nsay x";
        let answer = client.prompt(&session, script).await.expect("an answer");
        assert_eq!(client.asked.len(), 1, "{:?}", client.asked);
        assert!(client.asked[0]["toolCall"]["title"].to_string().contains("other.txt"), "{:?}", client.asked);
        assert_eq!(answer["_meta"]["agentline"]["denied"].as_array().map(Vec::len), Some(1), "{answer}");
        let exists = |name: &str| client.workspace().join(name).exists();
        assert!(exists("free.txt") && !exists("other.txt"));
        client.disconnect().await;
    });
}

fn the_user_is_asked_without_secrets() {
    run(async {
        let secret = "hush-hush-0123456789";
        let mut client = TestClient::translated(move |request| {
            request.env.insert("SOME_API_KEY".to_owned(), secret.to_owned());
        });
        client.picks = Some("reject");
        let session = client.open().await;
        client.prompt(&session, &format!("ask run echo {secret}\nsay x")).await.expect("an answer");
        let asked = client.asked[0].to_string();
        assert!(asked.contains("echo [redacted]") && !asked.contains(secret), "{asked}");
        client.disconnect().await;
    });
}

fn every_session_has_its_own_tape() {
    run(async {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("s.tape.jsonl");
        let record = file.clone();
        let mut client = TestClient::translated(move |request| request.record = Some(record.clone()));
        let (first, second) = (client.open().await, client.open().await);
        for _ in 0..2 {
            client.prompt(&first, "say of the first").await.expect("an answer");
            client.prompt(&second, "say of the second").await.expect("an answer");
        }
        client.disconnect().await;
        for (name, text) in [("s.tape.jsonl", "of the first"), ("s.2.tape.jsonl", "of the second")] {
            let tape = std::fs::read_to_string(dir.path().join(name)).expect("a tape");
            let tape = agentline::tape::Tape::read(&tape).expect("a valid tape");
            let mut said = Vec::new();
            let mut add = |record: &agentline::Record| {
                if let agentline::Event::Text { text } = &record.event {
                    said.push(text.clone());
                }
            };
            tape.records(|record| add(&record)).expect("a replay");
            assert_eq!(said, [text, text], "{name}");
        }
    });
}

fn a_prompt_is_cancelled() {
    run(async {
        let mut client = TestClient::translated(|_| ());
        let session = client.open().await;
        let id = client.begin("session/prompt", prompt(&session, "say begun\nsleep 50000\nsay never")).await;
        while !client.text().contains("begun") {
            let frame = client.receive().await;
            client.seen.push(frame);
        }
        let second = client.prompt(&session, "say no").await.expect_err("one prompt at a time");
        assert_eq!(second["code"], -32600);
        let cancel = json!({"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": session}});
        client.send(cancel.to_string()).await;
        assert_eq!(client.response(id).await.expect("an answer")["stopReason"], "cancelled");
        client.disconnect().await;
    });
}

fn limits_are_a_budget_of_the_connection() {
    run(async {
        let mut client = TestClient::translated(|request| request.limits.max_tool_calls = Some(1));
        client.picks = Some("allow");
        let session = client.open().await;
        client.prompt(&session, "tool write_file a.txt a\nsay x").await.expect("an answer");
        let refused = client.prompt(&session, "say y").await.expect_err("a used-up budget");
        assert_eq!(
            (&refused["code"], &refused["data"]["agentline"]["limit"]),
            (&json!(-32010), &json!("max_tool_calls"))
        );
        client.disconnect().await;
    });
}

fn invalid_frames_get_errors() {
    run(async {
        let mut client = TestClient::translated(|_| ());
        for (frame, code) in [("{", -32700), ("[]", -32600), ("{}", -32600), ("{\"result\":1}", -32600)] {
            client.send(frame).await;
            let answer: serde_json::Value = serde_json::from_str(&client.receive().await).expect("JSON");
            assert_eq!((&answer["error"]["code"], &answer["id"]), (&json!(code), &json!(null)), "{frame}");
        }
        client.send(*b"\xff").await;
        assert!(client.receive().await.contains("-32700"));
        let unknown = client.call("session/prompt", prompt("none", "x")).await.expect_err("no session");
        assert_eq!(unknown["code"], -32002);
        assert_eq!(client.call("no/such", json!({})).await.expect_err("no method")["code"], -32601);
        let relative = client.call("session/new", json!({"cwd": "ws", "mcpServers": []})).await;
        assert_eq!(relative.expect_err("a relative path")["code"], -32602);
        client.disconnect().await;
    });
}

fn a_client_has_a_limited_number_of_open_sessions() {
    run(async {
        let mut client = TestClient::translated(|_| ());
        let mut sessions = Vec::new();
        for _ in 0..16 {
            sessions.push(client.open().await);
        }
        let params = json!({"cwd": client.workspace(), "mcpServers": []});
        let refused = client.call("session/new", params.clone()).await.expect_err("16 sessions are open");
        assert!(refused.to_string().contains("session/close"), "{refused}");
        // One of them can be loaded again.
        client.prompt(&sessions[1], "say stored").await.expect("an answer");
        let again = json!({"sessionId": sessions[1], "cwd": client.workspace(), "mcpServers": []});
        client.call("session/load", again).await.expect("the session");
        client.call("session/close", json!({"sessionId": sessions[0]})).await.expect("it is open");
        client.call("session/new", params).await.expect("a session");
        client.disconnect().await;
    });
}
