//! Tests of the doctor on simulated machines.
#![cfg(unix)]

use super::{DoctorReport, doctor, render};
use crate::detect::HostEnv;
use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

struct Machine {
    root: tempfile::TempDir,
}

impl Machine {
    /// Creates a machine with Node.js and Gemini CLI on `PATH`.
    fn new(version: &str) -> Self {
        let machine = Self { root: tempfile::tempdir().unwrap() };
        machine.program("bin/node", "#!/bin/sh\necho v20.1.0\n");
        let package = "bin/node_modules/@google/gemini-cli";
        machine.program(&format!("{package}/bundle/gemini.js"), "#!/usr/bin/env node\n");
        let json = format!(r#"{{"name":"@google/gemini-cli","version":"{version}"}}"#);
        machine.write(&format!("{package}/package.json"), &json);
        let script = "node_modules/@google/gemini-cli/bundle/gemini.js";
        std::os::unix::fs::symlink(script, machine.path("bin/gemini")).unwrap();
        fs::create_dir_all(machine.path("work")).unwrap();
        machine
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn program(&self, name: &str, text: &str) {
        self.write(name, text);
        fs::set_permissions(self.path(name), fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn report(&self, more: &[(&str, &str)]) -> DoctorReport {
        let mut env = BTreeMap::from([("PATH".to_owned(), self.path("bin").display().to_string())]);
        env.extend(more.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())));
        doctor(&HostEnv::new(env, self.path("home"), self.path("work")))
    }
}

const KEY: (&str, &str) = ("GEMINI_API_KEY", "a-secret-key");

#[test]
fn ready_machine_passes() {
    let report = Machine::new("0.61.0").report(&[KEY]);
    assert!(report.ok(), "{report:?}");
    let agent = &report.agents[0];
    assert!(agent.installed && agent.fixes.is_empty() && agent.notes.is_empty(), "{agent:?}");
    let text = render(&report);
    for expected in ["Gemini CLI (gemini): ready", "0.61.0", "Node.js     20.1.0", "    * `GEMINI_API_KEY`\n"]
    {
        assert!(text.contains(expected), "{expected}\n{text}");
    }
    let json = serde_json::to_string(&report).unwrap();
    assert!(!text.contains(KEY.1) && !json.contains(KEY.1));
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["agents"][0]["looked"][0]["place"], "path");
}

#[test]
fn withheld_variables_are_named() {
    let report = Machine::new("0.61.0").report(&[KEY, ("MY_TOKEN", "a-secret-token")]);
    assert_eq!(report.agents[0].withheld, ["MY_TOKEN"]);
    let text = render(&report);
    assert!(text.contains("withheld    MY_TOKEN") && !text.contains("a-secret-token"), "{text}");
}

#[test]
fn missing_sign_in_is_reported_with_a_hint() {
    let report = Machine::new("0.61.0").report(&[]);
    assert!(!report.ok());
    let text = render(&report);
    assert!(text.contains("problem     Gemini CLI is not signed in"), "{text}");
    assert!(text.contains("fix         set GEMINI_API_KEY"), "{text}");
}

#[test]
fn missing_named_program_is_reported() {
    let report = Machine::new("0.61.0").report(&[KEY, ("GEMINI_CLI_PATH", "/nowhere/gemini")]);
    let agent = &report.agents[0];
    assert!(!agent.installed && !agent.ready);
    assert!(agent.fixes[0].contains("unset `GEMINI_CLI_PATH`"), "{:?}", agent.fixes);
    assert!(render(&report).contains("- path variable /nowhere/gemini"));
}

#[test]
fn settings_file_that_is_not_json_is_reported() {
    let machine = Machine::new("0.61.0");
    machine.write("home/.gemini/settings.json", "{\n \"a\": }\n");
    let report = machine.report(&[KEY]);
    assert!(!report.ok());
    let text = render(&report);
    assert!(text.contains("settings.json`: is not JSON") && text.contains("line 2 column 7"), "{text}");
}

#[test]
fn versions_and_trust_are_reported() {
    let machine = Machine::new("0.70.1");
    let work = fs::canonicalize(machine.path("work")).unwrap();
    let rules = format!(r#"{{"{}":"TRUST_FOLDER"}}"#, work.display());
    machine.write("home/.gemini/trustedFolders.json", &rules);
    let report = machine.report(&[KEY]);
    assert!(report.ok());
    assert_eq!(report.agents[0].trusted, Some(true));
    let text = render(&report);
    assert!(
        text.contains("newer than 0.61.0") && text.contains("trusted by the agent's own rules"),
        "{text}"
    );

    machine.program("bin/node", "#!/bin/sh\necho v18.0.0\n");
    let report = machine.report(&[KEY]);
    assert!(!report.ok());
    assert!(report.agents[0].fixes.contains(&"install Node.js 20 or newer".to_owned()));
}

#[test]
fn cache_is_checked() {
    let machine = Machine::new("0.61.0");
    let cache = |path: &Path| machine.report(&[("AGENTLINE_CACHE_DIR", path.to_str().unwrap())]).cache;
    assert_eq!(cache(&machine.path("new/folder")).problem, None);
    assert!(!machine.path("new").exists());
    machine.write("file", "");
    assert!(cache(&machine.path("file/folder")).problem.unwrap().contains("is not a directory"));
}
