//! Finds an agent's program on this machine with a few hundred file-system lookups. Starts no process.

pub(crate) mod cache;

pub use agentline_core::detect::{Candidate, CheckedPath};

use crate::fs::disk_fs::canonicalize;
use crate::fs::{disk_fs::DiskFs, user_dirs::cache_dir};
use agentline_core::{
    Agent, AgentId, AgentInfo, PYPI, Problem, Program, Surface, Version,
    detect::{Search, find, find_tool},
};
use serde::Serialize;
use std::{
    collections::BTreeMap,
    ffi::OsStr,
    path::{Path, PathBuf},
};

/// The caller's environment, home and directories.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HostEnv {
    /// The environment variables.
    pub env: BTreeMap<String, String>,
    /// The home directory of the user.
    pub home: PathBuf,
    /// The working directory.
    pub cwd: PathBuf,
    /// The directory of the configuration file. `node_modules/.bin` is searched from there upward, unless the path is
    /// empty.
    pub project: PathBuf,
    /// The configured program, which takes precedence over the agent's variable.
    pub configured: Option<PathBuf>,
    /// The cache directory of agentline.
    pub cache: PathBuf,
    /// The version that a run names (`AGENT@VERSION`): only its installation in the cache directory is used.
    pub version: Option<String>,
}

impl HostEnv {
    /// Creates the description of a caller, with the cache directory that the environment names.
    #[must_use]
    pub fn new(env: BTreeMap<String, String>, home: impl Into<PathBuf>, cwd: impl Into<PathBuf>) -> Self {
        let (home, cwd) = (home.into(), cwd.into());
        let cache = cwd.join(cache_dir(&env, &home));
        Self { env, home, project: cwd.clone(), cwd, configured: None, cache, version: None }
    }

    /// Returns the search parameters for this caller.
    pub(crate) fn search(&self) -> Search<'_> {
        let mut search = Search::new(&self.env, &self.home, &self.cwd);
        search.project = &self.project;
        search.cache = Some(&self.cache);
        search.configured = self.configured.as_deref();
        search.version = self.version.as_deref();
        search
    }
}

/// The result of searching for one agent.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Detection {
    /// The id of the agent.
    pub agent: AgentId,
    /// The preferred surface of the program that was searched for.
    pub surface: Surface,
    /// How the agent is started, if it was found.
    pub program: Option<Program>,
    /// The version of the agent, if it could be read.
    pub version: Option<Version>,
    /// Whether this version of agentline can drive the agent.
    pub supported: bool,
    /// The path of Node.js, if it was found.
    pub node: Option<PathBuf>,
    /// All places that were searched, in order.
    pub looked: Vec<CheckedPath>,
    /// Notes for the user.
    pub notes: Vec<String>,
    /// Problems that prevent the agent from starting.
    pub problems: Vec<Problem>,
}

impl Detection {
    /// Returns whether the caller names the program by its path, even if it cannot be started.
    fn is_named(&self) -> bool {
        self.looked
            .iter()
            .any(|checked| matches!(checked.place, Candidate::Configured | Candidate::PathVariable))
    }

    /// Returns the program if it is in `node_modules` of the workspace or of a directory above it, except the home
    /// directory.
    pub(crate) fn in_workspace(&self, workspace: &Path, home: &Path) -> Option<&Path> {
        let found = self.looked.iter().find(|checked| checked.found)?;
        if found.place != Candidate::NodeModules {
            return None;
        }
        let resolve = |path: &Path| canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let project = resolve(found.path.ancestors().nth(3)?);
        (project != resolve(home) && workspace.starts_with(project)).then_some(&*found.path)
    }
}

/// Searches for an agent's program outside the project, because the project's own program must not be started.
pub(crate) fn detect_elsewhere(
    agent: &dyn Agent,
    surface: Surface,
    host_env: HostEnv,
    refused: &Path,
) -> Detection {
    let mut detection = detect_for(agent, surface, &HostEnv { project: PathBuf::new(), ..host_env });
    if detection.program.is_none() {
        let info = agent.info().for_surface(surface);
        let message = format!(
            "{} was found only in the workspace (`{}`), which is not trusted",
            info.title,
            refused.display()
        );
        let hint = format!(
            "run `{}`, or run `agentline trust` in the workspace to allow its own programs",
            install_command(&agent.info(), &info)
        );
        detection.problems = vec![Problem::new(info.id, message).hint(hint)];
    }
    detection
}

