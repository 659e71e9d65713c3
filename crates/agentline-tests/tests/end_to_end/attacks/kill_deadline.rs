//! Checks that the supervisor holds the deadline of a host that is stopped.
#![cfg(target_os = "linux")]

use super::process_kills::{HOST, child_of, is_stopped, signal};
use agentline::supervisor::Isolation;
use agentline_tests::{ProcessCase, Watchdog, exit_of, running_with, wait_until};
use std::{
    io::{BufRead as _, BufReader},
    process::{Child, ChildStdout, Command, Stdio},
    time::{Duration, Instant},
};

/// How far in the future the host sets the deadline. It extends it ten times as often.
const DEADLINE: Duration = Duration::from_millis(1_500);

/// How long the death of all processes may take after the deadline. The init waits for one second of it.
const DEATH: Duration = Duration::from_secs(2);

/// Longer than a loaded machine needs.
const LONG: Duration = Duration::from_secs(60);

/// A host whose agent has started a hidden daemon.
struct Host {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Host {
    /// Starts a host that extends its deadline again and again, or removes it (`none`).
    fn start(case: &ProcessCase, isolation: Isolation, deadline: &str) -> Self {
        let script = "(env -i setsid sleep $TAG &); echo ready; sleep $TAG";
        let mut child = Command::new(HOST)
            .args([&case.mark, "wait", "/bin/sh", "-c", script])
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap())
            .env("TAG", &case.tag)
            .env("ISOLATION", isolation.name())
            .env("DEADLINE", deadline)
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        let mut host = Self { child, lines };
        assert_eq!(host.line(), "ready");
        wait_until("the start of both commands", || running_with(&case.tag).len() >= 2);
        host
    }

    fn line(&mut self) -> String {
        let _watchdog = Watchdog::over(&self.child, LONG, "a line of the host");
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    fn stop(&self) {
        signal("-STOP", &[self.child.id()]);
        wait_until("the stop of the host", || is_stopped(self.child.id()));
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

#[test]
fn agents_of_a_stopped_host_are_killed_at_its_deadline() {
    for isolation in [Isolation::Auto, Isolation::None] {
        for stops_supervisor in [false, true] {
            let case = ProcessCase::new();
            let mut host = Host::start(&case, isolation, &DEADLINE.as_millis().to_string());
            // Written once the first deadline is long past.
            assert_eq!(host.line(), "extended");
            assert_eq!(running_with(&case.tag).len(), 2, "an extended deadline");
            let supervisor = child_of(host.child.id());
            host.stop();
            let stopped = Instant::now();
            if stops_supervisor {
                signal("-STOP", &[supervisor]);
                wait_until("the stop of the supervisor", || is_stopped(supervisor));
            }
            wait_until("the end of all processes", || running_with(&case.tag).is_empty());
            let took = stopped.elapsed();
            assert!(took < DEADLINE + DEATH, "{isolation:?} {stops_supervisor}: {took:?}");
            assert!(is_stopped(host.child.id()), "the host had no part in this");
            signal("-CONT", &[host.child.id()]);
            let end = host.line();
            let expected: &[_] = if stops_supervisor { &["Signal(9)", "Lost"] } else { &["Signal(9)"] };
            assert!(expected.contains(&end.as_str()), "{isolation:?} {stops_supervisor}: {end}");
            exit_of(&mut host.child, "the end of the host");
        }
    }
}

#[test]
fn agents_of_a_stopped_host_without_a_deadline_live_on() {
    let case = ProcessCase::new();
    let mut host = Host::start(&case, Isolation::Auto, "none");
    assert_eq!(host.line(), "removed");
    host.stop();
    // Longer than the supervisor needs to read the deadline.
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(running_with(&case.tag).len(), 2);
    drop(host);
    wait_until("the end of all processes", || running_with(&case.tag).is_empty());
}
