//! Token usage: how tokens are counted, where the numbers come from, and what an outcome reports.

use serde::{Deserialize, Serialize, Serializer};
use std::collections::BTreeMap;

/// Token counts. `None` means unknown, not zero.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Tokens {
    /// Prompt tokens, including cached ones.
    #[serde(rename = "input_tokens")]
    pub input: Option<u64>,
    /// Answer tokens, without thoughts.
    #[serde(rename = "output_tokens")]
    pub output: Option<u64>,
    /// The part of the prompt that was cached.
    #[serde(rename = "cached_tokens")]
    pub cached: Option<u64>,
    /// The part of the prompt that was written to the cache, which some providers charge for.
    #[serde(rename = "cache_write_tokens", skip_serializing_if = "Option::is_none")]
    pub cache_write: Option<u64>,
    /// The part of `cache_write` that is kept for an hour instead of minutes, at a higher price.
    #[serde(rename = "cache_write_long_tokens", skip_serializing_if = "Option::is_none")]
    pub cache_write_long: Option<u64>,
    /// Reasoning tokens.
    #[serde(rename = "thought_tokens")]
    pub thoughts: Option<u64>,
    /// Tool-use tokens, if they are counted separately.
    #[serde(rename = "tool_tokens", skip_serializing_if = "Option::is_none")]
    pub tool: Option<u64>,
    /// The total.
    #[serde(rename = "total_tokens")]
    pub total: Option<u64>,
}

impl Tokens {
    fn each(self, other: Self, mut f: impl FnMut(Option<u64>, Option<u64>) -> Option<u64>) -> Self {
        Self {
            input: f(self.input, other.input),
            output: f(self.output, other.output),
            cached: f(self.cached, other.cached),
            cache_write: f(self.cache_write, other.cache_write),
            cache_write_long: f(self.cache_write_long, other.cache_write_long),
            thoughts: f(self.thoughts, other.thoughts),
            tool: f(self.tool, other.tool),
            total: f(self.total, other.total),
        }
    }

    /// Adds two counts. A number that only one side knows is kept.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        self.each(other, |a, b| match (a, b) {
            (Some(a), Some(b)) => Some(a.saturating_add(b)),
            (a, b) => a.or(b),
        })
    }

    /// Subtracts a count, with zero as the minimum.
    #[must_use]
    pub fn minus(self, other: Self) -> Self {
        self.each(other, |a, b| a.map(|a| a.saturating_sub(b.unwrap_or(0))))
    }

    /// Returns the increase of a cumulative counter since `before`.
    ///
    /// If the counter is lower than before, it was reset, and its whole value is new.
    #[must_use]
    pub fn since(self, before: Self) -> Self {
        let mut fell = false;
        _ = self.each(before, |now, then| {
            fell |= matches!((now, then), (Some(now), Some(then)) if now < then);
            None
        });
        if fell { self } else { self.minus(before) }
    }

    /// Returns each number with its name, in display order.
    #[must_use]
    pub fn fields(&self) -> [(&'static str, Option<u64>); 8] {
        [
            ("input_tokens", self.input),
            ("output_tokens", self.output),
            ("cached_tokens", self.cached),
            ("cache_write_tokens", self.cache_write),
            ("cache_write_long_tokens", self.cache_write_long),
            ("thought_tokens", self.thoughts),
            ("tool_tokens", self.tool),
            ("total_tokens", self.total),
        ]
    }

    /// Fills in unknown numbers from the other count.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        self.each(other, Option::or)
    }

    /// Returns the larger of each pair of numbers. A number that only one side knows is kept.
    #[must_use]
    pub fn at_least(self, other: Self) -> Self {
        self.each(other, Option::max)
    }

    /// Derives unknown thoughts from the total, for surfaces that report only sums. If the other parts add up to the
    /// total, the thoughts stay unknown, because the output may include them.
    pub(crate) fn with_derived_thoughts(mut self) -> Self {
        if let (None, Some(all), Some(i), Some(o)) = (self.thoughts, self.total, self.input, self.output) {
            let rest = all.checked_sub(i.saturating_add(o).saturating_add(self.tool.unwrap_or(0)));
            self.thoughts = rest.filter(|rest| *rest > 0 || all == 0);
        }
        self
    }

    /// Raises a known total to the sum of its parts, for a total that covers less than they do.
    pub(crate) fn with_plausible_total(mut self) -> Self {
        let parts = Self { total: None, ..self }.sum();
        self.total = self.total.map(|total| total.max(parts));
        self
    }

    /// Returns the reported total, or the sum of the parts.
    #[must_use]
    pub fn sum(&self) -> u64 {
        let parts = [self.input, self.output, self.thoughts, self.tool];
        self.total.unwrap_or_else(|| parts.into_iter().flatten().fold(0, u64::saturating_add))
    }

    /// Returns the tokens billed as output: answer and thoughts.
    #[must_use]
    pub fn produced(&self) -> u64 {
        self.output.unwrap_or(0).saturating_add(self.thoughts.unwrap_or(0))
    }
}

