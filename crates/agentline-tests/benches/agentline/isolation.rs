//! Measures isolated workspaces of 10,000 files: an overlay, a copy and a Git worktree side by side, and what an overlay
//! adds to a warm run of an experiment.

use crate::{median, transport::CHILD};
use agentline::isolate::{OverlayRoot, WorkspaceCopy, enter_namespace, fits_overlay, git, worktree};
use agentline_tests::FakeStage;
use serde_json::{Value, json};
use std::{
    ffi::OsStr,
    fs,
    path::Path,
    process::{Command, Stdio},
    time::Instant,
};

/// The name of the child process, which has its own mount namespace.
pub(crate) const NAME: &str = "isolation";

const AGENTLINE: &str = env!("CARGO_BIN_EXE_agentline-under-test");
const FILES: usize = 10_000;
const ROUNDS: usize = 10;
/// The number of runs of the shorter and the longer experiment. The difference is the cost without the start.
const RUNS: [usize; 2] = [5, 45];

pub(crate) fn run() {
    // A program enters its namespace before it has threads.
    let mut child = Command::new(std::env::current_exe().expect("a program"));
    assert!(child.env(CHILD, NAME).status().expect("a child").success());
    warm_runs();
}

/// Creates a template with 10,000 files of 4 KB.
fn write_template(root: &Path) {
    let text = "0123456789abcdef".repeat(256);
    for i in 0..FILES {
        let parent = root.join(format!("d{}/e{}", i / 400, i / 20));
        if i % 20 == 0 {
            fs::create_dir_all(&parent).expect("a directory");
        }
        fs::write(parent.join(format!("f{i}.txt")), format!("{i} {text}")).expect("a file");
    }
}

/// Times and processor times of one way to isolate a workspace.
#[derive(Default)]
struct Costs {
    rows: [Vec<f64>; 3],
    cpu: f64,
}

impl Costs {
    /// Measures one workspace: setting it up, finding the only change in it, and removing it.
    fn measure<T>(
        &mut self,
        set_up: impl FnOnce() -> T,
        changes: impl FnOnce(&mut T) -> usize,
        remove: impl FnOnce(T),
    ) {
        let (start, cpu) = (Instant::now(), cpu_ms());
        let mut workspace = set_up();
        let ready = start.elapsed();
        assert_eq!(changes(&mut workspace), 1);
        let compared = start.elapsed();
        remove(workspace);
        let times = [ready, compared - ready, start.elapsed() - compared];
        for (row, time) in self.rows.iter_mut().zip(times) {
            row.push(1e3 * time.as_secs_f64());
        }
        self.cpu += cpu_ms() - cpu;
    }

    fn print(&self, name: &str) {
        let [ready, compared, removed] = self.rows.each_ref().map(|row| median(row));
        println!(
            "{name:<10} {ready:>10.1} {compared:>14.1} {removed:>10.1} {:>10.1}",
            self.cpu / ROUNDS as f64
        );
    }
}

