//! The runs of one batch: which of them wait, which are in progress, and what is committed.

use super::attempt::{Attempt, Ended, RunSpec};
use super::limits::BatchLimitReached;
use super::requests::RequestTable;
use super::rerun::RerunPlan;
use super::run_tasks::RunTasks;
use super::{BatchError, BatchEvent, BatchShutdown, BatchSummary, Shared, now_ms};
use crate::class::Class;
use crate::result::RunResult;
use crate::sequence::{PairSequence, grouped};
use crate::store::InterruptedTry;
use crate::suite::{RunIndex, Suite};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use tokio::sync::watch;

/// The runs of a batch: those with a result, and those that wait.
pub(super) struct Batch {
    shared: Arc<Shared>,
    suite: Arc<Suite>,
    requests: Arc<RequestTable>,
    stop: watch::Receiver<BatchShutdown>,
    keys: HashMap<RunIndex, String>,
    results: HashMap<String, RunResult>,
    waiting: VecDeque<RunIndex>,
    /// The runs that have a result and are executed again. The old result counts until there is a new one.
    rerun: RerunPlan,
    sequence: Option<PairSequence>,
}

impl Batch {
    pub(super) fn new(
        shared: Arc<Shared>,
        suite: Arc<Suite>,
        requests: Arc<RequestTable>,
        stop: watch::Receiver<BatchShutdown>,
        keys: HashMap<RunIndex, String>,
    ) -> Result<Self, BatchError> {
        let stored = shared.experiment().results()?;
        let rerun = RerunPlan::begin(&shared.experiment(), shared.options.rerun, now_ms())?;
        let interrupted = shared.experiment().interrupted_tries()?;
        let mut results = HashMap::new();
        let mut waiting = VecDeque::new();
        let mut lost = Vec::new();
        for run in suite.runs() {
            let key = &keys[&run];
            match stored.get(key).filter(|result| !rerun.includes(result)) {
                Some(result) => {
                    results.insert(key.clone(), result.clone());
                }
                None => {
                    // A try before the result that is executed again does not count.
                    let is_lost = |last: &&InterruptedTry| {
                        !suite.cases[run.case].is_repeatable(run.variant)
                            && stored.get(key).is_none_or(|result| last.number > result.tries)
                            && !rerun.includes_interrupted(last)
                    };
                    match interrupted.get(key).filter(is_lost) {
                        Some(last) => lost.push((run, *last)),
                        None => waiting.push_back(run),
                    }
                }
            }
        }
        let began = BatchEvent::Began {
            runs: results.len() + waiting.len() + lost.len(),
            results: results.values().cloned().collect(),
        };
        let _ = shared.events.send(began);
        let mut batch = Self { shared, suite, requests, stop, keys, results, waiting, rerun, sequence: None };
        if batch.shared.options.until_decided {
            batch.compare_in_order()?;
        }
        for (run, last) in lost {
            // The limits of this batch do not count what an earlier one did.
            let result = batch.store(run, batch.attempt(run).interrupted(last))?;
            let result = Some(Box::new(result));
            let _ = batch.shared.events.send(BatchEvent::RunEnded { run, result });
        }
        Ok(batch)
    }

    /// Puts the runs into the order in which the comparison looks at their cases.
    fn compare_in_order(&mut self) -> Result<(), BatchError> {
        let suite = &self.suite;
        let cases = suite.cases.iter().map(|case| case.id.clone()).collect();
        let [first, second] = [0, 1].map(|variant| suite.variants[variant].id.clone());
        let sequence = PairSequence::begin(&self.shared.experiment(), cases, [first, second], suite.repeat)?;
        let rank: HashMap<&str, usize> =
            sequence.order().iter().enumerate().map(|(rank, case)| (case.as_str(), rank)).collect();
        let ranks: Vec<Option<usize>> =
            suite.cases.iter().map(|case| rank.get(case.id.as_str()).copied()).collect();
        self.waiting.make_contiguous().sort_by_key(|run| (ranks[run.case], run.attempt, run.variant));
        self.sequence = Some(sequence);
        self.advance();
        Ok(())
    }

