//! Rows about leases.

use crate::stage::{LONG, QueueStage, SHORT, id};
use agentline_queue::{CommitResult, JobCounts, QueueError};
use agentline_tests::PATIENCE;
use std::time::{Duration, Instant};

pub(super) async fn ended_lease_is_claimed_again_with_a_larger_token(stage: QueueStage) {
    stage.enqueue(0..1).await;
    let start = Instant::now();
    let first = stage.claim(&stage.queue, SHORT).await.expect("a job");
    let second = stage.claim_later().await;
    assert!(start.elapsed() >= SHORT, "the lease ended after {:?}", start.elapsed());
    assert_eq!((second.job, second.payload, second.claims), (first.job, first.payload, 2));
    assert!(second.token > first.token, "{} and {}", first.token, second.token);
}

pub(super) async fn ended_lease_is_claimed_before_waiting_jobs(stage: QueueStage) {
    stage.enqueue(0..3).await;
    let ended = stage.claim(&stage.queue, SHORT).await.expect("a job");
    tokio::time::sleep(SHORT + SHORT / 2).await;
    assert_eq!(stage.claim(&stage.other, LONG).await.expect("a job").job, ended.job);
}

pub(super) async fn ended_lease_counts_as_waiting(stage: QueueStage) {
    stage.enqueue(0..4).await;
    let (done, held) = (stage.claim_one().await, stage.claim_one().await);
    stage.claim(&stage.queue, SHORT).await.expect("a job");
    stage.queue.commit(&done, b"done").await.expect("a commit");
    let until = Instant::now() + PATIENCE;
    let expected = JobCounts { waiting: 2, claimed: 1, finished: 1 };
    loop {
        let counts = stage.other.counts(&stage.name).await.expect("counts");
        if counts == expected {
            break;
        }
        assert!(Instant::now() < until, "{counts:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    stage.queue.release(&held).await.expect("a release");
}

pub(super) async fn renewed_lease_does_not_end(stage: QueueStage) {
    stage.enqueue(0..1).await;
    let lease = SHORT * 2;
    let mut first = stage.claim(&stage.queue, lease).await.expect("a job");
    let start = Instant::now();
    while start.elapsed() < lease * 2 {
        tokio::time::sleep(lease / 10).await;
        stage.queue.renew(&mut first, lease).await.expect("a lease");
        assert_eq!(stage.claim(&stage.other, LONG).await, None);
    }
    // A renewal may be shorter or longer than the first lease.
    stage.queue.renew(&mut first, SHORT / 2).await.expect("a lease");
    let second = stage.claim_later().await;
    assert_eq!(second.claims, 2);
    assert!(second.token > first.token);
}

pub(super) async fn stale_worker_changes_nothing(stage: QueueStage) {
    stage.enqueue(0..1).await;
    let mut stale = stage.claim(&stage.queue, SHORT).await.expect("a job");
    let mut current = stage.claim_later().await;
    let renewed = stage.queue.renew(&mut stale, LONG).await;
    assert!(matches!(renewed, Err(QueueError::LeaseLost)), "{renewed:?}");
    let released = stage.queue.release(&stale).await;
    assert!(matches!(released, Err(QueueError::LeaseLost)), "{released:?}");
    let committed = stage.queue.commit(&stale, b"stale").await;
    assert!(matches!(committed, Err(QueueError::LeaseLost)), "{committed:?}");
    assert_eq!(stage.results().await, []);

    stage.other.renew(&mut current, LONG).await.expect("a lease");
    let committed = stage.other.commit(&current, b"current").await.expect("a commit");
    assert_eq!(committed, CommitResult::Committed);
    assert_eq!(stage.queue.commit(&stale, b"stale").await.expect("an answer"), CommitResult::Duplicate);
    for lease in [&mut stale, &mut current] {
        let renewed = stage.queue.renew(lease, LONG).await;
        assert!(matches!(renewed, Err(QueueError::LeaseLost)), "{renewed:?}");
    }
    let results = stage.results().await;
    assert_eq!((results.len(), results[0].result.as_slice()), (1, b"current".as_slice()));
    assert_eq!(stage.claim(&stage.queue, LONG).await, None);
}

pub(super) async fn released_job_is_claimed_at_once_and_the_claim_does_not_count(stage: QueueStage) {
    stage.enqueue(0..1).await;
    let mut first = stage.claim_one().await;
    stage.queue.release(&first).await.expect("a release");
    let second = stage.claim(&stage.other, LONG).await.expect("the job");
    assert_eq!((second.job.as_str(), second.claims), (id(0).as_str(), 1));
    assert!(second.token > first.token);
    let renewed = stage.queue.renew(&mut first, Duration::from_secs(1)).await;
    assert!(matches!(renewed, Err(QueueError::LeaseLost)), "{renewed:?}");
    let committed = stage.queue.commit(&first, b"late").await;
    assert!(matches!(committed, Err(QueueError::LeaseLost)), "{committed:?}");
}
