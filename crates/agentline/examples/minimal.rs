//! Runs a fake agent with the smallest build: `cargo run -p agentline --example minimal --no-default-features`.
#![expect(clippy::print_stdout, reason = "examples print their results")]

use agentline::{Agentline, HostEnv, RunRequest};
use std::{collections::BTreeMap, error::Error, process::ExitCode};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<ExitCode, Box<dyn Error>> {
    agentline::init();
    // The agent is this program as well, started with arguments. Your own program names an installed agent instead.
    if std::env::args().len() > 1 {
        return Ok(agentline_fakes::fake_agent::main().into());
    }
    let dir = tempfile::tempdir()?;
    let env = BTreeMap::from([("PATH".to_owned(), std::env::var("PATH")?)]);
    let agentline =
        Agentline::new(HostEnv::new(env, dir.path(), dir.path())).program("gemini", std::env::current_exe()?);
    let request = RunRequest::new("What is 2 + 2? Write it down.")
        .model("gemini-2.5-flash")
        .api_key("not-a-key")
        // With `FAKE_AGENT_FAULT=hang_with_tool`, the agent never ends by itself.
        .env("FAKE_AGENT_FAULT", std::env::var("FAKE_AGENT_FAULT").unwrap_or_else(|_| "ok".into()));
    let outcome = agentline.run(request).await?.outcome().await;
    println!("{}: {}", outcome.verdict.name(), outcome.text);
    Ok(ExitCode::SUCCESS)
}
