//! Tests MCP servers behind the relay: working ones are relayed unchanged, failing ones are reported, and none outlives
//! the run.

use crate::tools::client::{LONG, ToolClient, lines, lines_until, until};
use agentline::{
    McpServer,
    tools::{RunningTools, Tool, ToolCall, ToolHost, ToolOffer},
};
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    ffi::OsString,
    path::Path,
    time::{Duration, Instant},
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Returns the small server, with a fault.
fn tiny(fault: &str) -> McpServer {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/library/tools/server.mjs");
    McpServer::Command {
        command: "node".into(),
        args: vec![script.into(), fault.into()],
        env: BTreeMap::new(),
    }
}

fn offer() -> ToolOffer {
    let path = std::env::var_os("PATH").unwrap_or_default();
    ToolOffer::new().env([(OsString::from("PATH"), path)].into()).startup_timeout(LONG)
}

fn serve(offer: ToolOffer) -> (RunningTools, ToolClient) {
    let serving = ToolHost::new().serve(offer).unwrap();
    let client = ToolClient::of(&serving, "tiny");
    (serving, client)
}

fn starts(log: &Path) -> Vec<u32> {
    std::fs::read_to_string(log).unwrap_or_default().lines().map(|pid| pid.parse().unwrap()).collect()
}

/// Returns a server that logs its starts.
fn logged(fault: &str, log: &Path) -> McpServer {
    let McpServer::Command { command, args, mut env } = tiny(fault) else { unreachable!() };
    env.insert("STARTS".into(), log.to_str().unwrap().into());
    McpServer::Command { command, args, env }
}

#[cfg(target_os = "linux")]
async fn wait_for_exit(pid: u32) {
    let stat = format!("/proc/{pid}/stat");
    // A zombie counts as dead, too.
    until("the server is gone", async || std::fs::read_to_string(&stat).map_or(true, |s| s.contains(") Z ")))
        .await;
}

#[tokio::test]
async fn server_is_started_once_and_relayed_unchanged() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("starts");
    let (mut serving, client) = serve(offer().cwd(folder.path()).server("tiny", logged("", &log)));
    let hello = client.initialize().await;
    assert_eq!(hello["serverInfo"], json!({"name": "tiny", "version": "1"}));
    client.notify("notifications/initialized", json!({})).await;
    let tools = client.list().await;
    assert_eq!(tools[0], "shout");
    assert_eq!(lines(&mut serving), [json!({"server": "tiny", "tools": tools})]);
    assert_eq!(client.call("shout", json!({"word": "hey"})).await, (false, "HEY".into()));
    assert_eq!(client.call("variable", json!({"name": "HOME"})).await.1, "not set");
    assert_eq!(
        client.call("folder", json!({})).await.1,
        folder.path().canonicalize().unwrap().to_str().unwrap()
    );
    // Unknown messages also pass, results and errors alike.
    assert_eq!(client.request(4, "prompts/list", json!({})).await["result"]["prompts"][0]["name"], "greet");
    assert_eq!(
        client.request(5, "tiny/echo", json!({"x": [1.5, null]})).await["result"],
        json!({"x": [1.5, null]})
    );
    assert_eq!(client.request(6, "tiny/other", json!({})).await["error"]["data"], json!({"tiny": true}));
    // A second client of the same run, such as a part of the agent, gets the same server.
    assert_eq!(client.initialize().await, hello);
    assert_eq!(starts(&log).len(), 1);
    assert_eq!(lines(&mut serving), Vec::<Value>::new());
}

#[tokio::test]
async fn unauthorized_clients_do_not_reach_an_mcp_server() {
    let (mut serving, client) = serve(offer().server("tiny", tiny("")));
    let ping = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"});
    assert_eq!(client.clone().with("Authorization", "Bearer x").post(&ping).await.0, 401);
    assert_eq!(client.clone().with("Origin", "http://evil.test").post(&ping).await.0, 403);
    assert_eq!(lines(&mut serving), [json!({"refused": "token"}), json!({"refused": "origin"})]);
    assert_eq!(client.post(&json!([ping])).await.0, 400);
}

