//! What a list and a count need to know about a session, small enough to be remembered.

use agentline_core::{Entry, LedgerRow, Millis, Part, PriceTable, Role, SavedSession, SessionInfo, Tokens};
use serde::{Deserialize, Serialize};
use std::hash::{DefaultHasher, Hash, Hasher};

/// How long a title may be that is made from the first prompt, in characters.
const TITLE: usize = 100;

/// About one session, or about the part of it in one file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Facts {
    pub(super) info: SessionInfo,
    /// The first prompt on one line, shortened.
    pub(super) prompt: Option<String>,
    pub(super) prompts: u64,
    pub(super) answers: u64,
    pub(super) tool_calls: u64,
    /// How many places could not be read.
    pub(super) damage: u64,
    /// Names of models that `used` points to.
    pub(super) models: Vec<String>,
    pub(super) used: Vec<Used>,
}

/// The tokens of one answer.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(from = "Row", into = "Row")]
pub(super) struct Used {
    /// The same in every copy of the answer.
    pub(super) key: u64,
    pub(super) at: Option<Millis>,
    /// Which of the models; `None` when it is not known.
    pub(super) model: Option<u32>,
    pub(super) requests: Option<u64>,
    /// What it cost by the agent's own word.
    pub(super) cost_usd: Option<f64>,
    pub(super) tokens: Tokens,
}

impl Facts {
    pub(super) fn of(session: &SavedSession) -> Self {
        let mut facts = Self { info: session.info.clone(), ..Self::default() };
        facts.damage = session.damage.len() as u64;
        let mut last = None;
        for entry in session.loaded_entries() {
            last = entry.timestamp.or(last);
            facts.tool_calls += entry.tools().count() as u64;
            if entry.is_prompt() {
                facts.prompts += 1;
                if facts.prompt.is_none() {
                    facts.prompt = one_line(&entry);
                }
            } else if entry.role == Role::Assistant {
                facts.answers += 1;
            }
            facts.count(&entry, last);
        }
        // What an edit or a rewind left behind is no part of the conversation any more, but its tokens were used.
        for entry in &session.abandoned {
            facts.count(entry, entry.timestamp.or(last));
        }
        facts
    }

    /// Whether somebody said something in it.
    pub(super) fn says_something(&self) -> bool {
        self.prompts + self.answers > 0
    }

    fn count(&mut self, entry: &Entry, at: Option<Millis>) {
        let Some(tokens) = entry.usage.filter(|tokens| *tokens != Tokens::default()) else { return };
        let model = entry.model.as_ref().map(|name| {
            let at = self.models.iter().position(|known| known == name).unwrap_or_else(|| {
                self.models.push(name.clone());
                self.models.len() - 1
            });
            u32::try_from(at).unwrap_or(u32::MAX)
        });
        let key = match &entry.counted_as {
            Some(name) => key_of(&[&self.info.agent, name]),
            None => key_of(&[&self.info.agent, &self.info.id, &entry.id]),
        };
        let (requests, cost_usd) = (entry.requests, entry.cost_usd);
        self.used.push(Used { key, at, model, requests, cost_usd, tokens });
    }

    /// The name of the model of a count; `unknown` for none.
    pub(super) fn model(&self, used: &Used) -> &str {
        let named = used.model.and_then(|at| self.models.get(usize::try_from(at).ok()?));
        named.map_or("unknown", String::as_str)
    }

    /// What a count comes to at these prices.
    pub(super) fn row(&self, used: &Used, prices: &PriceTable) -> LedgerRow {
        LedgerRow::of(prices, Some(self.model(used)), used.tokens, used.requests, used.cost_usd)
    }
}

/// A number that stands for these words, in every process and version.
fn key_of(words: &[&str]) -> u64 {
    // The hasher of the standard library with its fixed keys; should it ever change, the index is of another format.
    let mut hasher = DefaultHasher::new();
    words.hash(&mut hasher);
    hasher.finish()
}

fn one_line(entry: &Entry) -> Option<String> {
    let texts = entry.parts.iter().filter_map(|part| match part {
        Part::Text { text } => Some(text.as_str()),
        _ => None,
    });
    let mut line = String::new();
    let mut letters = 0;
    for word in texts.flat_map(str::split_whitespace) {
        let room = TITLE.saturating_sub(letters + usize::from(!line.is_empty()));
        if !line.is_empty() {
            line.push(' ');
            letters += 1;
        }
        if word.chars().count() > room {
            line.extend(word.chars().take(room));
            line.truncate(line.trim_end().len());
            line.push('…');
            return Some(line);
        }
        line.push_str(word);
        letters += word.chars().count();
    }
    (!line.is_empty()).then_some(line)
}

/// How a count is written: a short list instead of names that would be written thousands of times.
#[derive(Serialize, Deserialize)]
struct Row(u64, Option<Millis>, Option<u32>, Option<u64>, Option<f64>, [Option<u64>; 8]);

impl From<Used> for Row {
    fn from(used: Used) -> Self {
        let t = used.tokens;
        let counts =
            [t.input, t.output, t.cached, t.cache_write, t.cache_write_long, t.thoughts, t.tool, t.total];
        Self(used.key, used.at, used.model, used.requests, used.cost_usd, counts)
    }
}

impl From<Row> for Used {
    fn from(Row(key, at, model, requests, cost_usd, counts): Row) -> Self {
        let [input, output, cached, cache_write, cache_write_long, thoughts, tool, total] = counts;
        let tokens = Tokens { input, output, cached, cache_write, cache_write_long, thoughts, tool, total };
        Self { key, at, model, requests, cost_usd, tokens }
    }
}
