//! What tokens cost: a dated table that a configuration can override, and its rules.

use crate::Tokens;
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::OnceLock,
};

/// The table that comes with this version.
const BUILT_IN: &str = include_str!("prices.toml");

/// What agents put before a model's own id, where the model is its maker's and costs the maker's price.
const PREFIXES: &[&str] = &["models/", "google/", "gemini/", "anthropic/", "openai/"];

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
    /// Prompt tokens that were written to the cache for minutes; without it they cost as much as the others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_write: Option<f64>,
    /// Prompt tokens that were written to the cache for an hour; without it they cost as much as those for minutes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_write_long: Option<f64>,
    /// What a request costs whose prompt is long: all of it, not only what is beyond.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub long: Option<LongPrice>,
}

/// US dollars for a million tokens of a request with a long prompt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LongPrice {
    /// It holds for prompts of more tokens than this, cached ones included.
    pub above: u64,
    /// As [`Price::input`].
    pub input: f64,
    /// As [`Price::output`].
    pub output: f64,
    /// As [`Price::cached`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cached: Option<f64>,
    /// As [`Price::cache_write`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_write: Option<f64>,
    /// As [`Price::cache_write_long`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_write_long: Option<f64>,
}

/// What tokens cost.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Charge {
    /// US dollars.
    pub usd: f64,
    /// Several requests are known only as a sum, and how long each prompt was decides the price: it may be another.
    pub estimated: bool,
}

impl Charge {
    /// A sum of money that somebody named.
    #[must_use]
    pub fn of(usd: f64) -> Self {
        Self { usd, estimated: false }
    }
}

impl Price {
    /// What tokens of so many requests cost; `None` where too little is known of them. The price of long prompts is a
    /// rule for single requests: of several, their mean decides, and where their number is not known the lower price
    /// holds; both are estimates.
    #[must_use]
    pub fn charge(&self, tokens: &Tokens, requests: Option<u64>) -> Option<Charge> {
        let (input, _) = (tokens.input?, tokens.output?);
        let prompt = match requests {
            Some(n) => input / n.max(1),
            None => 0,
        };
        let could_be_long = self.long.is_some_and(|long| input > long.above);
        let rates = self.long.filter(|long| prompt > long.above).map_or(*self, LongPrice::rates);
        // Cached and written tokens are parts of the prompt, and never the same ones.
        let cached = tokens.cached.unwrap_or(0).min(input);
        let written = tokens.cache_write.unwrap_or(0).min(input - cached);
        let kept_long = tokens.cache_write_long.unwrap_or(0).min(written);
        let fresh = input - cached - written;
        let write_price = rates.cache_write.unwrap_or(rates.input);
        let rows = [
            // What tools brought in counts as prompt, beside the prompt.
            (fresh.saturating_add(tokens.tool.unwrap_or(0)), rates.input),
            (cached, rates.cached.unwrap_or(rates.input)),
            (written - kept_long, write_price),
            (kept_long, rates.cache_write_long.unwrap_or(write_price)),
            (tokens.produced(), rates.output),
        ];
        let usd = rows.iter().map(|(tokens, price)| *tokens as f64 * price).sum::<f64>() / 1e6;
        Some(Charge { usd, estimated: could_be_long && requests != Some(1) })
    }
}

impl LongPrice {
    fn rates(self) -> Price {
        let Self { above: _, input, output, cached, cache_write, cache_write_long } = self;
        Price { input, output, cached, cache_write, cache_write_long, long: None }
    }
}

/// Where rows of the table come from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct PriceSource {
    /// Who makes the models.
    pub maker: String,
    /// The day that the prices are of.
    pub as_of: String,
    /// Where they were read.
    pub source: String,
    /// The models.
    pub models: BTreeSet<String>,
}

/// Prices by model.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PriceTable {
    /// The day that the oldest of them is of.
    #[serde(default)]
    pub as_of: String,
    /// By model id.
    #[serde(default)]
    pub models: BTreeMap<String, Price>,
    /// Where they come from; a row that no source has was set by you.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<PriceSource>,
}

/// The built-in table as it is written.
#[derive(Deserialize)]
struct Sheet {
    maker: Vec<MakerSheet>,
}

