//! Does the jobs of a queue while workers are killed and stopped, the server is killed, connections are disturbed and
//! the date jumps, and counts what became of the jobs.

mod log;
mod proxy;
mod report;
pub mod worker;
mod workers;

use crate::engines::{Engine, EngineKind};
use agentline_queue::{Clock as _, Cursor, Job, Queue, QueueError, SystemClock};
use log::{Claim, Logs};
pub use proxy::{Disturbance, Proxy};
pub use report::FaultReport;
use std::{
    collections::HashMap,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};
use workers::Workers;

/// The route of all jobs.
pub const ROUTE: &str = "pause";
/// The experiment of all jobs.
const EXPERIMENT: &str = "faults";

/// Numbers that look random, and are the same for the same seed (SplitMix64).
#[derive(Clone, Copy, Debug)]
pub struct Random(pub u64);

impl Random {
    /// Returns a number below a limit.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut value = self.0;
        value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (value ^ (value >> 31)) % limit.max(1)
    }
}

/// Something that goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// SIGKILL to a worker, which another one replaces.
    Kill,
    /// SIGSTOP to a worker, for twice the lease.
    Stop,
    /// SIGKILL to the server, which starts again with its data.
    Restart,
    /// A disturbance between a worker and the server.
    Cut,
    /// A change of the date that a worker and the server of PostgreSQL see.
    ClockJump,
}

/// The size of a test with faults.
#[derive(Clone, Debug)]
pub struct FaultPlan {
    /// The number of jobs.
    pub jobs: usize,
    /// The number of workers.
    pub workers: usize,
    /// The number of jobs that a worker does at a time.
    pub slots: usize,
    /// How long a lease lasts.
    pub lease: Duration,
    /// How long the longest job takes.
    pub longest_work: Duration,
    /// The longest time between two faults.
    pub longest_pause: Duration,
    /// Determines the faults and their times.
    pub seed: u64,
    /// How long all of it may take.
    pub limit: Duration,
}

