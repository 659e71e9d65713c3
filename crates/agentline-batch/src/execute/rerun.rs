//! Runs that are executed again although they have a result.

use crate::class::Class;
use crate::result::RunResult;
use crate::store::{Experiment, InterruptedTry, StoreError};
use serde::{Deserialize, Serialize};

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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RerunPlan {
    which: Rerun,
    /// Later results are already those of the new runs.
    until_ms: u64,
}

impl RerunPlan {
    /// Returns the plan of an interrupted batch with the same choice, or else a new one, which is stored.
    pub(super) fn begin(experiment: &Experiment, which: Rerun, now_ms: u64) -> Result<Self, StoreError> {
        let plan = Self::stored(experiment, which, now_ms)?;
        if plan.is_active() {
            experiment.set_meta(META, &serde_json::to_string(&plan).unwrap_or_default())?;
        }
        Ok(plan)
    }

    /// Returns the plan that a batch with this choice would follow.
    pub(super) fn stored(experiment: &Experiment, which: Rerun, now_ms: u64) -> Result<Self, StoreError> {
        let stored = experiment.meta(META)?.and_then(|plan| serde_json::from_str::<Self>(&plan).ok());
        Ok(stored.filter(|plan| plan.which == which).unwrap_or(Self { which, until_ms: now_ms }))
    }

    /// Forgets the plan, because nothing of it is left.
    pub(super) fn finish(self, experiment: &Experiment) -> Result<(), StoreError> {
        if self.is_active() { experiment.set_meta(META, "") } else { Ok(()) }
    }

    pub(super) fn is_active(self) -> bool {
        self.which != Rerun::None
    }

    /// Returns whether a run without a result is executed again although it is not repeatable and was interrupted: if the
    /// user has asked for that since then.
    pub(super) fn includes_interrupted(self, last: &InterruptedTry) -> bool {
        matches!(self.which, Rerun::Infrastructure | Rerun::All) && last.started_ms <= self.until_ms
    }

    /// Returns whether the run with this result is executed again.
    pub(super) fn includes(self, result: &RunResult) -> bool {
        let is_chosen = match self.which {
            Rerun::None => false,
            Rerun::Failed => result.class == Class::Failed,
            Rerun::Infrastructure => result.class == Class::Infrastructure,
            Rerun::All => true,
        };
        is_chosen && result.finished_ms <= self.until_ms
    }
}
