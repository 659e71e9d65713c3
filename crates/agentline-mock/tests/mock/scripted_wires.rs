//! Tests the scripted models of the other APIs over a plain socket.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use agentline_mock::scripted::{ModelStep, ModelTokens, ScriptedModel};
use agentline_mock::{anthropic, openai, responses};
use serde_json::{Value, json};

/// Posts a body, and returns the status and the response.
fn post(model: &ScriptedModel, path: &str, body: &Value) -> (u16, String) {
    let mut stream =
        TcpStream::connect(model.url().strip_prefix("http://").expect("a URL")).expect("connected");
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a timeout");
    let body = body.to_string();
    let length = body.len();
    write!(stream, "POST {path} HTTP/1.1\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}")
        .expect("sent");
    let mut all = String::new();
    stream.read_to_string(&mut all).expect("an answer");
    let status = all.split(' ').nth(1).expect("a status").parse().expect("a number");
    (status, all)
}

/// Returns the JSON of every event.
fn events(answer: &str) -> Vec<Value> {
    let data = answer.lines().filter_map(|line| line.strip_prefix("data: "));
    data.filter_map(|data| serde_json::from_str(data).ok()).collect()
}

fn step() -> ModelStep {
    let usage = ModelTokens { input: 50, cached: 10, output: 7, reasoning: 2 };
    ModelStep::thought("Hm.").and_text("Now.").and_call("write", json!({"path": "a"})).usage(usage)
}

#[test]
fn chat_completions() {
    let model = openai::model([step(), ModelStep::error(429, "slow down")]).expect("a port");
    let tools = json!([{"type": "function", "function": {"name": "write"}}]);
    let first = json!({"model": "m", "tools": tools, "messages": [{"role": "user", "content": "hi"}]});
    let (status, answer) = post(&model, "/v1/chat/completions", &first);
    assert_eq!(status, 200);
    let events = events(&answer);
    let deltas: Vec<&Value> = events.iter().map(|event| &event["choices"][0]["delta"]).collect();
    assert_eq!(deltas[1]["reasoning_content"], "Hm.");
    assert_eq!(deltas[2]["content"], "Now.");
    assert_eq!(
        deltas[3]["tool_calls"][0]["function"],
        json!({"name": "write", "arguments": "{\"path\":\"a\"}"})
    );
    assert_eq!(events[4]["choices"][0]["finish_reason"], "tool_calls");
    assert_eq!(events[5]["usage"]["prompt_tokens_details"]["cached_tokens"], 10);
    assert!(answer.contains("data: [DONE]"));
    // A request for a title in between does not advance the script.
    let (_, title) = post(&model, "/v1/chat/completions", &json!({"messages": []}));
    assert!(title.contains("A scripted session"));
    let messages = json!([
        {"role": "user", "content": [{"type": "text", "text": "hi"}]}, {"role": "assistant", "tool_calls": []},
        {"role": "tool", "content": "done"},
    ]);
    let (status, answer) =
        post(&model, "/v1/chat/completions", &json!({"tools": tools, "messages": messages}));
    assert_eq!(status, 429);
    assert!(answer.contains("slow down"));
    let turns = model.turns();
    assert_eq!((turns.len(), model.requests().len()), (2, 3));
    assert_eq!(turns[1].offered_tools(), ["write"]);
    assert_eq!(turns[1].user_texts(), ["hi"]);
    assert_eq!(turns[1].tool_results(), ["done"]);
    assert_eq!(turns[1].turn(), 1);
}

#[test]
fn messages() {
    let model = anthropic::model([step()]).expect("a port");
    let messages = json!([
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "write", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "done"}]},
    ]);
    let body = json!({"model": "m", "tools": [{"name": "write"}], "messages": messages});
    let (status, answer) = post(&model, "/v1/messages?beta=true", &body);
    assert_eq!(status, 200);
    let events = events(&answer);
    let kinds: Vec<&str> = events.iter().filter_map(|event| event["type"].as_str()).collect();
    assert_eq!((kinds[0], kinds[kinds.len() - 1]), ("message_start", "message_stop"));
    assert_eq!(events[0]["message"]["usage"]["input_tokens"], 40);
    let find = |kind: &str| events.iter().find(|event| event["delta"]["type"] == kind).expect("a delta");
    assert_eq!(find("thinking_delta")["delta"]["thinking"], "Hm.");
    assert_eq!(find("input_json_delta")["delta"]["partial_json"], "{\"path\":\"a\"}");
    assert_eq!(events[events.len() - 2]["delta"]["stop_reason"], "tool_use");
    let turn = &model.turns()[0];
    assert_eq!((turn.tool_results(), turn.turn()), (vec!["done".to_owned()], 1));
    let (status, answer) = post(&model, "/v1/messages", &body);
    assert_eq!(status, 500);
    assert!(answer.contains("script ran out: request 2 to a script of 1 answers"));
}

