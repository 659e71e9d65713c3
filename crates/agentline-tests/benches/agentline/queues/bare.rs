//! Clients that use an engine directly, with the requests that a claim and a commit need there.

use super::{JobsLeft, LEASE, RESULT, ROUTE};
use agentline_tests::engines::Engine;
use async_nats::{Client as NatsClient, HeaderMap, Message, Request, jetstream};
use futures_util::StreamExt as _;
use rusqlite::{Connection, params};
use std::path::{Path, PathBuf};
use tokio_postgres::{Client as PostgresClient, NoTls, Statement};

/// A client without our code.
pub(super) enum BareClient {
    Sqlite(PathBuf),
    Nats(NatsClient),
    Postgres(String),
}

impl BareClient {
    pub(super) async fn connect(engine: &Engine) -> Self {
        let address = engine.address();
        match engine {
            Engine::Sqlite(_) => Self::Sqlite(address.trim_start_matches("sqlite:").into()),
            Engine::Nats(_) => Self::Nats(async_nats::connect(address).await.expect("a connection")),
            Engine::Postgres(_) => Self::Postgres(address),
        }
    }

    /// Claims all jobs of an experiment and commits a result for each.
    pub(super) async fn drain(&self, experiment: &str, slots: usize, left: JobsLeft) -> usize {
        let experiment = experiment.to_owned();
        match self {
            // There is one writer at a time, so one connection is the fastest.
            Self::Sqlite(path) => {
                let path = path.clone();
                let drained = tokio::task::spawn_blocking(move || drain_sqlite(&path, &experiment, &left));
                drained.await.expect("a number")
            }
            Self::Nats(client) => {
                create_consumer(client, &experiment).await;
                let slot = |_| tokio::spawn(drain_nats(client.clone(), experiment.clone(), left.clone()));
                sum((0..slots).map(slot).collect()).await
            }
            Self::Postgres(url) => {
                let slot = |_| tokio::spawn(drain_postgres(url.clone(), experiment.clone(), left.clone()));
                sum((0..slots).map(slot).collect()).await
            }
        }
    }
}

async fn sum(slots: Vec<tokio::task::JoinHandle<usize>>) -> usize {
    let mut done = 0;
    for slot in slots {
        done += slot.await.expect("a number");
    }
    done
}

fn drain_sqlite(path: &Path, experiment: &str, left: &JobsLeft) -> usize {
    let db = Connection::open(path).expect("a database");
    db.pragma_update(None, "synchronous", "normal").expect("a setting");
    let mut begin = db.prepare("BEGIN IMMEDIATE").expect("a statement");
    let mut end = db.prepare("COMMIT").expect("a statement");
    let find = "SELECT id FROM jobs WHERE state = 0 AND experiment = ? AND route = ? ORDER BY id LIMIT 1";
    let mut find = db.prepare(find).expect("a statement");
    let token = "UPDATE counters SET value = value + 1 WHERE name = 'token' RETURNING value";
    let mut token = db.prepare(token).expect("a statement");
    let claim = "UPDATE jobs SET state = 1, claims = claims + 1, token = ?2, ends_ms = ?3 WHERE id = ?1
        RETURNING name, payload";
    let mut claim = db.prepare(claim).expect("a statement");
    let finish = "UPDATE jobs SET state = 2 WHERE id = ?1 AND state = 1 AND token = ?2";
    let mut finish = db.prepare(finish).expect("a statement");
    let insert = "INSERT INTO results (job, experiment, name, token, result) VALUES (?, ?, ?, ?, ?)";
    let mut insert = db.prepare(insert).expect("a statement");
    let mut done = 0;
    while left.take() {
        begin.execute([]).expect("the lock");
        let id: i64 = find.query_row([experiment, ROUTE], |row| row.get(0)).expect("a job");
        let token: i64 = token.query_row([], |row| row.get(0)).expect("a token");
        let read = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?));
        let (name, _payload): (String, Vec<u8>) =
            claim.query_row(params![id, token, i64::MAX], read).expect("a job");
        end.execute([]).expect("a claim");
        begin.execute([]).expect("the lock");
        assert_eq!(finish.execute([id, token]).expect("an answer"), 1);
        insert.execute(params![id, experiment, name, token, [b'r'; RESULT]]).expect("a result");
        end.execute([]).expect("a commit");
        done += 1;
    }
    done
}

async fn create_consumer(client: &NatsClient, experiment: &str) {
    let config = jetstream::consumer::pull::Config {
        durable_name: Some(ROUTE.into()),
        filter_subject: format!("agentline.{experiment}.job.{ROUTE}.*"),
        ack_policy: jetstream::consumer::AckPolicy::Explicit,
        ack_wait: LEASE,
        max_deliver: -1,
        max_ack_pending: -1,
        ..Default::default()
    };
    let stream = format!("agentline_job_{experiment}");
    let created = jetstream::new(client.clone()).create_consumer_on_stream(config, stream).await;
    created.expect("a consumer");
}

