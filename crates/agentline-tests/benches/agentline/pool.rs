//! Compares the warm pool with the bare CLI, a cold run, and the floor: a client of a few lines that checks nothing.
//! All use the real Gemini CLI with an instant model, interleaved. Agentline is in a separate process, so that its
//! processor time and memory are measured alone.

mod child;
mod floor;

use crate::{median, transport::CHILD};
use agentline_core::Program;
use agentline_mock::gemini::{GeminiModel, GeminiStep, Script};
use agentline_tests::{MODEL, TestStage, real_gemini};
use child::Measurement;
use floor::PoolFloor;
use std::{
    ffi::OsStr,
    fs::File,
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{ChildStdin, ChildStdout, Command, Stdio},
    time::Instant,
};

pub(crate) use child::{NAME, main};

/// The number of measurements, unless `AGENTLINE_BENCH_ROUNDS` is set. With 0, only the series of runs is
/// measured, for use with a profiler.
const ROUNDS: usize = 20;
/// A profiler for the agentline process, with its arguments.
const UNDER: &str = "AGENTLINE_BENCH_UNDER";
/// The number of runs for which memory is measured.
const MANY: usize = 200;

pub(crate) fn run() {
    let Some(program) = real_gemini() else { return println!("skipped: AGENTLINE_REAL_AGENTS=off") };
    let rounds = std::env::var("AGENTLINE_BENCH_ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(ROUNDS);
    let slow = Script::always(GeminiStep::text("slow").delay(500));
    let model = GeminiModel::matching([("slowly", slow), ("", Script::always(GeminiStep::text("4")))]);
    let stage = TestStage::with_model(model.expect("a free port"));
    let mut agentline = Agentline::start(&stage, &program.path);
    if rounds > 0 {
        side_by_side(rounds, &stage, &program, &mut agentline);
    }
    let many = if rounds == 0 { MANY } else { rounds.min(20) * MANY / 20 };
    println!("{}", agentline.ask(&format!("many {many}")).summary);
    println!("{}", agentline.ask("lanes").summary);
    println!("{}", agentline.ask(&format!("workspaces {}", rounds.max(10))).summary);
}

/// Measures each variant in turn, for several rounds.
fn side_by_side(rounds: usize, stage: &TestStage, program: &Program, agentline: &mut Agentline) {
    // One process for new sessions and one for prewarmed ones, as in the pool: sessions make an agent slower.
    let (mut floor, mut opened_floor) = (PoolFloor::start(stage, program), PoolFloor::start(stage, program));
    let bare = || {
        let out = File::create(stage.outside().join("out")).expect("a file");
        let mut command = Command::new(&program.path);
        command.args(&program.args).env_clear().envs(stage.variables()).current_dir(stage.workspace());
        command.args(["-m", MODEL, "--skip-trust", "--approval-mode", "yolo", "-p", child::PROMPT]);
        let start = Instant::now();
        command.stdin(Stdio::null()).stdout(out).stderr(Stdio::null());
        assert!(command.status().expect("it starts").success());
        start.elapsed().as_secs_f64()
    };
    let mut walls: [Vec<f64>; 6] = Default::default();
    let (mut cpus, mut floor_cpus) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        walls[0].push(bare());
        walls[1].push(agentline.ask("cold").wall);
        // No variant is measured with cold caches, nor in the first prompt of a process; and the order changes.
        agentline.ask("pool");
        agentline.ask("spare");
        floor.prompt_in_new_session();
        let session = opened_floor.open();
        opened_floor.prompt(&session);
        let session = opened_floor.open();
        for turn in [round, round + 1] {
            if turn % 2 == 0 {
                let pooled = agentline.ask("pool");
                walls[2].push(pooled.wall);
                cpus.push(pooled.cpu * 1e3);
                walls[4].push(agentline.ask("spare").wall);
            } else {
                let before = floor::cpu();
                walls[3].push(floor.prompt_in_new_session());
                floor_cpus.push((floor::cpu() - before) * 1e3);
                walls[5].push(opened_floor.prompt(&session));
            }
        }
    }
    let names = [
        "bare gemini -p",
        "cold agentline run",
        "pool",
        "floor: new session and prompt",
        "pool, session opened in advance",
        "floor, session opened in advance",
    ];
    println!("{rounds} interleaved rounds, ms: median [minimum, maximum]");
    for (name, walls) in names.iter().zip(&walls) {
        let (least, most) = walls.iter().fold((f64::MAX, 0_f64), |(a, b), w| (a.min(*w), b.max(*w)));
        println!("{name:<32} {:>8.1} [{:.1}, {:.1}]", median(walls) * 1e3, least * 1e3, most * 1e3);
    }
    let ratio =
        |a: usize, b: usize| median(&walls[a].iter().zip(&walls[b]).map(|(a, b)| a / b).collect::<Vec<_>>());
    let above = |a: usize, b: usize| {
        median(&walls[a].iter().zip(&walls[b]).map(|(a, b)| a - b).collect::<Vec<_>>()) * 1e3
    };
    println!("bare / pool: {:.1} times (with a session opened in advance: {:.1})", ratio(0, 2), ratio(0, 4));
    println!("pool / floor: {:.3}, {:+.1} ms (medians of the rounds)", ratio(2, 3), above(2, 3));
    println!("the same with sessions opened in advance: {:.3}, {:+.1} ms", ratio(4, 5), above(4, 5));
    let (ours, floors) = (median(&cpus), median(&floor_cpus));
    println!("processor time per prompt: pool {ours:.2} ms, floor {floors:.2} ms (medians)");
}

/// The agentline process.
struct Agentline {
    child: std::process::Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
}

impl Agentline {
    fn start(stage: &TestStage, program: &Path) -> Self {
        let own = std::env::current_exe().expect("this program");
        let under = std::env::var(UNDER).unwrap_or_default();
        let mut args = under.split_whitespace().map(OsStr::new).chain([own.as_os_str()]);
        let mut command = Command::new(args.next().expect("a program"));
        command.args(args);
        command
            .env_clear()
            .envs(stage.variables())
            .env(child::SUPERVISOR, &own)
            .env(CHILD, NAME)
            .env(child::PROGRAM, program);
        command.env(child::WORKSPACE, stage.workspace()).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("a child");
        let stdin = child.stdin.take();
        let stdout = BufReader::new(child.stdout.take().expect("a pipe"));
        Self { child, stdin, stdout }
    }

    fn ask(&mut self, command: &str) -> Measurement {
        let stdin = self.stdin.as_mut().expect("a pipe");
        writeln!(stdin, "{command}").expect("the child listens");
        let mut line = String::new();
        self.stdout.read_line(&mut line).expect("the child answers");
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{command}: {error}: {line}"))
    }
}

impl Drop for Agentline {
    fn drop(&mut self) {
        // It exits when its input ends.
        self.stdin = None;
        let _ = self.child.wait();
    }
}
