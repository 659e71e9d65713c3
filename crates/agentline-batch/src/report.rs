//! The report of an experiment: what was run, and what the numbers say.

mod compare;
mod csv;
mod html;
mod json;
mod junit;
mod numbers;
mod predictions;
mod text;

use crate::result::RunResult;
use crate::sequence::{PairSequence, SequentialComparison, grouped};
use crate::stats::{Decision, Distribution, Interval};
use crate::store::{DESCRIPTION, Experiment, StoreError, TryCost, VARIANT_SETTINGS};
use numbers::{comparisons, every_pair, mixtures, not_stored, ordered, variant};
use serde::Serialize;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};

/// The name of the format of [`ExperimentReport::json`].
pub const REPORT_SCHEMA: &str = "agentline.report/1";

/// The report of an experiment.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ExperimentReport {
    /// The name of the experiment.
    pub name: String,
    /// What it is about, as the suite says.
    pub description: Option<String>,
    /// The variants in the order of the suite.
    pub variants: Vec<VariantReport>,
    /// The cases in the order of the suite.
    pub cases: Vec<CaseReport>,
    /// The comparisons of each variant with each later one.
    pub comparisons: Vec<ComparisonRow>,
    /// The comparison of two variants that may have stopped early. It replaces `comparisons`.
    pub sequential: Option<SequentialComparison>,
    /// The results that differ between two experiments.
    pub changes: Vec<ChangedResult>,
    /// The number of results in the directory that are not those of the current suite, and not in the report.
    pub left_out: usize,
    /// What a reader must know, such as mixed versions of an agent.
    pub warnings: Vec<String>,
}

/// A case whose result differs between two experiments.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ChangedResult {
    /// The id of the case.
    pub case: String,
    /// The id of the variant.
    pub variant: String,
    /// The number of valid runs that passed before, and of all valid ones.
    pub before: (u32, u32),
    /// The same now.
    pub after: (u32, u32),
}

/// The numbers of a variant.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct VariantReport {
    /// The id.
    pub id: String,
    /// The variant's own settings and its prompt, without secrets; empty if they are not known.
    pub settings: Map<String, Value>,
    /// Runs that passed.
    pub passed: u32,
    /// Runs that failed.
    pub failed: u32,
    /// Runs that say nothing about the agent.
    pub infrastructure: u32,
    /// The interval of the pass rate.
    pub interval: Option<Interval>,
    /// The pass rate if all infrastructure runs had failed, and if all had passed.
    pub bounds: Option<Interval>,
    /// For each k up to the number of attempts: k, pass@k and pass^k.
    pub pass_k: Vec<PassK>,
    /// The cost of each valid run in US dollars.
    pub cost_usd: Option<Distribution>,
    /// What all runs cost in US dollars, with infrastructure runs, and with tries that were repeated or cancelled.
    pub total_cost_usd: Option<f64>,
    /// What the judges of all runs cost in US dollars.
    pub judge_cost_usd: Option<f64>,
    /// The tokens of the runs.
    pub tokens: Option<Distribution>,
    /// The duration of the runs in milliseconds.
    pub duration_ms: Option<Distribution>,
    /// The agents and versions that ran.
    pub agents: BTreeSet<String>,
    /// The models that ran.
    pub models: BTreeSet<String>,
    /// The directory of the experiment with the runs; empty if it is not known.
    pub dir: PathBuf,
}

/// The chance that at least one of k runs passes, and that all of them do.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct PassK {
    /// The number of runs.
    pub k: u32,
    /// pass@k.
    pub any: Option<f64>,
    /// pass^k.
    pub all: Option<f64>,
    /// The number of cases with too few valid runs.
    pub left_out: usize,
}

/// The results of a case.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CaseReport {
    /// The id.
    pub id: String,
    /// The results, by variant and attempt.
    pub runs: Vec<RunResult>,
}

/// The comparison of two variants.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ComparisonRow {
    /// The id of the first variant.
    pub first: String,
    /// The id of the second variant.
    pub second: String,
    /// The number of cases with valid runs of both.
    pub pairs: usize,
    /// How much higher the pass rate of the second variant is.
    pub difference: Option<f64>,
    /// The interval of the difference.
    pub interval: Option<Interval>,
    /// The p-value, corrected for the number of comparisons.
    pub p_value: f64,
    /// What follows.
    pub decision: Decision,
}