#[tokio::test]
async fn concurrent_answers_reach_their_callers() {
    let (_serving, client) = serve(offer().server("tiny", tiny("")));
    let calls = (0..20).map(|n| {
        let client = client.clone();
        // All have the same id, as two parts of an agent may.
        tokio::spawn(async move { client.call("shout", json!({"word": format!("w{n}")})).await })
    });
    for (n, call) in calls.collect::<Vec<_>>().into_iter().enumerate() {
        assert_eq!(call.await.unwrap(), (false, format!("W{n}")));
    }
}

#[tokio::test]
async fn a_cancelled_request_is_cancelled_at_the_server() {
    let (_serving, client) = serve(offer().server("tiny", tiny("")));
    client.initialize().await;
    let call = json!({"jsonrpc": "2.0", "id": "c-1", "method": "tools/call", "params": {"name": "endless"}});
    let waiting = tokio::spawn({
        let (client, call) = (client.clone(), call.clone());
        async move { client.post(&call).await.1 }
    });
    until("the server receives the cancellation", async || {
        client.notify("notifications/cancelled", json!({"requestId": "c-1"})).await;
        client.call("cancelled", json!({})).await.1 == "request number"
    })
    .await;
    let answer = waiting.await.unwrap();
    assert!(answer.contains("the request was cancelled") && answer.contains("\"c-1\""), "{answer}");
}

#[tokio::test]
async fn closed_connection_cancels_at_the_server() {
    let (_serving, client) = serve(offer().server("tiny", tiny("")));
    client.initialize().await;
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "endless"}});
    let connection = client.send(&call).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    drop(connection);
    until("the server receives the cancellation", async || {
        client.call("cancelled", json!({})).await.1 == "request number"
    })
    .await;
}

#[tokio::test]
async fn abandoned_calls_can_be_stopped() {
    let (serving, client) = serve(offer().server("tiny", tiny("")));
    client.initialize().await;
    let call = json!({"jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": {"name": "endless"}});
    let waiting = tokio::spawn({
        let client = client.clone();
        async move { client.post(&call).await.1 }
    });
    until("the server receives the cancellation", async || {
        serving.cancel_calls();
        client.call("cancelled", json!({})).await.1 == "request number"
    })
    .await;
    assert!(waiting.await.unwrap().contains("the request was cancelled"));
}

#[tokio::test]
async fn server_notifications_reach_listeners() {
    let (_serving, client) = serve(offer().server("tiny", tiny("")));
    client.initialize().await;
    let mut stream = tokio::net::TcpStream::connect(&client.address).await.unwrap();
    let token = &client.headers[0].1;
    let head = format!(
        "GET {} HTTP/1.1\r\nHost: {}\r\nAuthorization: {token}\r\nAccept: text/event-stream\r\n\r\n",
        client.path, client.address
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut seen = Vec::new();
    let mut read_until = async |word: &str| {
        while !String::from_utf8_lossy(&seen).contains(word) {
            let read =
                tokio::time::timeout(LONG, stream.read_buf(&mut seen)).await.expect("in time").unwrap();
            assert!(read > 0, "{}", String::from_utf8_lossy(&seen));
        }
    };
    read_until("text/event-stream").await;
    assert_eq!(client.call("change", json!({})).await.1, "changed");
    read_until("data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/tools/list_changed\"}\n\n").await;
}

#[tokio::test]
async fn dead_server_is_reported_and_has_no_tools() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("starts");
    let missing =
        McpServer::Command { command: "no-such-program".into(), args: vec![], env: BTreeMap::new() };
    let offer = offer().server("tiny", logged("dead", &log)).server("missing", missing);
    let (mut serving, client) = serve(offer);
    for name in ["tiny", "missing"] {
        let client = ToolClient::of(&serving, name);
        assert_eq!(client.initialize().await["serverInfo"]["name"], name);
        assert_eq!(client.list().await, Vec::<String>::new());
        assert_eq!(client.request(1, "prompts/list", json!({})).await["result"]["prompts"], json!([]));
        let (is_error, text) = client.call("shout", json!({})).await;
        assert!(is_error && text.contains(&format!("MCP server `{name}` failed")), "{text}");
    }
    let reports = lines(&mut serving);
    assert_eq!(reports.len(), 2, "{reports:?}");
    let error_of =
        |name: &str| reports.iter().find(|line| line["server"] == name).unwrap()["error"].as_str().unwrap();
    let error = error_of("tiny");
    assert!(
        error.starts_with("exited with code 3; last output: xxx") && error.ends_with("no licence key"),
        "{error}"
    );
    assert!(error.len() < 2200, "only the end of its output: {}", error.len());
    assert_eq!(error_of("missing"), "cannot start: program `no-such-program` does not exist");
    assert_eq!(client.list().await, Vec::<String>::new());
    assert_eq!(starts(&log).len(), 1);
}

