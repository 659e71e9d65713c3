//! Checks which agents are installed, whether they can run now, and how to fix what is wrong.

mod render;
mod summary;

pub use render::render;
pub use summary::summarize;

use crate::fs::disk_fs::canonicalize;
use crate::{
    agentline::Agentline,
    detect::{Detection, HostEnv, detect, detect_elsewhere},
    fs::disk_fs::DiskFs,
    install::{Node, find_node},
};
use agentline_core::{
    Agent, Problem, Program, SetupContext, SignIn, Surface, Trust, Version, agents::AgentRegistry,
    detect::CheckedPath, filter_env,
};
use serde::Serialize;
use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

/// The state of this machine. Serializes to JSON; see [`summarize`] and [`render`] for text.
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
    /// Whether a supervisor cleans up if agentline is killed; `None` if the caller did not specify it.
    pub supervisor: Option<bool>,
    /// The state of every known agent.
    pub agents: Vec<AgentReport>,
}

impl DoctorReport {
    fn new(host_env: &HostEnv, node: Option<Node>, agents: Vec<AgentReport>) -> Self {
        Self {
            agentline: env!("CARGO_PKG_VERSION"),
            system: format!("{} {}", std::env::consts::OS, std::env::consts::ARCH),
            folder: host_env.cwd.clone(),
            cache: CacheReport { path: host_env.cache.clone(), problem: cache_problem(&host_env.cache) },
            node,
            supervisor: None,
            agents,
        }
    }

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
    /// Why the directory is not writable; `None` if it is writable.
    pub problem: Option<String>,
}

/// The state of one agent.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct AgentReport {
    /// The id of the agent.
    pub id: String,
    /// The display name of the agent.
    pub title: String,
    /// Whether a run can start now: the agent is installed, signed in, and has no problems.
    pub ready: bool,
    /// Whether the program is installed.
    pub installed: bool,
    /// How the agent is started.
    pub program: Option<Program>,
    /// The version of the agent.
    pub version: Option<Version>,
    /// The version that agentline is tested with.
    pub tested: String,
    /// The preferred surface of the program.
    pub surface: Surface,
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
pub fn doctor(host_env: &HostEnv) -> DoctorReport {
    examine_all(host_env, &AgentRegistry::default(), Trust::default(), |_| host_env.configured.clone())
}

impl Agentline {
    /// Checks all agents of this instance for runs in a workspace with this trust. Starts no process except `node
    /// --version`.
    #[must_use]
    pub fn doctor(&self, cwd: &Path, trust: Trust) -> DoctorReport {
        let host_env = HostEnv { cwd: cwd.to_owned(), ..self.host_env().clone() };
        examine_all(&host_env, self.registry(), trust, |id| self.configured(id))
    }

    /// Checks one agent of this instance, which need not be installed, for runs in a workspace with this trust.
    #[must_use]
    pub fn doctor_of(&self, agent: &dyn Agent, cwd: &Path, trust: Trust) -> DoctorReport {
        let host_env = HostEnv { cwd: cwd.to_owned(), ..self.host_env().clone() };
        let node = find_node(&host_env);
        let host_env = HostEnv { configured: self.configured(agent.info().id), ..host_env };
        let report = examine(agent, &host_env, trust, node.as_ref());
        DoctorReport::new(&host_env, node, vec![report])
    }
}

fn examine_all(
    host_env: &HostEnv,
    registry: &AgentRegistry,
    trust: Trust,
    configured: impl Fn(&str) -> Option<PathBuf>,
) -> DoctorReport {
    let node = find_node(host_env);
    let examined = |agent: &Arc<dyn Agent>| {
        let host_env = HostEnv { configured: configured(agent.info().id), ..host_env.clone() };
        examine(&**agent, &host_env, trust, node.as_ref())
    };
    // Agents that are not configured are reported only if they are installed.
    let is_listed = |agent: &AgentReport| {
        agent.installed || registry.all().iter().any(|known| known.info().id == agent.id)
    };
    let agents = registry.available().iter().map(examined).filter(is_listed).collect();
    DoctorReport::new(host_env, node.clone(), agents)
}

/// Returns the program that a run with this trust would start.
fn detect_for_run(agent: &dyn Agent, host_env: &HostEnv, trust: Trust) -> Detection {
    let detection = detect(agent, host_env);
    let workspace = canonicalize(&host_env.cwd).unwrap_or_else(|_| host_env.cwd.clone());
    match detection.in_workspace(&workspace, &host_env.home) {
        Some(refused) if trust != Trust::Full => {
            detect_elsewhere(agent, detection.surface, host_env.clone(), refused)
        }
        _ => detection,
    }
}

fn examine(agent: &dyn Agent, host_env: &HostEnv, trust: Trust, node: Option<&Node>) -> AgentReport {
    let Detection { surface, program, version, supported, looked, mut notes, mut problems, .. } =
        detect_for_run(agent, host_env, trust);
    let own = agent.info();
    let info = own.for_surface(surface);
    let preferred = own.preferred().program;
    if program.is_some() && preferred != info.program {
        notes.push(format!("`{}` is used because `{preferred}` was not found", info.program));
    }
    if program.is_some() && !supported {
        problems.push(Problem::new(info.id, "agentline does not support this version"));
    }
    if let Some(node) = node
        && let Some(version) = node.version.filter(|v| v.0 < info.min_node)
    {
        let message = format!(
            "Node.js {version} is too old for {}, which requires {} or newer",
            info.title, info.min_node
        );
        problems
            .push(Problem::new("node", message).hint(format!("install Node.js {} or newer", info.min_node)));
    }
    let context = SetupContext { cwd: &host_env.cwd, env: &host_env.env, home: &host_env.home, fs: &DiskFs };
    problems.extend(agent.setup().settings_problems(&context));

    let sign_in = agent.setup().sign_in(&context);
    // For agents without sign-in facts, the sign-in cannot be checked.
    let signed_in = sign_in.is_empty() || sign_in.iter().any(|s| s.wins);
    let mut fixes: Vec<String> = problems.iter().filter_map(|p| p.hint.clone()).collect();
    if !signed_in {
        let hints: Vec<String> = sign_in.iter().filter_map(|s| s.fix.clone()).collect();
        let message = format!("{} is not signed in", info.title);
        let first = hints.first().cloned().unwrap_or_else(|| info.sign_in_hint.to_owned());
        problems.push(Problem::new("sign-in", message).hint(first.clone()));
        fixes.push(first);
    }
    let trusted = agent.setup().trusts(&context);
    if trusted == Some(true) {
        notes.push(
            "the agent's own rules trust this directory, but `--trust run` does not load its settings".into(),
        );
    }
    AgentReport {
        id: info.id.to_owned(),
        title: info.title.to_owned(),
        ready: program.is_some() && problems.is_empty(),
        installed: program.is_some(),
        program,
        version,
        tested: info.pinned.to_owned(),
        surface,
        surfaces: info.surfaces.iter().map(|s| (*s, agent.abilities(*s, version).works)).collect(),
        looked,
        sign_in,
        trusted,
        withheld: filter_env(&host_env.env, info.variables, &[]).withheld,
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
        return Some(format!("`{}` is not a directory", nearest.display()));
    }
    tempfile::tempfile_in(nearest)
        .err()
        .map(|e| format!("cannot write to `{}`: {}", nearest.display(), e.kind()))
}

#[cfg(test)]
mod tests;
