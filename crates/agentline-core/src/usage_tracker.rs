//! Tracks the tokens of a run by source, and reconciles and compares the sources.

use crate::usage::{ContextWindow, CountScope, TokenCount, Tokens, TurnUsage, Usage, UsageSource};
use crate::{Charge, PriceTable};
use std::{cmp::Ordering, collections::BTreeMap};

/// One call to a model, as last reported.
#[derive(Clone, Debug)]
struct Call {
    /// Its position among the calls of the run.
    position: usize,
    model: Option<String>,
    tokens: Tokens,
}

/// Collects token counts by source and calculates their sums.
#[derive(Default, Debug)]
pub struct UsageTracker {
    before: Tokens,
    run: Option<Tokens>,
    session: Option<Tokens>,
    models: BTreeMap<String, Tokens>,
    model_requests: BTreeMap<String, u64>,
    requests: Option<u64>,
    calls: BTreeMap<(UsageSource, String), Call>,
    sums: BTreeMap<UsageSource, Tokens>,
    context: Option<ContextWindow>,
    /// The largest total that was published. A later total is never lower.
    published: Tokens,
}

impl UsageTracker {
    /// Sets the usage of the session before this run.
    pub fn start_from(&mut self, before: Tokens) {
        self.before = before;
    }

    /// Sets the fill of the context window. Returns whether it has changed.
    pub fn set_context(&mut self, context: ContextWindow) -> bool {
        self.context.replace(context) != Some(context)
    }

    /// Adds one count.
    pub fn take(&mut self, count: TokenCount) {
        if let Some(n) = count.requests {
            self.requests = Some(self.requests.unwrap_or(0).saturating_add(n));
        }
        match count.span {
            CountScope::Run => self.run = Some(count.tokens.or(self.run.unwrap_or_default())),
            CountScope::Model(name) => {
                if let Some(n) = count.requests {
                    self.model_requests.insert(name.clone(), n);
                }
                self.models.insert(name, count.tokens);
            }
            CountScope::Session => self.session = Some(count.tokens),
            CountScope::Call(id) => {
                let position = self.calls.len();
                let key = (count.source, id);
                let old = self.calls.get(&key).map(|call| (call.position, call.tokens));
                let position = old.map_or(position, |(position, _)| position);
                self.calls.insert(key, Call { position, model: count.model, tokens: count.tokens });
                let sum = self.sums.entry(count.source).or_default();
                *sum = sum.minus(old.map(|(_, tokens)| tokens).unwrap_or_default()).plus(count.tokens);
            }
        }
    }

    /// Returns what the agent reported for the whole run, from the most to the least direct report.
    fn reported(&self) -> Tokens {
        let session = self.session.map(|t| t.since(self.before)).unwrap_or_default();
        let stream = self.sums.get(&UsageSource::Stream).copied().unwrap_or_default();
        self.run.unwrap_or_default().or(session).or(self.all_models()).or(stream)
    }

    fn all_models(&self) -> Tokens {
        self.models.values().fold(Tokens::default(), |sum, t| sum.plus(*t))
    }

    fn file(&self) -> Tokens {
        self.sums.get(&UsageSource::SessionFile).copied().unwrap_or_default()
    }

    /// Returns the total of the run. The agent's output takes precedence for each number, and the session file fills in
    /// the rest. While one of them is behind the other, the one that covers more counts.
    #[must_use]
    pub fn total(&self) -> Tokens {
        let (reported, file) = (self.reported(), self.file());
        let total = match reported.input.cmp(&file.input) {
            // The agent has not reported its last requests yet.
            Ordering::Less => file.or(reported),
            Ordering::Equal => reported.or(file).with_derived_thoughts(),
            // The file is behind, or lacks the agent's helpers: its numbers are lower bounds.
            Ordering::Greater if reported.total.is_none() => reported.or(file).with_plausible_total(),
            Ordering::Greater => reported.with_derived_thoughts().or(file),
        };
        total.at_least(self.published)
    }

    /// Returns the usage to publish. Every later total is at least as large.
    pub fn publish(&mut self) -> Usage {
        self.published = self.total();
        self.usage()
    }

