//! Checks that nothing survives when agentline, its supervisor or both are killed.
#![cfg(target_os = "linux")]

use agentline::{
    internals::process::{Process, ProcessEvent, ProcessExit},
    supervisor::{Isolation, Supervisor},
};
use agentline_mock::gemini::{GeminiStep, Script};
use agentline_tests::{
    ProcessCase, TestStage, Watchdog, copy_program,
    endings::{Ending, end_runs},
    exit_of,
    kills::{Programs, Tally, Victim, carry_out, plan},
    needs_real_gemini, real_gemini, running_with, skipped, wait_until,
};
use serde_json::{Value, json};
use std::{
    fs,
    io::{BufRead as _, BufReader},
    os::unix::{
        fs::{MetadataExt as _, PermissionsExt as _},
        process::CommandExt as _,
    },
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

pub(super) const HOST: &str = env!("CARGO_BIN_EXE_supervised-host");
const LONG: Duration = Duration::from_secs(30);
const ALL_BUT_INIT: [Victim; 4] =
    [Victim::Agentline, Victim::Supervisor, Victim::Both, Victim::WithStoppedSupervisor];
const NOBODY: u32 = 65534;

fn sample(isolation: Isolation) -> Tally {
    let programs = Programs {
        agentline: env!("CARGO_BIN_EXE_agentline-under-test").into(),
        fake_gemini: env!("CARGO_BIN_EXE_fake-gemini").into(),
        fake_acp: env!("CARGO_BIN_EXE_fake-acp").into(),
    };
    carry_out(&plan(30, &[isolation]), &programs, 4, |_| {})
}

fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0)
}

#[test]
fn kills_leave_no_processes() {
    let tally = sample(Isolation::Auto);
    assert_eq!(tally.survivors(Isolation::Auto, &ALL_BUT_INIT), 0, "{tally}");
    if is_root() {
        assert_eq!(tally.survivors(Isolation::Auto, &[Victim::All]), 0, "{tally}");
    }
}

#[test]
fn kills_leave_no_processes_without_a_namespace_unless_init_is_killed() {
    let tally = sample(Isolation::None);
    assert_eq!(tally.survivors(Isolation::None, &ALL_BUT_INIT), 0, "{tally}");
}

/// A sample; `kills agents` ends runs of every agent at every stage in every way.
#[test]
fn ended_runs_of_real_agents_leave_nothing() {
    let agentline = Path::new(env!("CARGO_BIN_EXE_agentline-under-test"));
    let Some(report) = end_runs(&Ending::sample(), agentline, 2, |_, _| {}) else {
        return skipped("ended runs of real agents");
    };
    assert_eq!((report.endings(), report.failures().count()), (12, 0), "{report}");
}

fn start(case: &ProcessCase, script: &str, isolation: Isolation) -> Process {
    let mut spawn = case.spawn(script, Supervisor::Path(HOST.into()));
    spawn.isolation = isolation;
    Process::spawn(spawn).unwrap()
}

#[track_caller]
fn nothing_is_left(case: &ProcessCase) {
    wait_until("the end of all processes", || running_with(&case.tag).is_empty());
}

pub(super) fn signal(name: &str, pids: &[u32]) {
    let pids = pids.iter().map(u32::to_string);
    drop(Command::new("kill").arg(name).args(pids).output());
}

fn parent_of(pid: u32) -> u32 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    stat.rsplit(')').next().unwrap().split_whitespace().nth(1).unwrap().parse().unwrap()
}

pub(super) fn is_stopped(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    stat.rsplit(')').next().unwrap().trim_start().starts_with('T')
}

/// Reads until the exit.
async fn finish(process: &mut Process) -> (ProcessExit, String) {
    let mut out = Vec::new();
    let all = async {
        loop {
            if let ProcessEvent::Exit(exit) = process.next(&mut out).await {
                return exit;
            }
        }
    };
    let exit = tokio::time::timeout(LONG, all).await.expect("an exit in time");
    (exit, String::from_utf8_lossy(&out).into_owned())
}

