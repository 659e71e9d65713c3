//! Tokens and their cost over many sessions, each answer counted once however many files hold a copy of it.

use super::{Filter, Store};
use crate::Error;
use agentline_core::{Millis, PriceTable, Tokens};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

/// What the rows of a count stand for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum UsageBy {
    /// One day in UTC.
    Day,
    /// One agent.
    Agent,
    /// One model.
    Model,
    /// One project.
    Project,
}

/// One row of a count.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct UsageRow {
    /// The day as `2026-11-15`, or the name of the agent, model or project; empty where it is not known.
    pub name: String,
    /// In how many sessions, those of sub-agents included.
    pub sessions: u64,
    /// How many answers of a model.
    pub answers: u64,
    /// All tokens.
    pub tokens: Tokens,
    /// Tokens of each model.
    pub by_model: BTreeMap<String, Tokens>,
    /// What they cost in US dollars; `None` when the price of one of the models is not known.
    pub cost_usd: Option<f64>,
    /// What those of them cost whose price is known.
    pub known_cost_usd: f64,
    /// The models whose price is not known.
    pub unpriced: BTreeSet<String>,
}

impl Store {
    /// Counts tokens, in rows sorted by name. Sub-agents are counted, whatever the filter says of them; a time in the
    /// filter is that of each answer.
    ///
    /// # Errors
    /// The filter names an agent that is not known.
    pub fn usage(&self, filter: &Filter, by: UsageBy) -> Result<Vec<UsageRow>, Error> {
        let mut all = self.gather(&filter.clone().sub_agents(true).empty(true))?;
        // A copy belongs to the session that was begun first, whatever the order of the files.
        all.sort_by(|a, b| (a.info().started, &a.info().id).cmp(&(b.info().started, &b.info().id)));
        let mut seen = HashSet::new();
        let mut rows: HashMap<String, UsageRow> = HashMap::new();
        for stored in &all {
            let mut in_session: HashSet<String> = HashSet::new();
            for used in &stored.facts.used {
                if !filter.holds(used.at.or(stored.info().started)) || !seen.insert(used.key) {
                    continue;
                }
                let model = stored.facts.model(used);
                let name = match by {
                    UsageBy::Day => used.at.or(stored.info().started).map(day).unwrap_or_default(),
                    UsageBy::Agent => stored.info().agent.clone(),
                    UsageBy::Model => model.unwrap_or_default().to_owned(),
                    UsageBy::Project => stored.info().project.clone().unwrap_or_default(),
                };
                let row = rows.entry(name.clone()).or_default();
                if in_session.insert(name) {
                    row.sessions += 1;
                }
                row.add(model, used.tokens, &self.prices);
            }
        }
        let mut rows: Vec<UsageRow> = rows
            .into_iter()
            .map(|(name, row)| {
                let cost_usd = row.unpriced.is_empty().then_some(row.known_cost_usd);
                UsageRow { name, cost_usd, ..row }
            })
            .collect();
        rows.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(rows)
    }
}

impl Filter {
    /// Whether a moment lies in the time that is meant.
    fn holds(&self, at: Option<Millis>) -> bool {
        let Some(at) = at else { return self.since.is_none() && self.until.is_none() };
        self.since.is_none_or(|since| at >= since) && self.until.is_none_or(|until| at < until)
    }
}

impl UsageRow {
    fn add(&mut self, model: Option<&str>, tokens: Tokens, prices: &PriceTable) {
        self.answers += 1;
        self.tokens = self.tokens.plus(tokens);
        let name = model.unwrap_or_default();
        match self.by_model.get_mut(name) {
            Some(sum) => *sum = sum.plus(tokens),
            None => _ = self.by_model.insert(name.to_owned(), tokens),
        }
        match price_of(prices, model, tokens) {
            Some(cost) => self.known_cost_usd += cost,
            None => _ = self.unpriced.insert(name.to_owned()),
        }
    }

    /// The sum of rows, such as the last line of a table. Sessions are counted in every row that they are in.
    #[must_use]
    pub fn sum<'a>(rows: impl IntoIterator<Item = &'a Self>) -> Self {
        let mut sum = Self::default();
        for row in rows {
            sum.sessions += row.sessions;
            sum.answers += row.answers;
            sum.tokens = sum.tokens.plus(row.tokens);
            for (model, tokens) in &row.by_model {
                let of_model = sum.by_model.entry(model.clone()).or_default();
                *of_model = of_model.plus(*tokens);
            }
            sum.known_cost_usd += row.known_cost_usd;
            sum.unpriced.extend(row.unpriced.iter().cloned());
        }
        sum.cost_usd = sum.unpriced.is_empty().then_some(sum.known_cost_usd);
        sum
    }
}

/// What one answer cost; nothing where there are no tokens.
pub(super) fn price_of(prices: &PriceTable, model: Option<&str>, tokens: Tokens) -> Option<f64> {
    if tokens.sum() == 0 {
        return Some(0.0);
    }
    prices.cost(&BTreeMap::from([(model?.to_owned(), tokens)]))
}

/// The day of a moment in UTC, as `2026-11-15`.
fn day(at: Millis) -> String {
    let days = at / 86_400_000;
    // Years that begin in March end with the day that some years have more (Hinnant's civil calendar).
    let shifted = days + 719_468;
    let era = shifted / 146_097;
    let of_era = shifted % 146_097;
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

#[cfg(test)]
mod tests {
    use super::day;

    #[test]
    fn days_are_those_of_the_calendar() {
        for (at, expected) in [
            (0, "1970-01-01"),
            (1_794_748_609_000, "2026-11-15"),
            (1_709_164_800_000, "2024-02-29"),
            (1_709_251_200_000, "2024-03-01"),
            (1_735_689_599_999, "2024-12-31"),
            (4_107_542_400_000, "2100-03-01"),
        ] {
            assert_eq!(day(at), expected, "{at}");
        }
    }
}
