//! A Python with pytest, a type checker and a JSON Schema validator at fixed versions, and our package installed by pip.

use crate::real::are_disabled;
use agentline::Agentline;
use std::{
    ffi::OsString,
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    sync::OnceLock,
};

/// The packages of the environment, with all dependencies.
const TOOLS: Kit = Kit {
    packages: &[
        "pytest==9.2.0",
        "mypy==2.4.1",
        "setuptools==84.2.1",
        "ast_serialize==0.13.1",
        "iniconfig==2.3.1",
        "librt==0.16.0",
        "mypy_extensions==1.2.0",
        "packaging==26.3",
        "pathspec==1.1.1",
        "pluggy==1.7.0",
        "Pygments==2.21.0",
        "typing_extensions==4.16.0",
        "jsonschema==4.26.0",
        "attrs==26.1.0",
        "jsonschema-specifications==2025.9.1",
        "referencing==0.37.0",
        "rpds-py==2026.9.1",
        "PyYAML==6.0.3",
    ],
    oldest: (3, 11),
};
/// The packages for the tests with the real WINK and the real Pydantic. WINK needs Python 3.13.
const WINK: Kit = Kit {
    packages: &[
        "pytest==9.2.0",
        "setuptools==84.2.1",
        "iniconfig==2.3.1",
        "packaging==26.3",
        "pluggy==1.7.0",
        "Pygments==2.21.0",
        "weakincentives==0.27.0",
        "pydantic==2.14.3",
        "pydantic_core==2.50.4",
        "annotated-types==0.8.0",
        "typing-inspection==0.4.5",
        "typing_extensions==4.16.0",
    ],
    oldest: (3, 13),
};
/// The locations that are searched for Python, after `AGENTLINE_PYTHON`.
const NAMES: &[&str] = &["python3", "python", "python3.13", "python3.12", "python3.11"];
const HELP: &str = "AGENTLINE_PYTHON sets the Python; AGENTLINE_REAL_AGENTS=off disables these tests";
/// Written last, so that an incomplete environment is not used.
const READY: &str = "agentline-ready";

static CACHED: OnceLock<Option<Python>> = OnceLock::new();

/// Packages that an environment has, and the oldest Python that they support.
struct Kit {
    packages: &'static [&'static str],
    oldest: (u32, u32),
}

/// A Python that can test our package.
#[derive(Clone, Debug)]
pub struct Python {
    program: PathBuf,
    /// The installation of our package, separate from everything else.
    site: PathBuf,
}

impl Python {
    /// Returns Python with all packages, or `None` if real agents are disabled.
    ///
    /// # Panics
    /// Panics if no Python is new enough or its packages cannot be installed.
    #[must_use]
    pub fn find() -> Option<Self> {
        let python = CACHED.get_or_init(|| {
            if are_disabled() {
                return None;
            }
            Some(make(&TOOLS).unwrap_or_else(|error| panic!("{error}\n{HELP}")))
        });
        python.clone()
    }

    /// Returns a Python with the real `weakincentives` and `pydantic`, or `None` if real agents are disabled or no Python
    /// is new enough for them.
    ///
    /// # Panics
    /// Panics if the packages cannot be installed.
    #[must_use]
    pub fn with_wink() -> Option<Self> {
        if are_disabled() || base(WINK.oldest).is_err() {
            return None;
        }
        Some(make(&WINK).unwrap_or_else(|error| panic!("{error}\n{HELP}")))
    }

    /// Returns the wheel of a package at a version, `name==version`, which pip downloads once and compares with its digest.
    ///
    /// # Panics
    /// Panics if it cannot be downloaded.
    #[must_use]
    pub fn wheel(&self, package: &str, sha256: &str) -> PathBuf {
        self.download(package, sha256).unwrap_or_else(|error| panic!("{error}\n{HELP}"))
    }

