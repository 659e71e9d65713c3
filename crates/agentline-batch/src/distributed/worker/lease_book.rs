//! The leases of a worker, and the deadline at which the supervisors of its agents kill them.

use crate::distributed::spec::RunningJob;
use agentline::Agentline;
use agentline::supervisor::KillDeadline;
use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The leases that a worker holds.
///
/// The earliest deadline is in a file that the supervisors of all agents read. If this process is stopped, it extends no
/// deadline, and the supervisors kill the agents. While it is not stopped, it ends the run of a lost lease itself, so that
/// the supervisors do not kill the agents of other runs.
#[derive(Debug)]
pub(in super::super) struct LeaseBook {
    deadline: KillDeadline,
    leases: Mutex<HashMap<String, HeldLease>>,
}

/// A lease that a worker holds, or whose run it is still ending.
#[derive(Debug)]
struct HeldLease {
    deadline: Duration,
    is_lost: bool,
    run: Option<RunningJob>,
}

/// The entry of a job in the book, which ends with it.
#[derive(Debug)]
pub(super) struct BookEntry {
    book: Arc<LeaseBook>,
    job: String,
}

impl BookEntry {
    /// Notes when the work on the job must have ended.
    pub(super) fn extend(&self, deadline: Duration) {
        let mut leases = self.book.leases();
        let lease = HeldLease { deadline, is_lost: false, run: None };
        leases.entry(self.job.clone()).or_insert(lease).deadline = deadline;
        self.book.write(&leases);
    }

    /// Notes that the lease is lost, so that this process ends the run.
    pub(super) fn lose(&self) {
        let mut leases = self.book.leases();
        if let Some(lease) = leases.get_mut(&self.job) {
            lease.is_lost = true;
        }
        self.book.write(&leases);
    }

    /// Notes what the job is.
    pub(super) fn describe(&self, run: RunningJob) {
        if let Some(lease) = self.book.leases().get_mut(&self.job) {
            lease.run = Some(run);
        }
    }
}

impl Drop for BookEntry {
    fn drop(&mut self) {
        let mut leases = self.book.leases();
        leases.remove(&self.job);
        self.book.write(&leases);
    }
}

impl LeaseBook {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self { deadline: KillDeadline::new()?, leases: Mutex::default() })
    }

    /// Makes the agents of an instance subject to the deadline.
    pub(super) fn watch(&self, agentline: Agentline) -> Agentline {
        agentline.kill_deadline(self.deadline.clone())
    }

    /// Returns the deadline.
    pub(super) fn deadline(&self) -> KillDeadline {
        self.deadline.clone()
    }

    fn leases(&self) -> MutexGuard<'_, HashMap<String, HeldLease>> {
        self.leases.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins the entry of a job.
    pub(super) fn enter(self: &Arc<Self>, job: String) -> BookEntry {
        BookEntry { book: Arc::clone(self), job }
    }

    /// Returns the runs in progress.
    pub(super) fn running(&self) -> Vec<RunningJob> {
        let mut runs: Vec<RunningJob> =
            self.leases().values().filter_map(|lease| lease.run.clone()).collect();
        runs.sort_by_key(|run| run.began_ms);
        runs
    }

    fn write(&self, leases: &HashMap<String, HeldLease>) {
        // Without the file, agents end with this process only.
        let _ = self.deadline.set(earliest(leases.values()));
    }
}

/// Returns the earliest deadline of the leases that are not lost, or of the others if all are lost.
fn earliest<'a>(leases: impl Iterator<Item = &'a HeldLease> + Clone) -> Option<Duration> {
    let held = leases.clone().filter(|lease| !lease.is_lost).map(|lease| lease.deadline).min();
    held.or_else(|| leases.map(|lease| lease.deadline).min())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_lease_does_not_end_the_agents_of_others() {
        let book = Arc::new(LeaseBook::new().expect("a file"));
        let seconds = Duration::from_secs;
        let deadline = || earliest(book.leases().values());
        let (lost, held) = (book.enter("lost".into()), book.enter("held".into()));
        lost.extend(seconds(5));
        held.extend(seconds(9));
        assert_eq!(deadline(), Some(seconds(5)));
        lost.lose();
        assert_eq!(deadline(), Some(seconds(9)));
        drop(held);
        assert_eq!(deadline(), Some(seconds(5)), "a stopped process cannot end the run");
        drop(lost);
        assert_eq!(deadline(), None);
    }
}