impl VariantReport {
    /// Returns the pass rate; `None` without valid runs.
    #[must_use]
    pub fn pass_rate(&self) -> Option<f64> {
        let valid = self.passed + self.failed;
        (valid > 0).then(|| f64::from(self.passed) / f64::from(valid))
    }

    /// Returns the number of finished runs.
    #[must_use]
    pub fn runs(&self) -> u32 {
        self.passed + self.failed + self.infrastructure
    }
}

impl ExperimentReport {
    /// Computes the report of results. `variants` and `cases` give the order; ids that are not in them follow.
    #[must_use]
    pub fn new(name: &str, variants: &[String], cases: &[String], results: Vec<RunResult>) -> Self {
        let variant_ids = ordered(variants, results.iter().map(|result| result.variant.as_str()));
        let case_ids = ordered(cases, results.iter().map(|result| result.case.as_str()));
        let mut by_case: BTreeMap<&str, Vec<RunResult>> = BTreeMap::new();
        for result in &results {
            by_case.entry(&result.case).or_default().push(result.clone());
        }
        let position = |id: &str| variant_ids.iter().position(|variant| variant == id);
        let cases: Vec<CaseReport> = case_ids
            .iter()
            .map(|id| {
                let mut runs = by_case.remove(id.as_str()).unwrap_or_default();
                runs.sort_by_key(|run| (position(&run.variant), run.attempt));
                CaseReport { id: id.clone(), runs }
            })
            .collect();
        let reports: Vec<VariantReport> = variant_ids.iter().map(|id| variant(id, &cases)).collect();
        let mut warnings: Vec<String> = reports.iter().flat_map(mixtures).collect();
        warnings.extend(not_stored(&cases));
        let comparisons = comparisons(&every_pair(&variant_ids), &cases);
        let name = name.to_owned();
        let (sequential, changes, left_out) = (None, Vec::new(), 0);
        let description = None;
        Self {
            name,
            description,
            comparisons,
            variants: reports,
            cases,
            sequential,
            changes,
            left_out,
            warnings,
        }
    }

    /// Reads the experiment in a directory, also while a batch runs there. The report is about the suite that was run
    /// last.
    ///
    /// # Errors
    /// Fails if there is no experiment in the directory, or if it cannot be read.
    pub fn read(dir: &Path) -> Result<Self, StoreError> {
        let experiment = Experiment::read(dir)?;
        let list = |key: &str| -> Result<Vec<String>, StoreError> {
            Ok(serde_json::from_str(&experiment.meta(key)?.unwrap_or_default()).unwrap_or_default())
        };
        let name = experiment.meta("name")?.unwrap_or_default();
        let runs = experiment.suite_runs()?;
        let runs: Option<HashSet<String>> = runs.map(|runs| runs.into_values().collect());
        let (results, others): (Vec<RunResult>, Vec<RunResult>) = experiment
            .results()?
            .into_values()
            .partition(|result| runs.as_ref().is_none_or(|runs| runs.contains(&result.key)));
        let (variants, cases) = (list("variants")?, list("cases")?);
        let sequential = match variants.as_slice() {
            [first, second] => {
                let repeat = experiment.meta("repeat")?.and_then(|repeat| repeat.parse().ok()).unwrap_or(1);
                let pair = [first.clone(), second.clone()];
                let sequence = PairSequence::stored(&experiment, &cases, pair, repeat)?;
                sequence.map(|mut sequence| {
                    sequence.advance(&grouped(&results));
                    sequence.comparison()
                })
            }
            _ => None,
        };
        let costs = experiment.costs()?;
        let mut report = Self::new(&name, &variants, &cases, results);
        report.sequential = sequential;
        report.left_out = others.len();
        if !others.is_empty() {
            report.warnings.push(format!(
                "{} results in the directory are left out, because they are not those of the suite that was run last",
                others.len()
            ));
        }
        report.add_costs(&costs);
        let finished: HashSet<&str> =
            report.cases.iter().flat_map(|case| &case.runs).map(|run| run.key.as_str()).collect();
        let is_unfinished = |key: &String| {
            runs.as_ref().is_some_and(|runs| runs.contains(key)) && !finished.contains(key.as_str())
        };
        let mut unfinished = TryCost::default();
        costs.iter().filter(|(key, _)| is_unfinished(key)).for_each(|(_, cost)| unfinished.add(*cost));
        if let Some(cost) = unfinished.agent_usd.filter(|cost| *cost > 0.0) {
            let cost = text::dollars(cost);
            report
                .warnings
                .push(format!("cancelled runs cost {cost}, which is in no variant until they finish"));
        }
        report.description = experiment.meta(DESCRIPTION)?.filter(|text| !text.is_empty());
        let settings = experiment.meta(VARIANT_SETTINGS)?.unwrap_or_default();
        let mut settings: HashMap<String, Map<String, Value>> =
            serde_json::from_str(&settings).unwrap_or_default();
        for variant in &mut report.variants {
            dir.clone_into(&mut variant.dir);
            variant.settings = settings.remove(&variant.id).unwrap_or_default();
        }
        Ok(report)
    }

