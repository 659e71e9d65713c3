//! Validates an agent's answer at the end of a turn against the schema and the completion check.
//!
//! If the answer fails, the agent is re-prompted, within limits, as part of the same run.

use crate::{
    answer_error::{AnswerError, CheckTimeout},
    run::{
        completion::{CheckInput, CheckResult, CompletionCheck},
        permission_handler::DenialFeedback,
    },
    schema::{STRUCTURED_OUTPUT, Schema},
    text::{listed, shortened},
};
use agentline_core::{Failure, FailureKind, HostResponse, Notice};
use serde_json::Value;
use std::{path::PathBuf, time::Duration};

/// The maximum length of a rejected answer in a failure message.
const LONGEST_TEXT: usize = 2000;
/// The maximum length of a check's reason in a failure message.
const LONGEST_REASON: usize = 2000;
/// The maximum length of a notice.
const LONGEST_NOTICE: usize = 300;

/// Validates the answers of one run.
#[derive(Debug)]
pub struct Validator {
    workspace: PathBuf,
    schema: Option<Schema>,
    by_tool: bool,
    until: Option<CompletionCheck>,
    repair_turns: u32,
    max_rounds: u32,
    repairs: u32,
    rounds: u32,
    feedback: Option<DenialFeedback>,
}

/// The result of one validation.
#[derive(Debug)]
#[non_exhaustive]
pub struct Validation {
    /// The answer for the run: accept, reject or re-prompt.
    pub answer: HostResponse,
    /// Notices for the caller: `repair`, `round` or `denial_reason` for each re-prompt.
    pub notices: Vec<Notice>,
}

impl Validator {
    /// Creates a validator for this workspace that accepts every answer.
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
            feedback: None,
        }
    }

    /// Requires a value that matches this schema. `by_tool` means that the agent has the tool to submit it.
    #[must_use]
    pub fn schema(mut self, schema: Schema, by_tool: bool) -> Self {
        (self.schema, self.by_tool) = (Some(schema), by_tool);
        self
    }

    /// Requires that this check passes.
    #[must_use]
    pub fn until(mut self, checker: CompletionCheck) -> Self {
        self.until = Some(checker);
        self
    }

    /// Sends the agent the reasons of a person who denied the use of a tool.
    #[must_use]
    pub(crate) fn feedback(mut self, feedback: DenialFeedback) -> Self {
        self.feedback = Some(feedback);
        self
    }

    /// Sets how many times the agent is re-prompted in the whole run: after an invalid value, and after a failed check.
    #[must_use]
    pub const fn limits(mut self, repair_turns: u32, max_rounds: u32) -> Self {
        (self.repair_turns, self.max_rounds) = (repair_turns, max_rounds);
        self
    }

    /// Returns whether there is anything to validate.
    #[must_use]
    pub const fn is_needed(&self) -> bool {
        self.schema.is_some() || self.until.is_some() || self.feedback.is_some()
    }

    /// Validates one answer: its text, and the JSON input of the tool call if there was one.
    ///
    /// `left` is the remaining time of the run, which limits the checks. Dropping the future cancels the completion
    /// check and abandons the thread of a schema check.
    pub async fn validate(&mut self, text: &str, value: Option<&str>, left: Duration) -> Validation {
        if let Some(prompt) = self.feedback.as_ref().and_then(DenialFeedback::take_prompt) {
            let notice = Notice::new("denial_reason", "sent the agent the reason for a denial");
            return Validation { answer: HostResponse::Again(prompt), notices: vec![notice] };
        }
        let handed_in = value.and_then(|value| serde_json::from_str(value).ok());
        let value = match &self.schema {
            None => handed_in,
            Some(schema) => match schema.value_of(text, handed_in, left).await {
                Ok(value) => Some(value),
                Err(AnswerError::Invalid(wrong)) => return self.repair(schema.clone(), text, &wrong),
                Err(AnswerError::Timeout(timeout)) => return unchecked(timeout, left),
            },
        };
        let Some(checker) = self.until.clone() else { return accepted(value) };
        let mut input = CheckInput::new(text, &self.workspace);
        input.value.clone_from(&value);
        match checker.check(input, left).await {
            Ok(CheckResult::Done) => accepted(value),
            Ok(CheckResult::Continue(reason)) => self.round(&checker, &reason),
            Err(failure) => Validation { answer: HostResponse::Reject(failure), notices: Vec::new() },
        }
    }

    /// Re-prompts the agent with the errors in its value.
    fn repair(&mut self, schema: Schema, text: &str, wrong: &[String]) -> Validation {
        if self.repairs >= self.repair_turns {
            let after = match self.repairs {
                0 => String::new(),
                n => format!(" after {n} repair turns"),
            };
            let begins = match text.trim() {
                "" => "the text is empty".into(),
                text => format!("the text starts with: {}", shortened(text, LONGEST_TEXT)),
            };
            let message =
                format!("the answer does not match the schema{after}: {}; {begins}", wrong.join("; "));
            let answer = HostResponse::Reject(Failure::new(FailureKind::InvalidOutput, message));
            return Validation { answer, notices: Vec::new() };
        }
        self.repairs += 1;
        let instruction = if self.by_tool {
            format!(
                "Call the tool `{STRUCTURED_OUTPUT}` with the corrected, complete answer, which must match this JSON Schema"
            )
        } else {
            "Answer again with only the corrected, complete JSON value, which must match this JSON Schema"
                .into()
        };
        let prompt = format!(
            "Your answer does not match the schema:\n{}\n\n{instruction}:\n{}",
            listed(wrong),
            schema.summary()
        );
        let message = format!(
            "the answer did not match the schema; re-prompted the agent (repair {} of {}): {}",
            self.repairs,
            self.repair_turns,
            shortened(&wrong.join("; "), LONGEST_NOTICE)
        );
        Validation { answer: HostResponse::Again(prompt), notices: vec![Notice::new("repair", message)] }
    }

    /// Re-prompts the agent with the reason from the check.
    fn round(&mut self, checker: &CompletionCheck, reason: &str) -> Validation {
        if self.rounds >= self.max_rounds {
            let message = format!(
                "{checker} still fails after round {}: {}",
                self.rounds,
                shortened(reason, LONGEST_REASON)
            );
            let answer = HostResponse::Reject(Failure::new(FailureKind::MaxRounds, message));
            return Validation { answer, notices: Vec::new() };
        }
        self.rounds += 1;
        let mut prompt = format!("The task is not complete yet. {reason}\n\nContinue until it is.");
        if self.schema.is_some() {
            prompt.push_str(" Then submit the complete answer again, as before.");
        }
        let message =
            format!("{checker} failed; re-prompted the agent (round {} of {})", self.rounds, self.max_rounds);
        Validation { answer: HostResponse::Again(prompt), notices: vec![Notice::new("round", message)] }
    }
}

/// Rejects an answer because the schema check timed out: the run or the check reached its time limit.
fn unchecked(timeout: CheckTimeout, left: Duration) -> Validation {
    let kind = if left <= timeout.0 { FailureKind::TimeoutRun } else { FailureKind::InvalidOutput };
    let failure = Failure::new(kind, timeout.to_string())
        .hint("simplify the schema: nested `anyOf`, `oneOf` and `$ref` make a check slow");
    Validation { answer: HostResponse::Reject(failure), notices: Vec::new() }
}

fn accepted(value: Option<Value>) -> Validation {
    let value = value.map(|value| value.to_string());
    Validation { answer: HostResponse::Accept { value }, notices: Vec::new() }
}

#[cfg(feature = "schema")]
#[cfg(test)]
mod tests;
