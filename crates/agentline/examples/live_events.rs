//! Shows events as they happen and cancels the run: `cargo run -p agentline --example live_events`.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "examples print their results")]

mod stage;

use agentline::{Event, PermissionMode, RunRequest};
use agentline_mock::gemini::demo_script;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    agentline::init();
    let stage = stage::set(demo_script())?;
    let request = RunRequest::new("Write a program")
        .working_dir(&stage.workspace)
        .model("gemini-2.5-pro")
        .permission_mode(PermissionMode::Bypass);
    let mut run = stage.agentline.run(request).await?;
    while let Some(record) = run.next().await {
        match record.event {
            Event::Text { text } => println!("{:>6} ms  says {text:?}", record.at_ms),
            Event::ToolUse(tool) => {
                println!("{:>6} ms  wants {} ({})", record.at_ms, tool.name, tool.native_name)
            }
            Event::ToolResult(result) => {
                println!("{:>6} ms  {} ended: {:?}", record.at_ms, result.tool_use_id, result.status);
                // Stops the agent and everything that it started. The outcome still follows.
                run.cancel();
            }
            Event::Outcome { outcome } => println!("{}: {:?}", outcome.verdict.name(), outcome.files),
            _ => {}
        }
    }
    Ok(())
}
