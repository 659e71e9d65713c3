//! Says which agents are here, whether they could run now, what was looked at to know that, and what to type.

mod render;

pub use render::render;

use crate::{
    agentline::Agentline,
    detect::{Detection, Here, detect, detect_elsewhere},
    install::{Node, find_node},
    look::DiskLook,
};
use agentline_core::{
    Agent, Problem, Program, SignIn, Surface, Trust, Version, agents::Roster, detect::Looked,
    divide_environment,
};
use serde::Serialize;
use std::path::{Path, PathBuf};

/// The state of this machine, for people (see [`render`]) and as JSON.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Report {
    /// Our own version.
    pub agentline: &'static str,
    /// The system, such as `linux x86_64`.
    pub system: String,
    /// The folder that was asked about.
    pub folder: PathBuf,
    /// Our cache folder.
    pub cache: Cache,
    /// Node.js, which the agents need.
    pub node: Option<Node>,
    /// Whether a supervisor clears up when agentline itself is killed. `None`: the caller did not say.
    pub supervisor: Option<bool>,
    /// Every agent that we know.
    pub agents: Vec<AgentReport>,
}

impl Report {
    /// Whether at least one agent could run now.
    #[must_use]
    pub fn ok(&self) -> bool {
        self.agents.iter().any(|a| a.ready)
    }
}

/// Our cache folder.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Cache {
    /// Where.
    pub path: PathBuf,
    /// Why it cannot be written, if so. Only installations need it.
    pub problem: Option<String>,
}

/// The state of one agent.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct AgentReport {
    /// Its id.
    pub id: &'static str,
    /// What people call it.
    pub title: &'static str,
    /// Whether a run could work now: it is here, signed in, and nothing is wrong.
    pub ready: bool,
    /// Whether its program is here.
    pub installed: bool,
    /// How it is started.
    pub program: Option<Program>,
    /// Its version.
    pub version: Option<Version>,
    /// The version that we test with.
    pub tested: &'static str,
    /// Its surfaces, and whether they work in this version of agentline.
    pub surfaces: Vec<(Surface, bool)>,
    /// Every place that was looked at, in order.
    pub looked: Vec<Looked>,
    /// Every way of signing in, in the agent's own order.
    pub sign_in: Vec<SignIn>,
    /// Whether the agent trusts the folder by itself. `None`: no rule speaks of it.
    pub trusted: Option<bool>,
    /// Names of the caller's variables that the agent will not see.
    pub withheld: Vec<String>,
    /// What is good to know.
    pub notes: Vec<String>,
    /// What is wrong.
    pub problems: Vec<Problem>,
    /// What to do about it, the first thing first.
    pub fixes: Vec<String>,
}

/// Examines this machine for a caller, as far as our own agents go, for runs with the default trust. Starts nothing but
/// `node --version`.
#[must_use]
pub fn doctor(here: &Here) -> Report {
    examine_all(here, &Roster::default(), Trust::default(), |_| here.configured.clone())
}

impl Agentline {
    /// Examines this machine for all agents that this handle knows, for runs in a workspace with this trust. Starts nothing
    /// but `node --version`.
    #[must_use]
    pub fn doctor(&self, cwd: &Path, trust: Trust) -> Report {
        let here = Here { cwd: cwd.to_owned(), ..self.here().clone() };
        examine_all(&here, self.roster(), trust, |id| self.configured(id))
    }
}

fn examine_all(
    here: &Here,
    roster: &Roster,
    trust: Trust,
    configured: impl Fn(&str) -> Option<PathBuf>,
) -> Report {
    let node = find_node(here);
    let examined = |agent: &'static dyn Agent| {
        let here = Here { configured: configured(agent.card().id), ..here.clone() };
        examine(agent, &here, trust, node.as_ref())
    };
    Report {
        agentline: env!("CARGO_PKG_VERSION"),
        system: format!("{} {}", std::env::consts::OS, std::env::consts::ARCH),
        folder: here.cwd.clone(),
        cache: Cache { path: here.cache.clone(), problem: cache_problem(&here.cache) },
        agents: roster.all().map(examined).collect(),
        node,
        supervisor: None,
    }
}

/// The program that a run with this trust would start.
fn detect_for_run(agent: &dyn Agent, here: &Here, trust: Trust) -> Detection {
    let detection = detect(agent, here);
    let workspace = here.cwd.canonicalize().unwrap_or_else(|_| here.cwd.clone());
    match detection.in_workspace(&workspace, &here.home) {
        Some(refused) if trust != Trust::Full => detect_elsewhere(agent, here.clone(), refused),
        _ => detection,
    }
}

fn examine(agent: &dyn Agent, here: &Here, trust: Trust, node: Option<&Node>) -> AgentReport {
    let card = agent.card();
    let Detection { program, version, supported, looked, mut notes, mut problems, .. } =
        detect_for_run(agent, here, trust);
    if program.is_some() && !supported {
        problems.push(Problem::new(card.id, "this version of agentline cannot drive it yet"));
    }
    if let Some(node) = node
        && let Some(version) = node.version.filter(|v| v.0 < card.min_node)
    {
        let message = format!("Node.js {version} is too old for {}: {} is needed", card.title, card.min_node);
        problems
            .push(Problem::new("node", message).hint(format!("install Node.js {} or newer", card.min_node)));
    }
    problems.extend(agent.settings_problems(&here.cwd, &here.env, &here.home, &DiskLook));

    let sign_in = agent.sign_in(&here.cwd, &here.env, &here.home, &DiskLook);
    // Of an agent that we do not know nobody can say how it signs in.
    let signed_in = sign_in.is_empty() || sign_in.iter().any(|s| s.wins);
    let mut fixes: Vec<String> = problems.iter().filter_map(|p| p.hint.clone()).collect();
    if !signed_in {
        let told: Vec<String> = sign_in.iter().filter_map(|s| s.fix.clone()).collect();
        let message = format!("{} would find no sign-in", card.title);
        let first = told.first().cloned().unwrap_or_else(|| card.sign_in_hint.to_owned());
        problems.push(Problem::new("sign-in", message).hint(first.clone()));
        fixes.push(first);
    }
    let trusted = agent.trusts(&here.cwd, &here.env, &here.home, &DiskLook);
    if trusted == Some(true) {
        notes.push(
            "the folder is trusted by a rule of the agent: `--trust run` still leaves its own settings out"
                .into(),
        );
    }
    AgentReport {
        id: card.id,
        title: card.title,
        ready: program.is_some() && problems.is_empty(),
        installed: program.is_some(),
        program,
        version,
        tested: card.pinned,
        surfaces: card.surfaces.iter().map(|s| (*s, agent.abilities(*s, version).works)).collect(),
        looked,
        sign_in,
        trusted,
        withheld: divide_environment(&here.env, card.variables, &[]).withheld,
        notes,
        problems,
        fixes,
    }
}

/// Whether a file can be made in the folder, or in the nearest one above it that is there. The file has no name and
/// is gone at once.
fn cache_problem(cache: &Path) -> Option<String> {
    let nearest = cache.ancestors().find(|f| f.exists())?;
    if !nearest.is_dir() {
        return Some(format!("`{}` is not a folder", nearest.display()));
    }
    tempfile::tempfile_in(nearest)
        .err()
        .map(|e| format!("cannot write in `{}`: {}", nearest.display(), e.kind()))
}

#[cfg(test)]
mod tests;
