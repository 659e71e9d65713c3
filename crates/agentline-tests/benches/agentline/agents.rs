//! Compares each agent through agentline with the agent alone, on the real agents with an instant model, interleaved.
//!
//! Cold: `agentline run` against the agent's own one-shot run. Warm: a prompt in the pool against the floor, a client of
//! a few lines that speaks the same protocol to a long-lived process and checks nothing. Both open a new session. The
//! wait is the time from the last event of a cold run to its outcome.

mod floor;

use crate::median;
use agentline::{Event, PermissionMode, Pool, PoolOptions, RunRequest};
use agentline_mock::answer::Answer;
use agentline_tests::{ScriptedStage, are_disabled};
use floor::AgentFloor;
use std::{
    path::Path,
    process::Stdio,
    time::{Duration, Instant},
};

/// The number of measurements, unless `AGENTLINE_BENCH_ROUNDS` is set. `AGENTLINE_BENCH_AGENT` selects one agent.
const ROUNDS: usize = 10;

/// How long to wait for the process of the next prompt.
const PREPARATION_TIME: Duration = Duration::from_secs(10);

const PROMPT: &str = "What is 2 + 2?";

/// One agent without agentline.
struct NativeAgent {
    id: &'static str,
    /// The arguments of its one-shot run; the prompt follows.
    one_shot: &'static [&'static str],
    floor: fn(&ScriptedStage) -> Box<dyn AgentFloor>,
}

const AGENTS: &[NativeAgent] = &[
    NativeAgent {
        id: "gemini",
        one_shot: &["-o", "stream-json", "--skip-trust", "--approval-mode", "yolo", "-p"],
        floor: floor::gemini,
    },
    NativeAgent {
        id: "claude",
        one_shot: &["--output-format", "stream-json", "--verbose", "-p"],
        floor: floor::claude,
    },
    NativeAgent { id: "codex", one_shot: &["exec", "--json", "--skip-git-repo-check"], floor: floor::codex },
    NativeAgent { id: "opencode", one_shot: &["run", "--format", "json"], floor: floor::opencode },
];

pub(crate) fn run() {
    if are_disabled() {
        return println!("skipped: AGENTLINE_REAL_AGENTS=off");
    }
    let rounds = std::env::var("AGENTLINE_BENCH_ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(ROUNDS);
    println!("{rounds} interleaved rounds; medians, ratios are medians of the rounds' ratios");
    println!("| agent | cold: alone, agentline | ratio | warm: floor, pool | ratio | wait |");
    println!("|---|---|---|---|---|---|");
    let only = std::env::var("AGENTLINE_BENCH_AGENT").ok();
    for agent in AGENTS.iter().filter(|agent| only.as_deref().is_none_or(|only| only == agent.id)) {
        println!("{}", measure(agent, rounds));
    }
}

/// Measures an agent, and returns a row of the table.
fn measure(agent: &NativeAgent, rounds: usize) -> String {
    let stage = ScriptedStage::new(agent.id, |_| Answer::text("4")).expect("real agents are enabled");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.expect("a runtime");
    let _context = runtime.enter();
    let pool = Pool::new(stage.agentline(), PoolOptions::default());
    let mut floor = (agent.floor)(&stage);
    let alone = || timed(&stage, &stage.program, agent.one_shot);
    let program = Path::new(env!("CARGO_BIN_EXE_agentline-under-test"));
    let args = ["run", "-o", "json", "--permission-mode", "bypass", "-a", agent.id];
    let cold = || timed(&stage, program, &args);
    let pooled = || {
        runtime.block_on(async {
            let seconds = prompt_in_pool(&stage, &pool).await;
            // An agent with one session per process needs another process for each prompt. Its start must not slow down
            // what is measured next.
            let until = Instant::now() + PREPARATION_TIME;
            let is_prepared = || pool.status().processes.iter().any(|p| p.ready && p.active == 0);
            while !is_prepared() && Instant::now() < until {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            seconds
        })
    };
    // Files are read and processes started before anything is measured.
    alone();
    cold();
    pooled();
    pooled();
    floor.prompt();
    let mut times: [Vec<f64>; 4] = Default::default();
    let mut waits = Vec::new();
    for round in 0..rounds {
        for turn in [round, round + 1] {
            if turn % 2 == 0 {
                times[0].push(alone());
                times[2].push(floor.prompt());
            } else {
                times[1].push(cold());
                times[3].push(pooled());
            }
        }
        waits.push(runtime.block_on(wait_for_outcome(&stage)));
    }
    runtime.block_on(pool.close());
    let ratio =
        |a: usize, b: usize| median(&times[a].iter().zip(&times[b]).map(|(a, b)| a / b).collect::<Vec<_>>());
    let ms = |values: &[f64]| format!("{:.0} ms", median(values) * 1e3);
    let [alone, cold, floor, pooled] = [0, 1, 2, 3].map(|n| ms(&times[n]));
    format!(
        "| {} | {alone}, {cold} | {:.2} | {floor}, {pooled} | {:.2} | {} |",
        agent.id,
        ratio(1, 0),
        ratio(3, 2),
        ms(&waits)
    )
}

/// Runs a program to its end, and returns the seconds.
fn timed(stage: &ScriptedStage, program: &Path, args: &[&str]) -> f64 {
    // Some agents lose output on a pipe.
    let out = std::fs::File::create(stage.path().join("out")).expect("a file");
    let mut command = stage.command(program);
    command.args(args).arg(PROMPT).stdout(out).stderr(Stdio::null());
    let start = Instant::now();
    let status = command.status().expect("it starts");
    let seconds = start.elapsed().as_secs_f64();
    let printed = std::fs::read_to_string(stage.path().join("out")).unwrap_or_default();
    assert!(status.success() && printed.contains('4'), "{}: {status}: {printed}", program.display());
    seconds
}

fn request(stage: &ScriptedStage) -> RunRequest {
    RunRequest::new(PROMPT)
        .agent(stage.agent.id)
        .permission_mode(PermissionMode::Bypass)
        .working_dir(stage.workspace())
}

async fn prompt_in_pool(stage: &ScriptedStage, pool: &Pool) -> f64 {
    let start = Instant::now();
    let outcome = pool.run(request(stage)).await.expect("a run").outcome().await;
    assert!(outcome.is_done(), "{outcome:?}");
    start.elapsed().as_secs_f64()
}

/// Returns the seconds from the last event of a cold run to its outcome.
async fn wait_for_outcome(stage: &ScriptedStage) -> f64 {
    let mut run = stage.agentline().run(request(stage)).await.expect("a run");
    let mut last = Instant::now();
    while let Some(record) = run.next().await {
        if matches!(record.event, Event::Outcome { .. }) {
            return last.elapsed().as_secs_f64();
        }
        last = Instant::now();
    }
    panic!("a run ends with its outcome")
}
