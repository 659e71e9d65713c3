//! Measures the queues on the real engines: claims and commits beside a client without our code that sends the same
//! requests, in turns, and experiments of different sizes.
//!
//! The numbers of requests per second depend on the disk and on what else the machine does; the ratios do not.
//! `AGENTLINE_BENCH_ENGINES=sqlite,nats` leaves out the other engines.

mod bare;
mod growth;

use agentline_queue::{CommitResult, Cursor, Job, JobRoute, Queue};
use agentline_tests::engines::{Engine, EngineKind};
use bare::BareClient;
pub(crate) use growth::run as run_growth;
use std::{
    fs,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

const KINDS: [EngineKind; 3] = [EngineKind::Sqlite, EngineKind::Nats, EngineKind::Postgres];
/// How often each side has its turn, after one that does not count.
const ROUNDS: usize = 7;
/// The number of jobs of a turn.
const JOBS: usize = 2_000;
/// The numbers of jobs of one experiment.
const SIZES: [usize; 3] = [1_000, 10_000, 100_000];
/// The number of jobs in progress at a time.
const SLOTS: usize = 4;
/// The sizes of a job and of a result, as those of runs without files.
const PAYLOAD: usize = 150;
const RESULT: usize = 1_500;
const ROUTE: &str = "r";
const LEASE: Duration = Duration::from_secs(300);

pub(crate) fn run() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    println!("claim + commit, {SLOTS} at a time, {ROUNDS} turns of {JOBS} jobs each:");
    for kind in kinds() {
        runtime.block_on(compare(kind));
    }
    println!(
        "experiments of different sizes, from the first job to the last result, {SLOTS} jobs at a time:"
    );
    for kind in kinds() {
        for jobs in SIZES {
            runtime.block_on(grow(kind, jobs));
        }
    }
}

/// Returns the engines that are measured.
fn kinds() -> impl Iterator<Item = EngineKind> {
    let named = std::env::var("AGENTLINE_BENCH_ENGINES").unwrap_or_default();
    KINDS.into_iter().filter(move |kind| named.is_empty() || named.split(',').any(|name| name == kind.name()))
}

/// Does an experiment of this size in this process, and prints the time of a job.
async fn grow(kind: EngineKind, jobs: usize) {
    let Some(engine) = Engine::start(kind).await else { return };
    let queue = engine.connect().await;
    // From here on, the most memory is that of this experiment.
    fs::write("/proc/self/clear_refs", "5").expect("another peak");
    let start = Instant::now();
    let experiment = format!("size-{jobs}");
    enqueue(&*queue, &experiment, jobs).await;
    assert_eq!(drain(&queue, &experiment, jobs).await, jobs);
    let (mut cursor, mut results) = (Cursor::default(), 0);
    while results < jobs {
        let page = queue.results(&experiment, &cursor, 100).await.expect("a page");
        results += page.results.len();
        cursor = page.next;
    }
    let time = 1e3 * start.elapsed().as_secs_f64() / jobs as f64;
    let memory_mb = super::batch::peak_memory_mb(std::process::id()).unwrap_or(0.0);
    println!("  {}, {jobs:>6} jobs: {time:.2} ms each, peak memory {memory_mb:.0} MB", kind.name());
}

/// Compares a queue with a bare client.
async fn compare(kind: EngineKind) {
    let Some(engine) = Engine::start(kind).await else { return };
    let queue = engine.connect().await;
    let bare = BareClient::connect(&engine).await;
    let (mut ours, mut theirs, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..=ROUNDS {
        let (mut own_rate, mut bare_rate) = (0.0, 0.0);
        // The side that begins has a smaller store, so the sides take turns with that, too.
        for side in [round % 2, 1 - round % 2] {
            let experiment = format!("round-{round}-{side}");
            enqueue(&*queue, &experiment, JOBS).await;
            let start = Instant::now();
            let done = match side {
                0 => drain(&queue, &experiment, JOBS).await,
                _ => bare.drain(&experiment, SLOTS, JobsLeft::new(JOBS)).await,
            };
            let rate = done as f64 / start.elapsed().as_secs_f64();
            assert_eq!(
                (done, queue.counts(&experiment).await.expect("counts").finished),
                (JOBS, JOBS as u64)
            );
            if side == 0 { own_rate = rate } else { bare_rate = rate }
        }
        if round > 0 {
            ours.push(own_rate);
            theirs.push(bare_rate);
            ratios.push(own_rate / bare_rate);
        }
    }
    println!(
        "  {}: {:.0} per second, bare client {:.0} per second, ratio {:.2} (median of {ROUNDS} turns)",
        kind.name(),
        super::median(&ours),
        super::median(&theirs),
        super::median(&ratios)
    );
}

async fn enqueue(queue: &dyn Queue, experiment: &str, count: usize) {
    let job = |number: usize| Job {
        id: format!("job-{number:06}"),
        route: ROUTE.into(),
        payload: vec![b'p'; PAYLOAD],
    };
    for first in (0..count).step_by(1_000) {
        let jobs: Vec<Job> = (first..count.min(first + 1_000)).map(job).collect();
        queue.enqueue(experiment, &jobs).await.expect("new jobs");
    }
}

/// The number of jobs that are not claimed, so that no job is claimed that does not exist, which may take long.
#[derive(Clone, Debug)]
struct JobsLeft(Arc<AtomicUsize>);

impl JobsLeft {
    fn new(count: usize) -> Self {
        Self(Arc::new(AtomicUsize::new(count)))
    }

    /// Returns whether there is a job for the caller.
    fn take(&self) -> bool {
        let taken = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        taken.is_ok()
    }
}

/// Claims all jobs of an experiment and commits a result for each.
async fn drain(queue: &Arc<dyn Queue>, experiment: &str, jobs: usize) -> usize {
    let mut slots = tokio::task::JoinSet::new();
    let left = JobsLeft::new(jobs);
    for _ in 0..SLOTS {
        let (queue, left) = (queue.clone(), left.clone());
        let routes = [JobRoute { experiment: experiment.to_owned(), route: ROUTE.into() }];
        slots.spawn(async move {
            let mut done = 0;
            let result = [b'r'; RESULT];
            while left.take() {
                let claimed = queue.claim(&routes, LEASE).await.expect("an answer");
                let lease = claimed.expect("a job");
                let committed = queue.commit(&lease, &result).await.expect("an answer");
                assert_eq!(committed, CommitResult::Committed);
                done += 1;
            }
            done
        });
    }
    slots.join_all().await.into_iter().sum()
}
