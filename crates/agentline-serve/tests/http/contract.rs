//! Checks traffic against the OpenAPI document, and that the document describes every route that tests use.

use crate::{
    Test,
    client::{HttpReply, SseEvent},
    run, saved,
    stage::ServerStage,
};
use agentline_serve::openapi;
use boon::{Compiler, Schemas};
use serde_json::{Value, json};
use std::{
    collections::BTreeSet,
    sync::{LazyLock, Mutex},
};

pub(crate) const TESTS: &[Test] =
    &[("contract::document_is_served_and_every_operation_was_checked", document_is_served)];

static DOCUMENT: LazyLock<Value> = LazyLock::new(openapi::document);
/// The operations with an answer that was checked.
static CHECKED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// Checks a request and its answer against the document.
pub(crate) fn check(method: &str, path: &str, body: Option<&Value>, answer: &HttpReply) {
    let path = path.split('?').next().unwrap();
    let Some((template, operations)) = operations_of(path) else { return };
    let operation = &operations[method.to_lowercase()];
    if operation.is_null() {
        return;
    }
    let status = answer.status.to_string();
    let described = &operation["responses"][&status];
    let pointer = ["/paths/".to_owned() + &escape(&template), method.to_lowercase()].join("/");
    if described.is_null() {
        assert!(answer.status >= 400, "{method} {path} answered {status}, which is not described");
        validate(&format!("{pointer}/responses/default/content/application~1json/schema"), &answer.json());
        return;
    }
    let takes_body = operation["requestBody"].is_object();
    if let Some(body) = body.filter(|body| answer.status < 300 && (takes_body || **body != json!({}))) {
        validate(&format!("{pointer}/requestBody/content/application~1json/schema"), body);
    }
    if described["content"].is_object() {
        let kind = answer.headers["content-type"].to_str().unwrap().split(';').next().unwrap();
        assert!(described["content"][kind].is_object(), "{method} {path} answered with `{kind}`");
        let schema = format!("{pointer}/responses/{status}/content/{}/schema", kind.replace('/', "~1"));
        let body = if kind == "application/json" { answer.json() } else { answer.text().into() };
        validate(&schema, &body);
    } else {
        assert!(answer.body.is_empty(), "{method} {path} has a body, which is not described");
    }
    CHECKED.lock().unwrap().insert(operation["operationId"].as_str().unwrap().to_owned());
}

/// Checks the events of a complete stream against the document.
pub(crate) fn check_stream(content_type: &str, events: &[SseEvent]) {
    let content = &DOCUMENT["paths"]["/v1/runs/{run}/events"]["get"]["responses"]["200"]["content"];
    assert_eq!(content[content_type]["schema"]["type"], "string", "{content_type}");
    let event = validator("/components/schemas/NumberedEvent");
    let resync = validator("/components/schemas/Resync");
    for one in events {
        match one.event.as_str() {
            "resync" => resync(&one.json()),
            name => event(&json!({"id": one.id, "event": name, "data": one.json()})),
        }
    }
    CHECKED.lock().unwrap().insert("streamEvents".to_owned());
}

fn operations_of(path: &str) -> Option<(String, Value)> {
    let matches = |template: &str| {
        let (parts, own): (Vec<&str>, Vec<&str>) = (template.split('/').collect(), path.split('/').collect());
        parts.len() == own.len()
            && parts.iter().zip(&own).all(|(part, own)| part.starts_with('{') || part == own)
    };
    let paths = DOCUMENT["paths"].as_object().unwrap();
    // A fixed path has precedence over a variable one.
    let mut found: Vec<_> = paths.iter().filter(|(template, _)| matches(template)).collect();
    found.sort_by_key(|(template, _)| template.matches('{').count());
    found.first().map(|(template, operations)| ((*template).clone(), (*operations).clone()))
}

fn escape(template: &str) -> String {
    template.replace('~', "~0").replace('/', "~1").replace('{', "%7B").replace('}', "%7D")
}

fn validate(pointer: &str, value: &Value) {
    validator(pointer)(value);
}