#[derive(Deserialize)]
struct MakerSheet {
    name: String,
    as_of: String,
    source: String,
    models: BTreeMap<String, Price>,
}

impl From<Sheet> for PriceTable {
    fn from(sheet: Sheet) -> Self {
        let mut table = Self::default();
        for maker in sheet.maker {
            let models = maker.models.keys().cloned().collect();
            table.sources.push(PriceSource {
                maker: maker.name,
                as_of: maker.as_of,
                source: maker.source,
                models,
            });
            table.models.extend(maker.models);
        }
        table.as_of = table.sources.iter().map(|s| s.as_of.clone()).min().unwrap_or_default();
        table
    }
}

impl PriceTable {
    /// The table that comes with this version.
    #[must_use]
    pub fn built_in() -> Self {
        static TABLE: OnceLock<PriceTable> = OnceLock::new();
        TABLE.get_or_init(|| toml::from_str::<Sheet>(BUILT_IN).map(Self::from).unwrap_or_default()).clone()
    }

    /// This table with rows of yours on top.
    #[must_use]
    pub fn with(mut self, models: BTreeMap<String, Price>) -> Self {
        for source in &mut self.sources {
            source.models.retain(|model| !models.contains_key(model));
        }
        self.models.extend(models);
        self
    }

    /// The price of a model: by its id, or by the longest known id of which it is a release
    /// (`gemini-2.5-pro-preview-05-06`).
    #[must_use]
    pub fn of(&self, model: &str) -> Option<Price> {
        self.row(model).map(|(_, price)| *price)
    }

    /// The row that a model's price is read from.
    #[must_use]
    pub fn row(&self, model: &str) -> Option<(&str, &Price)> {
        let exact = |model: &str| self.models.get_key_value(model);
        if let Some((id, price)) = exact(model) {
            return Some((id, price));
        }
        let bare = PREFIXES.iter().fold(model, |model, prefix| model.strip_prefix(prefix).unwrap_or(model));
        // Some agents mark the size of the window, which is no other model.
        let bare = bare.split_once('[').map_or(bare, |(bare, _)| bare);
        let is_release = |known: &str| {
            bare.strip_prefix(known).is_some_and(|rest| is_release_suffix(rest, known.ends_with("-preview")))
        };
        let releases = self.models.iter().filter(|(known, _)| is_release(known));
        let found = exact(bare).or_else(|| releases.max_by_key(|(known, _)| known.len()))?;
        Some((found.0, found.1))
    }

    /// Where a row comes from; `None` for one of yours.
    #[must_use]
    pub fn source(&self, row: &str) -> Option<&PriceSource> {
        self.sources.iter().find(|source| source.models.contains(row))
    }

    /// Whether you set the price of this model yourself.
    #[must_use]
    pub fn is_yours(&self, model: &str) -> bool {
        self.row(model).is_some_and(|(row, _)| self.source(row).is_none())
    }

    /// What tokens of a model cost, as [`Price::charge`]; `None` when its price is not known. No tokens cost nothing.
    #[must_use]
    pub fn charge(&self, model: &str, tokens: &Tokens, requests: Option<u64>) -> Option<Charge> {
        if *tokens != Tokens::default() && tokens.sum() == 0 {
            return Some(Charge::default());
        }
        self.row(model)?.1.charge(tokens, requests)
    }

    /// What a run cost, or `None` when the price of one of its models is not known.
    #[must_use]
    pub fn cost(&self, by_model: &BTreeMap<String, Tokens>) -> Option<f64> {
        if by_model.is_empty() {
            return None;
        }
        by_model
            .iter()
            .try_fold(0.0, |sum, (model, tokens)| Some(sum + self.charge(model, tokens, None)?.usd))
    }
}

/// `-preview-05-06`, `-001`, `-20250514`, `-latest`: another release of the same model, not another model such as `-lite`
/// or the next version `-5`.
fn is_release_suffix(rest: &str, mut dated: bool) -> bool {
    let Some(parts) = rest.strip_prefix('-') else { return false };
    parts.split('-').all(|part| {
        let is_number = !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
        let is_word = matches!(part, "preview" | "latest" | "exp");
        let fits = is_word || (is_number && (dated || part.len() >= 3));
        dated = true;
        fits
    })
}

#[cfg(test)]
mod tests;