#[tokio::test]
async fn agent_in_a_namespace_sees_only_itself_and_cannot_reach_its_supervisor() {
    if !is_root() {
        return;
    }
    let case = ProcessCase::new();
    let script = "read supervisor; echo $$ $PPID $(readlink /proc/self) $(ls /proc | grep -c '^[0-9]'); \
                  kill -9 $supervisor 2>/dev/null && echo reached; kill -9 1; kill -STOP 1; exit 7";
    let mut process = start(&case, script, Isolation::Auto);
    assert!(process.has_namespace());
    let supervisor = parent_of(parent_of(process.pid().unwrap()));
    process.write(format!("{supervisor}\n").into_bytes());
    let (exit, out) = finish(&mut process).await;
    // The supervisor was not killed, because it reports the exit code, and neither was the init.
    assert_eq!(exit, ProcessExit::Code(7), "{out}");
    let numbers: Vec<u32> = out.split_whitespace().map(|number| number.parse().unwrap()).collect();
    assert!(numbers[0] < 10 && numbers[1] == 1 && numbers[2] < 20 && numbers[3] < 10, "{out}");
}

#[tokio::test]
async fn stopped_supervisor_or_init_is_continued() {
    for (isolation, stops_init) in
        [(Isolation::Auto, false), (Isolation::None, false), (Isolation::None, true)]
    {
        let case = ProcessCase::new();
        let mut process = start(&case, "(env -i setsid sleep $TAG &); read go; exit 3", isolation);
        let init = parent_of(process.pid().unwrap());
        signal("-STOP", &[if stops_init { init } else { parent_of(init) }]);
        process.write(b"go\n".to_vec());
        // No command is sent: only polling can detect this.
        assert_eq!(finish(&mut process).await.0, ProcessExit::Code(3), "{isolation:?} {stops_init}");
        nothing_is_left(&case);
    }
}

#[tokio::test]
async fn a_lost_init_or_supervisor_ends_the_agent() {
    for isolation in [Isolation::Auto, Isolation::None] {
        for kills_init in [true, false] {
            let case = ProcessCase::new();
            let mut process = start(&case, "(env -i setsid sleep $TAG &); echo up; sleep $TAG", isolation);
            let mut out = Vec::new();
            while out != b"up\n" {
                let next =
                    tokio::time::timeout(LONG, process.next(&mut out)).await.expect("a line of the agent");
                assert!(matches!(next, ProcessEvent::Bytes(_)));
            }
            let init = parent_of(process.pid().unwrap());
            signal("-9", &[if kills_init { init } else { parent_of(init) }]);
            let (exit, _) = finish(&mut process).await;
            assert!(matches!(exit, ProcessExit::Lost | ProcessExit::Signal(9)), "{exit:?}");
            nothing_is_left(&case);
        }
    }
}

/// Starts a host as another user, or in another user namespace, whose agent has started a hidden daemon.
fn host_as(case: &ProcessCase, mut command: Command, isolation: Isolation) -> (Child, String) {
    let script = "(env -i setsid sleep $TAG &); echo ready; sleep $TAG";
    command
        .args([&case.mark, "wait", "/bin/sh", "-c", script])
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap())
        .env("TAG", &case.tag)
        .env("ISOLATION", isolation.name())
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    let mut host = command.spawn().unwrap();
    let _watchdog = Watchdog::over(&host, LONG, "the first line of the host");
    let mut line = String::new();
    BufReader::new(host.stdout.take().unwrap()).read_line(&mut line).unwrap();
    (host, line)
}

/// Kills a host, its supervisor and its init together.
fn kill_all_three(case: &ProcessCase, mut host: Child) {
    // The shell prints `ready` before it starts the second command, and the first may not have replaced `env` yet.
    wait_until("the start of both commands", || running_with(&case.tag).len() >= 2);
    let sleep = running_with(&case.tag)[0];
    let mut above = std::iter::successors(Some(sleep), |pid| Some(parent_of(*pid)).filter(|up| *up > 1))
        .take_while(|pid| *pid != host.id())
        .filter(|pid| {
            fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.starts_with("agentline-"))
        })
        .collect::<Vec<_>>();
    assert_eq!(above.len(), 2, "{above:?}");
    above.push(host.id());
    signal("-9", &above);
    exit_of(&mut host, "the end of a killed host");
}

/// Copies the host program to a location where every user can start it.
fn world_readable_host(folder: &Path) -> std::path::PathBuf {
    let program = folder.join("host");
    copy_program(HOST, &program);
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    program
}

#[test]
fn repeatedly_stopped_supervisor_leaves_no_processes() {
    let case = ProcessCase::new();
    let (mut host, line) = host_as(&case, Command::new(HOST), Isolation::None);
    assert_eq!(line, "ready\n");
    let supervisor = child_of(host.id());
    // Whenever the supervisor is resumed, it is stopped again: only the init can end the run.
    let stops = format!("while kill -STOP {supervisor}; do :; done");
    let mut stopping = Command::new("sh").args(["-c", &stops]).stderr(Stdio::null()).spawn().unwrap();
    wait_until("the stop of the supervisor", || is_stopped(supervisor));
    host.kill().unwrap();
    exit_of(&mut host, "the end of a killed host");
    nothing_is_left(&case);
    stopping.kill().unwrap();
    stopping.wait().unwrap();
    signal("-CONT", &[supervisor]);
}

