//! Runs and conversations: events, permissions, files, disconnects.

use crate::{
    Test, run,
    stage::{ServerStage, eventually},
};
use serde_json::json;
use std::time::Duration;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpSocket, TcpStream},
};

pub(crate) const TESTS: &[Test] = &[
    ("runs::permission_is_answered_over_http", permission_is_answered),
    ("runs::stream_continues_after_a_disconnect_without_loss_or_repetition", stream_continues),
    ("runs::run_ends_with_its_last_client_if_requested", run_ends_with_clients),
    ("runs::conversation_is_steered_and_remembers_answers", conversation_is_steered),
    ("runs::events_that_are_gone_are_announced", events_that_are_gone),
    ("runs::slow_client_does_not_hold_up_others", slow_client),
    ("runs::text_for_now_is_before_the_prompts_that_wait", steered_before_queue),
    ("runs::stream_has_heartbeats", heartbeats),
    ("runs::client_that_does_not_read_is_disconnected", client_does_not_read),
    ("runs::usage_has_the_cost_so_far", usage_has_cost),
    ("runs::policy_of_a_token_is_enforced", policy_is_enforced),
];

fn permission_is_answered() {
    run(async {
        let stage = ServerStage::start().await;
        let client = &stage.client;
        let id = stage.run("ask write_file hello.txt hi\nsay Done.").await;
        let mut events = client.events(&id, 0).await;
        assert_eq!(events.status(), 200);
        let request = events.until("permission_request").await.json();
        assert_eq!(request["id"], "p1");
        let pending = client.get(&format!("/v1/runs/{id}/permissions")).await.json();
        assert_eq!(pending["permissions"][0]["id"], "p1");
        assert_eq!(client.get(&format!("/v1/runs/{id}")).await.json()["pending_permissions"], 1);
        let path = format!("/v1/runs/{id}/permissions/p1");
        assert_eq!(client.post(&path, json!({"decision": "maybe"})).await.status, 400);
        assert_eq!(client.post(&path, json!({"decision": "allow"})).await.json()["decision"], "allow");
        assert_eq!(client.post(&path, json!({"decision": "deny"})).await.status, 409);
        let answered = events.until("permission_answered").await.json();
        assert_eq!((&answered["by"], &answered["decision"]), (&json!("owner"), &json!("allow")));
        let outcome = events.until("outcome").await.json()["outcome"].clone();
        assert_eq!(outcome["verdict"], "done", "{outcome}");
        assert!(events.next().await.is_none(), "the stream ends after the outcome");
        assert_eq!(stage.outcome(&id).await, outcome);
        let files = client.get(&format!("/v1/runs/{id}/files")).await.json();
        assert_eq!(files["files"][0]["path"], "hello.txt");
        assert!(files["files"][0]["diff"].as_str().unwrap().contains("+hi"), "{files}");
        let file = client.get(&format!("/v1/runs/{id}/file?path=hello.txt")).await;
        assert_eq!((file.status, file.text().as_str()), (200, "hi"));
        let listed = client.get("/v1/runs").await.json();
        assert_eq!(listed["runs"][0]["run"], id.as_str());
        assert_eq!(listed["runs"][0]["verdict"], "done");
        let audit = std::fs::read_to_string(stage.dir.path().join("serve/audit.jsonl")).unwrap();
        assert!(
            audit.contains("\"action\":\"run\"") && audit.contains("\"action\":\"permission\""),
            "{audit}"
        );
        assert!(!audit.contains("hello.txt"), "prompts are not recorded");
    });
}

