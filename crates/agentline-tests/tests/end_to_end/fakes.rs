//! Tests the engine with fake agents: every fault, the process layer, the pool, the daemon and the host.

#[cfg(target_os = "linux")]
mod acp_faults;
#[cfg(target_os = "linux")]
mod faults;
#[cfg(target_os = "linux")]
mod host;
#[cfg(target_os = "linux")]
mod mcp;
#[cfg(target_os = "linux")]
mod own_agent;
#[cfg(target_os = "linux")]
mod pool;
#[cfg(target_os = "linux")]
mod pool_daemon;
#[cfg(target_os = "linux")]
mod process;
#[cfg(target_os = "linux")]
mod profiles;
#[cfg(target_os = "linux")]
mod retry;
#[cfg(target_os = "linux")]
mod sessions;
#[cfg(target_os = "linux")]
mod tracing;

/// Checks that every fault has one row and every row has a fault.
#[cfg(target_os = "linux")]
#[track_caller]
fn assert_same_names<'a>(faults: impl Iterator<Item = &'a str>, rows: impl Iterator<Item = &'a str>) {
    let (mut faults, mut rows): (Vec<_>, Vec<_>) = (faults.collect(), rows.collect());
    faults.sort_unstable();
    rows.sort_unstable();
    assert_eq!(rows, faults, "a fault without a row, with two rows, or a row without a fault");
}
