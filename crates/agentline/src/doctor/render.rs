//! Renders the report of the doctor as plain text.

use super::{AgentReport, DoctorReport};
use agentline_core::{SignIn, detect::Candidate};
use std::fmt::Write;

/// Renders the report as text.
#[must_use]
pub fn render(report: &DoctorReport) -> String {
    let mut out = String::new();
    let mut line = |text: String| {
        out.push_str(text.trim_end());
        out.push('\n');
    };
    line(format!("agentline {} on {}", report.agentline, report.system));
    line(format!("  directory   {}", report.folder.display()));
    let cache = report.cache.problem.as_ref().map(|p| format!(" ({p})")).unwrap_or_default();
    line(format!("  cache       {}{cache}", report.cache.path.display()));
    line(match &report.node {
        None => "  Node.js     not found".into(),
        Some(node) => {
            let version = node.version.map_or_else(|| "unknown version".to_owned(), |v| v.to_string());
            format!("  Node.js     {version}  {}", node.path.display())
        }
    });
    if let Some(supervisor) = report.supervisor {
        let state =
            if supervisor { "ready: cleans up after a run, even if agentline is killed" } else { "none" };
        line(format!("  supervisor  {state}"));
    }
    for agent in &report.agents {
        line(String::new());
        agent_lines(agent, &mut line);
    }
    out
}

fn agent_lines(agent: &AgentReport, line: &mut dyn FnMut(String)) {
    let state = if agent.ready { "ready" } else { "not ready" };
    line(format!("{} ({}): {state}", agent.title, agent.id));
    match &agent.program {
        None => line("  program     not found".into()),
        Some(program) => {
            let version = agent.version.map_or_else(|| "unknown version".to_owned(), |v| v.to_string());
            let args: String = program.args.iter().fold(String::new(), |mut all, arg| {
                // Writing to a string cannot fail.
                let _infallible = write!(all, " {arg}");
                all
            });
            line(format!("  program     {version}  {}{args}", program.path.display()));
        }
    }
    if !agent.tested.is_empty() {
        line(format!("  tested with {}", agent.tested));
    }
    let works = |(surface, works): &(agentline_core::Surface, bool)| {
        if *works { surface.to_string() } else { format!("{surface} (not supported)") }
    };
    line(format!("  surfaces    {}", agent.surfaces.iter().map(works).collect::<Vec<_>>().join(", ")));
    line(format!(
        "  directory   {}",
        match agent.trusted {
            Some(true) => "trusted by the agent's own rules",
            Some(false) => "not trusted by the agent's own rules",
            None => "unknown to the agent; runs use `--trust run`",
        }
    ));
    if !agent.looked.is_empty() {
        line("  searched".into());
    }
    for (candidate, found, paths) in by_candidate(agent) {
        let mark = if found { '+' } else { '-' };
        line(format!("    {mark} {:<13} {}", candidate.to_string(), paths.join(", ")));
    }
    if !agent.sign_in.is_empty() {
        line("  sign-in methods in the agent's order (`*` is used)".into());
    }
    for source in &agent.sign_in {
        line(sign_in_line(source));
    }
    if !agent.withheld.is_empty() {
        line(format!("  withheld    {} (see `--pass-env`)", agent.withheld.join(", ")));
    }
    agent.notes.iter().for_each(|note| line(format!("  note        {note}")));
    agent.problems.iter().for_each(|problem| line(format!("  problem     {}", problem.message)));
    agent.fixes.iter().for_each(|fix| line(format!("  fix         {fix}")));
}

fn sign_in_line(source: &SignIn) -> String {
    let mark = match (source.wins, source.found) {
        (true, _) => '*',
        (false, true) => '+',
        (false, false) => '-',
    };
    let note = source.note.as_ref().map(|n| format!(": {n}")).unwrap_or_default();
    format!("    {mark} {}{note}", source.source)
}

/// Groups consecutive places of the same kind and result into one row.
fn by_candidate(agent: &AgentReport) -> Vec<(Candidate, bool, Vec<String>)> {
    let mut rows: Vec<(Candidate, bool, Vec<String>)> = Vec::new();
    for checked in &agent.looked {
        let note = checked.note.as_ref().map(|n| format!(" ({n})")).unwrap_or_default();
        let text = format!("{}{note}", checked.path.display());
        match rows.last_mut() {
            Some((candidate, found, paths)) if *candidate == checked.place && *found == checked.found => {
                paths.push(text)
            }
            _ => rows.push((checked.place, checked.found, vec![text])),
        }
    }
    rows
}
