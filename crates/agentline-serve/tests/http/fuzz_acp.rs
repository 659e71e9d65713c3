//! ACP frames that are damaged at random: the server keeps the connection or closes it, serves others, opens sessions
//! below the roots only, and lets no tool run that needs a permission.

use crate::{Test, acp_client::AcpClient, fuzz::RandomNumbers, run, stage::ServerStage};
use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use std::{path::Path, time::Duration};
use tokio_tungstenite::tungstenite::Message;

pub(crate) const TESTS: &[Test] = &[("fuzz_acp::damaged_frames_are_answered_or_refused", damaged)];

/// The number of frames; `SERVE_FUZZ_REQUESTS` sets another one.
const FRAMES: u64 = 400;
/// Far more than an answer takes, also on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// What damaged frames contain in addition to their own bytes.
const PIECES: &[&str] = &[
    "\"",
    "\\",
    "{",
    "}",
    "[",
    "]",
    "[[[[[[[[",
    ",",
    ":",
    "null",
    "-1",
    "1e999",
    "true",
    "{}",
    "\0",
    "\\u0000",
    "\\ud800",
    "\u{fffd}",
    "\"id\":null,",
    "\"id\":[],",
    "\"id\":18446744073709551616,",
    "\"jsonrpc\":\"1.0\",",
    "\"method\":null,",
    "\"method\":\"session/new\",",
    "\"result\":{},",
    "\"error\":{},",
    "\"cwd\":\"..\",",
    "\"cwd\":\"/\",",
    "\"additionalDirectories\":[\"/\"],",
    "\"mcpServers\":[{\"name\":\"x\",\"command\":\"touch\",\"args\":[\"touched\"],\"env\":[]}],",
    "\"_meta\":{\"x\":1},",
    "../",
    "\n",
];

/// Returns valid frames of all kinds.
fn frames(workspace: &Path, session: &str) -> Vec<String> {
    let request = |id: Value, method: &str, params: Value| {
        json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string()
    };
    let text = [json!({"type": "text", "text": "ask write_file written.txt x"})];
    let open = json!({"cwd": workspace, "mcpServers": [], "sessionId": session});
    vec![
        request(1.into(), "initialize", json!({"protocolVersion": 1, "clientCapabilities": {}})),
        request("a".into(), "session/new", open.clone()),
        request(2.into(), "session/load", open.clone()),
        request(3.into(), "session/resume", open.clone()),
        request(4.into(), "session/fork", open),
        request(5.into(), "session/prompt", json!({"sessionId": session, "prompt": text})),
        request(6.into(), "session/set_mode", json!({"sessionId": session, "modeId": "plan"})),
        request(7.into(), "session/close", json!({"sessionId": session})),
        request(8.into(), "unknown", json!([1, 2, 3])),
        json!({"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": session}}).to_string(),
        json!({"jsonrpc": "2.0", "method": "$/cancel_request", "params": {"id": 5}}).to_string(),
        json!({"jsonrpc": "2.0", "id": 0, "result": {"outcome": {"outcome": "cancelled"}}}).to_string(),
        json!({"jsonrpc": "2.0", "id": 1, "error": {"code": -32601, "message": "unknown"}}).to_string(),
    ]
}

/// Sends a request of a method that is refused, and reads until its answer. Returns false at the end of the connection.
async fn is_served(client: &mut AcpClient, number: u64) -> bool {
    let id = format!("served-{number}");
    let request = json!({"jsonrpc": "2.0", "id": id, "method": "session/list", "params": {}});
    if client.socket.send(Message::text(request.to_string())).await.is_err() {
        return false;
    }
    let reading = async {
        loop {
            match client.socket.next().await {
                Some(Ok(Message::Text(text))) => {
                    let message: Value = serde_json::from_str(&text).expect("every frame is JSON");
                    if message["id"] == id.as_str() {
                        return true;
                    }
                }
                Some(Ok(Message::Close(_)) | Err(_)) | None => return false,
                Some(Ok(_)) => {}
            }
        }
    };
    tokio::time::timeout(PATIENCE, reading).await.expect("an answer or the end of the connection")
}

fn damaged() {
    run(async {
        let stage = ServerStage::start().await;
        let mut client = AcpClient::of(&stage).await;
        let mut session = client.new_session(&stage.workspace()).await.unwrap();
        let mut numbers = RandomNumbers::new(29);
        let count = std::env::var("SERVE_FUZZ_REQUESTS").ok().and_then(|count| count.parse().ok());
        let mut answered = 0;
        for number in 0..count.unwrap_or(FRAMES) {
            let frames = frames(&stage.workspace(), &session);
            let chosen = numbers.next(frames.len());
            let frame = numbers.damage(&frames[chosen], PIECES);
            let frame = String::from_utf8_lossy(&frame).into_owned();
            let is_sent = client.socket.send(Message::text(frame)).await.is_ok();
            if is_sent && is_served(&mut client, number).await {
                answered += 1;
            } else {
                client = AcpClient::of(&stage).await;
                session = client.new_session(&stage.workspace()).await.expect("another client is served");
            }
        }
        assert!(answered > 0);
        assert_eq!(stage.client.get("/v1/info").await.status, 200);
        assert_eq!(stage.client.get("/v1/runs").await.json()["runs"], json!([]));
        // No permission was given.
        for name in ["written.txt", "touched"] {
            assert!(!stage.workspace().join(name).exists(), "{name}");
        }
        let audit = std::fs::read_to_string(stage.dir.path().join("serve/audit.jsonl")).unwrap();
        let entries = audit.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
        let root = stage.workspace().canonicalize().unwrap();
        let opened: Vec<Value> = entries.filter(|entry| entry["action"] == "acp_session").collect();
        assert!(opened.len() > 1, "{opened:?}");
        for entry in opened {
            assert!(Path::new(entry["working_dir"].as_str().unwrap()).starts_with(&root), "{entry}");
        }
    });
}
