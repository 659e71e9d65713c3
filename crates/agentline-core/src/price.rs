//! Token prices: a dated table that the configuration can override, and the rules for applying it.

use crate::Tokens;
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::OnceLock,
};

/// The price table of this version.
const BUILT_IN: &str = include_str!("prices.toml");

/// Prefixes that agents put before a model id without changing the price.
const PREFIXES: &[&str] = &["models/", "google/", "gemini/", "anthropic/", "openai/"];

/// The price of a model in US dollars per million tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Price {
    /// Prompt tokens that were not cached.
    pub input: f64,
    /// Answer and thought tokens.
    pub output: f64,
    /// Cached prompt tokens. Defaults to `input`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cached: Option<f64>,
    /// Prompt tokens written to the short-lived cache (minutes). Defaults to `input`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_write: Option<f64>,
    /// Prompt tokens written to the one-hour cache. Defaults to `cache_write`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_write_long: Option<f64>,
    /// The price of a request with a long prompt. It applies to the whole request, not only to the excess.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub long: Option<LongPrice>,
}

/// The price of requests with a long prompt, in US dollars per million tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LongPrice {
    /// The price applies to prompts with more tokens than this, including cached ones.
    pub above: u64,
    /// See [`Price::input`].
    pub input: f64,
    /// See [`Price::output`].
    pub output: f64,
    /// See [`Price::cached`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cached: Option<f64>,
    /// See [`Price::cache_write`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_write: Option<f64>,
    /// See [`Price::cache_write_long`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_write_long: Option<f64>,
}

/// The cost of a number of tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Charge {
    /// The cost in US dollars.
    pub usd: f64,
    /// Whether the cost is an estimate: only the sum of several requests is known, but the price depends on the length
    /// of each prompt.
    pub estimated: bool,
}

impl Charge {
    /// Creates a charge from a reported amount.
    #[must_use]
    pub fn of(usd: f64) -> Self {
        Self { usd, estimated: false }
    }
}

impl Price {
    /// Returns the cost of the tokens of some requests, or `None` if too little is known about them.
    ///
    /// The price of long prompts applies to single requests. For several requests, their mean prompt length decides. If
    /// their number is not known, the lower price applies. Both are estimates.
    #[must_use]
    pub fn charge(&self, tokens: &Tokens, requests: Option<u64>) -> Option<Charge> {
        let (input, _) = (tokens.input?, tokens.output?);
        let prompt = match requests {
            Some(n) => input / n.max(1),
            None => 0,
        };
        let could_be_long = self.long.is_some_and(|long| input > long.above);
        let rates = self.long.filter(|long| prompt > long.above).map_or(*self, LongPrice::rates);
        // Cached and written tokens are disjoint parts of the prompt.
        let cached = tokens.cached.unwrap_or(0).min(input);
        let written = tokens.cache_write.unwrap_or(0).min(input - cached);
        let long_written = tokens.cache_write_long.unwrap_or(0).min(written);
        let fresh = input - cached - written;
        let write_price = rates.cache_write.unwrap_or(rates.input);
        let rows = [
            // Tokens from tools are billed as prompt tokens, in addition to the prompt.
            (fresh.saturating_add(tokens.tool.unwrap_or(0)), rates.input),
            (cached, rates.cached.unwrap_or(rates.input)),
            (written - long_written, write_price),
            (long_written, rates.cache_write_long.unwrap_or(write_price)),
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

/// The origin of rows of the price table.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct PriceSource {
    /// The maker of the models.
    pub maker: String,
    /// The date of the prices.
    pub as_of: String,
    /// Where the prices were published.
    pub source: String,
    /// The models.
    pub models: BTreeSet<String>,
}

/// Prices by model.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PriceTable {
    /// The date of the oldest prices.
    #[serde(default)]
    pub as_of: String,
    /// The prices by model id.
    #[serde(default)]
    pub models: BTreeMap<String, Price>,
    /// The origin of the prices. A row without a source was set by the user.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<PriceSource>,
}

/// The file format of the built-in table.
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
    /// Returns the price table of this version.
    #[must_use]
    pub fn built_in() -> Self {
        static TABLE: OnceLock<PriceTable> = OnceLock::new();
        TABLE.get_or_init(|| toml::from_str::<Sheet>(BUILT_IN).map(Self::from).unwrap_or_default()).clone()
    }

    /// Returns this table with the user's rows, which override existing ones.
    #[must_use]
    pub fn with(mut self, models: BTreeMap<String, Price>) -> Self {
        for source in &mut self.sources {
            source.models.retain(|model| !models.contains_key(model));
        }
        self.models.extend(models);
        self
    }

    /// Returns the price of a model: by its id or, for a release (`gemini-2.5-pro-preview-05-06`), by the
    /// longest known id that it extends.
    #[must_use]
    pub fn of(&self, model: &str) -> Option<Price> {
        self.row(model).map(|(_, price)| *price)
    }

    /// Returns the row that contains a model's price.
    #[must_use]
    pub fn row(&self, model: &str) -> Option<(&str, &Price)> {
        let exact = |model: &str| self.models.get_key_value(model);
        if let Some((id, price)) = exact(model) {
            return Some((id, price));
        }
        let bare = PREFIXES.iter().fold(model, |model, prefix| model.strip_prefix(prefix).unwrap_or(model));
        // Some agents append the size of the context window, which does not make it another model.
        let bare = bare.split_once('[').map_or(bare, |(bare, _)| bare);
        let is_release = |known: &str| {
            bare.strip_prefix(known).is_some_and(|rest| is_release_suffix(rest, known.ends_with("-preview")))
        };
        let releases = self.models.iter().filter(|(known, _)| is_release(known));
        let found = exact(bare).or_else(|| releases.max_by_key(|(known, _)| known.len()))?;
        Some((found.0, found.1))
    }

    /// Returns the origin of a row, or `None` if the user set it.
    #[must_use]
    pub fn source(&self, row: &str) -> Option<&PriceSource> {
        self.sources.iter().find(|source| source.models.contains(row))
    }

    /// Returns whether the user set the price of this model.
    #[must_use]
    pub fn is_yours(&self, model: &str) -> bool {
        self.row(model).is_some_and(|(row, _)| self.source(row).is_none())
    }

    /// Returns the cost of a model's tokens, as [`Price::charge`] does, or `None` if its price is not known.
    ///
    /// Zero tokens cost nothing, even if the price is not known.
    #[must_use]
    pub fn charge(&self, model: &str, tokens: &Tokens, requests: Option<u64>) -> Option<Charge> {
        if *tokens != Tokens::default() && tokens.sum() == 0 {
            return Some(Charge::default());
        }
        self.row(model)?.1.charge(tokens, requests)
    }

    /// Returns the cost of a run, or `None` if the price of one of its models is not known.
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

/// Returns whether a suffix names another release of the same model: `-preview-05-06`, `-001`, `-20250514`, `-latest`.
///
/// Other models (`-lite`) and the next version (`-5`) do not count.
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

/// The source of a cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum CostSource {
    /// Calculated from tokens and the price table.
    Prices,
    /// Reported by the agent.
    Agent,
    /// Calculated in part and reported in part.
    Mixed,
}

impl CostSource {
    pub(crate) fn and(self, other: Self) -> Self {
        if self == other { self } else { Self::Mixed }
    }
}

#[cfg(test)]
mod tests;
