//! A handle to a live agent process: runs are submitted through it, and the process ends when the handle is dropped.

use crate::run::prepare::{PreparedProcess, PreparedRun};
use crate::{
    agentline::Inner,
    process::SpawnError,
    resolve::integrity::Integrity,
    run::{
        Launched, Run,
        active_run::{CompletionTiming, Submission, UnavailableReason, refuse},
        channel::{RunReceiver, Wakeup, channel},
        client_port::ClientPort,
        driver::driver,
        session_follower::AgentHome,
        spawned_process::ProcessLoad,
    },
};
use agentline_core::Redactor;
use std::{sync::Arc, time::Instant};
use tokio::{
    sync::{mpsc::UnboundedSender, watch},
    task::JoinHandle,
};

/// A handle to a live agent process. Dropping it retires the process, which exits when its runs have ended.
#[derive(Debug)]
pub(crate) struct ProcessHandle {
    submissions: UnboundedSender<Submission>,
    wakeup: Wakeup,
    state: watch::Receiver<ProcessLoad>,
    unavailable: UnavailableReason,
    task: JoinHandle<()>,
    launched: Launched,
    redactor: Redactor,
    /// The home directory that the agent sees.
    pub(crate) agent_home: Arc<AgentHome>,
    /// The state of the files that enforce the policy.
    integrity: Arc<Integrity>,
    /// The process id of the agent.
    pub(crate) pid: Option<u32>,
}

impl ProcessHandle {
    /// Starts a process. `mark` identifies everything that it starts.
    pub(crate) fn start(
        inner: &Inner,
        start: PreparedProcess,
        mark: &str,
        started_at: Instant,
    ) -> Result<Self, SpawnError> {
        Self::start_by(Wakeup::default(), inner, start, mark, started_at)
    }

    /// Starts a process like [`start`](Self::start), for an agent with a client.
    pub(crate) fn start_for_client(
        client: ClientPort,
        inner: &Inner,
        start: PreparedProcess,
        mark: &str,
        started_at: Instant,
    ) -> Result<Self, SpawnError> {
        Self::launch(Some(client), Wakeup::default(), inner, start, mark, started_at)
    }

    /// Starts a process like [`start`](Self::start), for a run that already has its channel.
    pub(crate) fn start_by(
        wakeup: Wakeup,
        inner: &Inner,
        start: PreparedProcess,
        mark: &str,
        started_at: Instant,
    ) -> Result<Self, SpawnError> {
        Self::launch(None, wakeup, inner, start, mark, started_at)
    }

    fn launch(
        client: Option<ClientPort>,
        wakeup: Wakeup,
        inner: &Inner,
        start: PreparedProcess,
        mark: &str,
        started_at: Instant,
    ) -> Result<Self, SpawnError> {
        let (submissions, receiver) = tokio::sync::mpsc::unbounded_channel();
        let redactor = Redactor::new(&start.process.secrets);
        let launched = Launched::of(&start.process, &redactor);
        let agent_home = AgentHome::new(&start.process);
        let mut live = inner.spawn_process(start, mark, receiver, Wakeup::clone(&wakeup), started_at)?;
        live.client = client;
        let state = live.state.subscribe();
        let (pid, unavailable) = (live.process.pid(), UnavailableReason::clone(&live.unavailable));
        crate::trace::spawned(mark, pid, live.process.is_supervised());
        let integrity = Arc::clone(&live.integrity);
        Ok(Self {
            submissions,
            wakeup,
            state,
            unavailable,
            task: tokio::spawn(driver(live)),
            launched,
            redactor,
            agent_home,
            integrity,
            pid,
        })
    }

    /// Submits a run. If the process has exited in the meantime, the outcome reports it.
    pub(crate) fn run(&self, prepared_run: PreparedRun, completion: CompletionTiming) -> Run {
        let run_id = prepared_run.spec.info.run_id.clone();
        Run::new(run_id, self.submit(prepared_run, completion), self.launched.clone())
            .redacted(self.redactor.clone())
    }

    /// Submits a run like [`run`](Self::run), for callers that handle its events themselves.
    pub(crate) fn submit(&self, prepared_run: PreparedRun, completion: CompletionTiming) -> RunReceiver {
        let (sender, receiver) = channel(Wakeup::clone(&self.wakeup));
        self.take(prepared_run.into_submission(sender, completion));
        receiver
    }

    /// Submits a run whose channel already wakes this process's loop.
    pub(crate) fn take(&self, submission: Submission) {
        if let Err(unsent) = self.submissions.send(submission) {
            refuse(unsent.0, self.unavailable.get());
        }
    }

    /// Returns whether all files that enforce the policy are intact. Blocks briefly.
    pub(crate) fn is_intact(&self) -> bool {
        self.integrity.change().is_none()
    }

    /// Returns the redactor for the secrets of the process.
    pub(crate) fn redactor(&self) -> &Redactor {
        &self.redactor
    }

    /// Returns the current state of the process.
    pub(crate) fn state(&self) -> ProcessLoad {
        self.state.borrow().clone()
    }

    /// Returns a receiver of the state, which is updated until the loop ends.
    pub(crate) fn watch(&self) -> watch::Receiver<ProcessLoad> {
        self.state.clone()
    }

    /// Waits until the state matches or the process is closed, and returns the state.
    pub(crate) async fn wait_for(&self, mut so: impl FnMut(&ProcessLoad) -> bool) -> ProcessLoad {
        let mut state = self.state.clone();
        match state.wait_for(|now| now.closed || so(now)).await {
            Ok(now) => now.clone(),
            Err(_) => ProcessLoad { closed: true, ..ProcessLoad::default() },
        }
    }

    /// Retires the process and waits until it has exited.
    pub(crate) async fn close(self) {
        let Self { submissions, task, .. } = self;
        drop(submissions);
        // A loop that panicked has ended its process.
        let _ = task.await;
    }
}
