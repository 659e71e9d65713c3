//! What a batch may cost, from the limits of its runs and from earlier results.

use super::requests::requests;
use super::rerun::RerunPlan;
use super::suite_runs::run_keys;
use super::{BatchError, Rerun};
use crate::result::RunResult;
use crate::store::Experiment;
use crate::suite::{RunIndex, Suite};
use agentline::Agentline;
use serde_json::{Map, Value};

/// What the runs without a result will probably cost, in US dollars.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct PriceRange {
    /// The sum of the lowest costs of earlier results; 0 if only limits are known.
    pub least: f64,
    /// The sum of the highest costs of earlier results, or of the limits of the runs.
    pub most: f64,
    /// The number of earlier results with a cost that were used.
    pub results: usize,
}

/// What a batch would do.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct BatchForecast {
    /// The number of runs that already have a result and are not executed again.
    pub finished: usize,
    /// What the other runs will probably cost, if limits or earlier results tell.
    pub price: Option<PriceRange>,
    /// The number of runs with MCP servers for which the suite does not say whether they are repeatable.
    pub undeclared: usize,
}

impl BatchForecast {
    /// Looks at a suite, and at its experiment if there is one already. Starts nothing.
    ///
    /// # Errors
    /// Fails if the experiment cannot be read.
    pub fn new(
        agentline: &Agentline,
        suite: &Suite,
        experiment: Option<&Experiment>,
        rerun: Rerun,
    ) -> Result<Self, BatchError> {
        let rerun = experiment.map(|experiment| RerunPlan::stored(experiment, rerun)).transpose()?;
        let stored = experiment.map_or_else(|| Ok(Default::default()), Experiment::results)?;
        // A workspace that cannot be read now may be there later, and without results its content does not matter.
        let keys = if stored.is_empty() { None } else { run_keys(agentline, suite).ok() };
        let result = |run: &RunIndex| stored.get(&keys.as_ref()?.key(*run));
        let is_rerun = |result: &RunResult| rerun.as_ref().is_some_and(|plan| plan.includes(result));
        let is_finished = |run: &RunIndex| result(run).is_some_and(|result| !is_rerun(result));
        let (finished, waiting): (Vec<RunIndex>, Vec<RunIndex>) = suite.runs().partition(is_finished);
        let results: Vec<&RunResult> = stored.values().filter(|result| result.cost_usd.is_some()).collect();
        let undeclared = undeclared(agentline, suite);
        Ok(Self { finished: finished.len(), price: price(suite, &waiting, &results), undeclared })
    }
}

/// Returns the number of runs with MCP servers, which may have effects outside the workspace, for which the suite does
/// not say whether they are repeatable.
fn undeclared(agentline: &Agentline, suite: &Suite) -> usize {
    // Invalid settings are reported where they are validated.
    let requests = requests(agentline, suite).unwrap_or_default();
    let has_servers = |settings: &Map<String, Value>| {
        let request = requests.get(settings).map(|(_, request)| request);
        request.is_some_and(|request| !request.mcp_servers.is_empty() || request.mcp_settings_path.is_some())
    };
    let all = suite.cases.iter().flat_map(|case| case.settings.iter().zip(&case.repeatable));
    let undeclared = all.filter(|(settings, repeatable)| repeatable.is_none() && has_servers(settings));
    undeclared.count() * suite.repeat as usize
}

/// Returns the cost of runs: of each by the results of its case with its variant, or else by those of its variant, and at
/// most its limit.
fn price(suite: &Suite, runs: &[RunIndex], results: &[&RunResult]) -> Option<PriceRange> {
    let mut sum = PriceRange { least: 0.0, most: 0.0, results: results.len() };
    let mut is_known = true;
    for run in runs {
        let (case, variant) = (&suite.cases[run.case], &suite.variants[run.variant]);
        let settings = &case.settings[run.variant];
        let limit = settings.get("max_cost").or_else(|| settings.get("max_budget_usd"));
        let limit = limit.and_then(serde_json::Value::as_f64);
        let of_variant = || results.iter().filter(|result| result.variant == variant.id);
        let earlier = range(of_variant().filter(|result| result.case == case.id))
            .or_else(|| range(of_variant()))
            .map(|(least, most)| limit.map_or((least, most), |limit| (least.min(limit), most.min(limit))));
        match earlier.or(limit.map(|limit| (0.0, limit))) {
            Some((least, most)) => (sum.least, sum.most) = (sum.least + least, sum.most + most),
            None => is_known = false,
        }
    }
    match suite.limits.cost_usd {
        Some(all) if !is_known => Some(PriceRange { least: 0.0, most: all, ..sum }),
        Some(all) => Some(PriceRange { least: sum.least.min(all), most: sum.most.min(all), ..sum }),
        None => is_known.then_some(sum),
    }
}

/// Returns the lowest and the highest cost of results; `None` without results.
fn range<'a>(results: impl Iterator<Item = &'a &'a RunResult>) -> Option<(f64, f64)> {
    let costs = results.filter_map(|result| result.cost_usd);
    costs.fold(None, |range, cost| {
        let (least, most) = range.unwrap_or((cost, cost));
        Some((least.min(cost), most.max(cost)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suite::{SuiteInput, load};

    fn suite(text: &str) -> Suite {
        let input = SuiteInput::Text { name: "suite".into(), text: text.into(), base: std::env::temp_dir() };
        load(&input, &Map::new()).expect("a suite")
    }

    fn result(case: &str, cost: f64) -> RunResult {
        RunResult { cost_usd: Some(cost), ..RunResult::example("00", case, "v", "passed") }
    }

    #[test]
    fn earlier_results_and_limits_give_the_price() {
        let cases = "cases: [{id: a, prompt: x}, {id: b, prompt: y}]\nvariants: [{id: v";
        let earlier = [result("a", 0.2), result("a", 0.4)];
        let results: Vec<&RunResult> = earlier.iter().collect();
        let of = |text: &str, results: &[&RunResult]| {
            let suite = suite(&format!("{cases}{text}"));
            let runs: Vec<RunIndex> = suite.runs().collect();
            let cents = |dollars: f64| (dollars * 100.0).round();
            price(&suite, &runs, results).map(|price| (cents(price.least), cents(price.most)))
        };
        assert_eq!(of("}]", &[]), None);
        // The case `b` has no result, so it is estimated by its variant.
        assert_eq!(of("}]", &results), Some((40.0, 80.0)));
        assert_eq!(of(", max_cost: 0.3}]", &results), Some((40.0, 60.0)));
        assert_eq!(of(", max_cost: 0.3}]", &[]), Some((0.0, 60.0)));
        assert_eq!(of("}]\nlimits: {cost: 0.5}", &results), Some((40.0, 50.0)));
        assert_eq!(of("}]\nlimits: {cost: 0.5}", &[]), Some((0.0, 50.0)));
    }
}
