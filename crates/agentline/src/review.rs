//! Judges an agent's answer when its turn has ended: does it fit the schema, and is the task complete? If not, the agent
//! is sent on, within limits; all of that is one run.

use crate::{
    Schema,
    schema::{
        STRUCTURED_OUTPUT,
        limit::{CheckTimeout, check_within},
        listed, shortened,
    },
    until::{CheckInput, Checked, Checker},
};
use agentline_core::{Answer, Failure, Kind, Notice, json_candidates};
use serde_json::Value;
use std::{path::PathBuf, time::Duration};

/// How much of an answer that does not fit is told with the failure.
const LONGEST_TEXT: usize = 2000;
/// How much of what a check said is told with the failure.
const LONGEST_REASON: usize = 2000;
/// How much is told in a notice.
const LONGEST_NOTICE: usize = 300;

/// Judges the answers of one run.
#[derive(Debug)]
pub struct Reviewer {
    workspace: PathBuf,
    schema: Option<Schema>,
    by_tool: bool,
    until: Option<Checker>,
    repair_turns: u32,
    max_rounds: u32,
    repairs: u32,
    rounds: u32,
}

/// What came of one review.
#[derive(Debug)]
#[non_exhaustive]
pub struct Reviewed {
    /// What the run is told.
    pub answer: Answer,
    /// What the caller should know: `repair` and `round`, each time that the agent is sent on.
    pub notices: Vec<Notice>,
}

impl Reviewer {
    /// Wants nothing yet; what an agent does, it does in this workspace.
    #[must_use]
    pub fn new(workspace: impl Into<PathBuf>) -> Self {
        Self {
            workspace: workspace.into(),
            schema: None,
            by_tool: false,
            until: None,
            repair_turns: 2,
            max_rounds: 10,
            repairs: 0,
            rounds: 0,
        }
    }

    /// The answer must be a value of this schema. `by_tool` says that the agent has the tool to hand it in.
    #[must_use]
    pub fn schema(mut self, schema: Schema, by_tool: bool) -> Self {
        (self.schema, self.by_tool) = (Some(schema), by_tool);
        self
    }

    /// The task must be complete by this check.
    #[must_use]
    pub fn until(mut self, checker: Checker) -> Self {
        self.until = Some(checker);
        self
    }

    /// How often the agent may mend a value that does not fit, and how often it is sent on by the check, in the whole run.
    #[must_use]
    pub const fn limits(mut self, repair_turns: u32, max_rounds: u32) -> Self {
        (self.repair_turns, self.max_rounds) = (repair_turns, max_rounds);
        self
    }

    /// Whether there is anything to judge.
    #[must_use]
    pub const fn is_needed(&self) -> bool {
        self.schema.is_some() || self.until.is_some()
    }

    /// Judges one answer: its text, and what the tool was called with, as JSON, where it was. A check may take the time
    /// that is left of the run. Whoever drops the future ends the check.
    pub async fn review(&mut self, text: &str, value: Option<&str>, left: Duration) -> Reviewed {
        let handed_in = value.and_then(|value| serde_json::from_str(value).ok());
        let value = match &self.schema {
            None => handed_in,
            Some(schema) => {
                let (checked, answer) = (schema.clone(), text.to_owned());
                let fits = move || fitting(&checked, &answer, handed_in.as_ref());
                match check_within(left, fits).await {
                    Ok(Ok(value)) => Some(value),
                    Ok(Err(wrong)) => return self.repair(schema.clone(), text, &wrong),
                    Err(timeout) => return unchecked(timeout, left),
                }
            }
        };
        let Some(checker) = self.until.clone() else { return accepted(value) };
        let mut input = CheckInput::new(text, &self.workspace);
        input.value.clone_from(&value);
        match checker.check(input, left).await {
            Ok(Checked::Done) => accepted(value),
            Ok(Checked::Continue(why)) => self.round(&checker, &why),
            Err(failure) => Reviewed { answer: Answer::Reject(failure), notices: Vec::new() },
        }
    }

