//! Tests authorization, the tools of one run, and what remains after it.

use crate::tools::client::{ToolClient, lines, lines_until, until};
use agentline::tools::{AnswerTool, Tool, ToolCall, ToolHost, ToolOffer};
use serde_json::{Value, json};

fn host_with(names: &[&str]) -> ToolHost {
    names.iter().fold(ToolHost::new(), |host, name| {
        host.tool(Tool::new(*name, "", json!({"type": "object"}), |_: Value, call: ToolCall| async move {
            Ok(call.tool.clone())
        }))
    })
}

fn list_request() -> Value {
    json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"})
}

#[tokio::test]
async fn unauthorized_clients_are_refused_and_reported() {
    let mut serving = host_with(&["a"]).serve(ToolOffer::new()).unwrap();
    let client = ToolClient::of(&serving, "agentline");
    let token = serving.token().to_owned();
    assert!(token.len() >= 32 && !format!("{serving:?}").contains(&token), "{serving:?}");
    let wrong_last_letter = format!("Bearer {}x", &token[..token.len() - 1]);
    let bad = [
        (client.clone().with("Authorization", "Bearer wrong"), 401),
        (client.clone().with("Authorization", &wrong_last_letter), 401),
        (client.clone().with("Authorization", &token), 401),
        (client.clone().with("Authorization", ""), 401),
        (client.clone().with("Host", "evil.test"), 403),
        (client.clone().with("Host", "127.0.0.1:1"), 403),
        (client.clone().with("Origin", "http://evil.test"), 403),
        (client.clone().with("Origin", "null"), 403),
        (ToolClient { path: "/r/other/mcp".into(), ..client.clone() }, 404),
        (ToolClient { path: "/mcp".into(), ..client.clone() }, 404),
        (ToolClient { path: client.path.replace("/mcp", "/x/mcp"), ..client.clone() }, 404),
    ];
    for (stranger, status) in bad {
        let (got, body) = stranger.post(&list_request()).await;
        assert_eq!(got, status, "{body}");
        assert!(!body.contains("tools"), "{body}");
    }
    let refused = |reason: &str| json!({ "refused": reason });
    let expected = ["token", "token", "token", "token", "host", "host", "origin", "origin"].map(refused);
    assert_eq!(lines(&mut serving), expected);
    let local = client.clone().with("Host", &client.address.replace("127.0.0.1", "localhost"));
    assert_eq!(local.post(&list_request()).await.0, 200);
    assert_eq!(lines(&mut serving), [json!({"listed": ["a"]})]);
}

#[tokio::test]
async fn reports_of_unauthorized_clients_are_limited() {
    let mut serving = host_with(&["a"]).serve(ToolOffer::new()).unwrap();
    let stranger = ToolClient::of(&serving, "agentline").with("Authorization", "Bearer wrong");
    for _ in 0..100 {
        assert_eq!(stranger.post(&list_request()).await.0, 401);
    }
    assert!(lines(&mut serving).len() < 50);
}

#[tokio::test]
async fn valid_value_is_accepted_and_the_last_one_wins() {
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]});
    let structured = AnswerTool::new(schema.clone(), |value: Value| async move {
        if value["n"].is_i64() { Ok(()) } else { Err("`n` must be an integer".to_owned()) }
    });
    let mut serving = host_with(&["a"]).serve(ToolOffer::new().structured(structured)).unwrap();
    let client = ToolClient::of(&serving, "agentline");
    let answer = client.request(1, "tools/list", json!({})).await;
    assert_eq!(answer["result"]["tools"][1]["inputSchema"], schema);
    let refused = client.call("structured_output", json!({"n": "one"})).await;
    assert_eq!(refused, (true, "`n` must be an integer".into()));
    assert_eq!(serving.value(), None);
    for n in [1, 2] {
        assert!(!client.call("structured_output", json!({"n": n})).await.0);
    }
    assert_eq!(serving.value(), Some(json!({"n": 2})));
    let values: Vec<Value> =
        lines(&mut serving).into_iter().filter(|line| !line["value"].is_null()).collect();
    assert_eq!(values, [json!({"value": {"n": 1}}), json!({"value": {"n": 2}})]);
}

