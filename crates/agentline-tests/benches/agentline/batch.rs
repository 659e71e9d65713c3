//! Measures experiments: ten thousand runs on warm fake agents, an experiment that is killed and resumed, and forty
//! prompts on Gemini CLI beside promptfoo's `exec:` provider.

use agentline_mock::gemini::{GeminiModel, GeminiStep};
use agentline_tests::{FakeStage, InstalledPromptfoo, MODEL, TestStage, real_gemini, survivors};
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::{BufRead as _, BufReader},
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

const AGENTLINE: &str = env!("CARGO_BIN_EXE_agentline-under-test");

/// The number of runs on the fake agent, unless `AGENTLINE_BENCH_RUNS` is set.
const RUNS: usize = 10_000;
/// The number of times an experiment is killed, and of its cases.
const KILLS: u64 = 50;
const KILLED_CASES: usize = 200;
/// The number of prompts on Gemini CLI.
const PROMPTS: usize = 40;
/// How many runs are in progress at a time.
const JOBS: &str = "4";

pub(crate) fn run() {
    many_runs();
    killed_and_resumed();
    beside_promptfoo();
}

/// Writes a suite with these prompts, and returns the command that runs it.
fn batch(dir: &Path, env: &BTreeMap<String, String>, prompts: impl Iterator<Item = String>) -> Command {
    let case = |(n, prompt): (usize, String)| json!({"id": format!("c{n}"), "prompt": prompt});
    let cases: Vec<Value> = prompts.enumerate().map(case).collect();
    // The fake agent sends nothing after its answer.
    let suite = json!({"defaults": {"quiet_period_ms": 0}, "cases": cases});
    fs::write(dir.join("suite.json"), suite.to_string()).expect("a suite");
    let mut command = Command::new(AGENTLINE);
    command.args(["batch", "suite.json", "--dir", "experiment", "-j", JOBS, "-o", "jsonl"]);
    command.env_clear().envs(env).current_dir(dir).stdin(Stdio::null());
    command
}

fn many_runs() {
    let runs = std::env::var("AGENTLINE_BENCH_RUNS").ok().and_then(|n| n.parse().ok()).unwrap_or(RUNS);
    let stage = FakeStage::new(env!("CARGO_BIN_EXE_fake-acp"));
    let mut command =
        batch(stage.path(), &stage.variables(), (0..runs).map(|n| format!("say run {n} is done")));
    let start = Instant::now();
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("it starts");
    let stdout = child.stdout.take().expect("a pipe");
    let reader = std::thread::spawn(move || BufReader::new(stdout).lines().map_while(Result::ok).count());
    // Processor time is read while the processes live; the last reading of each counts.
    let (mut cpu, mut memory_mb) = (BTreeMap::new(), 0.0);
    while !reader.is_finished() {
        for pid in survivors(&stage.mark()).into_iter().filter(|pid| is_ours(*pid)) {
            cpu.extend(cpu_ms(pid).map(|ms| (pid, ms)));
        }
        memory_mb = peak_memory_mb(child.id()).unwrap_or(memory_mb);
        std::thread::sleep(Duration::from_millis(100));
    }
    let wall = start.elapsed().as_secs_f64();
    let lines = reader.join().expect("a number");
    let code = child.wait().expect("it ends").code();
    assert_eq!((lines, code), (runs, Some(0)), "every run passes");
    let all: f64 = cpu.values().sum();
    let own = cpu.get(&child.id()).copied().unwrap_or(0.0);
    let count = runs as f64;
    println!("{runs} runs of an experiment on the fake agent, {JOBS} at a time:");
    println!(
        "  {:.2} ms of our processor time per run ({:.2} of them in helpers), {:.0} runs per second",
        all / count,
        (all - own) / count,
        count / wall
    );
    println!("  peak memory {memory_mb:.0} MB");
}

