//! Tests the scripted model over a plain socket, with every kind of answer and fault.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use agentline_mock::gemini::{
    GeminiModel, GeminiPart, GeminiStep, GeminiTokens, Purpose, Script, demo_script, refused_url,
};
use serde_json::{Value, json};

const STREAM: &str = "/v1beta/models/gemini-2.5-flash:streamGenerateContent?alt=sse";
const WHOLE: &str = "/v1beta/models/gemini-2.5-flash:generateContent";

/// Long enough for a loaded machine; only a bug takes this long.
const PATIENCE: Duration = Duration::from_secs(60);

struct Answer {
    status: u16,
    body: Vec<u8>,
    /// Whether the body ended properly.
    complete: bool,
}

impl Answer {
    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).expect("a JSON body")
    }

    fn events(&self) -> Vec<Value> {
        let text = String::from_utf8(self.body.clone()).expect("text");
        let events = text.split("\r\n\r\n").filter(|event| !event.is_empty());
        events
            .map(|event| serde_json::from_str(event.strip_prefix("data: ").expect("data")).expect("JSON"))
            .collect()
    }

    fn text(&self) -> String {
        self.events().iter().map(|event| event["candidates"][0]["content"]["parts"][0]["text"].clone()).fold(
            String::new(),
            |mut all, text| {
                all.push_str(text.as_str().unwrap_or_default());
                all
            },
        )
    }
}

fn connect(model: &GeminiModel) -> TcpStream {
    let stream = TcpStream::connect(model.url().strip_prefix("http://").expect("a URL")).expect("connected");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    stream
}

fn post(model: &GeminiModel, path: &str, body: &Value) -> Answer {
    let mut stream = connect(model);
    send(&mut stream, path, body);
    let mut all = Vec::new();
    let ended = stream.read_to_end(&mut all);
    if let Err(error) = ended {
        assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}");
    }
    parse(&all)
}

fn send(stream: &mut TcpStream, path: &str, body: &Value) {
    let body = body.to_string();
    let length = body.len();
    write!(stream, "POST {path} HTTP/1.1\r\nX-Goog-Api-Key: k\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}")
        .expect("sent");
}

fn parse(all: &[u8]) -> Answer {
    let Some(head_end) = all.windows(4).position(|window| window == b"\r\n\r\n") else {
        return Answer { status: 0, body: Vec::new(), complete: false };
    };
    let head = String::from_utf8_lossy(&all[..head_end]).into_owned();
    let status = head.split(' ').nth(1).expect("a status").parse().expect("a number");
    let rest = &all[head_end + 4..];
    if let Some(length) = head.split("content-length: ").nth(1) {
        let length: usize = length.split('\r').next().expect("a line").parse().expect("a number");
        return Answer { status, body: rest.to_vec(), complete: rest.len() == length };
    }
    let (mut body, mut at) = (Vec::new(), 0);
    loop {
        let Some(line) = rest[at..].windows(2).position(|window| window == b"\r\n") else {
            return Answer { status, body, complete: false };
        };
        let size = std::str::from_utf8(&rest[at..at + line]).expect("a size");
        let size = usize::from_str_radix(size, 16).expect("a size");
        at += line + 2;
        if size == 0 {
            return Answer { status, body, complete: true };
        }
        body.extend_from_slice(&rest[at..at + size]);
        at += size + 2;
    }
}

fn turn(prompt: &str) -> Value {
    json!({
        "contents": [{"role": "user", "parts": [{"text": "<session_context>"}, {"text": prompt}]}],
        "systemInstruction": {"role": "user", "parts": [{"text": "You are "}, {"text": "an agent."}]},
        "tools": [{"functionDeclarations": [{"name": "read_file"}, {"name": "write_file"}]}],
    })
}

fn one(step: GeminiStep) -> (GeminiModel, Answer) {
    let model = GeminiModel::start(Script::new([step])).expect("started");
    let answer = post(&model, STREAM, &turn("x"));
    (model, answer)
}