#[tokio::test]
async fn hanging_server_is_stopped_after_its_timeout() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("starts");
    let patience = Duration::from_secs(3);
    let (mut serving, client) =
        serve(offer().startup_timeout(patience).server("tiny", logged("hanging", &log)));
    let started_at = Instant::now();
    assert_eq!(client.list().await, Vec::<String>::new());
    assert!(started_at.elapsed() >= patience, "{:?}", started_at.elapsed());
    let reports = lines(&mut serving);
    assert_eq!(reports, [json!({"server": "tiny", "error": "no response within 3 s"})]);
    #[cfg(target_os = "linux")]
    for pid in starts(&log) {
        wait_for_exit(pid).await;
    }
}

#[tokio::test]
async fn missing_tool_list_is_empty_after_a_timeout() {
    let offer = offer().startup_timeout(Duration::from_secs(6)).server("tiny", tiny("hanging-list"));
    let (mut serving, client) = serve(offer);
    assert_eq!(client.initialize().await["serverInfo"]["name"], "tiny");
    assert_eq!(client.list().await, Vec::<String>::new());
    let reports = lines(&mut serving);
    assert_eq!(reports, [json!({"server": "tiny", "error": "no response to `tools/list` within 6 s"})]);
    assert_eq!(client.call("shout", json!({"word": "still here"})).await.1, "STILL HERE");
}

#[tokio::test]
async fn server_that_dies_midway_is_reported_and_not_restarted() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("starts");
    let (mut serving, client) = serve(offer().server("tiny", logged("", &log)));
    assert!(!client.list().await.is_empty());
    for tool in ["die", "shout"] {
        let (is_error, text) = client.call(tool, json!({})).await;
        assert!(is_error && text.contains("exited with code 7") && text.contains("out of cheese"), "{text}");
    }
    assert_eq!(client.list().await, Vec::<String>::new());
    let reports = lines_until(&mut serving, |line| !line["error"].is_null()).await;
    assert_eq!(reports.len(), 2, "{reports:?}");
    assert_eq!(starts(&log).len(), 1);
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread")]
async fn server_ends_with_the_run() {
    let folder = tempfile::tempdir().unwrap();
    for (name, fault) in [("closed", ""), ("dropped", ""), ("closed", "hanging"), ("dropped", "hanging")] {
        let log = folder.path().join(format!("{name}-{fault}"));
        let (serving, _) = serve(offer().server("tiny", logged(fault, &log)));
        until("it has started", async || !starts(&log).is_empty()).await;
        let pid = starts(&log)[0];
        if name == "closed" {
            serving.close().await;
            let state = std::fs::read_to_string(format!("/proc/{pid}/stat"));
            assert!(state.is_err(), "the server has exited when the close completes: {state:?}");
        } else {
            drop(serving);
        }
        wait_for_exit(pid).await;
    }
}

#[tokio::test]
async fn http_server_is_relayed_and_its_absence_reported() {
    let shout = Tool::new("shout", "", json!({"type": "object"}), |args: Value, _: ToolCall| async move {
        Ok(args["word"].as_str().unwrap_or_default().to_uppercase())
    });
    let mut far = ToolHost::new().server_name("far").tool(shout).serve(ToolOffer::new()).unwrap();
    let server = far.servers()["far"].clone();
    let (mut serving, client) = serve(offer().server("tiny", server.clone()));
    assert_eq!(client.initialize().await["serverInfo"]["name"], "far");
    assert_eq!(client.list().await, ["shout"]);
    assert_eq!(client.call("shout", json!({"word": "hey"})).await, (false, "HEY".into()));
    assert_eq!(lines(&mut serving), [json!({"server": "tiny", "tools": ["shout"]})]);
    assert_eq!(lines(&mut far).len(), 3);
    drop(far);
    let (is_error, text) = client.call("shout", json!({})).await;
    assert!(is_error && text.contains("HTTP status 404"), "{text}");
    assert_eq!(client.list().await, Vec::<String>::new());
    let reports = lines(&mut serving);
    assert_eq!(reports, [json!({"server": "tiny", "error": "HTTP status 404 Not Found"})]);
    // A server that refuses us from the start.
    let McpServer::Url { url, .. } = server else { unreachable!() };
    let (mut serving, client) =
        serve(offer().server("tiny", McpServer::Url { url, headers: BTreeMap::new() }));
    assert_eq!(client.list().await, Vec::<String>::new());
    assert_eq!(lines(&mut serving).len(), 1);
}

