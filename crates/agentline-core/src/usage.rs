//! Tokens of a run: one book, its sources kept apart and reconciled once.

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
    fn each(self, other: Self, f: impl Fn(Option<u64>, Option<u64>) -> Option<u64>) -> Self {
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
}

/// Keeps what was said about tokens, by source, and tells the sum.
#[derive(Default, Debug)]
pub struct UsageBook {
    before: Tokens,
    run: Option<Tokens>,
    session: Option<Tokens>,
    models: BTreeMap<String, Tokens>,
    requests: Option<u64>,
    calls: BTreeMap<(Source, String), (Option<String>, Tokens)>,
    sums: BTreeMap<Source, Tokens>,
}

impl UsageBook {
    /// What the session had used before this run.
    pub fn start_from(&mut self, before: Tokens) {
        self.before = before;
    }

    /// Takes one count.
    pub fn take(&mut self, count: Count) {
        if let Some(n) = count.requests {
            self.requests = Some(self.requests.unwrap_or(0).saturating_add(n));
        }
        match count.span {
            Span::Run => self.run = Some(count.tokens.or(self.run.unwrap_or_default())),
            Span::Model(name) => {
                self.models.insert(name, count.tokens);
            }
            Span::Session => self.session = Some(count.tokens),
            Span::Call(id) => {
                let old = self.calls.insert((count.source, id), (count.model, count.tokens));
                let sum = self.sums.entry(count.source).or_default();
                *sum = sum.minus(old.map_or_else(Tokens::default, |o| o.1)).plus(count.tokens);
            }
        }
    }

    /// The stream's own total wins field by field; the session file fills in what the stream does not say.
    #[must_use]
    pub fn total(&self) -> Tokens {
        let session = self.session.map(|t| t.minus(self.before)).unwrap_or_default();
        let models = self.models.values().fold(Tokens::default(), |sum, t| sum.plus(*t));
        let file = self.sums.get(&Source::SessionFile).copied().unwrap_or_default();
        let stream = self.sums.get(&Source::Stream).copied().unwrap_or_default();
        let told = self.run.unwrap_or_default().or(session).or(models).or(stream);
        let mut total = told.or(file);
        if told.input.is_some() && told.input != file.input {
            // The file does not know the agent's helpers, or knows of turns before: its counts are not those of this run.
            (total.thoughts, total.cached, total.total) = (told.thoughts, told.cached, told.total);
        }
        // A surface that tells only sums leaves the thoughts as what remains.
        if let (None, Some(all), Some(i), Some(o)) = (total.thoughts, total.total, total.input, total.output)
        {
            total.thoughts = all.checked_sub(i.saturating_add(o).saturating_add(total.tool.unwrap_or(0)));
        }
        total
    }

    /// Tokens so far, for the limits.
    #[must_use]
    pub fn live(&self) -> Tokens {
        self.total()
    }

    /// Session totals as last said, for agents that count from the beginning of a session.
    #[must_use]
    pub fn session_total(&self) -> Option<Tokens> {
        self.session
    }

    /// Tokens of each model, as far as they are known.
    #[must_use]
    pub fn by_model(&self) -> BTreeMap<String, Tokens> {
        let mut from_calls: BTreeMap<String, Tokens> = BTreeMap::new();
        for (model, tokens) in self.calls.values() {
            if let Some(model) = model {
                let sum = from_calls.entry(model.clone()).or_default();
                *sum = sum.plus(*tokens);
            }
        }
        if self.models.is_empty() {
            return from_calls;
        }
        // The stream tells every model, utility ones too; the file knows thoughts of those it saw.
        let mut models = self.models.clone();
        for (name, tokens) in &mut models {
            if let Some(file) = from_calls.get(name)
                && file.input == tokens.input
            {
                *tokens = tokens.or(*file);
            }
            if let (None, Some(all), Some(i), Some(o)) =
                (tokens.thoughts, tokens.total, tokens.input, tokens.output)
            {
                tokens.thoughts = all.checked_sub(i.saturating_add(o));
            }
        }
        models
    }

    /// Everything for the outcome.
    #[must_use]
    pub fn usage(&self) -> Usage {
        let mut sources = Vec::new();
        if self.run.is_some()
            || self.session.is_some()
            || !self.models.is_empty()
            || self.sums.contains_key(&Source::Stream)
        {
            sources.push(Source::Stream);
        }
        if self.sums.contains_key(&Source::SessionFile) {
            sources.push(Source::SessionFile);
        }
        let calls = self.calls.len() as u64;
        let tokens = self.total();
        // Calls that the stream knows to be more than the file shows were not all seen.
        let all_seen = self.sums.values().any(|sum| sum.input == tokens.input);
        Usage {
            tokens,
            requests: self.requests.or((calls > 0 && all_seen).then_some(calls)),
            by_model: self.by_model(),
            sources,
        }
    }
}