/// Returns a function that checks values against a schema of the document.
fn validator(pointer: &str) -> impl Fn(&Value) {
    let (mut compiler, mut schemas) = (Compiler::new(), Schemas::new());
    compiler.add_resource("http://document/openapi.json", DOCUMENT.clone()).unwrap();
    let address = format!("http://document/openapi.json#{pointer}");
    let schema =
        compiler.compile(&address, &mut schemas).unwrap_or_else(|error| panic!("{pointer}: {error}"));
    let pointer = pointer.to_owned();
    move |value| {
        if let Err(error) = schemas.validate(value, schema) {
            panic!("{pointer}: {error:#}\n{value:#}");
        }
    }
}

/// Runs after the other tests, so that it knows what they have checked.
fn document_is_served() {
    run(async {
        let stage = ServerStage::start().await;
        let client = &stage.client;
        assert_eq!(client.get("/openapi.json").await.json(), *DOCUMENT);
        let docs = client.get("/docs").await;
        assert_eq!(docs.status, 200);
        assert!(docs.text().contains("/v1/runs/{run}/events"));
        for path in [
            "/v1/info",
            "/v1/agents",
            "/v1/agents/gemini",
            "/v1/pool",
            "/v1/directories",
            "/v1/experiments",
            "/v1/sessions",
            "/v1/sessions/usage?by=model",
            "/v1/runs?limit=5",
            "/v1/conversations",
        ] {
            assert_eq!(client.get(path).await.status, 200, "{path}");
        }
        for path in ["/v1/experiments/status?dir=.", "/v1/experiments/report?dir=.", "/v1/runs/none"] {
            assert_eq!(client.get(path).await.status, 404, "{path}");
        }
        saved::store_experiment(&stage.workspace().join("experiment"));
        let listed = client.get("/v1/experiments").await.json();
        assert_eq!(listed["experiments"][0]["name"], "words", "{listed}");
        let status = client.get("/v1/experiments/status?dir=experiment").await.json();
        assert_eq!((&status["finished"], &status["planned"]), (&json!(1), &json!(2)), "{status}");
        assert_eq!(status["classes"]["passed"], 1, "{status}");
        let report = client.get("/v1/experiments/report?dir=experiment").await.json();
        assert_eq!(report["cases"][0]["id"], "one", "{report}");
        let page = client.get("/v1/experiments/report?dir=experiment&format=html").await;
        assert!(page.text().contains("words"), "{}", page.text());
        saved::store_session(stage.dir.path());
        let shown = client.get(&format!("/v1/sessions/show?session={}", saved::SESSION)).await.json();
        assert_eq!(shown["session"]["id"], saved::SESSION, "{shown}");
        assert_eq!(shown["messages"].as_array().unwrap().len(), 2, "{shown}");
        let listed = client.get("/v1/sessions").await.json();
        assert_eq!(listed["sessions"][0]["id"], saved::SESSION, "{listed}");
        let found = client.post("/v1/sessions/search", json!({"words": ["hello"]})).await.json();
        assert_eq!(found["results"][0]["hits"].as_array().unwrap().len(), 2, "{found}");
        let usage = client.get("/v1/sessions/usage?by=session").await.json();
        assert_eq!(usage["rows"].as_array().unwrap().len(), 1, "{usage}");
        let run = stage.run("ask write_file a.txt a\nsay x").await;
        client.events(&run, 0).await.until("permission_request").await;
        let pool = client.get("/v1/pool").await.json();
        assert_eq!(pool["pool"]["processes"].as_array().unwrap().len(), 1, "{pool}");
        client.post(&format!("/v1/runs/{run}/permissions/p1"), json!({"decision": "allow"})).await;
        client.all_events(&run).await;
        let answer = client.post("/v1/sessions/search", json!({"words": ["nothing"]})).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        if std::env::args().count() > 1 {
            return;
        }
        let all: BTreeSet<String> = DOCUMENT["paths"]
            .as_object()
            .unwrap()
            .values()
            .flat_map(|path| path.as_object().unwrap().values())
            .map(|operation| operation["operationId"].as_str().unwrap().to_owned())
            .collect();
        let checked = CHECKED.lock().unwrap();
        let unchecked: Vec<&String> = all.difference(&checked).collect();
        assert!(unchecked.is_empty(), "{unchecked:?}");
    });
}
