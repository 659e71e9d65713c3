//! A worker whose agent is a pause, for tests of queues. See `queue_faults::worker`.

#[cfg(target_os = "linux")]
fn main() {
    agentline_tests::queue_faults::worker::main();
}

#[cfg(not(target_os = "linux"))]
fn main() {}
