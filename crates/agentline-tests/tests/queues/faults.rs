//! Jobs have exactly one result while workers, servers and connections fail.

use agentline_tests::{
    engines::EngineKind,
    queue_faults::{FaultPlan, run_with_faults},
};
use std::{path::Path, time::Duration};

const WORKER: &str = env!("CARGO_BIN_EXE_queue-worker");

async fn check(kind: EngineKind) {
    let plan = FaultPlan {
        jobs: 2_000,
        workers: 4,
        slots: 2,
        lease: Duration::from_secs(2),
        longest_work: Duration::from_millis(20),
        longest_pause: Duration::from_millis(600),
        seed: 1,
        limit: Duration::from_secs(120),
    };
    let Some(report) = run_with_faults(kind, Path::new(WORKER), &plan).await else { return };
    assert_eq!(report.problems(plan.lease), [""; 0], "{report:?}");
    assert!(report.kills > 0 && report.stops > 0 && report.reclaims > 0, "{report:?}");
    let has_server = kind != EngineKind::Sqlite;
    assert_eq!((report.restarts > 0, report.cuts > 0), (has_server, has_server), "{report:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn sqlite_commits_one_result_of_each_job() {
    check(EngineKind::Sqlite).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nats_commits_one_result_of_each_job() {
    check(EngineKind::Nats).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn postgres_commits_one_result_of_each_job() {
    check(EngineKind::Postgres).await;
}