    fn download(&self, package: &str, sha256: &str) -> Result<PathBuf, String> {
        let agentline = Agentline::from_env().map_err(|e| e.to_string())?;
        let dir = agentline.host_env().cache.join("python").join(format!("wheel-{sha256}"));
        let describe = |e: std::io::Error| format!("{}: {e}", dir.display());
        fs::create_dir_all(&dir).map_err(describe)?;
        let lock = File::create(dir.join(".lock")).map_err(describe)?;
        lock.lock().map_err(describe)?;
        if !dir.join(READY).exists() {
            let requirements = dir.join("requirements.txt");
            fs::write(&requirements, format!("{package} --hash=sha256:{sha256}\n")).map_err(describe)?;
            let mut pip = Command::new(&self.program);
            pip.args(["-m", "pip", "download", "--disable-pip-version-check", "-q", "--no-deps"]);
            pip.args(["--only-binary=:all:", "--require-hashes", "-r"])
                .arg(&requirements)
                .arg("-d")
                .arg(&dir);
            run(&mut pip)?;
            fs::write(dir.join(READY), "").map_err(describe)?;
        }
        let mut files = fs::read_dir(&dir).map_err(describe)?.flatten().map(|entry| entry.path());
        files
            .find(|path| path.extension().is_some_and(|end| end == "whl"))
            .ok_or(format!("no wheel of {package}"))
    }

    /// Returns the directory of our package in the repository.
    #[must_use]
    pub fn source() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../integrations/python")
    }

    /// Returns Python with our package, in its own environment.
    #[must_use]
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.env_clear().stdin(Stdio::null()).current_dir(Self::source());
        for name in ["PATH", "HOME", "CI", "LANG"] {
            if let Some(value) = std::env::var_os(name) {
                command.env(name, value);
            }
        }
        // Nothing is written into the repository.
        command.env("PYTHONPATH", &self.site).env("PYTHONDONTWRITEBYTECODE", "1");
        command
    }
}

fn make(kit: &Kit) -> Result<Python, String> {
    let (base, (major, minor)) = base(kit.oldest)?;
    let agentline = Agentline::from_env().map_err(|e| e.to_string())?;
    let dir = agentline.host_env().cache.join("python");
    let tools =
        dir.join(format!("tools-{:x}-py{major}.{minor}", fingerprint(kit.packages.concat().as_bytes())));
    let describe = |e: std::io::Error| format!("{}: {e}", dir.display());
    fs::create_dir_all(&dir).map_err(describe)?;
    // Tests run in several processes; one installs, and the others wait for it.
    let lock = File::create(dir.join(".lock")).map_err(describe)?;
    lock.lock().map_err(describe)?;
    let program = tools.join(if cfg!(windows) { "Scripts/python.exe" } else { "bin/python" });
    if !tools.join(READY).exists() {
        report(&format!("setting up packages for Python {major}.{minor} in {}", tools.display()));
        if tools.exists() {
            fs::remove_dir_all(&tools).map_err(describe)?;
        }
        run(Command::new(&base).args(["-m", "venv"]).arg(&tools))?;
        run(Command::new(&program)
            .args(["-m", "pip", "install", "--disable-pip-version-check", "-q"])
            .args(kit.packages))?;
        fs::write(tools.join(READY), "").map_err(describe)?;
    }
    let site = install(&program, &tools)?;
    Ok(Python { program, site })
}

