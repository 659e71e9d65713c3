//! What only PostgreSQL has: TLS and passwords, its versions, the order of transactions, and plans of statements.

use crate::stage::{LONG, QueueStage, id};
use agentline_queue::{CommitResult, ConnectOptions, Cursor, Job, JobRoute, Queue, QueueError, connect};
use agentline_tests::{
    PATIENCE,
    engines::{Engine, postgres::PostgresServer},
};
use std::{
    path::Path,
    process::Command,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio_postgres::{Client, NoTls};

async fn open(url: &str, options: &ConnectOptions) -> Result<Arc<dyn Queue>, QueueError> {
    connect(url, options).await
}

/// Connects to the database without a queue.
async fn bare_client(server: &PostgresServer) -> Client {
    let (client, connection) = tokio_postgres::connect(&server.url(), NoTls).await.expect("a connection");
    tokio::spawn(connection);
    client
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_password_is_unauthorized_and_a_missing_database_is_named() {
    let Some(server) = PostgresServer::start() else { return };
    let options = ConnectOptions::default();
    open(&server.url(), &options).await.expect("the right password");
    let error = open(&server.url_with("wrong"), &options).await.expect_err("a wrong password");
    assert!(matches!(error, QueueError::Unauthorized(_)), "{error}");
    let url = server.url();
    let (base, _) = url.rsplit_once('/').expect("a database");
    let error = open(&format!("{base}/missing"), &options).await.expect_err("no database").to_string();
    assert!(error.contains("\"missing\" does not exist; create it"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn server_before_13_is_refused_by_name() {
    let Some(server) = PostgresServer::start_too_old() else { return };
    let error = open(&server.url(), &ConnectOptions::default()).await.expect_err("too old");
    assert_eq!(error.to_string(), "PostgreSQL 12.22 is too old; 13 or newer is needed");
}

#[tokio::test(flavor = "multi_thread")]
async fn first_connections_at_the_same_time_succeed() {
    let Some(server) = PostgresServer::start() else { return };
    let open = || {
        let url = server.url();
        tokio::spawn(async move { open(&url, &ConnectOptions::default()).await.map(drop) })
    };
    let connections: Vec<_> = (0..16).map(|_| open()).collect();
    for connection in connections {
        connection.await.expect("a task").expect("a queue");
    }
}

/// Creates an authority and a certificate for `localhost`.
fn create_certificates(folder: &Path) {
    let openssl = |args: &[&str]| {
        let output = Command::new("openssl").args(args).current_dir(folder).output().expect("openssl");
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    };
    let key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"];
    let authority =
        ["req", "-x509", "-days", "2", "-subj", "/CN=Test CA", "-keyout", "ca.key", "-out", "ca.crt"];
    openssl(&[authority.as_slice(), key.as_slice()].concat());
    let request = ["req", "-subj", "/CN=localhost", "-keyout", "server.key", "-out", "server.csr"];
    openssl(&[request.as_slice(), key.as_slice()].concat());
    std::fs::write(folder.join("names"), "subjectAltName=DNS:localhost\n").expect("a file");
    let sign = ["x509", "-req", "-days", "2", "-in", "server.csr", "-CA", "ca.crt", "-CAkey", "ca.key"];
    openssl(&[sign.as_slice(), &["-CAcreateserial", "-extfile", "names", "-out", "server.crt"]].concat());
}

#[tokio::test(flavor = "multi_thread")]
async fn certificate_and_name_of_the_server_are_verified() {
    let folder = tempfile::tempdir().expect("a directory");
    create_certificates(folder.path());
    let setting = |name: &str, file: &str| format!("{name}={}", folder.path().join(file).display());
    let (certificate, key) = (setting("ssl_cert_file", "server.crt"), setting("ssl_key_file", "server.key"));
    let Some(server) = PostgresServer::start_with(&["ssl=on", &certificate, &key]) else { return };
    let by_name = server.url().replace("127.0.0.1", "localhost") + "?sslmode=require";
    let mut trusting = ConnectOptions::default();
    trusting.ca = Some(folder.path().join("ca.crt"));

    let queue = open(&by_name, &trusting).await.expect("a certificate of a trusted authority");
    queue.write_record("a", b"1", 0).await.expect("a record");
    let client = bare_client(&server).await;
    let encrypted = "SELECT count(*) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid)
        WHERE application_name = 'agentline' AND ssl";
    let row = client.query_one(encrypted, &[]).await.expect("a row");
    assert!(row.get::<_, i64>(0) > 0, "the connection is not encrypted");

    let error = open(&by_name, &ConnectOptions::default()).await.expect_err("an unknown authority");
    assert!(matches!(&error, QueueError::Refused(text) if text.contains("UnknownIssuer")), "{error}");
    let by_address = server.url() + "?sslmode=verify-full";
    let error = open(&by_address, &trusting).await.expect_err("another name");
    assert!(matches!(&error, QueueError::Refused(text) if text.contains("not valid for name")), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn server_without_tls_is_refused_if_it_is_needed() {
    let Some(server) = PostgresServer::start() else { return };
    let error = open(&(server.url() + "?sslmode=require"), &ConnectOptions::default()).await;
    let error = error.expect_err("a server without TLS");
    assert!(matches!(error, QueueError::Plaintext(_)), "{error}");
}

/// Returns all results that can be read, in pages of seven.
async fn read_all(stage: &QueueStage, cursor: &mut Cursor) -> Vec<String> {
    let mut jobs = Vec::new();
    loop {
        let page = stage.queue.results(&stage.name, cursor, 7).await.expect("a page");
        if page.results.is_empty() {
            return jobs;
        }
        jobs.extend(page.results.into_iter().map(|result| result.job));
        *cursor = page.next;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn results_are_in_the_order_of_transactions_whose_numbers_become_longer() {
    let Some(server) = PostgresServer::start() else { return };
    let client = bare_client(&server).await;
    let engine = Engine::Postgres(server);
    let stage = QueueStage::connect(&engine, "order").await;
    stage.enqueue(0..60).await;
    let mut expected = Vec::new();
    loop {
        let row = client.query_one("SELECT pg_current_xact_id()::text", &[]).await.expect("a row");
        let is_near = row.get::<_, &str>(0).parse::<u64>().expect("a number") > 970;
        if is_near || !expected.is_empty() {
            let lease = stage.claim_one().await;
            stage.queue.commit(&lease, b"done").await.expect("a commit");
            expected.push(lease.job);
        }
        if expected.len() == 60 {
            break;
        }
    }
    assert_eq!(read_all(&stage, &mut Cursor::default()).await, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn result_of_a_transaction_that_commits_late_is_not_skipped() {
    let Some(server) = PostgresServer::start() else { return };
    let mut client = bare_client(&server).await;
    let engine = Engine::Postgres(server);
    let stage = QueueStage::connect(&engine, "late").await;
    stage.enqueue(0..2).await;
    let lease = stage.claim_one().await;
    let insert = "INSERT INTO agentline.results (experiment, job, result) VALUES ('late', 'slow', '')";
    let transaction = client.transaction().await.expect("a transaction");
    transaction.execute(insert, &[]).await.expect("a row");
    assert_eq!(stage.queue.commit(&lease, b"").await.expect("a commit"), CommitResult::Committed);
    let mut cursor = Cursor::default();
    assert_eq!(read_all(&stage, &mut cursor).await, Vec::<String>::new());
    transaction.commit().await.expect("a commit");
    assert_eq!(read_all(&stage, &mut cursor).await, ["slow".to_owned(), id(0)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn claims_among_many_jobs_read_few_rows() {
    const JOBS: usize = 30_000;
    const CLAIMS: i64 = 100;
    let Some(server) = PostgresServer::start_with(&["autovacuum=off"]) else { return };
    let client = bare_client(&server).await;
    let queue = open(&server.url(), &ConnectOptions::default()).await.expect("a queue");
    let route = |number: usize| JobRoute { experiment: "e".into(), route: format!("r{number}") };
    let routes: Vec<JobRoute> = (0..3).map(route).collect();
    // The first plan is made while there is no job.
    assert_eq!(queue.claim(&routes, LONG).await.expect("an answer"), None);
    let job = |n: usize| Job { id: id(n), route: format!("r{}", n % 3), payload: Vec::new() };
    let jobs: Vec<Job> = (0..JOBS).map(job).collect();
    assert_eq!(queue.enqueue("e", &jobs).await.expect("new jobs"), JOBS as u64);
    let before = rows_read(&client).await;
    for number in 0..CLAIMS {
        let lease = queue.claim(&routes, LONG).await.expect("an answer").expect("a job");
        assert_eq!(lease.job, id(usize::try_from(number).expect("a number")), "the oldest of all routes");
    }
    // Statistics arrive later, in the order of their transactions at the earliest.
    let until = Instant::now() + PATIENCE;
    let mut read = 0;
    while read < CLAIMS {
        assert!(Instant::now() < until, "waited {PATIENCE:?} for statistics");
        tokio::time::sleep(Duration::from_millis(200)).await;
        read = rows_read(&client).await - before;
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
    let read = rows_read(&client).await - before;
    // Entries of claimed jobs are passed until the server removes them.
    assert!(read < CLAIMS * CLAIMS * 4, "{read} rows were read for {CLAIMS} claims");
}

/// Returns how many rows and entries of indexes of the jobs have been read.
async fn rows_read(client: &Client) -> i64 {
    let sql = "SELECT (seq_tup_read + (SELECT sum(idx_tup_read) FROM pg_stat_user_indexes
            WHERE schemaname = 'agentline' AND relname = 'jobs'))::bigint
        FROM pg_stat_user_tables WHERE schemaname = 'agentline' AND relname = 'jobs'";
    client.query_one(sql, &[]).await.expect("a row").get(0)
}

#[tokio::test(flavor = "multi_thread")]
async fn queue_connects_again_after_a_restart_and_never_hangs() {
    let Some(mut server) = PostgresServer::start() else { return };
    let queue = open(&server.url(), &ConnectOptions::default()).await.expect("a queue");
    queue.write_record("a", b"1", 0).await.expect("a record");
    queue.wait(Duration::from_millis(10)).await.expect("the end of the time");
    server.kill();
    let start = Instant::now();
    let error = queue.record("a").await.expect_err("no server");
    assert!(error.is_temporary(), "{error}");
    queue.wait(Duration::from_secs(60)).await.expect("an early end");
    assert!(start.elapsed() < Duration::from_secs(30), "{:?}", start.elapsed());
    server.restart();
    let record = queue.record("a").await.expect("an answer").expect("a record");
    assert_eq!(record.value, b"1");
    // Notifications arrive on the new connection.
    let waiting = queue.clone();
    let wait = tokio::spawn(async move { waiting.wait(Duration::from_secs(60)).await });
    queue.write_record("a", b"2", record.revision).await.expect("a record");
    wait.await.expect("a task").expect("a change");
}
