//! Tests the engine with fake agents: every fault, the process layer, the pool, the daemon and the host.

#[cfg(target_os = "linux")]
mod acp_faults;
#[cfg(target_os = "linux")]
mod faults;
#[cfg(target_os = "linux")]
mod host;
#[cfg(target_os = "linux")]
mod own_agent;
#[cfg(target_os = "linux")]
mod pool;
#[cfg(target_os = "linux")]
mod pool_daemon;
#[cfg(target_os = "linux")]
mod process;
#[cfg(target_os = "linux")]
mod retry;
#[cfg(target_os = "linux")]
mod sessions;
#[cfg(target_os = "linux")]
mod tracing;
