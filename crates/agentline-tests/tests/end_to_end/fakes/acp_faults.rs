//! Tests every fault of the fake ACP agent through the library: the correct verdict in time, one outcome, an identical
//! replay of its tape, a conversation that continues if possible, a pool that replaces dead processes, and nothing left
//! running.

mod cancellation;
mod expect;
mod hosts;
mod loaded_sessions;
mod shared_process;
mod stage;
mod table;

use crate::fakes::assert_same_names;
use agentline_fakes::fake_acp::FAULTS;
use expect::AcpRow;
use std::sync::Arc;
use tokio::sync::Semaphore;

/// Plays this many rows at a time.
fn play(rows: Vec<AcpRow>, at_once: usize) {
    let only = std::env::var("AGENTLINE_TEST_FAULT").ok();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let room = Arc::new(Semaphore::new(at_once));
        let rows = rows.into_iter().filter(|row| only.as_deref().is_none_or(|only| only == row.fault));
        let tasks: Vec<_> = rows
            .map(|row| {
                let room = Arc::clone(&room);
                tokio::spawn(async move {
                    let _turn = room.acquire().await.expect("the semaphore is never closed");
                    row.play().await;
                })
            })
            .collect();
        let mut broken = 0;
        for task in tasks {
            broken += u32::from(task.await.is_err());
        }
        assert_eq!(broken, 0, "some rows have unexpected results; see above");
    });
}

/// One test per topic, so that they run in parallel.
macro_rules! themes {
    ($($name:ident: $at_once:literal;)*) => {
        $(#[test]
        fn $name() {
            play(table::$name(), $at_once);
        })*

        fn table() -> Vec<AcpRow> {
            let mut rows = Vec::new();
            $(rows.extend(table::$name());)*
            rows
        }
    };
}

themes! {
    start: 4;
    sessions: 3;
    lines: 2;
    updates: 3;
    tools: 3;
    requests: 3;
    answers: 3;
    cancels: 4;
    process: 4;
}

#[test]
fn every_fault_has_one_row() {
    assert_same_names(FAULTS.iter().map(|fault| fault.name), table().iter().map(|row| row.fault));
}