    /// Returns the number of answers of the model, if each of them was counted separately.
    #[must_use]
    pub fn answers(&self) -> Option<u32> {
        Some(self.known_calls().len()).filter(|n| *n > 0).map(|n| u32::try_from(n).unwrap_or(u32::MAX))
    }

    /// Returns the last reported session total, for agents that count from the start of a session.
    #[must_use]
    pub fn session_total(&self) -> Option<Tokens> {
        self.session
    }

    /// Returns the tokens of each model, as far as known.
    #[must_use]
    pub fn by_model(&self) -> BTreeMap<String, Tokens> {
        let mut from_calls: BTreeMap<String, Tokens> = BTreeMap::new();
        for call in self.known_calls() {
            if let Some(model) = &call.model {
                let sum = from_calls.entry(model.clone()).or_default();
                *sum = sum.plus(call.tokens);
            }
        }
        // Some agents name the model of only some requests, or report models after the fact. The calls in the session
        // file then cover more.
        let of_calls = from_calls.values().fold(Tokens::default(), |sum, t| sum.plus(*t));
        let of_models = self.all_models();
        if self.models.is_empty()
            || (of_models.input < of_calls.input && of_models.input < self.total().input)
        {
            return from_calls;
        }
        // The stream reports every model, including utility models. The file has the thoughts of those it contains.
        let mut models = self.models.clone();
        for (name, tokens) in &mut models {
            if let Some(file) = from_calls.get(name)
                && file.input == tokens.input
            {
                *tokens = tokens.or(*file);
            }
            *tokens = tokens.with_derived_thoughts();
        }
        models
    }

    /// Returns the calls of the source that has more of them, in order.
    fn known_calls(&self) -> Vec<&Call> {
        let of = |source| self.calls.iter().filter(move |((s, _), _)| *s == source).map(|(_, call)| call);
        let (stream, file) = (of(UsageSource::Stream), of(UsageSource::SessionFile));
        let mut calls: Vec<&Call> =
            if stream.clone().count() >= file.clone().count() { stream.collect() } else { file.collect() };
        calls.sort_by_key(|call| call.position);
        calls
    }

    /// Returns the cost of the run at these prices.
    ///
    /// If every call to a model is known, each is priced by its own length. `unnamed` is the model for counts without
    /// one, and for the part of the run that no count by model covers.
    #[must_use]
    pub fn charge(&self, prices: &PriceTable, unnamed: Option<&str>) -> Option<Charge> {
        let mut by_model = self.by_model();
        let total = self.total();
        if by_model.is_empty()
            && let Some(model) = unnamed
        {
            by_model.insert(model.to_owned(), total);
        }
        // Unknown usage does not mean that the run cost nothing.
        by_model.retain(|_, tokens| *tokens != Tokens::default());
        if by_model.is_empty() {
            return None;
        }
        let mut sum = Charge::default();
        for (model, tokens) in &by_model {
            let charge = self.charge_calls(prices, model, tokens, unnamed).or_else(|| {
                let requests = self.model_requests.get(model).copied();
                let alone = self.requests.filter(|_| by_model.len() == 1);
                prices.charge(model, tokens, requests.or(alone))
            })?;
            sum.usd += charge.usd;
            sum.estimated |= charge.estimated;
        }
        let covered = by_model.values().fold(Tokens::default(), |sum, t| sum.plus(*t));
        if covered.input < total.input {
            // Which model the other requests used is not known.
            let only = by_model.keys().next().filter(|_| by_model.len() == 1).map(String::as_str);
            let model = unnamed.filter(|model| prices.of(model).is_some()).or(only)?;
            sum.usd += prices.charge(model, &total.minus(covered), None)?.usd;
            sum.estimated = true;
        }
        Some(sum)
    }

