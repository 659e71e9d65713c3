//! Runs one prompt without an async runtime: `cargo run -p agentline --example one_prompt`.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "examples print their results")]

mod stage;

use agentline::{PermissionMode, RunRequest, blocking};
use agentline_mock::gemini::demo_script;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Must come first: the agent's processes then end even if this program is killed.
    agentline::init();
    let stage = stage::set(demo_script())?;
    let request = RunRequest::new("Write a program that prints the primes below 50")
        .working_dir(&stage.workspace)
        .model("gemini-2.5-pro")
        .permission_mode(PermissionMode::Bypass);
    let outcome = blocking::run(&stage.agentline, request, |_event, _stop| {})?;
    println!("{}: {}", outcome.verdict.name(), outcome.text);
    for file in &outcome.files {
        println!("{:?} {} by {:?}, on the disk: {}", file.change, file.path, file.source, file.verified);
    }
    println!("{:?} tokens, {:?} dollars", outcome.usage.tokens.total, outcome.cost_usd);
    Ok(())
}
