//! The facts about a session that lists and usage counts need, small enough for the index.

use agentline_core::{
    Entry, EntryPart, Millis, PriceTable, Role, SavedSession, SessionInfo, Tokens, UsageEntry,
};
use serde::{Deserialize, Serialize};
use std::{
    collections::HashSet,
    hash::{DefaultHasher, Hash, Hasher},
};

/// The maximum length, in characters, of a title made from the first prompt.
const TITLE: usize = 100;

/// Facts about one session, or about the part of it in one file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct SessionFacts {
    pub(crate) info: SessionInfo,
    /// The first prompt on one line, shortened.
    pub(crate) prompt: Option<String>,
    pub(crate) prompts: u64,
    /// The number of turns, one for each answer of the model.
    pub(crate) answers: u64,
    pub(crate) tool_calls: u64,
    /// The number of places that could not be read.
    pub(crate) damage: u64,
    /// The model names that `used` refers to by position.
    pub(crate) models: Vec<String>,
    pub(crate) used: Vec<AnswerUsage>,
}

/// The tokens of one answer.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(from = "Row", into = "Row")]
pub(crate) struct AnswerUsage {
    /// An identifier that is equal in every copy of the answer.
    pub(crate) key: u64,
    pub(crate) at: Option<Millis>,
    /// The index into `models`, or `None` if the model is unknown.
    pub(crate) model: Option<u32>,
    pub(crate) requests: Option<u64>,
    /// The cost that the agent itself reported.
    pub(crate) cost_usd: Option<f64>,
    pub(crate) tokens: Tokens,
}

impl AnswerUsage {
    /// Returns the number of answers that the count covers.
    pub(crate) fn answers(&self) -> u64 {
        self.requests.unwrap_or(1)
    }
}

impl SessionFacts {
    pub(crate) fn of(session: &SavedSession) -> Self {
        let mut facts = Self { info: session.info.clone(), ..Self::default() };
        facts.damage = session.damage.len() as u64;
        let mut last = None;
        let mut command = None;
        for entry in session.loaded_entries() {
            last = entry.timestamp.or(last);
            facts.tool_calls += entry.tools().count() as u64;
            if entry.is_prompt() {
                facts.prompts += 1;
                // A command such as `/clear` says less about a session than its first words.
                let title = if entry.command.is_some() { &mut command } else { &mut facts.prompt };
                if title.is_none() {
                    *title = one_line(&entry);
                }
            } else if entry.role == Role::Assistant {
                facts.answers += 1;
            }
            facts.count(&entry, last);
        }
        facts.prompt = facts.prompt.or(command);
        // Entries dropped by an edit or a rewind are not part of the conversation any more, but their tokens were used.
        for entry in &session.abandoned {
            facts.count(entry, entry.timestamp.or(last));
        }
        // Some agents save the calls of an answer in entries of their own. Its tokens are saved once.
        if facts.has_content() && !facts.used.is_empty() {
            let mut seen = HashSet::new();
            let counted = facts.used.iter().filter(|used| seen.insert(used.key));
            facts.answers = counted.map(AnswerUsage::answers).sum();
        }
        facts
    }

    /// Returns whether the session has a prompt or an answer.
    pub(crate) fn has_content(&self) -> bool {
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
        self.used.push(AnswerUsage { key, at, model, requests, cost_usd, tokens });
    }

    /// Returns the model name of a count, or `unknown`.
    pub(crate) fn model(&self, used: &AnswerUsage) -> &str {
        let named = used.model.and_then(|at| self.models.get(usize::try_from(at).ok()?));
        named.map_or("unknown", String::as_str)
    }

    /// Returns the tokens and cost of a count at these prices.
    pub(crate) fn row(&self, used: &AnswerUsage, prices: &PriceTable) -> UsageEntry {
        UsageEntry::of(prices, Some(self.model(used)), used.tokens, used.requests, used.cost_usd)
    }
}

/// Hashes these strings to a number that is the same in every process.
fn key_of(parts: &[&str]) -> u64 {
    // `DefaultHasher::new` has fixed keys. If its algorithm changes, so does the crate version in the header of the
    // index.
    let mut hasher = DefaultHasher::new();
    parts.hash(&mut hasher);
    hasher.finish()
}

fn one_line(entry: &Entry) -> Option<String> {
    let texts = entry.parts.iter().filter_map(|part| match part {
        EntryPart::Text { text } => Some(text.as_str()),
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

/// The serialized form of a count: a list, because field names would be repeated thousands of times.
#[derive(Serialize, Deserialize)]
struct Row(u64, Option<Millis>, Option<u32>, Option<u64>, Option<f64>, [Option<u64>; 8]);

impl From<AnswerUsage> for Row {
    fn from(used: AnswerUsage) -> Self {
        let t = used.tokens;
        let counts =
            [t.input, t.output, t.cached, t.cache_write, t.cache_write_long, t.thoughts, t.tool, t.total];
        Self(used.key, used.at, used.model, used.requests, used.cost_usd, counts)
    }
}

impl From<Row> for AnswerUsage {
    fn from(Row(key, at, model, requests, cost_usd, counts): Row) -> Self {
        let [input, output, cached, cache_write, cache_write_long, thoughts, tool, total] = counts;
        let tokens = Tokens { input, output, cached, cache_write, cache_write_long, thoughts, tool, total };
        Self { key, at, model, requests, cost_usd, tokens }
    }
}
