//! The one place that lists the agents. Everyone else finds them by id.

use crate::{Agent, Problem, nearest};

pub mod gemini;

/// Every agent that this version drives.
pub static AGENTS: &[&dyn Agent] = &[&gemini::Gemini];

/// Finds an agent by its id or one of its aliases.
///
/// # Errors
/// The name is not known; the problem lists the known ones.
pub fn find(name: &str) -> Result<&'static dyn Agent, Problem> {
    let matches = |a: &&&dyn Agent| a.card().id == name || a.card().aliases.contains(&name);
    AGENTS.iter().find(matches).copied().ok_or_else(|| {
        let names: Vec<&str> = AGENTS
            .iter()
            .flat_map(|a| [a.card().id].into_iter().chain(a.card().aliases.iter().copied()))
            .collect();
        let meant = nearest(name, names.iter().copied()).map(|n| format!("did you mean `{n}`? "));
        Problem::new("agent", format!("`{name}` is not an agent that we know")).hint(format!(
            "{}known: {}",
            meant.unwrap_or_default(),
            names.join(", ")
        ))
    })
}
