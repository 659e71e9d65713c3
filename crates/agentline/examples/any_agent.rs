//! Runs the same prompt on any agent: `cargo run -p agentline --example any_agent -- claude`. Only the name changes.
//! Without a name, it runs on the four built-in agents, one after the other.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "examples print their results")]

mod scripted;

use agentline::{Agentline, Event, Outcome, PermissionMode, RunRequest, blocking};
use std::{error::Error, path::Path};

fn main() -> Result<(), Box<dyn Error>> {
    agentline::init();
    let mut agents: Vec<String> = std::env::args().skip(1).collect();
    if agents.is_empty() {
        agents = ["gemini", "claude", "codex", "opencode"].map(str::to_owned).to_vec();
    }
    for agent in agents {
        let stage = scripted::set(&agent)?;
        println!("# {agent}");
        print(&run(&stage.agentline, &agent, &stage.workspace)?);
    }
    Ok(())
}

/// Runs the prompt on this agent, and prints what it does while it works.
fn run(agentline: &Agentline, agent: &str, workspace: &Path) -> Result<Outcome, agentline::Error> {
    let request = RunRequest::new("Write the primes below ten to primes.txt and count them.")
        .agent(agent)
        .permission_mode(PermissionMode::Bypass)
        .working_dir(workspace);
    blocking::run(agentline, request, |record, _stop| match &record.event {
        Event::Text { text } => println!("says: {text}"),
        Event::ToolUse(tool) => println!("uses: {}", tool.name),
        Event::ToolResult(result) => println!("result: {:?}", result.status),
        _ => {}
    })
}

fn print(outcome: &Outcome) {
    println!("verdict: {}", outcome.verdict.name());
    if let Some(error) = &outcome.error {
        println!("error: {}", error.message);
    }
    println!("text: {}", outcome.text);
    for file in &outcome.files {
        println!("file: {:?} {}, on the disk: {}", file.change, file.path, file.verified);
    }
    let number = |count: Option<u64>| count.map_or_else(|| "unknown".to_owned(), |count| count.to_string());
    let (usage, tokens) = (&outcome.usage, &outcome.usage.tokens);
    println!("requests: {}", number(usage.requests));
    println!("tokens: {} in, {} in all", number(tokens.input), number(tokens.total));
    match outcome.cost_usd {
        Some(dollars) => println!("cost: {dollars:.6} dollars"),
        None => println!("cost: unknown, because the model has no known price"),
    }
}
