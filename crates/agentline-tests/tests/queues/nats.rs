//! What is special about NATS: the ways to connect, and what the queue relies on.

use crate::stage::{QueueStage, SHORT};
use agentline_queue::{CommitResult, ConnectOptions, Job, Queue, QueueError, connect};
use agentline_tests::{
    PATIENCE,
    engines::{
        Engine,
        nats::{NATS, NatsServer, OLDEST_NATS},
    },
};
use std::{
    path::Path,
    process::Command,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    net::TcpListener,
};

async fn connected(address: &str, options: &ConnectOptions) -> Result<Arc<dyn Queue>, QueueError> {
    let queue = connect(address, options).await?;
    queue.record("a").await?;
    Ok(queue)
}

#[tokio::test(flavor = "multi_thread")]
async fn token_and_password_are_checked() {
    let options = ConnectOptions::default();
    let Some(server) = NatsServer::start_with(NATS, &["--jetstream", "--auth", "s3 cret"]) else { return };
    let with = |user: &str| server.url().replacen("://", &format!("://{user}@"), 1);
    connected(&with("s3%20cret"), &options).await.expect("a queue");
    for address in [server.url(), with("wrong"), with("user:s3%20cret")] {
        let error = connected(&address, &options).await.expect_err("no queue");
        assert!(matches!(error, QueueError::Unauthorized(_)), "{error:?}");
        assert!(!error.to_string().contains("s3"), "{error}");
    }

    let arguments = ["--jetstream", "--user", "worker", "--pass", "p@ss"];
    let server = NatsServer::start_with(NATS, &arguments).expect("it is installed");
    let with = |user: &str| server.url().replacen("://", &format!("://{user}@"), 1);
    connected(&with("worker:p%40ss"), &options).await.expect("a queue");
    connected(&with("worker:p@ss"), &options).await.expect("a queue");
    let error = connected(&with("worker:wrong"), &options).await.expect_err("no queue");
    assert!(matches!(error, QueueError::Unauthorized(_)), "{error:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_credentials_file_is_reported() {
    let Some(server) = NatsServer::start(NATS) else { return };
    let mut options = ConnectOptions::default();
    options.credentials = Some("missing.creds".into());
    let error = connect(&server.url(), &options).await.expect_err("no queue");
    assert!(matches!(&error, QueueError::Unauthorized(text) if text.contains("missing.creds")), "{error:?}");
}

/// A server has a limit of consumers, which a submitter would reach that reads the files of many runs.
#[tokio::test(flavor = "multi_thread")]
async fn artifacts_are_read_without_a_consumer_and_incomplete_ones_are_damaged() {
    let Some(server) = NatsServer::start(NATS) else { return };
    let queue = connected(&server.url(), &ConnectOptions::default()).await.expect("a queue");
    let artifacts = queue.artifacts();
    // It has several messages.
    let content = vec![7; 1 << 20];
    let name = artifacts.put("e", &content).await.expect("an artifact");
    for _ in 0..3 {
        assert!(artifacts.get("e", &name).await.expect("an answer") == Some(content.clone()));
    }
    let client = async_nats::connect(server.url()).await.expect("a client");
    let store = async_nats::jetstream::new(client).get_stream("OBJ_agentline_e").await.expect("its store");
    let state = &store.cached_info().state;
    assert_eq!(state.consumer_count, 0);
    assert!(state.messages > 2, "{state:?}");
    store.delete_message(state.first_sequence).await.expect("a part is removed");
    let damaged = artifacts.get("e", &name).await;
    assert!(matches!(&damaged, Err(QueueError::Damaged(found)) if *found == name), "{damaged:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn server_without_jetstream_is_refused() {
    let Some(server) = NatsServer::start_with(OLDEST_NATS, &[]) else { return };
    let error = connect(&server.url(), &ConnectOptions::default()).await.expect_err("no queue");
    assert!(matches!(&error, QueueError::Refused(text) if text.contains("`-js`")), "{error:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn old_server_is_refused() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = format!("nats://{}", listener.local_addr().expect("an address"));
    tokio::spawn(async move {
        while let Ok((connection, _)) = listener.accept().await {
            let (read, mut write) = connection.into_split();
            let info = "INFO {\"server_id\":\"x\",\"version\":\"2.9.10\",\"max_payload\":1048576,\"headers\":true}\r\n";
            write.write_all(info.as_bytes()).await.expect("a client");
            let mut lines = BufReader::new(read).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                if line.starts_with("PING") {
                    write.write_all(b"PONG\r\n").await.expect("a client");
                }
            }
        }
    });
    let error = connect(&address, &ConnectOptions::default()).await.expect_err("no queue");
    assert_eq!(error.to_string(), "NATS server 2.9.10 is too old; 2.10 or newer is needed");
}

#[tokio::test(flavor = "multi_thread")]
async fn plaintext_to_other_hosts_is_refused() {
    let Some(server) = NatsServer::start(NATS) else { return };
    // This address reaches the same machine, but only the system can tell.
    let address = format!("nats://user:secret@0.0.0.0:{}", server.port());
    let mut options = ConnectOptions::default();
    let error = connect(&address, &options).await.expect_err("no queue");
    let shown = format!("0.0.0.0:{}", server.port());
    assert!(matches!(&error, QueueError::Plaintext(host) if host.contains(&shown)), "{error:?}");
    assert!(!error.to_string().contains("secret"), "{error}");
    options.allow_plaintext = true;
    connected(&address, &options).await.expect("a queue");
}

#[tokio::test(flavor = "multi_thread")]
async fn unreachable_server_is_reported_in_time() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let silent = format!("nats://{}", listener.local_addr().expect("an address"));
    let start = Instant::now();
    let error = connect(&silent, &ConnectOptions::default()).await.expect_err("no queue");
    assert!(error.is_temporary(), "{error:?}");
    assert!(start.elapsed() < Duration::from_secs(30), "{:?}", start.elapsed());
    drop(listener);
    let error = connect(&silent, &ConnectOptions::default()).await.expect_err("no queue");
    assert!(error.is_temporary(), "{error:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn server_is_verified_with_tls() {
    let folder = tempfile::tempdir().expect("a directory");
    create_certificates(folder.path());
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (key, certificate) = (path("server.key"), path("server.pem"));
    let arguments = ["--jetstream", "--tls", "--tlscert", &certificate, "--tlskey", &key];
    let Some(server) = NatsServer::start_with(NATS, &arguments) else { return };
    let mut trusting = ConnectOptions::default();
    trusting.ca = Some(folder.path().join("ca.pem"));
    let tls = server.url().replacen("nats", "tls", 1);
    for address in [&tls, &server.url()] {
        connected(address, &trusting).await.expect("a queue");
        let error = connect(address, &ConnectOptions::default()).await.expect_err("an unknown authority");
        assert!(matches!(error, QueueError::Refused(_)), "{error:?}");
    }
    // The certificate is for 127.0.0.1.
    let other = tls.replacen("127.0.0.1", "localhost", 1);
    let error = connect(&other, &trusting).await.expect_err("another name");
    assert!(matches!(error, QueueError::Refused(_)), "{error:?}");
}

/// Creates an authority and a certificate for 127.0.0.1.
fn create_certificates(folder: &Path) {
    std::fs::write(folder.join("extensions"), "subjectAltName=IP:127.0.0.1\n").expect("a file");
    let commands = [
        "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=authority -keyout ca.key -out ca.pem",
        "req -newkey rsa:2048 -nodes -subj /CN=server -keyout server.key -out server.csr",
        "x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile extensions -out server.pem",
    ];
    for command in commands {
        let run = Command::new("openssl").args(command.split(' ')).current_dir(folder).output();
        let run = run.expect("`openssl` is installed");
        assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_commit_does_not_acknowledge_the_job() {
    let Some(server) = NatsServer::start(NATS) else { return };
    let engine = Engine::Nats(server);
    let stage = QueueStage::connect(&engine, "stale").await;
    stage.enqueue(0..1).await;
    let first = stage.claim(&stage.queue, SHORT).await.expect("a job");
    let second = claim_later(&stage, SHORT).await;
    let late = stage.queue.commit(&first, b"late").await;
    assert!(matches!(late, Err(QueueError::LeaseLost)), "{late:?}");
    // The second worker disappears. If the late commit had acknowledged the job, it would be lost.
    let third = claim_later(&stage, SHORT).await;
    assert_eq!((third.claims, third.token > second.token), (3, true));
    let committed = stage.other.commit(&third, b"result").await.expect("a commit");
    assert_eq!(committed, CommitResult::Committed);
    for lease in [&first, &second] {
        let late = stage.queue.commit(lease, b"late").await.expect("an answer");
        assert_eq!(late, CommitResult::Duplicate);
    }
    assert_eq!(stage.results().await.len(), 1);
}

async fn claim_later(stage: &QueueStage, lease: Duration) -> agentline_queue::Lease {
    let until = Instant::now() + PATIENCE;
    loop {
        if let Some(lease) = stage.claim(&stage.other, lease).await {
            return lease;
        }
        assert!(Instant::now() < until, "waited {PATIENCE:?} for the end of a lease");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn lease_survives_a_crash_of_the_server() {
    for version in [NATS, OLDEST_NATS] {
        let Some(server) = NatsServer::start(version) else { return };
        let mut engine = Engine::Nats(server);
        let stage = QueueStage::connect(&engine, "crash").await;
        stage.enqueue(0..2).await;
        let mut held = stage.claim_one().await;
        let committed = stage.claim_one().await;
        stage.queue.commit(&committed, b"result").await.expect("a commit");
        engine.kill_and_restart().await;
        // The clients connect again by themselves. The claimed job and the finished one are not given to
        // another worker.
        assert_eq!(stage.claim(&stage.other, Duration::from_secs(300)).await, None);
        stage.queue.renew(&mut held, Duration::from_secs(300)).await.expect("a lease");
        let result = stage.queue.commit(&held, b"result").await.expect("a commit");
        assert_eq!(result, CommitResult::Committed);
        assert_eq!(stage.results().await.len(), 2);
        assert_eq!(stage.claim(&stage.other, Duration::from_secs(300)).await, None);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn payloads_beyond_the_limit_of_the_server_are_refused() {
    let Some(server) = NatsServer::start(NATS) else { return };
    let engine = Engine::Nats(server);
    let stage = QueueStage::connect(&engine, "large").await;
    let large = vec![b'x'; 2 << 20];
    let job = Job { id: "large".into(), route: "r".into(), payload: large.clone() };
    let refused = stage.queue.enqueue(&stage.name, &[job]).await;
    assert!(matches!(refused, Err(QueueError::TooLarge { size: 2_097_152, .. })), "{refused:?}");
    let refused = stage.queue.write_record("large", &large, 0).await;
    assert!(matches!(refused, Err(QueueError::TooLarge { .. })), "{refused:?}");
}
