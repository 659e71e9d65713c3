//! The answers of the model in one scenario, and the counters of its requests.

use agentline_mock::agents::ServedRequest;
use agentline_mock::answer::Answer;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// The answers of the model in one scenario.
#[derive(Clone)]
pub(crate) enum ScenarioScript {
    /// These answers in order. The last one also answers every later request.
    Answers(Vec<Answer>),
    /// An answer that depends on the request.
    By(fn(&ServedRequest) -> Answer),
}

impl ScenarioScript {
    /// Returns a script with one answer to every request.
    pub(crate) fn always(answer: Answer) -> Self {
        Self::Answers(vec![answer])
    }

    /// Delays the first answer.
    pub(crate) fn thinking(mut self, millis: u64) -> Self {
        if let Self::Answers(answers) = &mut self
            && let Some(first) = answers.first_mut()
            && millis > 0
        {
            *first = first.clone().delay(millis);
        }
        self
    }

    fn answer(&self, index: usize, request: &ServedRequest) -> Answer {
        match self {
            Self::Answers(answers) => {
                answers.get(index).or(answers.last()).cloned().unwrap_or_else(Answer::empty)
            }
            Self::By(answer) => answer(request),
        }
    }
}

/// The scripts of all scenarios that one model serves, by their marks.
#[derive(Clone, Default)]
pub(crate) struct Scripts(Arc<Mutex<BTreeMap<String, Served>>>);

struct Served {
    script: ScenarioScript,
    turns: usize,
    first: Option<Instant>,
}

impl Scripts {
    /// Adds the script of a scenario.
    pub(crate) fn add(&self, mark: &str, script: ScenarioScript) {
        self.lock().insert(mark.to_owned(), Served { script, turns: 0, first: None });
    }

    /// Answers a request by the mark in its prompt.
    pub(crate) fn answer(&self, request: &ServedRequest) -> Answer {
        let mut scripts = self.lock();
        let mark = mark_in(&request.user_texts);
        let Some(served) = mark.and_then(|mark| scripts.get_mut(mark)) else {
            return Answer::text("This prompt belongs to no scenario.");
        };
        served.turns += 1;
        served.first.get_or_insert_with(Instant::now);
        served.script.answer(served.turns - 1, request)
    }

    /// Returns the number of turns that the model has answered for a scenario.
    pub(crate) fn turns(&self, mark: &str) -> usize {
        self.lock().get(mark).map_or(0, |served| served.turns)
    }

    /// Returns when the first turn of a scenario reached the model.
    pub(crate) fn first(&self, mark: &str) -> Option<Instant> {
        self.lock().get(mark).and_then(|served| served.first)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Served>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

const OPENING: &str = "[kit-";

/// Returns the mark of a scenario, which is part of its prompts.
pub(crate) fn mark(number: usize) -> String {
    format!("{OPENING}{number:04}]")
}

/// Returns the last mark in the user's texts.
pub(crate) fn mark_in(texts: &[String]) -> Option<&str> {
    texts.iter().rev().find_map(|text| {
        let begin = text.rfind(OPENING)?;
        let end = text[begin..].find(']')?;
        Some(&text[begin..=begin + end])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_mark_of_the_prompt_counts() {
        let texts = ["[kit-0001] first", "no mark", "[kit-0002] second [kit-0003]", "<reminder>"];
        let texts = texts.map(str::to_owned);
        assert_eq!(mark_in(&texts), Some("[kit-0003]"));
        assert_eq!(mark_in(&texts[1..2]), None);
        assert_eq!(mark(7), "[kit-0007]");
    }
}