#[test]
fn turn_is_streamed_with_finish_reason_and_tokens() {
    let step = GeminiStep::thought("hm").and_text("Hello").and_call("write_file", json!({"file_path": "a"}));
    let (model, answer) = one(step.usage(GeminiTokens { prompt: 7, ..GeminiTokens::default() }));
    assert!(answer.complete);
    let events = answer.events();
    let part = |index: usize| events[index]["candidates"][0]["content"]["parts"][0].clone();
    assert_eq!(part(0), json!({"text": "hm", "thought": true}));
    assert_eq!(part(1), json!({"text": "Hello"}));
    assert_eq!(part(2), json!({"functionCall": {"name": "write_file", "args": {"file_path": "a"}}}));
    assert_eq!(events[1]["candidates"][0]["finishReason"], Value::Null);
    assert_eq!(events[2]["candidates"][0]["finishReason"], "STOP");
    let usage = &events[2]["usageMetadata"];
    assert_eq!((usage["promptTokenCount"].as_u64(), usage["totalTokenCount"].as_u64()), (Some(7), Some(32)));
    assert_eq!(events[2]["modelVersion"], "gemini-2.5-flash");

    let requests = model.requests();
    assert_eq!(requests.len(), 1);
    assert_eq!(requests[0].purpose, Purpose::Main);
    assert_eq!(requests[0].model, "gemini-2.5-flash");
    assert_eq!(requests[0].headers["x-goog-api-key"], "k");
    assert_eq!(requests[0].offered_tools(), ["read_file", "write_file"]);
    assert_eq!(requests[0].user_texts(), ["<session_context>", "x"]);
    assert_eq!(requests[0].system_text(), "You are an agent.");
}

#[test]
fn parallel_calls_share_a_chunk() {
    let (_model, answer) = one(GeminiStep::calls([("read_file", json!({})), ("list_directory", json!({}))]));
    let events = answer.events();
    assert_eq!(events.len(), 1);
    assert_eq!(events[0]["candidates"][0]["content"]["parts"].as_array().expect("parts").len(), 2);
}

#[test]
fn script_advances_and_then_reports_that_it_is_exhausted() {
    let script = Script::new([GeminiStep::rate_limited(Some(3)).times(2), GeminiStep::text("fine")]);
    let model = GeminiModel::start(script).expect("started");
    let limited = post(&model, STREAM, &turn("x"));
    assert_eq!(limited.status, 429);
    assert_eq!(limited.json()["error"]["details"][0]["retryDelay"], "3s");
    assert_eq!(post(&model, STREAM, &turn("x")).status, 429);
    assert_eq!(post(&model, STREAM, &turn("x")).text(), "fine");
    let out = post(&model, STREAM, &turn("x"));
    assert_eq!(out.status, 500);
    assert!(out.json()["error"]["message"].as_str().expect("a message").starts_with("script ran out"));
}

#[test]
fn repeating_script_is_never_exhausted() {
    let model = GeminiModel::start(Script::always(GeminiStep::text("again"))).expect("started");
    for _ in 0..5 {
        assert_eq!(post(&model, STREAM, &turn("x")).text(), "again");
    }
}