    /// Takes the cost of all tries into account, not only of those with a result.
    fn add_costs(&mut self, costs: &HashMap<String, TryCost>) {
        for variant in &mut self.variants {
            let runs = self.cases.iter().flat_map(|case| &case.runs).filter(|run| run.variant == variant.id);
            let mut total = TryCost::default();
            for run in runs {
                // An experiment of an earlier version has only the costs of its results.
                let own = TryCost { agent_usd: run.cost_usd, judge_usd: run.judge_cost_usd };
                total.add(costs.get(&run.key).copied().unwrap_or(own));
            }
            (variant.total_cost_usd, variant.judge_cost_usd) = (total.agent_usd, total.judge_usd);
        }
    }

    /// Returns the directory of a run; `None` if the experiment's directory is not known.
    fn run_dir(&self, run: &RunResult) -> Option<PathBuf> {
        let variant = self.variants.iter().find(|variant| variant.id == run.variant)?;
        (!variant.dir.as_os_str().is_empty()).then(|| variant.dir.join(&run.dir))
    }

    /// Returns the report as a table for a terminal.
    #[must_use]
    pub fn text(&self) -> String {
        text::render(self)
    }

    /// Returns one line of CSV per run.
    ///
    /// # Errors
    /// Fails if a value cannot be written.
    pub fn csv(&self) -> Result<String, ::csv::Error> {
        csv::render(self)
    }

    /// Returns the report as one HTML page. Its links to the directories of runs start from `base`, the directory of the
    /// page.
    #[must_use]
    pub fn html(&self, base: &Path) -> String {
        html::render(self, base)
    }

    /// Returns the changes of each run as a line of a SWE-bench prediction file.
    #[must_use]
    pub fn predictions(&self) -> String {
        predictions::render(self)
    }

    /// Returns the report as JUnit XML.
    #[must_use]
    pub fn junit(&self) -> String {
        junit::render(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_agents_control_neither_the_terminal_nor_a_spreadsheet() {
        let mut result = RunResult::example("00", "c", "v", "failed");
        result.message = Some("=HYPERLINK(\"x\")\u{1b}]0;title\u{7}".into());
        let report = ExperimentReport::new("x", &[], &[], vec![result]);
        let text = report.text();
        assert!(text.contains("=HYPERLINK") && !text.contains(['\u{1b}', '\u{7}']), "{text:?}");
        let csv = report.csv().expect("a table");
        assert!(csv.contains("\"'=HYPERLINK"), "{csv}");
    }

    #[test]
    fn infrastructure_runs_and_all_tries_cost() {
        let with_cost = |key: &str, class: &str, cost: f64| RunResult {
            cost_usd: Some(cost),
            ..RunResult::example(key, key, "v", class)
        };
        let results = vec![with_cost("00", "passed", 1.0), with_cost("01", "infrastructure", 2.0)];
        let mut report = ExperimentReport::new("x", &[], &[], results);
        assert_eq!(report.variants[0].total_cost_usd, Some(3.0));
        assert_eq!(report.variants[0].cost_usd.expect("a distribution").sum, 1.0);
        let all = TryCost { agent_usd: Some(5.0), judge_usd: Some(0.5) };
        report.add_costs(&HashMap::from([("00".to_owned(), all)]));
        let json = report.json();
        assert_eq!(
            (&json["variants"]["v"]["cost_usd"], &json["variants"]["v"]["judge_cost_usd"]),
            (&7.0.into(), &0.5.into())
        );
        assert!(report.text().contains("$7.0000") && report.text().contains("judges"), "{}", report.text());
    }

    #[test]
    fn variant_that_mixes_models_is_a_warning() {
        let of = |key: &str, model: &str| RunResult {
            model: Some(model.into()),
            ..RunResult::example(key, key, "v", "passed")
        };
        let report = ExperimentReport::new("x", &[], &[], vec![of("00", "big"), of("01", "small")]);
        assert_eq!(report.warnings, ["the variant `v` mixes models: big, small"]);
    }
}
