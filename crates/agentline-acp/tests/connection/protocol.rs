//! What the protocol requires of every agent, whether its frames pass through or its surface is translated.

use crate::{
    Test,
    client::{TestClient, prompt, run},
};
use serde_json::{Value, json};

pub(crate) const TESTS: &[Test] = &[
    ("a_proxied_prompt_is_cancelled_while_it_asks", a_proxied_prompt_is_cancelled_while_it_asks),
    ("a_translated_prompt_is_cancelled_while_it_asks", a_translated_prompt_is_cancelled_while_it_asks),
    ("a_proxied_session_is_loaded_and_resumed", a_proxied_session_is_loaded_and_resumed),
    ("a_translated_session_is_loaded_and_resumed", a_translated_session_is_loaded_and_resumed),
];

fn a_proxied_prompt_is_cancelled_while_it_asks() {
    run(async { is_cancelled_while_it_asks(TestClient::start(|_| ())).await });
}

fn a_translated_prompt_is_cancelled_while_it_asks() {
    run(async { is_cancelled_while_it_asks(TestClient::translated(|_| ())).await });
}

async fn is_cancelled_while_it_asks(mut client: TestClient) {
    let session = client.open().await;
    let script = "ask write_file a.txt a\nsleep 50000\nsay never";
    let id = client.begin("session/prompt", prompt(&session, script)).await;
    let asked: Value = loop {
        let frame = client.receive().await;
        let message: Value = serde_json::from_str(&frame).expect("JSON");
        if message["method"] == "session/request_permission" {
            break message["id"].clone();
        }
    };
    let cancel = json!({"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": session}});
    client.send(cancel.to_string()).await;
    // A client answers what it was asked, and gets the response to the prompt in any case.
    let outcome = json!({"outcome": {"outcome": "cancelled"}});
    client.send(json!({"jsonrpc": "2.0", "id": asked, "result": outcome}).to_string()).await;
    let answer = client.response(id).await.expect("an answer");
    assert_eq!(answer["stopReason"], "cancelled", "{answer}");
    assert!(!client.workspace().join("a.txt").exists());
    client.disconnect().await;
}

fn a_proxied_session_is_loaded_and_resumed() {
    run(async {
        let mut client = TestClient::start(|_| ());
        let session = client.open().await;
        client.prompt(&session, "say one").await.expect("an answer");
        client.reconnect().await;
        open_again(&mut client, "session/load", &session).await;
        // The agent itself replays the session.
        assert_eq!(client.text(), "one");
        assert!(client.text_of(&session, "history").await.contains("say one"));
        client.disconnect().await;
    });
}

fn a_translated_session_is_loaded_and_resumed() {
    run(async {
        let mut client = TestClient::translated(|_| ());
        let session = client.open().await;
        client.prompt(&session, "say one").await.expect("an answer");
        for method in ["session/load", "session/resume"] {
            client.reconnect().await;
            open_again(&mut client, method, &session).await;
            assert!(client.text_of(&session, "history").await.contains("say one"), "{method}");
        }
        let unknown = json!({"sessionId": "no-such-session", "cwd": client.workspace(), "mcpServers": []});
        client.call("session/load", unknown).await.expect_err("an unknown session");
        client.disconnect().await;
    });
}

async fn open_again(client: &mut TestClient, method: &str, session: &str) {
    let initialized = client.call("initialize", json!({"protocolVersion": 1})).await.expect("initialized");
    assert_eq!(initialized["agentCapabilities"]["loadSession"], true, "{initialized}");
    let params = json!({"sessionId": session, "cwd": client.workspace(), "mcpServers": []});
    client.call(method, params).await.expect("the session");
}
