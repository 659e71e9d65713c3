//! What a run has cost: while it works, as far as its agent reports its tokens, and at its end.

use agentline::{
    FailureKind, Outcome, Usage, Verdict,
    outcome::{Failure, RunError},
    prices::PriceTable,
};

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
    outcome.error = Some(RunError::new(Failure::new(FailureKind::MaxCost, message), String::new()));
}

#[cfg(test)]
mod tests {
    use super::*;
    use agentline::Tokens;

    #[test]
    fn cost_so_far_is_that_of_the_reported_tokens() {
        let prices = PriceTable::built_in();
        let cost = |usage: &Usage, model| so_far(&prices, model, usage);
        let mut usage = Usage::default();
        assert_eq!(cost(&usage, None), Some(0.0), "no request yet");
        let mut tokens = Tokens::default();
        (tokens.input, tokens.output) = (Some(1_000_000), Some(0));
        usage.tokens = tokens;
        let expected = prices.charge("gemini-2.5-flash", &tokens, None).unwrap().usd;
        assert!(expected > 0.0);
        assert_eq!(cost(&usage, Some("gemini-2.5-flash")), Some(expected));
        assert_eq!((cost(&usage, None), cost(&usage, Some("unpriced"))), (None, None));
        usage.by_model = [("gemini-2.5-flash".to_owned(), tokens)].into();
        assert_eq!(cost(&usage, None), Some(expected));
        usage.by_model.insert("unpriced".to_owned(), tokens);
        assert_eq!(cost(&usage, None), None);
    }
}
