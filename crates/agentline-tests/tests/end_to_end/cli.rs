//! Tests the command-line tool as its users see it: arguments, output on each stream, and the exit code.

#![expect(clippy::unwrap_used, reason = "test helpers may panic")]

mod batch;
mod batch_effects;
#[cfg(target_os = "linux")]
mod batch_files;
mod batch_results;
#[cfg(target_os = "linux")]
mod batch_safety;
mod commands;
#[cfg(unix)]
mod compare;
mod conformance;
mod demo;
mod docs;
#[cfg(target_os = "linux")]
mod example_suite;
#[cfg(target_os = "linux")]
mod fleet;
#[cfg(target_os = "linux")]
mod fleet_agents;
#[cfg(target_os = "linux")]
mod fleet_artifacts;
#[cfg(target_os = "linux")]
mod fleet_budget;
#[cfg(target_os = "linux")]
mod fleet_examples;
#[cfg(target_os = "linux")]
mod fleet_faults;
#[cfg(target_os = "linux")]
mod fleet_policy;
#[cfg(target_os = "linux")]
mod fleet_results;
#[cfg(unix)]
mod install;
#[cfg(unix)]
mod isolated;
mod outputs;
#[cfg(target_os = "linux")]
mod overlay;
#[cfg(target_os = "linux")]
mod page;
#[cfg(unix)]
mod permission_prompt;
#[cfg(unix)]
mod policy;
#[cfg(target_os = "linux")]
mod relay;
mod replay;
#[cfg(target_os = "linux")]
mod report_pictures;
mod run;
mod serve;
#[cfg(target_os = "linux")]
mod serve_continued;
#[cfg(target_os = "linux")]
mod serve_conversation;
#[cfg(target_os = "linux")]
mod serve_page;
#[cfg(target_os = "linux")]
mod serve_page_lists;
#[cfg(target_os = "linux")]
mod serve_page_safety;
#[cfg(target_os = "linux")]
mod serve_page_tabs;
#[cfg(target_os = "linux")]
mod serve_page_work;
#[cfg(target_os = "linux")]
mod serve_permissions;
#[cfg(target_os = "linux")]
mod serve_pictures;
mod sessions;
#[cfg(unix)]
mod signals;
#[cfg(unix)]
mod terminal;
mod transplant;
mod usage;
mod user;

/// The tape of the demo: a whole run that is the same on every machine.
const DEMO_TAPE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../agentline-cli/src/demo.tape.jsonl");
