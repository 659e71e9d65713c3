//! Measures the cost of `agentline host` for a program in another language: runs on warm fake agents, and cached runs.
//! The host is a separate process, so that its processor time and memory are measured alone.

use agentline_tests::{FakeStage, HostProgram, kill_amid_runs};
use serde_json::{Value, json};
use std::{sync::Arc, time::Instant};

/// The number of runs on agents, and of cached runs.
const RUNS: usize = 1_000;
const KNOWN: usize = 10_000;
/// The number of times a host is killed.
const KILLS: usize = 50;
/// The number of distinct cached runs.
const DIFFERENT: usize = 50;
/// The number of concurrent runs of a host.
const WINDOW: usize = 16;

pub(crate) fn run() {
    let stage = Arc::new(FakeStage::new(env!("CARGO_BIN_EXE_fake-acp")));
    for n in 0..10 {
        std::fs::write(stage.workspace().join(format!("{n}.txt")), "a file of the workspace\n")
            .expect("a file");
    }
    let defaults = json!({"defaults": {"permission_mode": "plan"}, "max_concurrent": 8});
    let mut host =
        HostProgram::start(env!("CARGO_BIN_EXE_agentline-under-test"), Arc::clone(&stage), &defaults);
    let params = |n: usize| json!({"prompt": format!("say run {}\nsay  is done", n % DIFFERENT)});
    many(&mut host, 100, params);
    let (early, before, start) = (memory_mb(&host), cpu_ms(&host), Instant::now());
    many(&mut host, RUNS - 100, params);
    let (wall, cpu) = (start.elapsed().as_secs_f64(), cpu_ms(&host) - before);
    let late = memory_mb(&host);
    let runs = (RUNS - 100) as f64;
    println!("{RUNS} runs on the fake agent, {WINDOW} at a time, the last {runs}:");
    println!("  {:.2} ms of our processor time per run, {:.0} runs per second", cpu / runs, runs / wall);
    println!("  memory after 100 runs {early:.1} MB, after {RUNS} {late:.1} MB");

    let known = |n: usize| {
        let mut params = params(n);
        params["cache"] = true.into();
        params
    };
    // The first round creates the entries; later ones find them.
    many(&mut host, DIFFERENT, known);
    let (before, start) = (cpu_ms(&host), Instant::now());
    let hits = many(&mut host, KNOWN, known);
    let (wall, cpu) = (start.elapsed().as_secs_f64(), cpu_ms(&host) - before);
    assert_eq!(hits, KNOWN, "all of them are cached");
    let runs = KNOWN as f64;
    println!("{KNOWN} cached runs, in a workspace of 10 files:");
    println!("  {:.0} per second, {:.3} ms of our processor time each", runs / wall, cpu / runs);
    println!("  memory {:.1} MB", memory_mb(&host));
    drop(host);

    let times = kill_amid_runs(env!("CARGO_BIN_EXE_agentline-under-test"), &stage, KILLS);
    let (median, most) = (times[KILLS / 2], times[KILLS - 1]);
    println!("killed with SIGKILL during four runs, {KILLS} times:");
    println!(
        "  nothing left after {:.0} ms (median), {:.0} ms (maximum)",
        1e3 * median.as_secs_f64(),
        1e3 * most.as_secs_f64()
    );
}

/// Starts this many runs, some concurrently, and returns how many of them were cached.
fn many(host: &mut HostProgram, runs: usize, params: impl Fn(usize) -> Value) -> usize {
    let (mut sent, mut done, mut hits) = (0, 0, 0);
    while done < runs {
        while sent < runs && sent - done < WINDOW {
            host.send("run", params(sent));
            sent += 1;
        }
        let answer = host.message();
        if answer.get("method").is_none() {
            let outcome = &answer["result"];
            assert_eq!(outcome["verdict"], "done", "{answer}");
            hits += usize::from(outcome["cache"]["hit"] == true);
            done += 1;
        }
    }
    hits
}

fn memory_mb(host: &HostProgram) -> f64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", host.child.id())).expect("it lives");
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).expect("its memory");
    line.trim().trim_end_matches("kB").trim().parse::<f64>().expect("a number") / 1024.0
}

/// Returns the processor time of the host alone in milliseconds.
fn cpu_ms(host: &HostProgram) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", host.child.id())).expect("it lives");
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap_or_default().split(' ').collect();
    let ticks = |at: usize| fields[at].parse::<f64>().expect("a number");
    // Ticks of 10 ms: user and system time are the fields 14 and 15.
    (ticks(11) + ticks(12)) * 10.0
}
