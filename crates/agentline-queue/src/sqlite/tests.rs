//! Tests of the queue in a SQLite database.

use super::*;
use crate::TestClock;

const LEASE: Duration = Duration::from_secs(30);

struct QueueStage {
    dir: tempfile::TempDir,
    clock: Arc<TestClock>,
}

impl QueueStage {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().expect("a directory"), clock: Arc::default() }
    }

    async fn open(&self, boot: &str) -> SqliteQueue {
        let path = self.dir.path().join("queue.db");
        SqliteQueue::open_with(&path, self.clock.clone(), boot).await.expect("a queue")
    }
}

async fn enqueue(queue: &SqliteQueue, count: usize) {
    let job = |n| Job { id: format!("job-{n}"), route: "r".into(), payload: b"x".to_vec() };
    let jobs: Vec<Job> = (0..count).map(job).collect();
    queue.enqueue("e", &jobs).await.expect("new jobs");
}

async fn claim(queue: &SqliteQueue) -> Option<Lease> {
    let routes = [JobRoute { experiment: "e".into(), route: "r".into() }];
    queue.claim(&routes, LEASE).await.expect("an answer")
}

#[tokio::test]
async fn lease_ends_by_the_clock_of_the_machine_alone() {
    let stage = QueueStage::new();
    let (first, second) = (stage.open("1").await, stage.open("1").await);
    enqueue(&first, 1).await;
    let mut lease = claim(&first).await.expect("a job");
    stage.clock.advance(LEASE - Duration::from_millis(1));
    assert_eq!(claim(&second).await, None);
    first.renew(&mut lease, LEASE).await.expect("a lease");
    stage.clock.advance(LEASE - Duration::from_millis(1));
    assert_eq!(claim(&second).await, None);
    stage.clock.advance(Duration::from_millis(1));
    let counts = second.counts("e").await.expect("counts");
    assert_eq!((counts.waiting, counts.claimed), (1, 0));
    let reclaimed = claim(&second).await.expect("a job whose lease has ended");
    assert_eq!((reclaimed.claims, reclaimed.job.as_str()), (2, "job-0"));
    assert!(reclaimed.token > lease.token);
    first.renew(&mut lease, LEASE).await.expect_err("another worker has the job");
}

#[tokio::test]
async fn jobs_whose_lease_has_ended_are_claimed_before_waiting_ones() {
    let stage = QueueStage::new();
    let queue = stage.open("1").await;
    enqueue(&queue, 3).await;
    assert_eq!(claim(&queue).await.expect("a job").job, "job-0");
    stage.clock.advance(LEASE);
    let jobs = [claim(&queue).await, claim(&queue).await].map(|lease| lease.expect("a job").job);
    assert_eq!(jobs, ["job-0", "job-1"]);
}

#[tokio::test]
async fn leases_end_when_the_machine_starts_again() {
    let stage = QueueStage::new();
    let queue = stage.open("1").await;
    enqueue(&queue, 1).await;
    stage.clock.advance(Duration::from_secs(1_000_000));
    let lease = claim(&queue).await.expect("a job");
    drop(queue);
    // The clock begins again.
    let stage = QueueStage { clock: Arc::default(), ..stage };
    assert_eq!(claim(&stage.open("1").await).await, None);
    let queue = stage.open("2").await;
    assert_eq!(claim(&queue).await.expect("a job of the earlier boot").claims, 2);
    assert!(matches!(queue.commit(&lease, b"late").await, Err(QueueError::LeaseLost)));
}

#[tokio::test]
async fn other_databases_are_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("other.db");
    let other = rusqlite::Connection::open(&path).expect("a database");
    other.execute_batch("CREATE TABLE t (x)").expect("a table");
    for path in [path.as_path(), Path::new("/missing/queue.db")] {
        let error = SqliteQueue::open(path).await.expect_err("not a queue");
        assert!(matches!(error, QueueError::InvalidAddress { .. }), "{error}");
    }
    let missing = SqliteQueue::open(Path::new("/missing/queue.db")).await.expect_err("no directory");
    assert!(missing.to_string().ends_with("there is no directory `/missing`"), "{missing}");
}

#[tokio::test]
async fn damaged_artifacts_are_detected() {
    let stage = QueueStage::new();
    let queue = stage.open("1").await;
    let name = queue.artifacts().put("e", b"content").await.expect("an artifact");
    let database = rusqlite::Connection::open(stage.dir.path().join("queue.db")).expect("the database");
    database.execute("UPDATE artifacts SET content = 'damaged'", []).expect("damage");
    database.execute("UPDATE artifacts SET content = CAST(content AS BLOB)", []).expect("damage");
    let read = queue.artifacts().get("e", &name).await;
    assert!(matches!(&read, Err(QueueError::Damaged(damaged)) if *damaged == name), "{read:?}");
}

#[tokio::test]
async fn names_that_lead_elsewhere_are_left_out_wherever_they_are() {
    let stage = QueueStage::new();
    let queue = stage.open("1").await;
    enqueue(&queue, 1).await;
    let lease = claim(&queue).await.expect("a job");
    queue.commit(&lease, b"done").await.expect("a commit");
    let database = rusqlite::Connection::open(stage.dir.path().join("queue.db")).expect("the database");
    let hostile = "
        INSERT INTO results SELECT 50, 100, 'e', '../../home', 1, X'7b7d';
        INSERT INTO results SELECT 100, 101, 'e', 'a.b', 1, X'7b7d';
        INSERT INTO jobs (experiment, name, route, payload) VALUES ('e', '/etc/x', 'r', X'7b7d');
        INSERT INTO records VALUES ('experiment.../x', X'7b7d', 7);
    ";
    database.execute_batch(hostile).expect("hostile rows");
    queue.write_record("experiment.e", b"own", 0).await.expect("a record");
    let mut cursor = Cursor::default();
    let mut jobs = Vec::new();
    loop {
        let page = queue.results("e", &cursor, 1).await.expect("a page");
        cursor = page.next;
        if page.results.is_empty() {
            break;
        }
        jobs.extend(page.results.into_iter().map(|stored| stored.job));
    }
    assert_eq!(jobs, ["job-0"]);
    assert_eq!(claim(&queue).await, None);
    let records = queue.records("experiment").await.expect("records");
    assert_eq!(records.iter().map(|record| record.name.as_str()).collect::<Vec<_>>(), ["experiment.e"]);
    assert!(matches!(queue.results("../e", &cursor, 1).await, Err(QueueError::InvalidName(_))));
}

#[tokio::test]
async fn artifacts_that_are_too_large_are_not_read() {
    let stage = QueueStage::new();
    let queue = stage.open("1").await;
    let name = queue.artifacts().put("e", b"content").await.expect("an artifact");
    let database = rusqlite::Connection::open(stage.dir.path().join("queue.db")).expect("the database");
    database
        .execute("UPDATE artifacts SET content = zeroblob(?)", [crate::MAX_ARTIFACT as i64 + 1])
        .expect("growth");
    let read = queue.artifacts().get("e", &name).await;
    assert!(matches!(&read, Err(QueueError::Damaged(damaged)) if *damaged == name), "{read:?}");
}
