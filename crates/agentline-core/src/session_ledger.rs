//! What a saved session used and cost: in all, by prompt, by model and by day.

use crate::{Charge, Entry, Millis, Notice, PriceTable, SavedSession, SessionInfo, Tokens};
use serde::Serialize;
use std::collections::{BTreeMap, HashSet};

/// A model that the agent did not name.
const UNNAMED: &str = "unknown";

/// Whose word a cost is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum CostSource {
    /// Tokens times the prices of our table.
    Prices,
    /// The agent's own word.
    Agent,
    /// Parts of it are the one, parts the other.
    Mixed,
}

impl CostSource {
    fn and(self, other: Self) -> Self {
        if self == other { self } else { Self::Mixed }
    }
}

/// What was used, and what it cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct LedgerRow {
    /// Requests to the model, as far as they are known.
    pub requests: u64,
    /// Tokens.
    #[serde(flatten)]
    pub tokens: Tokens,
    /// US dollars; `None` where the price of a part is not known.
    pub cost_usd: Option<f64>,
    /// US dollars for those parts of which the price is known: at least this.
    pub known_cost_usd: f64,
    /// Whose word the cost is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost_source: Option<CostSource>,
    /// The length of single prompts decides the price and is not known.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub cost_estimated: bool,
    /// Something is in it.
    #[serde(skip)]
    used: bool,
}

impl LedgerRow {
    /// What one answer used. Your own price counts before the agent's word, and that before a list price: the agent knows
    /// its contract. An answer is one request, unless the agent says that it kept several in one record.
    #[must_use]
    pub fn of(
        prices: &PriceTable,
        model: Option<&str>,
        tokens: Tokens,
        requests: Option<u64>,
        said_usd: Option<f64>,
    ) -> Self {
        let (model, requests) = (model.unwrap_or(UNNAMED), requests.unwrap_or(1));
        let listed = prices.charge(model, &tokens, Some(requests));
        let own = said_usd.filter(|usd| usd.is_finite() && *usd > 0.0);
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

    /// Adds another row to it.
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

    /// Whether nothing was used.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        !self.used
    }
}

/// What one prompt and all that came of it used.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct LedgerTurn {
    /// Which prompt of the session, from 1; 0 is what belongs to none of them: it came before the first, or was taken back.
    pub turn: u32,
    /// The id of the prompt's entry.
    pub prompt: Option<String>,
    /// When it was given, in milliseconds since 1970.
    pub started: Option<Millis>,
    /// All models together.
    #[serde(flatten)]
    pub row: LedgerRow,
    /// Each model alone.
    pub by_model: BTreeMap<String, LedgerRow>,
}

/// What one model used on one day.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct LedgerCell {
    /// The day, such as `2026-11-15`; empty where no time is known.
    pub day: String,
    /// The model.
    pub model: String,
    /// What it used.
    #[serde(flatten)]
    pub row: LedgerRow,
}

/// What a session used and cost.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct SessionLedger {
    /// All of it.
    #[serde(flatten)]
    pub total: LedgerRow,
    /// By prompt.
    pub turns: Vec<LedgerTurn>,
    /// By model.
    pub by_model: BTreeMap<String, LedgerRow>,
    /// By day.
    pub by_day: BTreeMap<String, LedgerRow>,
    /// By day and model, from which every other sum can be made.
    pub cells: Vec<LedgerCell>,
    /// Models whose price is not known.
    pub unpriced: Vec<String>,
    /// Where the agent's own word and the sum of its parts differ.
    pub warnings: Vec<Notice>,
}

/// What a session used and cost, with days in UTC.
#[must_use]
pub fn ledger(session: &SavedSession, prices: &PriceTable) -> SessionLedger {
    let mut fold = LedgerFold::new(prices);
    session.entries.iter().for_each(|entry| fold.take(entry));
    session.abandoned.iter().for_each(|entry| fold.take_abandoned(entry));
    fold.finish(&session.info)
}

/// Makes a ledger from entries one after another, so that a session need not be held whole. Requests of one name are
/// counted once; those that were counted in another session are yours to leave out.
#[derive(Debug)]
pub struct LedgerFold<'a> {
    prices: &'a PriceTable,
    east: i64,
    turns: Vec<LedgerTurn>,
    cells: BTreeMap<i64, BTreeMap<String, LedgerRow>>,
    last: Option<Millis>,
    counted: HashSet<String>,
}

impl<'a> LedgerFold<'a> {
    /// An empty ledger, with days in UTC.
    #[must_use]
    pub fn new(prices: &'a PriceTable) -> Self {
        Self {
            prices,
            east: 0,
            turns: Vec::new(),
            cells: BTreeMap::new(),
            last: None,
            counted: HashSet::new(),
        }
    }

    /// Days begin at midnight so many seconds east of Greenwich.
    #[must_use]
    pub fn east_of_utc(mut self, seconds: i32) -> Self {
        self.east = i64::from(seconds);
        self
    }

