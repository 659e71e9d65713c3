//! Calculates the usage and cost of a saved session: in total, by prompt, by model and by day.

use crate::CostSource;
use crate::{Charge, Entry, Millis, Notice, PriceTable, SavedSession, SessionInfo, Tokens};
use serde::Serialize;
use std::collections::{BTreeMap, HashSet};

/// The name for a model that the agent did not report.
const UNNAMED: &str = "unknown";

/// Usage and its cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct UsageEntry {
    /// The number of requests to the model, as far as known.
    pub requests: u64,
    /// The tokens.
    #[serde(flatten)]
    pub tokens: Tokens,
    /// The cost in US dollars, or `None` if the price of a part is not known.
    #[serde(serialize_with = "crate::usage::serialize_known_usd")]
    pub cost_usd: Option<f64>,
    /// The cost in US dollars of the parts with a known price: a lower bound.
    #[serde(serialize_with = "crate::usage::serialize_usd")]
    pub known_cost_usd: f64,
    /// The source of the cost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost_source: Option<CostSource>,
    /// Whether the cost is an estimate, because it depends on the unknown length of individual prompts.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub cost_estimated: bool,
    /// Whether the row contains any usage.
    #[serde(skip)]
    used: bool,
}

impl UsageEntry {
    /// Returns the usage of one answer.
    ///
    /// The user's own price takes precedence over the cost that the agent reports, which takes precedence over a list
    /// price, because the agent knows its contract. An answer counts as one request unless `requests` says otherwise.
    #[must_use]
    pub fn of(
        prices: &PriceTable,
        model: Option<&str>,
        tokens: Tokens,
        requests: Option<u64>,
        reported_usd: Option<f64>,
    ) -> Self {
        let (model, requests) = (model.unwrap_or(UNNAMED), requests.unwrap_or(1));
        let listed = prices.charge(model, &tokens, Some(requests));
        let own = reported_usd.filter(|usd| usd.is_finite() && *usd > 0.0);
        let own = own.filter(|_| listed.is_none() || !prices.is_yours(model));
        let (charge, source) = match own {
            Some(usd) => (Some(Charge::of(usd)), CostSource::Agent),
            None => (listed, CostSource::Prices),
        };
        Self {
            requests,
            tokens,
            cost_usd: charge.map(|c| c.usd),
            known_cost_usd: charge.map_or(0.0, |c| c.usd),
            cost_source: charge.map(|_| source),
            cost_estimated: charge.is_some_and(|c| c.estimated),
            used: true,
        }
    }

    /// Adds another row to this one.
    pub fn add(&mut self, other: &Self) {
        if !other.used {
            return;
        }
        self.requests = self.requests.saturating_add(other.requests);
        self.tokens = self.tokens.plus(other.tokens);
        self.cost_usd = match (self.used, self.cost_usd, other.cost_usd) {
            (false, _, theirs) => theirs,
            (true, Some(ours), Some(theirs)) => Some(ours + theirs),
            _ => None,
        };
        self.known_cost_usd += other.known_cost_usd;
        self.cost_source = match (self.cost_source, other.cost_source) {
            (Some(a), Some(b)) => Some(a.and(b)),
            (a, b) => a.or(b),
        };
        self.cost_estimated |= other.cost_estimated;
        self.used = true;
    }

    /// Returns whether nothing was used.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        !self.used
    }
}

/// The usage of one prompt and everything that followed from it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct PromptTotals {
    /// The number of the prompt, starting at 1. 0 stands for usage before the first prompt or on abandoned branches.
    pub number: u32,
    /// The id of the prompt's entry.
    pub prompt: Option<String>,
    /// The time of the prompt, in milliseconds since 1970.
    pub started: Option<Millis>,
    /// The sum over all models.
    #[serde(flatten)]
    pub row: UsageEntry,
    /// The usage by model.
    pub by_model: BTreeMap<String, UsageEntry>,
}

/// The usage of one model on one day.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct UsageCell {
    /// The day, such as `2026-11-15`. Empty if no time is known.
    pub day: String,
    /// The model.
    pub model: String,
    /// The usage.
    #[serde(flatten)]
    pub row: UsageEntry,
}

