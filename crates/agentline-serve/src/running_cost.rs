//! The cost of a run so far, which agents report only at its end.

use agentline::prices::PriceTable;
use agentline_core::{Usage, round_usd};
use std::collections::BTreeMap;

/// Returns a `usage` event with its cost in US dollars, and the cost; `None` if the price of a model is not known. `model`
/// is the model of the run, for agents that do not name one.
pub(crate) fn with_cost(event: &str, prices: &PriceTable, model: Option<&str>) -> Option<(String, f64)> {
    let usage: Usage = serde_json::from_str(event).ok()?;
    let cost = match model {
        Some(model) if usage.by_model.is_empty() => {
            prices.cost(&BTreeMap::from([(model.to_owned(), usage.tokens)]))
        }
        _ => prices.cost(&usage.by_model),
    };
    let cost = round_usd(cost?);
    let fields = event.trim_end().strip_suffix('}')?;
    Some((format!("{fields},\"cost_usd\":{cost}}}"), cost))
}

#[cfg(test)]
mod tests {
    use super::*;
    use agentline::prices::Price;
    use serde_json::{Value, json};

    fn prices() -> PriceTable {
        let mut price = Price::default();
        (price.input, price.output) = (1.0, 10.0);
        PriceTable::default().with(BTreeMap::from([("known".to_owned(), price)]))
    }

    fn cost(event: &Value, model: Option<&str>) -> Option<f64> {
        let (text, cost) = with_cost(&event.to_string(), &prices(), model)?;
        let with: Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&with["cost_usd"], &with["seq"]), (&json!(cost), &event["seq"]));
        Some(cost)
    }

    #[test]
    fn cost_is_that_of_all_models() {
        let tokens = json!({"input_tokens": 1_000, "output_tokens": 200});
        let event = |by_model: Value| {
            json!({"seq": 3, "type": "usage", "input_tokens": 1_000, "output_tokens": 200, "requests": null,
                "by_model": by_model, "sources": []})
        };
        assert_eq!(cost(&event(json!({"known": tokens})), None), Some(0.003));
        let unnamed = event(json!({}));
        assert_eq!(cost(&unnamed, Some("known")), Some(0.003));
        assert_eq!(cost(&unnamed, Some("other")), None);
        assert_eq!(cost(&unnamed, None), None);
        assert_eq!(cost(&event(json!({"known": tokens, "other": tokens})), Some("known")), None);
    }
}
