//! A comparison of two variants that may stop early: pairs are looked at in an order that was fixed in advance, because
//! the duration of a run depends on its outcome.

use crate::class::Class;
use crate::result::RunResult;
use crate::stats::{CaseCount, ConfidenceSequence, Decision, Interval, PairedCase, SplitMix64};
use crate::store::{Experiment, StoreError};
use std::collections::HashMap;

/// The name of the stored seed. Its presence says that the experiment may stop early.
const SEED: &str = "until_decided_seed";
/// The name of the stored ids of the cases that are compared.
const CASES: &str = "until_decided_cases";
/// The names of all stored values of a comparison.
pub(crate) const SEQUENCE_VALUES: [&str; 2] = [SEED, CASES];

/// The state of a comparison that may stop early.
#[derive(Clone, Debug)]
pub(crate) struct PairSequence {
    /// The ids of the cases, in the order in which they count.
    order: Vec<String>,
    variants: [String; 2],
    repeat: u32,
    next: usize,
    pairs: usize,
    sum: f64,
    sequence: ConfidenceSequence,
}

/// What a comparison that may stop early says so far.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct SequentialComparison {
    /// The number of cases with valid runs of both variants.
    pub pairs: usize,
    /// How much higher the pass rate of the second variant is.
    pub difference: Option<f64>,
    /// The confidence sequence, which is valid after every pair.
    pub interval: Interval,
    /// What follows.
    pub decision: Decision,
}

impl PairSequence {
    /// Begins the comparison of the two variants of an experiment. The seed is stored, so that a resumed batch looks at
    /// the cases in the same order.
    pub(crate) fn begin(
        experiment: &Experiment,
        cases: Vec<String>,
        variants: [String; 2],
        repeat: u32,
    ) -> Result<Self, StoreError> {
        let seed = Self::stored_seed(experiment)?.unwrap_or_else(|| uuid::Uuid::new_v4().as_u64_pair().0);
        let ids = serde_json::to_string(&cases).unwrap_or_default();
        experiment.set_all_meta(&[(SEED, &seed.to_string()), (CASES, &ids)])?;
        Ok(Self::new(cases, variants, repeat, seed))
    }

    /// Returns the comparison of an experiment that may stop early; `None` for another experiment. `cases` are those of
    /// the whole suite.
    pub(crate) fn stored(
        experiment: &Experiment,
        cases: &[String],
        variants: [String; 2],
        repeat: u32,
    ) -> Result<Option<Self>, StoreError> {
        let Some(seed) = Self::stored_seed(experiment)? else { return Ok(None) };
        let compared = experiment.meta(CASES)?.and_then(|ids| serde_json::from_str::<Vec<String>>(&ids).ok());
        // A suite that changed since then may have other cases.
        let compared =
            compared.map(|ids| ids.into_iter().filter(|id| cases.contains(id)).collect::<Vec<_>>());
        let compared = compared.filter(|ids| !ids.is_empty()).unwrap_or_else(|| cases.to_vec());
        Ok(Some(Self::new(compared, variants, repeat, seed)))
    }

    fn stored_seed(experiment: &Experiment) -> Result<Option<u64>, StoreError> {
        Ok(experiment.meta(SEED)?.and_then(|seed| seed.parse().ok()))
    }

    /// Creates the comparison of two variants, with the cases in an order that depends on the seed alone.
    fn new(mut cases: Vec<String>, variants: [String; 2], repeat: u32, seed: u64) -> Self {
        cases.sort();
        SplitMix64::new(seed).shuffle(&mut cases);
        Self {
            order: cases,
            variants,
            repeat,
            next: 0,
            pairs: 0,
            sum: 0.0,
            sequence: ConfidenceSequence::default(),
        }
    }

    /// Returns the cases in their order.
    pub(crate) fn order(&self) -> &[String] {
        &self.order
    }

    /// Adds the cases that are complete, up to the first one that is not, or to the decision.
    pub(crate) fn advance(&mut self, results: &HashMap<(&str, &str), Vec<&RunResult>>) {
        while self.decision().is_none() && self.next < self.order.len() {
            let case = self.order[self.next].as_str();
            let [first, second] = &self.variants;
            let (first, second) =
                (results.get(&(case, first.as_str())), results.get(&(case, second.as_str())));
            let (Some(first), Some(second)) = (first, second) else { return };
            let is_complete =
                |runs: &[&RunResult]| u32::try_from(runs.len()).unwrap_or(u32::MAX) >= self.repeat;
            if !is_complete(first) || !is_complete(second) {
                return;
            }
            self.next += 1;
            let pair = PairedCase { first: count(first), second: count(second) };
            let Some(difference) = pair.difference() else { continue };
            self.pairs += 1;
            self.sum += difference;
            if self.repeat == 1 {
                self.sequence.add_pair(pair.first.passed > 0, pair.second.passed > 0);
            } else {
                self.sequence.add(difference);
            }
        }
    }

    /// Returns the decision, if there is one.
    fn decision(&self) -> Option<Decision> {
        self.sequence.decision()
    }

    /// Returns whether the comparison is decided.
    pub(crate) fn is_decided(&self) -> bool {
        self.decision().is_some()
    }

    /// Returns what the comparison says so far.
    pub(crate) fn comparison(&self) -> SequentialComparison {
        #[expect(clippy::cast_precision_loss, reason = "there are few pairs")]
        let pairs = self.pairs as f64;
        SequentialComparison {
            pairs: self.pairs,
            difference: (self.pairs > 0).then(|| self.sum / pairs),
            interval: self.sequence.interval(),
            decision: self.decision().unwrap_or(Decision::Undecided { further_cases: None }),
        }
    }
}

fn count(runs: &[&RunResult]) -> CaseCount {
    let mut count = CaseCount { passed: 0, valid: 0 };
    for run in runs.iter().filter(|run| run.is_valid()) {
        count.valid += 1;
        count.passed += u32::from(run.class == Class::Passed);
    }
    count
}

/// Groups results by case and variant.
pub(crate) fn grouped<'a>(
    results: impl IntoIterator<Item = &'a RunResult>,
) -> HashMap<(&'a str, &'a str), Vec<&'a RunResult>> {
    let mut groups: HashMap<_, Vec<_>> = HashMap::new();
    for result in results {
        groups.entry((result.case.as_str(), result.variant.as_str())).or_default().push(result);
    }
    groups
}