#[tokio::test]
async fn long_texts_are_truncated_in_reports_but_not_in_answers_and_values() {
    let long = "é".repeat(100_000);
    let structured = AnswerTool::new(json!({"type": "object"}), |_| async { Ok(()) });
    let echo = Tool::new("echo", "", json!({"type": "object"}), |args: Value, _: ToolCall| async move {
        Ok(args["text"].clone())
    });
    let mut serving = ToolHost::new().tool(echo).serve(ToolOffer::new().structured(structured)).unwrap();
    let client = ToolClient::of(&serving, "agentline");
    assert_eq!(client.call("echo", json!({"text": long})).await, (false, long.clone()));
    client.call("structured_output", json!({"text": long})).await;
    for line in lines(&mut serving) {
        let length = line.to_string().len();
        assert_eq!(length > 150_000, line.get("value").is_some(), "{length} bytes");
    }
    assert_eq!(serving.value().unwrap()["text"], long);
}

#[tokio::test]
async fn concurrent_runs_share_a_port_and_see_only_their_own_tools() {
    let structured = AnswerTool::new(json!({"type": "object"}), |_| async { Ok(()) });
    let host = host_with(&["shared"]);
    let mut first = host.serve(ToolOffer::new().structured(structured.name("first"))).unwrap();
    let mut second = host
        .clone()
        .server_name("other")
        .tool(Tool::new("second", "", json!({"type": "object"}), |_: Value, _: ToolCall| async { Ok(()) }))
        .serve(ToolOffer::new())
        .unwrap();
    let (a, b) = (ToolClient::of(&first, "agentline"), ToolClient::of(&second, "other"));
    assert_eq!(a.address, b.address);
    assert_eq!(a.list().await, ["shared", "first"]);
    assert_eq!(b.list().await, ["shared", "second"]);
    assert_eq!(a.call("second", json!({})).await, (true, "unknown tool `second`".into()));
    // The token of one run gives no access to the other.
    let thief = ToolClient { headers: b.headers.clone(), ..a.clone() };
    assert_eq!(thief.post(&list_request()).await.0, 401);
    assert_eq!(lines(&mut second), [json!({"listed": ["shared", "second"]})]);
    assert_eq!(lines(&mut first).len(), 4);
    drop(first);
    assert_eq!(a.post(&list_request()).await.0, 404);
    assert_eq!(b.list().await, ["shared", "second"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn dropping_the_last_offer_closes_the_port_and_ends_active_calls() {
    let (sender, mut ended) = tokio::sync::mpsc::channel::<()>(1);
    let host = ToolHost::new().tool(Tool::new(
        "endless",
        "",
        json!({"type": "object"}),
        move |_: Value, _: ToolCall| {
            let sender = sender.clone();
            async move {
                sender.closed().await;
                Ok(())
            }
        },
    ));
    let mut serving = host.serve(ToolOffer::new()).unwrap();
    let client = ToolClient::of(&serving, "agentline");
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "endless"}});
    let _waiting = client.send(&call).await;
    let _idle = tokio::net::TcpStream::connect(&client.address).await.unwrap();
    lines_until(&mut serving, |line| line["called"] == "endless").await;
    drop(host);
    drop(serving);
    // The only senders are in the tool and in its call.
    assert_eq!(tokio::time::timeout(crate::tools::client::LONG, ended.recv()).await.unwrap(), None);
    until("the port is closed", async || !client.is_open().await).await;
}

#[test]
fn each_runtime_has_its_own_port_that_ends_with_it() {
    let run = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let host = host_with(&["a"]);
    let runtime = run();
    let serving = runtime.block_on(async { host.serve(ToolOffer::new()).unwrap() });
    let old = ToolClient::of(&serving, "agentline");
    drop(runtime);
    run().block_on(async {
        let serving = host.serve(ToolOffer::new()).unwrap();
        assert_eq!(ToolClient::of(&serving, "agentline").list().await, ["a"]);
        until("the port of the old runtime is closed", async || !old.is_open().await).await;
    });
    assert!(host.serve(ToolOffer::new()).is_err(), "there is no runtime");
}

#[test]
fn names_and_schemas_are_validated_before_serving() {
    let tool =
        |name: &str, schema: Value| Tool::new(name, "", schema, |_: Value, _: ToolCall| async { Ok(()) });
    let good = json!({"type": "object"});
    let host = ToolHost::new()
        .server_name("my_tools")
        .tool(tool("a b", good.clone()))
        .tool(tool("list", json!({"type": "array"})))
        .tool(tool("twice", good.clone()))
        .tool(tool("twice", good.clone()))
        .tool(tool(&"x".repeat(60), good));
    let problems = host.check().unwrap_err().to_string();
    for expected in [
        "`my_tools` is not a valid name",
        "`a b` may contain only letters",
        "type `object`",
        "duplicate tool name",
        "too long",
    ] {
        assert!(problems.contains(expected), "{expected}: {problems}");
    }
    assert_eq!(problems.matches("`tools.").count(), 4, "{problems}");
    assert!(host.serve(ToolOffer::new()).is_err());
}
