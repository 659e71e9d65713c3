//! What the policy of a token and the limits of the server hold back, also under simultaneous requests.

use crate::{
    Test,
    client::{HttpClient, HttpReply},
    run,
    stage::{AddTokens as _, ServerStage, eventually},
};
use serde_json::{Value, json};
use std::{collections::BTreeSet, time::Duration};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

pub(crate) const TESTS: &[Test] = &[
    ("limits::simultaneous_starts_do_not_exceed_the_number_of_runs", number_of_runs),
    ("limits::open_conversation_has_a_slot_until_it_is_closed", conversation),
    ("limits::runs_in_progress_count_for_the_daily_budget", daily_budget),
    ("limits::token_that_sees_all_runs_changes_none", all_runs),
    ("limits::body_of_a_token_that_may_only_read_is_not_read", body_of_reader),
    ("limits::large_bodies_do_not_hold_up_small_ones", large_bodies),
    ("limits::large_body_that_cannot_be_read_in_time_is_refused", no_large_body_in_time),
    ("limits::run_whose_client_has_gone_is_followed", client_is_gone),
    ("limits::prompt_whose_client_has_gone_is_in_the_audit_log", prompt_client_is_gone),
    ("limits::answer_of_a_client_that_has_gone_reaches_the_agent", answering_client_is_gone),
    ("limits::closed_conversation_is_shown_and_takes_no_prompt", closed_conversation),
    ("limits::ends_answers_and_searches_do_not_count_as_changes", not_changes),
    ("limits::searches_and_reports_do_not_hold_up_other_requests", scans),
];

/// Starts a run for each body at the same time.
async fn start_all(client: &HttpClient, bodies: Vec<Value>) -> Vec<HttpReply> {
    let mut starting = tokio::task::JoinSet::new();
    for body in bodies {
        let client = client.clone();
        starting.spawn(async move { client.post("/v1/runs", body).await });
    }
    starting.join_all().await
}

/// Returns the runs that were started; all others were refused with status 429.
fn started(answers: &[HttpReply]) -> Vec<String> {
    let id = |answer: &HttpReply| answer.json()["run"].as_str().unwrap().to_owned();
    let (started, refused): (Vec<_>, Vec<_>) = answers.iter().partition(|answer| answer.status == 201);
    assert!(refused.iter().all(|answer| answer.status == 429));
    started.into_iter().map(id).collect()
}

fn number_of_runs() {
    run(async {
        let stage = ServerStage::with(|options| options.add_tokens(&[("ci", "max_concurrent = 2")])).await;
        let ci = HttpClient::new(stage.client.address, "ci");
        let runs = started(&start_all(&ci, vec![json!({"prompt": "hang"}); 12]).await);
        assert_eq!(runs.len(), 2);
        // A run of another token takes no slot of this one.
        stage.run("hang").await;
        ci.post(&format!("/v1/runs/{}/cancel", runs[0]), json!({})).await;
        let mut next = 0;
        eventually(async || {
            next = ci.post("/v1/runs", json!({"prompt": "hang"})).await.status;
            next == 201
        })
        .await;
        assert_eq!(ci.post("/v1/runs", json!({"prompt": "hang"})).await.status, 429);
    });
}

fn conversation() {
    run(async {
        let stage = ServerStage::with(|options| options.add_tokens(&[("ci", "max_concurrent = 1")])).await;
        let ci = HttpClient::new(stage.client.address, "ci");
        let opened = ci.post("/v1/conversations", json!({})).await;
        assert_eq!(opened.status, 201, "{}", opened.text());
        let path = format!("/v1/conversations/{}", opened.json()["conversation"].as_str().unwrap());
        assert_eq!(ci.post("/v1/conversations", json!({})).await.status, 429);
        assert_eq!(ci.post("/v1/runs", json!({"prompt": "say x"})).await.status, 429);
        // Its prompts take turns in its slot.
        for _ in 0..2 {
            assert_eq!(ci.post(&format!("{path}/prompts"), json!({"prompt": "say x"})).await.status, 201);
        }
        assert_eq!(ci.delete(&path).await.status, 204);
        assert_eq!(ci.post("/v1/runs", json!({"prompt": "say x"})).await.status, 201);
    });
}