/// Kills an experiment at random moments, and resumes it each time.
fn killed_and_resumed() {
    let stage = FakeStage::new(env!("CARGO_BIN_EXE_fake-acp"));
    let prompts = || (0..KILLED_CASES).map(|n| format!("sleep 400\nsay case {n}"));
    let mut resumed_ms = Vec::new();
    let mut random = 20_261_118_u64;
    for n in 0..KILLS {
        let mut command = batch(stage.path(), &stage.variables(), prompts());
        let start = Instant::now();
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("it starts");
        let mut lines = BufReader::new(child.stderr.take().expect("a pipe")).lines();
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let mut delay = Duration::from_millis((random >> 33) % 600);
        if n == 0 {
            // Some runs have a result before the first kill.
            delay += Duration::from_secs(2);
        } else {
            let line = lines.next().expect("a line").expect("text");
            assert!(line.contains("have a result already"), "{line}");
            resumed_ms.push(1e3 * start.elapsed().as_secs_f64());
        }
        std::thread::sleep(delay);
        assert!(child.try_wait().expect("a state").is_none(), "the experiment ended before kill {n}");
        child.kill().expect("it lives");
        child.wait().expect("it ends");
        let killed = Instant::now();
        while !stage.living().is_empty() {
            assert!(killed.elapsed() < Duration::from_secs(10), "left over: {:?}", stage.living());
            std::thread::sleep(Duration::from_millis(5));
        }
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        assert!(!mounts.contains(&*stage.path().to_string_lossy()), "{mounts}");
    }
    let done = batch(stage.path(), &stage.variables(), prompts()).output().expect("it runs");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let mut report = Command::new(AGENTLINE);
    report.args(["report", "experiment", "-o", "csv"]).current_dir(stage.path());
    let csv = String::from_utf8(report.output().expect("a report").stdout).expect("text");
    let rows: Vec<&str> = csv.lines().skip(1).filter_map(|line| line.split(',').next()).collect();
    let different: BTreeSet<&str> = rows.iter().copied().collect();
    assert_eq!((rows.len(), different.len()), (KILLED_CASES, KILLED_CASES), "each case is committed once");
    let left = fs::read_dir(stage.path().join("tmp")).expect("a directory");
    let left: Vec<_> =
        left.flatten().filter(|entry| entry.file_name().to_string_lossy().contains("batch")).collect();
    assert!(left.is_empty(), "{left:?}");
    resumed_ms.sort_by(f64::total_cmp);
    println!("an experiment of {KILLED_CASES} cases, killed with SIGKILL {KILLS} times:");
    println!(
        "  every case committed once, no process, mount or workspace left; resumed after {:.0} ms (median), {:.0} ms (maximum)",
        super::median(&resumed_ms),
        resumed_ms.last().copied().unwrap_or(0.0)
    );
}

fn beside_promptfoo() {
    let Some(gemini) = real_gemini() else { return println!("skipped: AGENTLINE_REAL_AGENTS=off") };
    let Some(promptfoo) = InstalledPromptfoo::find(AGENTLINE) else { return };
    let model = GeminiModel::by_prompt(|request| {
        let prompt = request.prompt();
        GeminiStep::text(format!("answer {}", prompt.split_whitespace().last().unwrap_or_default()))
    });
    let stage = TestStage::with_model(model.expect("a free port"));
    let dir = stage.outside();
    let mut env = stage.variables().clone();
    env.insert("GEMINI_CLI_PATH".into(), gemini.path.to_string_lossy().into_owned());
    let mut command = batch(&dir, &env, (0..PROMPTS).map(|n| format!("question {n}")));
    command.args(["-m", MODEL]);
    let start = Instant::now();
    let done = command.output().expect("it runs");
    let ours = start.elapsed().as_secs_f64();
    let text = String::from_utf8_lossy(&done.stdout);
    assert!(done.status.success(), "{text}{}", String::from_utf8_lossy(&done.stderr));
    for line in text.lines() {
        let line: Value = serde_json::from_str(line).expect("JSON");
        let case = line["case"].as_str().unwrap_or_default().trim_start_matches('c');
        assert_eq!(line["outcome"]["text"], format!("answer {case}"), "{line:#}");
    }
    let script = dir.join("gemini.sh");
    let call = format!("exec '{}' -m {MODEL} --skip-trust -p \"$1\"", gemini.path.display());
    fs::write(&script, format!("#!/bin/sh\n{call}\n")).expect("a script");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("a program");
    let tests: Vec<Value> = (0..PROMPTS).map(|n| json!({"vars": {"say": format!("question {n}")}})).collect();
    let config =
        json!({"providers": [format!("exec: {}", script.display())], "prompts": ["{{say}}"], "tests": tests});
    let start = Instant::now();
    let evaluated = promptfoo.eval(&stage, &config, &["-j", JOBS, "--no-cache"]);
    let theirs = start.elapsed().as_secs_f64();
    assert_eq!(evaluated.results.len(), PROMPTS, "{}", evaluated.output);
    println!(
        "{PROMPTS} prompts on Gemini CLI, {JOBS} at a time, from start to end (the model answers at once):"
    );
    println!("  agentline batch {ours:.1} s, promptfoo with exec: {theirs:.1} s, ratio {:.1}", theirs / ours);
}

/// Returns whether a process runs this program, and not an agent.
fn is_ours(pid: u32) -> bool {
    fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe == Path::new(AGENTLINE))
}

/// Returns the processor time of a process without its children, in milliseconds.
fn cpu_ms(pid: u32) -> Option<f64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let fields: Vec<&str> = stat.rsplit(") ").next()?.split(' ').collect();
    let ticks = |at: usize| fields.get(at)?.parse::<f64>().ok();
    // Ticks of 10 ms: user and system time are the fields 14 and 15.
    Some((ticks(11)? + ticks(12)?) * 10.0)
}

fn peak_memory_mb(pid: u32) -> Option<f64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().trim_end_matches("kB").trim().parse::<f64>().ok()? / 1024.0)
}
