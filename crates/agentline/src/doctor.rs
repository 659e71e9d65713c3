//! Checks which agents are installed, whether they can run now, and how to fix what is wrong.

mod render;

pub use render::render;

use crate::{
    agentline::Agentline,
    detect::{Detection, HostEnv, detect, detect_elsewhere},
    fs::disk_fs::DiskFs,
    install::{Node, find_node},
};
use agentline_core::{
    Agent, Problem, Program, SignIn, Surface, Trust, Version, agents::AgentRegistry, detect::CheckedPath,
    filter_env,
};
use serde::Serialize;
use std::path::{Path, PathBuf};

/// The state of this machine. Serializes to JSON; see [`render`] for text.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct DoctorReport {
    /// The version of agentline.
    pub agentline: &'static str,
    /// The system, such as `linux x86_64`.
    pub system: String,
    /// The directory that was examined.
    pub folder: PathBuf,
    /// The cache directory of agentline.
    pub cache: CacheReport,
    /// Node.js, if it was found.
    pub node: Option<Node>,
    /// Whether a supervisor cleans up if agentline is killed; `None` if the caller did not say.
    pub supervisor: Option<bool>,
    /// The state of every known agent.
    pub agents: Vec<AgentReport>,
}

impl DoctorReport {
    /// Returns whether at least one agent can run now.
    #[must_use]
    pub fn ok(&self) -> bool {
        self.agents.iter().any(|a| a.ready)
    }
}

/// The cache directory of agentline.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct CacheReport {
    /// The path of the directory.
    pub path: PathBuf,
    /// Why the directory is not writable, if so.
    pub problem: Option<String>,
}

/// The state of one agent.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct AgentReport {
    /// The id of the agent.
    pub id: &'static str,
    /// The display name of the agent.
    pub title: &'static str,
    /// Whether a run can start now: the agent is installed, signed in, and has no problems.
    pub ready: bool,
    /// Whether the program is installed.
    pub installed: bool,
    /// How the agent is started.
    pub program: Option<Program>,
    /// The version of the agent.
    pub version: Option<Version>,
    /// The version that agentline is tested with.
    pub tested: &'static str,
    /// The surfaces of the agent, and whether this version of agentline supports them.
    pub surfaces: Vec<(Surface, bool)>,
    /// All places that were searched, in order.
    pub looked: Vec<CheckedPath>,
    /// All sign-in methods, in the order in which the agent tries them.
    pub sign_in: Vec<SignIn>,
    /// Whether the agent's own rules trust the directory; `None` if no rule applies.
    pub trusted: Option<bool>,
    /// Names of the caller's variables that are withheld from the agent.
    pub withheld: Vec<String>,
    /// Notes for the user.
    pub notes: Vec<String>,
    /// The problems that were found.
    pub problems: Vec<Problem>,
    /// What to do about the problems, most important first.
    pub fixes: Vec<String>,
}

/// Checks the built-in agents on this machine for runs with the default trust. Starts no process except `node
/// --version`.
#[must_use]
pub fn doctor(here: &HostEnv) -> DoctorReport {
    examine_all(here, &AgentRegistry::default(), Trust::default(), |_| here.configured.clone())
}

impl Agentline {
    /// Checks all agents of this instance for runs in a workspace with this trust. Starts no process except `node
    /// --version`.
    #[must_use]
    pub fn doctor(&self, cwd: &Path, trust: Trust) -> DoctorReport {
        let here = HostEnv { cwd: cwd.to_owned(), ..self.here().clone() };
        examine_all(&here, self.registry(), trust, |id| self.configured(id))
    }
}

fn examine_all(
    here: &HostEnv,
    registry: &AgentRegistry,
    trust: Trust,
    configured: impl Fn(&str) -> Option<PathBuf>,
) -> DoctorReport {
    let node = find_node(here);
    let examined = |agent: &'static dyn Agent| {
        let here = HostEnv { configured: configured(agent.info().id), ..here.clone() };
        examine(agent, &here, trust, node.as_ref())
    };
    DoctorReport {
        agentline: env!("CARGO_PKG_VERSION"),
        system: format!("{} {}", std::env::consts::OS, std::env::consts::ARCH),
        folder: here.cwd.clone(),
        cache: CacheReport { path: here.cache.clone(), problem: cache_problem(&here.cache) },
        agents: registry.all().map(examined).collect(),
        node,
        supervisor: None,
    }
}

/// Returns the program that a run with this trust would start.
fn detect_for_run(agent: &dyn Agent, here: &HostEnv, trust: Trust) -> Detection {
    let detection = detect(agent, here);
    let workspace = here.cwd.canonicalize().unwrap_or_else(|_| here.cwd.clone());
    match detection.in_workspace(&workspace, &here.home) {
        Some(refused) if trust != Trust::Full => detect_elsewhere(agent, here.clone(), refused),
        _ => detection,
    }
}

fn examine(agent: &dyn Agent, here: &HostEnv, trust: Trust, node: Option<&Node>) -> AgentReport {
    let info = agent.info();
    let Detection { program, version, supported, looked, mut notes, mut problems, .. } =
        detect_for_run(agent, here, trust);
    if program.is_some() && !supported {
        problems.push(Problem::new(info.id, "this version of agentline cannot drive it yet"));
    }
    if let Some(node) = node
        && let Some(version) = node.version.filter(|v| v.0 < info.min_node)
    {
        let message = format!("Node.js {version} is too old for {}: {} is needed", info.title, info.min_node);
        problems
            .push(Problem::new("node", message).hint(format!("install Node.js {} or newer", info.min_node)));
    }
    problems.extend(agent.settings_problems(&here.cwd, &here.env, &here.home, &DiskFs));

    let sign_in = agent.sign_in(&here.cwd, &here.env, &here.home, &DiskFs);
    // For agents without sign-in facts, the sign-in cannot be checked.
    let signed_in = sign_in.is_empty() || sign_in.iter().any(|s| s.wins);
    let mut fixes: Vec<String> = problems.iter().filter_map(|p| p.hint.clone()).collect();
    if !signed_in {
        let told: Vec<String> = sign_in.iter().filter_map(|s| s.fix.clone()).collect();
        let message = format!("{} would find no sign-in", info.title);
        let first = told.first().cloned().unwrap_or_else(|| info.sign_in_hint.to_owned());
        problems.push(Problem::new("sign-in", message).hint(first.clone()));
        fixes.push(first);
    }
    let trusted = agent.trusts(&here.cwd, &here.env, &here.home, &DiskFs);
    if trusted == Some(true) {
        notes.push(
            "the folder is trusted by a rule of the agent: `--trust run` still leaves its own settings out"
                .into(),
        );
    }
    AgentReport {
        id: info.id,
        title: info.title,
        ready: program.is_some() && problems.is_empty(),
        installed: program.is_some(),
        program,
        version,
        tested: info.pinned,
        surfaces: info.surfaces.iter().map(|s| (*s, agent.abilities(*s, version).works)).collect(),
        looked,
        sign_in,
        trusted,
        withheld: filter_env(&here.env, info.variables, &[]).withheld,
        notes,
        problems,
        fixes,
    }
}

/// Returns why no file can be created in the directory or its nearest existing ancestor. Creates an unnamed temporary
/// file to find out.
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
