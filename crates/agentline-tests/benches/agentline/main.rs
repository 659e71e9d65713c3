//! Measures the cost of agentline in one run: `cargo bench -p agentline-tests` (or with `-- decode`, `transport`,
//! `overhead`, `snapshot`, `isolation`, `pool`, `agents`, `batch`, `queues`, `queue-growth`, `host`, `promptfoo`, `acp`,
//! `serve`, `sessions`, `scanners` for one part). Each figure is next to its floor; compare ratios, not seconds.
#![expect(clippy::print_stdout, reason = "a benchmark prints its figures")]

mod acp;
mod agents;
#[cfg(target_os = "linux")]
mod batch;
mod decode;
mod host;
#[cfg(target_os = "linux")]
mod isolation;
mod overhead;
mod pool;
#[cfg(target_os = "linux")]
mod promptfoo;
#[cfg(target_os = "linux")]
mod queues;
mod scanners;
#[cfg(target_os = "linux")]
mod serve;
mod sessions;
mod snapshot;
mod transport;

/// One part: its name and function.
type Part = (&'static str, fn());

const PARTS: &[Part] = &[
    ("decode", decode::run),
    ("transport", transport::run),
    ("snapshot", snapshot::run),
    #[cfg(target_os = "linux")]
    ("isolation", isolation::run),
    ("overhead", overhead::run),
    ("pool", pool::run),
    ("agents", agents::run),
    #[cfg(target_os = "linux")]
    ("batch", batch::run),
    #[cfg(target_os = "linux")]
    ("queues", queues::run),
    #[cfg(target_os = "linux")]
    ("queue-growth", queues::run_growth),
    #[cfg(target_os = "linux")]
    ("promptfoo", promptfoo::run),
    ("host", host::run),
    ("acp", acp::run),
    #[cfg(target_os = "linux")]
    ("serve", serve::run),
    ("sessions", sessions::run),
    ("scanners", scanners::run),
];

fn main() {
    agentline::init();
    if let Ok(child) = std::env::var(transport::CHILD) {
        return match child.as_str() {
            pool::NAME => pool::main(),
            #[cfg(target_os = "linux")]
            serve::NAME => serve::child(),
            sessions::NAME => sessions::child(),
            #[cfg(target_os = "linux")]
            isolation::NAME => isolation::child(),
            other => transport::child(other),
        };
    }
    let selected: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
    for (name, part) in PARTS {
        if selected.is_empty() || selected.iter().any(|w| w == name) {
            println!("\n## {name}");
            part();
        }
    }
}

/// Returns the median of the values.
fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}
