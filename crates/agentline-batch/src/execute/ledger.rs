//! The runs of an experiment: which have a result, which wait, and whether their comparison is decided.

use super::limits::BatchLimitReached;
use super::rerun::RerunPlan;
use super::{BatchError, BatchEvent, BatchShutdown, BatchSummary, Rerun, now_ms};
use crate::class::Class;
use crate::key::RunKeys;
use crate::result::RunResult;
use crate::sequence::{PairSequence, grouped};
use crate::store::{Experiment, ImportedRun, InterruptedTry};
use crate::suite::{RunIndex, Suite};
use agentline::FailureKind;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// Why an interrupted run has no other result.
const INTERRUPTED_MESSAGE: &str = "the run was interrupted, and its suite says that it is not repeatable; \
                                   `--rerun infra` executes it again";

/// The runs of an experiment.
pub(crate) struct Ledger {
    suite: Arc<Suite>,
    keys: RunKeys,
    /// The class of the result of each run. Complete results would need much memory if there are many.
    classes: Vec<Option<Class>>,
    /// The number of runs without a result.
    remaining: usize,
    /// The results that were there at the beginning, until they are reported.
    earlier: Vec<RunResult>,
    /// The complete results by their keys, if they are compared.
    compared: HashMap<String, RunResult>,
    /// The positions of the runs without a result that are not being executed yet.
    waiting: VecDeque<u32>,
    /// The runs that were interrupted and must not be executed again.
    interrupted: Vec<(RunIndex, InterruptedTry)>,
    /// The runs that have a result and are executed again. The old result counts until there is a new one.
    rerun: RerunPlan,
    sequence: Option<PairSequence>,
}

impl Ledger {
    pub(crate) fn begin(
        experiment: &Experiment,
        suite: Arc<Suite>,
        keys: RunKeys,
        rerun: Rerun,
        until_decided: bool,
    ) -> Result<Self, BatchError> {
        let stored = experiment.results()?;
        let rerun = RerunPlan::begin(experiment, rerun)?;
        let tries = experiment.interrupted_tries()?;
        let (mut earlier, mut compared) = (Vec::new(), HashMap::new());
        let mut classes = vec![None; keys.len()];
        let mut waiting = VecDeque::new();
        let mut interrupted = Vec::new();
        for (run, position) in suite.runs().zip(0..) {
            let key = &keys.key(run);
            match stored.get(key).filter(|result| !rerun.includes(result)) {
                Some(result) => {
                    classes[keys.position(run)] = Some(result.class);
                    earlier.push(result.clone());
                    if until_decided {
                        compared.insert(key.clone(), result.clone());
                    }
                }
                None => {
                    // A try before the result that is executed again does not count.
                    let is_lost = |last: &&InterruptedTry| {
                        !suite.cases[run.case].is_repeatable(run.variant)
                            && stored.get(key).is_none_or(|result| last.number > result.tries)
                            && !rerun.includes_interrupted(key, last)
                    };
                    match tries.get(key).filter(is_lost) {
                        Some(last) => interrupted.push((run, *last)),
                        None => waiting.push_back(position),
                    }
                }
            }
        }
        let remaining = classes.iter().filter(|class| class.is_none()).count();
        let mut ledger = Self {
            suite,
            keys,
            classes,
            remaining,
            earlier,
            compared,
            waiting,
            interrupted,
            rerun,
            sequence: None,
        };
        if until_decided {
            ledger.compare_in_order(experiment)?;
        }
        Ok(ledger)
    }

    /// Returns the event with which a batch begins.
    pub(crate) fn began(&mut self) -> BatchEvent {
        BatchEvent::Began { runs: self.keys.len(), results: std::mem::take(&mut self.earlier) }
    }

    /// Commits the results of the runs that were interrupted and must not be executed again.
    pub(crate) fn commit_interrupted(
        &mut self,
        experiment: &Experiment,
    ) -> Result<Vec<(RunIndex, RunResult)>, BatchError> {
        let mut committed = Vec::new();
        for (run, last) in std::mem::take(&mut self.interrupted) {
            let result = RunResult {
                cost_usd: last.cost.agent_usd,
                judge_cost_usd: last.cost.judge_usd,
                ..self.interrupted_result(run, last.number)
            };
            if self.rerun.is_active() {
                // The try began before the plan, which would include its result.
                experiment.move_to_end(&result.key, result.tries)?;
            }
            self.commit(experiment, &result)?;
            committed.push((run, result));
        }
        Ok(committed)
    }

    /// Returns the result of a run whose try with this number was interrupted and must not be repeated.
    pub(crate) fn interrupted_result(&self, run: RunIndex, number: u32) -> RunResult {
        RunResult {
            class: self.suite.classes.of_interrupted(),
            kind: Some(FailureKind::Interrupted),
            ..self.broken_result(run, number, INTERRUPTED_MESSAGE.to_owned())
        }
    }

