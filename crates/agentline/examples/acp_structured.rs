//! Gets an answer as a value of a Rust type: `cargo run -p agentline --example acp_structured`.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "examples print their results")]

mod stage;

use agentline::{PermissionMode, RunRequest, tools::schemars::JsonSchema};
use agentline_mock::gemini::{GeminiStep, Script};
use serde::Deserialize;
use serde_json::json;

/// The type of the answer. Its doc comments are part of the schema that the model receives.
#[derive(Debug, Deserialize, JsonSchema)]
struct CodeReview {
    /// One sentence.
    summary: String,
    /// What to change.
    issues: Vec<String>,
    /// From 0 to 10.
    score: u8,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    agentline::init();
    // The scripted model first submits an invalid value, receives the reason, and corrects the value.
    let hand_in = |value| GeminiStep::call("mcp_agentline_structured_output", json!({ "data": value }));
    let stage = stage::set(Script::new([
        hand_in(json!({"summary": "Small and clear.", "issues": "none", "score": 9})),
        hand_in(json!({"summary": "Small and clear.", "issues": ["no test"], "score": 9})),
        GeminiStep::text("I have handed in my review."),
    ]))?;
    let request = RunRequest::new("Review the code changes")
        .model("gemini-2.5-pro")
        .working_dir(&stage.workspace)
        .permission_mode(PermissionMode::Auto);
    let typed = stage.agentline.run_typed::<CodeReview>(request).await?;
    let CodeReview { summary, issues, score } = typed.value;
    println!("{}: {score} of 10: {summary} {issues:?}", typed.outcome.verdict.name());
    Ok(())
}
