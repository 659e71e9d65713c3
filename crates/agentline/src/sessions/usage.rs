//! Tokens and their cost over many sessions, each answer counted once however many files hold a copy of it.

use super::{Filter, Store, list::add_to};
use crate::Error;
use agentline_core::{LedgerRow, Millis, day_of};
use serde::Serialize;
use std::collections::{BTreeMap, HashMap, HashSet};

/// What the rows of a count stand for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum UsageBy {
    /// One day, in UTC unless the store was told where midnight is.
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
    /// What they used and cost.
    #[serde(flatten)]
    pub used: LedgerRow,
    /// The same of each model. A model without a cost has no known price.
    pub by_model: BTreeMap<String, LedgerRow>,
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
            let facts = &stored.facts;
            let mut in_session: HashSet<String> = HashSet::new();
            for used in &facts.used {
                let at = used.at.or(facts.info.started);
                if !filter.holds(at) || !seen.insert(used.key) {
                    continue;
                }
                let name = match by {
                    UsageBy::Day => at.map(|at| day_of(at, self.east_of_utc)).unwrap_or_default(),
                    UsageBy::Agent => facts.info.agent.clone(),
                    UsageBy::Model => facts.model(used).to_owned(),
                    UsageBy::Project => facts.info.project.clone().unwrap_or_default(),
                };
                let row = rows.entry(name.clone()).or_default();
                row.sessions += u64::from(in_session.insert(name));
                row.answers += 1;
                let cost = facts.row(used, &self.prices);
                row.used.add(&cost);
                add_to(&mut row.by_model, facts.model(used), &cost);
            }
        }
        let mut rows: Vec<UsageRow> = rows.into_iter().map(|(name, row)| UsageRow { name, ..row }).collect();
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
    /// The sum of rows, such as the last line of a table. Sessions are counted in every row that they are in.
    #[must_use]
    pub fn sum<'a>(rows: impl IntoIterator<Item = &'a Self>) -> Self {
        let mut sum = Self::default();
        for row in rows {
            sum.sessions += row.sessions;
            sum.answers += row.answers;
            sum.used.add(&row.used);
            for (model, used) in &row.by_model {
                add_to(&mut sum.by_model, model, used);
            }
        }
        sum
    }

    /// The models whose price is not known.
    pub fn unpriced(&self) -> impl Iterator<Item = &str> {
        self.by_model.iter().filter(|(_, used)| used.cost_usd.is_none()).map(|(model, _)| model.as_str())
    }
}