    /// Returns the result of a run that has none because of an infrastructure failure.
    pub(crate) fn broken_result(&self, run: RunIndex, number: u32, message: String) -> RunResult {
        RunResult {
            case: self.suite.cases[run.case].id.clone(),
            variant: self.suite.variants[run.variant].id.clone(),
            attempt: run.attempt,
            finished_ms: now_ms(),
            ..RunResult::broken(&self.keys.key(run), number, message)
        }
    }

    /// Returns the runs without a result, in the order in which they are executed.
    pub(crate) fn runs_without_result(&self) -> impl Iterator<Item = RunIndex> + Clone {
        let waiting = self.waiting.iter().filter_map(|position| self.keys.run(*position));
        waiting.filter(|run| !self.has_result(*run))
    }

    /// Takes the run that is executed next.
    pub(crate) fn next_waiting(&mut self) -> Option<RunIndex> {
        self.waiting.pop_front().and_then(|position| self.keys.run(position))
    }

    /// Puts the runs into the order in which the comparison looks at their cases.
    fn compare_in_order(&mut self, experiment: &Experiment) -> Result<(), BatchError> {
        let suite = &self.suite;
        let cases = suite.cases.iter().map(|case| case.id.clone()).collect();
        let [first, second] = [0, 1].map(|variant| suite.variants[variant].id.clone());
        let sequence = PairSequence::begin(experiment, cases, [first, second], suite.repeat)?;
        let rank: HashMap<&str, usize> =
            sequence.order().iter().enumerate().map(|(rank, case)| (case.as_str(), rank)).collect();
        let ranks: Vec<Option<usize>> =
            suite.cases.iter().map(|case| rank.get(case.id.as_str()).copied()).collect();
        let keys = &self.keys;
        let order =
            |position: &u32| keys.run(*position).map(|run| (ranks[run.case], run.attempt, run.variant));
        self.waiting.make_contiguous().sort_by_key(order);
        self.sequence = Some(sequence);
        self.advance();
        Ok(())
    }

    /// Looks at the cases that are complete.
    fn advance(&mut self) {
        if let Some(sequence) = &mut self.sequence {
            sequence.advance(&grouped(self.compared.values()));
        }
    }

    pub(crate) fn is_decided(&self) -> bool {
        self.sequence.as_ref().is_some_and(PairSequence::is_decided)
    }

    /// Returns the names of the runs.
    pub(crate) fn keys(&self) -> &RunKeys {
        &self.keys
    }

    /// Returns whether a run has a result that is not to be replaced.
    pub(crate) fn has_result(&self, run: RunIndex) -> bool {
        self.classes[self.keys.position(run)].is_some()
    }

    /// Returns the number of runs without a result.
    pub(crate) fn remaining(&self) -> usize {
        self.remaining
    }

    /// Returns the plan of the runs that are executed again; `None` if there are none.
    pub(crate) fn rerun(&self) -> Option<&RerunPlan> {
        Some(&self.rerun).filter(|plan| plan.is_active())
    }

    /// Commits the result of a run.
    pub(crate) fn commit(&mut self, experiment: &Experiment, result: &RunResult) -> Result<(), BatchError> {
        if self.rerun.is_active() {
            experiment.replace(result)?;
        } else {
            experiment.commit(result)?;
        }
        self.note(result);
        Ok(())
    }

    /// Commits the result of a run that another machine has executed.
    pub(crate) fn commit_imported(
        &mut self,
        experiment: &Experiment,
        imported: &ImportedRun,
    ) -> Result<(), BatchError> {
        experiment.commit_imported(imported, self.rerun.is_active())?;
        self.note(&imported.result);
        Ok(())
    }

    fn note(&mut self, result: &RunResult) {
        if let Some(run) = self.keys.find(&result.key) {
            let class = &mut self.classes[self.keys.position(run)];
            self.remaining -= usize::from(class.is_none());
            *class = Some(result.class);
        }
        if self.sequence.is_some() {
            self.compared.insert(result.key.clone(), result.clone());
        }
        self.advance();
    }

    /// Returns how the batch ended.
    pub(crate) fn summary(
        &self,
        experiment: &Experiment,
        limit: Option<BatchLimitReached>,
        stop: BatchShutdown,
    ) -> Result<BatchSummary, BatchError> {
        let mut counts: HashMap<Class, usize> = HashMap::new();
        for class in self.classes.iter().flatten() {
            *counts.entry(*class).or_default() += 1;
        }
        let stopped_by = match stop {
            BatchShutdown::None => None,
            BatchShutdown::Graceful(signal) | BatchShutdown::Immediate(signal) => Some(signal),
        };
        let remaining = self.remaining();
        if remaining == 0 {
            self.rerun.finish(experiment)?;
        }
        let is_decided = self.is_decided() && remaining > 0;
        Ok(BatchSummary { remaining, counts, limit, stopped_by, is_decided, is_cancelled: false })
    }
}