    /// Looks at the cases that are complete.
    fn advance(&mut self) {
        if let Some(sequence) = &mut self.sequence {
            sequence.advance(&grouped(self.results.values()));
        }
    }

    fn is_decided(&self) -> bool {
        self.sequence.as_ref().is_some_and(PairSequence::is_decided)
    }

    /// Executes the runs that wait, and commits each result.
    pub(super) async fn run(mut self, jobs: usize) -> Result<BatchSummary, BatchError> {
        let mut active = RunTasks::default();
        let mut stop = self.stop.clone();
        let mut limit = None;
        let out_of_time = self.shared.totals().out_of_time();
        tokio::pin!(out_of_time);
        loop {
            let stopping =
                *stop.borrow_and_update() != BatchShutdown::None || limit.is_some() || self.is_decided();
            while !stopping && active.len() < jobs {
                let Some(run) = self.waiting.pop_front() else { break };
                let attempt = self.attempt(run);
                let _ = self.shared.events.send(BatchEvent::RunBegan(run));
                active.spawn(run, attempt.execute());
            }
            if active.is_empty() {
                break;
            }
            tokio::select! {
                ended = active.next() => {
                    let Some((run, ended)) = ended else { continue };
                    let ended = ended.unwrap_or_else(|message| self.broken(run, message));
                    let result = self.commit(run, ended)?;
                    limit = limit.or_else(|| self.shared.totals().reached());
                    let result = result.map(Box::new);
                    let _ = self.shared.events.send(BatchEvent::RunEnded { run, result });
                }
                _ = stop.changed() => {}
                () = &mut out_of_time, if limit.is_none() => limit = Some(BatchLimitReached::Time),
            }
        }
        let mut counts: HashMap<Class, usize> = HashMap::new();
        for result in self.results.values() {
            *counts.entry(result.class).or_default() += 1;
        }
        let stopped_by = match *stop.borrow() {
            BatchShutdown::None => None,
            BatchShutdown::Graceful(signal) | BatchShutdown::Immediate(signal) => Some(signal),
        };
        let remaining = self.keys.len() - self.results.len();
        if remaining == 0 {
            self.rerun.finish(&self.shared.experiment())?;
        }
        Ok(BatchSummary {
            remaining,
            counts,
            limit,
            stopped_by,
            is_decided: self.is_decided() && remaining > 0,
        })
    }

    fn attempt(&self, run: RunIndex) -> Attempt {
        let spec = RunSpec {
            suite: Arc::clone(&self.suite),
            run,
            key: self.keys[&run].clone(),
            requests: Arc::clone(&self.requests),
            stop: self.stop.clone(),
        };
        Attempt::new(Arc::clone(&self.shared), spec)
    }

    /// Commits the result of a run, if it has one.
    fn commit(&mut self, run: RunIndex, ended: Ended) -> Result<Option<RunResult>, BatchError> {
        let result = match ended {
            Ended::Result(result) => *result,
            Ended::NotCommitted => return Ok(None),
            Ended::Store(error) => return Err(error.into()),
        };
        let result = self.store(run, result)?;
        self.shared.totals().add(&result);
        Ok(Some(result))
    }

    /// Stores the result of a run.
    fn store(&mut self, run: RunIndex, result: RunResult) -> Result<RunResult, BatchError> {
        if self.rerun.is_active() {
            self.shared.experiment().replace(&result)?;
        } else {
            self.shared.experiment().commit(&result)?;
        }
        self.results.insert(self.keys[&run].clone(), result.clone());
        self.advance();
        Ok(result)
    }

    /// Returns the end of a run whose task panicked. The error is ours, so the run says nothing about the agent.
    fn broken(&self, run: RunIndex, message: String) -> Ended {
        let number = self.shared.experiment().last_try(&self.keys[&run]);
        match number {
            Ok(number) => Ended::Result(Box::new(self.attempt(run).broken(number.max(1), message))),
            Err(error) => Ended::Store(error),
        }
    }
}
