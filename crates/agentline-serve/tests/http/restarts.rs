//! What is left of a run when the server stops or is killed.

use crate::{
    Test, run,
    stage::{ServerProcess, ServerStage, agentline, directory, options},
};
use agentline_serve::Server;
use serde_json::json;
use std::time::Duration;

pub(crate) const TESTS: &[Test] = &[
    ("restarts::run_of_a_killed_server_ends_as_interrupted", killed),
    ("restarts::cost_of_the_run_of_a_killed_server_counts", cost_counts),
    #[cfg(unix)]
    ("restarts::run_of_a_terminated_server_ends_as_interrupted", terminated),
    ("restarts::directory_is_used_by_one_server", one_server),
    ("restarts::stop_ends_although_the_store_cannot_write", store_cannot_write),
];

/// Starts a run in a server process and returns it with the first events.
async fn begin(dir: &std::path::Path) -> (ServerProcess, String, Vec<crate::client::SseEvent>) {
    begin_with(dir, "chunks 30 piece-{n}\nhang").await
}

async fn begin_with(
    dir: &std::path::Path,
    script: &str,
) -> (ServerProcess, String, Vec<crate::client::SseEvent>) {
    let process = ServerProcess::start(dir);
    let body = json!({"prompt": script});
    let id = process.client.post("/v1/runs", body).await.json()["run"].as_str().unwrap().to_owned();
    let mut stream = process.client.events(&id, 0).await;
    let mut events = Vec::new();
    while !events.last().is_some_and(|event: &crate::client::SseEvent| event.data.contains("piece-30")) {
        events.push(stream.next().await.expect("an event"));
    }
    (process, id, events)
}

fn killed() {
    run(async {
        let dir = directory();
        let (mut process, id, mut events) = begin(dir.path()).await;
        process.kill();
        let server = Server::start(agentline(dir.path()), options(dir.path())).await.expect("a server");
        let client = crate::client::HttpClient::new(server.address(), server.token());
        let rest = client.events(&id, events.last().unwrap().id).await.rest().await;
        events.extend(rest);
        assert_eq!(client.all_events(&id).await, events, "nothing that a client received is lost");
        check_end(&events);
        let listed = client.get("/v1/runs").await.json();
        assert_eq!(
            (&listed["runs"][0]["state"], &listed["runs"][0]["verdict"]),
            (&json!("ended"), &json!("failed"))
        );
        server.stop().await.expect("a clean stop");
    });
}

fn cost_counts() {
    run(async {
        let dir = directory();
        let (mut process, id, events) =
            begin_with(dir.path(), "used 1000 100000 0.5\nchunks 30 piece-{n}\nhang").await;
        assert!(events.iter().any(|event| event.event == "usage"), "{events:?}");
        process.kill();
        // The table of prices does not have the model of this agent.
        let database = rusqlite::Connection::open(dir.path().join("serve/serve.sqlite")).unwrap();
        let set = "UPDATE events SET data = json_set(data, '$.cost_usd', 0.25) WHERE kind = 'usage'";
        assert!(database.execute(set, []).unwrap() > 0);
        drop(database);
        let server = Server::start(agentline(dir.path()), options(dir.path())).await.expect("a server");
        let client = crate::client::HttpClient::new(server.address(), server.token());
        let outcome = client.get(&format!("/v1/runs/{id}/outcome")).await.json()["outcome"].clone();
        assert_eq!(outcome["cost_usd"], 0.25, "{outcome}");
        assert_eq!(client.get("/v1/runs").await.json()["runs"][0]["cost_usd"], 0.25);
        server.stop().await.expect("a clean stop");
    });
}

#[cfg(unix)]
fn terminated() {
    run(async {
        let dir = directory();
        let (mut process, id, mut events) = begin(dir.path()).await;
        // The stream that is open while the server stops receives the outcome.
        let stream = process.client.events(&id, events.last().unwrap().id).await;
        let stopping = tokio::task::spawn_blocking(move || process.terminate());
        events.extend(stream.rest().await);
        stopping.await.unwrap();
        check_end(&events);
        let server = Server::start(agentline(dir.path()), options(dir.path())).await.expect("a server");
        let client = crate::client::HttpClient::new(server.address(), server.token());
        assert_eq!(client.all_events(&id).await, events);
        server.stop().await.expect("a clean stop");
    });
}

fn check_end(events: &[crate::client::SseEvent]) {
    let last = events.last().unwrap();
    assert_eq!(last.event, "outcome");
    let outcome = last.json()["outcome"].clone();
    assert_eq!(outcome["verdict"], "failed", "{outcome}");
    assert_eq!(outcome["error"]["kind"], "interrupted");
    let session = outcome["session_id"].as_str().expect("a session");
    assert!(outcome["error"]["hint"].as_str().unwrap().contains(session), "{outcome}");
    assert_eq!(events.iter().filter(|event| event.event == "outcome").count(), 1);
}

fn store_cannot_write() {
    run(async {
        let mut stage = ServerStage::with(|options| {
            options.limits.stop_timeout = Duration::from_secs(1);
        })
        .await;
        let id = stage.run("say x\nhang").await;
        stage.client.events(&id, 0).await.until("started").await;
        // As with a full disk, no transaction of the server succeeds.
        let other = rusqlite::Connection::open(stage.dir.path().join("serve/serve.sqlite")).unwrap();
        other.execute_batch("BEGIN IMMEDIATE").unwrap();
        let stopped = stage.server.take().unwrap().stop().await;
        let message = stopped.expect_err("the outcome is not stored").to_string();
        assert!(message.contains("could not be stored"), "{message}");
        other.execute_batch("ROLLBACK").unwrap();
    });
}

fn one_server() {
    run(async {
        let mut stage = ServerStage::start().await;
        let path = stage.dir.path();
        let second = Server::start(agentline(path), options(path)).await;
        assert!(second.unwrap_err().to_string().contains("another server"));
        let token = stage.client.token.clone();
        stage.restart().await;
        assert_eq!(stage.client.token, token, "the token stays the same");
    });
}
