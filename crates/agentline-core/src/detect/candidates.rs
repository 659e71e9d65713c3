//! The paths where an agent's program may be, in search order.

use super::search::{Os, Search};
use crate::{AgentInfo, FileSystem, PYPI, Version};
use serde::Serialize;
use std::{
    fmt,
    path::{Path, PathBuf},
};

/// The reason for checking a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Candidate {
    /// Named by the agent's own path variable.
    PathVariable,
    /// Named by the configuration.
    Configured,
    /// A directory on PATH.
    Path,
    /// A directory for global programs of npm.
    Npm,
    /// A Node.js version of nvm.
    Nvm,
    /// A Node.js version of fnm.
    Fnm,
    /// Volta.
    Volta,
    /// asdf.
    Asdf,
    /// A Node.js version of mise.
    Mise,
    /// A Node.js version of n.
    N,
    /// A directory for global programs of pnpm.
    Pnpm,
    /// A directory for global programs of yarn.
    Yarn,
    /// A directory for global programs of bun.
    Bun,
    /// Homebrew.
    Homebrew,
    /// A package in the npx cache.
    Npx,
    /// The project's own packages.
    NodeModules,
    /// An installation in agentline's cache.
    Cache,
    /// A directory in the user's home where the agent installs itself.
    Home,
}

impl fmt::Display for Candidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::PathVariable => "path variable",
            Self::Configured => "configuration",
            Self::Path => "PATH",
            Self::Npm => "npm",
            Self::Nvm => "nvm",
            Self::Fnm => "fnm",
            Self::Volta => "Volta",
            Self::Asdf => "asdf",
            Self::Mise => "mise",
            Self::N => "n",
            Self::Pnpm => "pnpm",
            Self::Yarn => "yarn",
            Self::Bun => "bun",
            Self::Homebrew => "Homebrew",
            Self::Npx => "npx",
            Self::NodeModules => "node_modules",
            Self::Cache => "cache",
            Self::Home => "home directory",
        })
    }
}

use Candidate::*;

const UNIX: &[Os] = &[Os::Linux, Os::MacOs];
const MAC: &[Os] = &[Os::MacOs];
const LINUX: &[Os] = &[Os::Linux];
const WINDOWS: &[Os] = &[Os::Windows];
const ALL: &[Os] = &[Os::Linux, Os::MacOs, Os::Windows];

/// The usual directories. `~` is the home directory, `$NAME` a variable (the row is skipped if it is unset), and `*`
/// matches any name, newest version first.
const USUAL: &[(Candidate, &[Os], &str)] = &[
    (Npm, UNIX, "$NPM_CONFIG_PREFIX/bin"),
    (Npm, UNIX, "~/.npm-global/bin"),
    (Npm, UNIX, "/usr/local/bin"),
    (Npm, UNIX, "/usr/bin"),
    (Npm, UNIX, "~/.local/bin"),
    (Npm, WINDOWS, "$APPDATA/npm"),
    (Npm, WINDOWS, "$ProgramFiles/nodejs"),
    (Nvm, UNIX, "$NVM_DIR/versions/node/*/bin"),
    (Nvm, UNIX, "~/.nvm/versions/node/*/bin"),
    (Nvm, WINDOWS, "$NVM_SYMLINK"),
    (Nvm, WINDOWS, "$NVM_HOME/*"),
    (Fnm, UNIX, "$FNM_DIR/node-versions/*/installation/bin"),
    (Fnm, UNIX, "~/.local/share/fnm/node-versions/*/installation/bin"),
    (Fnm, MAC, "~/Library/Application Support/fnm/node-versions/*/installation/bin"),
    (Fnm, WINDOWS, "$FNM_DIR/node-versions/*/installation"),
    (Fnm, WINDOWS, "$APPDATA/fnm/node-versions/*/installation"),
    (Volta, UNIX, "$VOLTA_HOME/bin"),
    (Volta, UNIX, "~/.volta/bin"),
    (Volta, WINDOWS, "$LOCALAPPDATA/Volta/bin"),
    (Asdf, UNIX, "$ASDF_DATA_DIR/installs/nodejs/*/bin"),
    (Asdf, UNIX, "~/.asdf/installs/nodejs/*/bin"),
    (Asdf, UNIX, "~/.asdf/shims"),
    (Mise, UNIX, "$MISE_DATA_DIR/installs/node/*/bin"),
    (Mise, UNIX, "~/.local/share/mise/installs/node/*/bin"),
    (Mise, WINDOWS, "$LOCALAPPDATA/mise/installs/node/*"),
    (N, UNIX, "$N_PREFIX/bin"),
    (Pnpm, ALL, "$PNPM_HOME"),
    (Pnpm, UNIX, "~/.local/share/pnpm"),
    (Pnpm, MAC, "~/Library/pnpm"),
    (Pnpm, WINDOWS, "$LOCALAPPDATA/pnpm"),
    (Yarn, UNIX, "~/.yarn/bin"),
    (Yarn, UNIX, "~/.config/yarn/global/node_modules/.bin"),
    (Yarn, WINDOWS, "$LOCALAPPDATA/Yarn/bin"),
    (Bun, ALL, "$BUN_INSTALL/bin"),
    (Bun, ALL, "~/.bun/bin"),
    (Homebrew, MAC, "/opt/homebrew/bin"),
    (Homebrew, LINUX, "/home/linuxbrew/.linuxbrew/bin"),
    (Homebrew, LINUX, "~/.linuxbrew/bin"),
    (Npx, UNIX, "~/.npm/_npx/*/node_modules/.bin"),
    (Npx, WINDOWS, "$LOCALAPPDATA/npm-cache/_npx/*/node_modules/.bin"),
];

