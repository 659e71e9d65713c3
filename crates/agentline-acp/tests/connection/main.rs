//! Tests of an ACP server over a transport in memory, with the fake ACP agent.
//!
//! This program is the tests, the fake agent and the supervisor of the agents, so it has its own `main`.

mod client;
mod hostile;
mod protocol;
mod proxied;
mod reconnected;
mod translated;

use std::{process::ExitCode, time::Instant};

/// A test with its name.
type Test = (&'static str, fn());

fn main() -> ExitCode {
    agentline::init();
    let first = std::env::args().nth(1).unwrap_or_default();
    if first == client::AS_AGENT || first == "--fake-acp-shell" {
        return ExitCode::from(agentline_fakes::fake_acp::main());
    }
    let tests =
        [hostile::TESTS, protocol::TESTS, proxied::TESTS, reconnected::TESTS, translated::TESTS].concat();
    if std::env::args().any(|arg| arg == "--list") {
        return ExitCode::SUCCESS;
    }
    let filter = Some(first).filter(|first| !first.is_empty() && !first.starts_with('-'));
    let mut failed = 0;
    for (name, test) in
        tests.iter().filter(|(name, _)| filter.as_ref().is_none_or(|part| name.contains(part)))
    {
        let began = Instant::now();
        let passed = std::panic::catch_unwind(test).is_ok();
        failed += u8::from(!passed);
        client::report(&format!(
            "test {name} ... {} ({:?})",
            if passed { "ok" } else { "FAILED" },
            began.elapsed()
        ));
    }
    ExitCode::from(failed)
}
