//! Tests the whole program with the real Gemini CLI as an unprivileged user. Root can read and write everything and
//! uses other settings files, so tests as root would not find some bugs in the handling of a user's home.
#![expect(clippy::unwrap_used, reason = "test helpers may panic")]

use agentline_mock::gemini::{GeminiModel, GeminiStep, Script};
use agentline_tests::{needs_real_gemini, paths_below, real_gemini, survivors};
use serde_json::{Value, json};
use std::{
    fs,
    os::unix::{
        fs::{MetadataExt as _, PermissionsExt as _, chown, symlink},
        process::CommandExt as _,
    },
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// The user id of the unprivileged user if the tests run as root.
const NOBODY: u32 = 65534;

/// Settings that a user may have: one that must apply, and one that agentline must override.
const SETTINGS: &str = "{\n  // mine\n  \"security\": {\"auth\": {\"selectedType\": \"gemini-api-key\"}},\n  \"tools\": {\"exclude\": [\"glob\"]},\n  \"general\": {\"maxAttempts\": 10}\n}\n";

/// An unprivileged user with a home, a workspace, and readable programs.
struct User {
    folder: tempfile::TempDir,
    model: GeminiModel,
    /// `None` if the tests themselves run as an unprivileged user.
    becomes: Option<u32>,
}

struct Done {
    code: Option<i32>,
    out: String,
    err: String,
}

impl User {
    fn new(model: GeminiModel) -> Self {
        let folder = tempfile::Builder::new().prefix("agentline-test-").tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let is_root = fs::metadata(folder.path()).unwrap().uid() == 0;
        let user = Self { folder, model, becomes: is_root.then_some(NOBODY) };
        // The programs of the tests may be in a directory that only root can read.
        let installed = real_gemini().unwrap().path.canonicalize().unwrap();
        let modules = installed.ancestors().find(|path| path.ends_with("node_modules")).unwrap();
        let script = Path::new("..").join(installed.strip_prefix(modules).unwrap());
        link_or_copy(modules, &user.path("agent/node_modules"));
        let bin = user.path("agent/node_modules/.bin");
        fs::create_dir_all(&bin).unwrap();
        let _ = fs::remove_file(bin.join("gemini"));
        symlink(script, bin.join("gemini")).unwrap();
        link_or_copy(&on_path("node"), &user.path("bin/node"));
        link_or_copy(Path::new(env!("CARGO_BIN_EXE_agentline-under-test")), &user.path("bin/agentline"));
        for own in ["home", "home/.gemini", "ws", "tmp"] {
            user.own(&user.path(own), |path| fs::create_dir(path));
        }
        user.write("home/.gemini/settings.json", SETTINGS);
        user.write("home/.gemini/.env", "GEMINI_API_KEY=key-of-the-user-in-a-file\n");
        user.write("home/.gemini/GEMINI.md", "The user likes short words.\n");
        user
    }

    fn path(&self, path: &str) -> PathBuf {
        self.folder.path().join(path)
    }

    /// Creates a file that belongs to the user and that no other user can read.
    fn own<T>(&self, path: &Path, make: impl FnOnce(&Path) -> std::io::Result<T>) {
        make(path).unwrap();
        let mode = if path.is_dir() { 0o700 } else { 0o600 };
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        chown(path, self.becomes, self.becomes).unwrap();
    }

    fn write(&self, path: &str, text: &str) {
        self.own(&self.path(path), |path| fs::write(path, text));
    }

    /// Runs the program as the user, without the environment of the tests.
    fn agentline(&self, args: &[&str]) -> Done {
        let mut command = Command::new(self.path("bin/agentline"));
        command
            .args(args)
            .current_dir("/")
            .env_clear()
            .env("PATH", format!("{}:/usr/bin:/bin", self.path("bin").display()))
            .env("HOME", self.path("home"))
            .env("TMPDIR", self.path("tmp"))
            .env("MARK_OF_THE_TEST", self.folder.path())
            .env("GEMINI_CLI_PATH", self.path("agent/node_modules/.bin/gemini"))
            .env("GOOGLE_GEMINI_BASE_URL", self.model.url())
            .stdin(Stdio::null());
        if let Some(id) = self.becomes {
            // Changing the user this way also drops root's other groups.
            command.uid(id).gid(id);
        }
        let output = command.output().unwrap();
        Done {
            code: output.status.code(),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// Runs in the workspace, and returns events and outcome.
    fn run(&self, args: &[&str]) -> Done {
        let workspace = self.path("ws");
        let workspace = workspace.to_str().unwrap();
        let common = [
            "run",
            "-o",
            "json",
            "-m",
            "gemini-2.5-flash",
            "-C",
            workspace,
            "--timeout",
            "120",
            "--pass-env",
            "MARK_OF_THE_TEST",
        ];
        self.agentline(&[&common[..], args].concat())
    }
}

impl Done {
    fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {}{}", self.out, self.err))
    }
}

/// Links or, on another disk, copies a file or a directory to where the user can read it.
fn link_or_copy(from: &Path, to: &Path) {
    if from.is_dir() {
        fs::create_dir_all(to).unwrap();
        for entry in fs::read_dir(from).unwrap().flatten().filter(|entry| !entry.path().is_symlink()) {
            link_or_copy(&entry.path(), &to.join(entry.file_name()));
        }
    } else {
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        if fs::hard_link(from, to).is_err() {
            fs::copy(from, to).unwrap();
        }
    }
}

fn on_path(program: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|folder| folder.join(program)).find(|file| file.is_file());
    found.unwrap_or_else(|| panic!("`{program}` is not on PATH")).canonicalize().unwrap()
}

fn shell(command: &str) -> (&'static str, Value) {
    ("run_shell_command", json!({"command": command, "description": "d"}))
}

#[test]
fn program_works_for_an_unprivileged_user() {
    needs_real_gemini!();
    let work = Script::new([
        GeminiStep::calls([
            ("write_file", json!({"file_path": "hello.txt", "content": "hello\n"})),
            shell("touch refused.txt"),
            shell("id -u > who.txt"),
            shell("setsid -f sleep 3600 > /dev/null 2>&1; (setsid sleep 3601 > /dev/null 2>&1 &)"),
        ]),
        GeminiStep::text("All done."),
    ]);
    let broken = GeminiStep::http(500, json!({"error": {"code": 500, "message": "broken"}}));
    let model = GeminiModel::matching([("Work", work), ("Fail", Script::always(broken))]);
    let user = User::new(model.unwrap());
    check_home_is_used_and_not_changed(&user);
    check_required_settings_override_the_users_own(&user);
    check_doctor(&user);
}

fn check_home_is_used_and_not_changed(user: &User) {
    let settings = user.path("home/.gemini/settings.json");
    let before = fs::metadata(&settings).unwrap();
    let done = user.run(&["--permission-mode", "bypass", "--deny", "Bash(touch *)", "Work"]);
    let outcome = done.json();
    let shown = format!("{outcome:#}\n{}", done.err);
    assert_eq!((done.code, &outcome["verdict"]), (Some(5), &json!("done_with_denials")), "{shown}");
    assert_eq!(outcome["text"], "All done.", "{shown}");
    // No process outlives the run.
    let mark = format!("MARK_OF_THE_TEST={}\0", user.folder.path().display());
    assert_eq!(survivors(&mark), [0_u32; 0], "{shown}");

    // The rule was read, and nothing else was denied.
    assert_eq!(outcome["denied"].as_array().map(Vec::len), Some(1), "{shown}");
    assert!(!user.path("ws/refused.txt").exists(), "{shown}");
    let user_id = fs::read_to_string(user.path("ws/who.txt")).unwrap();
    let id = fs::metadata(user.path("home")).unwrap().uid();
    assert_eq!(user_id.trim(), id.to_string(), "the agent ran as the user");
    let files: Vec<&str> =
        outcome["files"].as_array().unwrap().iter().map(|f| f["path"].as_str().unwrap()).collect();
    assert_eq!(files, ["hello.txt", "who.txt"], "{shown}");

    // Sign-in, settings and memory are the user's.
    let request = &user.model.requests_to_main()[0];
    assert_eq!(request.headers["x-goog-api-key"], "key-of-the-user-in-a-file", "{shown}");
    assert!(!shown.contains("key-of-the-user-in-a-file"), "{shown}");
    let offered = request.offered_tools();
    assert!(!offered.contains(&"glob".to_owned()) && !offered.is_empty(), "{offered:?}");
    assert!(request.body.to_string().contains("The user likes short words."), "memory is read");

    // The user's files are unchanged, and the agent's files belong to the user.
    let after = fs::metadata(&settings).unwrap();
    assert_eq!(fs::read_to_string(&settings).unwrap(), SETTINGS);
    assert_eq!(
        (after.ino(), after.mtime_nsec()),
        (before.ino(), before.mtime_nsec()),
        "the modification time is unchanged"
    );
    let session = outcome["session_id"].as_str().unwrap();
    let home = paths_below(&user.path("home"));
    let ending = format!("-{}.jsonl", &session[..8]);
    let stored: Vec<&PathBuf> = home.iter().filter(|p| p.to_string_lossy().ends_with(&ending)).collect();
    assert_eq!(stored.len(), 1, "the session is in the user's store: {home:?}");
    assert!(fs::read_to_string(stored[0]).unwrap().contains("All done."), "{stored:?}");
    let foreign: Vec<&PathBuf> =
        home.iter().filter(|p| fs::symlink_metadata(p).unwrap().uid() != id || p.is_symlink()).collect();
    assert!(foreign.is_empty(), "{foreign:?}");
    let left: Vec<String> = paths_below(&user.path("tmp")).iter().map(|p| p.display().to_string()).collect();
    assert!(left.iter().all(|path| !path.contains("tmp/agentline-")), "{left:?}");
}

/// Runs against a service that always fails.
fn check_required_settings_override_the_users_own(user: &User) {
    let before = user.model.requests_to_main().len();
    let done = user.run(&["Fail"]);
    let outcome = done.json();
    assert_eq!((done.code, &outcome["verdict"]), (Some(1), &json!("failed")), "{outcome:#}\n{}", done.err);
    let request_count = user.model.requests_to_main().len() - before;
    assert!(
        (1..=3).contains(&request_count),
        "{request_count} requests; the user's setting allows 10: {outcome:#}"
    );
    assert_eq!(fs::read_to_string(user.path("home/.gemini/settings.json")).unwrap(), SETTINGS);
}

fn check_doctor(user: &User) {
    let done = user.agentline(&["doctor", "-o", "json"]);
    let shown = format!("{}{}", done.out, done.err);
    assert_eq!(done.code, Some(0), "{shown}");
    let agent = &done.json()["agents"][0];
    assert_eq!((&agent["ready"], &agent["version"]), (&json!(true), &json!("0.61.0")), "{shown}");
    assert!(shown.contains(".gemini/.env") && !shown.contains("key-of-the-user-in-a-file"), "{shown}");
    fs::remove_file(user.path("home/.gemini/.env")).unwrap();
    assert_eq!(user.agentline(&["doctor"]).code, Some(4));
}