/// Runs in a process of its own.
pub(crate) fn child() {
    let dir = tempfile::tempdir().expect("a directory");
    if let Err(error) = enter_namespace(dir.path()) {
        return println!("skipped: overlays do not work here: {error}");
    }
    let [template, root, at] = ["template", "root", "at"].map(|name| dir.path().join(name));
    write_template(&template);
    fs::create_dir(&root).expect("a directory");
    let words = |words: &[&str]| {
        let identity = ["-c", "user.name=x", "-c", "user.email=x@localhost"];
        let words: Vec<&OsStr> = identity.iter().chain(words).map(OsStr::new).collect();
        git(&template, &words, &[]).expect("git works");
    };
    // Git would pack the objects in the background while they are copied.
    let no_packing = &["config", "gc.auto", "0"];
    for line in [&["init", "--quiet"][..], no_packing, &["add", "."], &["commit", "--quiet", "-m", "x"]] {
        words(line);
    }
    let start = Instant::now();
    assert!(fits_overlay(&template, &[]).expect("it is readable"));
    let checked = 1e3 * start.elapsed().as_secs_f64();
    let overlays = OverlayRoot::new(&root, &[], std::slice::from_ref(&template)).expect("a namespace");
    let mut place = overlays.place("bench").expect("a place");
    let changed = |root: &Path| fs::write(root.join("d0/e0/f1.txt"), "changed\n").expect("a file");
    let [mut overlay, mut copy, mut tree] = [Costs::default(), Costs::default(), Costs::default()];
    let count = |copy: &WorkspaceCopy| copy.changed_files(u64::MAX).expect("it is readable").len();
    for _ in 0..ROUNDS {
        overlay.measure(
            || {
                place.mount(&template, false).expect("a mount");
                changed(place.workspace());
                place.copy().expect("an overlay")
            },
            |copy| count(copy),
            drop,
        );
        let start = Instant::now();
        place.unmount().expect("it is mounted");
        if let Some(last) = overlay.rows[2].last_mut() {
            *last += 1e3 * start.elapsed().as_secs_f64();
        }
        copy.measure(
            || {
                let copy = WorkspaceCopy::make(&template, &at, &at, &|| false).expect("a copy");
                changed(&at);
                copy
            },
            |copy| count(copy),
            |_| fs::remove_dir_all(&at).expect("a directory"),
        );
        tree.measure(
            || {
                worktree::add(&template, "HEAD", &at).expect("a worktree");
                let tree = WorkspaceCopy::existing(&template, &at);
                changed(&at);
                tree
            },
            |tree| count(tree),
            |_| {
                fs::remove_dir_all(&at).expect("a directory");
                worktree::prune(&template).expect("git works");
            },
        );
    }
    println!("a workspace of {FILES} files of 4 KB, medians of {ROUNDS} interleaved rounds:");
    println!(
        "{:<10} {:>10} {:>14} {:>10} {:>10}",
        "", "set-up ms", "find change ms", "removal ms", "all CPU ms"
    );
    overlay.print("overlay");
    copy.print("copy");
    tree.print("worktree");
    println!("checked once per template that it can be an overlay: {checked:.1} ms");
}

/// Returns the processor time of this process and of the children that have ended, in milliseconds.
fn cpu_ms() -> f64 {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap_or_default().split(' ').collect();
    // Ticks of 10 ms: user and system time, and those of children, are the fields 14 to 17.
    fields.iter().skip(11).take(4).filter_map(|field| field.parse::<f64>().ok()).sum::<f64>() * 10.0
}

/// Measures runs of an experiment on one warm fake agent.
fn warm_runs() {
    let stage = FakeStage::new(env!("CARGO_BIN_EXE_fake-acp"));
    write_template(&stage.path().join("large"));
    fs::create_dir(stage.path().join("small")).expect("a directory");
    fs::write(stage.path().join("small/a.txt"), "a\n").expect("a file");
    println!("a run of an experiment on a warm fake agent that changes one file:");
    for (name, workspace, isolate) in [
        ("without a workspace", None, "copy"),
        ("copy of 1 file", Some("small"), "copy"),
        ("overlay of 1 file", Some("small"), "overlay"),
        ("copy of 10,000 files", Some("large"), "copy"),
        ("overlay of 10,000 files", Some("large"), "overlay"),
    ] {
        let [few, many] = RUNS.map(|runs| experiment(&stage, workspace, isolate, runs));
        let (Some(few), Some(many)) = (few, many) else {
            println!("  {name}: skipped, overlays do not work here");
            continue;
        };
        println!("  {name}: {:.1} ms", (many - few) / (RUNS[1] - RUNS[0]) as f64);
    }
}

/// Runs an experiment and returns its time in milliseconds; `None` if overlays do not work.
fn experiment(stage: &FakeStage, workspace: Option<&str>, isolate: &str, runs: usize) -> Option<f64> {
    let mut suite: Value = json!({
        "defaults": {"quiet_period_ms": 0, "permission_mode": "bypass"},
        "repeat": runs,
        "cases": [{"id": "a", "prompt": "run echo changed > changed.txt\nsay done"}],
    });
    if let Some(workspace) = workspace {
        suite["workspace"] = workspace.into();
    }
    fs::write(stage.path().join("suite.json"), suite.to_string()).expect("a suite");
    let experiment = stage.path().join("experiment");
    let _ = fs::remove_dir_all(&experiment);
    let mut command = Command::new(AGENTLINE);
    command.args([
        "batch",
        "suite.json",
        "--dir",
        "experiment",
        "-j",
        "1",
        "-o",
        "jsonl",
        "--isolate",
        isolate,
    ]);
    command.env_clear().envs(stage.variables()).current_dir(stage.path()).stdin(Stdio::null());
    let start = Instant::now();
    let done = command.output().expect("it runs");
    let time = 1e3 * start.elapsed().as_secs_f64();
    let errors = String::from_utf8_lossy(&done.stderr);
    if errors.contains("overlays do not work here") {
        return None;
    }
    assert!(done.status.success(), "{errors}");
    Some(time)
}
