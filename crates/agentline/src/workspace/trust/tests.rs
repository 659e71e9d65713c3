//! Tests of manifests, and of the trust state of directories that change.

use crate::workspace::trust::*;
use std::{collections::BTreeMap, fs, path::PathBuf};

/// A home directory with a project in it.
struct Machine {
    temp: tempfile::TempDir,
}

impl Machine {
    fn new() -> Self {
        let machine = Self { temp: tempfile::tempdir().unwrap() };
        fs::create_dir_all(machine.path("home/code/project/sub")).unwrap();
        machine
    }

    fn path(&self, path: &str) -> PathBuf {
        self.temp.path().canonicalize().unwrap().join(path)
    }

    fn write(&self, path: &str, content: impl AsRef<[u8]>) {
        fs::create_dir_all(self.path(path).parent().unwrap()).unwrap();
        fs::write(self.path(path), content).unwrap();
    }

    fn manifest(&self) -> Result<Manifest, Problem> {
        Manifest::read(&self.path("home/code/project"), Some(&self.path("home")))
    }

    fn files(&self) -> Vec<String> {
        self.manifest().unwrap().files.into_keys().collect()
    }

    fn store(&self) -> TrustStore {
        TrustStore::find(Some(&self.path("home")), &BTreeMap::new()).unwrap()
    }

    fn state(&self) -> TrustState {
        self.store().state(&self.path("home/code/project")).unwrap()
    }
}

#[test]
fn manifest_contains_only_the_settings_of_every_agent() {
    let machine = Machine::new();
    for file in [
        "agentline.toml",
        ".env",
        ".mcp.json",
        "opencode.json",
        ".gemini/settings.json",
        ".gemini/commands/deep/x.toml",
        ".claude/settings.local.json",
        ".codex/config.toml",
        ".opencode/plugin/p.js",
        ".agents/skills/s/SKILL.md",
        "GEMINI.md",
        "src/main.rs",
        "sub/.gemini/settings.json",
    ] {
        machine.write(&format!("home/code/project/{file}"), file);
    }
    machine.write("home/code/.gemini/.env", "A=1");
    machine.write("home/.gemini/settings.json", "{}");
    machine.write("home/.env", "A=1");
    assert_eq!(
        machine.files(),
        [
            "../.gemini/.env",
            ".agents/skills/s/SKILL.md",
            ".claude/settings.local.json",
            ".codex/config.toml",
            ".env",
            ".gemini/commands/deep/x.toml",
            ".gemini/settings.json",
            ".mcp.json",
            ".opencode/plugin/p.js",
            "agentline.toml",
            "opencode.json"
        ],
        "files of the home and instruction files are not included"
    );
    fs::remove_file(machine.path("home/code/project/agentline.toml")).unwrap();
    machine.write("home/agentline.toml", "model = 'm'");
    assert!(
        machine.files().contains(&"../../agentline.toml".to_owned()),
        "the nearest file above the directory is included"
    );
}

#[test]
fn every_change_of_a_trusted_file_revokes_trust() {
    let machine = Machine::new();
    let trust = || machine.store().trust(&machine.manifest().unwrap()).unwrap();
    assert_eq!(machine.state(), TrustState::Unknown);
    machine.write("home/code/project/.gemini/settings.json", "{}");
    machine.write("home/code/project/agentline.toml", "model = 'm'");
    trust();
    assert_eq!(machine.state(), TrustState::Trusted);
    machine.write("home/code/project/README.md", "not a setting");
    assert_eq!(machine.state(), TrustState::Trusted);
    for (file, content, change) in [
        (".gemini/settings.json", Some("{ }"), TrustChange::Modified),
        (".mcp.json", Some("{}"), TrustChange::Added),
        ("../.env", Some("A=1"), TrustChange::Added),
        ("agentline.toml", None, TrustChange::Removed),
    ] {
        match content {
            Some(content) => machine.write(&format!("home/code/project/{file}"), content),
            None => fs::remove_file(machine.path(&format!("home/code/project/{file}"))).unwrap(),
        }
        let TrustState::Changed { changes, .. } = machine.state() else { panic!("{file}") };
        assert_eq!(changes, [FileChange { path: file.into(), change }]);
        trust();
        assert_eq!(machine.state(), TrustState::Trusted);
    }
}

