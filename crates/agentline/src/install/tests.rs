//! Tests with shell scripts in place of `node` and `npm`: fast, and without a network.
#![cfg(unix)]

use super::{InstallError, InstallProgress, ensure, find_node, versions};
use crate::detect::HostEnv;
use agentline_core::{AgentInfo, Version, agents};
use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

/// A simulated machine with fake `node` and `npm` programs.
struct Machine {
    root: tempfile::TempDir,
}

const NODE: &str = "#!/bin/sh\necho v20.1.0\n";

/// A fake npm that imitates what the installation depends on, and records each call.
const NPM: &str = r#"#!/bin/sh
echo "$@" >> "$CALLS"
prefix=$PWD
echo "$HOME" >> "$CALLS.homes"
spec=$(sed -n 's/.*"@google\/gemini-cli":"\([^"]*\)".*/\1/p' "$prefix/package.json")
test -n "$SLOW" && sleep "$SLOW"
if [ -n "$NPM_FAILS" ]; then
  mkdir -p "$prefix/node_modules/half"
  echo "npm error code $NPM_FAILS" >&2
  exit 1
fi
package="$prefix/node_modules/@google/gemini-cli"
mkdir -p "$package/bundle" "$prefix/node_modules/.bin"
echo "{\"name\":\"@google/gemini-cli\",\"version\":\"${NPM_GIVES:-$spec}\"}" > "$package/package.json"
printf '#!/usr/bin/env node\n' > "$package/bundle/gemini.js"
chmod +x "$package/bundle/gemini.js"
ln -sf ../@google/gemini-cli/bundle/gemini.js "$prefix/node_modules/.bin/gemini"
"#;

impl Machine {
    fn new() -> Self {
        let machine = Self { root: tempfile::tempdir().unwrap() };
        fs::create_dir_all(machine.path("bin")).unwrap();
        machine.program("node", NODE);
        machine.program("npm", NPM);
        machine
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    fn program(&self, name: &str, text: &str) {
        let path = self.path("bin").join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn host_env(&self, more: &[(&str, &str)]) -> HostEnv {
        let bin = self.path("bin");
        let mut env = BTreeMap::from([
            ("PATH".to_owned(), format!("{}:/usr/bin:/bin", bin.display())),
            ("CALLS".to_owned(), self.path("calls").display().to_string()),
            ("AGENTLINE_CACHE_DIR".to_owned(), self.path("cache").display().to_string()),
        ]);
        env.extend(more.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())));
        HostEnv::new(env, self.path("home"), self.root.path())
    }