fn daily_budget() {
    run(async {
        let stage = ServerStage::with(|options| {
            options.add_tokens(&[("reserved", "daily_cost_usd = 1.0"), ("live", "daily_cost_usd = 0.0001")]);
        })
        .await;
        let reserved = HttpClient::new(stage.client.address, "reserved");
        let body = |cost: f64| json!({"prompt": "hang", "model": "gemini-2.5-flash", "max_cost": cost});
        // What a run may still spend is reserved, so only one of these fits.
        let runs = started(&start_all(&reserved, vec![body(0.6); 6]).await);
        assert_eq!(runs.len(), 1);
        assert_eq!(reserved.post("/v1/runs", body(0.3)).await.status, 201);
        assert_eq!(reserved.post("/v1/runs", body(0.2)).await.status, 429);
        assert_eq!(reserved.post("/v1/runs", json!({"prompt": "hang"})).await.status, 201, "0.1 is left");
        // A run that ends without a cost gives back its reservation.
        reserved.post(&format!("/v1/runs/{}/cancel", runs[0]), json!({})).await;
        eventually(async || reserved.post("/v1/runs", body(0.5)).await.status == 201).await;
        // Without a limit, the cost so far counts while the run is in progress.
        let live = HttpClient::new(stage.client.address, "live");
        let opened = live.post("/v1/conversations", json!({"model": "gemini-2.5-flash"})).await;
        assert_eq!(opened.status, 201, "{}", opened.text());
        let script = "used 1000 100000 0.5\nquota 100000 2000\nsay x";
        let run = live.post("/v1/runs", json!({"prompt": script, "model": "gemini-2.5-flash"})).await.json();
        let run = run["run"].as_str().unwrap().to_owned();
        let mut events = live.events(&run, 0).await;
        // The first report is on the context only.
        while !events.until("usage").await.json()["cost_usd"].is_number() {}
        assert_eq!(live.post("/v1/runs", json!({"prompt": "say x"})).await.status, 429);
        let prompts =
            format!("/v1/conversations/{}/prompts", opened.json()["conversation"].as_str().unwrap());
        assert_eq!(live.post(&prompts, json!({"prompt": "say x"})).await.status, 429);
    });
}

fn all_runs() {
    run(async {
        let stage = ServerStage::with(|options| {
            options.add_tokens(&[("auditor", "all_runs = true"), ("ci", "")]);
        })
        .await;
        let auditor = HttpClient::new(stage.client.address, "auditor");
        let ci = HttpClient::new(stage.client.address, "ci");
        let run = ci.post("/v1/runs", json!({"prompt": "ask write_file a.txt a\nhang"})).await.json();
        let run = format!("/v1/runs/{}", run["run"].as_str().unwrap());
        eventually(async || ci.get(&run).await.json()["pending_permissions"] == 1).await;
        let opened = ci.post("/v1/conversations", json!({})).await.json();
        let conversation = format!("/v1/conversations/{}", opened["conversation"].as_str().unwrap());
        for path in [&run, &format!("{run}/permissions"), &conversation] {
            assert_eq!(auditor.get(path).await.status, 200, "{path}");
        }
        assert_eq!(auditor.get("/v1/runs").await.json()["runs"].as_array().unwrap().len(), 1);
        for (path, body) in [
            (format!("{run}/cancel"), json!({})),
            (format!("{run}/steer"), json!({"text": "say x"})),
            (format!("{run}/permissions/p1"), json!({"decision": "allow"})),
            (format!("{conversation}/prompts"), json!({"prompt": "say x"})),
        ] {
            let refused = auditor.post(&path, body).await;
            assert_eq!(refused.status, 403, "{path}");
            assert!(refused.text().contains("may only read"), "{}", refused.text());
        }
        assert_eq!(auditor.delete(&conversation).await.status, 403);
        assert_eq!(ci.get(&run).await.json()["pending_permissions"], 1);
        // Its own runs are its own.
        let own = auditor.post("/v1/runs", json!({"prompt": "hang"})).await.json();
        let cancel = format!("/v1/runs/{}/cancel", own["run"].as_str().unwrap());
        assert_eq!(auditor.post(&cancel, json!({})).await.status, 200);
    });
}

/// Begins a request with a body of this length, of which only a part is sent.
async fn begin(client: &HttpClient, path: &str, length: usize, sent: usize) -> TcpStream {
    let mut stream = TcpStream::connect(client.address).await.unwrap();
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\nConnection: close\r\n\
         Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n",
        client.address, client.token
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(" ".repeat(sent).as_bytes()).await.unwrap();
    stream
}

