//! ACP over a WebSocket, with a fake agent.

use crate::{
    Test,
    acp_client::{AcpClient, processes_of, prompt},
    run,
    stage::{AddTokens as _, ServerStage, eventually},
};
use futures_util::SinkExt as _;
use serde_json::{Value, json};
use std::time::Duration;
use tokio_tungstenite::tungstenite::Message;

pub(crate) const TESTS: &[Test] = &[
    ("acp::session_is_loaded_after_a_disconnect_and_ends_with_the_server", session_is_loaded),
    ("acp::upgrade_needs_a_token_and_an_own_origin", upgrade),
    ("acp::policy_and_roots_apply", policy),
    ("acp::frames_and_connections_are_limited", limits),
    ("acp::client_that_does_not_read_is_ended", does_not_read),
    ("acp::rates_of_a_token_are_limited", rates),
    ("acp::prompts_cancels_and_answers_are_in_the_audit_log", audit),
];

fn session_is_loaded() {
    run(async {
        let mut stage = ServerStage::start().await;
        let mut client = AcpClient::of(&stage).await;
        let session = client.new_session(&stage.workspace()).await.unwrap();
        assert_eq!(client.prompt(&session, "say first").await, "first");
        let pid = client.pid(&session).await;
        client.send(Message::text("[{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"initialize\"}]")).await;
        assert_eq!(client.next().await.expect("a response")["error"]["code"], -32600);
        client.send(Message::binary(&b"{}"[..])).await;
        assert_eq!(client.next().await.expect("a response")["error"]["code"], -32600);
        drop(client);

        // The server may notice the disconnect later, so the session is not kept at once.
        let mut client = AcpClient::of(&stage).await;
        eventually(async || {
            client = AcpClient::of(&stage).await;
            client.text.clear();
            client.load(&session, &stage.workspace()).await.is_ok() && client.text.starts_with("first")
        })
        .await;
        assert_eq!(client.pid(&session).await, pid, "the same process");

        let audit = std::fs::read_to_string(stage.dir.path().join("serve/audit.jsonl")).unwrap();
        let actions: Vec<Value> = audit.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let opened = actions.iter().find(|entry| entry["action"] == "acp_session").expect("an entry");
        let directory = stage.workspace().canonicalize().unwrap();
        assert_eq!(opened["working_dir"], json!(directory), "{opened}");
        assert_eq!((&opened["agent"], &opened["token"]), (&json!("gemini"), &json!("owner")));

        // One agent is in use and one waits for its client.
        let mut waiting = AcpClient::of(&stage).await;
        waiting.new_session(&stage.workspace()).await.unwrap();
        drop(waiting);
        assert!(cfg!(not(target_os = "linux")) || processes_of(stage.dir.path()) > 1);
        stage.server.take().unwrap().stop().await.expect("a clean stop");
        assert_eq!(client.next().await, None, "the server closes the connection");
        eventually(async || processes_of(stage.dir.path()) == 0).await;
    });
}

fn upgrade() {
    run(async {
        let stage = ServerStage::start().await;
        let address = stage.client.address;
        let own = format!("http://{address}");
        let bearer = format!("Bearer {}", stage.client.token);
        let cookie = stage.client.sign_in().await;
        let token_as_cookie = format!("{}={}", cookie.split('=').next().unwrap(), stage.client.token);
        let evil = ("origin", "http://evil.example");
        let (bearer, cookie) = (("authorization", bearer.as_str()), ("cookie", cookie.as_str()));
        for (headers, status) in [
            (vec![], Some(401)),
            (vec![("origin", own.as_str())], Some(401)),
            (vec![("authorization", "Bearer x"), cookie], Some(401)),
            (vec![("cookie", token_as_cookie.as_str()), ("origin", own.as_str())], Some(401)),
            (vec![cookie], Some(403)),
            (vec![cookie, evil], Some(403)),
            (vec![cookie, ("origin", "null")], Some(403)),
            (vec![bearer, evil], Some(403)),
            (vec![bearer], None),
            (vec![bearer, ("origin", own.as_str())], None),
            (vec![cookie, ("origin", own.as_str())], None),
        ] {
            assert_eq!(AcpClient::open(address, "/acp", &headers).await.err(), status, "{headers:?}");
        }
        let token = &stage.client.token;
        for (path, status) in [
            (format!("/acp?token={token}"), 401),
            ("/acp?agent=/bin/sh".to_owned(), 400),
            ("/acp?agent=sh%20-c%20true".to_owned(), 400),
            ("/acp?command=sh".to_owned(), 400),
        ] {
            let headers: &[(&str, &str)] = if status == 401 { &[] } else { &[bearer] };
            assert_eq!(AcpClient::open(address, &path, headers).await.err(), Some(status), "{path}");
        }
        // A request without an upgrade.
        assert_eq!(stage.client.send_plain("GET", "/acp", &[bearer], None).await.status, 400);
    });
}