    fn calls(&self) -> Vec<String> {
        let text = fs::read_to_string(self.path("calls")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// Returns the names in the directory of installed agents.
    fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(self.path("cache/agents"))
            .map(|d| d.map(|e| e.unwrap().file_name().into_string().unwrap()).collect())
            .unwrap_or_default();
        names.sort();
        names
    }

    fn ensure(&self, version: &str, more: &[(&str, &str)]) -> Result<super::Program, InstallError> {
        ensure(agents::find("gemini").unwrap().info(), version, &self.host_env(more), &mut |_| {})
    }
}

#[test]
fn installs_once_and_then_returns_immediately() {
    let machine = Machine::new();
    let host_env = machine.host_env(&[]);
    let mut lines = Vec::new();
    let agent = agents::find("gemini").unwrap();
    let program =
        ensure(agent.info(), "0.61.0", &host_env, &mut |p: InstallProgress| lines.push(p.to_string()))
            .unwrap();
    let dir = machine.path("cache/agents/gemini-0.61.0");
    assert_eq!(program.path, dir.join("node_modules/.bin/gemini"));
    assert_eq!(program.version, Some(Version(0, 61, 0)));
    let first = format!("installing @google/gemini-cli@0.61.0 with npm into {}", dir.display());
    assert_eq!(lines[0], first);
    assert!(lines.last().unwrap().starts_with("installed @google/gemini-cli@0.61.0 in "));
    assert_eq!(machine.names(), [".gemini-0.61.0.lock", "gemini-0.61.0"]);
    let call = &machine.calls()[0];
    for word in ["ci ", "--ignore-scripts", "--no-audit", "--no-fund", "--omit=dev"] {
        assert!(call.contains(word), "{call}");
    }
    assert!(!call.contains("--prefix"), "npm reads the settings of the machine: {call}");
    let lock = fs::read_to_string(dir.join("package-lock.json")).unwrap();
    let hash =
        r#""node_modules/@google/gemini-cli":{"bin":{"gemini":"bundle/gemini.js"},"integrity":"sha512-"#;
    assert!(lock.contains(hash) && !lock.contains("://"), "{lock}");
    let home = fs::read_to_string(machine.path("calls.homes")).unwrap();
    assert!(home.starts_with(machine.path("cache/agents/.gemini-0.61.0-").to_str().unwrap()), "{home}");
    assert!(!dir.join(".home").exists(), "the private home directory is removed");

    lines.clear();
    let again =
        ensure(agent.info(), "0.61.0", &host_env, &mut |p: InstallProgress| lines.push(p.to_string()))
            .unwrap();
    assert_eq!((again, lines.len(), machine.calls().len()), (program, 0, 1));
}

#[test]
fn concurrent_calls_install_once() {
    let machine = Machine::new();
    std::thread::scope(|scope| {
        let all: Vec<_> =
            (0..6).map(|_| scope.spawn(|| machine.ensure("0.61.0", &[("SLOW", "0.3")]))).collect();
        for one in all {
            assert!(one.join().unwrap().is_ok());
        }
    });
    assert_eq!(machine.calls().len(), 1);
    assert_eq!(machine.names(), [".gemini-0.61.0.lock", "gemini-0.61.0"]);
}

#[test]
fn failure_leaves_nothing_and_reports_the_npm_error() {
    let machine = Machine::new();
    let error = machine.ensure("0.61.0", &[("NPM_FAILS", "ENOTFOUND")]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "cannot install @google/gemini-cli@0.61.0: the package registry cannot be reached"
    );
    assert!(error.hint().contains("check the network"), "{}", error.hint());
    assert_eq!(machine.names(), [".gemini-0.61.0.lock"]);
    assert!(machine.ensure("0.61.0", &[]).is_ok(), "the next try works");

    let error = machine.ensure("0.24.0", &[("NPM_FAILS", "EINTEGRITY")]).unwrap_err();
    assert!(matches!(error, InstallError::Tampered { .. }), "{error}");
    assert!(error.to_string().contains("does not have its pinned hash"), "{error}");

    let error = machine.ensure("0.60.0", &[("NPM_FAILS", "EWEIRD")]).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("exit status: 1") && text.contains("npm error code EWEIRD"), "{text}");
}

#[test]
fn version_without_a_pin_is_installed_with_a_lock_file_of_npm() {
    let machine = Machine::new();
    let mut lines = Vec::new();
    let info = agents::find("gemini").unwrap();
    ensure(info.info(), "0.60.0", &machine.host_env(&[]), &mut |p| lines.push(p.to_string())).unwrap();
    assert!(lines[1].contains("is not a pinned version"), "{lines:?}");
    let call = &machine.calls()[0];
    assert!(call.starts_with("install ") && call.contains("--package-lock"), "{call}");
    let versions = versions(&*info, &machine.host_env(&[]));
    let row = |version: &str| versions.iter().find(|row| row.version == version).unwrap();
    assert_eq!((row("0.60.0").pinned, row("0.60.0").path.is_some()), (false, true));
    assert_eq!((row("0.24.0").pinned, row("0.24.0").path.is_some()), (true, false));
    assert!(row("0.61.0").default && row("0.61.0").integrity[0].starts_with("sha512-"));
}

#[test]
fn install_script_runs_only_for_packages_that_need_it() {
    let machine = Machine::new();
    let agent = agents::find("gemini").unwrap();
    let mut info = agent.info();
    info.install_script = true;
    ensure(info, "0.61.0", &machine.host_env(&[]), &mut |_| {}).unwrap();
    let calls = machine.calls();
    assert!(calls[0].starts_with("ci --ignore-scripts "), "{calls:?}");
    assert!(calls[1].starts_with("rebuild @google/gemini-cli --ignore-scripts=false "), "{calls:?}");
}

/// A fake Python that imitates `-m venv` and `-m pip`.
const PYTHON: &str = r#"#!/bin/sh
echo "$@" >> "$CALLS"
case "$*" in
  -c*) echo "${PYTHON_VERSION:-3.12.4}";;
  "-m venv"*) mkdir -p "$3/bin" "$3/lib/python3.12/site-packages"; cp "$0" "$3/bin/python";;
  "-m pip"*)
    if [ -n "$PIP_FAILS" ]; then echo "$PIP_FAILS" >&2; exit 1; fi
    dir=$(dirname "$(dirname "$0")")
    mkdir -p "$dir/lib/python3.12/site-packages/mistral_vibe-3.0.2.dist-info"
    printf '#!%s/bin/python\nimport vibe\n' "$dir" > "$dir/bin/vibe-acp"
    chmod +x "$dir/bin/vibe-acp";;
esac
"#;

