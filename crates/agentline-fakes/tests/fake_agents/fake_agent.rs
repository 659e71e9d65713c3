//! Runs the fake agent and checks that each fault does what its name says.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use agentline_fakes::fake_agent::{EXIT_CODES, FAULTS, fault};
use serde_json::{Value, json};
use tempfile::TempDir;

/// Long enough for a loaded machine; only a bug takes this long.
const PATIENCE: Duration = Duration::from_secs(60);

/// One run in its own directory, with its output in files.
struct Run {
    dir: TempDir,
    child: Ending,
}

/// A process that does not outlive its test, even if the test panics.
struct Ending(Child);

impl Drop for Ending {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

struct Ended {
    dir: TempDir,
    status: ExitStatus,
    stdout: Vec<u8>,
    stderr: String,
}

impl Run {
    fn start(name: &str, params: &Value, args: &[&str]) -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let workspace = dir.path().join("workspace");
        fs::create_dir(&workspace).expect("a workspace");
        let file = |name: &str| File::create(dir.path().join(name)).expect("a file");
        let mut child = Command::new(env!("CARGO_BIN_EXE_fake-agent"))
            .args(args)
            .current_dir(workspace)
            .env("FAKE_AGENT_FAULT", name)
            .env("FAKE_AGENT_ARGS", params.to_string())
            .env("FAKE_AGENT_TEST_MARK", dir.path())
            .stdin(Stdio::piped())
            .stdout(file("stdout"))
            .stderr(file("stderr"))
            .spawn()
            .expect("started");
        let mut stdin = child.stdin.take().expect("a pipe");
        // The agent may not read its input as part of the test.
        let _ = stdin.write_all(b"What is 2+2?");
        Self { dir, child: Ending(child) }
    }

    fn stdout(&self) -> Vec<u8> {
        fs::read(self.dir.path().join("stdout")).expect("readable")
    }

    /// Waits until the output contains a text.
    fn wait_for_text(&self, text: &str) {
        until(|| String::from_utf8_lossy(&self.stdout()).contains(text), text);
    }

