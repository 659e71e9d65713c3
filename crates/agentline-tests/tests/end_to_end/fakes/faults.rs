//! Tests every fault of the fake agent through the library: the correct verdict in time, one outcome, all readable
//! output reported, nothing left running and no secret shown.

mod expect;
mod hosts;
mod large_output;
pub(crate) mod stage;
mod table;

use crate::fakes::assert_same_names;
use agentline::Surface;
use agentline_fakes::fake_agent::{EXIT_CODES, FAULTS};
use expect::{Row, both, ends};
use serde_json::json;
use std::sync::Arc;
use table::EXITS;
use tokio::sync::Semaphore;

/// Plays this many rows at a time.
fn play(rows: Vec<Row>, surface: Surface, at_once: usize) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let room = Arc::new(Semaphore::new(at_once));
        let tasks: Vec<_> = rows
            .into_iter()
            .map(|row| {
                let room = Arc::clone(&room);
                tokio::spawn(async move {
                    let _turn = room.acquire().await.expect("the semaphore is never closed");
                    row.play(surface).await;
                })
            })
            .collect();
        for task in tasks {
            if let Err(panic) = task.await {
                std::panic::resume_unwind(panic.into_panic());
            }
        }
    });
}

/// One test per topic and surface, so that they run in parallel.
macro_rules! themes {
    ($($name:ident: $rows:ident, $at_once:literal;)*) => {
        $(mod $name {
            use super::*;

            #[test]
            fn on_stream_json() {
                play(table::$rows(), Surface::StreamJson, $at_once);
            }

            #[test]
            fn on_json() {
                play(table::$rows(), Surface::Json, $at_once);
            }
        })*

        fn table() -> Vec<Row> {
            let mut rows = Vec::new();
            $(rows.extend(table::$rows());)*
            rows
        }
    };
}

themes! {
    hanging: hangs, 20;
    bytes_and_lines: lines, 2;
    shapes_of_events: shapes, 3;
    order_of_events: order, 3;
    ends: ends_of_runs, 3;
    standard_streams: streams, 10;
    standard_error: complaints, 1;
    floods_after_a_signal: floods, 1;
    processes: processes, 4;
    secrets: secrets, 3;
    workspaces: workspaces, 2;
}

#[test]
fn every_fault_has_one_row() {
    assert_same_names(FAULTS.iter().map(|fault| fault.name), table().iter().map(|row| row.fault));
}

#[test]
fn every_exit_code_is_classified() {
    let codes: Vec<u8> = EXITS.iter().map(|row| row.0).collect();
    assert_eq!(codes, EXIT_CODES);
    for fault in ["exit_code", "exit_code_after_text"] {
        let rows = EXITS.iter().map(|(code, verdict, kind)| {
            both(fault, ends(*verdict, *kind).any_text()).args(json!({"code": code}))
        });
        play(rows.collect(), Surface::StreamJson, 3);
    }
    let rows = EXITS
        .iter()
        .map(|(code, verdict, kind)| both("exit_code", ends(*verdict, *kind)).args(json!({"code": code})));
    play(rows.collect(), Surface::Json, 3);
}
