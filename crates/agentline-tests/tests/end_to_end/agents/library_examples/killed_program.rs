//! Checks that a program that starts with `agentline::init` leaves no process behind when it is killed.

use super::built;
use std::{
    fs,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

/// Kills the program of an example while its agent hangs, and waits until all of its processes have ended.
#[test]
fn killed_example_leaves_no_process() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let program = dir.path().join("minimal");
    fs::copy(built().join("minimal"), &program).expect("a copy of the example");
    let running = || {
        let pids = fs::read_dir("/proc").into_iter().flatten().flatten();
        let is_ours = |pid: &fs::DirEntry| {
            let target = fs::read_link(pid.path().join("exe"));
            target.is_ok_and(|target| target.starts_with(dir.path()))
        };
        pids.filter(is_ours).count()
    };
    let wait = |awaited: &str, count: &dyn Fn(usize) -> bool| {
        let until = Instant::now() + Duration::from_secs(60);
        while !count(running()) {
            assert!(Instant::now() < until, "waited a minute for {awaited}; {} processes run", running());
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    let mut host = Command::new(&program)
        .env("FAKE_AGENT_FAULT", "hang_with_tool")
        .stdout(Stdio::null())
        .spawn()
        .expect("the example");
    // The host, its supervisor, the init and the agent.
    wait("four processes", &|running| running >= 4);
    host.kill().expect("a running host");
    host.wait().expect("a dead host");
    wait("the end of all processes", &|running| running == 0);
}