    /// Prices each call to a model by its own length, or returns `None` if not all calls are known.
    fn charge_calls(
        &self,
        prices: &PriceTable,
        model: &str,
        tokens: &Tokens,
        unnamed: Option<&str>,
    ) -> Option<Charge> {
        let calls: Vec<Tokens> = self
            .known_calls()
            .into_iter()
            .filter(|call| call.model.as_deref().or(unnamed) == Some(model))
            .map(|call| call.tokens)
            .collect();
        let sum = calls.iter().fold(Tokens::default(), |sum, t| sum.plus(*t));
        let same = |f: fn(&Tokens) -> Option<u64>| f(&sum).unwrap_or(0) == f(tokens).unwrap_or(0);
        let complete = same(|t| t.input) && same(|t| t.cached) && same(|t| Some(t.produced()));
        if calls.is_empty() || !complete {
            return None;
        }
        calls.iter().try_fold(Charge::default(), |mut sum, tokens| {
            sum.usd += prices.charge(model, tokens, Some(1))?.usd;
            Some(sum)
        })
    }

    /// Returns the usage for the outcome.
    #[must_use]
    pub fn usage(&self) -> Usage {
        let mut sources = Vec::new();
        if self.run.is_some()
            || self.session.is_some()
            || !self.models.is_empty()
            || self.sums.contains_key(&UsageSource::Stream)
        {
            sources.push(UsageSource::Stream);
        }
        if self.sums.contains_key(&UsageSource::SessionFile) {
            sources.push(UsageSource::SessionFile);
        }
        let known = self.known_calls();
        let calls = known.len() as u64;
        let tokens = self.total();
        // If the sums do not match the total, not all calls were seen.
        let all_seen = self.sums.values().any(|sum| sum.input == tokens.input);
        Usage {
            tokens,
            requests: self.requests.or((calls > 0 && all_seen).then_some(calls)),
            by_model: self.by_model(),
            sources,
            origins: self.origins(&tokens),
            turns: self.turns(),
            context: self.context,
        }
    }

    /// Returns the source of each number of the total.
    fn origins(&self, total: &Tokens) -> BTreeMap<String, UsageSource> {
        let (reported, file) = (self.reported().fields(), self.file().fields());
        let rows = total.fields().into_iter().zip(reported).zip(file);
        let known = rows.filter_map(|(((name, number), (_, reported)), (_, file))| {
            let source = match number? {
                n if reported == Some(n) => UsageSource::Stream,
                n if reported.is_none() && file == Some(n) => UsageSource::SessionFile,
                _ => UsageSource::Derived,
            };
            Some((name.to_owned(), source))
        });
        known.collect()
    }

    fn turns(&self) -> Vec<TurnUsage> {
        let calls = self.known_calls();
        let is_file = |call: &Call| {
            self.calls
                .iter()
                .any(|((source, _), c)| *source == UsageSource::SessionFile && c.position == call.position)
        };
        let turns = calls.into_iter().zip(1..).map(|(call, turn)| TurnUsage {
            turn,
            model: call.model.clone(),
            tokens: call.tokens,
            source: if is_file(call) { UsageSource::SessionFile } else { UsageSource::Stream },
        });
        turns.collect()
    }

    /// Returns the differences between sources that cover the same requests.
    ///
    /// Two sources cover the same requests if their prompt tokens are equal. A session file that lacks an agent's
    /// helpers, or contains earlier turns, covers other requests.
    #[must_use]
    pub fn disagreements(&self) -> Vec<String> {
        let mut found = Vec::new();
        let (reported, file) = (self.reported(), self.file());
        if reported.input.is_some() && reported.input == file.input {
            compare("the agent's output", &reported, "its session file", &file, &mut found);
        }
        let models = self.all_models();
        if let Some(run) = &self.run
            && run.input.is_some()
            && run.input == models.input
        {
            compare("the agent's total", run, "the sum of its models", &models, &mut found);
        }
        found
    }
}

fn compare(a: &str, left: &Tokens, b: &str, right: &Tokens, found: &mut Vec<String>) {
    // A source that does not count thoughts separately may count them as output.
    let same_output =
        left.thoughts.is_some() != right.thoughts.is_some() && left.produced() == right.produced();
    for ((name, one), (_, other)) in left.fields().into_iter().zip(right.fields()) {
        if let (Some(one), Some(other)) = (one, other)
            && one != other
            && !(name == "output_tokens" && same_output)
        {
            found.push(format!("`{name}`: {one} in {a}, {other} in {b}"));
        }
    }
}

#[cfg(test)]
mod tests;
