//! Measures what a snapshot of 10,000 and of 100,000 files costs: `cargo run --release -p agentline --example snapshot_cost`.
#![expect(clippy::print_stdout, reason = "a measurement prints its result")]

use std::fs;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use agentline::snapshot::{Snapshot, SnapshotOptions};

const ROUNDS: usize = 5;

fn main() -> io::Result<()> {
    println!("  files  take ms  again ms  compare ms  snapshot KiB  peak MiB");
    for files in [20, 400, 10_000, 100_000] {
        let workspace = tempfile::tempdir()?;
        fill(workspace.path(), files)?;
        // Files that were written a moment ago are read as well; a workspace is at rest when a run begins.
        std::thread::sleep(Duration::from_millis(300));
        let options = SnapshotOptions::default();
        let (mut takes, mut agains, mut compares, mut memory) = (Vec::new(), Vec::new(), Vec::new(), 0);
        for round in 0..ROUNDS {
            let before = timed(&mut takes, || Snapshot::take(workspace.path(), &options));
            fs::write(workspace.path().join("changed.txt"), format!("round {round}\n"))?;
            let after = timed(&mut agains, || before.take_again(&options));
            let changes = timed(&mut compares, || before.compare(&after, &[]));
            assert_eq!((changes.len(), after.truncated()), (1, false), "one file changed");
            memory = before.memory();
        }
        let (take, again, compare) = (median(takes), median(agains), median(compares));
        let (kib, peak) = (memory / 1024, peak_memory());
        println!("{files:>7} {take:>8.1} {again:>9.1} {compare:>11.2} {kib:>13} {peak:>9}");
    }
    Ok(())
}

/// Spreads small files over folders of different depth, twenty to a folder, with ignore files in some.
fn fill(root: &Path, files: usize) -> io::Result<()> {
    for folder in 0..files.div_ceil(20) {
        let mut path = root.join(format!("area-{:02}", folder % 16));
        for level in 0..folder % 5 {
            path.push(format!("level-{level}-{}", folder % 40));
        }
        path.push(format!("folder-{folder}"));
        fs::create_dir_all(&path)?;
        if folder % 50 == 0 {
            fs::write(path.join(".gitignore"), "*.log\n/build/\n!keep.log\n")?;
        }
        for file in folder * 20..((folder + 1) * 20).min(files) {
            fs::write(path.join(format!("source_file_{file}.rs")), format!("fn number_{file}() {{}}\n"))?;
        }
    }
    fs::write(root.join(".gitignore"), "target/\nnode_modules/\n*.tmp\n")
}

fn timed<T>(times: &mut Vec<f64>, work: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let result = work();
    times.push(start.elapsed().as_secs_f64() * 1000.0);
    result
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

/// The most memory that this process has used so far, in MiB, where the system tells.
fn peak_memory() -> String {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB"));
    peak.and_then(|kib| kib.parse::<u64>().ok()).map_or("?".into(), |kib| (kib / 1024).to_string())
}
