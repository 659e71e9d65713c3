//! Compares two experiments.

use super::numbers::{comparisons, counts};
use super::{ChangedResult, ExperimentReport};
use crate::result::RunResult;

impl ExperimentReport {
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
        for (side, of) in [("A", before), ("B", after)] {
            for variant in &of.variants {
                let id = format!("{side}: {}", variant.id);
                let Some(shown) = report.variants.iter_mut().find(|shown| shown.id == id) else { continue };
                shown.dir.clone_from(&variant.dir);
                shown.settings.clone_from(&variant.settings);
                shown.total_cost_usd = variant.total_cost_usd;
                shown.judge_cost_usd = variant.judge_cost_usd;
            }
        }
        report.left_out = before.left_out + after.left_out;
        // What is known about the variants was found again under their new names.
        for (side, of) in [("A", before), ("B", after)].into_iter().filter(|(_, of)| of.left_out > 0) {
            report.warnings.push(format!("{side}: {} results of other suites are left out", of.left_out));
        }
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
}
