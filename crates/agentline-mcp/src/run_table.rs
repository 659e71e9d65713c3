//! One run of a client, from the call that starts it to its outcome.

use crate::{
    budget::ReservedCost,
    progress::ProgressSummary,
    question::QuestionBoard,
    request::CheckedStart,
    run_cost::{of_outcome, report_limit, so_far},
    scope::CallerScope,
};
use agentline::{Event, Outcome, Run, RunOptions, Verdict, prices::PriceTable};
use agentline_core::error_chain;
use std::{
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio_util::sync::{CancellationToken, DropGuard};

/// The maximum length of the beginning of a prompt in lists, in characters.
const LONGEST_TITLE: usize = 80;
/// How many inner servers of one run are connected at the same time.
const INNER_CONNECTIONS: usize = 16;

/// A run of a client.
#[derive(Debug)]
pub(crate) struct AgentRun {
    /// The id for the client.
    pub(crate) id: String,
    pub(crate) agent: String,
    pub(crate) workspace: PathBuf,
    /// The beginning of the prompt.
    pub(crate) title: String,
    /// The time limit of the run.
    pub(crate) timeout: Duration,
    /// What the agent of this run may start.
    pub(crate) scope: CallerScope,
    /// The permission requests for the client, if it can be asked.
    pub(crate) board: Option<Arc<QuestionBoard>>,
    /// The connections of inner servers of this run. One run must not take the places of the others.
    pub(crate) inner: Semaphore,
    started: Instant,
    view: watch::Sender<RunView>,
    stop: CancellationToken,
    ended: CancellationToken,
}

/// The state of a run.
#[derive(Clone, Debug)]
pub(crate) struct RunView {
    pub(crate) phase: RunPhase,
    pub(crate) progress: ProgressSummary,
}

/// The phase of a run.
#[derive(Clone, Debug)]
pub(crate) enum RunPhase {
    Starting,
    Running,
    Over(Arc<Outcome>),
    /// The run could not start, for this reason.
    Refused(Arc<str>),
}

impl RunView {
    /// Returns whether nothing more happens.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self.phase, RunPhase::Over(_) | RunPhase::Refused(_))
    }
}

/// What a run holds until it is over.
pub(crate) struct RunResources {
    pub(crate) reserved: ReservedCost,
    pub(crate) slot: OwnedSemaphorePermit,
}

/// What is known about the end of a run.
#[derive(Default)]
struct RunEnd {
    outcome: Option<Box<Outcome>>,
    is_cancelled: bool,
    /// Whether the run was stopped because its agent spent what the runs that it started may need.
    is_over_budget: bool,
}

impl AgentRun {
    /// Creates a run that has not started.
    pub(crate) fn new(
        id: String,
        start: &CheckedStart,
        scope: CallerScope,
        board: Option<Arc<QuestionBoard>>,
    ) -> Self {
        let view = RunView { phase: RunPhase::Starting, progress: ProgressSummary::new() };
        let line = start.request.prompt.split_whitespace().collect::<Vec<_>>().join(" ");
        Self {
            id,
            agent: start.request.agent.to_string(),
            workspace: start.workspace.clone(),
            title: line.chars().take(LONGEST_TITLE).collect(),
            timeout: start.request.timeout,
            scope,
            board,
            inner: Semaphore::new(INNER_CONNECTIONS),
            started: Instant::now(),
            view: watch::Sender::new(view),
            stop: CancellationToken::new(),
            ended: CancellationToken::new(),
        }
    }

    /// Returns the state, as a value that reports changes.
    pub(crate) fn view(&self) -> watch::Receiver<RunView> {
        self.view.subscribe()
    }

    /// Returns the time since the run was requested.
    pub(crate) fn age(&self) -> Duration {
        self.started.elapsed()
    }

    /// Stops the run. No-op if it is over.
    pub(crate) fn stop(&self) {
        self.stop.cancel();
    }

    /// Waits until the run is over and everything that it started has ended.
    pub(crate) async fn ended(&self) {
        self.ended.cancelled().await;
    }

    /// Returns whether the run has this id, given by this server or by its outcome.
    pub(crate) fn is_named(&self, id: &str) -> bool {
        self.id == id || matches!(&self.view.borrow().phase, RunPhase::Over(outcome) if outcome.run_id == id)
    }

    /// Starts the run and follows it to its outcome.
    pub(crate) async fn drive(self: Arc<Self>, start: CheckedStart, options: RunOptions, held: RunResources) {
        // Also if this task panics or its runtime shuts down.
        let _ended: DropGuard = self.ended.clone().drop_guard();
        let prices = start.agentline.price_table().clone();
        let started = tokio::select! {
            started = start.agentline.run_with(start.request, options) => started.map_err(|error| error_chain(&error)),
            () = self.stop.cancelled() => Err("it was cancelled before it started".to_owned()),
        };
        let phase = match started {
            Err(reason) => {
                held.reserved.settle(Some(0.0));
                RunPhase::Refused(reason.into())
            }
            Ok(run) => {
                self.view.send_modify(|view| view.phase = RunPhase::Running);
                match self.follow(run, &prices).await {
                    Some(outcome) => {
                        held.reserved.settle(of_outcome(&outcome));
                        RunPhase::Over(Arc::from(outcome))
                    }
                    None => RunPhase::Refused("internal error: the run has no outcome".into()),
                }
            }
        };
        drop(held.slot);
        self.view.send_modify(|view| view.phase = phase);
    }

    /// Ends the run without an outcome, for this reason.
    pub(crate) fn fail(&self, reason: &str) {
        self.view.send_modify(|view| view.phase = RunPhase::Refused(reason.into()));
    }

    async fn follow(&self, mut run: Run, prices: &PriceTable) -> Option<Box<Outcome>> {
        let mut end = RunEnd::default();
        let mut model = None;
        loop {
            let record = tokio::select! {
                record = run.next() => record,
                () = self.stop.cancelled(), if !end.is_cancelled => {
                    end.is_cancelled = true;
                    run.cancel();
                    continue;
                }
            };
            let Some(record) = record else { return end.outcome };
            self.view.send_if_modified(|view| view.progress.take(&record));
            match record.event {
                Event::Started(started) => model = started.model.or(model),
                Event::Usage(usage) => {
                    let cost = so_far(prices, model.as_deref(), &usage);
                    if self.scope.budget.set_own_cost(cost) && !end.is_over_budget {
                        end.is_over_budget = true;
                        run.cancel();
                    }
                }
                Event::Outcome { outcome } => end.outcome = Some(self.within_budget(outcome, &end)),
                _ => {}
            }
        }
    }

    /// Reports the cost limit of a run if it was stopped because of the runs that its agent started, or ended with them
    /// beyond it.
    fn within_budget(&self, mut outcome: Box<Outcome>, end: &RunEnd) -> Box<Outcome> {
        let budget = &self.scope.budget;
        let excess = of_outcome(&outcome).and_then(|own| budget.excess(own));
        match outcome.verdict {
            Verdict::Cancelled if end.is_over_budget && !end.is_cancelled => {
                let reason =
                    "cost limit reached: the rest is reserved for the agents that this agent started";
                report_limit(&mut outcome, excess.unwrap_or_else(|| reason.to_owned()));
            }
            Verdict::Done | Verdict::DoneWithDenials => {
                if let Some(message) = excess {
                    report_limit(&mut outcome, message);
                }
            }
            _ => {}
        }
        outcome
    }
}
