//! The report of an experiment: what was run, and what the numbers say.

mod csv;
mod html;
mod junit;
mod predictions;
mod text;

use crate::class::Class;
use crate::result::RunResult;
use crate::sequence::{PairSequence, SequentialComparison, grouped};
use crate::stats::{
    CaseCount, Decision, Distribution, Interval, PairedCase, bounds, compare, holm, interval, pass_all_k,
    pass_at_k,
};
use crate::store::{Experiment, StoreError};
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The name of the format of [`ExperimentReport::json`].
pub const REPORT_SCHEMA: &str = "agentline.report/1";

/// The seed of the tests in a report, so that the same results give the same report.
const SEED: u64 = 15;

/// The report of an experiment.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ExperimentReport {
    /// The name of the experiment.
    pub name: String,
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
    /// The cost of the runs in US dollars.
    pub cost_usd: Option<Distribution>,
    /// The tokens of the runs.
    pub tokens: Option<Distribution>,
    /// The duration of the runs in milliseconds.
    pub duration_ms: Option<Distribution>,
    /// The agents and versions that ran.
    pub agents: BTreeSet<String>,
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
        let warnings = reports.iter().filter_map(mixed_versions).collect();
        let comparisons = comparisons(&every_pair(&variant_ids), &cases);
        let name = name.to_owned();
        Self { name, comparisons, variants: reports, cases, sequential: None, changes: Vec::new(), warnings }
    }

    /// Reads the experiment in a directory, also while a batch runs there.
    ///
    /// # Errors
    /// Fails if there is no experiment in the directory, or if it cannot be read.
    pub fn read(dir: &Path) -> Result<Self, StoreError> {
        let experiment = Experiment::read(dir)?;
        let list = |key: &str| -> Result<Vec<String>, StoreError> {
            Ok(serde_json::from_str(&experiment.meta(key)?.unwrap_or_default()).unwrap_or_default())
        };
        let name = experiment.meta("name")?.unwrap_or_default();
        let results: Vec<RunResult> = experiment.results()?.into_values().collect();
        let (variants, cases) = (list("variants")?, list("cases")?);
        let sequential = match (PairSequence::stored_seed(&experiment)?, variants.as_slice()) {
            (Some(seed), [first, second]) => {
                let repeat = experiment.meta("repeat")?.and_then(|repeat| repeat.parse().ok()).unwrap_or(1);
                let pair = [first.clone(), second.clone()];
                let mut sequence = PairSequence::new(cases.clone(), pair, repeat, seed);
                sequence.advance(&grouped(&results));
                Some(sequence.comparison())
            }
            _ => None,
        };
        let mut report = Self::new(&name, &variants, &cases, results);
        report.sequential = sequential;
        Ok(report)
    }

    /// Compares two experiments: variants with the same id, or the only variants of both. Cases are paired by id.
    #[must_use]
    pub fn compare(before: &Self, after: &Self) -> Self {
        let is_single = before.variants.len() == 1 && after.variants.len() == 1;
        let (mut results, mut pairs, mut changes) = (Vec::new(), Vec::new(), Vec::new());
        for old in &before.variants {
            for new in after.variants.iter().filter(|new| is_single || new.id == old.id) {
                let pair = (format!("A: {}", old.id), format!("B: {}", new.id));
                results.extend(before.renamed_runs(&old.id, &pair.0));
                results.extend(after.renamed_runs(&new.id, &pair.1));
                for case in &before.cases {
                    let Some(now) = after.cases.iter().find(|now| now.id == case.id) else { continue };
                    let (old_count, new_count) = (counts(case, &old.id), counts(now, &new.id));
                    let (was, is) =
                        ((old_count.passed, old_count.valid), (new_count.passed, new_count.valid));
                    if was != is {
                        let (case, variant) = (case.id.clone(), new.id.clone());
                        changes.push(ChangedResult { case, variant, before: was, after: is });
                    }
                }
                pairs.push(pair);
            }
        }
        let variants: Vec<String> =
            pairs.iter().flat_map(|(first, second)| [first.clone(), second.clone()]).collect();
        let ids = |report: &Self| report.cases.iter().map(|case| case.id.clone()).collect::<Vec<_>>();
        let name = format!("A: {} · B: {}", before.name, after.name);
        let mut report = Self::new(&name, &variants, &[ids(before), ids(after)].concat(), results);
        report.comparisons = comparisons(&pairs, &report.cases);
        report.changes = changes;
        if pairs.is_empty() {
            report.warnings.push("the experiments have no variant in common".into());
        }
        report
    }

    /// Returns the runs of a variant under another id.
    fn renamed_runs<'a>(&'a self, variant: &'a str, id: &'a str) -> impl Iterator<Item = RunResult> + 'a {
        let runs = self.cases.iter().flat_map(|case| &case.runs).filter(move |run| run.variant == variant);
        runs.map(move |run| {
            let mut run = run.clone();
            id.clone_into(&mut run.variant);
            run
        })
    }

    /// Returns the report as JSON.
    #[must_use]
    pub fn json(&self) -> Value {
        let variants: Map<String, Value> =
            self.variants.iter().map(|variant| (variant.id.clone(), variant_json(variant))).collect();
        let cases: Vec<Value> =
            self.cases.iter().map(|case| json!({"id": case.id, "runs": case.runs})).collect();
        let comparisons: Vec<Value> = self
            .comparisons
            .iter()
            .map(|row| {
                json!({
                    "first": row.first, "second": row.second, "pairs": row.pairs, "difference": row.difference,
                    "interval": row.interval.map(pair), "p_value": row.p_value, "decision": decision_json(&row.decision),
                })
            })
            .collect();
        json!({
            "schema": REPORT_SCHEMA, "name": self.name, "variants": variants,
            "comparisons": if self.sequential.is_some() { Vec::new() } else { comparisons },
            "sequential": self.sequential.map(|row| json!({
                "pairs": row.pairs, "difference": row.difference, "interval": pair(row.interval),
                "decision": decision_json(&row.decision),
            })),
            "changes": self.changes, "cases": cases, "warnings": self.warnings,
        })
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

    /// Returns the report as one HTML page. `dir` is the experiment's directory.
    #[must_use]
    pub fn html(&self, dir: &Path) -> String {
        html::render(self, dir)
    }

    /// Returns the changes of each run as a line of a SWE-bench prediction file. `dir` is the experiment's directory.
    #[must_use]
    pub fn predictions(&self, dir: &Path) -> String {
        predictions::render(self, dir)
    }

    /// Returns the report as JUnit XML.
    #[must_use]
    pub fn junit(&self) -> String {
        junit::render(self)
    }
}

