//! Keeps the lease of a job, in a task of its own, so that no other work of the worker delays it.

use super::WorkerShared;
use super::lease_book::BookEntry;
use crate::distributed::spec::RunningJob;
use agentline_queue::{CommitResult, Lease, LeaseState, LeaseTimer, QueueError};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// The longest pause between two looks at the clock, which also counts while the machine is suspended.
pub(super) const TICK: Duration = Duration::from_millis(250);

/// How long a worker tries to give a job back.
const RELEASE_TIME: Duration = Duration::from_secs(5);

/// The lease of a job.
pub(super) struct LeaseKeeper {
    shared: Arc<WorkerShared>,
    /// The lease as it was renewed last.
    lease: tokio::sync::Mutex<Lease>,
    timer: Mutex<LeaseTimer>,
    entry: BookEntry,
    /// Why the lease is lost.
    lost: OnceLock<String>,
}

impl LeaseKeeper {
    /// Takes a lease that was requested at `requested_at`.
    pub(super) fn new(shared: Arc<WorkerShared>, lease: Lease, requested_at: Duration) -> Self {
        let timer = LeaseTimer::new(shared.options.lease, requested_at);
        let entry = shared.leases.enter(format!("{}.{}", lease.experiment, lease.job));
        let keeper = Self {
            shared,
            lease: tokio::sync::Mutex::new(lease),
            timer: Mutex::new(timer),
            entry,
            lost: OnceLock::new(),
        };
        keeper.extend_entry();
        keeper
    }

    /// Renews the lease until the returned value is dropped. If the lease is lost, calls `end_work`.
    pub(super) fn keep(self: &Arc<Self>, end_work: impl FnOnce() + Send + 'static) -> JoinSet<()> {
        let keeper = Arc::clone(self);
        let mut task = JoinSet::new();
        task.spawn(async move {
            let reason = keeper.renew_until_lost().await;
            let _ = keeper.lost.set(reason);
            // This process is not stopped, so it can end the run itself.
            keeper.entry.lose();
            end_work();
        });
        task
    }

    fn timer(&self) -> LeaseTimer {
        *self.timer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn extend_entry(&self) {
        // The supervisors act a little later than this process would.
        self.entry.extend(self.timer().deadline() + self.shared.options.lease / 15);
    }

    async fn renew_until_lost(&self) -> String {
        loop {
            let now = self.shared.clock.now();
            match self.timer().state(now) {
                LeaseState::WaitUntil(moment) => {
                    tokio::time::sleep(moment.saturating_sub(now).min(TICK)).await;
                }
                LeaseState::Renew => {
                    if let Err(QueueError::LeaseLost) = self.renew(now).await {
                        return "another worker has claimed it".into();
                    }
                    self.extend_entry();
                }
                LeaseState::Expired => return "its claim could not be renewed in time".into(),
            }
        }
    }

    async fn renew(&self, now: Duration) -> Result<(), QueueError> {
        let left = self.timer().deadline().saturating_sub(now);
        let renewed = tokio::time::timeout(left, async {
            let mut lease = self.lease.lock().await;
            let requested_at = self.shared.clock.now();
            (requested_at, self.shared.queue.renew(&mut lease, self.shared.options.lease).await)
        });
        let (requested_at, renewed) =
            renewed.await.unwrap_or_else(|_| (now, Err(QueueError::Unavailable("no answer".into()))));
        let mut timer = self.timer.lock().unwrap_or_else(PoisonError::into_inner);
        timer.record(requested_at, renewed.is_ok());
        renewed
    }

    /// Notes what the job is.
    pub(super) fn describe(&self, run: RunningJob) {
        self.entry.describe(run);
    }

    /// Returns why the claim has ended; `None` while it is valid.
    pub(super) fn lost(&self) -> Option<String> {
        let is_over = || self.timer().state(self.shared.clock.now()) == LeaseState::Expired;
        let reason = self.lost.get().cloned();
        reason.or_else(|| is_over().then(|| "its claim could not be renewed in time".to_owned()))
    }

    /// Commits a result, and tries again while the queue cannot be reached and `may_retry` allows it, which gets the time
    /// since when it could not be reached.
    pub(super) async fn commit(
        &self,
        result: &[u8],
        may_retry: impl Fn(Option<Instant>) -> bool,
    ) -> Result<CommitResult, QueueError> {
        let mut failing_since = None;
        loop {
            if self.lost().is_some() {
                // What the run left may be the work of the supervisors, which have killed its agent.
                return Err(QueueError::LeaseLost);
            }
            // Renewing changes the lease, so it waits meanwhile.
            let lease = self.lease.lock().await;
            match self.shared.queue.commit(&lease, result).await {
                Err(error) if error.is_temporary() && may_retry(failing_since) => {
                    drop(lease);
                    failing_since.get_or_insert_with(Instant::now);
                    tokio::time::sleep(TICK).await;
                }
                committed => return committed,
            }
        }
    }

    /// Gives the job back. A claim that cannot be given back ends by itself.
    pub(super) async fn release(&self) {
        let lease = self.lease.lock().await;
        let _ = tokio::time::timeout(RELEASE_TIME, self.shared.queue.release(&lease)).await;
    }
}
