//! Tests a host's tools as an agent uses them: results, denials, errors, and the end of abandoned calls.

use crate::tools::client::{LONG, ToolClient, lines, lines_until, until};
use agentline::tools::{
    CallDecision, RunningTools, StopRun, Tool, ToolCall, ToolError, ToolHost, ToolOffer, ToolOutput, schemars,
};
use serde_json::{Value, json};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Sum {
    a: i64,
    b: i64,
}

fn add() -> Tool {
    Tool::typed("add", "Adds two numbers", |sum: Sum, _call| async move {
        Ok(json!({"sum": sum.a.checked_add(sum.b).ok_or("too large")?}))
    })
}

fn any(name: &str, run: impl Fn() -> Result<&'static str, &'static str> + Send + Sync + 'static) -> Tool {
    Tool::new(name, "", json!({"type": "object"}), move |_: Value, _: ToolCall| {
        let result = run();
        async move { Ok(result?) }
    })
}

fn serve(tools: impl IntoIterator<Item = Tool>) -> (RunningTools, ToolClient) {
    serve_with(tools, ToolOffer::new())
}

fn serve_with(tools: impl IntoIterator<Item = Tool>, offer: ToolOffer) -> (RunningTools, ToolClient) {
    let host = tools.into_iter().fold(ToolHost::new(), ToolHost::tool);
    let serving = host.serve(offer).unwrap();
    let client = ToolClient::of(&serving, "agentline");
    (serving, client)
}

/// The state of a tool that never answers.
#[derive(Clone, Default)]
struct CallState {
    began: Arc<AtomicBool>,
    dropped: Arc<AtomicBool>,
    /// A task of the tool has observed the cancellation.
    observed_cancel: Arc<AtomicBool>,
}

/// Sets the flag when it is dropped.
struct Flag(Arc<AtomicBool>);

impl Drop for Flag {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

impl CallState {
    fn endless(&self, timeout: Duration) -> Tool {
        let state = self.clone();
        let tool = Tool::new("endless", "", json!({"type": "object"}), move |_: Value, call: ToolCall| {
            let state = state.clone();
            async move {
                let _flag = Flag(state.dropped);
                tokio::spawn(async move {
                    call.cancelled().await;
                    state.observed_cancel.store(call.is_cancelled(), Ordering::SeqCst);
                });
                state.began.store(true, Ordering::SeqCst);
                std::future::pending::<()>().await;
                Ok(())
            }
        });
        tool.timeout(timeout)
    }

    async fn began(&self) {
        until("the tool has begun", async || self.began.load(Ordering::SeqCst)).await;
    }