/// Publishes the first message of a subject.
async fn publish_first(client: &NatsClient, subject: String, payload: Vec<u8>) {
    let mut headers = HeaderMap::new();
    headers.insert(async_nats::header::NATS_EXPECTED_LAST_SUBJECT_SEQUENCE, "0");
    let request = Request::new().payload(payload.into()).headers(headers);
    let answer: Message = client.send_request(subject, request).await.expect("an answer");
    assert!(!answer.payload.starts_with(br#"{"error""#), "{answer:?}");
}

async fn drain_nats(client: NatsClient, experiment: String, left: JobsLeft) -> usize {
    let next = format!("$JS.API.CONSUMER.MSG.NEXT.agentline_job_{experiment}.{ROUTE}");
    let read = format!("$JS.API.STREAM.MSG.GET.agentline_lease_{experiment}");
    let mut done = 0;
    let inbox = client.new_inbox();
    let mut messages = client.subscribe(inbox.clone()).await.expect("a subscription");
    while left.take() {
        let pull = r#"{"batch":1,"no_wait":true}"#;
        let sent = client.publish_with_reply(next.clone(), inbox.clone(), pull.into()).await;
        sent.expect("a request");
        let message = messages.next().await.expect("an answer");
        assert_eq!(message.status, None, "a job");
        let acknowledge = message.reply.expect("a way to acknowledge it");
        let job = message.subject.rsplit('.').next().unwrap_or_default();
        let lease = format!("agentline.{experiment}.lease.{job}");
        let entry = format!(r#"{{"holder":"{}","claims":1,"time":300000}}"#, client.new_inbox());
        publish_first(&client, lease.clone(), entry.into()).await;

        let query = format!(r#"{{"last_by_subj":"{lease}"}}"#);
        client.request(read.clone(), query.into()).await.expect("an answer");
        publish_first(&client, format!("agentline.{experiment}.result.{job}"), vec![b'r'; RESULT]).await;
        let entry = r#"{"holder":"h","claims":1,"time":0,"done":true}"#;
        client.publish(lease, entry.into()).await.expect("a message");
        client.publish(acknowledge, "+ACK".into()).await.expect("a message");
        client.publish("agentline_changes", "".into()).await.expect("a message");
        done += 1;
    }
    done
}

/// The plans do not depend on statistics, which do not exist yet.
const SETTINGS: &str = "SET enable_seqscan = off; SET enable_bitmapscan = off; SET jit = off;
    SET plan_cache_mode = force_generic_plan";
const CLAIM: &str = "
UPDATE agentline.jobs SET state = 1, claims = claims + 1, token = nextval('agentline.tokens'),
    lease_until = statement_timestamp() + make_interval(secs => 300)
WHERE (experiment, job) = (
    SELECT experiment, job FROM agentline.jobs WHERE experiment = $1 AND route = $2 AND state = 0
    ORDER BY position LIMIT 1 FOR UPDATE SKIP LOCKED
)
RETURNING job, payload, token";
const COMMIT: &str = "
WITH finished AS (
    UPDATE agentline.jobs SET state = 2, lease_until = NULL, payload = ''
    WHERE experiment = $1 AND job = $2 AND token = $3 AND state = 1
    RETURNING experiment, job
)
INSERT INTO agentline.results (experiment, job, result) SELECT experiment, job, $4 FROM finished";

async fn drain_postgres(url: String, experiment: String, left: JobsLeft) -> usize {
    let (client, connection) = tokio_postgres::connect(&url, NoTls).await.expect("a connection");
    tokio::spawn(connection);
    client.batch_execute(SETTINGS).await.expect("settings");
    let claim = client.prepare(CLAIM).await.expect("a statement");
    let commit = client.prepare(COMMIT).await.expect("a statement");
    let mut done = 0;
    while left.take() {
        execute_next(&client, &experiment, &claim, &commit).await;
        done += 1;
    }
    done
}

async fn execute_next(client: &PostgresClient, experiment: &str, claim: &Statement, commit: &Statement) {
    let row = client.query_one(claim, &[&experiment, &ROUTE]).await.expect("a job");
    let (job, _payload, token): (String, Vec<u8>, i64) = (row.get(0), row.get(1), row.get(2));
    let result = [b'r'; RESULT].as_slice();
    let committed = client.execute(commit, &[&experiment, &job, &token, &result]).await;
    assert_eq!(committed.expect("an answer"), 1);
}
