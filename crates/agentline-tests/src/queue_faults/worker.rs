//! A worker whose agent is a pause: `queue-worker ADDRESS EXPERIMENT LEASE_MS SLOTS LONGEST_MS LOG`.
//!
//! It uses a queue as a real worker does, and writes what it does to a log. It exits when its standard input ends.

use super::{
    ROUTE, Random,
    log::{DATE_CHANGED, LogEntry},
};
use agentline_queue::{
    Clock, CommitResult, ConnectOptions, JobRoute, Lease, LeaseState, LeaseTimer, Queue, QueueError,
    SystemClock, connect,
};
use std::{
    fs::File,
    io::{Read as _, Write as _},
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// How long a worker waits after an error.
const PAUSE: Duration = Duration::from_millis(50);

/// The settings of a worker.
#[derive(Clone, Debug)]
pub struct QueueWorkerOptions {
    /// The address of the queue.
    pub address: String,
    /// The experiment whose jobs it does.
    pub experiment: String,
    /// How long a lease lasts.
    pub lease: Duration,
    /// How many jobs it does at a time.
    pub slots: usize,
    /// How long the longest job takes.
    pub longest_work: Duration,
}

impl QueueWorkerOptions {
    /// Returns the arguments of the program.
    #[must_use]
    pub fn arguments(&self) -> [String; 5] {
        [
            self.address.clone(),
            self.experiment.clone(),
            self.lease.as_millis().to_string(),
            self.slots.to_string(),
            self.longest_work.as_millis().to_string(),
        ]
    }

    fn parse(arguments: &[String]) -> Option<(Self, &String)> {
        let [address, experiment, lease, slots, longest_work, log] = arguments else { return None };
        let millis = |text: &str| Some(Duration::from_millis(text.parse().ok()?));
        let options = Self {
            address: address.clone(),
            experiment: experiment.clone(),
            lease: millis(lease)?,
            slots: slots.parse().ok()?,
            longest_work: millis(longest_work)?,
        };
        Some((options, log))
    }
}

/// Runs the program.
///
/// # Panics
/// Panics if its arguments are wrong or its log cannot be written.
pub fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (options, log) =
        QueueWorkerOptions::parse(&arguments).expect("ADDRESS EXPERIMENT LEASE_MS SLOTS LONGEST_MS LOG");
    let log = File::options().create(true).append(true).open(log).expect("a log");
    std::thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(0);
    });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(run(options, Arc::new(log)));
}

async fn run(options: QueueWorkerOptions, log: Arc<File>) {
    let queue = loop {
        match connect(&options.address, &ConnectOptions::default()).await {
            Ok(queue) => break queue,
            Err(error) => note(&log, &error),
        }
        tokio::time::sleep(PAUSE).await;
    };
    let mut slots = tokio::task::JoinSet::new();
    slots.spawn(note_dates(log.clone()));
    for number in 0..options.slots {
        let seed = (u64::from(std::process::id()) << 8) + number as u64;
        let slot =
            Slot { queue: queue.clone(), options: options.clone(), log: log.clone(), random: Random(seed) };
        slots.spawn(slot.run());
    }
    slots.join_all().await;
}

/// Writes an error to the log.
fn note(log: &File, error: &QueueError) {
    let _ = { log }.write_all(format!("# {error}\n").as_bytes());
}

/// Writes to the log when the date of this process jumps.
async fn note_dates(log: Arc<File>) {
    let boot = || {
        let date = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        date.as_secs_f64() - SystemClock.now().as_secs_f64()
    };
    let mut known = boot();
    loop {
        let boot = boot();
        if (boot - known).abs() > 1.0 {
            let entry = LogEntry { word: DATE_CHANGED, job: "-".into(), token: 0, at: SystemClock.now() };
            let _ = { &*log }.write_all(format!("{entry}\n").as_bytes());
        }
        known = boot;
        tokio::time::sleep(PAUSE).await;
    }
}