/// Reads the answer of a request that was begun.
async fn answer(mut stream: TcpStream) -> String {
    let mut answer = Vec::new();
    // A reset connection has no answer.
    let _ = stream.read_to_end(&mut answer).await;
    String::from_utf8_lossy(&answer).into_owned()
}

fn body_of_reader() {
    run(async {
        let stage = ServerStage::with(|options| {
            options.add_tokens(&[("reader", "read_only = true")]);
            // Longer than the test may take: an answer means that the body was not waited for.
            options.limits.read_timeout = Duration::from_secs(600);
        })
        .await;
        let reader = HttpClient::new(stage.client.address, "reader");
        for path in ["/v1/runs", "/v1/conversations"] {
            let refused = answer(begin(&reader, path, 30 << 20, 1_000).await).await;
            assert!(refused.starts_with("HTTP/1.1 403"), "{path}: {refused}");
        }
    });
}

fn large_bodies() {
    run(async {
        let stage = ServerStage::with(|options| {
            options.limits.large_bodies = 2;
            // Longer than the test may take.
            options.limits.read_timeout = Duration::from_secs(600);
        })
        .await;
        let mut slow = Vec::new();
        for _ in 0..2 {
            slow.push(begin(&stage.client, "/v1/runs", 1 << 20, 200_000).await);
        }
        let small = async || {
            let found = stage.client.post("/v1/sessions/search", json!({"words": ["x"]})).await;
            assert_eq!(found.status, 200);
        };
        // The server has read enough of both.
        for _ in 0..10 {
            small().await;
        }
        let body = json!({"prompt": format!("say x\n{}", "y".repeat(300_000))});
        let client = stage.client.clone();
        let large = tokio::spawn(async move { client.post("/v1/runs", body).await.status });
        for _ in 0..30 {
            small().await;
        }
        assert!(!large.is_finished(), "a third large body waits");
        drop(slow.pop());
        assert_eq!(large.await.unwrap(), 201);
    });
}

fn no_large_body_in_time() {
    run(async {
        let stage = ServerStage::with(|options| {
            options.limits.large_bodies = 0;
            options.limits.read_timeout = Duration::from_secs(1);
        })
        .await;
        let large = json!({"prompt": format!("say x\n{}", "y".repeat(300_000))});
        let refused = stage.client.post("/v1/runs", large).await;
        assert_eq!(refused.status, 429, "{}", refused.text());
        stage.run("say x").await;
    });
}

fn client_is_gone() {
    run(async {
        let stage = ServerStage::with(|options| options.add_tokens(&[("ci", "max_concurrent = 1")])).await;
        let ci = HttpClient::new(stage.client.address, "ci");
        let body = r#"{"prompt": "say x"}"#;
        let states = async || -> Vec<Value> {
            let runs = ci.get("/v1/runs?limit=100").await.json();
            runs["runs"].as_array().unwrap().iter().map(|run| run["state"].clone()).collect()
        };
        // Often enough that some requests are read before the server sees that their client has gone.
        eventually(async || {
            post_and_leave(&ci, "/v1/runs", body).await;
            states().await.len() >= 3
        })
        .await;
        // No run is left in progress, and its slot is free.
        eventually(async || states().await.iter().all(|state| state == "ended")).await;
        eventually(async || ci.post("/v1/runs", json!({"prompt": "hang"})).await.status == 201).await;
        // All are in the audit log.
        eventually(async || {
            let runs = ci.get("/v1/runs?limit=100").await.json();
            let runs = runs["runs"].as_array().unwrap().iter().map(|run| run["run"].clone());
            is_same(runs, audited(&stage, "run"))
        })
        .await;
    });
}

/// Sends a request and does not wait for the answer.
async fn post_and_leave(client: &HttpClient, path: &str, body: &str) {
    let mut stream = begin(client, path, body.len(), 0).await;
    stream.write_all(body.as_bytes()).await.unwrap();
}

/// Returns the runs in the audit log with an action.
fn audited(stage: &ServerStage, action: &str) -> impl Iterator<Item = Value> {
    stage
        .audit_log()
        .into_iter()
        .filter(move |entry| entry["action"] == action)
        .map(|entry| entry["run"].clone())
}

fn is_same(left: impl Iterator<Item = Value>, right: impl Iterator<Item = Value>) -> bool {
    let sorted = |values: Vec<String>| BTreeSet::from_iter(values);
    let text = |value: Value| value.to_string();
    sorted(left.map(text).collect()) == sorted(right.map(text).collect())
}