/// Searches for an agent's program. Of several programs, a run uses one that the caller names, or else the preferred one
/// that is installed.
#[must_use]
pub fn detect(agent: &dyn Agent, host_env: &HostEnv) -> Detection {
    let mut detections: Vec<Detection> =
        agent.info().surfaces_by_program().map(|surface| detect_for(agent, surface, host_env)).collect();
    let used = detections.iter().position(Detection::is_named);
    let used = used.or_else(|| detections.iter().position(|detection| detection.program.is_some()));
    detections.swap_remove(used.unwrap_or(0))
}

/// Searches for the program that provides a surface of an agent.
#[must_use]
pub fn detect_for(agent: &dyn Agent, surface: Surface, host_env: &HostEnv) -> Detection {
    let (own, info) = (agent.info(), agent.info().for_surface(surface));
    let is_here = |other: &Surface| own.for_surface(*other).program == info.program;
    let mut search = host_env.search();
    let is_other = |name: &OsStr| {
        own.surfaces.iter().any(|other| !is_here(other) && *name == *own.for_surface(*other).program)
    };
    // A configured program with the name of the agent's other program is that program.
    search.configured = search.configured.filter(|path| !path.file_stem().is_some_and(is_other));
    let found = find(&info, &search, &DiskFs);
    let node = find_tool("node", &search, &DiskFs);
    let version = found.program.as_ref().and_then(|p| p.version);
    let mut surfaces = own.surfaces.iter().copied().filter(is_here);
    let surface = surfaces.clone().next().unwrap_or(surface);
    let supported = surfaces.any(|surface| agent.abilities(surface, version).works);
    let mut problems: Vec<Problem> = found.problem.into_iter().collect();
    let mut notes = Vec::new();
    match &found.program {
        None if problems.is_empty() => {
            let hint = install_hint(&own, &info);
            problems.push(Problem::new(info.id, format!("{} was not found", info.title)).hint(hint));
        }
        None => {}
        Some(program) => {
            if node.is_none() && needs_node(program) {
                let hint = format!("install Node.js {} or newer and put `node` on PATH", info.min_node);
                problems.push(
                    Problem::new("node", format!("{} requires Node.js, which was not found", info.title))
                        .hint(hint),
                );
            }
            notes.extend(version_note(version, info.pinned));
        }
    }
    Detection {
        agent: info.id.into(),
        surface,
        program: found.program,
        version,
        supported,
        node,
        looked: found.looked,
        notes,
        problems,
    }
}

/// Returns the command that installs a program of an agent; `info` describes the agent with that program.
fn install_command(own: &AgentInfo<'_>, info: &AgentInfo<'_>) -> String {
    if own.program == info.program {
        format!("agentline install {}", info.id)
    } else {
        format!("agentline install {}@{}", info.id, info.pinned)
    }
}

/// Returns how to install a program of an agent that was not found.
fn install_hint(own: &AgentInfo<'_>, info: &AgentInfo<'_>) -> String {
    let by_user = match info.package.strip_prefix(PYPI) {
        _ if info.package.is_empty() => {
            return format!("set `command` in `[agents.{}]` to its path", info.id);
        }
        Some(name) => format!("pip install {name}"),
        None => format!("npm install -g {}", info.package),
    };
    let variable = match info.path_variable {
        "" => String::new(),
        name => format!(", or set `{name}` to its path"),
    };
    format!("run `{}`, or `{by_user}`{variable}", install_command(own, info))
}

