//! Measures experiments: ten thousand runs on warm fake agents, experiments that are killed and resumed, and forty
//! prompts on Gemini CLI beside promptfoo's `exec:` provider.

use agentline_mock::gemini::{GeminiModel, GeminiStep};
use agentline_tests::{FakeStage, InstalledPromptfoo, MODEL, TestStage, real_gemini, survivors};
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsString,
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
/// The same on Gemini CLI.
const REAL_KILLS: u64 = 3;
const KILLED_REAL_CASES: usize = 6;
/// The number of prompts on Gemini CLI.
const PROMPTS: usize = 40;
/// How many runs are in progress at a time.
const JOBS: &str = "4";

pub(crate) fn run() {
    many_runs();
    killed_and_resumed();
    killed_and_resumed_on_gemini();
    beside_promptfoo();
}

/// Writes a suite with these prompts, and returns the command that runs it.
fn batch(
    dir: &Path,
    env: &BTreeMap<String, String>,
    prompts: impl Iterator<Item = String>,
    template: Option<&str>,
) -> Command {
    let case = |(n, prompt): (usize, String)| json!({"id": format!("c{n}"), "prompt": prompt});
    let cases: Vec<Value> = prompts.enumerate().map(case).collect();
    // The fake agent sends nothing after its answer.
    let mut suite = json!({"defaults": {"quiet_period_ms": 0}, "cases": cases});
    if let Some(template) = template {
        suite["workspace"] = template.into();
        suite["defaults"]["permission_mode"] = "bypass".into();
    }
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
        batch(stage.path(), &stage.variables(), (0..runs).map(|n| format!("say run {n} is done")), None);
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

/// Kills an experiment on the fake agent at random moments, and resumes it each time.
fn killed_and_resumed() {
    let stage = FakeStage::new(env!("CARGO_BIN_EXE_fake-acp"));
    let experiment = KilledExperiment {
        agent: "the fake agent",
        dir: stage.path(),
        env: &stage.variables(),
        flags: &[],
        cases: KILLED_CASES,
        kills: KILLS,
        delay_ms: 600,
    };
    let resumed = experiment.run(|n| format!("sleep 400\nrun echo {n} >> in.txt\nsay case {n}"));
    println!("{}", resumed.join("\n"));
}

/// The same with fewer cases on Gemini CLI.
fn killed_and_resumed_on_gemini() {
    let Some(gemini) = real_gemini() else { return println!("skipped: AGENTLINE_REAL_AGENTS=off") };
    // The answers take a while, so that a kill finds runs in progress.
    let model = GeminiModel::by_prompt(|request| GeminiStep::text(request.prompt()).delay(1500));
    let stage = TestStage::with_model(model.expect("a free port"));
    let dir = stage.outside();
    let mut env = stage.variables().clone();
    env.insert("GEMINI_CLI_PATH".into(), gemini.path.to_string_lossy().into_owned());
    let experiment = KilledExperiment {
        agent: "Gemini CLI",
        dir: &dir,
        env: &env,
        flags: &["-m", MODEL],
        cases: KILLED_REAL_CASES,
        kills: REAL_KILLS,
        delay_ms: 1000,
    };
    println!("{}", experiment.run(|n| format!("question {n}")).join("\n"));
}

/// An experiment that is killed and resumed.
struct KilledExperiment<'a> {
    agent: &'a str,
    dir: &'a Path,
    env: &'a BTreeMap<String, String>,
    flags: &'a [&'a str],
    cases: usize,
    kills: u64,
    /// The longest time between a result and the kill.
    delay_ms: u64,
}

