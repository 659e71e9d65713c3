//! Tests the parts of the store together.

use super::*;
use std::sync::mpsc as std_mpsc;

fn store(dir: &Path) -> Arc<Store> {
    let limits = ServeLimits::default();
    Arc::new(Store::open(dir, &limits).unwrap().0)
}

fn run(id: &str) -> ServedRun {
    ServedRun { run: id.to_owned(), started_by: "owner".to_owned(), ..ServedRun::default() }
}

fn outcome(id: &str) -> StoredEvent {
    let end = Some(Box::new(RunEnd { outcome: "{}".to_owned(), run: run(id) }));
    StoredEvent { kind: "outcome".to_owned(), data: "{}".to_owned(), end }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reader_is_not_lost_with_a_client_that_disconnects() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(dir.path());
    let (started, has_started) = std_mpsc::channel();
    let mut blocked = Vec::new();
    for _ in 0..READERS {
        let (release, is_released) = std_mpsc::channel::<()>();
        let (reading, started) = (Arc::clone(&store), started.clone());
        let client = tokio::spawn(async move {
            let wait = move |_: &EventDatabase| {
                started.send(()).unwrap();
                // The sender is dropped at the end of the test, too.
                let _ = is_released.recv();
                Ok(())
            };
            reading.read(wait).await
        });
        blocked.push((client, release));
    }
    for _ in 0..READERS {
        has_started.recv_timeout(Duration::from_secs(60)).unwrap();
    }
    for (client, _) in &blocked {
        client.abort();
    }
    // Without a free reader, a read waits instead of failing.
    let reading = tokio::spawn({
        let store = Arc::clone(&store);
        async move { store.run("none").await }
    });
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(!reading.is_finished(), "all readers are in use");
    drop(blocked);
    assert!(reading.await.unwrap().unwrap().is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reader_returns_after_a_panic() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(dir.path());
    for _ in 0..READERS + 1 {
        let panicked = store.read(|_| -> Result<(), rusqlite::Error> { panic!("a read of the test") }).await;
        assert!(panicked.is_err());
    }
    assert!(store.run("none").await.unwrap().is_none());
}

#[tokio::test]
async fn log_of_an_ended_run_is_kept_as_long_as_a_client_reads_it() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(dir.path());
    let log = store.create(run("a")).await;
    store.append(&log, "a", outcome("a")).await;
    store.flush().await;
    let client = store.log("a").await.unwrap().unwrap();
    assert!(Arc::ptr_eq(&client, &log));
    let memory = Arc::downgrade(&log);
    drop(log);
    assert!(memory.upgrade().is_some(), "the client reads it");
    drop(client);
    assert!(memory.upgrade().is_none(), "nothing else keeps it");
    // Later clients read from the database.
    assert!(matches!(store.log("a").await.unwrap().unwrap().next(0), Position::Stored));
    store.create(run("b")).await;
    assert_eq!(store.logs().len(), 1, "entries of logs that are gone are removed");
}

#[tokio::test]
async fn old_run_is_removed_while_nothing_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let limits = ServeLimits { max_age: Duration::from_secs(3), ..ServeLimits::default() };
    let store = Arc::new(Store::open(dir.path(), &limits).unwrap().0);
    let log = store.create(run("a")).await;
    store.append(&log, "a", outcome("a")).await;
    store.flush().await;
    assert!(store.run("a").await.unwrap().is_some());
    while store.run("a").await.unwrap().is_some() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