/// Returns whether the first line of the program names Node.js as its interpreter.
fn needs_node(program: &Program) -> bool {
    let mut head = [0_u8; 64];
    let read = crate::fs::regular_file::open_regular(&program.path, u64::MAX)
        .and_then(|mut f| std::io::Read::read(&mut f, &mut head));
    let first = head[..read.unwrap_or(0)].split(|b| *b == b'\n').next().unwrap_or_default();
    first.starts_with(b"#!") && first.windows(4).any(|w| w == b"node")
}

fn version_note(version: Option<Version>, pinned: &str) -> Option<String> {
    let Some(version) = version else {
        return Some("unknown version".into());
    };
    let tested = Version::parse(pinned)?;
    match version.cmp(&tested) {
        std::cmp::Ordering::Less => Some(format!("older than {pinned}, the tested version")),
        std::cmp::Ordering::Equal => None,
        std::cmp::Ordering::Greater => Some(format!("newer than {pinned}, the tested version")),
    }
}

#[cfg(test)]
mod tests {
    use super::{HostEnv, detect, detect_for};
    use agentline_core::{
        AdapterInfo, Agent, AgentDescription, AgentInfo, Dialogue, DialogueConfig, FileSystem, Launch,
        LaunchContext, Plan, Problem, PromptText, RunRequest, Surface, SurfaceFeatures, Version, agents,
        detect::Candidate,
    };
    use std::{collections::BTreeMap, fs, path::Path, time::Instant};

    fn host_env(root: &Path, path: &str) -> HostEnv {
        let env = BTreeMap::from([("PATH".to_owned(), path.to_owned())]);
        HostEnv::new(env, root.join("home"), root.join("work"))
    }

    #[cfg(unix)]
    fn install(folder: &Path, version: &str) {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let package = folder.join("lib/node_modules/@google/gemini-cli");
        fs::create_dir_all(package.join("bundle")).unwrap();
        fs::create_dir_all(folder.join("bin")).unwrap();
        let json = format!(r#"{{"name":"@google/gemini-cli","version":"{version}"}}"#);
        fs::write(package.join("package.json"), json).unwrap();
        for file in [package.join("bundle/gemini.js"), folder.join("bin/node")] {
            fs::write(&file, "#!/usr/bin/env node\n").unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
        }
        symlink("../lib/node_modules/@google/gemini-cli/bundle/gemini.js", folder.join("bin/gemini"))
            .unwrap();
    }

    #[cfg(unix)]
    #[test]
    fn finds_a_program_on_the_disk() {
        let root = tempfile::tempdir().unwrap();
        let agent = agents::find("gemini").unwrap();
        install(&root.path().join("home/.nvm/versions/node/v20.9.0"), "0.50.0");
        install(&root.path().join("home/.nvm/versions/node/v22.1.0"), "0.61.0");
        let found = detect(&*agent, &host_env(root.path(), "/nonexistent"));
        let program = found.program.unwrap();
        assert_eq!(program.version, Some(Version(0, 61, 0)));
        assert!(program.path.ends_with("v22.1.0/bin/node") && program.args.len() == 1, "{program:?}");
        assert!(
            found.problems.is_empty() && found.notes.is_empty() && found.supported,
            "{:?}",
            found.problems
        );
        let versions: Vec<_> =
            found.looked.iter().filter(|l| l.found).map(|l| l.note.clone().unwrap()).collect();
        assert_eq!(versions, ["0.61.0", "0.50.0"]);

        let bin = root.path().join("home/.nvm/versions/node/v20.9.0/bin");
        let found = detect(&*agent, &host_env(root.path(), bin.to_str().unwrap()));
        assert_eq!((found.looked[0].place, found.looked[0].found), (Candidate::Path, true));
        assert_eq!(found.program.unwrap().path, bin.join("gemini"));
        assert!(found.notes[0].contains("older than 0.61.0"));
    }

    #[test]
    fn missing_program_is_one_problem_with_a_hint() {
        let root = tempfile::tempdir().unwrap();
        let host_env = host_env(root.path(), "/nonexistent");
        let mut found = detect(&*agents::find("gemini").unwrap(), &host_env);
        // The test machine may have a program in a directory that does not depend on the home directory.
        found.looked.retain(|l| l.found);
        if found.looked.is_empty() {
            assert_eq!(found.program, None);
            assert!(found.problems[0].hint.as_deref().unwrap().contains("npm install -g @google/gemini-cli"));
        }
    }

    /// An agent with an adapter, whose own CLI is preferred.
    struct WithAdapter;

    impl AgentDescription for WithAdapter {
        fn info(&self) -> AgentInfo<'_> {
            let mut info = AgentInfo::new("mine");
            (info.program, info.package, info.path_variable) = ("mine", "mine-cli", "MINE_PATH");
            info.surfaces = &[Surface::StreamJson, Surface::Acp];
            let mut adapter = AdapterInfo::new("mine-acp", "mine-acp");
            adapter.path_variable = "MINE_ACP_PATH";
            info.adapter = Some(adapter);
            info
        }

        fn abilities(&self, _: Surface, _: Option<Version>) -> SurfaceFeatures {
            let mut features = SurfaceFeatures::default();
            features.works = true;
            features
        }
    }

