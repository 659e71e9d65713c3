//! What tokens cost, from a dated table that a configuration can override.

use crate::Tokens;
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, sync::OnceLock};

/// The table that comes with this version.
const BUILT_IN: &str = include_str!("prices.toml");

/// US dollars for a million tokens of one model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Price {
    /// Prompt tokens that were not cached.
    pub input: f64,
    /// Answer and thoughts.
    pub output: f64,
    /// Prompt tokens that were cached; without it they cost as much as the others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cached: Option<f64>,
}

/// Prices by model.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PriceTable {
    /// The day on which they were read.
    #[serde(default)]
    pub as_of: String,
    /// By model id.
    #[serde(default)]
    pub models: BTreeMap<String, Price>,
}

impl PriceTable {
    /// The table that comes with this version.
    #[must_use]
    pub fn built_in() -> Self {
        static TABLE: OnceLock<PriceTable> = OnceLock::new();
        TABLE.get_or_init(|| toml::from_str(BUILT_IN).unwrap_or_default()).clone()
    }

    /// This table with rows of another on top.
    #[must_use]
    pub fn with(mut self, models: BTreeMap<String, Price>) -> Self {
        self.models.extend(models);
        self
    }

    /// The price of a model: by its id, or by the longest known id that it begins with (`gemini-2.5-pro-preview-05-06`).
    #[must_use]
    pub fn of(&self, model: &str) -> Option<Price> {
        let model = model.strip_prefix("models/").unwrap_or(model);
        if let Some(price) = self.models.get(model) {
            return Some(*price);
        }
        let versioned = |known: &str| model.strip_prefix(known).is_some_and(is_release_suffix);
        self.models
            .iter()
            .filter(|(known, _)| versioned(known))
            .max_by_key(|(known, _)| known.len())
            .map(|(_, p)| *p)
    }

    /// What a run cost, or `None` when the price of one of its models is not known.
    #[must_use]
    pub fn cost(&self, by_model: &BTreeMap<String, Tokens>) -> Option<f64> {
        if by_model.is_empty() {
            return None;
        }
        by_model.iter().filter(|(_, t)| t.sum() > 0).try_fold(0.0, |sum, (model, tokens)| {
            let price = self.of(model)?;
            let input = tokens.input?;
            let cached = tokens.cached.unwrap_or(0).min(input);
            let fresh = (input - cached) as f64 * price.input;
            let kept = cached as f64 * price.cached.unwrap_or(price.input);
            Some(sum + (fresh + kept + tokens.produced() as f64 * price.output) / 1e6)
        })
    }
}

/// `-preview-05-06`, `-001`, `-latest`: another release of the same model, not another model such as `-lite`.
fn is_release_suffix(rest: &str) -> bool {
    rest.strip_prefix('-').is_some_and(|r| {
        r.split('-').all(|part| {
            matches!(part, "preview" | "latest" | "exp")
                || (!part.is_empty() && part.chars().all(|c| c.is_ascii_digit()))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_table_is_readable_and_dated() {
        let table = PriceTable::built_in();
        assert!(table.models.len() > 5, "{table:?}");
        assert_eq!(table.as_of.len(), 10);
    }

    #[test]
    fn cached_tokens_are_cheaper_and_thoughts_cost_as_output() {
        let price = Price { input: 2.0, output: 10.0, cached: Some(0.5) };
        let table = PriceTable { as_of: String::new(), models: [("m".to_owned(), price)].into() };
        let tokens = Tokens {
            input: Some(1_000_000),
            cached: Some(400_000),
            output: Some(50_000),
            thoughts: Some(50_000),
            ..Tokens::default()
        };
        let cost = table.cost(&[("m-preview-05-06".to_owned(), tokens)].into()).unwrap();
        assert!((cost - (0.6 * 2.0 + 0.4 * 0.5 + 0.1 * 10.0)).abs() < 1e-9, "{cost}");
        assert_eq!(table.cost(&[("m-lite".to_owned(), tokens)].into()), None);
    }
}
