//! Sessions that outlive the connection of their client.

use crate::{
    Test,
    client::{TestClient, processes_of, prompt, run},
};
use agentline_acp::AcpServer;
use serde_json::{Value, json};
use std::time::Duration;

pub(crate) const TESTS: &[Test] = &[
    ("a_session_is_loaded_after_a_disconnect", a_session_is_loaded_after_a_disconnect),
    ("a_translated_session_is_loaded_after_a_disconnect", a_translated_session_is_loaded_after_a_disconnect),
    ("a_prompt_continues_without_its_client", a_prompt_continues_without_its_client),
    ("the_ids_of_clients_are_independent", the_ids_of_clients_are_independent),
    ("a_client_of_a_kept_agent_can_move_on_to_another", a_client_of_a_kept_agent_can_move_on_to_another),
    ("a_session_is_in_its_own_directory", a_session_is_in_its_own_directory),
    ("a_client_with_sessions_cannot_take_over", a_client_with_sessions_cannot_take_over),
    ("kept_sessions_end_in_time_and_on_request", kept_sessions_end_in_time_and_on_request),
];

const LONG: Duration = Duration::from_secs(600);

fn keeping(server: AcpServer) -> AcpServer {
    server.keeping_sessions(LONG)
}

async fn load(client: &mut TestClient, session: &str) -> Result<Value, Value> {
    let init = json!({"protocolVersion": 1, "clientCapabilities": {}});
    let initialized = client.call("initialize", init).await.expect("initialized");
    assert_eq!(initialized["agentCapabilities"]["loadSession"], true, "{initialized}");
    let params = json!({"sessionId": session, "cwd": client.workspace(), "mcpServers": []});
    client.call("session/load", params).await
}

fn a_session_is_loaded_after_a_disconnect() {
    run(async {
        // This agent cannot load a session itself.
        let change = |request: &mut agentline::RunRequest| {
            request.env.insert("FAKE_ACP_FAULT".to_owned(), "no_load".to_owned());
        };
        after_a_disconnect(TestClient::adapted(change, keeping)).await;
    });
}

fn a_translated_session_is_loaded_after_a_disconnect() {
    run(async {
        after_a_disconnect(TestClient::adapted(|_| (), |server| keeping(server.translating()))).await
    });
}

/// Returns the id of the agent's process.
async fn pid(client: &mut TestClient, session: &str) -> Value {
    let state = client.text_of(session, "state").await;
    serde_json::from_str::<Value>(&state).expect("JSON")["pid"].clone()
}

async fn after_a_disconnect(mut client: TestClient) {
    let session = client.open().await;
    client.prompt(&session, "say first\nmode plan").await.expect("an answer");
    let pid = pid(&mut client, &session).await;
    client.reconnect().await;
    let loaded = load(&mut client, &session).await.expect("the session");
    assert!(loaded["modes"]["availableModes"].is_array(), "{loaded}");
    assert!(client.text().starts_with("first"), "{}", client.text());
    let asked = client.updates("user_message_chunk");
    assert!(asked[0]["content"]["text"].as_str().expect("a text").starts_with("say first"), "{asked:?}");
    assert_eq!(self::pid(&mut client, &session).await, pid, "it is the same process");
    // `session/resume` opens it without its history.
    client.reconnect().await;
    client.call("initialize", json!({"protocolVersion": 1})).await.expect("initialized");
    let params = json!({"sessionId": session, "cwd": client.workspace(), "mcpServers": []});
    client.call("session/resume", params).await.expect("the session");
    assert!(client.updates("agent_message_chunk").is_empty(), "{:?}", client.seen);
    let answer = client.prompt(&session, "say last").await.expect("an answer");
    assert_eq!(answer["stopReason"], "end_turn", "{answer}");
    client.disconnect().await;
}