fn stream_continues() {
    run(async {
        let stage = ServerStage::start().await;
        let client = &stage.client;
        let id = stage.run("chunks 40 piece-{n}\nsleep 200\nsay end").await;
        let mut pieces = Vec::new();
        loop {
            let after = pieces.last().map_or(0, |event: &crate::client::SseEvent| event.id);
            let mut events = client.events(&id, after).await;
            if events.status() == 204 {
                break;
            }
            // Each connection breaks off after seven events.
            for _ in 0..7 {
                pieces.extend(events.next().await);
            }
        }
        let all = client.all_events(&id).await;
        assert_eq!(pieces, all);
        assert_eq!(
            all.iter().map(|event| event.id).collect::<Vec<_>>(),
            (1..=all.len() as u64).collect::<Vec<_>>()
        );
        let text: String =
            all.iter().filter_map(|event| event.json()["text"].as_str().map(str::to_owned)).collect();
        assert!(text.contains("piece-1") && text.contains("piece-40") && text.contains("end"));
        // Polling returns the same.
        let (mut polled, mut after) = (Vec::new(), 0);
        loop {
            let batch = client.get(&format!("/v1/runs/{id}/poll?after={after}&limit=9")).await.json();
            for event in batch["events"].as_array().unwrap() {
                after = event["id"].as_u64().unwrap();
                polled.push((after, event["data"].clone()));
            }
            if batch["ended"] == true {
                break;
            }
        }
        let expected: Vec<_> = all.iter().map(|event| (event.id, event.json())).collect();
        assert_eq!(polled, expected);
        let header = [("last-event-id", "x")];
        assert_eq!(client.send("GET", &format!("/v1/runs/{id}/events"), &header, None).await.status, 400);
    });
}

fn run_ends_with_clients() {
    run(async {
        let stage = ServerStage::start().await;
        let body = json!({"prompt": "say x\nhang", "on_disconnect": "cancel", "disconnect_grace_ms": 300});
        let id = stage.run_with(body).await;
        let mut events = stage.client.events(&id, 0).await;
        events.until("started").await;
        drop(events);
        // Looking for the outcome without waiting does not count as following for longer than the request.
        eventually(async || {
            stage.client.get(&format!("/v1/runs/{id}")).await.json()["verdict"] == "cancelled"
        })
        .await;
        let other = stage.run("hang").await;
        drop(stage.client.events(&other, 0).await);
        tokio::time::sleep(Duration::from_millis(500)).await;
        assert_eq!(stage.client.get(&format!("/v1/runs/{other}")).await.json()["state"], "running");
        let cancelled = stage.client.post(&format!("/v1/runs/{other}/cancel"), json!({"signal": 15})).await;
        assert_eq!(cancelled.json()["found"], true);
        assert_eq!(stage.outcome(&other).await["verdict"], "cancelled");
        let again = stage.client.post(&format!("/v1/runs/{other}/cancel"), json!({})).await;
        assert_eq!(again.json()["found"], false);
    });
}

fn conversation_is_steered() {
    run(async {
        let stage = ServerStage::start().await;
        let client = &stage.client;
        let opened = client.post("/v1/conversations", json!({})).await;
        assert_eq!(opened.status, 201, "{}", opened.text());
        let conversation = opened.json()["conversation"].as_str().unwrap().to_owned();
        let prompts = format!("/v1/conversations/{conversation}/prompts");
        let first = client.post(&prompts, json!({"prompt": "ask write_file a.txt a\nsay one"})).await;
        let first = first.json()["run"].as_str().unwrap().to_owned();
        client.events(&first, 0).await.until("permission_request").await;
        let reply = json!({"decision": "allow", "always": true});
        assert_eq!(client.post(&format!("/v1/runs/{first}/permissions/p1"), reply).await.status, 200);
        assert_eq!(stage.outcome(&first).await["text"], "one");
        // The answer holds for the next prompt.
        let second = client.post(&prompts, json!({"prompt": "ask write_file b.txt b\nsay two\nhang"})).await;
        let second = second.json()["run"].as_str().unwrap().to_owned();
        let answered = client.events(&second, 0).await.until("permission_answered").await.json();
        assert_eq!(answered["by"], "always");
        let steer = json!({"text": "say three", "when": "now"});
        let third = client.post(&format!("/v1/runs/{second}/steer"), steer).await;
        assert_eq!(third.status, 201, "{}", third.text());
        let third = third.json()["run"].as_str().unwrap().to_owned();
        assert_eq!(stage.outcome(&second).await["verdict"], "cancelled");
        assert_eq!(stage.outcome(&third).await["text"], "three");
        let shown = client.get(&format!("/v1/conversations/{conversation}")).await.json();
        assert_eq!(shown["runs"], json!([first, second, third]));
        let alone = stage.run("hang").await;
        let refused = client.post(&format!("/v1/runs/{alone}/steer"), json!({"text": "say x"})).await;
        assert_eq!(refused.status, 409);
        assert_eq!(client.delete(&format!("/v1/conversations/{conversation}")).await.status, 204);
        assert_eq!(client.post(&prompts, json!({"prompt": "say x"})).await.status, 409);
    });
}