/// Returns every path to check, in order, starting with PATH. Duplicate directories are checked once.
pub(super) fn candidates(
    info: &AgentInfo<'_>,
    search: &Search<'_>,
    fs: &dyn FileSystem,
) -> Vec<(Candidate, PathBuf)> {
    let mut folders: Vec<(Candidate, PathBuf)> =
        path_folders(search).into_iter().map(|folder| (Candidate::Path, folder)).collect();
    folders.extend(usual(search, fs));
    let projects = search.project.ancestors().filter(|folder| !folder.as_os_str().is_empty());
    folders.extend(projects.map(|folder| (NodeModules, folder.join("node_modules").join(".bin"))));
    if let Some(cache) = search.cache {
        let pinned = format!("{}-{}", info.id, info.pinned);
        let agents = cache.join("agents");
        let bin = |name: &str| (Cache, programs_dir(info, &agents.join(name)));
        folders.push(bin(&pinned));
        let mut others = fs.list(&agents).unwrap_or_default();
        others.retain(|n| *n != pinned && n.strip_prefix(info.id).is_some_and(|v| v.starts_with('-')));
        newest_first(&mut others, |n| &n[info.id.len() + 1..]);
        folders.extend(others.iter().map(|n| bin(n)));
    }
    folders.extend(info.program_dir.map(|dir| (Home, search.home.join(dir))));
    let mut seen = std::collections::HashSet::new();
    folders.retain(|(_, folder)| seen.insert(folder.clone()));
    folders
        .into_iter()
        .flat_map(|(candidate, f)| {
            names_in(&f, info.program, search).into_iter().map(move |p| (candidate, p))
        })
        .collect()
}

/// Returns the paths that the program of one version has in the cache directory.
pub(super) fn of_version(info: &AgentInfo<'_>, version: &str, search: &Search<'_>) -> Vec<PathBuf> {
    let cache = search.cache.unwrap_or(Path::new(""));
    let dir = cache.join("agents").join(format!("{}-{version}", info.id));
    names_in(&programs_dir(info, &dir), info.program, search)
}

/// Returns the directory of the programs in an installation.
fn programs_dir(info: &AgentInfo<'_>, dir: &Path) -> PathBuf {
    if info.package.starts_with(PYPI) { dir.join("bin") } else { dir.join("node_modules").join(".bin") }
}

