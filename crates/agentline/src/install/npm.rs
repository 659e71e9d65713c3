//! Finds Node.js and npm, and installs packages from npm.

use super::{InstallError, InstallProgress, Job, tool};
use crate::{detect::HostEnv, fs::disk_fs::DiskFs};
use agentline_core::{
    FileSystem, Version,
    detect::{find_tool, tool_in},
};
use serde::Serialize;
use serde_json::{Value, json};
use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

const NODE_PATIENCE: Duration = Duration::from_secs(20);

/// An installation of Node.js.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Node {
    /// The path of `node`.
    pub path: PathBuf,
    /// The output of `node --version`; `None` if it fails.
    pub version: Option<Version>,
}

/// Finds Node.js and runs `node --version`, which takes about 40 ms.
#[must_use]
pub fn find_node(host_env: &HostEnv) -> Option<Node> {
    let path = find_tool("node", &host_env.search(), &DiskFs)?;
    let mut command = tool::command(&path, path.parent(), host_env);
    command.arg("--version");
    let version = tool::output(command, NODE_PATIENCE).and_then(|text| Version::parse(&text));
    Some(Node { path, version })
}

/// Finds npm beside Node.js, or else in the usual places for tools.
fn find_npm(host_env: &HostEnv, node: &Path) -> Option<PathBuf> {
    let search = host_env.search();
    let sibling = node.parent().and_then(|dir| tool_in(dir, "npm", &search, &DiskFs));
    sibling.or_else(|| find_tool("npm", &search, &DiskFs))
}

/// Returns the directory of the programs of an installation, or a description of what was found instead.
pub(super) fn programs(dir: &Path, package: &str, version: &str) -> Result<PathBuf, String> {
    let modules = dir.join("node_modules");
    let file = modules.join(package).join("package.json");
    let json = DiskFs.read(&file).ok_or_else(|| format!("no `{}`", file.display()))?;
    let json: Value = serde_json::from_slice(&json).map_err(|e| e.to_string())?;
    match json.get("version").and_then(Value::as_str) {
        Some(found) if found == version => Ok(modules.join(".bin")),
        found => Err(format!("version {}", found.unwrap_or("unknown"))),
    }
}

/// Installs a version in a directory: a pinned one by its lock file, any other one with the dependencies that npm
/// chooses, for which npm writes a lock file.
pub(super) fn install(
    job: &Job<'_>,
    dir: &Path,
    on: &mut dyn FnMut(InstallProgress),
) -> Result<(), InstallError> {
    let needed = job.info.min_node;
    let node = find_node(job.host_env).ok_or(InstallError::NoNode { needed })?;
    if let Some(version) = node.version.filter(|version| version.0 < needed) {
        return Err(InstallError::NodeTooOld { path: node.path, found: version.to_string(), needed });
    }
    let npm =
        find_npm(job.host_env, &node.path).ok_or_else(|| InstallError::NoNpm { node: node.path.clone() })?;
    let package = job.package_spec();
    on(InstallProgress::Installing { package: package.clone(), with: "npm", dir: job.dir() });
    let write = |name: &str, json: &Value| {
        let io = |source| InstallError::Cache { doing: "write to", path: dir.to_path_buf(), source };
        fs::write(dir.join(name), format!("{json}\n")).map_err(io)
    };
    let npm = |arguments: &[&str]| {
        // It runs in the directory. With `--prefix`, npm would not read the settings of the machine.
        let mut command = tool::command(&npm, node.path.parent(), job.host_env);
        // The registry, the proxy and the credentials of the user apply, although the home directory is another one.
        if !job.host_env.env.keys().any(|name| name.eq_ignore_ascii_case("npm_config_userconfig")) {
            command.env("npm_config_userconfig", job.host_env.home.join(".npmrc"));
        }
        command.args(arguments);
        command.args(["--global=false", "--workspaces=false", "--omit=dev", "--no-audit", "--no-fund"]);
        command.args(["--no-progress", "--no-update-notifier", "--loglevel=error"]);
        // With npm's default pauses, an unreachable registry would take more than a minute to fail.
        command.args(["--fetch-retries=1", "--fetch-retry-mintimeout=1000", "--fetch-retry-maxtimeout=5000"]);
        command
    };
    if let Some(pin) = job.pin() {
        write("package.json", &pin.package_json())?;
        write("package-lock.json", &job.pins.package_lock(pin))?;
        tool::run(npm(&["ci", "--ignore-scripts"]), (&package, "npm"), dir, on)?;
    } else {
        on(InstallProgress::NotPinned { package: package.clone() });
        // What else the program needs is known only for its pinned versions.
        let with = job.pins.of(job.info.package).next().map(|pin| pin.with.clone()).unwrap_or_default();
        let mut dependencies = json!(with);
        dependencies[job.info.package] = job.version.into();
        // A `package.json` here also prevents npm from searching for one in the parent directories.
        write("package.json", &json!({"private": true, "dependencies": dependencies}))?;
        tool::run(npm(&["install", "--ignore-scripts", "--package-lock"]), (&package, "npm"), dir, on)?;
        write("package-lock.json", &without_addresses(dir))?;
    }
    if job.info.install_script {
        // Only the script of this package runs, not those of its dependencies.
        let arguments = ["rebuild", job.info.package, "--ignore-scripts=false", "--foreground-scripts"];
        tool::run(npm(&arguments), (&package, "npm"), dir, on)?;
    }
    // npm's own copy of the lock file contains addresses; npm creates it again when it needs one.
    let _ignored = fs::remove_file(dir.join("node_modules").join(".package-lock.json"));
    tool::remove_private_home(dir);
    Ok(())
}

/// Returns npm's lock file without the addresses of the registry, so that it is valid with another one.
fn without_addresses(dir: &Path) -> Value {
    let text = DiskFs.read(&dir.join("package-lock.json")).unwrap_or_default();
    let mut lock: Value = serde_json::from_slice(&text).unwrap_or_default();
    let packages = lock.get_mut("packages").and_then(Value::as_object_mut);
    for entry in packages.into_iter().flat_map(|packages| packages.values_mut()) {
        if let Some(entry) = entry.as_object_mut() {
            entry.remove("resolved");
        }
    }
    lock
}