#[test]
fn package_from_pypi_is_installed_by_its_hashes_only() {
    let machine = Machine::new();
    machine.program("python3", PYTHON);
    let mut info = AgentInfo::new("vibe");
    (info.program, info.package, info.pinned) = ("vibe-acp", "pypi:mistral-vibe", "3.0.2");
    let install = |version: &str, more: &[(&str, &str)]| {
        // Only the programs of this machine are found, not those of the machine that runs the tests.
        let path = ("PATH", &*format!("{}:/bin", machine.path("bin").display()));
        let more: Vec<_> = more.iter().copied().chain([path]).collect();
        ensure(info, version, &machine.host_env(&more), &mut |_| {})
    };
    let tampered = "ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE.";
    let error = install("3.0.2", &[("PIP_FAILS", tampered)]).unwrap_err();
    assert!(matches!(error, InstallError::Tampered { .. }), "{error}");
    let error = install("3.0.2", &[("PIP_FAILS", "Retrying after NewConnectionError")]).unwrap_err();
    assert!(matches!(error, InstallError::Offline { .. }), "{error}");
    let error = install("3.0.1", &[]).unwrap_err();
    assert!(matches!(error, InstallError::NotPinned { .. }) && error.hint().contains("3.0.2"), "{error}");
    assert_eq!(machine.names(), [".vibe-3.0.1.lock", ".vibe-3.0.2.lock"]);

    let program = install("3.0.2", &[]).unwrap();
    let dir = machine.path("cache/agents/vibe-3.0.2");
    assert_eq!((program.path.clone(), program.version), (dir.join("bin/vibe-acp"), Some(Version(3, 0, 2))));
    let text = fs::read_to_string(&program.path).unwrap();
    assert!(text.starts_with(&format!("#!{}/bin/python\n", dir.display())), "{text}");
    let requirements = fs::read_to_string(dir.join("requirements.txt")).unwrap();
    assert!(requirements.contains("mistral-vibe==3.0.2 --hash=sha256:"), "{requirements}");
    assert!(machine.calls().last().unwrap().contains("--require-hashes --no-deps"));
}

#[test]
fn unexpected_version_is_refused() {
    let machine = Machine::new();
    let error = machine.ensure("0.61.0", &[("NPM_GIVES", "0.62.0")]).unwrap_err();
    assert!(error.to_string().contains("version 0.62.0"), "{error}");
    assert_eq!(machine.names(), [".gemini-0.61.0.lock"]);
}

#[test]
fn broken_or_partial_installation_is_replaced() {
    let machine = Machine::new();
    let agents = machine.path("cache/agents");
    fs::create_dir_all(agents.join("gemini-0.61.0/node_modules")).unwrap();
    fs::create_dir_all(agents.join(".gemini-0.61.0-killed/node_modules")).unwrap();
    fs::create_dir_all(agents.join(".gemini-0.60.0-other")).unwrap();
    machine.ensure("0.61.0", &[]).unwrap();
    assert_eq!(machine.names(), [".gemini-0.60.0-other", ".gemini-0.61.0.lock", "gemini-0.61.0"]);
}

#[test]
fn missing_or_outdated_tools_are_named() {
    let machine = Machine::new();
    machine.program("node", "#!/bin/sh\necho v18.20.4\n");
    let error = machine.ensure("0.61.0", &[]).unwrap_err();
    assert!(error.to_string().contains("18.20.4") && error.to_string().contains("20 or newer"), "{error}");

    let error = machine.ensure("latest", &[]).unwrap_err();
    assert_eq!(error.to_string(), "`latest` is not a complete version");
    for bad in ["", "1.2", "1.2.3 --global", "../1.2.3", "^1.2.3"] {
        assert!(matches!(machine.ensure(bad, &[]), Err(InstallError::Version(_))), "{bad}");
    }
    assert!(machine.calls().is_empty());
}

#[test]
fn node_version_is_checked() {
    let machine = Machine::new();
    let node = find_node(&machine.host_env(&[])).unwrap();
    assert_eq!((node.path, node.version), (machine.path("bin/node"), Some(Version(20, 1, 0))));
    machine.program("node", "#!/bin/sh\nexit 1\n");
    assert_eq!(find_node(&machine.host_env(&[])).unwrap().version, None);
}

#[test]
fn file_at_the_install_path_is_a_clear_error() {
    let machine = Machine::new();
    fs::write(machine.path("cache"), "").unwrap();
    let error = machine.ensure("0.61.0", &[]).unwrap_err();
    assert!(matches!(error, InstallError::Cache { .. }), "{error}");
    assert!(error.hint().contains("AGENTLINE_CACHE_DIR"));
    assert!(Path::new(&machine.path("cache")).is_file());
}