fn steered_before_queue() {
    run(async {
        let stage = ServerStage::start().await;
        let client = &stage.client;
        let opened = client.post("/v1/conversations", json!({})).await.json();
        let prompts = format!("/v1/conversations/{}/prompts", opened["conversation"].as_str().unwrap());
        let send = async |path: &str, body: serde_json::Value| {
            let sent = client.post(path, body).await;
            assert_eq!(sent.status, 201, "{}", sent.text());
            sent.json()["run"].as_str().unwrap().to_owned()
        };
        // The second time, the run that waits is named.
        for names_waiting in [false, true] {
            let active = send(&prompts, json!({"prompt": "say active\nhang"})).await;
            client.events(&active, 0).await.until("text").await;
            let waiting = send(&prompts, json!({"prompt": "say waiting\nhang"})).await;
            let named = if names_waiting { &waiting } else { &active };
            let steer = json!({"text": "say now", "when": "now"});
            let now = send(&format!("/v1/runs/{named}/steer"), steer).await;
            assert_eq!(stage.outcome(&active).await["verdict"], "cancelled");
            assert_eq!(stage.outcome(&now).await["text"], "now", "the other one would hang");
            client.events(&waiting, 0).await.until("text").await;
            client.post(&format!("/v1/runs/{waiting}/cancel"), json!({})).await;
            assert_eq!(stage.outcome(&waiting).await["verdict"], "cancelled");
        }
    });
}