#[test]
fn helper_requests_do_not_advance_the_script() {
    let model = GeminiModel::start(Script::new([GeminiStep::text("main")])).expect("started");
    let schema = json!({"type": "OBJECT", "properties": {"complexity_score": {"type": "INTEGER"}}});
    let config = json!({"responseMimeType": "application/json", "responseJsonSchema": schema});
    let routed = post(&model, WHOLE, &json!({"contents": [], "generationConfig": config}));
    let choice = routed.json()["candidates"][0]["content"]["parts"][0]["text"].clone();
    assert_eq!(choice, r#"{"complexity_score":10}"#);
    let summary = post(&model, WHOLE, &json!({"contents": []}));
    assert_eq!(summary.json()["candidates"][0]["finishReason"], "STOP");
    let counted = post(&model, "/v1beta/models/m:countTokens", &json!({"contents": ["12345678"]}));
    assert_eq!(counted.json(), json!({"totalTokens": 3}));
    assert_eq!(post(&model, "/v1beta/models/m:embedContent", &json!({})).status, 404);
    assert_eq!(post(&model, STREAM, &turn("x")).text(), "main");
    let purposes: Vec<Purpose> = model.requests().iter().map(|request| request.purpose).collect();
    let expected = [Purpose::Router, Purpose::Utility, Purpose::Count, Purpose::Unknown, Purpose::Main];
    assert_eq!(purposes, expected);
    assert_eq!(model.requests_to_main().len(), 1);
}

#[test]
fn errors_have_google_api_format() {
    let table = [
        (GeminiStep::invalid_key(), 400, "/error/details/0/reason", "API_KEY_INVALID"),
        (
            GeminiStep::unknown_model(),
            404,
            "/error/message",
            "models/gemini-2.5-flash is not found for API version v1beta",
        ),
        (GeminiStep::rate_limited(None), 429, "/error/status", "RESOURCE_EXHAUSTED"),
        (GeminiStep::daily_quota(), 429, "/error/details/0/violations/0/quotaValue", "50"),
        (GeminiStep::http(418, json!({"error": "tea"})), 418, "/error", "tea"),
    ];
    for (step, status, pointer, expected) in table {
        let (_model, answer) = one(step);
        assert_eq!(answer.status, status);
        assert_eq!(answer.json().pointer(pointer).and_then(Value::as_str), Some(expected));
    }
    let (_model, page) = one(GeminiStep::http(502, "<html>"));
    assert_eq!((page.status, page.body.as_slice()), (502, b"<html>".as_slice()));
}

#[test]
fn unusual_finish_reasons_follow_the_script() {
    for reason in ["SAFETY", "MAX_TOKENS", "RECITATION", "MALFORMED_FUNCTION_CALL"] {
        let (_model, answer) = one(GeminiStep::text("some").finish(reason));
        assert_eq!(answer.events()[0]["candidates"][0]["finishReason"], reason);
    }
    let (_model, answer) = one(GeminiStep::text("some").finish(None));
    assert_eq!(answer.events()[0]["candidates"][0]["finishReason"], Value::Null);
    let (_model, answer) = one(GeminiStep::blocked());
    assert_eq!(answer.events()[0]["promptFeedback"]["blockReason"], "SAFETY");
    let (_model, answer) = one(GeminiStep::empty());
    assert_eq!(answer.text(), "");
    let (_model, answer) = one(GeminiStep::raw_sse(b"data: {not json\xff".to_vec()));
    assert_eq!(answer.body, b"data: {not json\xff");
}

#[test]
fn connections_are_dropped_as_scripted() {
    let (_model, dropped) = one(GeminiStep::drop_connection());
    assert_eq!((dropped.status, dropped.complete), (0, false));
    let (_model, cut) = one(GeminiStep::text("first").and_text("second").drop_midway());
    assert_eq!((cut.status, cut.complete, cut.text().as_str()), (200, false, "first"));
    let (_model, cut) = one(GeminiStep::text("only").drop_midway());
    assert_eq!(cut.events()[0]["candidates"][0]["finishReason"], Value::Null);
    let model = GeminiModel::start(Script::new([GeminiStep::text("whole").drop_midway()])).expect("started");
    let cut = post(&model, WHOLE, &turn("x"));
    assert!(!cut.complete && !cut.body.is_empty());
}

#[test]
fn dropping_the_model_ends_a_hanging_answer() {
    for step in
        [GeminiStep::hang(), GeminiStep::text("first").hang_midway(), GeminiStep::text("late").delay(600_000)]
    {
        let model = GeminiModel::start(Script::new([step])).expect("started");
        let mut stream = connect(&model);
        send(&mut stream, STREAM, &turn("x"));
        let client = std::thread::spawn(move || {
            let mut all = Vec::new();
            let _ = stream.read_to_end(&mut all);
            parse(&all)
        });
        let deadline = Instant::now() + PATIENCE;
        while model.requests().is_empty() {
            assert!(Instant::now() < deadline, "the request never arrived");
            std::thread::sleep(Duration::from_millis(5));
        }
        std::thread::sleep(Duration::from_millis(100));
        assert!(!client.is_finished(), "the model must not answer");
        let url = model.url();
        drop(model);
        assert!(!client.join().expect("no panic").complete);
        // Another test may get the same port for a moment.
        let deadline = Instant::now() + PATIENCE;
        while TcpStream::connect(url.strip_prefix("http://").expect("a URL")).is_ok() {
            assert!(Instant::now() < deadline, "the model still listens");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

#[test]
fn delays_are_respected() {
    let parts = ["a", "b", "c"].map(|text| GeminiPart::Text(text.to_owned()));
    let started = Instant::now();
    let (_model, answer) = one(GeminiStep::chunks(parts).delay(100).chunk_delay(50));
    assert!(started.elapsed() >= Duration::from_millis(200));
    assert_eq!(answer.text(), "abc");
}

#[test]
fn hundred_thousand_chunks_are_delivered() {
    let (_model, answer) = one(GeminiStep::many_chunks(100_000, "delta "));
    assert!(answer.complete);
    let count = answer.body.windows(6).filter(|window| window == b"data: ").count();
    assert_eq!(count, 100_000);
    assert!(answer.body.ends_with(b"\r\n\r\n"));
    let (_model, numbered) = one(GeminiStep::many_chunks(3, "{n};"));
    assert_eq!(numbered.text(), "1;2;3;");
    let (_model, big) = one(GeminiStep::big_text(3_000_000));
    assert_eq!(big.text().len(), 3_000_000);
}

#[test]
fn connection_serves_several_requests_and_chunked_bodies() {
    let model = GeminiModel::start(Script::always(GeminiStep::text("hi"))).expect("started");
    let mut stream = connect(&model);
    for _ in 0..3 {
        let body = turn("kept alive").to_string();
        let (first, second) = body.split_at(10);
        let (a, b) = (first.len(), second.len());
        write!(stream, "POST {STREAM} HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n").expect("sent");
        write!(stream, "{a:x}\r\n{first}\r\n{b:x}\r\n{second}\r\n0\r\n\r\n").expect("sent");
        let mut all = Vec::new();
        let mut buffer = [0; 4096];
        while !all.ends_with(b"0\r\n\r\n") {
            let count = stream.read(&mut buffer).expect("an answer");
            assert!(count > 0, "the connection closed");
            all.extend_from_slice(&buffer[..count]);
        }
        assert_eq!(parse(&all).text(), "hi");
    }
    let texts: Vec<_> = model.requests().iter().map(|request| request.user_texts()[1].clone()).collect();
    assert_eq!(texts, ["kept alive"; 3]);
}

#[test]
fn concurrent_agents_get_their_own_scripts() {
    let model = GeminiModel::by_prompt(|request| {
        let prompt = request.user_texts().pop().unwrap_or_default();
        Script::new([GeminiStep::text(format!("first to {prompt}")), GeminiStep::text("second")])
            .at(request.turn())
    })
    .expect("started");
    std::thread::scope(|scope| {
        for number in 0..16 {
            let model = &model;
            scope.spawn(move || {
                let prompt = format!("agent {number}");
                assert_eq!(post(model, STREAM, &turn(&prompt)).text(), format!("first to {prompt}"));
                let mut body = turn(&prompt);
                body["contents"].as_array_mut().expect("turns").push(json!({"role": "model", "parts": []}));
                assert_eq!(post(model, STREAM, &body).text(), "second");
            });
        }
    });
    assert_eq!(model.requests_to_main().len(), 32);
}

#[test]
fn panicking_responder_closes_its_connection() {
    let model = GeminiModel::by_prompt(|_| panic!("scripted panic")).expect("started");
    assert_eq!(post(&model, STREAM, &turn("x")).status, 0);
}

#[test]
fn refused_url_has_no_listener() {
    let url = refused_url().expect("an address");
    let error = TcpStream::connect(url.strip_prefix("http://").expect("a URL")).expect_err("refused");
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
}

#[test]
fn scripts_round_trip_through_json() {
    let steps = [
        GeminiStep::thought("t").and_text("x").and_call("c", json!({"a": 1})).finish(None).chunk_delay(5),
        GeminiStep::calls([("a", json!({})), ("b", json!({}))]),
        GeminiStep::daily_quota().times(3),
        GeminiStep::raw_sse(b"\xff".to_vec()),
        GeminiStep::raw_sse("data: x"),
        GeminiStep::many_chunks(3, "x").hang_midway().delay(1),
        GeminiStep::drop_connection(),
        GeminiStep::hang(),
        GeminiStep::blocked(),
        GeminiStep::unknown_model(),
        GeminiStep::text("x").usage(GeminiTokens { total: Some(1), ..GeminiTokens::default() }),
    ];
    let script = Script::new(steps).repeating_last();
    let text = serde_json::to_string(&script).expect("JSON");
    assert_eq!(serde_json::from_str::<Script>(&text).expect("a script"), script);
    let short = r#"{"steps":[{"answer":{"chunks":[[{"text":"hi"}]]}}]}"#;
    assert_eq!(
        serde_json::from_str::<Script>(short).expect("a script"),
        Script::new([GeminiStep::text("hi")])
    );
    assert!(serde_json::from_str::<Script>(r#"{"steps":[{"answer":"hang","delay":5}]}"#).is_err());
}

#[test]
fn the_demo_uses_every_kind_of_event() {
    let text = serde_json::to_string(&demo_script()).expect("JSON");
    for word in ["thought", "write_file", "replace", "read_file", "run_shell_command"] {
        assert!(text.contains(word), "{word} is missing");
    }
    assert_eq!(demo_script().steps.len(), 5);
}

#[test]
fn each_prompt_has_its_own_script() {
    let red = Script::new([GeminiStep::call("mcp_paint_mix", json!({"a": 1})), GeminiStep::text("red")]);
    let model = GeminiModel::matching([("red", red), ("blue", Script::always(GeminiStep::text("blue")))])
        .expect("a port");
    let user = |text: &str| json!({"role": "user", "parts": [{"text": text}]});
    let model_turn = json!({"role": "model", "parts": [{"text": "…"}]});
    let result = json!({"role": "user", "parts": [
        {"functionResponse": {"name": "mcp_paint_mix", "response": {"output": "blue"}}},
    ]});
    let ask = |contents: Value| {
        let body =
            json!({"contents": contents, "tools": [{"functionDeclarations": [{"name": "mcp_paint_mix"}]}]});
        post(&model, STREAM, &body)
    };
    let context = user("<session_context> blue skies");
    let first = ask(json!([context, user("make it red")]));
    assert_eq!(
        first.events()[0]["candidates"][0]["content"]["parts"][0]["functionCall"]["name"],
        "mcp_paint_mix"
    );
    // A tool result is not a prompt, whatever it contains.
    assert_eq!(ask(json!([context, user("make it red"), model_turn, result])).text(), "red");
    // A later prompt in the same session starts its own script.
    assert_eq!(
        ask(json!([context, user("make it red"), model_turn, result, model_turn, user("now blue")])).text(),
        "blue"
    );
    assert_eq!(ask(json!([context, user("green")])).status, 500);
    let image = json!({"inlineData": {"mimeType": "image/png", "data": "aGk="}});
    ask(json!([{"role": "user", "parts": [{"text": "blue"}, image]}]));
    let requests = model.requests_to_main();
    assert_eq!(requests[4].attachments(), [("image/png".to_owned(), "aGk=".to_owned())]);
    assert_eq!((requests[1].prompt().as_str(), requests[1].turn_in_prompt()), ("make it red", 1));
}