    async fn ended(&self) {
        let both =
            async || self.dropped.load(Ordering::SeqCst) && self.observed_cancel.load(Ordering::SeqCst);
        until("the tool is dropped and its task is notified", both).await;
    }
}

#[tokio::test]
async fn tools_are_listed_called_and_reported() {
    let (mut serving, client) = serve([add()]);
    let hello = client.initialize().await;
    assert_eq!(hello["serverInfo"]["name"], "agentline");
    assert_eq!(hello["protocolVersion"], "2025-06-18");
    client.notify("notifications/initialized", json!({})).await;
    let answer = client.request(1, "tools/list", json!({})).await;
    let tool = &answer["result"]["tools"][0];
    assert_eq!((&tool["name"], &tool["description"]), (&json!("add"), &json!("Adds two numbers")));
    assert_eq!(tool["inputSchema"]["required"], json!(["a", "b"]));
    let answer =
        client.request(7, "tools/call", json!({"name": "add", "arguments": {"a": 19, "b": 23}})).await;
    assert_eq!(answer["result"]["structuredContent"], json!({"sum": 42}));
    assert_eq!(answer["result"]["content"][0]["text"], r#"{"sum":42}"#);
    assert_eq!(
        lines(&mut serving),
        [
            json!({"listed": ["add"]}),
            json!({"called": "add", "call": 1, "input": {"a": 19, "b": 23}}),
            json!({"result": "add", "call": 1, "is_error": false, "content": r#"{"sum":42}"#}),
        ]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn every_kind_of_error_is_a_result_with_a_message() {
    let failing = any("failing", || Err("the disk is full"));
    let panicking = any("panicking", || panic!("oh no"));
    let state = CallState::default();
    let endless = state.endless(Duration::from_millis(200));
    let (mut serving, client) = serve([add(), failing, panicking, endless]);
    let cases = [
        ("add", json!({"a": 1}), "missing field `b`"),
        ("add", json!({"a": 1, "b": "two"}), "invalid type: string \"two\""),
        ("add", json!({"a": i64::MAX, "b": 1}), "too large"),
        ("failing", json!({}), "the disk is full"),
        ("panicking", json!({}), "the tool panicked: oh no"),
        ("endless", json!({}), "timed out after 200 ms"),
        ("no-such-tool", json!({}), "unknown tool `no-such-tool`"),
    ];
    for (name, args, expected) in cases {
        let (is_error, text) = client.call(name, args).await;
        assert!(is_error && text.contains(expected), "{name}: {text}");
    }
    state.ended().await;
    assert_eq!(client.call("add", json!({"a": 1, "b": 2})).await, (false, r#"{"sum":3}"#.into()));
    let reports = lines(&mut serving);
    assert_eq!(reports.iter().filter(|line| line["is_error"] == true).count(), 7, "{reports:?}");
}

#[tokio::test]
async fn policy_runs_before_and_hook_after_a_call() {
    let sync = add().policy(|args, _call| {
        if args["a"] == 0 { CallDecision::deny("zero is not for you") } else { CallDecision::Allow }
    });
    let slow = any("slow", || Ok("ran"))
        .policy(|_args, call| async move {
            tokio::time::sleep(Duration::from_millis(20)).await;
            if call.number > 3 { CallDecision::deny("enough") } else { CallDecision::Allow }
        })
        .after(|call, args, output| async move {
            Some(format!("{} {} {} {}", call.tool, args["n"], output.text, output.is_error))
        });
    let broken = any("broken", || Ok("ran")).policy(|_, _| -> CallDecision { panic!("no judge") });
    let silent = any("silent", || Ok("ran")).after(|_, _, _| async { panic!("no word") });
    let (_serving, client) = serve([sync, slow, broken, silent]);
    assert_eq!(client.call("add", json!({"a": 0, "b": 1})).await, (true, "zero is not for you".into()));
    assert_eq!(client.call("add", json!({"a": 1, "b": 1})).await, (false, r#"{"sum":2}"#.into()));
    assert_eq!(client.call("slow", json!({"n": 5})).await, (false, "ran\n\nslow 5 ran false".into()));
    assert_eq!(client.call("slow", json!({})).await, (true, "enough".into()));
    let (is_error, text) = client.call("broken", json!({})).await;
    assert!(is_error && text.contains("the policy of the tool panicked: no judge"), "{text}");
    assert_eq!(client.call("silent", json!({})).await, (false, "ran".into()));
}

#[tokio::test]
async fn structured_content_is_an_object_and_never_hides_a_note() {
    let number = Tool::new("number", "", json!({"type": "object"}), |_: Value, _: ToolCall| async { Ok(42) });
    let digits = any("digits", || Ok("42"));
    let noted = add().after(|_, _, _| async { Some("and more".into()) });
    let failing = any("failing", || Err("[1]"));
    let (_serving, client) = serve([number, digits, noted, failing]);
    for (name, text, structured) in [
        ("number", "42", json!({"result": 42})),
        ("digits", "42", json!({"result": "42"})),
        ("add", "{\"sum\":3}\n\nand more", Value::Null),
        ("failing", "[1]", json!({"result": "[1]"})),
    ] {
        let params = json!({"name": name, "arguments": {"a": 1, "b": 2}});
        let result = client.request(1, "tools/call", params).await["result"].clone();
        assert_eq!(
            (&result["content"][0]["text"], &result["structuredContent"]),
            (&json!(text), &structured)
        );
    }
}

#[tokio::test]
async fn a_tool_can_end_the_run() {
    let stop = Tool::new("stop", "", json!({"type": "object"}), |_: Value, _: ToolCall| async {
        Err::<(), ToolError>(StopRun::new("enough").into())
    });
    let (mut serving, client) = serve([stop]);
    assert_eq!(client.call("stop", json!({})).await, (false, "enough".into()));
    assert_eq!(lines(&mut serving).last(), Some(&json!({"stop": "stop", "reason": "enough"})));
}

#[tokio::test]
async fn tool_can_return_an_exact_result() {
    let exact = Tool::new("exact", "", json!({"type": "object"}), |_: Value, _: ToolCall| async {
        Ok(ToolOutput::error("half of it").structured(json!({"done": 1})))
    });
    let (_serving, client) = serve([exact]);
    let answer = client.request(1, "tools/call", json!({"name": "exact"})).await;
    assert_eq!(answer["result"]["isError"], true);
    assert_eq!(answer["result"]["structuredContent"], json!({"done": 1}));
}

#[tokio::test]
async fn a_cancelled_request_ends_its_tool() {
    let state = CallState::default();
    let (mut serving, client) = serve([state.endless(LONG)]);
    let call = json!({"jsonrpc": "2.0", "id": "c-1", "method": "tools/call", "params": {"name": "endless"}});
    let waiting = tokio::spawn({
        let client = client.clone();
        async move { client.post(&call).await }
    });
    lines_until(&mut serving, |line| line["called"] == "endless").await;
    state.began().await;
    // The id of another request: nothing happens.
    client.notify("notifications/cancelled", json!({"requestId": "c-2"})).await;
    assert_eq!(lines(&mut serving), Vec::<Value>::new());
    client.notify("notifications/cancelled", json!({"requestId": "c-1", "reason": "no longer needed"})).await;
    let (_, body) = waiting.await.unwrap();
    assert!(body.contains("cancelled"), "{body}");
    state.ended().await;
    assert_eq!(lines(&mut serving), [json!({"cancelled": "endless", "call": 1})]);
}

#[tokio::test(flavor = "multi_thread")]
async fn closed_connection_ends_its_tool() {
    let state = CallState::default();
    let (mut serving, client) = serve([state.endless(LONG)]);
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "endless"}});
    let connection = client.send(&call).await;
    lines_until(&mut serving, |line| line["called"] == "endless").await;
    state.began().await;
    drop(connection);
    lines_until(&mut serving, |line| line["cancelled"] == "endless").await;
    state.ended().await;
}

#[tokio::test]
async fn abandoned_calls_can_be_stopped() {
    let state = CallState::default();
    let (mut serving, client) = serve([state.endless(LONG), add()]);
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "endless"}});
    let _waiting = client.send(&call).await;
    state.began().await;
    serving.cancel_calls();
    lines_until(&mut serving, |line| line["cancelled"] == "endless").await;
    state.ended().await;
    assert_eq!(client.call("add", json!({"a": 1, "b": 2})).await, (false, r#"{"sum":3}"#.into()));
}

#[tokio::test]
async fn extra_agent_fields_do_not_reach_a_tool() {
    let echo = |name: &str, properties: Value| {
        let schema = json!({"type": "object", "properties": properties});
        Tool::new(name, "", schema, |args: Value, _: ToolCall| async move { Ok(args) })
    };
    let waits = echo("waits", json!({"wait_for_previous": {"type": "boolean"}}));
    let offer = ToolOffer::new().added_arguments(&["wait_for_previous"]);
    let (mut serving, client) = serve_with([echo("plain", json!({"n": {}})), waits], offer);
    let args = json!({"n": 1, "other": 2, "wait_for_previous": true});
    assert_eq!(client.call("plain", args.clone()).await.1, r#"{"n":1,"other":2}"#);
    assert_eq!(client.call("waits", args.clone()).await.1, args.to_string());
    assert_eq!(lines(&mut serving)[0]["input"], json!({"n": 1, "other": 2}));
}
