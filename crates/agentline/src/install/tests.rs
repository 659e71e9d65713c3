//! Tests with shell scripts in place of `node` and `npm`: fast, and without a network.
#![cfg(unix)]

use super::{InstallError, InstallProgress, ensure, find_node};
use crate::detect::HostEnv;
use agentline_core::{Version, agents};
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
while [ $# -gt 0 ]; do
  case "$1" in --prefix) shift; prefix=$1;; @google*) spec=$1;; esac
  shift
done
test -n "$SLOW" && sleep "$SLOW"
if [ -n "$NPM_FAILS" ]; then
  mkdir -p "$prefix/node_modules/half"
  echo "npm error code $NPM_FAILS" >&2
  exit 1
fi
package="$prefix/node_modules/@google/gemini-cli"
mkdir -p "$package/bundle" "$prefix/node_modules/.bin"
echo "{\"name\":\"@google/gemini-cli\",\"version\":\"${NPM_GIVES:-${spec##*=}}\"}" > "$package/package.json"
printf '#!/usr/bin/env node\n' > "$package/bundle/gemini.js"
chmod +x "$package/bundle/gemini.js"
ln -s ../@google/gemini-cli/bundle/gemini.js "$prefix/node_modules/.bin/gemini"
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
    for word in ["--ignore-scripts", "--no-audit", "--no-fund", "--omit=dev", "@google/gemini-cli@=0.61.0"] {
        assert!(call.contains(word), "{call}");
    }

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
    let text = error.to_string();
    assert!(text.contains("exit status: 1") && text.contains("npm error code ENOTFOUND"), "{text}");
    assert!(error.hint().contains("npm config get registry"));
    assert_eq!(machine.names(), [".gemini-0.61.0.lock"]);
    assert!(machine.ensure("0.61.0", &[]).is_ok(), "the next try works");

    let error = machine.ensure("0.60.0", &[("NPM_FAILS", "EWEIRD")]).unwrap_err();
    assert!(error.hint().contains("`npm install -g @google/gemini-cli@0.60.0`"));
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
