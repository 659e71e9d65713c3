//! Tests the server over HTTP with a fake agent. This program is also that agent, and a server that tests kill.
//!
//! `cargo test -p agentline-serve --test http` runs all tests; a name selects some.
#![expect(clippy::print_stdout, reason = "the results of the tests")]
#![expect(clippy::unwrap_used, reason = "test helpers may panic")]

mod acp;
mod acp_client;
mod acp_kept;
mod attacks;
mod client;
mod clients;
mod contract;
mod fuzz;
mod fuzz_acp;
mod limits;
mod restarts;
mod runs;
mod saved;
mod stage;
mod tls;

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    process::ExitCode,
    time::{Duration, Instant},
};

/// A test: its name and function.
type Test = (&'static str, fn());

/// The time after which a test is stuck. Far above the time of any test, also on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

const TESTS: &[&[Test]] = &[
    runs::TESTS,
    limits::TESTS,
    acp::TESTS,
    acp_kept::TESTS,
    attacks::TESTS,
    tls::TESTS,
    restarts::TESTS,
    clients::TESTS,
    contract::TESTS,
    fuzz::TESTS,
    fuzz_acp::TESTS,
];

fn main() -> ExitCode {
    if std::env::var_os(stage::AGENT).is_some() {
        return agentline_fakes::fake_acp::main().into();
    }
    agentline::init();
    if let Some(dir) = std::env::var_os(stage::SERVER) {
        stage::serve_until_killed(dir.as_ref());
        return ExitCode::SUCCESS;
    }
    let filters: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    let mut failed = Vec::new();
    let mut passed = 0;
    for (name, test) in TESTS.iter().copied().flatten() {
        if !filters.is_empty() && !filters.iter().any(|filter| name.contains(filter.as_str())) {
            continue;
        }
        let started = Instant::now();
        let result = catch_unwind(AssertUnwindSafe(test));
        let word = if result.is_ok() { "ok" } else { "FAILED" };
        println!("test {name} ... {word} ({:.1} s)", started.elapsed().as_secs_f64());
        if result.is_ok() { passed += 1 } else { failed.push(*name) }
    }
    println!("{passed} passed, {} failed {failed:?}", failed.len());
    if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs a test in a runtime, with a limit.
fn run<F: Future<Output = ()>>(test: F) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(PATIENCE, test).await.expect("the test is stuck") });
    runtime.shutdown_background();
}
