//! The list of sessions, newest first.

use super::{Filter, Store, find::Place, gather::Stored};
use crate::Error;
use agentline_core::{PriceTable, SessionInfo, Tokens};
use serde::Serialize;
use std::collections::BTreeMap;

/// One session in a list.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Summary {
    /// Whose it is and when it was.
    #[serde(flatten)]
    pub info: SessionInfo,
    /// The agent's title, else the first prompt, shortened.
    pub title: Option<String>,
    /// How often the person asked.
    pub prompts: u64,
    /// How often a model answered.
    pub answers: u64,
    /// How many tools were called.
    pub tool_calls: u64,
    /// All tokens.
    pub tokens: Tokens,
    /// Tokens of each model.
    pub by_model: BTreeMap<String, Tokens>,
    /// What they cost in US dollars by the table of prices, else by the agent's own word; `None` when neither knows.
    pub cost_usd: Option<f64>,
    /// Where it is.
    pub places: Vec<Place>,
    /// How many bytes that takes.
    pub size: u64,
    /// How many places of it could not be read.
    pub damage: u64,
}

impl Store {
    /// Lists sessions, newest first.
    ///
    /// # Errors
    /// The filter names an agent that is not known.
    pub fn list(&self, filter: &Filter) -> Result<Vec<Summary>, Error> {
        let mut all: Vec<Summary> =
            self.gather(filter)?.into_iter().map(|stored| Summary::of(stored, &self.prices)).collect();
        all.sort_by(|a, b| {
            newest(&a.info).cmp(&newest(&b.info)).reverse().then_with(|| a.info.id.cmp(&b.info.id))
        });
        Ok(all)
    }
}

/// When something was last said in a session.
pub(super) fn newest(info: &SessionInfo) -> Option<u64> {
    info.updated.or(info.started)
}

impl Summary {
    fn of(stored: Stored, prices: &PriceTable) -> Self {
        let Stored { facts, parts, size, .. } = stored;
        let mut by_model: BTreeMap<String, Tokens> = BTreeMap::new();
        let mut tokens = Tokens::default();
        let mut cost = Some(0.0);
        for used in &facts.used {
            tokens = tokens.plus(used.tokens);
            let model = facts.model(used);
            cost = cost.zip(super::usage::price_of(prices, model, used.tokens)).map(|(sum, one)| sum + one);
            if let Some(model) = model {
                let sum = by_model.entry(model.to_owned()).or_default();
                *sum = sum.plus(used.tokens);
            }
        }
        let cost = cost.filter(|_| !facts.used.is_empty());
        Self {
            title: facts.info.title.clone().or(facts.prompt),
            cost_usd: cost.or(facts.info.cost_usd),
            info: facts.info,
            prompts: facts.prompts,
            answers: facts.answers,
            tool_calls: facts.tool_calls,
            tokens,
            by_model,
            places: parts.into_iter().map(|part| part.place).collect(),
            size,
            damage: facts.damage,
        }
    }
}
