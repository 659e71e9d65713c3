//! Measures the detection of changed files: a scan before and a scan after, in workspaces of two sizes.

use crate::median;
use agentline::internals::snapshot::{Snapshot, SnapshotOptions};
use std::time::Instant;

const ROUNDS: usize = 5;

pub(crate) fn run() {
    println!("{:<10} {:>12} {:>12} {:>12}", "files", "before ms", "after ms", "compare ms");
    for files in [10_000_usize, 100_000] {
        let dir = tempfile::tempdir().expect("a temporary folder");
        for i in 0..files {
            // Twenty files per directory and twenty subdirectories per directory, similar to a repository.
            let parent = dir.path().join(format!("d{}/e{}", i / 400, i / 20));
            if i % 20 == 0 {
                std::fs::create_dir_all(&parent).expect("a folder");
            }
            std::fs::write(parent.join(format!("f{i}.txt")), "some text\n").expect("a file");
        }
        let options = SnapshotOptions::default();
        let mut rows = [Vec::new(), Vec::new(), Vec::new()];
        for _ in 0..ROUNDS {
            let start = Instant::now();
            let before = Snapshot::take(dir.path(), &options);
            rows[0].push(start.elapsed().as_secs_f64() * 1e3);
            let start = Instant::now();
            let after = before.take_again(&options);
            rows[1].push(start.elapsed().as_secs_f64() * 1e3);
            let start = Instant::now();
            let changes = before.compare(&after, &[]);
            rows[2].push(start.elapsed().as_secs_f64() * 1e3);
            assert_eq!((before.file_count(), changes.len()), (files, 0));
        }
        println!(
            "{files:<10} {:>12.1} {:>12.1} {:>12.1}",
            median(&rows[0]),
            median(&rows[1]),
            median(&rows[2])
        );
    }
}
