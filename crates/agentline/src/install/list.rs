//! Lists the pinned and the installed versions of agents.

use super::{Job, find_installed};
use crate::{detect::HostEnv, fs::disk_fs::DiskFs};
use agentline_core::{Agent, AgentInfo, FileSystem, Surface, Version, agents::Pins};
use serde::Serialize;
use std::{cmp::Reverse, path::PathBuf};

/// A version of an agent's program that is pinned or installed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct AgentVersion {
    /// The id of the agent.
    pub agent: String,
    /// The version.
    pub version: String,
    /// The name of the program: the agent's own CLI, or its ACP adapter.
    pub program: String,
    /// The package; those from PyPI begin with `pypi:`.
    pub package: String,
    /// Whether agentline has hashes of the version and of everything that it needs.
    pub pinned: bool,
    /// The pinned hashes of the package itself.
    pub integrity: Vec<String>,
    /// Whether it is the version that `agentline install` installs if none is named.
    pub default: bool,
    /// The directory of the installed version; `None` if it is not installed.
    pub path: Option<PathBuf>,
}

/// Returns the descriptions of an agent with each of its programs: its own CLI, and its ACP adapter if it has one.
#[must_use]
pub fn programs<'a>(info: AgentInfo<'a>) -> Vec<AgentInfo<'a>> {
    let adapter = info.adapter.map(|_| info.for_surface(Surface::Acp));
    std::iter::once(info).chain(adapter).collect()
}

/// Returns the program of an agent that has a version: one that is installed or pinned, or else its own CLI.
#[must_use]
pub fn program_of_version<'a>(info: AgentInfo<'a>, version: &str, host_env: &HostEnv) -> AgentInfo<'a> {
    let all = programs(info);
    let installed = all.iter().find(|info| find_installed(**info, version, host_env).is_some());
    let pinned = || all.iter().find(|info| Pins::shipped().find(info.package, version).is_some());
    *installed.or_else(pinned).unwrap_or(&info)
}

/// Returns the pinned and the installed versions of an agent, newest first for each of its programs.
#[must_use]
pub fn versions(agent: &dyn Agent, host_env: &HostEnv) -> Vec<AgentVersion> {
    programs(agent.info()).into_iter().flat_map(|info| versions_of(info, host_env)).collect()
}

fn versions_of(info: AgentInfo<'_>, host_env: &HostEnv) -> Vec<AgentVersion> {
    let pins = Pins::shipped();
    let prefix = format!("{}-", info.id);
    let names = DiskFs.list(&host_env.cache.join("agents")).unwrap_or_default();
    let mut all: Vec<String> = pins.of(info.package).map(|pin| pin.version.clone()).collect();
    all.extend(names.iter().filter_map(|name| name.strip_prefix(&prefix)).map(str::to_owned));
    all.sort_by_key(|version| (Reverse(Version::parse(version)), version.clone()));
    all.dedup();
    all.into_iter()
        .filter_map(|version| {
            let pin = pins.find(info.package, &version);
            let job = Job::new(info, &version, host_env, pins).ok()?;
            let path = job.installed().ok().map(|_| job.dir());
            (pin.is_some() || path.is_some()).then(|| AgentVersion {
                agent: info.id.to_owned(),
                program: info.program.to_owned(),
                package: info.package.to_owned(),
                pinned: pin.is_some(),
                integrity: pin
                    .map(|pin| pins.integrity(pin))
                    .unwrap_or_default()
                    .into_iter()
                    .map(Into::into)
                    .collect(),
                default: version == info.pinned,
                path,
                version,
            })
        })
        .collect()
}
