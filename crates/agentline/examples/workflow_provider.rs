//! Uses the provider for workflow engines: `cargo run -p agentline --example workflow_provider`.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "examples print their results")]

mod stage;

use agentline::provider::{CallContext, Provider};
use agentline_mock::gemini::demo_script;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    agentline::init();
    let stage = stage::set(demo_script())?;
    let config = serde_json::json!({ "model": "gemini-2.5-pro", "timeout": 120 });
    let provider = Provider::new(stage.agentline.clone(), config.as_object().cloned().unwrap_or_default())?;
    provider.validate()?;
    let mut context = CallContext::default();
    context.project_root = Some(stage.workspace.clone());
    let result = provider.generate("Write a program that prints the primes below 50", &context, None)?;
    println!("{}", serde_json::to_string_pretty(&result)?);
    Ok(())
}
