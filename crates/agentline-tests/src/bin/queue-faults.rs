//! Does many jobs on the real engines while workers, servers and connections fail, and prints what became of the jobs.
//!
//! `queue-faults [--jobs NUMBER] [--lease SECONDS] [--seed NUMBER] [sqlite|nats|postgres|oldest-nats|oldest-postgres]…`:
//! by default, 100,000 jobs with a lease of 2 s on SQLite, NATS and PostgreSQL, one engine after another. It exits with 1
//! if a job was lost, had two results, or was claimed more than 5 s after the lease of a worker that failed.

#[cfg(target_os = "linux")]
fn main() -> std::process::ExitCode {
    use agentline_tests::{
        engines::EngineKind,
        queue_faults::{FaultPlan, FaultReport, run_with_faults},
    };
    use std::{io::Write as _, process::ExitCode, time::Duration};

    let mut plan = FaultPlan {
        jobs: 100_000,
        workers: 4,
        slots: 8,
        lease: Duration::from_secs(2),
        longest_work: Duration::from_millis(20),
        longest_pause: Duration::from_secs(4),
        seed: 1,
        limit: Duration::from_secs(30 * 60),
    };
    let mut kinds = Vec::new();
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut number = || words.next().and_then(|word| word.parse::<u64>().ok()).expect("a number");
        match word.as_str() {
            "--jobs" => plan.jobs = usize::try_from(number()).expect("a number of jobs"),
            "--lease" => plan.lease = Duration::from_secs(number()),
            "--seed" => plan.seed = number(),
            name => kinds.push(EngineKind::from_name(name).expect("the name of an engine")),
        }
    }
    if kinds.is_empty() {
        kinds = vec![EngineKind::Sqlite, EngineKind::Nats, EngineKind::Postgres];
    }
    let program = std::env::current_exe().expect("the path of this program").with_file_name("queue-worker");
    assert!(program.exists(), "build it first: cargo build -p agentline-tests --bins");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let mut code = ExitCode::SUCCESS;
    let _ = writeln!(std::io::stdout(), "{}", FaultReport::header());
    for kind in kinds {
        let Some(report) = runtime.block_on(run_with_faults(kind, &program, &plan)) else { continue };
        let _ = writeln!(std::io::stdout(), "{}", report.row(kind));
        for problem in report.problems(plan.lease) {
            let _ = writeln!(std::io::stderr(), "{}: {problem}", kind.name());
            code = ExitCode::FAILURE;
        }
    }
    code
}

#[cfg(not(target_os = "linux"))]
fn main() {}
