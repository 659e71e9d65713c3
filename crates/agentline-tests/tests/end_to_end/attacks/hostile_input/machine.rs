//! Tests a machine with too few resources, and durations that are out of range.

use super::user::{AGENTLINE, HostileUser, TimedOutput, finish, signal, until, wait};
use agentline_mock::gemini::{GeminiStep, Script};
use agentline_tests::{MODEL, TestStage, needs_real_gemini, real_gemini, skipped};
use serde_json::json;
use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

#[test]
fn out_of_range_durations_are_usage_errors() {
    let user = HostileUser::headless("ok", &json!({}));
    let timeouts = [
        "--timeout",
        "--idle-timeout",
        "--tool-timeout",
        "--startup-timeout",
        "--quiet-period",
        "--deadline",
    ];
    for flag in timeouts {
        for value in ["9e99", "nan", "inf", "-inf", "-1", "soon", "99999999999999999999h"] {
            let done = user.done(&["run", &format!("{flag}={value}"), "hi"]);
            assert_eq!(done.code, 2, "{flag} {value}: {done:?}");
            let key = flag.trim_start_matches('-').replace('-', "_");
            assert!(done.err.contains(&key) || done.err.contains(flag), "{flag} {value}: {}", done.err);
            assert!(!done.err.contains("panicked") && done.out.is_empty(), "{flag} {value}: {done:?}");
        }
    }
    let future = user.done(&["run", "-o", "json", "--deadline", "9999-12-31T23:59:59Z", "hi"]);
    future.is("done", 0);
}

#[test]
fn endless_prompt_or_configuration_is_a_timely_usage_error() {
    let user = HostileUser::headless("ok", &json!({}));
    let started_at = Instant::now();
    let mut child = user.agentline(&["run", "--timeout", "1"]).stdin(Stdio::piped()).spawn().unwrap();
    let _open = child.stdin.take();
    let prompt = wait(child, started_at);
    assert!(prompt.code == 2 && prompt.err.contains("`--timeout`"), "{prompt:?}");
    user.pipe("settings");
    let settings = user.path("settings").to_string_lossy().into_owned();
    let config = user.env("AGENTLINE_CONFIG", &settings).done(&["run", "--timeout", "1", "hi"]);
    assert!(config.code == 2 && config.err.contains("within 10 s"), "{config:?}");
}

/// Returns whether tests can become another user, and prints a message if not.
fn is_root() -> bool {
    let root = Command::new("id").arg("-u").output().is_ok_and(|id| id.stdout == b"0\n");
    if !root {
        skipped("limits on processes, which need root to become a fresh user");
    }
    root
}

#[test]
fn thread_limit_gives_an_outcome_and_no_panic() {
    if !is_root() {
        return;
    }
    // A user id without other processes, so that no other processes count.
    let uid = (600_000_000 + std::process::id()).to_string();
    let user = HostileUser::headless("ok", &json!({}));
    let folder = user.path("..").canonicalize().unwrap();
    // Programs of the tests may be in a directory that only root can read.
    for program in [AGENTLINE, env!("CARGO_BIN_EXE_fake-gemini")] {
        let name = Path::new(program).file_name().unwrap();
        fs::copy(program, folder.join(name)).unwrap();
    }
    assert!(Command::new("chown").args(["-R", &uid]).arg(&folder).status().unwrap().success());
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
    let agent = folder.join(Path::new(env!("CARGO_BIN_EXE_fake-gemini")).file_name().unwrap());
    let user = user.env("GEMINI_CLI_PATH", &agent.to_string_lossy());
    let run = |limit: u32| {
        let mut command = user.command("setpriv");
        command.args(["--reuid", &uid, "--clear-groups", "prlimit", &format!("--nproc={limit}")]);
        command.arg(folder.join(Path::new(AGENTLINE).file_name().unwrap()));
        command.args(["run", "-o", "json", "--timeout", "60", "hi"]);
        finish(command)
    };
    for limit in [2, 3, 4, 6, 8, 10, 12] {
        let done = run(limit);
        assert!(!done.err.contains("panicked") && done.code != 101, "{limit}: {done:?}");
        let outcome = done.json();
        if limit == 2 {
            let outcome = done.is("failed", 1);
            assert!(outcome["error"]["message"].as_str().unwrap().contains("thread"), "{outcome:#}");
            assert!(outcome["error"]["hint"].as_str().unwrap().contains("ulimit"), "{outcome:#}");
        }
        assert!(outcome["verdict"].is_string(), "{limit}: {outcome:#}");
    }
    run(200).is("done", 0);
}

/// Runs the program with a temporary directory of this size, of which this much is used. If the machine does not allow
/// private mounts, prints a message and returns `None`.
fn with_small_temp(user: &HostileUser, size: &str, taken: &str) -> Option<TimedOutput> {
    let allowed =
        Command::new("unshare").args(["-Urm", "true"]).status().is_ok_and(|status| status.success());
    if !allowed {
        skipped("a full temporary directory, which needs `unshare -Urm`");
        return None;
    }
    let script = format!(
        "mount -t tmpfs -o size={size} tmpfs \"$TMPDIR\" && {{ head -c {taken} /dev/zero > \"$TMPDIR/taken\"; \
         exec \"$0\" run -o json --timeout 30 hi; }}"
    );
    let mut command = user.command("unshare");
    command.args(["-Urm", "sh", "-c", &script, AGENTLINE]);
    Some(finish(command))
}

