//! Checks that files of a run and of the program are readable only by their owner, whatever the umask.

use agentline_tests::{FakeStage, exit_of, paths_below, survivors};
use std::{
    fs,
    io::{Read as _, Write as _},
    os::unix::{
        fs::{MetadataExt as _, PermissionsExt as _},
        process::CommandExt as _,
    },
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

const PASSWORD: &str = "correct-horse-battery-staple";
const PROMPT: &str = "the prompt of the user, 4711";
/// Another user of the same machine.
const OTHER_USER: u32 = 65534;

/// A test environment in a directory that every user may enter, with a home that has a password in its configuration.
fn open_stage(agent: &str) -> FakeStage {
    let stage = FakeStage::new(agent);
    for (folder, mode) in [("", 0o755), ("home", 0o755), ("ws", 0o755), ("tmp", 0o1777)] {
        fs::set_permissions(stage.path().join(folder), fs::Permissions::from_mode(mode)).expect("a mode");
    }
    let config = stage.path().join("home/.config/agentline");
    fs::create_dir_all(&config).expect("a directory");
    let servers = format!(
        "[mcp_servers.notes]\ncommand = \"cat\"\nenv = {{ NOTES_PASSWORD = \"{PASSWORD}\" }}\n\
         [mcp_servers.web]\nurl = \"http://127.0.0.1:9/mcp\"\nheaders = {{ Authorization = \"Bearer {PASSWORD}\" }}\n"
    );
    fs::write(config.join("config.toml"), servers).expect("a file");
    stage
}

/// Returns the program with a umask that removes no permissions.
fn program(stage: &FakeStage, args: &[&str]) -> Command {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", "umask 000; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_agentline-under-test")]);
    command.args(args).env_clear().envs(stage.variables()).current_dir(stage.workspace());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn output(stage: &FakeStage, args: &[&str]) -> Output {
    program(stage, args).stdin(Stdio::null()).output().expect("it starts")
}

/// Returns everything below a directory that is not a link.
fn below(folder: &Path) -> Vec<PathBuf> {
    paths_below(folder).into_iter().filter(|path| !path.is_symlink()).collect()
}

#[track_caller]
fn assert_private(path: &Path) {
    // It may have been removed: an agent and its server create and remove files.
    if let Ok(metadata) = path.symlink_metadata() {
        assert_eq!(metadata.mode() & 0o077, 0, "{} has mode {:o}", path.display(), metadata.mode());
    }
}

fn private_directories(stage: &FakeStage) -> Vec<PathBuf> {
    let all = fs::read_dir(stage.path().join("tmp")).into_iter().flatten().flatten().map(|e| e.path());
    all.filter(|path| path.file_name().is_some_and(|n| n.to_string_lossy().starts_with("agentline-")))
        .collect()
}

/// Returns whether another user can read a file, or `None` if the tests do not run as root.
fn others_can_read(path: &Path) -> Option<bool> {
    if fs::metadata("/proc/self").ok()?.uid() != 0 {
        return None;
    }
    let mut command = Command::new("/bin/cat");
    command.arg(path).uid(OTHER_USER).gid(OTHER_USER).stdout(Stdio::null()).stderr(Stdio::null());
    Some(command.status().ok()?.success())
}

#[test]
fn files_of_a_run_are_readable_only_by_their_owner() {
    let stage = open_stage(env!("CARGO_BIN_EXE_fake-gemini"));
    let tape = stage.workspace().join("run.tape");
    let args = ["run", "--surface", "stream-json", "--record", "run.tape"];
    let system = ["--system", "Be brief.", "--system-mode", "replace"];
    let fault = ["--env", "FAKE_AGENT_FAULT=hang_mid_text", "--pass-env", "MARK_OF_THE_TEST"];
    let mut run = program(&stage, &[&args[..], &system[..], &fault[..]].concat()).spawn().expect("it starts");
    run.stdin.take().expect("a pipe").write_all(PROMPT.as_bytes()).expect("it reads");
    let mut first = [0; 1];
    let read = run.stdout.as_mut().expect("a pipe").read(&mut first).expect("a pipe");
    assert_eq!(read, 1, "the agent sends text and hangs: {:?}", run.try_wait());

    let directories = private_directories(&stage);
    assert_eq!(directories.len(), 1, "{directories:?}");
    let mut written = below(&directories[0]);
    let file = |name: &str| written.iter().find(|path| path.ends_with(name)).cloned();
    let settings = file("home/.gemini/settings.json").expect("settings");
    let instructions = file("given/system.md").expect("instructions");
    assert!(fs::read_to_string(&settings).expect("settings").contains("mcpServers"), "the run has a secret");
    written.extend([directories[0].clone(), tape.clone()]);
    for dir in [".cache/agentline", ".gemini"] {
        written.extend(below(&stage.path().join("home").join(dir)));
    }
    assert!(written.len() > 8, "{written:?}");
    written.iter().for_each(|path| assert_private(path));
    assert_eq!(fs::metadata(&settings).expect("settings").mode() & 0o777, 0o600);
    assert_eq!(fs::metadata(&tape).expect("a tape").mode() & 0o777, 0o600);
    let parent = instructions.parent().expect("a directory");
    assert_eq!(fs::metadata(parent).expect("a directory").mode() & 0o777, 0o500, "the agent only reads it");
    for path in [&settings, &tape, &instructions] {
        assert_ne!(others_can_read(path), Some(true), "{}", path.display());
    }

    // Every user can also read a command line.
    let living = survivors(&stage.mark());
    assert!(!living.is_empty());
    let settings = fs::read_to_string(&settings).expect("settings");
    let token = settings.split("Bearer ").nth(1).and_then(|rest| rest.split('"').next()).unwrap_or(PASSWORD);
    for pid in living.into_iter().chain([run.id()]) {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).into_owned();
        for secret in [PASSWORD, PROMPT, token] {
            assert!(!line.contains(secret), "{pid}: {line}");
        }
    }
    Command::new("kill").args(["-TERM", &run.id().to_string()]).status().expect("kill");
    exit_of(&mut run, "the end of the run");
    assert_eq!(private_directories(&stage), Vec::<PathBuf>::new());
    assert_private(&tape);
}

#[test]
fn files_of_the_program_are_readable_only_by_their_owner() {
    let stage = open_stage(env!("CARGO_BIN_EXE_fake-acp"));
    let chats = stage.path().join("home/.gemini/tmp/ws/chats");
    fs::create_dir_all(&chats).expect("a directory");
    let session = "{\"sessionId\":\"aaaa1111-0000-4000-8000-000000000000\",\"startTime\":\"2026-01-01T00:00:00.000Z\",\"kind\":\"main\"}\n\
                   {\"id\":\"1\",\"timestamp\":\"2026-01-01T00:00:00.000Z\",\"type\":\"user\",\"content\":\"hi\"}\n";
    fs::write(chats.join("session-2026-01-01T00-00-aaaa1111.jsonl"), session).expect("a file");
    fs::write(stage.path().join("home/.config/agentline/config.toml"), "").expect("a file");
    let cached = [
        "run",
        "--surface",
        "acp",
        "--quiet-period",
        "0",
        "--cache",
        "--permission-mode",
        "plan",
        "say hello",
    ];
    for args in [
        &cached[..],
        &["sessions", "list"],
        &["sessions", "export", "aaaa1111", "-o", "export.html"],
        &["pool", "start"],
    ] {
        let done = output(&stage, args);
        assert!(done.status.success(), "{args:?}: {done:?}");
    }
    let stored = below(&stage.path().join("home/.cache/agentline"));
    let has = |ending: &str| stored.iter().any(|path| path.to_string_lossy().ends_with(ending));
    assert!(has("pool.sock") && has(".run"), "{stored:?}");
    stored.iter().for_each(|path| assert_private(path));
    assert_private(&stage.path().join("home/.cache/agentline"));
    let export = stage.workspace().join("export.html");
    assert_eq!(fs::metadata(&export).expect("an export").mode() & 0o777, 0o600);
    // The user's own file keeps its mode.
    fs::set_permissions(&export, fs::Permissions::from_mode(0o644)).expect("a mode");
    let again = output(&stage, &["sessions", "export", "aaaa1111", "-o", "export.html", "--force"]);
    assert!(again.status.success(), "{again:?}");
    assert_eq!(fs::metadata(&export).expect("an export").mode() & 0o777, 0o644);
    let stopped = output(&stage, &["pool", "stop"]);
    assert!(stopped.status.success(), "{stopped:?}");
}
