//! Counts tokens and cost over many sessions. Each answer counts once, however many files contain a copy of it.

use crate::{error::SessionError, filter::SessionFilter, list::add_to, store::SessionStore};
use agentline_core::{Millis, UsageEntry, day_of, month_of, week_of};
use serde::Serialize;
use std::collections::{BTreeMap, HashMap, HashSet};

/// The grouping of usage rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum UsageBy {
    /// By day, in UTC unless the store has another offset.
    Day,
    /// By agent.
    Agent,
    /// By model.
    Model,
    /// By project.
    Project,
    /// By week as in ISO 8601, such as `2026-W47`.
    Week,
    /// By month.
    Month,
    /// By session. A sub-agent belongs to the session that started it.
    Session,
}

/// One row of a usage count.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct UsageRow {
    /// The day as `2026-11-15`, the week as `2026-W47`, the month as `2026-11`, the id of the session, or the name of
    /// the agent, model or project; empty if unknown.
    pub name: String,
    /// The title of the session, or else its first prompt, in rows by session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The number of sessions, including those of sub-agents.
    pub sessions: u64,
    /// The number of answers from a model. Each is one turn.
    pub answers: u64,
    /// Tokens and cost.
    #[serde(flatten)]
    pub used: UsageEntry,
    /// Tokens and cost by model. A model without a cost has no known price.
    pub by_model: BTreeMap<String, UsageEntry>,
}

impl SessionStore {
    /// Counts tokens, in rows sorted by name.
    ///
    /// Sub-agents are counted whatever the filter says. The filter's times apply to each answer.
    ///
    /// # Errors
    /// Fails if the filter names an unknown agent.
    pub fn usage(&self, filter: &SessionFilter, by: UsageBy) -> Result<Vec<UsageRow>, SessionError> {
        let mut all = self.gather(&filter.clone().sub_agents(true).empty(true))?;
        // A copy counts for the session that started first, whatever the order of the files.
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
                    UsageBy::Agent => facts.info.agent.to_string(),
                    UsageBy::Model => facts.model(used).to_owned(),
                    UsageBy::Project => facts.info.project.clone().unwrap_or_default(),
                    UsageBy::Week => at.map(|at| week_of(at, self.east_of_utc)).unwrap_or_default(),
                    UsageBy::Month => at.map(|at| month_of(at, self.east_of_utc)).unwrap_or_default(),
                    UsageBy::Session => facts.info.parent.as_ref().unwrap_or(&facts.info.id).clone(),
                };
                let row = rows.entry(name.clone()).or_default();
                row.sessions += u64::from(in_session.insert(name));
                row.answers += used.answers();
                if by == UsageBy::Session && facts.info.parent.is_none() {
                    row.title = facts.info.title.clone().or_else(|| facts.prompt.clone());
                }
                let cost = facts.row(used, &self.prices);
                row.used.add(&cost);
                add_to(&mut row.by_model, facts.model(used), &cost);
            }
        }
        let mut rows: Vec<UsageRow> = rows.into_iter().map(|(name, row)| UsageRow { name, ..row }).collect();
        rows.sort_by(|a, b| a.name.cmp(&b.name));
        if let Some(redactor) = &self.redactor {
            for row in &mut rows {
                row.title = row.title.take().map(|title| redactor.text(&title).into_owned());
            }
        }
        Ok(rows)
    }
}

impl SessionFilter {
    /// Returns whether a time is within the filter's range. An unknown time is only within an unlimited range.
    fn holds(&self, at: Option<Millis>) -> bool {
        let Some(at) = at else { return self.since.is_none() && self.until.is_none() };
        self.since.is_none_or(|since| at >= since) && self.until.is_none_or(|until| at < until)
    }
}

impl UsageRow {
    /// Returns the sum of rows. A session counts once for every row that it is in.
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

    /// Returns the models whose price is not known.
    pub fn unpriced(&self) -> impl Iterator<Item = &str> {
        self.by_model.iter().filter(|(_, used)| used.cost_usd.is_none()).map(|(model, _)| model.as_str())
    }
}
