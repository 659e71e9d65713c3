//! Helpers for the end-to-end tests: the real agents, test environments with their own home and scripted model, and a
//! search for remaining processes.

mod acp_agents;
mod acp_sdk;
#[cfg(target_os = "linux")]
mod acpx;
mod axe;
mod browser;
mod ccusage;
mod claude_sdk;
#[cfg(target_os = "linux")]
pub mod endings;
#[cfg(target_os = "linux")]
pub mod engines;
mod fake_registry;
mod fake_stage;
mod host_program;
mod image;
#[cfg(target_os = "linux")]
pub mod kills;
#[cfg(target_os = "linux")]
mod network_namespace;
mod npm;
mod os;
mod own_process;
mod paths;
#[cfg(target_os = "linux")]
mod process_case;
#[cfg(target_os = "linux")]
mod promptfoo;
mod python;
#[cfg(target_os = "linux")]
pub mod queue_faults;
mod real;
mod real_slots;
mod run_record;
pub mod scanners;
mod scripted_stage;
pub mod session_store;
mod stage;
pub mod tapes;
mod typescript;
mod wait;
mod watchdog;

#[cfg(target_os = "linux")]
pub use acp_agents::{
    AcpAgent, AcpStage, OPENCODE_MODEL, example_agent, real_claude, real_claude_acp, real_codex,
    real_codex_acp, real_opencode,
};
pub use acp_sdk::AcpSdk;
#[cfg(target_os = "linux")]
pub use acpx::acpx;
use agentline::Outcome;
pub use axe::axe_core;
pub use browser::{Browser, has_browser};
pub use ccusage::ccusage_program;
pub use claude_sdk::ClaudeSdk;
pub use fake_registry::FakeRegistry;
pub use fake_stage::FakeStage;
pub use host_program::{HostProgram, common, kill_amid_runs};
pub use image::DOT_PNG;
#[cfg(target_os = "linux")]
pub use network_namespace::in_network_namespace;
#[cfg(unix)]
pub use os::unread_bytes;
pub use os::{cpu_time, ignore_interrupts, restore_signals};
pub use own_process::is_own_process;
pub use paths::paths_below;
#[cfg(target_os = "linux")]
pub use process_case::ProcessCase;
#[cfg(target_os = "linux")]
pub use promptfoo::{Evaluated, InstalledPromptfoo, PROVIDER};
pub use python::Python;
pub use real::{are_disabled, real_gemini, skipped};
pub use real_slots::RealSlot;
pub use run_record::RunRecord;
pub use scripted_stage::ScriptedStage;
pub use stage::{MODEL, TestStage};
pub use typescript::TypeScript;
pub use wait::{PATIENCE, exit_of, output_of, wait_in_runtime, wait_until};
pub use watchdog::Watchdog;

/// Formats an outcome for a failed assertion.
///
/// # Panics
/// Never panics, because an outcome can always be serialized.
#[must_use]
pub fn shown(outcome: &Outcome) -> String {
    serde_json::to_string_pretty(outcome).expect("an outcome is JSON")
}

/// Turns a directory into a Git repository whose settings run a command at `git status`.
///
/// # Panics
/// Panics if Git is not installed.
pub fn hostile_repository(folder: &std::path::Path, command: &str) {
    let git = |args: &[&str]| {
        let run = std::process::Command::new("git").arg("-C").arg(folder).args(args).output();
        assert!(run.is_ok_and(|output| output.status.success()), "git {args:?}");
    };
    git(&["init", "--quiet"]);
    git(&["config", "core.fsmonitor", &format!("{command}; false")]);
}

/// Copies a program. Another process does it: a child that another test starts meanwhile would inherit this process's file,
/// and a program that is open for writing cannot be started.
///
/// # Panics
/// Panics if it cannot be copied.
pub fn copy_program(from: impl AsRef<std::path::Path>, to: &std::path::Path) {
    let done = std::process::Command::new("cp").arg(from.as_ref()).arg(to).status();
    assert!(done.is_ok_and(|status| status.success()), "cp to {}", to.display());
}

/// Returns live processes with this mark in their environment.
#[cfg(target_os = "linux")]
#[must_use]
pub fn survivors(mark: &str) -> Vec<u32> {
    let is_zombie = |pid: &u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('Z'))
    };
    processes_with("environ", mark).filter(|pid| !is_zombie(pid)).collect()
}

/// Returns digits that no other test uses, to recognize the commands of one test.
#[must_use]
pub fn unique_tag() -> String {
    static COUNT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let count = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    format!("{:08}{count:05}", std::process::id())
}

/// Returns live processes with this text on their command line, in any environment and pid namespace.
#[cfg(target_os = "linux")]
#[must_use]
pub fn running_with(text: &str) -> Vec<u32> {
    // A dead process has an empty command line.
    processes_with("cmdline", text).filter(|pid| *pid != std::process::id()).collect()
}

/// Returns the processes that have this text in a file of their directory below `/proc`.
#[cfg(target_os = "linux")]
fn processes_with(file: &str, text: &str) -> impl Iterator<Item = u32> {
    let text = memchr::memmem::Finder::new(text).into_owned();
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_string_lossy().parse::<u32>().ok());
    pids.filter(move |pid| {
        let content = std::fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
        text.find(&content).is_some()
    })
}

/// Compiles the examples of the documentation.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/providers.md")]
struct ProvidersDocument;
