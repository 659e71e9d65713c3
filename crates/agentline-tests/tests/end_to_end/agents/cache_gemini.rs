//! Tests the cache with the real Gemini CLI: a run is executed once and then replayed with its files, without
//! a model request.

use agentline::{Event, Outcome, PermissionMode, Pool, PoolOptions, Record, RunRequest, Verdict};
use agentline_core::CachePolicy;
use agentline_mock::gemini::{GeminiStep, Script};
use agentline_tests::{TestStage, needs_real_gemini, shown};
use serde_json::{Value, json};
use std::fs;

/// Returns a run without its identifiers.
fn plain(records: &[Record]) -> Vec<Value> {
    let plain = |record: &Record| {
        let mut value = serde_json::to_value(record).expect("it is JSON");
        for inner in ["", "/outcome"] {
            for mark in ["run_id", "cache"] {
                if let Some(Value::Object(table)) = value.pointer_mut(inner) {
                    table.remove(mark);
                }
            }
        }
        value
    };
    records.iter().map(plain).collect()
}

async fn run(pool: &Pool, request: RunRequest) -> (Outcome, Vec<Record>) {
    let mut run = pool.run(request).await.expect("an accepted request");
    let mut records = Vec::new();
    while let Some(record) = run.next().await {
        records.push(record);
    }
    let Some(Event::Outcome { outcome }) = records.last().map(|record| record.event.clone()) else {
        panic!()
    };
    (*outcome, records)
}

#[tokio::test]
async fn cached_run_is_replayed_with_its_files() {
    needs_real_gemini!();
    let write = GeminiStep::call("write_file", json!({"file_path": "hello.txt", "content": "Hello\n"}));
    let stage = TestStage::new(Script::new([write, GeminiStep::text("written")]));
    let pool = Pool::new(stage.agentline(), PoolOptions::default());
    let request =
        || stage.request("Write a file.").permission_mode(PermissionMode::Bypass).cache(CachePolicy::on());
    let (first, events) = run(&pool, request()).await;
    assert_eq!((first.verdict, first.text.as_str()), (Verdict::Done, "written"), "{}", shown(&first));
    assert!(
        first.cache.as_ref().is_some_and(|mark| !mark.hit && mark.stored_at.is_some()),
        "{}",
        shown(&first)
    );
    let request_count = stage.model.requests_to_main().len();

    let file = stage.workspace().join("hello.txt");
    fs::remove_file(&file).expect("the file was written");
    let (result, again) = run(&pool, request()).await;
    assert!(result.cache.as_ref().is_some_and(|mark| mark.hit), "{}", shown(&result));
    assert_eq!(plain(&again), plain(&events));
    assert_eq!(fs::read_to_string(&file).expect("the file was restored"), "Hello\n");
    assert_eq!(result.usage.tokens, first.usage.tokens);
    assert_eq!(stage.model.requests_to_main().len(), request_count, "there was no model request");
    pool.close().await;
}