/// Asks for the events of a run without reading them.
async fn open_stream(stage: &ServerStage, id: &str, mut stream: TcpStream) -> TcpStream {
    let request = format!(
        "GET /v1/runs/{id}/events HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\n\r\n",
        stage.client.address, stage.client.token
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    stream
}

fn heartbeats() {
    run(async {
        let stage = ServerStage::with(|options| {
            assert_eq!(options.limits.heartbeat, Duration::from_secs(10), "the default");
            options.limits.heartbeat = Duration::from_millis(50);
        })
        .await;
        let id = stage.run("say x\nhang").await;
        let mut stream =
            open_stream(&stage, &id, TcpStream::connect(stage.client.address).await.unwrap()).await;
        let mut answer = Vec::new();
        eventually(async || {
            assert!(stream.read_buf(&mut answer).await.unwrap() > 0, "the stream stays open");
            String::from_utf8_lossy(&answer).matches(": heartbeat\n\n").count() >= 3
        })
        .await;
    });
}

fn client_does_not_read() {
    run(async {
        let stage = ServerStage::with(|options| options.limits.write_timeout = Duration::from_secs(1)).await;
        // More than the buffers of the connection hold.
        let script = "repeat 120 big 65536\nhang";
        // The time without clients also counts before the first one.
        let body = json!({"prompt": script, "on_disconnect": "cancel", "disconnect_grace_ms": 10_000});
        let id = stage.run_with(body).await;
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(4_096).unwrap();
        let mut stuck = open_stream(&stage, &id, socket.connect(stage.client.address).await.unwrap()).await;
        let mut begin = [0; 12];
        stuck.read_exact(&mut begin).await.unwrap();
        assert_eq!(&begin, b"HTTP/1.1 200", "the stream is open");
        // The run ends because it has no client any more.
        eventually(async || {
            stage.client.get(&format!("/v1/runs/{id}")).await.json()["verdict"] == "cancelled"
        })
        .await;
        drop(stuck);
    });
}

fn events_that_are_gone() {
    run(async {
        let stage = ServerStage::with(|options| {
            options.limits.run_bytes = 20_000;
            options.limits.ring_bytes = 2_000;
        })
        .await;
        let id = stage.run("chunks 400 some-text-{n}\nsay end").await;
        stage.outcome(&id).await;
        // The events are removed by the time that another run has started.
        stage.run("say x").await;
        let info = stage.client.get(&format!("/v1/runs/{id}")).await.json();
        let (first, last) = (info["first_event"].as_u64().unwrap(), info["last_event"].as_u64().unwrap());
        assert!(first > 5 && last > first, "{info}");
        let events = stage.client.events(&id, 3).await.rest().await;
        assert_eq!(events[0].event, "resync");
        assert_eq!(events[0].json(), json!({"type": "resync", "requested": 3, "first": first, "last": last}));
        let ids: Vec<u64> = events[1..].iter().map(|event| event.id).collect();
        assert_eq!(ids, (first..=last).collect::<Vec<_>>());
        let batch = stage.client.get(&format!("/v1/runs/{id}/poll?after=3")).await.json();
        assert_eq!(batch["resync"]["first"], first);
        assert_eq!(batch["events"][0]["id"], first);
        // A position after the end was never sent by this server.
        let beyond = stage.client.events(&id, last + 50).await.next().await.unwrap();
        assert_eq!(beyond.event, "resync");
    });
}

fn slow_client() {
    run(async {
        let stage = ServerStage::start().await;
        let id = stage.run("sleep 300\nrepeat 64 big 65536\nsay end").await;
        // It never reads.
        let slow = stage.client.events(&id, 0).await;
        let fast = stage.client.all_events(&id).await;
        assert_eq!(fast.last().unwrap().event, "outcome");
        assert!(fast.iter().map(|event| event.data.len()).sum::<usize>() > 64 * 65_536);
        // Later, the slow one still gets everything.
        assert!(slow.rest().await == fast);
    });
}

fn usage_has_cost() {
    run(async {
        let stage = ServerStage::start().await;
        let body = json!({"prompt": "quota 1000 200\nsay Done.", "model": "gemini-2.5-flash"});
        let id = stage.run_with(body).await;
        let outcome = stage.outcome(&id).await;
        let events = stage.client.all_events(&id).await;
        let usage = events.iter().rfind(|event| event.event == "usage").expect("a report on usage").json();
        assert!(usage["cost_usd"].as_f64().is_some_and(|cost| cost > 0.0), "{usage}");
        assert_eq!(usage["cost_usd"], outcome["cost_usd"]);
    });
}

fn policy_is_enforced() {
    run(async {
        let digest = |token: &str| agentline_fs::digest::hex(&agentline_fs::digest::digest(token.as_bytes()));
        let stage = ServerStage::with(|options| {
            let file = options.dir.parent().unwrap().join("tokens.toml");
            let text = format!(
                "[[token]]\nname = \"ci\"\nsha256 = \"{}\"\npermission_modes = [\"plan\"]\nmax_concurrent = 1\n\
                 [[token]]\nname = \"reader\"\nsha256 = \"{}\"\nread_only = true\nsessions = \"none\"\n",
                digest("token-of-ci"),
                digest("token-of-reader"),
            );
            std::fs::write(&file, text).unwrap();
            options.tokens = Some(file);
        })
        .await;
        let own = stage.run("say mine").await;
        stage.outcome(&own).await;
        let ci = crate::client::HttpClient::new(stage.client.address, "token-of-ci");
        let reader = crate::client::HttpClient::new(stage.client.address, "token-of-reader");
        let bypass = json!({"prompt": "say x", "permission_mode": "bypass"});
        assert_eq!(ci.post("/v1/runs", bypass).await.status, 403);
        assert_eq!(ci.get(&format!("/v1/runs/{own}")).await.status, 404, "a run of another token");
        let run = ci.post("/v1/runs", json!({"prompt": "hang"})).await;
        assert_eq!(run.json()["permission_mode"], "plan");
        assert_eq!(ci.post("/v1/runs", json!({"prompt": "say x"})).await.status, 429);
        assert_eq!(reader.post("/v1/runs", json!({"prompt": "say x"})).await.status, 403);
        assert_eq!(reader.get("/v1/sessions").await.status, 403);
        assert_eq!(reader.get("/v1/runs").await.json()["runs"], json!([]));
        assert_eq!(ci.post("/v1/login-links", json!({})).await.status, 403);
        let servers = json!({"prompt": "x", "mcp_servers": {"a": {"command": "true"}}});
        assert_eq!(ci.post("/v1/runs", servers).await.status, 403);
    });
}