    fn end(mut self) -> Ended {
        let until = Instant::now() + PATIENCE;
        let status = loop {
            if let Some(status) = self.child.0.try_wait().expect("a status") {
                break status;
            }
            if Instant::now() > until {
                panic!("the agent did not exit");
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        let stdout = self.stdout();
        let stderr = fs::read(self.dir.path().join("stderr")).expect("readable");
        Ended { dir: self.dir, status, stdout, stderr: String::from_utf8_lossy(&stderr).into_owned() }
    }

    fn kill(mut self) -> Ended {
        self.child.0.kill().expect("killed");
        self.end()
    }
}

impl Ended {
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// Returns the types of the lines that are events.
    fn kinds(&self) -> Vec<String> {
        self.events().iter().map(|event| event["type"].as_str().unwrap_or("?").to_owned()).collect()
    }

    fn events(&self) -> Vec<Value> {
        self.text().lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    fn wrote(&self, name: &str) -> bool {
        self.dir.path().join("workspace").join(name).exists()
    }
}

fn play(name: &str) -> Ended {
    play_with(name, &json!({}))
}

fn play_with(name: &str, params: &Value) -> Ended {
    Run::start(name, params, &["-o", "stream-json"]).end()
}

fn until(mut condition: impl FnMut() -> bool, condition_name: &str) {
    let until = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < until, "condition never held: {condition_name}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Returns small sizes and short times, so that every fault can be run.
fn small(params: &[&str]) -> Value {
    let value = |name: &str| match name {
        "bytes" => json!(1_000),
        "count" | "depth" => json!(20),
        "interval_ms" => json!(1),
        "seconds" | "flood_seconds" => json!(1),
        "after_ms" => json!(10),
        "code" => json!(3),
        "stubborn" => json!(false),
        _ => Value::Null,
    };
    params
        .iter()
        .map(|name| ((*name).to_owned(), value(name)))
        .filter(|(_, value)| !value.is_null())
        .collect()
}

#[test]
fn baseline_is_a_complete_run() {
    let run = play("ok");
    assert_eq!(run.status.code(), Some(0));
    let kinds = run.kinds();
    assert_eq!(
        kinds,
        ["init", "message", "message", "tool_use", "tool_result", "message", "message", "result"]
    );
    let events = run.events();
    assert_eq!(events[1]["content"], "What is 2+2?");
    assert_eq!(events[7]["status"], "success");
    assert_eq!(events[7]["stats"]["tool_calls"], 1);
    assert!(run.text().starts_with(r#"{"type":"init","timestamp":"20"#));
    assert_eq!(fs::read_to_string(run.dir.path().join("workspace/hello.txt")).expect("a file"), "hi there\n");
}

#[test]
fn json_format_is_one_document() {
    let run = Run::start("ok", &json!({}), &["-o", "json", "--session-id", "abc"]).end();
    let document: Value = serde_json::from_slice(&run.stdout).expect("one document");
    assert_eq!(document["session_id"], "abc");
    assert_eq!(document["response"], "All done. 4");
    assert_eq!(document["stats"]["tools"]["totalCalls"], 1);
    let failed = Run::start("exit_code_with_result", &json!({"code": 145}), &["--output-format=json"]).end();
    assert_eq!((failed.status.code(), failed.stdout.len()), (Some(145), 0));
    assert!(failed.stderr.contains(r#""code": 145"#));
}

#[test]
fn fault_table_is_consistent() {
    let names: BTreeSet<_> = FAULTS.iter().map(|fault| fault.name).collect();
    assert_eq!(names.len(), FAULTS.len(), "names are unique");
    assert!(FAULTS.len() >= 45);
    for fault in FAULTS {
        assert!(
            fault.name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
        );
        assert!(!fault.description.is_empty());
    }
    assert!(fault("ok").is_some() && fault("nothing").is_none());
    let list = Command::new(env!("CARGO_BIN_EXE_fake-agent")).arg("--list").output().expect("a list");
    assert_eq!(String::from_utf8_lossy(&list.stdout).lines().count(), FAULTS.len());
}

#[test]
fn invalid_test_parameters_are_refused() {
    let unknown = play("no_such_fault");
    assert_eq!(unknown.status.code(), Some(2));
    assert!(unknown.stderr.contains("no fault `no_such_fault`"));
    let param = play_with("huge_line", &json!({"byte": 5}));
    assert_eq!(param.status.code(), Some(2));
    assert!(param.stderr.contains("no parameter `byte`"));
}

#[test]
fn every_fault_ends_with_small_parameters() {
    // The ends of these are checked by their own tests.
    let elsewhere = ["cwd_deleted"];
    let runs: Vec<_> = FAULTS
        .iter()
        .filter(|fault| !elsewhere.contains(&fault.name))
        .map(|fault| (fault.name, Run::start(fault.name, &small(fault.params), &[])))
        .collect();
    for (name, run) in runs {
        let run = run.end();
        if !name.starts_with("version_") {
            assert_ne!(run.status.code(), Some(2), "{name}: {}", run.stderr);
        }
    }
}

#[test]
fn version_is_reported_for_every_fault() {
    let run = Run::start("hang_at_start", &json!({}), &["--version"]).end();
    assert_eq!(run.text(), "0.61.0\n");
    assert_eq!(Run::start("version_fails", &json!({}), &["--version"]).end().status.code(), Some(127));
    assert!(Run::start("version_garbage", &json!({}), &["--version"]).end().text().contains("not a version"));
}

#[test]
fn every_exit_code_is_returned() {
    for code in EXIT_CODES {
        let run = play(&format!("exit_{code}"));
        assert_eq!(run.status.code(), Some(i32::from(*code)));
        // A failed tool is reported in the result only, as by the real program.
        assert_eq!(run.stdout.is_empty(), *code != 54, "{code}");
    }
    assert!(play("exit_41").stderr.contains("GEMINI_API_KEY"));
    assert!(play("exit_54").stderr.is_empty());
}

#[test]
fn bytes_are_damaged_as_documented() {
    assert!(play("crlf").text().contains("}\r\n"));
    assert!(play("bom").stdout.starts_with(b"\xef\xbb\xbf{"));
    assert!(String::from_utf8(play("invalid_utf8").stdout).is_err());
    assert!(play("nul_bytes").stdout.contains(&0));
    assert!(play("two_on_a_line").text().lines().any(|line| line.contains("}{")));
    assert!(!play("no_last_newline").stdout.ends_with(b"\n"));
    assert!(!play("half_line_at_end").stdout.ends_with(b"\n"));
    assert!(play("garbage_between").events().len() < play("garbage_between").text().lines().count());
    let longest = |run: Ended| run.stdout.split(|byte| *byte == b'\n').map(<[u8]>::len).max();
    assert!(longest(play_with("huge_line", &json!({"bytes": 3_000_000}))) > Some(3_000_000));
    assert_eq!(longest(play_with("huge_garbage_line", &json!({"bytes": 300_000}))), Some(300_000));
    let cut = play_with("result_cut", &json!({"bytes": 40}));
    assert_eq!((cut.status.code(), cut.kinds().last().map(String::as_str)), (Some(0), Some("message")));
}

#[test]
fn flooded_output_is_complete() {
    let run = play("million_events");
    let lines = run.stdout.iter().filter(|byte| **byte == b'\n').count();
    assert_eq!(lines, 1_000_003);
}

#[test]
fn events_are_falsified_as_documented() {
    assert!(!play("success_lie").wrote("hello.txt"));
    let silent = play("silent_write");
    assert!(silent.wrote("hello.txt") && !silent.kinds().contains(&"tool_use".to_owned()));
    assert!(play("writes_file_after_result").wrote("late.txt"));
    assert!(!play("no_init").kinds().contains(&"init".to_owned()));
    assert_eq!(play("result_before_init").kinds()[0], "result");
    let twice = play("result_twice").kinds();
    assert_eq!(twice.iter().filter(|kind| *kind == "result").count(), 2);
    assert_eq!(play("success_exit_1").status.code(), Some(1));
    assert!(play_with("secret_split", &json!({"secret": "abcdef"})).text().contains("abc\""));
    assert!(!play_with("secret_split", &json!({"secret": "abcdef"})).text().contains("abcdef"));
    assert!(play_with("secret_in_stderr", &json!({"secret": "abcdef"})).stderr.contains("abcdef"));
}

#[test]
fn only_the_named_working_directory_is_deleted() {
    let refused = play_with("cwd_deleted", &json!({"dir": "/nowhere"}));
    assert_eq!(refused.status.code(), Some(2));
    assert!(refused.dir.path().join("workspace").exists());
    let deleted = play_with("cwd_deleted", &json!({"dir": "."}));
    assert_eq!(deleted.status.code(), Some(0));
    assert!(!deleted.dir.path().join("workspace").exists());
}

#[test]
fn hanging_faults_hang_at_the_documented_point() {
    for (name, expected) in [
        ("hang_after_init", "\"init\""),
        ("hang_mid_text", "The answer is "),
        ("hang_mid_line", "\"assis"),
        ("hang_with_tool", "tool_use"),
        ("hang_after_result", "\"result\""),
    ] {
        let mut run = Run::start(name, &json!({}), &[]);
        run.wait_for_text(expected);
        std::thread::sleep(Duration::from_millis(100));
        assert!(run.child.0.try_wait().expect("a status").is_none(), "{name} ended");
        assert!(run.kill().text().contains(expected));
    }
}

#[cfg(unix)]
mod unix {
    #![expect(unsafe_code, reason = "signals are sent to processes that this test started")]

    use std::os::unix::process::ExitStatusExt;

    use super::*;

    fn signal(pid: u32, signal: i32) {
        // SAFETY: sends a signal; no memory is involved.
        unsafe { libc::kill(i32::try_from(pid).expect("a process id"), signal) };
    }

    fn is_alive(pid: u32) -> bool {
        // A zombie process does not count.
        match fs::read_to_string(format!("/proc/{pid}/stat")) {
            Ok(stat) => !stat.rsplit(')').next().unwrap_or_default().trim_start().starts_with(['Z', 'X']),
            // SAFETY: signal 0 only asks whether the process exists.
            Err(_) => cfg!(not(target_os = "linux")) && unsafe { libc::kill(pid.cast_signed(), 0) } == 0,
        }
    }

    /// The children of a run, which end when this is dropped.
    struct Children(Vec<u32>);

    impl Children {
        fn of(file: &Path) -> Self {
            let text = fs::read_to_string(file).unwrap_or_default();
            Self(text.lines().map(|line| line.parse().expect("a process id")).collect())
        }
    }

    impl Drop for Children {
        fn drop(&mut self) {
            for pid in &self.0 {
                signal(*pid, libc::SIGKILL);
            }
            for pid in &self.0 {
                until(|| !is_alive(*pid), "a child ends");
            }
        }
    }

    #[test]
    fn crash_faults_end_by_a_signal() {
        for (name, number) in [
            ("killed_sigkill", libc::SIGKILL),
            ("killed_sigsegv", libc::SIGSEGV),
            ("killed_sigabrt", libc::SIGABRT),
            ("killed_sigterm", libc::SIGTERM),
            ("killed_after_result", libc::SIGSEGV),
        ] {
            assert_eq!(play(name).status.signal(), Some(number), "{name}");
        }
    }

    #[test]
    fn signal_faults_ignore_or_handle_signals() {
        let mut deaf = Run::start("ignores_signals", &json!({}), &[]);
        deaf.wait_for_text("I will not stop");
        for number in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
            signal(deaf.child.0.id(), number);
        }
        std::thread::sleep(Duration::from_millis(200));
        assert!(deaf.child.0.try_wait().expect("a status").is_none());
        assert_eq!(deaf.kill().status.signal(), Some(libc::SIGKILL));

        let polite = Run::start("exit_0_on_signal", &json!({}), &[]);
        polite.wait_for_text("Working");
        signal(polite.child.0.id(), libc::SIGTERM);
        let polite = polite.end();
        assert_eq!((polite.status.code(), polite.kinds().contains(&"result".to_owned())), (Some(0), false));

        let flood = Run::start("flood_after_signal", &json!({}), &[]);
        flood.wait_for_text("Working");
        signal(flood.child.0.id(), libc::SIGINT);
        until(|| flood.dir.path().join("stdout").metadata().expect("a file").len() > 1_000_000, "a flood");
        flood.kill();
    }

    fn leaving(name: &str, params: Value) -> (Ended, Children) {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("pids");
        let mut params = params;
        params["pid_file"] = json!(file);
        let run = play_with(name, &params);
        let children = Children::of(&file);
        assert_eq!(run.status.code(), Some(0), "{name}: {}", run.stderr);
        (run, children)
    }

    #[test]
    fn children_outlive_the_agent_and_report_their_pids() {
        for (name, count) in [
            ("child_left", 1),
            ("child_own_session", 1),
            ("daemon", 1),
            ("child_chain", 5),
            ("fork_storm", 50),
        ] {
            let (_run, children) = leaving(name, json!({}));
            assert_eq!(children.0.len(), count, "{name}");
            assert!(children.0.iter().all(|pid| is_alive(*pid)), "{name}");
        }
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn children_inherit_the_environment_unless_cleared() {
        for (name, marked) in [("child_own_session", true), ("daemon", true), ("daemon_clean_env", false)] {
            let (run, children) = leaving(name, json!({}));
            let pid = children.0[0];
            let environ = fs::read(format!("/proc/{pid}/environ")).expect("readable");
            let mark = run.dir.path().to_string_lossy().into_owned();
            assert_eq!(String::from_utf8_lossy(&environ).contains(&mark), marked, "{name}");
            // SAFETY: only returns a number.
            let session = unsafe { libc::getsid(pid.cast_signed()) };
            assert_eq!(session, pid.cast_signed(), "{name} leads its own session");
        }
    }

    #[test]
    fn child_can_keep_stdout_open() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("pids");
        let mut agent = Command::new(env!("CARGO_BIN_EXE_fake-agent"))
            .env("FAKE_AGENT_FAULT", "child_keeps_stdout")
            .env("FAKE_AGENT_ARGS", json!({"pid_file": file}).to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("started");
        let mut pipe = agent.stdout.take().expect("a pipe");
        assert!(agent.wait().expect("ended").success());
        let children = Children::of(&file);
        let reader = std::thread::spawn(move || std::io::copy(&mut pipe, &mut std::io::sink()));
        std::thread::sleep(Duration::from_millis(200));
        assert!(!reader.is_finished(), "the pipe must stay open");
        drop(children);
        assert!(reader.join().expect("no panic").is_ok());
    }
}