/// The usage and cost of a session.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct SessionUsage {
    /// The total.
    #[serde(flatten)]
    pub total: UsageEntry,
    /// The usage by prompt.
    pub by_prompt: Vec<PromptTotals>,
    /// The usage by model.
    pub by_model: BTreeMap<String, UsageEntry>,
    /// The usage by day.
    pub by_day: BTreeMap<String, UsageEntry>,
    /// The usage by day and model, from which the other sums can be calculated.
    pub cells: Vec<UsageCell>,
    /// Models whose price is not known.
    pub unpriced: Vec<String>,
    /// Warnings about differences between the cost that the agent reports and the sum of its parts.
    pub warnings: Vec<Notice>,
}

/// Calculates the usage and cost of a session, with days in UTC.
#[must_use]
pub fn session_usage(session: &SavedSession, prices: &PriceTable) -> SessionUsage {
    let mut fold = SessionUsageReader::new(prices);
    session.entries.iter().for_each(|entry| fold.take(entry));
    session.abandoned.iter().for_each(|entry| fold.take_abandoned(entry));
    fold.finish(&session.info)
}

/// Sums up the usage of entries one by one, so that a session need not be in memory as a whole.
///
/// Requests with the same id are counted once. The caller leaves out those that were counted in another session.
#[derive(Debug)]
pub struct SessionUsageReader<'a> {
    prices: &'a PriceTable,
    east: i64,
    prompts: Vec<PromptTotals>,
    cells: BTreeMap<i64, BTreeMap<String, UsageEntry>>,
    last: Option<Millis>,
    counted: HashSet<String>,
}

impl<'a> SessionUsageReader<'a> {
    /// Creates an empty sum with days in UTC.
    #[must_use]
    pub fn new(prices: &'a PriceTable) -> Self {
        Self {
            prices,
            east: 0,
            prompts: Vec::new(),
            cells: BTreeMap::new(),
            last: None,
            counted: HashSet::new(),
        }
    }

    /// Sets the time zone for days, as an offset east of UTC in seconds.
    #[must_use]
    pub fn east_of_utc(mut self, seconds: i32) -> Self {
        self.east = i64::from(seconds);
        self
    }

    /// Adds one entry. A prompt starts a new row, and usage counts towards the last prompt.
    pub fn take(&mut self, entry: &Entry) {
        self.last = entry.timestamp.or(self.last);
        if entry.is_prompt() {
            let number = self.prompts.last().map_or(1, |prompt| prompt.number + 1);
            self.prompts.push(PromptTotals {
                number,
                prompt: Some(entry.id.clone()),
                started: entry.timestamp,
                ..PromptTotals::default()
            });
        }
        let at = self.last;
        self.count(entry, at, |prompts| {
            if prompts.is_empty() {
                prompts.push(PromptTotals { started: entry.timestamp, ..PromptTotals::default() });
            }
            prompts.len() - 1
        });
    }

    /// Adds an entry of a branch that an edit or a rewind abandoned. It is not part of the conversation, but its tokens
    /// were used.
    pub fn take_abandoned(&mut self, entry: &Entry) {
        let at = entry.timestamp.or(self.last);
        self.count(entry, at, |prompts| {
            if prompts.first().is_none_or(|first| first.number != 0) {
                prompts.insert(0, PromptTotals { started: entry.timestamp, ..PromptTotals::default() });
            }
            0
        });
    }

    /// Counts the usage of an entry, once, for its prompt.
    fn count(
        &mut self,
        entry: &Entry,
        at: Option<Millis>,
        prompt: impl FnOnce(&mut Vec<PromptTotals>) -> usize,
    ) {
        let Some(tokens) = entry.usage.filter(|tokens| *tokens != Tokens::default()) else { return };
        if entry.counted_as.as_ref().is_some_and(|name| !self.counted.insert(name.clone())) {
            return;
        }
        let model = entry.model.as_deref().unwrap_or(UNNAMED);
        let row = UsageEntry::of(self.prices, Some(model), tokens, entry.requests, entry.cost_usd);
        let prompt = prompt(&mut self.prompts);
        self.prompts[prompt].row.add(&row);
        add_to(&mut self.prompts[prompt].by_model, model, &row);
        let day = at.map_or(i64::MIN, |at| day_number(at, self.east));
        add_to(self.cells.entry(day).or_default(), model, &row);
    }