fn policy() {
    run(async {
        let stage = ServerStage::with(|options| {
            options.add_tokens(&[
                ("ci", "agents = [\"gemini\"]\npermission_modes = [\"default\"]\nmax_concurrent = 1"),
                ("daily", "daily_cost_usd = 1.0"),
                ("reader", "read_only = true"),
            ]);
        })
        .await;
        let address = stage.client.address;
        for (token, path) in [("ci", "/acp?agent=claude"), ("daily", "/acp"), ("reader", "/acp")] {
            assert_eq!(AcpClient::with_token(address, path, token).await.err(), Some(403), "{token}");
        }
        let mut client = AcpClient::with_token(address, "/acp", "ci").await.expect("its first agent");
        assert_eq!(AcpClient::with_token(address, "/acp", "ci").await.err(), Some(429), "its only place");
        let params = json!({"protocolVersion": 1, "clientCapabilities": {}});
        client.call("initialize", params).await.expect("initialized");
        let outside = stage.dir.path().join("home");
        let mut refused = vec![stage.dir.path().to_owned(), outside.clone(), stage.workspace().join("..")];
        #[cfg(unix)]
        {
            let link = stage.workspace().join("link");
            std::os::unix::fs::symlink(&outside, &link).unwrap();
            refused.push(link);
        }
        for cwd in refused {
            for method in ["session/new", "session/load"] {
                let params = json!({"cwd": cwd, "sessionId": "a", "mcpServers": []});
                let error = client.call(method, params).await.expect_err("refused");
                assert_eq!(error["code"], -32602, "{cwd:?} {error}");
                assert!(error["message"].as_str().unwrap().contains("not in a directory"), "{error}");
            }
        }
        for directory in [".", "../home", outside.to_str().unwrap()] {
            let params =
                json!({"cwd": stage.workspace(), "mcpServers": [], "additionalDirectories": [directory]});
            let error = client.call("session/new", params).await.expect_err("refused");
            assert_eq!(error["code"], -32602, "{directory} {error}");
        }
        let server = json!({"name": "a", "command": "touch", "args": ["x"], "env": []});
        let params = json!({"cwd": stage.workspace(), "mcpServers": [server]});
        assert_eq!(client.call("session/new", params).await.expect_err("refused")["code"], -32602);
        let session = client.new_session(&stage.workspace()).await.unwrap();
        let params = json!({"sessionId": session, "modeId": "yolo"});
        assert_eq!(client.call("session/set_mode", params).await.expect_err("refused")["code"], -32602);
        assert_eq!(client.prompt(&session, "say it works").await, "it works");
        // Only the session that was opened is in the audit log.
        let audit = std::fs::read_to_string(stage.dir.path().join("serve/audit.jsonl")).unwrap();
        assert_eq!(audit.matches("\"action\":\"acp_session\"").count(), 1, "{audit}");
    });
}

fn limits() {
    run(async {
        let stage = ServerStage::with(|options| {
            options.limits.start_bytes = 100_000;
            options.limits.acp_connections = 2;
        })
        .await;
        let mut client = AcpClient::of(&stage).await;
        let _other = AcpClient::of(&stage).await;
        let (address, token) = (stage.client.address, stage.client.token.clone());
        assert_eq!(AcpClient::with_token(address, "/acp", &token).await.err(), Some(429));
        client.send(Message::text("x".repeat(200_000))).await;
        assert_eq!(client.next().await, None, "the connection is closed");
        eventually(async || AcpClient::with_token(address, "/acp", &token).await.is_ok()).await;
    });
}

