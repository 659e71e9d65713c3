//! Tests of a worker with a queue in a file.

use super::*;
use crate::distributed::spec::{CostLimit, EXPERIMENTS, Requirements};
use agentline::HostEnv;
use agentline_queue::{Job, SqliteQueue, TreeRef};

/// Returns the record of an experiment whose jobs have these requirements.
fn record(requirements: &Requirements) -> Vec<u8> {
    let record = ExperimentRecord {
        format: FORMAT,
        name: "s".into(),
        state: ExperimentState::Running,
        submitted_ms: 1,
        jobs: 1,
        routes: BTreeMap::from([("r".to_owned(), requirements.clone())]),
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

/// A worker in the background.
struct RunningWorker {
    stop: watch::Sender<BatchShutdown>,
    events: mpsc::UnboundedReceiver<WorkerEvent>,
    task: tokio::task::JoinHandle<Result<(), DistributedError>>,
}

impl RunningWorker {
    /// Waits for the end of a run, and returns its experiment.
    async fn ended(&mut self) -> String {
        loop {
            let event = tokio::time::timeout(Duration::from_secs(120), self.events.recv()).await;
            if let WorkerEvent::Dropped { run, .. } | WorkerEvent::Committed { run, .. } =
                event.expect("in time").expect("a worker")
            {
                return run.experiment;
            }
        }
    }
}

/// Starts a worker with one slot.
fn start(dir: &std::path::Path, name: &str, queue: &Arc<dyn Queue>, policy: WorkerPolicy) -> RunningWorker {
    let mut options = WorkerOptions::new(name);
    options.dir = Some(dir.join(name));
    options.isolate = Some(IsolationMethod::Copy);
    options.jobs = 1;
    options.policy = policy;
    let agentline = Agentline::new(HostEnv::new([].into(), dir, dir));
    let (stop, stopped) = watch::channel(BatchShutdown::None);
    let (send, events) = mpsc::unbounded_channel();
    let queue = Arc::clone(queue);
    let task = tokio::spawn(async move { run_worker(&agentline, queue, options, stopped, send).await });
    RunningWorker { stop, events, task }
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
        queue
            .write_record(&format!("{EXPERIMENTS}.{name}"), &record(&Requirements::default()), 0)
            .await
            .expect("a record");
    }
    let RunningWorker { stop, mut events, task } = start(dir.path(), "w", &queue, WorkerPolicy::default());
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
    task.await.expect("a task").expect("an end");
    ended.sort();
    let expected = [("good", "j"), ("good", "later"), ("next", "j")];
    assert_eq!(ended, expected.map(|(experiment, job)| (experiment.to_owned(), job.to_owned())));
    assert_eq!(skipped.len(), 1, "{skipped:?}");
    assert!(skipped[0].0 == "bad" && skipped[0].1.contains("refused"), "{skipped:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn worker_with_a_limited_mode_leaves_jobs_that_may_go_beyond_it() {
    let dir = tempfile::tempdir().expect("a directory");
    let queue = SqliteQueue::open(&dir.path().join("queue.db")).await.expect("a queue");
    let queue: Arc<dyn Queue> = Arc::new(queue);
    let beyond = Requirements { is_beyond_modes: true, ..Requirements::default() };
    for (id, requirements) in [("beyond", beyond), ("good", Requirements::default())] {
        queue.enqueue(id, &[job("j")]).await.expect("a job");
        let name = format!("{EXPERIMENTS}.{id}");
        queue.write_record(&name, &record(&requirements), 0).await.expect("a record");
    }
    let policy =
        WorkerPolicy { max_mode: Some(agentline::PermissionMode::AcceptEdits), ..WorkerPolicy::default() };
    let mut limited = start(dir.path(), "limited", &queue, policy);
    assert_eq!(limited.ended().await, "good");
    limited.stop.send(BatchShutdown::Immediate(agentline::Signal::Terminate)).expect("a worker");
    limited.task.await.expect("a task").expect("an end");
    let counts = queue.counts("beyond").await.expect("counts");
    assert_eq!((counts.waiting, counts.finished), (1, 0));
    let mut any = start(dir.path(), "any", &queue, WorkerPolicy::default());
    assert_eq!(any.ended().await, "beyond");
    any.stop.send(BatchShutdown::Immediate(agentline::Signal::Terminate)).expect("a worker");
    any.task.await.expect("a task").expect("an end");
}

#[test]
fn reservations_count_towards_the_limit_of_a_worker() {
    let policy = WorkerPolicy { max_cost_usd: Some(2.0), ..WorkerPolicy::default() };
    assert!(policy.allows_cost(1.9) && !policy.allows_cost(2.0));
    assert!(WorkerPolicy::default().allows_cost(1e9));
}

/// Returns a job with this case and variant of an artifact.
fn job_of(id: &str, pack: &str, case: usize, variant: usize) -> Job {
    let payload = serde_json::json!({"pack": pack, "case": case, "variant": variant, "attempt": 1, "reserve_micros": null});
    Job { id: id.into(), route: "r".into(), payload: payload.to_string().into_bytes() }
}

#[tokio::test(flavor = "multi_thread")]
async fn job_that_is_not_executed_has_a_result_with_its_names_and_its_class() {
    let dir = tempfile::tempdir().expect("a directory");
    let queue = SqliteQueue::open(&dir.path().join("queue.db")).await.expect("a queue");
    let queue: Arc<dyn Queue> = Arc::new(queue);
    let case = |id: &str, check: &str| {
        serde_json::json!({
            "id": id, "prompts": ["x", "x"], "settings": [{}, {}], "workspace": null, "hidden": [], "setup": [],
            "teardown": [], "checks": [{check: "x"}], "source": "suite.yaml:1", "repeatable": [true, false],
        })
    };
    let pack = serde_json::json!({
        "cases": [case("good", "contains"), case("bad", "no such check")], "variants": ["one", "two"],
        "classes": {"interrupted": "failed"}, "requests": {},
    });
    let pack = pack.to_string();
    // Workers are lost with the first two.
    let jobs = [("poison", 0, 0, 3), ("effects", 0, 1, 3), ("broken", 1, 1, 0)];
    for (id, case, variant, claims) in jobs {
        // Each has an experiment, because lost jobs are claimed before others.
        let name = queue.artifacts().put(id, pack.as_bytes()).await.expect("an artifact");
        queue.enqueue(id, &[job_of(id, &name, case, variant)]).await.expect("a job");
        let route = [JobRoute { experiment: id.into(), route: "r".into() }];
        for _ in 0..claims {
            let lease = queue.claim(&route, Duration::from_millis(1)).await.expect("an answer");
            assert!(lease.is_some());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let name = format!("{EXPERIMENTS}.{id}");
        queue.write_record(&name, &record(&Requirements::default()), 0).await.expect("a record");
    }
    let mut worker = start(dir.path(), "w", &queue, WorkerPolicy::default());
    for _ in jobs {
        worker.ended().await;
    }
    worker.stop.send(BatchShutdown::Immediate(agentline::Signal::Terminate)).expect("a worker");
    worker.task.await.expect("a task").expect("an end");
    let mut stored = Vec::new();
    for (id, ..) in jobs {
        let page = queue.results(id, &agentline_queue::Cursor::default(), 10).await.expect("results");
        stored.extend(page.results);
        let (budget, _) = crate::distributed::budget::read(&*queue, id).await.expect("a budget");
        assert_eq!(budget.duplicates, 0, "{id}");
    }
    let facts = |id: &str| {
        let stored = stored.iter().find(|stored| stored.job == id).expect("a result");
        let result: serde_json::Value = serde_json::from_slice(&stored.result).expect("JSON");
        let result = &result["result"];
        let text = |key: &str| result[key].as_str().unwrap_or_default().to_owned();
        assert_eq!(result["attempt"], 1);
        (text("case"), text("variant"), text("class"), text("kind"), text("message"))
    };
    let expect = |id: &str, expected: [&str; 4], message: &str| {
        let (case, variant, class, kind, found) = facts(id);
        assert_eq!([&*case, &*variant, &*class, &*kind], expected, "{id}: {found}");
        assert!(found.contains(message), "{found}");
    };
    expect("poison", ["good", "one", "infrastructure", ""], "claimed 3 times");
    expect("effects", ["good", "two", "failed", "interrupted"], "not repeatable");
    expect("broken", ["bad", "two", "infrastructure", ""], "a check");
}
