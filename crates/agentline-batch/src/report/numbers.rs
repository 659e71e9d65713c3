//! Computes the numbers of a report from results.

use super::{CaseReport, ComparisonRow, PassK, VariantReport};
use crate::class::Class;
use crate::result::RunResult;
use crate::stats::{
    CaseCount, Distribution, PairedCase, bounds, compare, holm, interval, pass_all_k, pass_at_k,
};
use std::collections::BTreeSet;
use std::path::PathBuf;

/// The seed of the tests in a report, so that the same results give the same report.
const SEED: u64 = 15;

/// Returns the ids that are used: those of the suite in its order, then the others.
pub(super) fn ordered<'a>(first: &[String], all: impl Iterator<Item = &'a str>) -> Vec<String> {
    let used: BTreeSet<&str> = all.collect();
    let mut seen = BTreeSet::new();
    let is_used = |id: &&String| used.contains(id.as_str());
    let mut ids: Vec<String> = first.iter().filter(is_used).filter(|id| seen.insert(*id)).cloned().collect();
    let known: BTreeSet<String> = ids.iter().cloned().collect();
    ids.extend(used.into_iter().filter(|id| !known.contains(*id)).map(str::to_owned));
    ids
}

/// Counts the valid runs of a case with a variant.
pub(super) fn counts(case: &CaseReport, variant: &str) -> CaseCount {
    let mut count = CaseCount { passed: 0, valid: 0 };
    for run in case.runs.iter().filter(|run| run.variant == variant && run.is_valid()) {
        count.valid += 1;
        count.passed += u32::from(run.class == Class::Passed);
    }
    count
}

/// Computes the numbers of a variant.
pub(super) fn variant(id: &str, cases: &[CaseReport]) -> VariantReport {
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
        settings: Default::default(),
        passed,
        failed,
        infrastructure,
        interval: interval(&counted),
        bounds: bounds(passed, failed, infrastructure),
        pass_k: pass_k.collect(),
        cost_usd: Distribution::of(valid().filter_map(|run| run.cost_usd)),
        total_cost_usd: runs.iter().filter_map(|run| run.cost_usd).reduce(|a, b| a + b),
        judge_cost_usd: runs.iter().filter_map(|run| run.judge_cost_usd).reduce(|a, b| a + b),
        tokens: Distribution::of(valid().filter_map(|run| run.tokens).map(float)),
        duration_ms: Distribution::of(valid().map(|run| float(run.duration_ms))),
        agents: runs.iter().filter(|run| !run.agent.is_empty()).map(|run| agent(run)).collect(),
        models: runs.iter().filter_map(|run| run.model.clone()).collect(),
        dir: PathBuf::new(),
    }
}

fn agent(run: &RunResult) -> String {
    match &run.agent_version {
        Some(version) => format!("{} {version}", run.agent),
        None => run.agent.clone(),
    }
}

/// Returns what the runs of a variant mix.
pub(super) fn mixtures(variant: &VariantReport) -> impl Iterator<Item = String> {
    let kinds = [("agents or versions", &variant.agents), ("models", &variant.models)];
    kinds.into_iter().filter(|(_, names)| names.len() > 1).map(|(kind, names)| {
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        format!("the variant `{}` mixes {kind}: {}", variant.id, names.join(", "))
    })
}

/// Returns a warning about runs whose final workspace is not stored.
pub(super) fn not_stored(cases: &[CaseReport]) -> Option<String> {
    let reasons = cases.iter().flat_map(|case| &case.runs).filter_map(|run| run.not_stored.as_ref());
    let reasons: Vec<&String> = reasons.collect();
    let first = reasons.first()?;
    Some(format!(
        "the changes of {} runs are not stored, so `batch grade` cannot check their files: {first}",
        reasons.len()
    ))
}

/// Returns each variant with each later one.
pub(super) fn every_pair(variants: &[String]) -> Vec<(String, String)> {
    let pairs = variants.iter().enumerate().flat_map(|(index, first)| {
        variants[index + 1..].iter().map(move |second| (first.clone(), second.clone()))
    });
    pairs.collect()
}

/// Compares the variants of each pair, corrected for the number of comparisons.
pub(super) fn comparisons(pairs: &[(String, String)], cases: &[CaseReport]) -> Vec<ComparisonRow> {
    let mut rows = Vec::new();
    for (first, second) in pairs {
        let cases: Vec<PairedCase> = cases
            .iter()
            .map(|case| PairedCase { first: counts(case, first), second: counts(case, second) })
            .collect();
        rows.push((first, second, compare(&cases, SEED)));
    }
    let p_values: Vec<f64> = rows.iter().map(|(_, _, compared)| compared.p_value).collect();
    let number = rows.len();
    rows.into_iter()
        .zip(holm(&p_values))
        .map(|((first, second, compared), p_value)| {
            let compared = compared.corrected(p_value, number);
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