/// Runs a plan on an engine; `None` if the engine may be skipped.
///
/// # Panics
/// Panics if not all jobs have results within the limit, or if the queue refuses a request.
pub async fn run_with_faults(kind: EngineKind, program: &Path, plan: &FaultPlan) -> Option<FaultReport> {
    let mut workers = Workers::new(program, plan);
    let mut engine = Engine::start_with_date(kind, workers.date().cloned()).await?;
    let queue = engine.connect().await;
    enqueue(&*queue, plan.jobs).await;
    for number in 0..plan.workers {
        workers.start(number, &engine).await;
    }
    let mut report = FaultReport { jobs: plan.jobs, ..FaultReport::default() };
    let start = Instant::now();
    let mut reader = ResultReader::new(queue.clone());
    let mut faults = Faults::new(&engine, &workers, plan.seed);
    let mut next_fault = start + faults.pause(plan);
    while reader.results.len() < plan.jobs {
        reader.read().await;
        assert!(start.elapsed() < plan.limit, "{kind:?}: {} results of {report:?}", reader.results.len());
        if Instant::now() >= next_fault {
            faults.cause(plan, &mut engine, &mut workers, &mut report).await;
            next_fault = Instant::now() + faults.pause(plan);
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    report.time = start.elapsed();
    report.longest_stall = reader.longest_stall;
    workers.settle().await;
    reader.read().await;
    report.results = reader.results.len();
    report.worker_memory_kb = workers.kill_all();
    report.longest_outage = faults.outages.iter().map(|(from, to)| *to - *from).max().unwrap_or_default();
    workers.summarize(&reader.results, &faults.outages, &mut report);
    let counts = queue.counts(EXPERIMENT).await.expect("counts");
    report.lost = plan.jobs.saturating_sub(usize::try_from(counts.finished).unwrap_or(usize::MAX));
    Some(report)
}

async fn enqueue(queue: &dyn Queue, count: usize) {
    let job = |number: usize| Job {
        id: format!("job-{number:06}"),
        route: ROUTE.into(),
        payload: format!("{{\"prompt\": \"do number {number}\"}}").into_bytes(),
    };
    let jobs: Vec<Job> = (0..count).map(job).collect();
    for chunk in jobs.chunks(1_000) {
        let new = queue.enqueue(EXPERIMENT, chunk).await.expect("new jobs");
        assert_eq!(new, chunk.len() as u64);
    }
}

/// Reads results as a submitter does, also while the server starts again.
struct ResultReader {
    queue: Arc<dyn Queue>,
    cursor: Cursor,
    results: HashMap<String, Vec<u8>>,
    /// When there was a new result.
    last_new: Instant,
    /// The longest time without a new result.
    longest_stall: Duration,
}

impl ResultReader {
    fn new(queue: Arc<dyn Queue>) -> Self {
        Self {
            queue,
            cursor: Cursor::default(),
            results: HashMap::new(),
            last_new: Instant::now(),
            longest_stall: Duration::ZERO,
        }
    }

    /// Reads all results that are there. Each must appear once.
    async fn read(&mut self) {
        loop {
            let page = match self.queue.results(EXPERIMENT, &self.cursor, 1_000).await {
                Ok(page) => page,
                Err(QueueError::Unavailable(_)) => return,
                Err(error) => panic!("{error}"),
            };
            if page.results.is_empty() {
                return;
            }
            self.longest_stall = self.longest_stall.max(self.last_new.elapsed());
            self.last_new = Instant::now();
            for result in page.results {
                let earlier = self.results.insert(result.job.clone(), result.result);
                assert_eq!(earlier, None, "{} has two results", result.job);
            }
            self.cursor = page.next;
        }
    }
}

/// Chooses faults.
struct Faults {
    random: Random,
    kinds: Vec<Fault>,
    /// Every kind happens once before one is repeated.
    next: Vec<Fault>,
    /// When there was no server.
    outages: Vec<Outage>,
}

impl Faults {
    fn new(engine: &Engine, workers: &Workers, seed: u64) -> Self {
        let mut kinds = vec![Fault::Kill, Fault::Stop];
        if engine.port().is_some() {
            kinds.extend([Fault::Restart, Fault::Cut]);
        }
        if workers.date().is_some() {
            kinds.push(Fault::ClockJump);
        }
        Self { random: Random(seed), kinds, next: Vec::new(), outages: Vec::new() }
    }

    fn pause(&mut self, plan: &FaultPlan) -> Duration {
        let longest = u64::try_from(plan.longest_pause.as_millis()).unwrap_or(u64::MAX);
        Duration::from_millis(longest / 4 + self.random.below(longest * 3 / 4))
    }

    async fn cause(
        &mut self,
        plan: &FaultPlan,
        engine: &mut Engine,
        workers: &mut Workers,
        report: &mut FaultReport,
    ) {
        if self.next.is_empty() {
            self.next.clone_from(&self.kinds);
        }
        let index = self.random.below(self.next.len() as u64);
        let fault = self.next.swap_remove(usize::try_from(index).unwrap_or(0));
        // Two workers at least are neither stopped nor cut off.
        let number = workers.pick(&mut self.random);
        match (fault, number) {
            (Fault::Kill, Some(number)) => {
                workers.kill(number);
                workers.start(number, engine).await;
                report.kills += 1;
            }
            // A worker that is stopped while it writes keeps the file of SQLite locked, so that no worker can claim anything
            // until it continues. Others would add to that time.
            (Fault::Stop, Some(_)) if engine.port().is_none() && workers.was_stopped_since(plan.lease) => {}
            (Fault::Stop, Some(number)) => {
                workers.stop(number);
                report.stops += 1;
            }
            (Fault::Cut, Some(number)) => {
                workers.cut(number, &mut self.random);
                report.cuts += 1;
            }
            (Fault::ClockJump, _) => workers.change_date(&mut self.random),
            (Fault::Restart, _) => {
                let from = now();
                engine.kill_and_restart().await;
                self.outages.push((from, now()));
                report.restarts += 1;
            }
            (_, None) => {}
        }
    }
}

/// Returns the time of the machine, as in the logs.
fn now() -> Duration {
    SystemClock.now()
}

/// The time from the end of a server until it accepts connections again.
type Outage = (Duration, Duration);

/// Returns how long there was no server between two moments.
fn outage_between(outages: &[Outage], from: Duration, to: Duration) -> Duration {
    let within = |outage: &Outage| outage.1.min(to).saturating_sub(outage.0.max(from));
    outages.iter().map(within).sum()
}

/// Notes when others claimed the jobs that a worker had when it was killed or stopped.
fn add_reclaims(
    logs: &Logs,
    had: &HashMap<String, Claim>,
    ended_at: Duration,
    results: &HashMap<String, Vec<u8>>,
    outages: &[Outage],
    report: &mut FaultReport,
) {
    for (job, claim) in had {
        match logs.next_claim(job, *claim) {
            Some(next) => {
                // The lease may have ended before.
                let time = next.at.saturating_sub(ended_at) - outage_between(outages, ended_at, next.at);
                report.reclaims += 1;
                report.slowest_reclaim = report.slowest_reclaim.max(time);
            }
            None => {
                let own = format!("{job} {}", claim.token).into_bytes();
                report.unexplained += usize::from(results.get(job) != Some(&own));
            }
        }
    }
}
