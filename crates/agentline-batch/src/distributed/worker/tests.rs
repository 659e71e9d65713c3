//! Tests of a worker with a queue in a file.

use super::*;
use crate::distributed::spec::{CostLimit, EXPERIMENTS, Requirements};
use agentline::HostEnv;
use agentline_queue::{Job, SqliteQueue, TreeRef};

/// Returns the record of an experiment whose jobs every worker can claim.
fn record() -> Vec<u8> {
    let record = ExperimentRecord {
        format: FORMAT,
        name: "s".into(),
        state: ExperimentState::Running,
        submitted_ms: 1,
        jobs: 1,
        routes: BTreeMap::from([("r".to_owned(), Requirements::default())]),
        cost: None::<CostLimit>,
        max_claims: 3,
        suite: TreeRef { name: "0".into(), size: 0, pieces: Vec::new() },
    };
    serde_json::to_vec(&record).expect("JSON")
}

/// Returns a job that no worker can read.
fn job(id: &str) -> Job {
    Job { id: id.into(), route: "r".into(), payload: b"{}".to_vec() }
}

#[tokio::test(flavor = "multi_thread")]
async fn experiment_that_cannot_be_claimed_stops_no_other_and_is_reported_once() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("queue.db");
    let queue: Arc<dyn Queue> = Arc::new(SqliteQueue::open(&path).await.expect("a queue"));
    let database = rusqlite::Connection::open(&path).expect("the database");
    let trigger = "CREATE TRIGGER bad BEFORE UPDATE ON jobs WHEN NEW.experiment = 'bad'
        BEGIN SELECT RAISE(ABORT, 'refused'); END";
    database.execute_batch(trigger).expect("a trigger");
    for (name, id) in [("a.b", None), ("bad", Some("bad")), ("good", Some("good")), ("next", Some("next"))] {
        if let Some(id) = id {
            queue.enqueue(id, &[job("j")]).await.expect("a job");
        }
        queue.write_record(&format!("{EXPERIMENTS}.{name}"), &record(), 0).await.expect("a record");
    }
    let mut options = WorkerOptions::new("w");
    options.dir = Some(dir.path().join("worker"));
    options.isolate = Some(IsolationMethod::Copy);
    options.jobs = 1;
    let agentline = Agentline::new(HostEnv::new([].into(), dir.path(), dir.path()));
    let (stop, stopped) = watch::channel(BatchShutdown::None);
    let (send, mut events) = mpsc::unbounded_channel();
    let worker = {
        let queue = Arc::clone(&queue);
        tokio::spawn(async move { run_worker(&agentline, queue, options, stopped, send).await })
    };
    let (mut skipped, mut ended) = (Vec::new(), Vec::new());
    while ended.len() < 3 {
        let event = tokio::time::timeout(Duration::from_secs(120), events.recv()).await;
        match event.expect("in time").expect("a worker") {
            WorkerEvent::Skipped { experiment, reason } => {
                skipped.push((experiment, reason));
                // Further claims follow.
                queue.enqueue("good", &[job("later")]).await.expect("a job");
            }
            WorkerEvent::Dropped { run, .. } | WorkerEvent::Committed { run, .. } => {
                ended.push((run.experiment, run.case));
            }
            WorkerEvent::Unreachable(reason) => panic!("{reason}"),
            _ => {}
        }
    }
    stop.send(BatchShutdown::Immediate(agentline::Signal::Terminate)).expect("a worker");
    worker.await.expect("a task").expect("an end");
    ended.sort();
    let expected = [("good", "j"), ("good", "later"), ("next", "j")];
    assert_eq!(ended, expected.map(|(experiment, job)| (experiment.to_owned(), job.to_owned())));
    assert_eq!(skipped.len(), 1, "{skipped:?}");
    assert!(skipped[0].0 == "bad" && skipped[0].1.contains("refused"), "{skipped:?}");
}

#[test]
fn reservations_count_towards_the_limit_of_a_worker() {
    let policy = WorkerPolicy { max_cost_usd: Some(2.0), ..WorkerPolicy::default() };
    assert!(policy.allows_cost(1.9) && !policy.allows_cost(2.0));
    assert!(WorkerPolicy::default().allows_cost(1e9));
}
