//! What every queue promises: each row is a test that runs on all engines.

mod artifacts;
mod leases;
mod records;
mod requests;
mod results;

use crate::stage::QueueStage;
use agentline_tests::engines::{Engine, EngineKind};
use std::{fmt::Write as _, pin::Pin};

/// A test that runs on every engine.
type Row = (&'static str, fn(QueueStage) -> Pin<Box<dyn Future<Output = ()> + Send>>);

macro_rules! rows {
    ($($module:ident::$row:ident,)*) => {
        &[$((stringify!($row), |stage| Box::pin($module::$row(stage)))),*]
    };
}

/// Rows that run at the same time, each in its own experiment.
const ROWS: &[Row] = rows![
    requests::enqueue_is_idempotent_and_keeps_the_order,
    requests::jobs_are_claimed_by_route,
    requests::each_job_is_claimed_by_one_of_eight_workers,
    requests::counts_tell_the_state_of_jobs,
    requests::invalid_names_are_refused,
    requests::experiments_do_not_see_each_other,
    requests::removed_experiment_leaves_nothing,
    requests::large_experiment_is_removed_while_others_write,
    requests::large_payloads_and_results_are_kept,
    leases::ended_lease_is_claimed_again_with_a_larger_token,
    leases::renewed_lease_does_not_end,
    leases::stale_worker_changes_nothing,
    leases::released_job_is_claimed_at_once_and_the_claim_does_not_count,
    leases::ended_lease_is_claimed_before_waiting_jobs,
    leases::ended_lease_counts_as_waiting,
    results::repeated_commit_succeeds_and_another_is_a_duplicate,
    results::each_result_is_in_one_page_while_eight_workers_commit,
    results::concurrent_commits_of_one_lease_store_one_result,
    records::stale_revision_is_a_conflict,
    records::eight_writers_lose_no_increment,
    records::records_are_found_by_prefix,
    records::age_of_a_record_is_the_time_since_its_last_change,
    artifacts::artifacts_are_stored_by_content,
    artifacts::large_artifacts_are_stored_and_larger_ones_refused,
];

/// Rows that must not see the changes of others.
const ALONE: &[Row] = rows![requests::wait_ends_when_something_changes,];

/// Runs all rows on an engine, and reports all that fail.
async fn check(kind: EngineKind) {
    let Some(engine) = Engine::start(kind).await else { return };
    let mut failures = String::new();
    let mut running = Vec::new();
    for (name, row) in ROWS {
        let stage = QueueStage::connect(&engine, name).await;
        running.push((name, tokio::spawn(row(stage))));
    }
    for (name, task) in running {
        if let Err(error) = task.await {
            let _ = writeln!(failures, "{name}: {error}");
        }
    }
    for (name, row) in ALONE {
        let stage = QueueStage::connect(&engine, name).await;
        if let Err(error) = tokio::spawn(row(stage)).await {
            let _ = writeln!(failures, "{name}: {error}");
        }
    }
    assert!(failures.is_empty(), "{kind:?}:\n{failures}");
}

#[tokio::test(flavor = "multi_thread")]
async fn sqlite_keeps_the_contract() {
    check(EngineKind::Sqlite).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nats_keeps_the_contract() {
    check(EngineKind::Nats).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn oldest_nats_keeps_the_contract() {
    check(EngineKind::OldestNats).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn postgres_keeps_the_contract() {
    check(EngineKind::Postgres).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn oldest_postgres_keeps_the_contract() {
    check(EngineKind::OldestPostgres).await;
}