    /// Returns the usage of the whole session. The agent's cost of the whole session is used if prices are missing.
    #[must_use]
    pub fn finish(self, info: &SessionInfo) -> SessionUsage {
        let mut session_usage = SessionUsage { by_prompt: self.prompts, ..SessionUsage::default() };
        for (day, models) in self.cells {
            let day = if day == i64::MIN { String::new() } else { crate::time::date(day) };
            for (model, row) in models {
                session_usage.total.add(&row);
                add_to(&mut session_usage.by_day, &day, &row);
                add_to(&mut session_usage.by_model, &model, &row);
                session_usage.cells.push(UsageCell { day: day.clone(), model, row });
            }
        }
        let unpriced = session_usage.by_model.iter().filter(|(_, row)| row.cost_usd.is_none());
        session_usage.unpriced = unpriced.map(|(model, _)| model.clone()).collect();
        session_usage.trust_the_agent(info.cost_usd);
        session_usage
    }
}

impl SessionUsage {
    /// Uses the agent's cost of the session if the total is unknown, and otherwise compares it with the sum of its
    /// parts.
    fn trust_the_agent(&mut self, reported: Option<f64>) {
        let Some(reported) = reported.filter(|usd| usd.is_finite() && *usd > 0.0) else { return };
        let total = &mut self.total;
        match total.cost_usd {
            None => {
                (total.cost_usd, total.known_cost_usd) = (Some(reported), reported);
                total.cost_source = Some(CostSource::Agent);
            }
            Some(sum) if total.cost_source == Some(CostSource::Agent) && differ(sum, reported) => {
                let text = format!(
                    "the agent reports a session cost of ${reported:.4}, but its answers add up to ${sum:.4}"
                );
                self.warnings.push(Notice::new("usage_disagrees", text));
            }
            Some(_) => {}
        }
    }
}

/// Returns the day of a time, such as `2026-11-15`, in the time zone with this offset east of UTC in seconds.
#[must_use]
pub fn day_of(at: Millis, east_of_utc: i32) -> String {
    crate::time::date(day_number(at, i64::from(east_of_utc)))
}

/// Returns the month of a time, such as `2026-11`, in the time zone with this offset east of UTC in seconds.
#[must_use]
pub fn month_of(at: Millis, east_of_utc: i32) -> String {
    let day = day_of(at, east_of_utc);
    day.rsplit_once('-').map_or_else(|| day.clone(), |(month, _)| month.to_owned())
}

/// Returns the week of a time as in ISO 8601, such as `2026-W47`, in the time zone with this offset east of UTC in
/// seconds. A week begins on Monday and belongs to the year of its Thursday.
#[must_use]
pub fn week_of(at: Millis, east_of_utc: i32) -> String {
    let day = day_number(at, i64::from(east_of_utc));
    // The first day, 1970-01-01, was a Thursday.
    let thursday = day - (day + 3).rem_euclid(7) + 3;
    let date = crate::time::date(thursday);
    let year = date.get(..4).unwrap_or_default();
    let of_year = (0..366).take_while(|back| crate::time::date(thursday - back).starts_with(year)).count();
    format!("{year}-W{:02}", of_year.saturating_sub(1) / 7 + 1)
}

fn day_number(at: Millis, east: i64) -> i64 {
    (i64::try_from(at / 1000).unwrap_or(i64::MAX / 2) + east).div_euclid(86_400)
}

/// Returns whether two amounts differ by more than rounding.
fn differ(a: f64, b: f64) -> bool {
    (a - b).abs() > 0.0001 + 0.001 * a.abs().max(b.abs())
}

fn add_to(rows: &mut BTreeMap<String, UsageEntry>, key: &str, row: &UsageEntry) {
    match rows.get_mut(key) {
        Some(sum) => sum.add(row),
        None => _ = rows.insert(key.to_owned(), *row),
    }
}

#[cfg(test)]
mod tests;