/// Installs our package as a user would, from a copy, because pip builds in the given directory. Each state of the
/// source has its own directory, because another process may test another one.
fn install(program: &Path, tools: &Path) -> Result<PathBuf, String> {
    let describe = |e: std::io::Error| format!("our package: {e}");
    let source = Python::source();
    let mut files: Vec<PathBuf> = ["pyproject.toml", "README.md"].map(PathBuf::from).into();
    for entry in fs::read_dir(source.join("agentline")).map_err(describe)? {
        let entry = entry.map_err(describe)?;
        if entry.file_type().map_err(describe)?.is_file() {
            files.push(Path::new("agentline").join(entry.file_name()));
        }
    }
    files.sort();
    let mut bytes = Vec::new();
    for file in &files {
        bytes.extend_from_slice(file.as_os_str().as_encoded_bytes());
        bytes.extend(fs::read(source.join(file)).map_err(describe)?);
    }
    let site = tools.join(format!("site-{:x}", fingerprint(&bytes)));
    if site.join(READY).exists() {
        return Ok(site);
    }
    forget_old(tools);
    let copy = tempfile::tempdir().map_err(describe)?;
    fs::create_dir(copy.path().join("agentline")).map_err(describe)?;
    for file in &files {
        fs::copy(source.join(file), copy.path().join(file)).map_err(describe)?;
    }
    let mut pip = Command::new(program);
    pip.args([
        "-m",
        "pip",
        "install",
        "--disable-pip-version-check",
        "-q",
        "--no-index",
        "--no-deps",
        "--upgrade",
    ]);
    run(pip.arg("--no-build-isolation").arg("--target").arg(&site).arg(copy.path()))?;
    fs::write(site.join(READY), "").map_err(describe)?;
    Ok(site)
}

/// Removes states of our package that are no longer tested.
fn forget_old(tools: &Path) {
    let day = std::time::Duration::from_secs(24 * 3600);
    for entry in fs::read_dir(tools).into_iter().flatten().flatten() {
        let is_site = entry.file_name().to_string_lossy().starts_with("site-");
        let age = entry.metadata().and_then(|m| m.modified()).ok().and_then(|time| time.elapsed().ok());
        if is_site && age.is_some_and(|age| age > day) {
            // Directories that cannot be removed do no harm.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// Returns the first Python that is new enough, with its version.
pub(crate) fn base(oldest: (u32, u32)) -> Result<(OsString, (u32, u32)), String> {
    let named = std::env::var_os("AGENTLINE_PYTHON");
    let names = named.into_iter().chain(NAMES.iter().map(OsString::from)).chain(pyenv_versions());
    let mut seen = Vec::new();
    for name in names {
        let asked = Command::new(&name)
            .args(["-c", "import sys, ensurepip; print(*sys.version_info[:2])"])
            .stdin(Stdio::null())
            .output();
        let Some(out) = asked.ok().filter(|out| out.status.success()) else { continue };
        let output = String::from_utf8_lossy(&out.stdout).into_owned();
        let mut numbers = output.split_whitespace().filter_map(|n| n.parse::<u32>().ok());
        let (Some(major), Some(minor)) = (numbers.next(), numbers.next()) else { continue };
        if (major, minor) >= oldest {
            return Ok((name, (major, minor)));
        }
        seen.push(format!("{} is {major}.{minor}", name.to_string_lossy()));
    }
    Err(format!("no Python {}.{} or newer with venv was found ({})", oldest.0, oldest.1, seen.join(", ")))
}

/// Returns the versions that pyenv has installed, which are not all on PATH.
fn pyenv_versions() -> Vec<OsString> {
    let root = std::env::var_os("PYENV_ROOT").map(PathBuf::from);
    let root = root.or_else(|| std::env::var_os("HOME").map(|home| Path::new(&home).join(".pyenv")));
    let entries = root.and_then(|root| fs::read_dir(root.join("versions")).ok());
    let mut found: Vec<_> = entries
        .into_iter()
        .flatten()
        .flatten()
        .map(|e| e.path().join("bin/python3").into_os_string())
        .collect();
    found.sort();
    found
}

/// Returns a number that depends on the bytes.
fn fingerprint(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

fn run(command: &mut Command) -> Result<Output, String> {
    let output = command.stdin(Stdio::null()).output().map_err(|e| format!("{command:?}: {e}"))?;
    if output.status.success() {
        return Ok(output);
    }
    Err(format!("{command:?} failed:\n{}", String::from_utf8_lossy(&output.stderr)))
}

#[expect(clippy::print_stderr, reason = "tests report what they install")]
fn report(message: &str) {
    eprintln!("{message}");
}
