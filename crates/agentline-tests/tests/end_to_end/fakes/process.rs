//! Tests the process layer with misbehaving programs: nothing outlives a run, hangs or is lost.
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "tests may panic and print their measurements")]

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use agentline::{
    internals::process::{
        Process, ProcessEvent, ProcessExit, ProcessSignal, SpawnError, StdStream, StdoutMode,
    },
    supervisor::Supervisor,
};
use agentline_tests::{PATIENCE, ProcessCase, Watchdog, exit_of, is_own_process};

const HOST: &str = env!("CARGO_BIN_EXE_supervised-host");

/// Long enough for a busy machine; a passing test never waits this long.
const LONG: Duration = Duration::from_secs(30);

/// Returns a program of our own as the supervisor.
fn supervised() -> Supervisor {
    Supervisor::Path(HOST.into())
}

/// Ignores signals and starts a background job, one in its own session that also ignores signals, and a daemon.
const MISBEHAVING: &str = r#"
    trap '' TERM INT HUP
    sleep $TAG &
    setsid sh -c 'trap "" TERM HUP; sleep $TAG; sleep $TAG' &
    (setsid sleep $TAG &)
"#;
/// The background job, the session's shell and its sleep, the daemon, and the root.
const MISBEHAVING_COUNT: usize = 5;

/// A daemon that has left its parent, its session and its environment.
const HIDDEN_DAEMON: &str = "(env -i setsid sleep $TAG &)\n";

/// Reads everything until the exit, for at most [`LONG`].
async fn finish(process: &mut Process) -> (ProcessExit, Vec<u8>, Vec<u8>) {
    let (mut out, mut err, mut bytes) = (Vec::new(), Vec::new(), Vec::new());
    let all = async {
        loop {
            bytes.clear();
            match process.next(&mut bytes).await {
                ProcessEvent::Bytes(StdStream::Out) | ProcessEvent::Message => out.extend_from_slice(&bytes),
                ProcessEvent::Bytes(StdStream::Err) => err.extend_from_slice(&bytes),
                ProcessEvent::Exit(exit) => return exit,
            }
        }
    };
    let exit = tokio::time::timeout(LONG, all).await.expect("an exit in time");
    (exit, out, err)
}

/// Runs the misbehaving script to its own end and asserts that nothing remains.
async fn assert_clean_exit(supervisor: Supervisor, hide: &str, code: i32) {
    let case = ProcessCase::new();
    let count = MISBEHAVING_COUNT + usize::from(!hide.is_empty());
    let script = format!("{MISBEHAVING}{hide}\nread go; echo bye; exit {code}");
    let mut process = case.start(&script, supervisor);
    case.await_processes(count);
    process.write(b"go\n".to_vec());
    let (exit, out, _) = finish(&mut process).await;
    case.assert_no_survivors();
    assert_eq!((exit, out.as_slice()), (ProcessExit::Code(code), b"bye\n".as_slice()));
    let ended = process.ended().unwrap();
    assert_eq!((ended.killed as usize, ended.left), (count - 1, 0));
}

#[tokio::test]
async fn success_and_failure_leave_no_processes() {
    assert_clean_exit(supervised(), HIDDEN_DAEMON, 0).await;
    assert_clean_exit(supervised(), HIDDEN_DAEMON, 173).await;
    assert_clean_exit(Supervisor::None, "", 0).await;
    assert_clean_exit(Supervisor::None, "", 41).await;
}

/// Kills the misbehaving script while it runs and asserts that nothing remains.
async fn assert_clean_kill(supervisor: Supervisor, hide: &str) -> Duration {
    let case = ProcessCase::new();
    let mut process = case.start(&format!("{MISBEHAVING}{hide}\necho up; wait; sleep $TAG"), supervisor);
    case.await_processes(MISBEHAVING_COUNT + usize::from(!hide.is_empty()));
    // The last of them may exist before the script has reported it.
    let mut output = Vec::new();
    while output != b"up\n" {
        let next = tokio::time::timeout(LONG, process.next(&mut output)).await.expect("a line of the script");
        assert!(matches!(next, ProcessEvent::Bytes(_)), "{output:?}");
    }
    let from = Instant::now();
    process.signal(ProcessSignal::KillTree);
    let (exit, out, _) = finish(&mut process).await;
    let took = from.elapsed();
    case.assert_no_survivors();
    assert_eq!((exit, out.as_slice()), (ProcessExit::Signal(9), b"".as_slice()));
    took
}

