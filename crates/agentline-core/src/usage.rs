//! Tokens: how they are counted, where the numbers come from, and what an outcome tells of them.

mod book;

pub use book::UsageBook;

use crate::Outcome;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Counts of tokens; `None` is not known, which is not zero.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Tokens {
    /// Prompt, cached ones included.
    #[serde(rename = "input_tokens")]
    pub input: Option<u64>,
    /// Answer, thoughts apart.
    #[serde(rename = "output_tokens")]
    pub output: Option<u64>,
    /// Part of the prompt that was cached.
    #[serde(rename = "cached_tokens")]
    pub cached: Option<u64>,
    /// Part of the prompt that was written to the cache, which some makers charge for.
    #[serde(rename = "cache_write_tokens", skip_serializing_if = "Option::is_none")]
    pub cache_write: Option<u64>,
    /// Part of that which is kept for an hour instead of minutes, at a higher price.
    #[serde(rename = "cache_write_long_tokens", skip_serializing_if = "Option::is_none")]
    pub cache_write_long: Option<u64>,
    /// Reasoning.
    #[serde(rename = "thought_tokens")]
    pub thoughts: Option<u64>,
    /// Tool use, where it is counted apart.
    #[serde(rename = "tool_tokens", skip_serializing_if = "Option::is_none")]
    pub tool: Option<u64>,
    /// All of them.
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

    /// Adds; what only one side knows stays.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        self.each(other, |a, b| match (a, b) {
            (Some(a), Some(b)) => Some(a.saturating_add(b)),
            (a, b) => a.or(b),
        })
    }

    /// Takes away; never below zero.
    #[must_use]
    pub fn minus(self, other: Self) -> Self {
        self.each(other, |a, b| a.map(|a| a.saturating_sub(b.unwrap_or(0))))
    }

    /// What a counter that only goes up has counted since it stood at `before`. One that stands lower was started anew,
    /// and all that it says is new.
    #[must_use]
    pub fn since(self, before: Self) -> Self {
        let mut fell = false;
        _ = self.each(before, |now, then| {
            fell |= matches!((now, then), (Some(now), Some(then)) if now < then);
            None
        });
        if fell { self } else { self.minus(before) }
    }

    /// Each number with its name, in the order in which they are shown.
    #[must_use]
    pub fn named(&self) -> [(&'static str, Option<u64>); 8] {
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

    /// Takes from the other what is not known here.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        self.each(other, Option::or)
    }

    /// The total, said or summed.
    #[must_use]
    pub fn sum(&self) -> u64 {
        let parts = [self.input, self.output, self.thoughts, self.tool];
        self.total.unwrap_or_else(|| parts.into_iter().flatten().fold(0, u64::saturating_add))
    }

    /// What is billed as output: the answer and the thoughts.
    #[must_use]
    pub fn produced(&self) -> u64 {
        self.output.unwrap_or(0).saturating_add(self.thoughts.unwrap_or(0))
    }
}

/// How a number was meant when the agent said it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Span {
    /// All of this run.
    Run,
    /// All of this run that went to one model.
    Model(String),
    /// Since the session began: what was there before is taken away.
    Session,
    /// One call of a model, by name: said again, it replaces.
    Call(String),
}

/// Where a number came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Source {
    /// The agent's own output.
    Stream,
    /// The session file.
    SessionFile,
    /// Nobody said it: it is what remains of a total.
    Derived,
}

/// Something the agent said about tokens.
#[derive(Clone, Debug)]
pub struct Count {
    /// Where it said it.
    pub source: Source,
    /// What it covers.
    pub span: Span,
    /// Which model, for a call.
    pub model: Option<String>,
    /// How many.
    pub tokens: Tokens,
    /// How many requests to the model, where it is said.
    pub requests: Option<u64>,
}

impl Count {
    /// A count without a model.
    #[must_use]
    pub fn new(source: Source, span: Span, tokens: Tokens) -> Self {
        Self { source, span, model: None, tokens, requests: None }
    }
}

/// One answer of a model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct TurnUsage {
    /// Which answer of the run, from 1.
    pub turn: u32,
    /// The model, as far as the agent said.
    pub model: Option<String>,
    /// What it used.
    #[serde(flatten)]
    pub tokens: Tokens,
    /// Where that was said.
    pub source: Source,
}

/// What the outcome tells about tokens.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Usage {
    /// All models together.
    #[serde(flatten)]
    pub tokens: Tokens,
    /// Requests to the model.
    pub requests: Option<u64>,
    /// Each model alone.
    pub by_model: BTreeMap<String, Tokens>,
    /// Where the numbers came from.
    pub sources: Vec<Source>,
    /// Where each number came from, by its name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub origins: BTreeMap<String, Source>,
    /// Each answer of a model alone, where the agent tells them apart.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub turns: Vec<TurnUsage>,
}

/// What the prompts of a conversation have used and cost together.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Spent {
    /// How many runs.
    pub runs: u32,
    /// Requests to the model, as far as they are known.
    pub requests: u64,
    /// All models together.
    #[serde(flatten)]
    pub tokens: Tokens,
    /// Each model alone.
    pub by_model: BTreeMap<String, Tokens>,
    /// US dollars; `None` where the cost of a run is not known.
    pub cost_usd: Option<f64>,
    /// US dollars of those runs whose cost is known: at least this.
    pub known_cost_usd: f64,
}

impl Spent {
    /// Adds one run.
    pub fn add(&mut self, outcome: &Outcome) {
        let usage = &outcome.usage;
        self.cost_usd = match (self.runs, self.cost_usd, outcome.cost_usd) {
            // A run that asked no model cost nothing.
            (_, before, None) if usage.tokens == Tokens::default() && usage.by_model.is_empty() => before,
            (0, _, cost) => cost,
            (_, Some(sum), Some(cost)) => Some(sum + cost),
            (_, None, Some(cost)) if self.tokens == Tokens::default() => Some(cost),
            _ => None,
        };
        self.known_cost_usd += outcome.cost_usd.unwrap_or(0.0);
        self.runs += 1;
        self.requests = self.requests.saturating_add(usage.requests.unwrap_or(0));
        self.tokens = self.tokens.plus(usage.tokens);
        for (model, tokens) in &usage.by_model {
            let sum = self.by_model.entry(model.clone()).or_default();
            *sum = sum.plus(*tokens);
        }
    }
}

#[cfg(test)]
mod tests;
