//! The sessions that are kept for ACP clients that have disconnected.

use crate::{
    Test,
    acp_client::{AcpClient, processes_of},
    client::HttpClient,
    run,
    stage::{AddTokens as _, ServerStage, eventually},
};
use serde_json::json;
use std::time::Duration;

pub(crate) const TESTS: &[Test] = &[
    ("acp_kept::session_of_another_token_cannot_be_loaded", other_token),
    ("acp_kept::number_of_kept_agents_is_limited", number),
    #[cfg(target_os = "linux")]
    ("acp_kept::agent_ends_when_its_client_stays_away", time),
    ("acp_kept::agents_in_use_are_limited_with_those_that_are_kept", slots),
];

/// Opens a session and disconnects. Returns the session and the process of its agent.
async fn leave(stage: &ServerStage, token: &str) -> (String, u64) {
    let mut client = AcpClient::when_free(stage, token).await;
    let session = client.new_session(&stage.workspace()).await.unwrap();
    let pid = client.pid(&session).await;
    (session, pid)
}

fn other_token() {
    run(async {
        let stage = ServerStage::with(|options| {
            options.add_tokens(&[("first", "max_concurrent = 1"), ("second", "")]);
        })
        .await;
        let (session, pid) = leave(&stage, "first").await;
        // The slot of the first connection is free, so its agent is kept.
        let mut own = AcpClient::when_free(&stage, "first").await;
        let mut foreign = AcpClient::when_free(&stage, "second").await;
        for method in ["session/load", "session/resume"] {
            let params = json!({"sessionId": session, "cwd": stage.workspace(), "mcpServers": []});
            assert!(foreign.call(method, params).await.is_err(), "{method}");
        }
        own.load(&session, &stage.workspace()).await.expect("its own session");
        assert_eq!(own.pid(&session).await, pid);
    });
}

fn number() {
    run(async {
        let stage = ServerStage::with(|options| options.limits.acp_connections = 1).await;
        let token = stage.client.token.clone();
        let mut kept = Vec::new();
        for number in 0..17 {
            let mut client = AcpClient::when_free(&stage, &token).await;
            let session = client.new_session(&stage.workspace()).await.unwrap();
            let text = format!("agent {number}");
            client.prompt(&session, &format!("say {text}")).await;
            kept.push((session, text));
        }
        // The oldest one had to end.
        let mut client = AcpClient::when_free(&stage, &token).await;
        assert!(client.load(&kept[0].0, &stage.workspace()).await.is_err());
        let (session, text) = &kept[1];
        client.load(session, &stage.workspace()).await.expect("it is kept");
        assert_eq!(client.text, *text);
    });
}

#[cfg(target_os = "linux")]
fn time() {
    run(async {
        let stage = ServerStage::with(|options| {
            options.limits.acp_session_time = Duration::from_millis(500);
            options.limits.acp_connections = 1;
        })
        .await;
        let token = stage.client.token.clone();
        let (session, _) = leave(&stage, &token).await;
        eventually(async || processes_of(stage.dir.path()) == 0).await;
        let mut client = AcpClient::when_free(&stage, &token).await;
        assert!(client.load(&session, &stage.workspace()).await.is_err(), "its agent has ended");
    });
}

fn slots() {
    run(async {
        let stage = ServerStage::with(|options| {
            options.add_tokens(&[("ci", "max_concurrent = 1")]);
            options.limits.acp_session_time = Duration::from_secs(3);
        })
        .await;
        let ci = HttpClient::new(stage.client.address, "ci");
        let start = async || ci.post("/v1/runs", json!({"prompt": "say x"})).await.status;
        let (session, pid) = leave(&stage, "ci").await;
        assert_eq!(start().await, 429, "an agent is in use or kept");
        let mut client = AcpClient::when_free(&stage, "ci").await;
        assert_eq!(start().await, 429);
        let refused = client.new_session(&stage.workspace()).await.expect_err("one agent is kept");
        assert_eq!(refused["code"], -32000, "{refused}");
        // A load that fails gives no right to another session.
        let no_list = json!({"sessionId": session, "cwd": stage.workspace(), "mcpServers": null});
        client.call("session/load", no_list).await.expect_err("the servers are not a list");
        let refused = client.new_session(&stage.workspace()).await.expect_err("one agent is kept");
        assert_eq!(refused["code"], -32000, "{refused}");
        client.load(&session, &stage.workspace()).await.expect("the kept session");
        assert_eq!(client.pid(&session).await, pid);
        client.new_session(&stage.workspace()).await.expect("another session of the same agent");
        assert_eq!(start().await, 429);
        drop(client);
        // The kept agent ends by itself, which frees its slot.
        eventually(async || start().await == 201).await;
    });
}
