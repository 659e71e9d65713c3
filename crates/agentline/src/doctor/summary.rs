//! Renders the report of the doctor as a summary with one line per agent.

use super::{AgentReport, DoctorReport};

/// The maximum width of a line, in characters.
const WIDTH: usize = 80;

/// Renders the report as text with one line per agent: its state and the next step. Lines are at most 80
/// characters long; see [`render`](fn@super::render) for all details.
#[must_use]
pub fn summarize(report: &DoctorReport) -> String {
    let node = match &report.node {
        None => "Node.js not found".to_owned(),
        Some(node) => match node.version {
            None => "Node.js of unknown version".to_owned(),
            Some(version) => format!("Node.js {version}"),
        },
    };
    let mut lines = vec![format!("agentline {} on {}, {node}", report.agentline, report.system)];
    lines.extend(report.cache.problem.as_ref().map(|problem| format!("cache: {problem}")));
    lines.push(String::new());
    let width = report.agents.iter().map(|agent| agent.id.chars().count()).max().unwrap_or(0);
    for agent in &report.agents {
        let (state, step) = (state(agent), next_step(agent));
        lines.push(format!("{:<width$}  {state:<13}  {step}", agent.id));
    }
    lines.push(String::new());
    lines.push("Details: `agentline doctor AGENT`, or `agentline doctor -v` for all agents".to_owned());
    lines.iter().map(|line| cut(line) + "\n").collect()
}

fn state(agent: &AgentReport) -> &'static str {
    match agent.problems.first() {
        _ if !agent.installed => "not installed",
        None => "ready",
        Some(problem) if problem.key == "sign-in" => "not signed in",
        Some(_) => "not ready",
    }
}

/// Returns what to do next. For a hint with alternatives, this is the first one; a command is shown without its quotes.
fn next_step(agent: &AgentReport) -> String {
    if agent.ready {
        return format!("agentline run -a {} \"…\"", agent.id);
    }
    let problem = || agent.problems.first().map(|problem| &problem.message);
    let step = agent.fixes.first().or_else(problem).map_or("", String::as_str);
    let step = step.lines().next().unwrap_or_default().split(", or ").next().unwrap_or_default();
    let command = step.strip_prefix("run `").and_then(|rest| rest.strip_suffix('`'));
    command.filter(|command| !command.contains('`')).unwrap_or(step).to_owned()
}

/// Shortens a line to the maximum width, with `…` for the missing part.
fn cut(line: &str) -> String {
    if line.chars().count() <= WIDTH {
        return line.trim_end().to_owned();
    }
    line.chars().take(WIDTH - 1).chain(['…']).collect()
}
