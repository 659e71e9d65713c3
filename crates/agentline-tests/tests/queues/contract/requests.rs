//! Rows about jobs: enqueueing, claiming, counting, removing and waiting.

use crate::stage::{LONG, QueueStage, id, job};
use agentline_queue::{Cursor, Job, JobCounts, JobRoute, QueueError};
use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

pub(super) async fn enqueue_is_idempotent_and_keeps_the_order(stage: QueueStage) {
    assert_eq!(stage.enqueue(0..5).await, 5);
    let first = stage.claim_one().await;
    assert_eq!((first.job.as_str(), first.payload.as_slice()), (id(0).as_str(), b"payload 0".as_slice()));
    assert_eq!((first.experiment.as_str(), first.claims), (stage.name.as_str(), 1));
    stage.queue.commit(&first, b"done").await.expect("a commit");
    let second = stage.claim_one().await;
    // Neither a job with a result nor a claimed one becomes new.
    assert_eq!(stage.enqueue(0..7).await, 2);
    assert_eq!(stage.enqueue(0..7).await, 0);
    let mut claimed = vec![second.job];
    while let Some(lease) = stage.claim(&stage.other, LONG).await {
        claimed.push(lease.job);
    }
    assert_eq!(claimed, (1..7).map(id).collect::<Vec<_>>());
    let changed = Job { payload: b"other".to_vec(), ..job(0, "r") };
    assert_eq!(stage.other.enqueue(&stage.name, &[changed]).await.expect("an answer"), 0);
}

pub(super) async fn jobs_are_claimed_by_route(stage: QueueStage) {
    let jobs = [job(0, "a"), job(1, "b"), job(2, "a"), job(3, "c")];
    stage.queue.enqueue(&stage.name, &jobs).await.expect("new jobs");
    let claim = async |routes: &[&str]| {
        let routes: Vec<JobRoute> = routes.iter().map(|route| stage.route(route)).collect();
        stage.queue.claim(&routes, LONG).await.expect("an answer").map(|lease| lease.job)
    };
    assert_eq!(claim(&[]).await, None);
    assert_eq!(claim(&["unknown"]).await, None);
    assert_eq!(claim(&["b"]).await, Some(id(1)));
    assert_eq!(claim(&["b"]).await, None);
    assert_eq!(claim(&["a"]).await, Some(id(0)));
    let rest = [claim(&["c", "b", "a"]).await, claim(&["c", "b", "a"]).await];
    assert_eq!(BTreeSet::from(rest), BTreeSet::from([Some(id(2)), Some(id(3))]));
    assert_eq!(claim(&["c", "b", "a"]).await, None);
}

pub(super) async fn each_job_is_claimed_by_one_of_eight_workers(stage: QueueStage) {
    stage.enqueue(0..100).await;
    let worker = |number: usize| {
        let stage = stage.clone();
        tokio::spawn(async move {
            let queue = if number.is_multiple_of(2) { &stage.queue } else { &stage.other };
            let mut claimed = Vec::new();
            while let Some(lease) = stage.claim(queue, LONG).await {
                claimed.push(lease.job);
            }
            claimed
        })
    };
    let workers: Vec<_> = (0..8).map(worker).collect();
    let mut claimed = Vec::new();
    for worker in workers {
        claimed.extend(worker.await.expect("a worker"));
    }
    // A worker may find nothing while others hold the last jobs for a moment.
    while let Some(lease) = stage.claim(&stage.queue, LONG).await {
        claimed.push(lease.job);
    }
    claimed.sort();
    assert_eq!(claimed, (0..100).map(id).collect::<Vec<_>>());
}

pub(super) async fn counts_tell_the_state_of_jobs(stage: QueueStage) {
    let counts = async || stage.other.counts(&stage.name).await.expect("counts");
    assert_eq!(counts().await, JobCounts::default());
    stage.enqueue(0..5).await;
    assert_eq!(counts().await, JobCounts { waiting: 5, claimed: 0, finished: 0 });
    let first = stage.claim_one().await;
    let second = stage.claim_one().await;
    assert_eq!(counts().await, JobCounts { waiting: 3, claimed: 2, finished: 0 });
    stage.queue.commit(&first, b"done").await.expect("a commit");
    assert_eq!(counts().await, JobCounts { waiting: 3, claimed: 1, finished: 1 });
    stage.queue.release(&second).await.expect("a release");
    assert_eq!(counts().await, JobCounts { waiting: 4, claimed: 0, finished: 1 });
}

