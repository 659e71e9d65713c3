//! Rows about results.

use crate::stage::{LONG, QueueStage, id};
use agentline_queue::{CommitResult, Cursor};
use agentline_tests::PATIENCE;
use std::time::{Duration, Instant};

pub(super) async fn repeated_commit_succeeds_and_another_is_a_duplicate(stage: QueueStage) {
    stage.enqueue(0..1).await;
    let lease = stage.claim_one().await;
    // The answer to the first commit may be lost, and the second may arrive on another connection.
    for queue in [&stage.queue, &stage.queue, &stage.other] {
        let committed = queue.commit(&lease, b"result").await.expect("an answer");
        assert_eq!(committed, CommitResult::Committed);
    }
    let committed = stage.queue.commit(&lease, b"another result").await.expect("an answer");
    assert_eq!(committed, CommitResult::Duplicate);
    let results = stage.results().await;
    assert_eq!((results.len(), results[0].result.as_slice()), (1, b"result".as_slice()));
}

pub(super) async fn concurrent_commits_of_one_lease_store_one_result(stage: QueueStage) {
    stage.enqueue(0..1).await;
    let lease = stage.claim_one().await;
    let commit = |number: usize| {
        let (stage, lease) = (stage.clone(), lease.clone());
        tokio::spawn(async move {
            let queue = if number.is_multiple_of(2) { &stage.queue } else { &stage.other };
            queue.commit(&lease, format!("result {number}").as_bytes()).await.expect("an answer")
        })
    };
    let commits: Vec<_> = (0..8).map(commit).collect();
    let mut committed = 0;
    for commit in commits {
        committed += usize::from(commit.await.expect("a task") == CommitResult::Committed);
    }
    assert_eq!((committed, stage.results().await.len()), (1, 1));
}

pub(super) async fn each_result_is_in_one_page_while_eight_workers_commit(stage: QueueStage) {
    const JOBS: usize = 200;
    stage.enqueue(0..JOBS).await;
    let worker = |number: usize| {
        let stage = stage.clone();
        tokio::spawn(async move {
            let queue = if number.is_multiple_of(2) { &stage.queue } else { &stage.other };
            while let Some(lease) = stage.claim(queue, LONG).await {
                let committed = queue.commit(&lease, lease.job.as_bytes()).await.expect("an answer");
                assert_eq!(committed, CommitResult::Committed);
            }
        })
    };
    let workers: Vec<_> = (0..8).map(worker).collect();
    let (mut read, mut cursor) = (Vec::new(), Cursor::default());
    let until = Instant::now() + PATIENCE;
    while read.len() < JOBS {
        let page = stage.other.results(&stage.name, &cursor, 7).await.expect("a page");
        assert!(page.results.len() <= 7);
        if page.results.is_empty() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        for result in page.results {
            assert_eq!(result.job.as_bytes(), result.result);
            read.push(result.job);
        }
        cursor = page.next;
        assert!(Instant::now() < until, "read {} of {JOBS} results", read.len());
    }
    for worker in workers {
        worker.await.expect("a worker");
    }
    let end = stage.other.results(&stage.name, &cursor, 7).await.expect("a page");
    assert_eq!((end.results, end.next), (Vec::new(), cursor));
    // The order of the results does not change.
    let again: Vec<_> = stage.results().await.into_iter().map(|result| result.job).collect();
    assert_eq!(read, again);
    read.sort();
    assert_eq!(read, (0..JOBS).map(id).collect::<Vec<_>>());
}
