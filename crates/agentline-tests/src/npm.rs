//! Installs one version of an npm package into the cache directory into which agentline installs its agents.

use agentline::{Agentline, install::find_node};
use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// A package at a fixed version.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Package {
    /// The prefix of its directory.
    pub(crate) id: &'static str,
    pub(crate) name: &'static str,
    pub(crate) version: &'static str,
    /// Additional packages, each as `name@=version`.
    pub(crate) extras: &'static [&'static str],
}

impl Package {
    /// Creates a package with all of its dependencies.
    pub(crate) const fn new(id: &'static str, name: &'static str, version: &'static str) -> Self {
        Self { id, name, version, extras: &[] }
    }

    /// Returns its `node_modules`, and installs it if necessary.
    pub(crate) fn modules(self) -> Result<PathBuf, String> {
        let agentline = Agentline::from_env().map_err(|e| e.to_string())?;
        let host_env = agentline.host_env();
        let agents = host_env.cache.join("agents");
        let name = format!("{}-{}", self.id, self.version);
        let folder = agents.join(&name);
        if self.is_in(&folder) {
            return Ok(folder.join("node_modules"));
        }
        let describe = |e: std::io::Error| format!("{}: {e}", agents.display());
        fs::create_dir_all(&agents).map_err(describe)?;
        // Several tests and processes may need it; one installs, and the others wait for it.
        let lock = File::create(agents.join(format!(".{name}.lock"))).map_err(describe)?;
        lock.lock().map_err(describe)?;
        if self.is_in(&folder) {
            return Ok(folder.join("node_modules"));
        }
        let node = find_node(host_env).ok_or("Node.js was not found")?.path;
        let staging =
            tempfile::Builder::new().prefix(&format!(".{name}-")).tempdir_in(&agents).map_err(describe)?;
        self.install(&node, staging.path())?;
        if !self.is_in(staging.path()) {
            return Err(format!("npm succeeded, but {}@{} is missing", self.name, self.version));
        }
        if folder.exists() {
            fs::remove_dir_all(&folder).map_err(describe)?;
        }
        fs::rename(staging.path(), &folder).map_err(describe)?;
        // The directory was moved: there is nothing to remove.
        let _moved = staging.keep();
        Ok(folder.join("node_modules"))
    }

    fn is_in(self, folder: &Path) -> bool {
        let file = folder.join("node_modules").join(self.name).join("package.json");
        let json = fs::read(file).unwrap_or_default();
        let json: serde_json::Value = serde_json::from_slice(&json).unwrap_or_default();
        json["version"] == self.version
    }

    /// Runs npm with the user's own configuration. As for the agents of agentline, scripts of packages do not run.
    /// Optional dependencies are omitted if all needed ones are listed.
    fn install(self, node: &Path, folder: &Path) -> Result<(), String> {
        let sibling = node.with_file_name(if cfg!(windows) { "npm.cmd" } else { "npm" });
        let npm = if sibling.exists() { sibling } else { PathBuf::from("npm") };
        fs::write(folder.join("package.json"), "{\"private\":true}\n").map_err(|e| e.to_string())?;
        let output = Command::new(&npm)
            .args(["install", "--global=false", "--workspaces=false", "--ignore-scripts", "--omit=dev"])
            .args(["--no-audit", "--no-fund", "--no-progress", "--no-package-lock", "--loglevel=error"])
            .args((!self.extras.is_empty()).then_some("--omit=optional"))
            .arg(format!("{}@={}", self.name, self.version))
            .args(self.extras)
            // With `--prefix`, npm would not read the settings of the machine.
            .current_dir(folder)
            .stdin(Stdio::null())
            .output()
            .map_err(|e| format!("{}: {e}", npm.display()))?;
        if output.status.success() {
            return Ok(());
        }
        let package = format!("{}@{}", self.name, self.version);
        Err(format!("npm could not install {package}:\n{}", String::from_utf8_lossy(&output.stderr)))
    }
}