fn does_not_read() {
    run(async {
        let stage = ServerStage::with(|options| {
            options.limits.acp_connections = 2;
            options.limits.write_timeout = Duration::from_secs(1);
        })
        .await;
        let mut stuck = AcpClient::of(&stage).await;
        let session = stuck.new_session(&stage.workspace()).await.unwrap();
        let script = format!("say {}\n", "x".repeat(2 << 20)).repeat(12);
        stuck.begin("session/prompt", prompt(&session, &script)).await;
        let mut other = AcpClient::of(&stage).await;
        let session = other.new_session(&stage.workspace()).await.unwrap();
        assert_eq!(other.prompt(&session, "say it works").await, "it works");
        // The place of the client that does not read becomes free.
        let (address, token) = (stage.client.address, stage.client.token.clone());
        eventually(async || AcpClient::with_token(address, "/acp", &token).await.is_ok()).await;
        drop(stuck);
    });
}

fn audit() {
    run(async {
        let stage = ServerStage::start().await;
        let mut client = AcpClient::of(&stage).await;
        let session = client.new_session(&stage.workspace()).await.unwrap();
        let script = "ask write_file a.txt a\nsay end";
        let id = client.begin("session/prompt", prompt(&session, script)).await;
        loop {
            let message = client.next().await.expect("a message");
            if message["method"] == "session/request_permission" {
                let option = message["params"]["options"][0]["optionId"].clone();
                let result = json!({"outcome": {"outcome": "selected", "optionId": option}});
                let answer = json!({"jsonrpc": "2.0", "id": message["id"], "result": result});
                client.send(Message::text(answer.to_string())).await;
            }
            if message["id"] == id && message["method"].is_null() {
                break;
            }
        }
        let cancel = json!({"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": session}});
        client.send(Message::text(cancel.to_string())).await;
        // The server has read the message before by then.
        client.pid(&session).await;
        let log: Vec<Value> = stage.audit_log();
        let methods: Vec<&Value> = log
            .iter()
            .filter(|entry| entry["session"] == session.as_str())
            .map(|entry| &entry["method"])
            .collect();
        assert_eq!(methods, ["session/prompt", "session/cancel", "session/prompt"], "{log:?}");
        let answers = log.iter().filter(|entry| entry["action"] == "acp_permission");
        assert_eq!(answers.count(), 1, "{log:?}");
        assert!(log.iter().all(|entry| !entry.to_string().contains("a.txt")), "{log:?}");
    });
}

fn rates() {
    run(async {
        let stage = ServerStage::with(|options| {
            options.add_tokens(&[("requests", ""), ("messages", ""), ("bytes", "")]);
            options.limits.changes_per_minute = 5;
            options.limits.acp_messages_per_minute = 40;
            options.limits.acp_bytes_per_minute = 1 << 20;
        })
        .await;
        let address = stage.client.address;
        let connect = async |token: &str| {
            let client = AcpClient::with_token(address, "/acp?agent=gemini", token).await;
            client.expect("a connection").initialized().await
        };
        // Requests are changes, as over HTTP. The connection and `initialize` are two of them.
        let mut client = connect("requests").await;
        for _ in 0..3 {
            client.new_session(&stage.workspace()).await.expect("a session");
        }
        let refused = client.new_session(&stage.workspace()).await.expect_err("too many");
        assert_eq!(refused["code"], -32000, "{refused}");
        assert_eq!(AcpClient::with_token(address, "/acp?agent=gemini", "requests").await.err(), Some(429));
        // Too many messages of other kinds, or too many bytes, end the connection.
        let note = json!({"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": "none"}});
        let small = note.to_string();
        let large = json!({"jsonrpc": "2.0", "method": "session/cancel", "params": "x".repeat(400_000)});
        for (token, frame, most) in [("messages", small, 45), ("bytes", large.to_string(), 5)] {
            let mut client = connect(token).await;
            for _ in 0..most {
                // The server may have closed it already.
                let _ = client.socket.send(Message::text(frame.clone())).await;
            }
            let mut last = None;
            while let Some(message) = client.next().await {
                last = Some(message);
            }
            let last = last.expect("the reason");
            assert_eq!(last["error"]["code"], -32000, "{token}: {last}");
        }
        // Other tokens are not affected.
        assert_eq!(stage.client.get("/v1/info").await.status, 200);
    });
}