#[test]
fn full_temporary_directory_is_reported_as_the_cause() {
    let user = HostileUser::headless("ok", &json!({}));
    let tmp = user.path("../tmp").canonicalize().unwrap().to_string_lossy().into_owned();
    let Some(full) = with_small_temp(&user, "64k", "64k") else { return };
    let outcome = full.is("failed", 1);
    let error = format!("{}{}", outcome["error"]["message"], outcome["error"]["hint"]);
    assert!(error.contains(&tmp) && error.contains("TMPDIR"), "{outcome:#}");
    // There is enough space to start, but not for the agent's output.
    let user = HostileUser::headless("huge_line", &json!({"bytes": 8_000_000}));
    let tmp = user.path("../tmp").canonicalize().unwrap().to_string_lossy().into_owned();
    let Some(small) = with_small_temp(&user, "1m", "100k") else { return };
    assert_eq!(small.code, 1, "{small:?}");
    let outcome = small.json();
    let message = outcome["error"]["message"].as_str().unwrap();
    assert!(message.contains(&tmp) && message.contains("is full"), "{outcome:#}");
    assert!(outcome["error"]["hint"].as_str().unwrap().contains("TMPDIR"), "{outcome:#}");
    let warnings = outcome["warnings"].as_array().unwrap();
    assert!(warnings.iter().any(|warning| warning["code"] == "temp_dir_full"), "{outcome:#}");
}

#[test]
fn deleted_working_directory_still_gives_an_outcome() {
    let user = HostileUser::headless("ok", &json!({}));
    let deleted = user.path("gone");
    fs::create_dir(&deleted).unwrap();
    let mut command = user.command("sh");
    command.args(["-c", "cd gone && rmdir ../gone && exec \"$0\" run -o json hi", AGENTLINE]);
    let outcome = finish(command).is("failed", 1);
    let message = outcome["error"]["message"].as_str().unwrap();
    assert!(message.contains("current directory"), "{message}");
    // The agent deletes it during a run.
    let user = HostileUser::scripted("rm -rf \"$PWD\"; exit 1");
    user.write("file.txt", "text\n");
    let done = user.done(&["run", "-o", "json", "--permission-mode", "bypass", "hi"]);
    let outcome = done.is("failed", 1);
    assert_eq!(outcome["files"][0]["change"], "deleted", "{outcome:#}");
    // The directory is deleted while the agent hangs.
    let user = HostileUser::scripted("rm -rf \"$PWD\"; sleep 100");
    let done = user.done(&["run", "-o", "json", "--permission-mode", "bypass", "--timeout", "3", "hi"]);
    done.is("timed_out", 8);
}

/// Returns the directories that Gemini CLI creates for its commands.
fn command_dirs(tmp: &Path) -> Vec<String> {
    let names = fs::read_dir(tmp).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.starts_with("gemini-shell-")).collect()
}

#[test]
fn temporary_files_of_a_killed_agent_are_removed() {
    let user = HostileUser::scripted(
        "trap '' TERM INT; mkdir \"$TMPDIR/gemini-shell-Ab3dEf\"; echo 1 > \"$TMPDIR/gemini-shell-Ab3dEf/bgpids.tmp\"; \
         sleep 100",
    );
    user.write("../tmp/gemini-shell-before/bgpids.tmp", "1");
    let long_ago = std::time::SystemTime::now() - Duration::from_secs(600);
    let before = user.path("../tmp/gemini-shell-before");
    fs::File::open(&before).unwrap().set_modified(long_ago).unwrap();
    let done = user.done(&["run", "-o", "json", "--timeout", "3", "hi"]);
    done.is("timed_out", 8);
    // The directory of another process, from before the run, stays.
    assert_eq!(command_dirs(&user.path("../tmp")), ["gemini-shell-before"]);
}

#[test]
fn temporary_files_of_the_real_agent_are_removed() {
    needs_real_gemini!();
    let script = Script::new([
        GeminiStep::text("A long command.")
            .and_call("run_shell_command", json!({"command": "touch begun && sleep 300"})),
        GeminiStep::text("Never said."),
    ]);
    let stage = TestStage::new(script);
    let mut command = Command::new(AGENTLINE);
    command
        .args(["run", "-o", "json", "-m", MODEL, "--permission-mode", "bypass", "--timeout", "120", "go"])
        .env_clear()
        .envs(stage.variables())
        .env("GEMINI_CLI_PATH", real_gemini().unwrap().path)
        .current_dir(stage.workspace())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let started_at = Instant::now();
    let child = command.spawn().unwrap();
    let tmp = stage.outside().join("tmp");
    until("the command", || stage.read("begun").is_some());
    assert_eq!(command_dirs(&tmp).len(), 1);
    std::thread::sleep(Duration::from_millis(1200));
    // The agent dies without a chance to clean up.
    let agents = agentline_tests::survivors(&stage.outside().to_string_lossy());
    for pid in agents.into_iter().filter(|pid| *pid != child.id()) {
        let arguments = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        if String::from_utf8_lossy(&arguments).contains("gemini") {
            let _ = Command::new("kill").args(["-s", "KILL", &pid.to_string()]).status();
        }
    }
    let done = wait(child, started_at);
    done.is("failed", 1);
    assert_eq!(command_dirs(&tmp), Vec::<String>::new());
}

#[test]
fn suspended_program_is_not_mistaken_for_a_stuck_loop() {
    let user = HostileUser::headless("talks_without_end", &json!({"seconds": 9, "interval_ms": 100}));
    let started_at = Instant::now();
    let child = user
        .agentline(&["run", "-o", "json", "--timeout", "60", "--idle-timeout", "50", "hi"])
        .spawn()
        .unwrap();
    std::thread::sleep(Duration::from_secs(2));
    signal(&child, "STOP");
    std::thread::sleep(Duration::from_secs(7));
    signal(&child, "CONT");
    let outcome = wait(child, started_at).json();
    assert_ne!(outcome["verdict"], "timed_out", "{outcome:#}");
}