#[tokio::test]
async fn killing_the_agent_leaves_no_processes() {
    let with = assert_clean_kill(supervised(), HIDDEN_DAEMON).await;
    let without = assert_clean_kill(Supervisor::None, "").await;
    println!("kill to exit: {with:?} with a supervisor, {without:?} without");
}

#[tokio::test]
async fn fork_loop_is_killed() {
    for supervisor in [supervised(), Supervisor::None] {
        let case = ProcessCase::new();
        // Two processes that keep starting daemons, each in its own session.
        let breeder = "setsid sh -c 'while :; do (setsid sleep $TAG &); sleep 0.01; done' &";
        let mut process = case.start(&format!("{breeder} {breeder} wait"), supervisor);
        case.await_processes(30);
        process.signal(ProcessSignal::KillTree);
        let (exit, ..) = finish(&mut process).await;
        case.assert_no_survivors();
        assert_eq!(exit, ProcessExit::Signal(9));
        // Some of the thirty were about to end by themselves.
        assert!(process.ended().unwrap().killed >= 20);
    }
}

#[tokio::test]
async fn dropping_the_process_leaves_no_processes() {
    for (supervisor, hide) in [(supervised(), HIDDEN_DAEMON), (Supervisor::None, "")] {
        let case = ProcessCase::new();
        let process = case.start(&format!("{MISBEHAVING}{hide}\nwait; sleep $TAG"), supervisor.clone());
        case.await_processes(MISBEHAVING_COUNT + usize::from(!hide.is_empty()));
        let from = Instant::now();
        drop(process);
        println!("drop ({supervisor:?}): {:?}", from.elapsed());
        case.assert_no_survivors();
    }
}

#[tokio::test]
async fn signals_reach_the_agents_process_group() {
    for supervisor in [supervised(), Supervisor::None] {
        let case = ProcessCase::new();
        for (signal, number) in [(ProcessSignal::Interrupt, 2), (ProcessSignal::Terminate, 15)] {
            let mut process = case.start("echo up; sleep $TAG; echo no", supervisor.clone());
            case.await_processes(2);
            // The child may still be the shell that has not yet become `sleep`, and a shell may miss a signal at that
            // time.
            tokio::time::sleep(Duration::from_millis(200)).await;
            process.signal(signal);
            let (exit, out, _) = finish(&mut process).await;
            assert_eq!((exit, out.as_slice()), (ProcessExit::Signal(number), b"up\n".as_slice()));
            case.assert_no_survivors();
        }
    }
}

#[tokio::test]
async fn agent_can_be_interrupted_if_the_host_ignores_interrupts() {
    // Programs that other tests start at the same time would ignore interrupts too.
    let name = concat!(module_path!(), "::agent_can_be_interrupted_if_the_host_ignores_interrupts");
    if !is_own_process(name) {
        return;
    }
    for supervisor in [supervised(), Supervisor::None] {
        let case = ProcessCase::new();
        agentline_tests::ignore_interrupts();
        let mut process = case.start("echo up; sleep $TAG; echo no", supervisor);
        agentline_tests::restore_signals();
        case.await_processes(2);
        tokio::time::sleep(Duration::from_millis(200)).await;
        process.signal(ProcessSignal::Interrupt);
        let (exit, out, _) = finish(&mut process).await;
        assert_eq!((exit, out.as_slice()), (ProcessExit::Signal(2), b"up\n".as_slice()));
        case.assert_no_survivors();
    }
}