pub(super) async fn invalid_names_are_refused(stage: QueueStage) {
    let (queue, bad) = (&stage.queue, "a b");
    let (artifacts, digest) = (queue.artifacts(), "0".repeat(64));
    let jobs = |id: &str, route: &str| [Job { id: id.into(), route: route.into(), payload: Vec::new() }];
    let errors = [
        queue.enqueue(bad, &[job(0, "r")]).await.err(),
        queue.enqueue(&stage.name, &jobs("*", "r")).await.err(),
        queue.enqueue(&stage.name, &jobs("j", "r/s")).await.err(),
        queue.results(bad, &Cursor::default(), 1).await.err(),
        queue.counts("a/../b").await.err(),
        queue.remove("").await.err(),
        queue.record("a..b").await.err(),
        queue.records(">").await.err(),
        queue.write_record("x.", b"", 0).await.err(),
        queue.remove_record(bad).await.err(),
        artifacts.put(bad, b"x").await.err(),
        artifacts.get("../x", &digest).await.err(),
        artifacts.get(&stage.name, "../x").await.err(),
        artifacts.has(bad, &digest).await.err(),
        artifacts.names(bad).await.err(),
        artifacts.remove(bad, &digest).await.err(),
    ];
    for (number, error) in errors.iter().enumerate() {
        assert!(matches!(error, Some(QueueError::InvalidName(_))), "request {number}: {error:?}");
    }
    assert_eq!(queue.counts(&stage.name).await.expect("counts"), JobCounts::default());
}

pub(super) async fn experiments_do_not_see_each_other(stage: QueueStage) {
    let sibling = QueueStage { name: format!("{}-2", stage.name), ..stage.clone() };
    assert_eq!((stage.enqueue(0..2).await, sibling.enqueue(0..3).await), (2, 3));
    let (own, foreign) = (stage.claim_one().await, sibling.claim_one().await);
    assert_eq!((own.job, &foreign.experiment), (foreign.job.clone(), &sibling.name));
    sibling.queue.commit(&foreign, b"foreign").await.expect("a commit");
    assert_eq!(stage.results().await.len(), 0);
    assert_eq!(sibling.results().await.len(), 1);
    let counts = stage.queue.counts(&stage.name).await.expect("counts");
    assert_eq!(counts, JobCounts { waiting: 1, claimed: 1, finished: 0 });
    // A worker serves several experiments.
    let routes = [stage.route("r"), sibling.route("r")];
    let mut claimed = Vec::new();
    while let Some(lease) = stage.queue.claim(&routes, LONG).await.expect("an answer") {
        claimed.push((lease.experiment, lease.job));
    }
    claimed.sort();
    let (a, b) = (&stage.name, &sibling.name);
    assert_eq!(claimed, [(a.clone(), id(1)), (b.clone(), id(1)), (b.clone(), id(2))]);
}

pub(super) async fn removed_experiment_leaves_nothing(stage: QueueStage) {
    let sibling = QueueStage { name: format!("{}-2", stage.name), ..stage.clone() };
    sibling.enqueue(0..1).await;
    stage.enqueue(0..3).await;
    let (first, second) = (stage.claim_one().await, stage.claim_one().await);
    stage.queue.commit(&first, b"done").await.expect("a commit");
    let (artifacts, record) = (stage.queue.artifacts(), format!("{}.state", stage.name));
    let artifact = artifacts.put(&stage.name, b"content").await.expect("an artifact");
    artifacts.put(&sibling.name, b"content").await.expect("an artifact");
    stage.queue.write_record(&record, b"1", 0).await.expect("a record");

    stage.other.remove(&stage.name).await.expect("removed");
    stage.other.remove(&stage.name).await.expect("removing it again has no effect");
    assert_eq!(stage.queue.counts(&stage.name).await.expect("counts"), JobCounts::default());
    assert_eq!(stage.results().await, []);
    assert_eq!(artifacts.get(&stage.name, &artifact).await.expect("an answer"), None);
    assert!(artifacts.has(&sibling.name, &artifact).await.expect("an answer"));
    assert!(stage.queue.record(&record).await.expect("an answer").is_some());
    assert_eq!(sibling.claim_one().await.job, id(0));
    // A worker that still has a job of it cannot commit, even if there are new jobs with the same names.
    let late = stage.queue.commit(&second, b"late").await;
    assert!(matches!(late, Err(QueueError::LeaseLost)), "{late:?}");
    assert_eq!(stage.enqueue(0..3).await, 3);
    let late = stage.queue.commit(&second, b"late").await;
    assert!(matches!(late, Err(QueueError::LeaseLost)), "{late:?}");
    let lease = stage.claim_one().await;
    assert_eq!((lease.job, lease.claims), (id(0), 1));
}

