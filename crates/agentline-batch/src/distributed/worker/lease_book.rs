//! The leases of a worker, and the deadline at which the supervisors of its agents kill them.

use crate::distributed::spec::RunningJob;
use agentline::Agentline;
use agentline::supervisor::KillDeadline;
use std::collections::HashMap;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The leases that a worker holds.
///
/// The earliest deadline is in a file that the supervisors of all agents read. If this process is stopped, it extends no
/// deadline, and the supervisors kill the agents.
#[derive(Debug)]
pub(in super::super) struct LeaseBook {
    deadline: KillDeadline,
    leases: Mutex<HashMap<String, (Duration, Option<RunningJob>)>>,
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

    fn leases(&self) -> MutexGuard<'_, HashMap<String, (Duration, Option<RunningJob>)>> {
        self.leases.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes when the work on a job must have ended.
    pub(super) fn extend(&self, job: &str, deadline: Duration) {
        let mut leases = self.leases();
        leases.entry(job.to_owned()).or_insert((deadline, None)).0 = deadline;
        self.write(&leases);
    }

    /// Notes what a job is.
    pub(super) fn describe(&self, job: &str, run: RunningJob) {
        if let Some(lease) = self.leases().get_mut(job) {
            lease.1 = Some(run);
        }
    }

    /// Forgets a job.
    pub(super) fn end(&self, job: &str) {
        let mut leases = self.leases();
        leases.remove(job);
        self.write(&leases);
    }

    /// Returns the runs in progress.
    pub(super) fn running(&self) -> Vec<RunningJob> {
        let mut runs: Vec<RunningJob> = self.leases().values().filter_map(|(_, run)| run.clone()).collect();
        runs.sort_by_key(|run| run.began_ms);
        runs
    }

    fn write(&self, leases: &HashMap<String, (Duration, Option<RunningJob>)>) {
        let earliest = leases.values().map(|(deadline, _)| *deadline).min();
        // Without the file, agents end with this process only.
        let _ = self.deadline.set(earliest);
    }
}