/// Starts a separate host program with a misbehaving agent, and waits until it is ready.
fn misbehaving_host(case: &ProcessCase, action: &str) -> Child {
    let script = format!("{MISBEHAVING}{HIDDEN_DAEMON}\necho ready; wait; sleep $TAG");
    let mut host = Command::new(HOST)
        .args([&case.mark, action, "/bin/sh", "-c", &script])
        .env("TAG", &case.tag)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let _watchdog = Watchdog::over(&host, PATIENCE, "the first line of the host");
    BufReader::new(host.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    host
}

#[test]
fn killing_the_host_leaves_no_processes() {
    for signal in ["KILL", "TERM", "INT", "HUP"] {
        let case = ProcessCase::new();
        let mut host = misbehaving_host(&case, "wait");
        // The host's own command line has no tag, and it has no mark.
        case.await_processes(MISBEHAVING_COUNT + 1);
        let killed = Command::new("kill").args([&format!("-{signal}"), &host.id().to_string()]).status();
        assert!(killed.unwrap().success());
        assert!(exit_of(&mut host, &format!("the end of the host after SIG{signal}")).signal().is_some());
        println!("SIG{signal} of the host: silence after {:?}", case.time_to_silence(LONG));
    }
}

#[test]
fn panic_of_the_host_leaves_no_processes() {
    let case = ProcessCase::new();
    let mut host = misbehaving_host(&case, "panic");
    assert_eq!(exit_of(&mut host, "the end of the host after a panic").code(), Some(101));
    case.assert_no_survivors();
}

/// Returns the supervisor of an agent: the agent's parent is the init, whose parent is the supervisor.
fn supervisor_of(process: &Process) -> i32 {
    let parent = |pid: i32| -> i32 {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        stat.rsplit(')').next().unwrap().split_whitespace().nth(1).unwrap().parse().unwrap()
    };
    parent(parent(process.pid().unwrap() as i32))
}

#[tokio::test]
async fn killing_the_supervisor_is_reported_and_leaves_no_processes() {
    for (signal, expected) in [("TERM", ProcessExit::Signal(9)), ("KILL", ProcessExit::Lost)] {
        let case = ProcessCase::new();
        let mut process = case.start(&format!("{MISBEHAVING}\nwait; sleep $TAG"), supervised());
        case.await_processes(MISBEHAVING_COUNT);
        let supervisor = supervisor_of(&process).to_string();
        assert!(Command::new("kill").args([&format!("-{signal}"), &supervisor]).status().unwrap().success());
        let (exit, ..) = finish(&mut process).await;
        assert_eq!(exit, expected);
        case.assert_no_survivors();
    }
}

#[tokio::test]
async fn supervisor_is_small_and_holds_no_extra_descriptors() {
    let case = ProcessCase::new();
    let mut process = case.start("read go", supervised());
    let supervisor = supervisor_of(&process);
    let open = || fs::read_dir(format!("/proc/{supervisor}/fd")).unwrap().flatten();
    let targets: Vec<PathBuf> = open().filter_map(|fd| fs::read_link(fd.path()).ok()).collect();
    // Two descriptors of the socket, two ends of the signal pipe, the socket to the init, and no duplicates.
    let named = |path: &Path| path.to_str().is_some_and(|path| path.starts_with('/') && path != "/dev/null");
    assert!(targets.len() <= 7 && !targets.iter().any(|path| named(path)), "{targets:?}");
    assert_eq!(fs::read_link(format!("/proc/{supervisor}/cwd")).unwrap(), Path::new("/"));
    process.close_stdin();
    // The end of stdin arrives only if no other process, especially the supervisor, holds it open.
    let (exit, ..) = finish(&mut process).await;
    assert_eq!(exit, ProcessExit::Code(1));
    let cpu = process.ended().unwrap().supervisor_cpu;
    println!("processor time of the supervisor: {cpu:?} (unoptimised build: {})", cfg!(debug_assertions));
    assert!(cpu < Duration::from_millis(200));
}

#[tokio::test]
async fn output_burst_before_exit_is_complete() {
    for supervisor in [supervised(), Supervisor::None] {
        let case = ProcessCase::new();
        let script = "head -c 5000000 /dev/zero | tr '\\0' x; head -c 3000000 /dev/zero | tr '\\0' y >&2";
        let mut process = case.start(script, supervisor);
        // The agent has exited long before we start to read.
        let until = Instant::now() + LONG;
        while process.backlog() < 8_000_000 {
            assert!(Instant::now() < until, "waited {LONG:?} for the output");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert!(process.unread());
        let (exit, out, err) = finish(&mut process).await;
        assert_eq!((exit, out.len(), err.len()), (ProcessExit::Code(0), 5_000_000, 3_000_000));
        assert!(out.iter().all(|byte| *byte == b'x') && err.iter().all(|byte| *byte == b'y'));
        assert!(!process.unread());
        case.assert_no_survivors();
    }
}

#[tokio::test]
async fn slow_reader_loses_no_output() {
    for via in [StdoutMode::TailedFile, StdoutMode::Pipe] {
        let case = ProcessCase::new();
        let mut spawn = case.spawn("seq 1 200000; echo end >&2", supervised());
        spawn.stdout = via;
        let mut process = Process::spawn(spawn).unwrap();
        let (mut out, mut err, mut reads) = (Vec::new(), Vec::new(), 0);
        let exit = loop {
            let mut bytes = Vec::new();
            match tokio::time::timeout(LONG, process.next(&mut bytes)).await.expect("output or the exit") {
                ProcessEvent::Bytes(StdStream::Out) | ProcessEvent::Message => out.append(&mut bytes),
                ProcessEvent::Bytes(StdStream::Err) => err.append(&mut bytes),
                ProcessEvent::Exit(exit) => break exit,
            }
            reads += 1;
            if reads < 100 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        assert_eq!((exit, err.as_slice()), (ProcessExit::Code(0), b"end\n".as_slice()));
        let expected: String = (1..=200_000).map(|line| format!("{line}\n")).collect();
        assert!(out == expected.as_bytes(), "{via:?}: {} of {} bytes", out.len(), expected.len());
        case.assert_no_survivors();
    }
}

#[tokio::test]
async fn million_lines_are_delivered() {
    for via in [StdoutMode::TailedFile, StdoutMode::Pipe] {
        let case = ProcessCase::new();
        let script = "yes 'a line of text, eighty bytes long, as an agent may write it: a delta, a number, x' | head -n 1000000";
        let mut spawn = case.spawn(script, supervised());
        spawn.stdout = via;
        let from = Instant::now();
        let mut process = Process::spawn(spawn).unwrap();
        let (mut bytes, mut total) = (Vec::new(), 0);
        let exit = loop {
            bytes.clear();
            match tokio::time::timeout(LONG, process.next(&mut bytes)).await.expect("output or the exit") {
                ProcessEvent::Bytes(_) | ProcessEvent::Message => total += bytes.len(),
                ProcessEvent::Exit(exit) => break exit,
            }
        };
        let took = from.elapsed();
        let rate = total as f64 / took.as_secs_f64() / 1e6;
        println!(
            "{via:?}: a million lines, {total} bytes in {took:?}: {rate:.0} MB/s, start and end included"
        );
        assert_eq!((exit, total), (ProcessExit::Code(0), 82_000_000));
        case.assert_no_survivors();
    }
}

#[tokio::test]
async fn output_is_delivered_immediately() {
    for via in [StdoutMode::TailedFile, StdoutMode::Pipe] {
        let case = ProcessCase::new();
        // The agent answers each line immediately, on alternating streams.
        let script = "while read line; do echo $line; read line; echo $line >&2; done";
        let mut spawn = case.spawn(script, supervised());
        spawn.stdout = via;
        let mut process = Process::spawn(spawn).unwrap();
        let mut times = Vec::new();
        for turn in 0..100 {
            let from = Instant::now();
            process.write(format!("{turn}\n").into_bytes());
            let mut bytes = Vec::new();
            while !bytes.ends_with(b"\n") {
                let next = tokio::time::timeout(LONG, process.next(&mut bytes)).await.expect("an answer");
                assert_eq!(
                    next,
                    ProcessEvent::Bytes(if turn % 2 == 0 { StdStream::Out } else { StdStream::Err })
                );
            }
            assert_eq!(bytes, format!("{turn}\n").as_bytes());
            times.push(from.elapsed());
        }
        times.sort();
        println!("{via:?}: there and back in {:?} (median), {:?} (worst)", times[50], times[99]);
        assert!(times[50] < Duration::from_millis(100));
        process.close_stdin();
        assert_eq!(finish(&mut process).await.0, ProcessExit::Code(0));
        case.assert_no_survivors();
    }
}

#[tokio::test]
async fn unread_stdin_does_not_block() {
    let prompt = || vec![b'p'; 2_000_000];
    for supervisor in [supervised(), Supervisor::None] {
        for (script, expected) in [
            ("echo done", "done\n"),
            ("exec <&-; sleep 0.2; echo done", "done\n"),
            ("sleep 0.2; echo done", "done\n"),
            ("wc -c", "2000000\n"),
        ] {
            let case = ProcessCase::new();
            let mut process = case.start(script, supervisor.clone());
            process.write(prompt());
            process.close_stdin();
            process.write(b"too late".to_vec());
            let (exit, out, _) = finish(&mut process).await;
            assert_eq!(
                (exit, String::from_utf8_lossy(&out).trim()),
                (ProcessExit::Code(0), expected.trim()),
                "{script}"
            );
            case.assert_no_survivors();
        }
    }
}

#[tokio::test]
async fn stdout_flood_starves_neither_stderr_nor_timers_nor_the_exit() {
    for supervisor in [supervised(), Supervisor::None] {
        let case = ProcessCase::new();
        // The flood is a daemon that outlives the agent, until the agent's exit ends it.
        let script = "(setsid sh -c 'yes; : $TAG' &) ; sleep 0.3; echo seen >&2; sleep 0.3; exit 7";
        let mut process = case.start(script, supervisor);
        let (mut ticks, mut ticker) = (0, tokio::time::interval(Duration::from_millis(20)));
        let (mut bytes, mut err, from) = (Vec::new(), Vec::new(), Instant::now());
        let exit = loop {
            bytes.clear();
            tokio::select! {
                biased;
                next = process.next(&mut bytes) => match next {
                    ProcessEvent::Bytes(StdStream::Err) => err.append(&mut bytes),
                    ProcessEvent::Bytes(StdStream::Out) | ProcessEvent::Message => {}
                    ProcessEvent::Exit(exit) => break exit,
                },
                _ = ticker.tick() => ticks += 1,
            }
            assert!(from.elapsed() < LONG, "the flood has no end");
        };
        assert_eq!((exit, err.as_slice()), (ProcessExit::Code(7), b"seen\n".as_slice()));
        assert!(ticks > 5, "{ticks} ticks in {:?}", from.elapsed());
        case.assert_no_survivors();
    }
}

#[tokio::test]
async fn truncated_output_file_keeps_working() {
    let case = ProcessCase::new();
    let script = "echo one >&2; read go; echo two >/dev/stderr; read go; echo three >&2";
    let mut process = case.start(script, supervised());
    let mut bytes = Vec::new();
    for expected in ["one\n", "one\ntwo\n", "one\ntwo\nthree\n"] {
        while bytes != expected.as_bytes() {
            let next = tokio::time::timeout(LONG, process.next(&mut bytes)).await.expect("more");
            assert_eq!(next, ProcessEvent::Bytes(StdStream::Err));
        }
        process.write(b"go\n".to_vec());
    }
    assert_eq!(finish(&mut process).await.0, ProcessExit::Code(0));
    case.assert_no_survivors();
}

#[tokio::test]
async fn exit_is_reported_once() {
    let case = ProcessCase::new();
    let mut process = case.start("kill -11 $$", supervised());
    assert!(process.is_supervised() && process.ended().is_none());
    assert_eq!(finish(&mut process).await.0, ProcessExit::Signal(11));
    assert_eq!(process.pid(), None);
    process.signal(ProcessSignal::KillTree);
    let again = tokio::time::timeout(Duration::from_millis(50), process.next(&mut Vec::new())).await;
    assert!(again.is_err());
    case.assert_no_survivors();
}

#[tokio::test]
async fn process_can_move_to_another_task() {
    let case = ProcessCase::new();
    let mut process = case.start("echo moved", supervised());
    let ended = tokio::spawn(async move { finish(&mut process).await }).await.unwrap();
    assert_eq!((ended.0, ended.1.as_slice()), (ProcessExit::Code(0), b"moved\n".as_slice()));
    case.assert_no_survivors();
}

#[tokio::test]
async fn dropped_wait_loses_nothing() {
    let case = ProcessCase::new();
    let mut process = case.start("for i in 1 2 3 4 5 6 7 8; do echo $i; sleep 0.05; done", supervised());
    let (mut bytes, mut dropped) = (Vec::new(), 0);
    let until = Instant::now() + LONG;
    let exit = loop {
        assert!(Instant::now() < until, "no exit");
        match tokio::time::timeout(Duration::from_micros(500), process.next(&mut bytes)).await {
            Ok(ProcessEvent::Exit(exit)) => break exit,
            Ok(ProcessEvent::Bytes(_) | ProcessEvent::Message) => {}
            Err(_) => dropped += 1,
        }
    };
    assert_eq!((exit, bytes.as_slice()), (ProcessExit::Code(0), b"1\n2\n3\n4\n5\n6\n7\n8\n".as_slice()));
    assert!(dropped > 0, "no wait was dropped");
    case.assert_no_survivors();
}

#[tokio::test]
async fn nested_run_ends_with_the_outer_run() {
    let (outer, inner) = (ProcessCase::new(), ProcessCase::new());
    let mut spawn = outer.spawn("", supervised());
    spawn.program = HOST.into();
    let script = format!("{MISBEHAVING}{HIDDEN_DAEMON}echo ready; wait; sleep $TAG");
    spawn.args = [&inner.mark, "wait", "/bin/sh", "-c", &script].map(Into::into).to_vec();
    spawn.env.insert("TAG".into(), inner.tag.clone().into());
    let mut process = Process::spawn(spawn).unwrap();
    inner.await_processes(MISBEHAVING_COUNT + 1);
    process.signal(ProcessSignal::KillTree);
    assert_eq!(finish(&mut process).await.0, ProcessExit::Signal(9));
    inner.assert_no_survivors();
    outer.assert_no_survivors();
}

#[tokio::test]
async fn failed_start_reports_its_reason() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str, mode: u32| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
        path
    };
    let script = file("script", "#!/no/such/interpreter\n", 0o755);
    let closed = file("closed", "#!/bin/sh\n", 0o644);
    for supervisor in [supervised(), Supervisor::None] {
        let case = ProcessCase::new();
        let start = |program: &OsStr, cwd: &Path| {
            let mut spawn = case.spawn("", supervisor.clone());
            (spawn.program, spawn.cwd) = (program.into(), cwd.into());
            Process::spawn(spawn).expect_err("no start")
        };
        let cwd = folder.path();
        let missing = start("no-such-agent".as_ref(), cwd);
        assert!(matches!(missing, SpawnError::NotFound { .. }), "{missing:?}");
        assert_eq!(missing.to_string(), "program `no-such-agent` does not exist");
        let missing = start(cwd.join("absent").as_ref(), cwd);
        assert!(matches!(missing, SpawnError::NotFound { .. }), "{missing:?}");
        let error = start(script.as_ref(), cwd);
        assert!(matches!(error, SpawnError::NoInterpreter { .. }), "{error:?}");
        let error = start(closed.as_ref(), cwd);
        assert!(matches!(error, SpawnError::NotExecutable { .. }), "{error:?}");
        let error = start("/bin/sh".as_ref(), &cwd.join("absent"));
        assert!(matches!(error, SpawnError::BadCwd { .. }), "{error:?}");
        let error = start("/bin/sh\0".as_ref(), cwd);
        assert!(matches!(error, SpawnError::Nul), "{error:?}");
        case.assert_no_survivors();
    }
    let case = ProcessCase::new();
    for (program, kind) in [("/no/such/supervisor", "missing"), ("/bin/true", "no supervisor")] {
        let error = Process::spawn(case.spawn("", Supervisor::Path(program.into()))).expect_err(kind);
        assert!(matches!(error, SpawnError::Supervisor { .. }), "{error:?}");
    }
    let mut spawn = case.spawn("", supervised());
    spawn.mark = "a/b".into();
    assert!(matches!(Process::spawn(spawn), Err(SpawnError::BadMark { .. })));
    case.assert_no_survivors();
}