fn ordered<'a>(first: &[String], all: impl Iterator<Item = &'a str>) -> Vec<String> {
    let used: BTreeSet<&str> = all.collect();
    let mut seen = BTreeSet::new();
    let is_used = |id: &&String| used.contains(id.as_str());
    let mut ids: Vec<String> = first.iter().filter(is_used).filter(|id| seen.insert(*id)).cloned().collect();
    let known: BTreeSet<String> = ids.iter().cloned().collect();
    ids.extend(used.into_iter().filter(|id| !known.contains(*id)).map(str::to_owned));
    ids
}

/// Counts the valid runs of a case with a variant.
fn counts(case: &CaseReport, variant: &str) -> CaseCount {
    let mut count = CaseCount { passed: 0, valid: 0 };
    for run in case.runs.iter().filter(|run| run.variant == variant && run.is_valid()) {
        count.valid += 1;
        count.passed += u32::from(run.class == Class::Passed);
    }
    count
}

fn variant(id: &str, cases: &[CaseReport]) -> VariantReport {
    let runs: Vec<&RunResult> =
        cases.iter().flat_map(|case| &case.runs).filter(|run| run.variant == id).collect();
    let number = |class: Class| {
        u32::try_from(runs.iter().filter(|run| run.class == class).count()).unwrap_or(u32::MAX)
    };
    let (passed, failed, infrastructure) =
        (number(Class::Passed), number(Class::Failed), number(Class::Infrastructure));
    let counted: Vec<CaseCount> = cases.iter().map(|case| counts(case, id)).collect();
    let most = counted.iter().map(|count| count.valid).max().unwrap_or(0);
    let pass_k = (1..=most).filter(|k| *k <= 5 || *k == most).map(|k| {
        let (any, all) = (pass_at_k(&counted, k), pass_all_k(&counted, k));
        PassK { k, any: any.mean, all: all.mean, left_out: any.left_out }
    });
    let valid = || runs.iter().filter(|run| run.is_valid());
    #[expect(clippy::cast_precision_loss, reason = "counts of tokens and milliseconds are far below 2^53")]
    let float = |number: u64| number as f64;
    VariantReport {
        id: id.to_owned(),
        passed,
        failed,
        infrastructure,
        interval: interval(&counted),
        bounds: bounds(passed, failed, infrastructure),
        pass_k: pass_k.collect(),
        cost_usd: Distribution::of(valid().filter_map(|run| run.cost_usd)),
        tokens: Distribution::of(valid().filter_map(|run| run.tokens).map(float)),
        duration_ms: Distribution::of(valid().map(|run| float(run.duration_ms))),
        agents: runs.iter().filter(|run| !run.agent.is_empty()).map(|run| agent(run)).collect(),
    }
}