    /// Sends the agent on with what is wrong with its value.
    fn repair(&mut self, schema: Schema, text: &str, wrong: &[String]) -> Reviewed {
        if self.repairs >= self.repair_turns {
            let after = match self.repairs {
                0 => String::new(),
                n => format!(" after {n} repair turns"),
            };
            let begins = match text.trim() {
                "" => "there is no text".into(),
                text => format!("the text begins: {}", shortened(text, LONGEST_TEXT)),
            };
            let message =
                format!("the answer does not fit the schema{after}: {}; {begins}", wrong.join("; "));
            let answer = Answer::Reject(Failure::new(Kind::InvalidOutput, message));
            return Reviewed { answer, notices: Vec::new() };
        }
        self.repairs += 1;
        let how = if self.by_tool {
            format!(
                "Call the tool `{STRUCTURED_OUTPUT}` with the corrected, complete answer, of this JSON Schema"
            )
        } else {
            "Answer again with the corrected, complete JSON value and nothing else, of this JSON Schema"
                .into()
        };
        let prompt = format!(
            "Your answer does not fit what was asked for:\n{}\n\n{how}:\n{}",
            listed(wrong),
            schema.gist()
        );
        let told = format!(
            "the answer did not fit the schema, so the agent was sent on (repair {} of {}): {}",
            self.repairs,
            self.repair_turns,
            shortened(&wrong.join("; "), LONGEST_NOTICE)
        );
        Reviewed { answer: Answer::Again(prompt), notices: vec![Notice::new("repair", told)] }
    }

    /// Sends the agent on with what the check said.
    fn round(&mut self, checker: &Checker, why: &str) -> Reviewed {
        if self.rounds >= self.max_rounds {
            let message = format!(
                "{checker} still failed after {} rounds: {}",
                self.rounds,
                shortened(why, LONGEST_REASON)
            );
            let answer = Answer::Reject(Failure::new(Kind::MaxRounds, message));
            return Reviewed { answer, notices: Vec::new() };
        }
        self.rounds += 1;
        let mut prompt = format!("The task is not complete yet. {why}\n\nGo on until it is.");
        if self.schema.is_some() {
            prompt.push_str(" Then hand in the whole answer again, as before.");
        }
        let told = format!(
            "{checker} failed, so the agent was sent on (round {} of {})",
            self.rounds, self.max_rounds
        );
        Reviewed { answer: Answer::Again(prompt), notices: vec![Notice::new("round", told)] }
    }
}

/// The check against the schema did not end in time: that of the run, or that of one check.
fn unchecked(timeout: CheckTimeout, left: Duration) -> Reviewed {
    let kind = if left <= timeout.0 { Kind::TimeoutRun } else { Kind::InvalidOutput };
    let failure = Failure::new(kind, timeout.to_string())
        .hint("simplify the schema: `anyOf`, `oneOf` and `$ref` that nest multiply the work of a check");
    Reviewed { answer: Answer::Reject(failure), notices: Vec::new() }
}

fn accepted(value: Option<Value>) -> Reviewed {
    let value = value.map(|value| value.to_string());
    Reviewed { answer: Answer::Accept { value }, notices: Vec::new() }
}

/// The value that was handed in, or else the one in the text; or what is wrong with it.
fn fitting(schema: &Schema, text: &str, handed_in: Option<&Value>) -> Result<Value, Vec<String>> {
    let by_tool = handed_in.map(|input| schema.take(input));
    if let Some(Ok(value)) = by_tool {
        return Ok(value);
    }
    let candidates = json_candidates(text);
    let bare = candidates.iter().find(|candidate| schema.check(candidate).is_ok()).cloned();
    // A model may write what it would have called the tool with, or a text where a text is wanted.
    let wrapped = || candidates.iter().find_map(|candidate| schema.take(candidate).ok());
    let words = || Some(Value::from(text.trim())).filter(|text| text != "" && schema.check(text).is_ok());
    if let Some(value) = bare.or_else(wrapped).or_else(words) {
        return Ok(value);
    }
    match (by_tool, candidates.first()) {
        (Some(Err(wrong)), _) => Err(wrong),
        (_, Some(candidate)) => Err(schema.check(candidate).err().unwrap_or_default()),
        _ => Err(vec!["there is no JSON value in the answer".into()]),
    }
}

#[cfg(test)]
mod tests;
