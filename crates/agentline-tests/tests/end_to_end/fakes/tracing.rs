//! Checks the spans and events that the library emits for one run, and that they contain no secret.

use crate::fakes::faults::stage::{HeadlessStage, SECRET};
use agentline::Surface;
use agentline_tests::{FakeStage, is_own_process};
use serde_json::json;
use std::{
    collections::HashMap,
    fmt::{Debug, Write},
    sync::{Arc, Mutex},
};
use tracing::{
    Event, Metadata, Subscriber,
    field::{Field, Visit},
    span::{Attributes, Id, Record},
};

/// Collects every event as one line: the span's fields, then its own.
#[derive(Clone, Default)]
struct Collector {
    spans: Arc<Mutex<HashMap<u64, String>>>,
    lines: Arc<Mutex<Vec<String>>>,
}

#[derive(Default)]
struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, " {}={value:?}", field.name()).expect("a string");
    }
}

impl Subscriber for Collector {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("agentline")
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut line = Line(span.metadata().name().to_owned());
        span.record(&mut line);
        let mut spans = self.spans.lock().expect("no panic");
        let id = spans.len() as u64 + 1;
        spans.insert(id, line.0);
        Id::from_u64(id)
    }

    fn record(&self, _span: &Id, _values: &Record<'_>) {}

    fn record_follows_from(&self, _span: &Id, _follows: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let span =
            event.parent().and_then(|id| self.spans.lock().expect("no panic").get(&id.into_u64()).cloned());
        let mut line = Line(span.unwrap_or_default());
        event.record(&mut line);
        self.lines.lock().expect("no panic").push(line.0);
    }

    fn enter(&self, _span: &Id) {}

    fn exit(&self, _span: &Id) {}
}

#[tokio::test]
async fn run_emits_its_boundaries_and_no_secret() {
    // Preparation runs on another thread, so the subscriber is global.
    if !is_own_process(concat!(module_path!(), "::run_emits_its_boundaries_and_no_secret")) {
        return;
    }
    let collector = Collector::default();
    tracing::subscriber::set_global_default(collector.clone()).expect("no other subscriber");
    let stage = HeadlessStage::new();
    let played = stage.play(stage.request(Surface::StreamJson, "ok", &json!({}))).await;
    let lines = collector.lines.lock().expect("no panic").clone();
    let run_id = format!("run_id=\"{}\"", played.outcome.run_id);
    let ours: Vec<&String> = lines.iter().filter(|line| line.contains(&run_id)).collect();
    let begins = |expected: &str| ours.iter().position(|line| line.contains(&format!(" message={expected}")));
    let order = ["resolved", "spawned", "session opened", "tool called", "tool finished", "ended"];
    let positions: Vec<_> = order.iter().map(|expected| begins(expected)).collect();
    assert!(positions.iter().all(Option::is_some) && positions.is_sorted(), "{ours:#?}");
    assert!(ours.last().is_some_and(|line| line.contains("verdict=\"done\"")), "{ours:#?}");
    let retried = FakeStage::new(env!("CARGO_BIN_EXE_fake-acp"));
    let script = format!("refused 1 {} Too many requests\nsay hi", retried.path().join("refusals").display());
    let request = retried.request(&script).surface(Surface::Acp).retries(1);
    let outcome = retried.agentline().run(request).await.unwrap().outcome().await;
    let lines = collector.lines.lock().expect("no panic").clone();
    let is_retry = |line: &&String| line.contains(&outcome.run_id) && line.contains(" message=retry");
    let retry = lines.iter().filter(is_retry).collect::<Vec<_>>();
    assert!(retry.len() == 1 && retry[0].contains(" attempt=2 wait_ms="), "{lines:#?}");
    let all = lines.join("\n");
    for hidden in [SECRET, "What is 2 + 2?", played.outcome.text.as_str()] {
        assert!(!hidden.is_empty() && !all.contains(hidden), "{hidden:?} in {all}");
    }
}
