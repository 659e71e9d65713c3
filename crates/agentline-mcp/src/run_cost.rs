//! What a run has cost: while it works, as far as its agent reports its tokens, and at its end.

use agentline::{Failure, FailureKind, Outcome, Verdict, prices::PriceTable, usage::Usage};

/// Returns what this usage costs, or `None` if the price of a model is not known.
pub(crate) fn so_far(prices: &PriceTable, model: Option<&str>, usage: &Usage) -> Option<f64> {
    if usage.tokens.sum() == 0 {
        return Some(0.0);
    }
    if usage.by_model.is_empty() {
        return Some(prices.charge(model?, &usage.tokens, usage.requests)?.usd);
    }
    prices.cost(&usage.by_model)
}

/// Returns the cost of a run; 0 if it never asked a model.
pub(crate) fn of_outcome(outcome: &Outcome) -> Option<f64> {
    let is_unused = outcome.usage.tokens.total.unwrap_or(0) == 0 && outcome.turns == 0;
    outcome.cost_usd.or_else(|| is_unused.then_some(0.0))
}

/// Reports that the run ended because of its cost limit.
pub(crate) fn report_limit(outcome: &mut Outcome, message: String) {
    outcome.verdict = Verdict::LimitReached;
    outcome.error = Some(Failure::new(FailureKind::MaxCost, message));
}