#[test]
fn responses_items() {
    let patch = ModelStep::plain_call("apply_patch", responses::add_file("a.txt", "one\ntwo\n"));
    let model = responses::model([
        step(),
        patch,
        ModelStep::call_in("mcp__s", "t", json!({})),
        ModelStep::text("x").cut(),
    ])
    .expect("a port");
    let ask = |input: Value| {
        let tools = json!([
            {"type": "function", "name": "exec_command"}, {"type": "web_search"},
            {"type": "namespace", "name": "mcp__s", "tools": [{"name": "t"}]},
        ]);
        events(&post(&model, "/v1/responses", &json!({"model": "m", "tools": tools, "input": input})).1)
    };
    let first =
        ask(json!([{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]}]));
    assert_eq!(first[0]["type"], "response.created");
    let done: Vec<&Value> = first
        .iter()
        .filter(|event| event["type"] == "response.output_item.done")
        .map(|event| &event["item"])
        .collect();
    assert_eq!(done[0]["summary"][0]["text"], "Hm.");
    assert_eq!(done[1]["content"][0]["text"], "Now.");
    assert_eq!(done[2]["arguments"], "{\"path\":\"a\"}");
    let last = &first[first.len() - 1];
    assert_eq!(last["response"]["usage"]["output_tokens_details"]["reasoning_tokens"], 2);
    let second = ask(json!([
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]},
        {"type": "reasoning"}, {"type": "message", "role": "assistant", "content": []}, {"type": "function_call"},
        {"type": "function_call_output", "output": "done"},
    ]));
    let patch = "*** Begin Patch\n*** Add File: a.txt\n+one\n+two\n*** End Patch\n";
    assert!(second.iter().any(|event| event["item"]["input"] == patch), "{second:?}");
    let third = ask(json!([]));
    assert!(third.iter().any(|event| event["item"]["namespace"] == "mcp__s"), "{third:?}");
    assert_eq!(ask(json!([])).last().expect("an event")["type"], "response.incomplete");
    let turns = model.turns();
    assert_eq!(turns[0].offered_tools(), ["exec_command", "web_search", "mcp__s/t"]);
    assert_eq!(turns[1].tool_results(), ["done"]);
    assert_eq!(turns[1].turn(), 1);
}

/// Claude Code's prompt suggestion and Codex's risk assessment do not advance the script, although they offer tools.
#[test]
fn helper_requests_with_tools_do_not_advance_the_script() {
    let model = anthropic::model([]).expect("a port");
    let messages = json!([{"role": "user", "content": "[SUGGESTION MODE: what comes next?]"}]);
    let (status, _) = post(&model, "/v1/messages", &json!({"tools": [{"name": "x"}], "messages": messages}));
    assert_eq!((status, model.turns().len()), (200, 0));
    let model = responses::model([]).expect("a port");
    let schema = json!({"properties": {"outcome": {"enum": ["allow", "deny"]}}});
    let text = json!({"format": {"type": "json_schema", "schema": schema}});
    let (status, answer) = post(&model, "/v1/responses", &json!({"tools": [{"name": "x"}], "text": text}));
    assert_eq!((status, model.turns().len()), (200, 0));
    assert!(answer.contains(r#"{\"outcome\":\"allow\""#), "{answer}");
}

#[test]
fn answers_depend_on_the_request() {
    let model = anthropic::model_by(|request| {
        let slow = request.user_texts().iter().any(|text| text == "slow");
        if slow { ModelStep::text("late").delay(300) } else { ModelStep::text("at once") }
    })
    .expect("a port");
    let ask = |text: &str| {
        let body = json!({"tools": [{"name": "x"}], "messages": [{"role": "user", "content": text}]});
        post(&model, "/v1/messages", &body).1
    };
    let start = Instant::now();
    assert!(ask("slow").contains("late"));
    assert!(start.elapsed() >= Duration::from_millis(300));
    assert!(ask("fast").contains("at once"));
}

#[test]
fn hanging_model_can_be_stopped() {
    let model = openai::model([ModelStep::hang()]).expect("a port");
    let address = model.url().strip_prefix("http://").expect("a URL").to_owned();
    let mut stream = TcpStream::connect(address).expect("connected");
    let body = json!({"tools": [{}]}).to_string();
    write!(stream, "POST /v1/chat/completions HTTP/1.1\r\ncontent-length: {}\r\n\r\n{body}", body.len())
        .expect("sent");
    while model.requests().is_empty() {
        std::thread::sleep(Duration::from_millis(5));
    }
    drop(model);
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest);
    assert!(rest.is_empty());
}