#[tokio::test]
async fn answer_in_an_event_stream_is_found_and_the_session_kept() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp?key=1", listener.local_addr().unwrap());
    let asked = tokio::spawn(async move {
        let mut heads = Vec::new();
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut seen = Vec::new();
            let (head, body) = loop {
                let read = stream.read_buf(&mut seen).await.unwrap();
                let text = String::from_utf8_lossy(&seen).to_lowercase();
                assert!(read > 0, "the request ended early: {text}");
                if let Some((head, body)) = text.split_once("\r\n\r\n")
                    && (head.starts_with("delete")
                        || head.contains(&format!("content-length: {}", body.len())))
                {
                    break (head.to_owned(), body.to_owned());
                }
            };
            let deleted = head.starts_with("delete");
            heads.push(head);
            if deleted {
                return heads;
            }
            let message: Value = serde_json::from_str(&body).unwrap();
            let kind = "HTTP/1.1 200 OK\r\nConnection: close\r\nMcp-Session-Id: s-1\r\nContent-Type: text/event-stream\r\n\r\n";
            let progress = r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{}}"#;
            let reply =
                json!({"jsonrpc": "2.0", "id": message["id"], "result": {"tools": [{"name": "far"}]}});
            let answer = format!("{kind}: hi\n\ndata: {progress}\n\nevent: message\ndata: {reply}\n\n");
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
    });
    let headers = [("X-Key".to_owned(), "secret-1".to_owned())].into();
    let (serving, client) = serve(offer().server("tiny", McpServer::Url { url, headers }));
    assert_eq!(client.list().await, ["far"]);
    serving.close().await;
    let heads = tokio::time::timeout(LONG, asked).await.unwrap().unwrap();
    assert!(
        heads[0].starts_with("post /mcp?key=1 http/1.1") && heads[0].contains("x-key: secret-1"),
        "{heads:?}"
    );
    assert!(!heads[0].contains("mcp-session-id") && heads[1].contains("mcp-session-id: s-1"), "{heads:?}");
    assert!(heads.last().unwrap().contains("mcp-session-id: s-1"), "{heads:?}");
}

#[tokio::test]
async fn unsupported_servers_are_left_to_the_agent_and_reported() {
    let far = McpServer::Url { url: "https://far.test/mcp".into(), headers: BTreeMap::new() };
    let mut serving = ToolHost::new().serve(offer().server("far", far.clone())).unwrap();
    assert_eq!(serving.servers()["far"], far);
    assert_eq!(
        lines(&mut serving),
        [json!({"server": "far", "unrelayed": "only `http://` URLs are relayed"})]
    );
}

#[tokio::test]
async fn any_server_name_has_a_path_and_our_name_is_reserved() {
    let odd = "my notes/ü_1";
    let serving = ToolHost::new().serve(offer().server(odd, tiny("dead"))).unwrap();
    let client = ToolClient::of(&serving, odd);
    assert!(client.path.is_ascii() && client.path.ends_with("/my%20notes%2F%C3%BC_1/mcp"), "{}", client.path);
    assert_eq!(client.list().await, Vec::<String>::new());
    let own = Tool::new("a", "", json!({"type": "object"}), |_: Value, _: ToolCall| async { Ok(()) });
    let host = ToolHost::new().tool(own);
    for like_ours in ["agentline", "agentline_x", "Agentline notes"] {
        let clash = host.serve(offer().server(like_ours, tiny("dead"))).unwrap_err().to_string();
        assert!(clash.contains("agentline's own server") && clash.contains(like_ours), "{clash}");
    }
    host.serve(offer().server("agentline-notes", tiny("dead"))).unwrap();
}