impl KilledExperiment<'_> {
    fn command(&self, prompt: &dyn Fn(usize) -> String) -> Command {
        let mut command = batch(self.dir, self.env, (0..self.cases).map(prompt), Some("template"));
        fs::create_dir_all(self.dir.join("template")).expect("a directory");
        fs::write(self.dir.join("template/in.txt"), "in\n").expect("a file");
        command.args(self.flags);
        command
    }

    /// Kills and resumes the experiment, and returns what to print.
    fn run(&self, prompt: impl Fn(usize) -> String) -> [String; 2] {
        let mut resumed_ms = Vec::new();
        let mut random = 20_261_118_u64;
        for n in 0..self.kills {
            let start = Instant::now();
            let mut child = self
                .command(&prompt)
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .expect("it starts");
            let mut messages = BufReader::new(child.stderr.take().expect("a pipe")).lines();
            let mut results = BufReader::new(child.stdout.take().expect("a pipe")).lines();
            if n > 0 {
                let line = messages.next().expect("a line").expect("text");
                assert!(line.contains("have a result already"), "{line}");
                let resumed = 1e3 * start.elapsed().as_secs_f64();
                assert!(resumed < 1000.0, "resumed after {resumed:.0} ms");
                resumed_ms.push(resumed);
            }
            // Some kills follow a new result, the others come at any time.
            if n % 10 == 0 {
                results.next().expect("a result").expect("text");
            }
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            std::thread::sleep(Duration::from_millis((random >> 33) % self.delay_ms));
            assert!(child.try_wait().expect("a state").is_none(), "the experiment ended before kill {n}");
            child.kill().expect("it lives");
            child.wait().expect("it ends");
            let killed = Instant::now();
            while let Some(left) = self.left_after_kill() {
                assert!(killed.elapsed() < Duration::from_secs(10), "left over: {left}");
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        let done = self.command(&prompt).output().expect("it runs");
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        let mut report = Command::new(AGENTLINE);
        report.args(["report", "experiment", "-o", "csv"]).current_dir(self.dir);
        let csv = String::from_utf8(report.output().expect("a report").stdout).expect("text");
        let rows: Vec<&str> = csv.lines().skip(1).filter_map(|line| line.split(',').next()).collect();
        let different: BTreeSet<&str> = rows.iter().copied().collect();
        assert_eq!((rows.len(), different.len()), (self.cases, self.cases), "each case is committed once");
        let template = fs::read_to_string(self.dir.join("template/in.txt")).expect("a file");
        assert_eq!((self.left_after_kill(), &*template), (None, "in\n"));
        let left = fs::read_dir(self.dir.join("tmp")).expect("a directory").flatten();
        let left: Vec<_> = left.map(|entry| entry.file_name()).filter(is_workspace).collect();
        assert!(left.is_empty(), "{left:?}");
        resumed_ms.sort_by(f64::total_cmp);
        let (cases, kills) = (self.cases, self.kills);
        [
            format!("an experiment of {cases} cases on {}, killed with SIGKILL {kills} times:", self.agent),
            format!(
                "  every case committed once, no process, mount or workspace left; resumed after {:.0} ms (median), {:.0} ms (maximum)",
                super::median(&resumed_ms),
                resumed_ms.last().copied().unwrap_or(0.0)
            ),
        ]
    }

    /// Returns a process that is left, or a mount in any process.
    fn left_after_kill(&self) -> Option<String> {
        let dir = self.dir.to_string_lossy();
        if let Some(pid) = survivors(&dir).first() {
            return Some(format!("process {pid}"));
        }
        let processes = fs::read_dir("/proc").expect("a directory").flatten();
        let mounts = processes.filter_map(|entry| fs::read_to_string(entry.path().join("mountinfo")).ok());
        let mut lines = mounts.flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>());
        lines.find(|line| line.contains(&*dir))
    }
}

/// Returns whether a name in the temporary directory is that of workspaces.
fn is_workspace(name: &OsString) -> bool {
    name.to_string_lossy().starts_with("agentline-batch-")
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
    let mut command = batch(&dir, &env, (0..PROMPTS).map(|n| format!("question {n}")), None);
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
pub(crate) fn cpu_ms(pid: u32) -> Option<f64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let fields: Vec<&str> = stat.rsplit(") ").next()?.split(' ').collect();
    let ticks = |at: usize| fields.get(at)?.parse::<f64>().ok();
    // Ticks of 10 ms: user and system time are the fields 14 and 15.
    Some((ticks(11)? + ticks(12)?) * 10.0)
}

/// Returns the most memory that a process has had so far.
pub(crate) fn peak_memory_mb(pid: u32) -> Option<f64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().trim_end_matches("kB").trim().parse::<f64>().ok()? / 1024.0)
}