/// The scope of a reported number.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CountScope {
    /// The whole run.
    Run,
    /// The part of the run that used one model.
    Model(String),
    /// The whole session. The usage before the run is subtracted.
    Session,
    /// One call to a model, by id. A later report replaces an earlier one.
    Call(String),
}

/// The source of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum UsageSource {
    /// The agent's output.
    Stream,
    /// The session file.
    SessionFile,
    /// Calculated as the remainder of a total.
    Derived,
}

/// A token count that the agent reported.
#[derive(Clone, Debug)]
pub struct TokenCount {
    /// The source of the report.
    pub source: UsageSource,
    /// The scope of the count.
    pub span: CountScope,
    /// The model, for a call.
    pub model: Option<String>,
    /// The tokens.
    pub tokens: Tokens,
    /// The number of requests to the model, if reported.
    pub requests: Option<u64>,
}

impl TokenCount {
    /// Creates a count without a model.
    #[must_use]
    pub fn new(source: UsageSource, span: CountScope, tokens: Tokens) -> Self {
        Self { source, span, model: None, tokens, requests: None }
    }
}

/// The usage of one answer of a model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct TurnUsage {
    /// The number of the answer in the run, starting at 1.
    pub turn: u32,
    /// The model, if the agent reported it.
    pub model: Option<String>,
    /// The tokens.
    #[serde(flatten)]
    pub tokens: Tokens,
    /// The source of the numbers.
    pub source: UsageSource,
}

/// The token usage in an outcome.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Usage {
    /// The sum over all models.
    #[serde(flatten)]
    pub tokens: Tokens,
    /// The number of requests to the model.
    pub requests: Option<u64>,
    /// The tokens by model.
    pub by_model: BTreeMap<String, Tokens>,
    /// The sources of the numbers.
    pub sources: Vec<UsageSource>,
    /// The source of each number, by its name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub origins: BTreeMap<String, UsageSource>,
    /// The usage of each answer, if the agent reports answers separately.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub turns: Vec<TurnUsage>,
    /// How full the model's context window is, if the agent reports it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<ContextWindow>,
}

/// How full a model's context window is. It can become emptier when the agent summarizes the conversation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ContextWindow {
    /// The number of tokens in the context.
    pub used: u64,
    /// The number of tokens that fit.
    pub size: Option<u64>,
}

impl ContextWindow {
    /// Creates a value.
    #[must_use]
    pub fn new(used: u64, size: Option<u64>) -> Self {
        Self { used, size }
    }
}

/// The total usage and cost of the runs of a conversation.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct UsageTotals {
    /// The number of runs.
    pub runs: u32,
    /// The number of requests to the model, as far as known.
    pub requests: u64,
    /// The sum over all models.
    #[serde(flatten)]
    pub tokens: Tokens,
    /// The tokens by model.
    pub by_model: BTreeMap<String, Tokens>,
    /// The cost in US dollars, or `None` if the cost of a run is not known.
    #[serde(serialize_with = "serialize_known_usd")]
    pub cost_usd: Option<f64>,
    /// The cost in US dollars of the runs with a known cost: a lower bound.
    #[serde(serialize_with = "serialize_usd")]
    pub known_cost_usd: f64,
}

/// Rounds an amount in US dollars to six significant digits, which removes the remainders of binary fractions.
#[must_use]
pub fn round_usd(usd: f64) -> f64 {
    if usd.is_finite() { format!("{usd:.5e}").parse().unwrap_or(usd) } else { usd }
}

/// Serializes a rounded amount in US dollars.
pub(crate) fn serialize_usd<S: Serializer>(usd: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(round_usd(*usd))
}

/// Serializes a rounded amount in US dollars that may be unknown.
pub(crate) fn serialize_known_usd<S: Serializer>(
    usd: &Option<f64>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    usd.map(round_usd).serialize(serializer)
}
