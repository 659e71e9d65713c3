//! Finds an agent's program on a machine and determines its version.
//!
//! Detection starts no process: running `--version` takes more than a second, and `package.json` has the same
//! information.

mod candidates;
mod search;
mod shim;

pub use candidates::Candidate;
pub use search::{Os, Search};

use crate::{AgentInfo, FileSystem, PYPI, Problem, Program, Version};
use serde::Serialize;
use serde_json::Value;
use std::path::{Path, PathBuf};

/// The extensions that Windows can execute directly.
const STARTED_BY_WINDOWS: &[&str] = &["exe", "com", "cmd", "bat"];

/// One candidate path of a search.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct CheckedPath {
    /// Why the path was checked.
    pub place: Candidate,
    /// The path; contains a `*` if the directory of a pattern cannot be listed.
    pub path: PathBuf,
    /// Whether the path is a program that can be started.
    pub found: bool,
    /// The version, or why the program cannot be used.
    pub note: Option<String>,
}

/// The result of a search.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DetectResult {
    /// The program to use: the first one found.
    pub program: Option<Program>,
    /// Every checked path, in order.
    pub looked: Vec<CheckedPath>,
    /// Why there is no program, if an explicitly named one cannot be used.
    pub problem: Option<Problem>,
}

/// Searches for an agent's program. An explicitly named program is used or causes an error; no other is tried.
#[must_use]
pub fn find(info: &AgentInfo<'_>, search: &Search<'_>, fs: &dyn FileSystem) -> DetectResult {
    let finder = Finder { info, search, fs };
    if let Some(version) = search.version {
        return finder.find_installed(version);
    }
    if let Some(named) = search.configured {
        return finder.find_named(
            Candidate::Configured,
            named,
            "program",
            "remove `program` and `agent_bin`",
        );
    }
    let variable = search.env.get(info.path_variable).filter(|v| !v.is_empty());
    if let Some(named) = variable {
        let key = info.path_variable;
        return finder.find_named(Candidate::PathVariable, Path::new(named), key, &format!("unset `{key}`"));
    }
    let mut found = DetectResult::default();
    for (candidate, path) in candidates::candidates(info, search, fs) {
        finder.try_one(candidate, path, &mut found);
    }
    found
}

/// Returns the path of an agent's own CLI, which need not be the program that agentline starts: that may be an adapter,
/// or Node.js with a script. A variable that names no program is ignored.
#[must_use]
pub fn find_cli(info: &AgentInfo<'_>, search: &Search<'_>, fs: &dyn FileSystem) -> Option<PathBuf> {
    let finder = Finder { info, search, fs };
    let configured = search.configured.map(Path::to_path_buf);
    let variable = search.env.get(info.path_variable).filter(|path| !path.is_empty()).map(PathBuf::from);
    let found = |result: DetectResult| result.looked.into_iter().find(|checked| checked.found);
    let named = [(Candidate::Configured, configured), (Candidate::PathVariable, variable)];
    let named =
        named.into_iter().find_map(|(candidate, path)| found(finder.find_named(candidate, &path?, "", "")));
    if let Some(checked) = named {
        return Some(checked.path);
    }
    candidates::candidates(info, search, fs)
        .into_iter()
        .find(|(candidate, path)| finder.program(*candidate, path).is_ok_and(|found| found.is_some()))
        .map(|(_, path)| path)
}

/// Returns the agent's program in a directory, such as one that an installation just created.
#[must_use]
pub fn program_in(
    info: &AgentInfo<'_>,
    search: &Search<'_>,
    folder: &Path,
    fs: &dyn FileSystem,
) -> Option<Program> {
    let finder = Finder { info, search, fs };
    candidates::names_in(folder, info.program, search)
        .iter()
        .find_map(|path| finder.program(Candidate::Cache, path).ok().flatten())
}

/// Finds a tool such as `node` or `npm` on PATH or in one of the usual directories.
#[must_use]
pub fn find_tool(name: &str, search: &Search<'_>, fs: &dyn FileSystem) -> Option<PathBuf> {
    let on_path = candidates::path_folders(search);
    let usual = candidates::usual(search, fs).into_iter().map(|(_, folder)| folder);
    on_path.into_iter().chain(usual).find_map(|folder| tool_in(&folder, name, search, fs))
}