pub(super) async fn large_experiment_is_removed_while_others_write(stage: QueueStage) {
    // More than one statement or transaction removes of each kind.
    const JOBS: usize = 1_100;
    let sibling = QueueStage { name: format!("{}-2", stage.name), ..stage.clone() };
    sibling.enqueue(0..1).await;
    let mut lease = sibling.claim_one().await;
    stage.enqueue(0..JOBS).await;
    let worker = |number: usize| {
        let stage = stage.clone();
        tokio::spawn(async move {
            let queue = if number.is_multiple_of(2) { &stage.queue } else { &stage.other };
            while let Some(lease) = stage.claim(queue, LONG).await {
                queue.commit(&lease, b"done").await.expect("a commit");
            }
        })
    };
    let workers: Vec<_> = (0..8).map(worker).collect();
    let artifacts = stage.queue.artifacts();
    for number in 0..70_u32 {
        artifacts.put(&stage.name, &number.to_le_bytes()).await.expect("an artifact");
    }
    for worker in workers {
        worker.await.expect("a worker");
    }
    let removal = tokio::spawn({
        let stage = stage.clone();
        async move { stage.other.remove(&stage.name).await }
    });
    stage.queue.renew(&mut lease, LONG).await.expect("a renewed lease");
    removal.await.expect("a task").expect("removed");
    assert_eq!(stage.queue.counts(&stage.name).await.expect("counts"), JobCounts::default());
    assert_eq!(stage.results().await, []);
    assert_eq!(artifacts.names(&stage.name).await.expect("names"), [""; 0]);
    sibling.queue.commit(&lease, b"done").await.expect("a commit");
}

pub(super) async fn large_payloads_and_results_are_kept(stage: QueueStage) {
    let bytes: Vec<u8> = (0..300_000_u32).map(|number| (number % 251) as u8).collect();
    let jobs = [Job { payload: bytes.clone(), ..job(0, "r") }, Job { payload: Vec::new(), ..job(1, "r") }];
    stage.queue.enqueue(&stage.name, &jobs).await.expect("new jobs");
    let (large, empty) = (stage.claim_one().await, stage.claim_one().await);
    assert!(large.payload == bytes && empty.payload.is_empty());
    stage.queue.commit(&large, &bytes).await.expect("a commit");
    stage.queue.commit(&empty, b"").await.expect("a commit");
    let results = stage.results().await;
    assert_eq!(results.len(), 2);
    assert!(results[0].result == bytes && results[1].result.is_empty());
}

pub(super) async fn wait_ends_when_something_changes(stage: QueueStage) {
    let limit = Duration::from_secs(60);
    stage.enqueue(0..2).await;
    let lease = stage.claim_one().await;
    // Changes of the rows before may still end one wait early.
    tokio::time::sleep(Duration::from_secs(2)).await;
    for change in ["job", "result", "release", "record"] {
        let (other, start) = (stage.other.clone(), Instant::now());
        let wait = tokio::spawn(async move { other.wait(limit).await });
        tokio::time::sleep(Duration::from_millis(200)).await;
        match change {
            "job" => drop(stage.enqueue(2..3).await),
            "result" => drop(stage.queue.commit(&lease, b"done").await.expect("a commit")),
            "release" => stage.queue.release(&stage.claim_one().await).await.expect("a release"),
            _ => drop(stage.queue.write_record(&stage.name, b"1", 0).await.expect("a record")),
        }
        wait.await.expect("a task").expect("a change");
        assert!(start.elapsed() < limit / 2, "{change} is noticed after {:?}", start.elapsed());
    }
    stage.other.wait(Duration::from_millis(10)).await.expect("the end of the time");
}