fn a_prompt_continues_without_its_client() {
    run(async {
        let mut client = TestClient::adapted(|_| (), keeping);
        let session = client.open().await;
        let go = client.workspace().join("go");
        let script = format!(
            "say begun\nrun while ! test -e {}; do sleep 0.05; done\nask write_file asked.txt x\nsay over",
            go.display()
        );
        client.begin("session/prompt", prompt(&session, &script)).await;
        client.wait_for_text("begun").await;
        client.reconnect().await;
        let init = json!({"protocolVersion": 1, "clientCapabilities": {}});
        client.call("initialize", init).await.expect("initialized");
        // The request that loads the session then has the id of the prompt.
        client.call("x/unknown", json!({})).await.expect_err("an unknown method");
        let params = json!({"sessionId": session, "cwd": client.workspace(), "mcpServers": []});
        let id = client.begin("session/load", params).await;
        client.wait_for_text("begun").await;
        std::fs::write(go, "").expect("a file");
        // The response follows the end of the prompt.
        client.picks = Some("allow_once");
        client.response(id).await.expect("the session");
        assert!(client.text().ends_with("over"), "{}", client.text());
        assert_eq!(client.asked.len(), 1, "the new client is asked");
        client.disconnect().await;

        let mut client = TestClient::adapted(|_| (), keeping);
        let session = client.open().await;
        let script = "say begun\nrun sleep 1\nask write_file asked.txt x\nsay over";
        client.begin("session/prompt", prompt(&session, script)).await;
        client.wait_for_text("begun").await;
        client.leave().await;
        while !client.log().contains("cancelled") {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        client.reconnect().await;
        load(&mut client, &session).await.expect("the session");
        assert!(!client.workspace().join("asked.txt").exists(), "nothing is allowed without a client");
        client.disconnect().await;
    });
}

fn the_ids_of_clients_are_independent() {
    run(async {
        let change = |request: &mut agentline::RunRequest| {
            request.env.insert("FAKE_ACP_FAULT".to_owned(), "set_mode_never".to_owned());
        };
        let mut client = TestClient::adapted(change, keeping);
        let session = client.open().await;
        let mode = json!({"sessionId": session, "modeId": "plan"});
        let unanswered = client.begin("session/set_mode", mode).await;
        client.prompt(&session, "say first").await.expect("an answer");
        client.reconnect().await;
        load(&mut client, &session).await.expect("the session");
        let cancel = |id: u64| {
            format!(r#"{{"jsonrpc":"2.0","method":"$/cancel_request","params":{{"requestId":{id}}}}}"#)
        };
        // This one would cancel the request of the first client.
        client.send(cancel(unanswered)).await;
        let id = client.begin("session/prompt", prompt(&session, "sleep 2000\nsay second")).await;
        assert_eq!(id, unanswered);
        client.send(cancel(id)).await;
        while !client.log().contains(r#""requestId":"agentline-"#) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(client.log().matches("$/cancel_request").count(), 1, "{}", client.log());
        assert_eq!(client.response(id).await.expect("an answer")["stopReason"], "end_turn");
        assert!(client.text().ends_with("second"), "{}", client.text());
        client.disconnect().await;
    });
}

fn a_client_of_a_kept_agent_can_move_on_to_another() {
    run(async {
        // The ids of this agent are different in each process when it translates.
        let mut client = TestClient::adapted(|_| (), |server| keeping(server.translating()));
        let first = client.open().await;
        client.prompt(&first, "say first").await.expect("an answer");
        client.reconnect().await;
        let second = client.open().await;
        assert_ne!(first, second);
        let pid = pid(&mut client, &second).await;
        client.reconnect().await;
        load(&mut client, &first).await.expect("the first session");
        client.call("session/close", json!({"sessionId": first})).await.expect("closed");
        load(&mut client, &second).await.expect("the second session");
        assert_eq!(self::pid(&mut client, &second).await, pid, "it is the same process");
        client.disconnect().await;
    });
}

fn a_session_is_in_its_own_directory() {
    run(async {
        let mut client = TestClient::adapted(|_| (), keeping);
        let session = client.open().await;
        client.reconnect().await;
        client.call("initialize", json!({"protocolVersion": 1})).await.expect("initialized");
        let elsewhere = client.dir.path().join("home");
        let params = json!({"sessionId": session, "cwd": elsewhere, "mcpServers": []});
        let refused = client.call("session/load", params).await.expect_err("another directory");
        assert_eq!(refused["code"], -32602, "{refused}");
        client.disconnect().await;
    });
}

fn a_client_with_sessions_cannot_take_over() {
    run(async {
        let mut client = TestClient::adapted(|_| (), keeping);
        client.open().await;
        // The ids of this agent count its sessions.
        let opened = client.call("session/new", json!({"cwd": client.workspace(), "mcpServers": []})).await;
        let session = opened.expect("a session")["sessionId"].as_str().expect("an id").to_owned();
        client.prompt(&session, "say mine").await.expect("an answer");
        client.reconnect().await;
        let other = client.open().await;
        assert_ne!(other, session);
        let params = json!({"sessionId": session, "cwd": client.workspace(), "mcpServers": []});
        // The agent of the first session has ended, so the other one gets the request to load it.
        client.call("session/load", params).await.expect("a stored session");
        assert_eq!(client.log().matches("session/load").count(), 1, "{}", client.log());
        assert!(client.text().contains("mine"), "{}", client.text());
        client.prompt(&other, "say still here").await.expect("an answer");
        client.disconnect().await;
    });
}

fn kept_sessions_end_in_time_and_on_request() {
    run(async {
        let short = |server: AcpServer| server.keeping_sessions(Duration::from_millis(50));
        let mut client = TestClient::adapted(|_| (), short);
        client.open().await;
        client.leave().await;
        while !processes_of(client.dir.path()).is_empty() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let mut client = TestClient::adapted(|_| (), keeping);
        client.open().await;
        client.leave().await;
        assert!(!processes_of(client.dir.path()).is_empty());
        client.close_kept_sessions().await;
        assert_eq!(processes_of(client.dir.path()), Vec::<String>::new());
    });
}