    /// Takes one entry. What a prompt says costs nothing; what answered it does.
    pub fn take(&mut self, entry: &Entry) {
        self.last = entry.timestamp.or(self.last);
        if entry.is_prompt() {
            let turn = self.turns.last().map_or(1, |turn| turn.turn + 1);
            self.turns.push(LedgerTurn {
                turn,
                prompt: Some(entry.id.clone()),
                started: entry.timestamp,
                ..LedgerTurn::default()
            });
        }
        let at = self.last;
        self.count(entry, at, |turns| {
            if turns.is_empty() {
                turns.push(LedgerTurn { started: entry.timestamp, ..LedgerTurn::default() });
            }
            turns.len() - 1
        });
    }

    /// Takes an entry that an edit or a rewind took back: it is no part of the conversation any more, but its tokens were
    /// used.
    pub fn take_abandoned(&mut self, entry: &Entry) {
        let at = entry.timestamp.or(self.last);
        self.count(entry, at, |turns| {
            if turns.first().is_none_or(|first| first.turn != 0) {
                turns.insert(0, LedgerTurn { started: entry.timestamp, ..LedgerTurn::default() });
            }
            0
        });
    }

    /// Counts what an entry used, once, for the turn that it belongs to.
    fn count(&mut self, entry: &Entry, at: Option<Millis>, turn: impl FnOnce(&mut Vec<LedgerTurn>) -> usize) {
        let Some(tokens) = entry.usage.filter(|tokens| *tokens != Tokens::default()) else { return };
        if entry.counted_as.as_ref().is_some_and(|name| !self.counted.insert(name.clone())) {
            return;
        }
        let model = entry.model.as_deref().unwrap_or(UNNAMED);
        let row = LedgerRow::of(self.prices, Some(model), tokens, entry.requests, entry.cost_usd);
        let turn = turn(&mut self.turns);
        self.turns[turn].row.add(&row);
        add_to(&mut self.turns[turn].by_model, model, &row);
        let day = at.map_or(i64::MIN, |at| day_number(at, self.east));
        add_to(self.cells.entry(day).or_default(), model, &row);
    }

    /// The ledger, complete. What the agent says of the whole session fills in where prices are missing.
    #[must_use]
    pub fn finish(self, info: &SessionInfo) -> SessionLedger {
        let mut ledger = SessionLedger { turns: self.turns, ..SessionLedger::default() };
        for (day, models) in self.cells {
            let day = if day == i64::MIN { String::new() } else { crate::moment::date(day) };
            for (model, row) in models {
                ledger.total.add(&row);
                add_to(&mut ledger.by_day, &day, &row);
                add_to(&mut ledger.by_model, &model, &row);
                ledger.cells.push(LedgerCell { day: day.clone(), model, row });
            }
        }
        let unpriced = ledger.by_model.iter().filter(|(_, row)| row.cost_usd.is_none());
        ledger.unpriced = unpriced.map(|(model, _)| model.clone()).collect();
        ledger.trust_the_agent(info.cost_usd);
        ledger
    }
}

impl SessionLedger {
    /// The agent's own word for the whole: taken where ours is missing, and held against the sum of its own parts.
    fn trust_the_agent(&mut self, said: Option<f64>) {
        let Some(said) = said.filter(|usd| usd.is_finite() && *usd > 0.0) else { return };
        let total = &mut self.total;
        match total.cost_usd {
            None => {
                (total.cost_usd, total.known_cost_usd) = (Some(said), said);
                total.cost_source = Some(CostSource::Agent);
            }
            Some(sum) if total.cost_source == Some(CostSource::Agent) && differ(sum, said) => {
                let text = format!(
                    "the agent says that the session cost ${said:.4}, and its answers together ${sum:.4}"
                );
                self.warnings.push(Notice::new("usage_disagrees", text));
            }
            Some(_) => {}
        }
    }
}

/// The day of a moment, such as `2026-11-15`, where midnight is so many seconds east of Greenwich.
#[must_use]
pub fn day_of(at: Millis, east_of_utc: i32) -> String {
    crate::moment::date(day_number(at, i64::from(east_of_utc)))
}

fn day_number(at: Millis, east: i64) -> i64 {
    (i64::try_from(at / 1000).unwrap_or(i64::MAX / 2) + east).div_euclid(86_400)
}

/// Sums of money that differ by more than rounding.
fn differ(a: f64, b: f64) -> bool {
    (a - b).abs() > 0.0001 + 0.001 * a.abs().max(b.abs())
}

fn add_to(rows: &mut BTreeMap<String, LedgerRow>, key: &str, row: &LedgerRow) {
    match rows.get_mut(key) {
        Some(sum) => sum.add(row),
        None => _ = rows.insert(key.to_owned(), *row),
    }
}

#[cfg(test)]
mod tests;
