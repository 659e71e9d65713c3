//! Runs that are executed again although they have a result.

use crate::class::Class;
use crate::result::RunResult;
use crate::store::{Experiment, InterruptedTry, StoreError};
use serde::{Deserialize, Serialize};
use std::collections::HashSet;

/// The name of the stored plan.
const META: &str = "rerun";

/// Which runs with a result are executed again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rerun {
    /// None of them.
    #[default]
    None,
    /// Those that failed.
    Failed,
    /// Those with an infrastructure failure.
    Infrastructure,
    /// All of them.
    All,
}

/// The runs that a batch executes again. It is stored, so that the same command resumes after an interruption.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct RerunPlan {
    which: Rerun,
    /// The position of the last try before the plan. Clocks differ between machines, and may be set back.
    after_try: i64,
    /// The tries since then, which are already those of the new runs: their runs and numbers.
    #[serde(skip)]
    new_tries: HashSet<(String, u32)>,
}

impl RerunPlan {
    /// Returns the plan of an interrupted batch with the same choice, or else a new one, which is stored.
    pub(crate) fn begin(experiment: &Experiment, which: Rerun) -> Result<Self, StoreError> {
        let plan = Self::stored(experiment, which)?;
        if plan.is_active() {
            experiment.set_meta(META, &serde_json::to_string(&plan).unwrap_or_default())?;
        }
        Ok(plan)
    }

    /// Returns the plan that a batch with this choice would follow.
    pub(crate) fn stored(experiment: &Experiment, which: Rerun) -> Result<Self, StoreError> {
        let stored = experiment.meta(META)?.and_then(|plan| serde_json::from_str::<Self>(&plan).ok());
        if let Some(mut plan) = stored.filter(|plan| plan.which == which) {
            plan.new_tries = experiment.tries_after(plan.after_try)?;
            return Ok(plan);
        }
        Ok(Self { which, after_try: experiment.position_of_last_try()?, new_tries: HashSet::new() })
    }

    /// Forgets the plan, because nothing of it is left.
    pub(crate) fn finish(&self, experiment: &Experiment) -> Result<(), StoreError> {
        if self.is_active() { experiment.set_meta(META, "") } else { Ok(()) }
    }

    pub(crate) fn is_active(&self) -> bool {
        self.which != Rerun::None
    }

    /// Returns whether a run without a result is executed again although it is not repeatable and was interrupted: if the
    /// user has asked for that since then.
    pub(super) fn includes_interrupted(&self, run: &str, last: &InterruptedTry) -> bool {
        matches!(self.which, Rerun::Infrastructure | Rerun::All) && !self.is_new(run, last.number)
    }

    /// Returns whether the run with this result is executed again.
    pub(crate) fn includes(&self, result: &RunResult) -> bool {
        let is_chosen = match self.which {
            Rerun::None => false,
            Rerun::Failed => result.class == Class::Failed,
            Rerun::Infrastructure => result.class == Class::Infrastructure,
            Rerun::All => true,
        };
        is_chosen && !self.is_new(&result.key, result.tries)
    }

    fn is_new(&self, run: &str, number: u32) -> bool {
        self.new_tries.contains(&(run.to_owned(), number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::TryCost;

    #[test]
    fn plan_that_was_interrupted_leaves_out_what_it_has_done_whatever_the_clocks_say() {
        let dir = tempfile::tempdir().expect("a directory");
        let experiment = Experiment::open(dir.path()).expect("an experiment");
        let fails = |run: &str, now_ms| {
            let (number, dir) = experiment.begin_try(run, now_ms).expect("a try");
            let dir = dir.strip_prefix(experiment.dir()).expect("below the experiment").display().to_string();
            let example = RunResult::example(run, run, "a", "infrastructure");
            let result = RunResult { tries: number, finished_ms: now_ms, dir, ..example };
            experiment.replace(&result).expect("a result");
        };
        let interrupted = |run: &str, now_ms| {
            let (number, _) = experiment.begin_try(run, now_ms).expect("a try");
            experiment.begin_effects(run, number, now_ms).expect("effects");
        };
        let choose = |plan: &RerunPlan| {
            let results = experiment.results().expect("results");
            let tries = experiment.interrupted_tries().expect("tries");
            let again = results.values().filter(|result| plan.includes(result)).map(|result| &result.key);
            let lost = tries.iter().filter(|(run, last)| plan.includes_interrupted(run, last));
            let mut chosen: Vec<String> = again.chain(lost.map(|(run, _)| run)).cloned().collect();
            chosen.sort();
            chosen
        };
        fails("00", 5);
        fails("11", 5);
        interrupted("22", 5);
        interrupted("33", 5);
        let plan = RerunPlan::begin(&experiment, Rerun::Infrastructure).expect("a plan");
        assert_eq!(choose(&plan), ["00", "11", "22", "33"]);
        // At the same time, and with a clock that was set back.
        fails("00", 5);
        interrupted("22", 4);
        let resumed = RerunPlan::begin(&experiment, Rerun::Infrastructure).expect("a plan");
        assert_eq!(choose(&resumed), ["11", "33"]);
        let failed = RerunPlan::stored(&experiment, Rerun::Failed).expect("a plan");
        assert!(choose(&failed).is_empty());
        // A result from an earlier try that is committed now.
        experiment.move_to_end("33", 1).expect("a try");
        let resumed = RerunPlan::begin(&experiment, Rerun::Infrastructure).expect("a plan");
        assert_eq!(choose(&resumed), ["11"]);
        resumed.finish(&experiment).expect("no plan");
        let (number, _) = experiment.begin_try("22", 3).expect("a try");
        experiment.end_try("22", number, "retried", TryCost::default(), 3).expect("an end");
        let next = RerunPlan::begin(&experiment, Rerun::Infrastructure).expect("a plan");
        assert_eq!(choose(&next), ["00", "11", "22", "33"]);
    }
}
