//! Runs a live agent over ACP and shows its reasoning: `cargo run -p agentline --example acp_basic`.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "examples print their results")]

mod stage;

use agentline::{Event, PermissionMode, RunRequest, Surface};
use agentline_mock::gemini::demo_script;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    agentline::init();
    let stage = stage::set(demo_script())?;
    let request = RunRequest::new("Write a program that prints the primes below 50")
        .surface(Surface::Acp)
        .model("gemini-2.5-pro")
        .working_dir(&stage.workspace)
        // Every request is permitted, once each. The agent reads files through agentline and writes them
        // itself.
        .permission_mode(PermissionMode::Auto)
        .allow_file_reads(true)
        .allow_file_writes(false);
    let mut run = stage.agentline.run(request).await?;
    while let Some(record) = run.next().await {
        match record.event {
            Event::Thinking { text } => println!("(thinks: {text})"),
            Event::ToolUse(tool) => println!("[{}]", tool.name),
            Event::Outcome { outcome } => {
                println!("{}: {}", outcome.verdict.name(), outcome.text);
                println!(
                    "{:?} tokens, including {:?} for thoughts",
                    outcome.usage.tokens.total, outcome.usage.tokens.thoughts
                );
            }
            _ => {}
        }
    }
    Ok(())
}
