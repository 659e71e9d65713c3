//! Tests conditions that root does not encounter: unreadable homes and unwritable caches.
//!
//! Root can read and write everything, so as root, each test starts itself again as an unprivileged user.

use agentline::{
    detect::{HostEnv, detect},
    doctor::{doctor, render},
    install::{InstallError, ensure},
};
use agentline_core::agents;
use std::{
    collections::BTreeMap,
    fs,
    io::ErrorKind,
    os::unix::{
        fs::{MetadataExt, PermissionsExt},
        process::CommandExt,
    },
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

const NOBODY: u32 = 65534;
const ROOM: &str = "AGENTLINE_TEST_ROOM";

/// Calls `test` as an unprivileged user with a directory that this user owns.
fn as_user(name: &str, test: fn(&Path)) {
    if let Some(room) = std::env::var_os(ROOM) {
        return test(&PathBuf::from(room));
    }
    let room = tempfile::tempdir().expect("a directory for the test");
    if fs::metadata(room.path()).expect("the directory exists").uid() != 0 {
        return test(room.path());
    }
    let set = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("ours");
    // The build directory may be closed to others, so the user gets a copy of this program.
    let program = room.path().join("test");
    fs::copy(std::env::current_exe().expect("the path of the test program"), &program)
        .expect("space for a copy");
    let own = room.path().join("own");
    fs::create_dir(&own).expect("the directory is writable");
    std::os::unix::fs::chown(&own, Some(NOBODY), Some(NOBODY)).expect("root may");
    set(room.path(), 0o755);
    set(&program, 0o755);
    let mut command = Command::new(&program);
    command
        .args(["--exact", &format!("unprivileged_user::{name}"), "--nocapture"])
        .env_clear()
        .env(ROOM, &own)
        .env("TMPDIR", &own)
        .current_dir(&own)
        .uid(NOBODY)
        .gid(NOBODY);
    // While another test starts its own program, the copy can be held open for writing for a moment.
    let until = Instant::now() + Duration::from_secs(60);
    let output = loop {
        match command.output() {
            Err(e) if e.kind() == ErrorKind::ExecutableFileBusy && Instant::now() < until => {
                std::thread::sleep(Duration::from_millis(5));
            }
            result => break result.expect("the copy starts"),
        }
    };
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

fn folder(path: PathBuf, mode: u32) -> PathBuf {
    fs::create_dir_all(&path).expect("the directory is writable");
    fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("the directory is writable");
    path
}

fn program(path: &Path, text: &str) {
    fs::write(path, text).expect("the directory is writable");
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("the directory is writable");
}

/// Makes the directories of a test removable again.
struct Open(PathBuf);

impl Drop for Open {
    fn drop(&mut self) {
        let _gone = fs::set_permissions(&self.0, fs::Permissions::from_mode(0o755));
    }
}

fn host_env(room: &Path, more: &[(&str, &Path)]) -> HostEnv {
    let bin = folder(room.join("bin"), 0o755);
    program(&bin.join("node"), "#!/bin/sh\necho v20.0.0\n");
    program(&bin.join("npm"), "#!/bin/sh\nexit 9\n");
    let path = format!("{}:/usr/bin:/bin", bin.display());
    let mut env = BTreeMap::from([("PATH".to_owned(), path), ("GEMINI_API_KEY".to_owned(), "k".to_owned())]);
    env.extend(more.iter().map(|(k, v)| ((*k).to_owned(), v.display().to_string())));
    HostEnv::new(env, room.join("home"), room)
}

#[test]
fn unreadable_home_counts_as_absent() {
    as_user("unreadable_home_counts_as_absent", |room| {
        let host_env = host_env(room, &[]);
        let settings = folder(room.join("home/.gemini"), 0o755).join("settings.json");
        fs::write(&settings, "{}").unwrap();
        let _open = Open(folder(room.join("home"), 0o000));
        let found = detect(&*agents::find("gemini").unwrap(), &host_env);
        assert!(found.looked.len() > 20);
        let report = doctor(&host_env);
        // Unreadable files count as absent, for the agent as well; no settings problem is reported.
        let settings_problems = report.agents[0].problems.iter().filter(|p| p.key == "settings").count();
        assert_eq!(settings_problems, 0, "{}", render(&report));
        assert!(report.cache.problem.is_some(), "{}", render(&report));
    });
}

#[test]
fn unreadable_settings_are_reported() {
    as_user("unreadable_settings_are_reported", |room| {
        let host_env = host_env(room, &[]);
        let settings = folder(room.join("home/.gemini"), 0o755).join("settings.json");
        fs::write(&settings, "{}").unwrap();
        fs::set_permissions(&settings, fs::Permissions::from_mode(0o000)).unwrap();
        let report = doctor(&host_env);
        let text = render(&report);
        assert!(!report.ok() && text.contains("settings.json`: cannot be read"), "{text}");
    });
}

#[test]
fn unwritable_cache_is_reported() {
    as_user("unwritable_cache_is_reported", |room| {
        let closed = folder(room.join("closed"), 0o555);
        let _open = Open(closed.clone());
        let host_env = host_env(room, &[("AGENTLINE_CACHE_DIR", &closed)]);
        let error =
            ensure(agents::find("gemini").unwrap().info(), "0.61.0", &host_env, &mut |_| {}).unwrap_err();
        assert!(matches!(error, InstallError::Cache { .. }), "{error}");
        let text = agentline_core::error_chain(&error);
        assert!(text.contains(closed.to_str().unwrap()) && text.contains("Permission denied"), "{text}");
        assert!(error.hint().contains("`AGENTLINE_CACHE_DIR`"));
        assert!(doctor(&host_env).cache.problem.unwrap().contains("permission denied"));
    });
}

#[test]
fn system_settings_apply_only_if_owned_by_the_administrator() {
    as_user("system_settings_apply_only_if_owned_by_the_administrator", |room| {
        let own = room.join("system.json");
        fs::write(&own, r#"{"security":{"auth":{"selectedType":"vertex-ai"}}}"#).unwrap();
        let host_env = host_env(room, &[("GEMINI_CLI_SYSTEM_SETTINGS_PATH", &own)]);
        let report = doctor(&host_env);
        let winner = report.agents[0].sign_in.iter().find(|s| s.wins).unwrap();
        assert_eq!(winner.source, "`GEMINI_API_KEY`");
    });
}