/// A place for one job at a time.
struct Slot {
    queue: Arc<dyn Queue>,
    options: QueueWorkerOptions,
    log: Arc<File>,
    random: Random,
}

impl Slot {
    async fn run(mut self) {
        let (experiment, route) = (self.options.experiment.clone(), ROUTE.to_owned());
        let routes = [JobRoute { experiment, route }];
        loop {
            let requested_at = SystemClock.now();
            match self.queue.claim(&routes, self.options.lease).await {
                Ok(Some(lease)) => self.work(lease, requested_at).await,
                Ok(None) => self.pause(self.queue.wait(Duration::from_secs(1)).await.err()).await,
                Err(error) => self.pause(Some(error)).await,
            }
        }
    }

    async fn pause(&self, error: Option<QueueError>) {
        if let Some(error) = error {
            note(&self.log, &error);
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Does a job: the agent pauses, and the lease is renewed meanwhile.
    async fn work(&mut self, mut lease: Lease, requested_at: Duration) {
        // Renewing a lease may change its token.
        let token = lease.token;
        let write = |word, job: &str| {
            let entry = LogEntry { word, job: job.to_owned(), token, at: SystemClock.now() };
            let _ = { &*self.log }.write_all(format!("{entry}\n").as_bytes());
        };
        write("claimed", &lease.job);
        let mut timer = LeaseTimer::new(self.options.lease, requested_at);
        let longest = u64::try_from(self.options.longest_work.as_millis()).unwrap_or(u64::MAX);
        let ends_at = SystemClock.now() + Duration::from_millis(self.random.below(longest + 1));
        let ending = loop {
            let now = SystemClock.now();
            match timer.state(now) {
                LeaseState::Expired => break Some("abandoned"),
                LeaseState::WaitUntil(_) if now >= ends_at => break None,
                LeaseState::WaitUntil(next) => tokio::time::sleep(next.min(ends_at) - now).await,
                LeaseState::Renew => {
                    let renewed = self.renew(&mut lease, &timer).await;
                    timer.record(now, renewed.is_ok());
                    if matches!(renewed, Err(QueueError::LeaseLost)) {
                        break Some("lost");
                    }
                }
            }
        };
        if let Some(ending) = ending {
            return write(ending, &lease.job);
        }
        write("executed", &lease.job);
        let ending = self.commit(&mut lease, token, &mut timer).await;
        write(ending, &lease.job);
    }

    /// Renews a lease. The request may take as long as the work could continue without it.
    async fn renew(&self, lease: &mut Lease, timer: &LeaseTimer) -> Result<(), QueueError> {
        let left = timer.deadline().saturating_sub(SystemClock.now()).min(self.options.lease / 4);
        let renewed = tokio::time::timeout(left, self.queue.renew(lease, self.options.lease)).await;
        renewed.unwrap_or_else(|_| Err(QueueError::Unavailable("no answer".into())))
    }

    /// Commits a result, and tries again until the lease ends.
    async fn commit(&self, lease: &mut Lease, token: u64, timer: &mut LeaseTimer) -> &'static str {
        let result = format!("{} {token}", lease.job);
        loop {
            let now = SystemClock.now();
            match timer.state(now) {
                LeaseState::Expired => return "abandoned",
                LeaseState::Renew => {
                    // It fails if the commit whose answer was lost has succeeded; the next commit returns that.
                    let renewed = self.renew(lease, timer).await;
                    timer.record(now, renewed.is_ok());
                }
                LeaseState::WaitUntil(_) => {}
            }
            match self.queue.commit(lease, result.as_bytes()).await {
                Ok(CommitResult::Committed) => return "committed",
                Ok(CommitResult::Duplicate) => return "duplicate",
                Err(QueueError::LeaseLost) => return "lost",
                Err(error) => self.pause(Some(error)).await,
            }
        }
    }
}
