//! Installs packages from PyPI into a virtual environment.

use super::{InstallError, InstallProgress, Job, tool};
use crate::{detect::HostEnv, fs::disk_fs::DiskFs};
use agentline_core::{
    FileSystem, Version,
    detect::{find_tool, tool_in},
};
use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

const PYTHON_PATIENCE: Duration = Duration::from_secs(20);
/// The oldest Python that the pinned packages support.
const OLDEST: (&str, Version) = ("3.12", Version(3, 12, 0));
/// The names of suitable programs, in order.
const NAMES: &[&str] = &["python3.12", "python3.13", "python3.14", "python3", "python"];
/// Directories in the user's home whose subdirectories are installations of Python.
const IN_HOME: &[&str] = &[".pyenv/versions", ".local/share/uv/python", ".local/share/mise/installs/python"];

/// Finds a suitable Python.
fn find_python(host_env: &HostEnv) -> Option<PathBuf> {
    let search = host_env.search();
    let folders = IN_HOME.iter().flat_map(|folder| {
        let folder = host_env.home.join(folder);
        let names = DiskFs.list(&folder).unwrap_or_default();
        names.into_iter().map(move |name| folder.join(name).join("bin"))
    });
    let folders: Vec<PathBuf> = folders.collect();
    let known = NAMES.iter().filter_map(|name| find_tool(name, &search, &DiskFs));
    let in_home =
        NAMES.iter().flat_map(|name| folders.iter().filter_map(|dir| tool_in(dir, name, &search, &DiskFs)));
    known.chain(in_home).find(|python| {
        let mut command = tool::command(python, None, host_env);
        command.args(["-c", "import sys, venv; print('%d.%d.%d' % sys.version_info[:3])"]);
        let version = tool::output(command, PYTHON_PATIENCE).and_then(|text| Version::parse(&text));
        version.is_some_and(|version| version >= OLDEST.1)
    })
}

/// Returns the directory of the programs of an installation, or a description of what was found instead.
pub(super) fn programs(dir: &Path, package: &str, version: &str) -> Result<PathBuf, String> {
    let info = format!("{}-{version}.dist-info", package.replace(['-', '.'], "_"));
    let pythons = DiskFs.list(&dir.join("lib")).unwrap_or_default();
    let has =
        |python: &String| DiskFs.exists(&dir.join("lib").join(python).join("site-packages").join(&info));
    if pythons.iter().any(has) { Ok(dir.join("bin")) } else { Err(format!("no `{info}`")) }
}

/// Installs a pinned version in a directory.
pub(super) fn install(
    job: &Job<'_>,
    dir: &Path,
    on: &mut dyn FnMut(InstallProgress),
) -> Result<(), InstallError> {
    let package = job.package_spec();
    let Some(pin) = job.pin() else {
        let pinned = job.pins.of(job.info.package).map(|pin| pin.version.clone()).collect();
        return Err(InstallError::NotPinned { package, pinned });
    };
    let python = find_python(job.host_env).ok_or(InstallError::NoPython { needed: OLDEST.0 })?;
    on(InstallProgress::Installing { package: package.clone(), with: "pip", dir: job.dir() });
    let io = |source| InstallError::Cache { doing: "write to", path: dir.to_path_buf(), source };
    let mut command = tool::command(&python, None, job.host_env);
    command.args(["-m", "venv"]).arg(dir);
    tool::run(command, (&package, "pip"), dir, on)?;

    let requirements = dir.join("requirements.txt");
    fs::write(&requirements, pin.requirements()).map_err(io)?;
    let mut command = tool::command(&dir.join("bin/python"), None, job.host_env);
    // The index, the proxy and the credentials of the user apply, although the home directory is another one.
    let config = job.host_env.home.join(".config/pip/pip.conf");
    if !job.host_env.env.contains_key("PIP_CONFIG_FILE") && config.exists() {
        command.env("PIP_CONFIG_FILE", config);
    }
    command.args(["-m", "pip", "install", "--require-hashes", "--no-deps", "--only-binary", ":all:"]);
    command.args([
        "--no-cache-dir",
        "--no-input",
        "--quiet",
        "--disable-pip-version-check",
        "--retries",
        "1",
    ]);
    command.arg("--requirement").arg(&requirements);
    tool::run(command, (&package, "pip"), dir, on)?;
    tool::remove_private_home(dir);
    move_programs(dir, &job.dir()).map_err(io)
}

/// Changes the paths in the programs of an environment to those that they have in its final directory.
fn move_programs(dir: &Path, to: &Path) -> std::io::Result<()> {
    let (from, to) = (dir.to_string_lossy(), to.to_string_lossy());
    for entry in fs::read_dir(dir.join("bin"))? {
        let path = entry?.path();
        // Python itself is a link to a large program, and has no such paths.
        if path.is_symlink() {
            continue;
        }
        if let Ok(text) = fs::read_to_string(&path)
            && text.contains(&*from)
        {
            fs::write(&path, text.replace(&*from, &to))?;
        }
    }
    Ok(())
}
