//! Compares a cold run through agentline with the same agent without it, on the real Gemini CLI with an instant model,
//! interleaved: the bare CLI, the floor (the same flags and variables by hand), and agentline.

use crate::{median, transport::usage};
use agentline::blocking;
use agentline_mock::gemini::{GeminiStep, Script};
use agentline_tests::{MODEL, TestStage, real_gemini};
use std::{fs::File, process::Command, time::Instant};

const ROUNDS: usize = 10;

pub(crate) fn run() {
    let Some(program) = real_gemini() else { return println!("skipped: AGENTLINE_REAL_AGENTS=off") };
    let stage = TestStage::new(Script::always(GeminiStep::text("4")));
    let agentline = stage.agentline();
    let prompt = "What is 2 + 2?";
    let by_hand = |floor: bool| {
        let out = File::create(stage.outside().join("out")).expect("a file");
        let mut command = Command::new(&program.path);
        command.args(&program.args).env_clear().envs(stage.variables()).current_dir(stage.workspace());
        if floor {
            command.args([
                "-o",
                "stream-json",
                "-m",
                MODEL,
                "--skip-trust",
                "--approval-mode",
                "yolo",
                "-e",
                "none",
            ]);
            command.envs([("GEMINI_CLI_NO_RELAUNCH", "1"), ("NO_COLOR", "1")]);
        } else {
            command.args(["-o", "stream-json", "-m", MODEL, "--skip-trust", "--approval-mode", "yolo"]);
        }
        let start = Instant::now();
        let status = command.args(["-p", prompt]).stdin(std::process::Stdio::null()).stdout(out).status();
        assert!(status.expect("it starts").success());
        start.elapsed().as_secs_f64()
    };
    let ours = || {
        let (cpu_before, _) = usage();
        let start = Instant::now();
        let outcome = blocking::run(&agentline, stage.request(prompt), |_, _| {}).expect("a run");
        let wall = start.elapsed().as_secs_f64();
        assert!(outcome.is_done(), "{outcome:?}");
        (wall, usage().0 - cpu_before)
    };
    by_hand(true);
    let (mut bare, mut floor, mut wall, mut cpu) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        bare.push(by_hand(false));
        floor.push(by_hand(true));
        let (w, c) = ours();
        wall.push(w);
        cpu.push(c);
    }
    let ratios = |of: &[f64]| median(&wall.iter().zip(of).map(|(a, b)| a / b).collect::<Vec<_>>());
    println!(
        "medians of {ROUNDS} interleaved rounds, s: bare {:.2}, floor {:.2}, agentline {:.2}",
        median(&bare),
        median(&floor),
        median(&wall)
    );
    println!(
        "agentline / floor {:.3}, agentline / bare {:.3} (medians of the rounds' ratios)",
        ratios(&floor),
        ratios(&bare)
    );
    println!("our own processor time per run, without the supervisor: {:.1} ms (median)", median(&cpu) * 1e3);
}
