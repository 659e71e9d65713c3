//! Measures experiments of 1,000, 10,000 and 100,000 runs on a queue: `agentline batch` submits them, and `agentline worker`
//! executes them on warm fake agents. Most evaluations repeat their cases; the others show what a case costs.

use super::kinds;
use crate::batch::{cpu_ms, peak_memory_mb};
use agentline_tests::{
    FakeStage,
    engines::{Engine, EngineKind},
    exit_of,
};
use serde_json::{Value, json};
use std::{
    fs,
    io::{BufRead as _, BufReader},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

const AGENTLINE: &str = env!("CARGO_BIN_EXE_agentline-under-test");
/// The experiments. `AGENTLINE_BENCH_RUNS` leaves larger ones out.
const SIZES: [Size; 5] = [
    Size { cases: 1_000, repeat: 1 },
    Size { cases: 1_000, repeat: 10 },
    Size { cases: 1_000, repeat: 100 },
    Size { cases: 10_000, repeat: 1 },
    Size { cases: 100_000, repeat: 1 },
];
/// The number of runs in progress at a time.
const SLOTS: &str = "4";

pub(crate) fn run() {
    let most = std::env::var("AGENTLINE_BENCH_RUNS").ok().and_then(|n| n.parse().ok()).unwrap_or(usize::MAX);
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    for kind in kinds() {
        println!(
            "{}, {SLOTS} runs at a time on the fake agent, per run (processor time is that of one process):",
            kind.name()
        );
        for size in SIZES.into_iter().filter(|size| size.runs() <= most) {
            let Some(engine) = runtime.block_on(Engine::start(kind)) else { return };
            println!("  {}", measure(&engine, kind, size));
        }
    }
}

/// The size of an experiment.
#[derive(Clone, Copy)]
struct Size {
    cases: usize,
    repeat: usize,
}

impl Size {
    fn runs(self) -> usize {
        self.cases * self.repeat
    }

    fn suite(self) -> Value {
        let case = |n: usize| json!({"id": format!("c{n}"), "prompt": format!("say case {n} is done")});
        let cases: Vec<Value> = (0..self.cases).map(case).collect();
        json!({"repeat": self.repeat, "defaults": {"quiet_period_ms": 0}, "cases": cases})
    }
}

/// A process, and what it used when it was last looked at.
struct Measured {
    child: Child,
    cpu_ms: f64,
    memory_mb: f64,
}

impl Measured {
    fn new(child: Child) -> Self {
        Self { child, cpu_ms: 0.0, memory_mb: 0.0 }
    }

    fn look(&mut self) {
        self.cpu_ms = cpu_ms(self.child.id()).unwrap_or(self.cpu_ms);
        self.memory_mb = peak_memory_mb(self.child.id()).unwrap_or(self.memory_mb);
    }
}

impl Drop for Measured {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Executes an experiment, and returns what to print.
fn measure(engine: &Engine, kind: EngineKind, size: Size) -> String {
    let stage = FakeStage::new(env!("CARGO_BIN_EXE_fake-acp"));
    let command = |arguments: &[&str]| {
        let mut command = Command::new(AGENTLINE);
        command.args(arguments).args(["--queue", &engine.address()]);
        command.env_clear().envs(stage.variables()).current_dir(stage.path());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command
    };
    fs::write(stage.path().join("suite.json"), size.suite().to_string()).expect("a suite");
    let mut worker = Measured::new(command(&["worker", "-j", SLOTS]).spawn().expect("a worker"));
    let start = Instant::now();
    let mut batch = command(&["batch", "suite.json", "--dir", "experiment", "-o", "jsonl"]);
    let mut submitter = Measured::new(batch.stdout(Stdio::piped()).spawn().expect("a submitter"));
    let stdout = submitter.child.stdout.take().expect("a pipe");
    let first = std::thread::spawn(move || {
        let mut lines = BufReader::new(stdout).lines().map_while(Result::ok);
        let first = lines.next().map(|_| Instant::now());
        (first, lines.count() + 1)
    });
    while !first.is_finished() {
        worker.look();
        submitter.look();
        std::thread::sleep(Duration::from_millis(50));
    }
    let runs = size.runs();
    let (first, lines) = first.join().expect("a number");
    let wall = start.elapsed();
    let code = exit_of(&mut submitter.child, "the end of the submitter").code();
    assert_eq!((lines, code), (runs, Some(0)), "{} passes every run", kind.name());
    let count = runs as f64;
    format!(
        "{:>6} cases, {:>3} runs each: {:.2} ms; first result after {:.1} s; worker {:.2} ms of processor time, peak memory {:.0} MB; \
         submitter {:.2} ms, {:.0} MB",
        size.cases,
        size.repeat,
        1e3 * wall.as_secs_f64() / count,
        first.map_or(0.0, |at| (at - start).as_secs_f64()),
        worker.cpu_ms / count,
        worker.memory_mb,
        submitter.cpu_ms / count,
        submitter.memory_mb,
    )
}
