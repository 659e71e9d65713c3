//! A client of the server with its runs. When it is gone, its runs end.

use crate::{run_table::AgentRun, scope::CallerScope};
use rmcp::task_manager::TaskManager;
use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// How many runs that are over are kept for each client.
const KEPT_RUNS: usize = 100;
/// How long the end of a client waits for its runs. Their processes are killed long before.
const CLOSING_TIME: Duration = Duration::from_secs(20);

/// A client and its runs. Dropping it stops them.
pub(crate) struct McpClient {
    pub(crate) scope: CallerScope,
    /// The tasks of clients that declare them.
    pub(crate) tasks: TaskManager,
    runs: Mutex<Vec<Arc<AgentRun>>>,
    next: AtomicU32,
    gone: CancellationToken,
}

impl McpClient {
    pub(crate) fn new(scope: CallerScope) -> Arc<Self> {
        Arc::new(Self {
            scope,
            tasks: TaskManager::new(),
            runs: Mutex::default(),
            next: AtomicU32::new(1),
            gone: CancellationToken::new(),
        })
    }

    /// Returns an id for a run. It is short, because models have to repeat it.
    pub(crate) fn next_id(&self) -> String {
        format!("run-{}", self.next.fetch_add(1, Ordering::Relaxed))
    }

    /// Adds a run. Returns whether the client is still there.
    pub(crate) fn add(&self, run: Arc<AgentRun>) -> bool {
        let mut runs = self.runs();
        // Under the lock, so that a run that is added later is not missed by `stop`.
        if self.gone.is_cancelled() {
            return false;
        }
        runs.push(run);
        let over: Vec<usize> =
            (0..runs.len()).filter(|index| runs[*index].view().borrow().is_over()).collect();
        for index in over.iter().rev().skip(KEPT_RUNS) {
            runs.remove(*index);
        }
        true
    }

    /// Returns a run by its id.
    pub(crate) fn find(&self, id: &str) -> Option<Arc<AgentRun>> {
        self.runs().iter().find(|run| run.is_named(id.trim())).cloned()
    }

    /// Returns all runs, oldest first.
    pub(crate) fn all(&self) -> Vec<Arc<AgentRun>> {
        self.runs().clone()
    }

    /// Stops all runs and accepts no more.
    pub(crate) fn stop(&self) {
        let runs = self.runs();
        self.gone.cancel();
        runs.iter().for_each(|run| run.stop());
    }

    /// Stops all runs and waits until they are over.
    pub(crate) async fn close(&self) {
        self.stop();
        let ended = async {
            for run in self.all() {
                run.ended().await;
            }
        };
        // A run that takes longer is ended by its supervisor when this process exits.
        let _ = timeout(CLOSING_TIME, ended).await;
        self.tasks.shutdown();
    }

    fn runs(&self) -> MutexGuard<'_, Vec<Arc<AgentRun>>> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for McpClient {
    fn drop(&mut self) {
        self.stop();
        self.tasks.shutdown();
    }
}