    impl Agent for WithAdapter {
        fn check(&self, _: &RunRequest, _: Surface) -> Vec<Problem> {
            Vec::new()
        }

        fn launch(&self, _: &Plan, _: &LaunchContext, _: &dyn FileSystem) -> Result<Launch, Vec<Problem>> {
            Ok(Launch::default())
        }

        fn prompt_text(&self, _: &Plan, _: &Path, _: &dyn FileSystem) -> Result<PromptText, Problem> {
            Ok(PromptText::default())
        }

        fn dialogue(&self, config: &DialogueConfig) -> Box<dyn Dialogue> {
            agentline_core::acp_dialogue(config)
        }
    }

    #[cfg(unix)]
    #[test]
    fn named_program_or_else_the_preferred_installed_one_is_used() {
        use std::os::unix::fs::PermissionsExt;
        let root = tempfile::tempdir().unwrap();
        let bin = root.path().join("bin");
        fs::create_dir_all(&bin).unwrap();
        let program = |name: &str| {
            fs::write(bin.join(name), "#!/bin/sh\n").unwrap();
            fs::set_permissions(bin.join(name), fs::Permissions::from_mode(0o755)).unwrap();
            bin.join(name)
        };
        let used = |host_env: &HostEnv| {
            let found = detect(&WithAdapter, host_env);
            (found.surface, found.program.map(|program| program.path))
        };
        let mut env = host_env(root.path(), bin.to_str().unwrap());
        let info = WithAdapter.info();
        let adapter = program(info.adapter.unwrap().program);
        assert_eq!(used(&env), (Surface::Acp, Some(adapter.clone())), "only the adapter is installed");
        let cli = program(info.program);
        assert_eq!(used(&env), (Surface::StreamJson, Some(cli.clone())), "both are installed");
        assert_eq!(detect_for(&WithAdapter, Surface::Acp, &env).program.unwrap().path, adapter);

        let variable = info.adapter.unwrap().path_variable.to_owned();
        env.env.insert(variable.clone(), adapter.to_string_lossy().into_owned());
        assert_eq!(used(&env), (Surface::Acp, Some(adapter.clone())), "the caller names the adapter");
        env.env.remove(&variable);

        env.configured = Some(adapter.clone());
        assert_eq!(used(&env), (Surface::Acp, Some(adapter)), "the configuration names the adapter");
        let other = program("wrapper");
        env.configured = Some(other.clone());
        assert_eq!(used(&env), (Surface::StreamJson, Some(other)), "any other name is the agent's own CLI");
    }

    #[test]
    fn detection_is_fast() {
        let root = tempfile::tempdir().unwrap();
        let path: Vec<String> = (0..40).map(|i| format!("/nonexistent/{i}")).collect();
        let host_env = host_env(root.path(), &path.join(":"));
        let agent = agents::find("gemini").unwrap();
        let best = (0..10).map(|_| {
            let start = Instant::now();
            assert_eq!(detect(&*agent, &host_env).agent, "gemini");
            start.elapsed()
        });
        let best = best.min().unwrap();
        assert!(best.as_millis() < 50, "{best:?}");
    }
}