#[test]
fn unprivileged_user_can_request_a_namespace() {
    if !is_root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let program = world_readable_host(folder.path());
    let case = ProcessCase::new();
    let mut command = Command::new(program);
    command.uid(NOBODY).gid(NOBODY);
    let (host, line) = host_as(&case, command, Isolation::Namespace);
    if line.contains("does not allow a pid namespace") {
        // The system does not offer user namespaces to everyone.
        return;
    }
    assert_eq!(line, "ready\n");
    kill_all_three(&case, host);
    nothing_is_left(&case);
}

#[test]
fn a_system_that_refuses_namespaces_still_runs_agents() {
    // In its own user namespace, this user may set the limit that makes the kernel refuse pid namespaces.
    let refused = |isolation: Isolation, case: &ProcessCase| {
        let mut command = Command::new("unshare");
        let limit = "echo 0 > /proc/sys/user/max_pid_namespaces && exec \"$0\" \"$@\"";
        command.args(["-Ur", "sh", "-c", limit, HOST]);
        host_as(case, command, isolation)
    };
    let case = ProcessCase::new();
    let (mut host, line) = refused(Isolation::Auto, &case);
    if line.is_empty() {
        // There are no user namespaces here.
        return;
    }
    assert_eq!(line, "ready\n");
    host.kill().unwrap();
    exit_of(&mut host, "the end of a killed host");
    nothing_is_left(&case);
    let (mut host, line) = refused(Isolation::Namespace, &case);
    exit_of(&mut host, "the end of a refused host");
    assert!(
        line.contains("isolation = \"namespace\"") && line.contains("does not allow a pid namespace: "),
        "{line}"
    );
}

/// Starts the program with the real Gemini CLI and a hidden daemon below it, and waits for the daemon.
fn gemini_with_daemon(stage: &TestStage, case: &ProcessCase) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_agentline-under-test"));
    command
        .args([
            "run",
            "-o",
            "json",
            "--permission-mode",
            "bypass",
            "--surface",
            "stream-json",
            "-m",
            "gemini-2.5-flash",
        ])
        .arg("Start it.")
        .env_clear()
        .envs(stage.variables())
        .env("GEMINI_CLI_PATH", &real_gemini().unwrap().path)
        .current_dir(stage.workspace())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    wait_until("the start of both commands", || running_with(&case.tag).len() >= 2);
    child
}

/// Returns the only child of a process.
pub(super) fn child_of(pid: u32) -> u32 {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
    let lists = tasks.map(|task| fs::read_to_string(task.path().join("children")).unwrap_or_default());
    lists.collect::<String>().trim().parse().unwrap()
}

#[test]
fn kills_during_a_real_gemini_run_leave_no_processes() {
    needs_real_gemini!();
    // With a fake agent, each of them is killed, at many moments.
    for kills in [Victim::Supervisor, Victim::Both] {
        let case = ProcessCase::new();
        let tag = &case.tag;
        let command = format!("(env -i setsid sleep {tag} >/dev/null 2>&1 &) ; sleep {tag}");
        let stage = TestStage::new(Script::new([
            GeminiStep::call("run_shell_command", json!({"command": command})),
            GeminiStep::text("Never said."),
        ]));
        let child = gemini_with_daemon(&stage, &case);
        let supervisor = child_of(child.id());
        match kills {
            Victim::Supervisor => signal("-9", &[supervisor]),
            _ => signal("-9", &[child.id(), supervisor]),
        }
        let watchdog = Watchdog::over(&child, LONG * 4, "the end of agentline");
        let output = child.wait_with_output().unwrap();
        drop(watchdog);
        nothing_is_left(&case);
        if kills == Victim::Supervisor {
            let outcome: Value = serde_json::from_slice(&output.stdout).unwrap();
            assert_eq!(
                (output.status.code(), &outcome["verdict"]),
                (Some(1), &json!("failed")),
                "{outcome:#}"
            );
            assert_eq!(outcome["error"]["kind"], "crashed", "{outcome:#}");
            let message = outcome["error"]["message"].as_str().unwrap();
            assert!(message.contains("its supervisor was killed"), "{message}");
        }
    }
}