/// Returns a tool in a directory if the operating system can start it.
#[must_use]
pub fn tool_in(folder: &Path, name: &str, search: &Search<'_>, fs: &dyn FileSystem) -> Option<PathBuf> {
    let startable = |p: &PathBuf| search.os != Os::Windows || has_extension(p, STARTED_BY_WINDOWS);
    candidates::names_in(folder, name, search).into_iter().filter(startable).find(|p| fs.runnable(p))
}

struct Finder<'a> {
    info: &'a AgentInfo<'a>,
    search: &'a Search<'a>,
    fs: &'a dyn FileSystem,
}

impl Finder<'_> {
    /// Checks an explicitly named program: a path, or in the configuration also a name to search on PATH.
    fn find_named(&self, candidate: Candidate, named: &Path, key: &str, way_out: &str) -> DetectResult {
        let mut found = DetectResult::default();
        let tilde = named.strip_prefix("~").ok().map(|rest| self.search.home.join(rest));
        let path = self.search.cwd.join(tilde.as_deref().unwrap_or(named));
        // A bare name never means a file in the working directory, which may be an untrusted workspace.
        let bare = named.components().count() == 1 && !named.as_os_str().as_encoded_bytes().contains(&b'/');
        if bare && candidate == Candidate::Configured {
            let name = named.to_string_lossy();
            for folder in candidates::path_folders(self.search) {
                for path in candidates::names_in(&folder, &name, self.search) {
                    self.try_one(candidate, path, &mut found);
                }
            }
            found.looked.retain(|l| l.found || l.note.is_some());
        } else {
            self.try_one(candidate, path.clone(), &mut found);
        }
        if found.program.is_none() {
            let message = match found.looked.iter().find_map(|l| l.note.clone()) {
                Some(note) => format!("`{}`: {note}", path.display()),
                None if bare && candidate == Candidate::Configured => {
                    format!("`{}` was not found on PATH", named.display())
                }
                None => format!("`{}` does not exist", path.display()),
            };
            let hint = match self.info.package {
                // Only the configuration describes this agent.
                "" => format!("fix `command` of `[agents.{}]` in your configuration", self.info.id),
                _ => {
                    format!("name an existing {} program, or {way_out} to search for it", self.info.title)
                }
            };
            found.problem = Some(Problem::new(key, message).hint(hint));
        }
        found
    }

    /// Looks for an installation of one version in the cache directory.
    fn find_installed(&self, version: &str) -> DetectResult {
        let mut found = DetectResult::default();
        for path in candidates::of_version(self.info, version, self.search) {
            self.try_one(Candidate::Cache, path, &mut found);
        }
        if found.program.is_none() {
            let AgentInfo { id, title, program, .. } = self.info;
            let message = format!("{title} {version} (`{program}`) is not installed");
            let hint = format!("run `agentline install {id}@{version}`");
            found.problem = Some(Problem::new("agent", message).hint(hint));
        }
        found
    }

    fn try_one(&self, candidate: Candidate, path: PathBuf, found: &mut DetectResult) {
        let result = self.program(candidate, &path);
        let (is, note) = match &result {
            Ok(None) => (false, None),
            Ok(Some(program)) => (true, program.version.map(|v| v.to_string())),
            Err(error) => (false, Some(error.clone())),
        };
        found.looked.push(CheckedPath { place: candidate, path, found: is, note });
        if found.program.is_none() {
            found.program = result.ok().flatten();
        }
    }

    /// Returns how to start the file at `path`; `Ok(None)` if it does not exist.
    fn program(&self, candidate: Candidate, path: &Path) -> Result<Option<Program>, String> {
        if !self.fs.exists(path) {
            return Ok(None);
        }
        let real = self.fs.canonical(path).unwrap_or_else(|| path.to_path_buf());
        let script = self.script(path, &real);
        let version = self.version(script.as_deref().unwrap_or(&real));
        let plain = |path: &Path| Program { path: path.to_path_buf(), args: Vec::new(), version };
        let runnable = self.fs.runnable(path);
        if let Some(script) = script {
            let started_as_it_is = self.search.os != Os::Windows && runnable && !is_script(path);
            let node = self.node_for(candidate, path, started_as_it_is);
            return match node {
                Some(node) => Ok(Some(Program {
                    path: node,
                    args: vec![script.to_string_lossy().into_owned()],
                    version,
                })),
                None if started_as_it_is => Ok(Some(plain(path))),
                None => Err("needs Node.js, which was not found".into()),
            };
        }
        let shell_shim = self.search.os == Os::Windows && !has_extension(path, STARTED_BY_WINDOWS);
        if shell_shim {
            return Err("is a shell script, which Windows cannot start".into());
        }
        if self.is_stub(&real) {
            return Err("is only a stub: the install script of its package was not run".into());
        }
        if runnable { Ok(Some(plain(path))) } else { Err("is not an executable file".into()) }
    }

    /// Returns whether the file is a placeholder that the package's install script should have replaced.
    fn is_stub(&self, real: &Path) -> bool {
        let text = self.fs.small(real, 4096).and_then(|bytes| String::from_utf8(bytes).ok());
        text.is_some_and(|text| !text.starts_with("#!") && text.contains("postinstall"))
    }

    /// Returns the JavaScript behind a program: the program itself, its link target, or the script that its shim
    /// starts.
    fn script(&self, path: &Path, real: &Path) -> Option<PathBuf> {
        if is_script(real) {
            return Some(real.to_path_buf());
        }
        if has_extension(real, &["exe", "com"]) {
            return None;
        }
        // A native executable can be very large; a shim is always small.
        let text = String::from_utf8(self.fs.small(real, 64 * 1024)?).ok()?;
        let inside = shim::script(&text)?;
        let folder = path.parent()?;
        let script = inside.iter().fold(folder.to_path_buf(), |at, part| {
            if part == ".." { at.parent().map(Path::to_path_buf).unwrap_or(at) } else { at.join(part) }
        });
        self.fs.canonical(&script)
    }

    /// Returns the Node.js to start a script with, or `None` if the program finds one on PATH by itself.
    ///
    /// Outside of PATH, a `node` in the same directory is preferred, since the program was installed for it.
    fn node_for(&self, candidate: Candidate, path: &Path, finds_its_own: bool) -> Option<PathBuf> {
        let as_typed = finds_its_own
            && matches!(candidate, Candidate::PathVariable | Candidate::Configured | Candidate::Path);
        let in_folder = |folder: &Path| tool_in(folder, "node", self.search, self.fs);
        let sibling = path.parent().filter(|_| !as_typed).and_then(in_folder);
        sibling.or_else(|| {
            let on_path =
                finds_its_own && candidates::path_folders(self.search).iter().any(|f| in_folder(f).is_some());
            if on_path { None } else { find_tool("node", self.search, self.fs) }
        })
    }

    /// Returns the version from the `package.json` of the agent's package, at or above a file. Programs from PyPI have
    /// none, but the directory of their installation is named after their version.
    fn version(&self, file: &Path) -> Option<Version> {
        if self.info.package.starts_with(PYPI) {
            let dir = file.parent()?.parent()?.file_name()?.to_str()?;
            return Version::parse(dir.strip_prefix(self.info.id)?.strip_prefix('-')?);
        }
        let managed = file.ends_with("volta-shim").then(|| {
            let root = file.parent().and_then(Path::parent).unwrap_or(file);
            let package = root.join("tools/image/packages").join(self.info.package);
            package.join("lib/node_modules").join(self.info.package).join("package.json")
        });
        let above = file.ancestors().skip(1).map(|folder| folder.join("package.json"));
        managed.into_iter().chain(above).find_map(|path| {
            let json: Value = serde_json::from_slice(&self.fs.read(&path)?).ok()?;
            (json.get("name")? == self.info.package)
                .then(|| Version::parse(json.get("version")?.as_str()?))?
        })
    }
}

fn is_script(path: &Path) -> bool {
    has_extension(path, &["js", "mjs", "cjs"])
}

fn has_extension(path: &Path, any_of: &[&str]) -> bool {
    path.extension().is_some_and(|e| any_of.iter().any(|x| e.eq_ignore_ascii_case(x)))
}

#[cfg(test)]
mod tests;