fn agent(run: &RunResult) -> String {
    match &run.agent_version {
        Some(version) => format!("{} {version}", run.agent),
        None => run.agent.clone(),
    }
}

fn mixed_versions(variant: &VariantReport) -> Option<String> {
    let agents: Vec<&str> = variant.agents.iter().map(String::as_str).collect();
    (agents.len() > 1)
        .then(|| format!("the variant `{}` mixes agents or versions: {}", variant.id, agents.join(", ")))
}

/// Returns each variant with each later one.
fn every_pair(variants: &[String]) -> Vec<(String, String)> {
    let pairs = variants.iter().enumerate().flat_map(|(index, first)| {
        variants[index + 1..].iter().map(move |second| (first.clone(), second.clone()))
    });
    pairs.collect()
}

/// Compares the variants of each pair, corrected for the number of comparisons.
fn comparisons(pairs: &[(String, String)], cases: &[CaseReport]) -> Vec<ComparisonRow> {
    let mut rows = Vec::new();
    for (first, second) in pairs {
        let cases: Vec<PairedCase> = cases
            .iter()
            .map(|case| PairedCase { first: counts(case, first), second: counts(case, second) })
            .collect();
        rows.push((first, second, compare(&cases, SEED)));
    }
    let p_values: Vec<f64> = rows.iter().map(|(_, _, compared)| compared.p_value).collect();
    rows.into_iter()
        .zip(holm(&p_values))
        .map(|((first, second, compared), p_value)| {
            let compared = compared.corrected(p_value);
            ComparisonRow {
                first: first.clone(),
                second: second.clone(),
                pairs: compared.pairs,
                difference: compared.difference,
                interval: compared.interval,
                p_value,
                decision: compared.decision,
            }
        })
        .collect()
}

fn pair(interval: Interval) -> [f64; 2] {
    [interval.low, interval.high]
}

fn decision_json(decision: &Decision) -> Value {
    match decision {
        Decision::First => json!({"better": "first"}),
        Decision::Second => json!({"better": "second"}),
        Decision::Undecided { further_cases } => json!({"better": null, "further_cases": further_cases}),
    }
}

fn distribution_json(values: Option<&Distribution>) -> Value {
    values.map_or(Value::Null, |values| {
        json!({"p50": values.p50, "p95": values.p95, "min": values.min, "max": values.max, "sum": values.sum})
    })
}

fn variant_json(variant: &VariantReport) -> Value {
    json!({
        "runs": variant.runs(),
        "passed": variant.passed,
        "failed": variant.failed,
        "infrastructure": variant.infrastructure,
        "pass_rate": variant.pass_rate(),
        "interval": variant.interval.map(pair),
        "bounds": variant.bounds.map(pair),
        "pass_at_k": variant.pass_k,
        "cost_usd": variant.cost_usd.as_ref().map(|cost| cost.sum),
        "cost_per_run_usd": distribution_json(variant.cost_usd.as_ref()),
        "tokens": distribution_json(variant.tokens.as_ref()),
        "duration_ms": distribution_json(variant.duration_ms.as_ref()),
        "agents": variant.agents,
    })
}