#[test]
fn trust_applies_to_one_directory_and_can_be_revoked() {
    let machine = Machine::new();
    let store = machine.store();
    store.trust(&machine.manifest().unwrap()).unwrap();
    for other in ["home/code/project/sub", "home/code", "home"] {
        assert_eq!(store.state(&machine.path(other)).unwrap(), TrustState::Unknown, "{other}");
    }
    let project = machine.path("home/code/project");
    assert!(store.list().unwrap().into_keys().eq([project.clone()]));
    assert!(store.revoke(&project).unwrap() && !store.revoke(&project).unwrap());
    assert_eq!((machine.state(), store.list().unwrap().len()), (TrustState::Unknown, 0));
}

#[test]
fn writers_are_serialized() {
    let machine = Machine::new();
    std::thread::scope(|scope| {
        for i in 0..8 {
            let (store, machine) = (machine.store(), &machine);
            scope.spawn(move || {
                let folder = machine.path(&format!("home/code/{i}"));
                fs::create_dir(&folder).unwrap();
                store.trust(&Manifest::read(&folder, None).unwrap()).unwrap();
            });
        }
    });
    assert_eq!(machine.store().list().unwrap().len(), 8);
}

#[test]
fn directory_containing_the_store_cannot_be_trusted() {
    let machine = Machine::new();
    let home = Manifest::read(&machine.path("home"), Some(&machine.path("home"))).unwrap();
    let problem = machine.store().trust(&home).unwrap_err();
    assert!(problem.message.contains("contains the list of trusted directories"), "{problem}");
    assert_eq!(machine.store().list().unwrap().len(), 0);
}

#[test]
fn manifest_size_is_bounded() {
    let machine = Machine::new();
    for i in 0..5_100 {
        machine.write(&format!("home/code/project/.gemini/{i}"), "");
    }
    let problem = machine.manifest().unwrap_err();
    assert!(problem.message.contains("more than 5000 files"), "{problem}");
    fs::remove_dir_all(machine.path("home/code/project/.gemini")).unwrap();
    machine.write("home/code/project/.env", "");
    fs::File::options()
        .write(true)
        .open(machine.path("home/code/project/.env"))
        .and_then(|file| file.set_len(65 << 20))
        .unwrap();
    let problem = machine.manifest().unwrap_err();
    assert!(problem.message.contains("more than 64 MB"), "{problem}");
}

#[cfg(unix)]
mod unix {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn links_are_recorded_by_target_and_content() {
        let machine = Machine::new();
        machine.write("home/elsewhere/settings.json", "{}");
        symlink(machine.path("home/elsewhere"), machine.path("home/code/project/.gemini")).unwrap();
        symlink("nowhere", machine.path("home/code/project/.env")).unwrap();
        symlink(".", machine.path("home/elsewhere/loop")).unwrap();
        machine.store().trust(&machine.manifest().unwrap()).unwrap();
        assert_eq!(machine.files(), [".env", ".gemini", ".gemini/loop", ".gemini/settings.json"]);
        machine.write("home/elsewhere/settings.json", "{ }");
        let TrustState::Changed { changes, .. } = machine.state() else { panic!("not noticed") };
        assert_eq!(changes[0].path, ".gemini/settings.json");
        machine.write("home/elsewhere/settings.json", "{}");
        fs::remove_file(machine.path("home/code/project/.env")).unwrap();
        symlink("elsewhere", machine.path("home/code/project/.env")).unwrap();
        let TrustState::Changed { changes, .. } = machine.state() else { panic!("not noticed") };
        assert_eq!(changes[0].path, ".env");
    }

    #[test]
    fn pipe_is_recorded_but_not_read() {
        let machine = Machine::new();
        let pipe = machine.path("home/code/project/.env");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        assert_eq!(machine.manifest().unwrap().files[".env"], "special");
    }

    #[test]
    fn store_is_private_and_trusted_only_if_private() {
        let machine = Machine::new();
        let store = machine.store();
        store.trust(&machine.manifest().unwrap()).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let folder = store.file().parent().unwrap();
        assert_eq!((mode(store.file()), mode(folder)), (0o600, 0o700));
        assert!(fs::read_dir(folder).unwrap().all(|entry| mode(&entry.unwrap().path()) == 0o600));
        fs::set_permissions(store.file(), fs::Permissions::from_mode(0o666)).unwrap();
        let problem = store.state(&machine.path("home/code/project")).unwrap_err();
        assert!(problem.message.contains("writable by other users"), "{problem}");
        fs::write(store.file(), "{").unwrap();
        fs::set_permissions(store.file(), fs::Permissions::from_mode(0o600)).unwrap();
        let problem = store.state(&machine.path("home/code/project")).unwrap_err();
        assert!(problem.hint.unwrap().contains("trust your directories again"));
    }
}
