//! Runs a live agent over ACP with its own variables and a startup timeout:
//! `cargo run -p agentline --example acp_custom_env`.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "examples print their results")]

mod stage;

use agentline::{PermissionMode, RunRequest, Surface, blocking};
use agentline_mock::gemini::demo_script;
use std::time::Duration;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    agentline::init();
    let stage = stage::set(demo_script())?;
    let request = RunRequest::new("Write a program that prints the primes below 50")
        .surface(Surface::Acp)
        .model("gemini-2.5-pro")
        .working_dir(&stage.workspace)
        .permission_mode(PermissionMode::Auto)
        // Only this run receives the variable, and it is redacted in all output.
        .env("GEMINI_API_KEY", "a-key-for-this-run-alone")
        .startup_timeout(Duration::from_secs(30));
    let outcome = blocking::run(&stage.agentline, request, |_event, _stop| {})?;
    println!("{}: {}", outcome.verdict.name(), outcome.text);
    println!("first event after {:?} ms", outcome.first_event_ms);
    Ok(())
}