fn prompt_client_is_gone() {
    run(async {
        let stage = ServerStage::start().await;
        let client = &stage.client;
        let opened = client.post("/v1/conversations", json!({})).await.json();
        let path = format!("/v1/conversations/{}", opened["conversation"].as_str().unwrap());
        let runs = async || client.get(&path).await.json()["runs"].as_array().unwrap().clone();
        eventually(async || {
            post_and_leave(client, &format!("{path}/prompts"), r#"{"prompt": "say x"}"#).await;
            runs().await.len() >= 3
        })
        .await;
        eventually(async || is_same(runs().await.into_iter(), audited(&stage, "prompt"))).await;
    });
}

fn answering_client_is_gone() {
    run(async {
        let stage = ServerStage::start().await;
        for number in 0..5 {
            let id = stage.run(&format!("ask write_file {number}.txt x\nsay end")).await;
            stage.client.events(&id, 0).await.until("permission_request").await;
            eventually(async || {
                let path = format!("/v1/runs/{id}/permissions/p1");
                post_and_leave(&stage.client, &path, r#"{"decision": "allow"}"#).await;
                stage.client.get(&format!("/v1/runs/{id}")).await.json()["pending_permissions"] == 0
            })
            .await;
            assert_eq!(stage.outcome(&id).await["text"], "end");
            assert!(stage.workspace().join(format!("{number}.txt")).is_file());
        }
    });
}

fn not_changes() {
    run(async {
        let stage = ServerStage::with(|options| options.limits.changes_per_minute = 3).await;
        let client = &stage.client;
        let id = stage.run("ask write_file a.txt a\nhang").await;
        client.events(&id, 0).await.until("permission_request").await;
        let run = format!("/v1/runs/{id}");
        let steer = json!({"text": "say x"});
        eventually(async || client.post(&format!("{run}/steer"), steer.clone()).await.status == 429).await;
        for _ in 0..5 {
            let found = client.post("/v1/sessions/search", json!({"words": ["x"]})).await;
            assert_eq!(found.status, 200, "{}", found.text());
        }
        let denied = client.post(&format!("{run}/permissions/p1"), json!({"decision": "deny"})).await;
        assert_eq!(denied.status, 200, "{}", denied.text());
        for _ in 0..3 {
            assert_eq!(client.post(&format!("{run}/cancel"), json!({})).await.status, 200);
        }
        stage.outcome(&id).await;
        assert_eq!(client.post("/v1/runs", json!({"prompt": "say x"})).await.status, 429);
        assert_eq!(audited(&stage, "cancel").count(), 1, "a repetition is not recorded");
    });
}

fn scans() {
    run(async {
        let stage = ServerStage::with(|options| {
            options.limits.scans = 0;
            options.limits.read_timeout = Duration::from_secs(1);
        })
        .await;
        let client = &stage.client;
        let get = async |path: &str| (path.to_owned(), client.get(path).await.status);
        let (experiments, status, sessions, usage, search) = tokio::join!(
            get("/v1/experiments"),
            get("/v1/experiments/status?dir=."),
            get("/v1/sessions"),
            get("/v1/sessions/usage"),
            client.post("/v1/sessions/search", json!({"words": ["x"]})),
        );
        for (path, status) in [experiments, status, sessions, usage] {
            assert_eq!(status, 429, "{path}");
        }
        assert_eq!(search.status, 429);
        let id = stage.run("say x").await;
        assert_eq!(stage.outcome(&id).await["text"], "x");
    });
}

fn closed_conversation() {
    run(async {
        let stage = ServerStage::start().await;
        let client = &stage.client;
        let opened = client.post("/v1/conversations", json!({"prompt": "x".repeat(100_000)})).await.json();
        let path = format!("/v1/conversations/{}", opened["conversation"].as_str().unwrap());
        assert_eq!(client.delete(&path).await.status, 204);
        let closed = client.get(&path).await.json();
        assert_eq!(closed["state"], "closed", "{closed}");
        assert_eq!(client.delete(&path).await.status, 204, "it is closed already");
        let closes = stage.audit_log().into_iter().filter(|entry| entry["action"] == "close");
        assert_eq!(closes.count(), 1);
        assert_eq!(client.post(&format!("{path}/prompts"), json!({"prompt": "say x"})).await.status, 409);
    });
}