/// Returns the directories on PATH. Empty entries, which mean the working directory to a shell, are skipped for safety.
pub(super) fn path_folders(search: &Search<'_>) -> Vec<PathBuf> {
    let separator = if search.os == Os::Windows { ';' } else { ':' };
    let path = search.variable("PATH").unwrap_or_default();
    path.split(separator).filter(|f| !f.is_empty()).map(|f| search.cwd.join(f.trim_matches('"'))).collect()
}

/// Returns the usual directories for this machine. A pattern whose parent directory cannot be listed is kept as
/// written.
pub(super) fn usual(search: &Search<'_>, fs: &dyn FileSystem) -> Vec<(Candidate, PathBuf)> {
    let mut folders = Vec::new();
    if let Some(prefix) = npmrc_prefix(search, fs) {
        folders.push((Npm, if search.os == Os::Windows { prefix } else { prefix.join("bin") }));
    }
    for (candidate, systems, template) in USUAL {
        if systems.contains(&search.os) {
            folders.extend(expand(template, search, fs).into_iter().map(|f| (*candidate, f)));
        }
    }
    folders
}

/// Returns the file names that a program may have in a directory.
pub(super) fn names_in(folder: &Path, program: &str, search: &Search<'_>) -> Vec<PathBuf> {
    if search.os != Os::Windows {
        return vec![folder.join(program)];
    }
    let extensions = search.variable("PATHEXT").unwrap_or(".COM;.EXE;.BAT;.CMD");
    let with_extension = extensions
        .split(';')
        .map(str::to_ascii_lowercase)
        .filter(|e| [".com", ".exe", ".bat", ".cmd"].contains(&e.as_str()))
        .map(|e| folder.join(format!("{program}{e}")));
    // Shims that only PowerShell or a POSIX shell can start still lead to the script.
    with_extension.chain([folder.join(format!("{program}.ps1")), folder.join(program)]).collect()
}

fn expand(template: &str, search: &Search<'_>, fs: &dyn FileSystem) -> Vec<PathBuf> {
    let (start, rest) = match template.split_once('/') {
        Some(("", _)) => (Some(PathBuf::from("/")), &template[1..]),
        Some((first, rest)) => (root(first, search), rest),
        None => (root(template, search), ""),
    };
    let Some(start) = start else { return Vec::new() };
    let mut folders = vec![start];
    for part in rest.split('/').filter(|p| !p.is_empty()) {
        folders = folders
            .iter()
            .flat_map(|folder| match fs.list(folder).filter(|_| part == "*") {
                Some(mut names) => {
                    newest_first(&mut names, |n| n);
                    names.iter().map(|n| folder.join(n)).collect()
                }
                None => vec![folder.join(part)],
            })
            .collect();
    }
    folders
}

fn root(first: &str, search: &Search<'_>) -> Option<PathBuf> {
    match first.strip_prefix('$') {
        Some("NPM_CONFIG_PREFIX") => search
            .variable("NPM_CONFIG_PREFIX")
            .or_else(|| search.variable("npm_config_prefix"))
            .map(PathBuf::from),
        Some(name) => search.variable(name).map(PathBuf::from),
        None => Some(search.home.to_path_buf()),
    }
}

/// Returns the prefix for global packages from the user's npm configuration.
fn npmrc_prefix(search: &Search<'_>, fs: &dyn FileSystem) -> Option<PathBuf> {
    let text = fs.text(&search.home.join(".npmrc"))?;
    let value = text.lines().find_map(|line| {
        let (key, value) = line.split_once('=')?;
        (key.trim() == "prefix").then(|| value.trim().trim_matches('"').to_owned())
    })?;
    let inside = ["~/", "${HOME}/"].iter().find_map(|start| value.strip_prefix(start));
    Some(inside.map_or_else(|| PathBuf::from(&value), |rest| search.home.join(rest)))
}

/// Sorts names by the version in them, newest first; names without a version are last.
fn newest_first(names: &mut [String], version: impl Fn(&String) -> &str) {
    names.sort_by(|a, b| {
        let key = |n| Version::parse(version(n));
        key(b).cmp(&key(a)).then_with(|| a.cmp(b))
    });
}
