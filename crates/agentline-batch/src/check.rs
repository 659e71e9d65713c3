//! Checks of a result: what a suite demands of a run.

mod evaluate;
mod judge;
mod read;

pub use evaluate::{CheckResultRow, RunEvidence, ToolCount};
pub use judge::Judgement;
pub(crate) use judge::{JUDGE_SCHEMA, judge_prompt};
#[cfg(test)]
pub(crate) use read::NAMES as CHECK_NAMES;

use agentline::{Schema, Verdict};
use agentline_fs::digest::hex;
use globset::GlobSet;
use regex::Regex;
use serde_json::{Map, Value};
use serde_json_path::JsonPath;
use sha2::{Digest, Sha256};
use std::time::Duration;

/// A check of a run.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Check {
    /// The description for reports, such as `contains "done"`.
    pub label: String,
    /// Whether the check passes if its condition does not hold.
    pub is_negated: bool,
    /// The condition.
    pub condition: Condition,
    /// The check as the suite has it, complete with the values of variables.
    pub(crate) written: Value,
}

/// The condition of a [`Check`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Condition {
    /// The answer contains the text.
    Contains(String),
    /// The answer contains the text, whatever the case of its letters.
    ContainsIgnoringCase(String),
    /// The answer is this text, or its structured value is this one.
    Equals(Value),
    /// The answer matches the expression.
    Regex(Regex),
    /// The structured value, or else the answer as JSON, matches the schema.
    JsonSchema(Schema),
    /// The structured value, or else the answer as JSON, has a value at the path.
    JsonPath {
        /// The path.
        path: JsonPath,
        /// The value that must be there; any value if it is absent.
        equals: Option<Value>,
    },
    /// The file exists in the workspace.
    FileExists(String),
    /// The file has exactly this content.
    FileEquals {
        /// The path in the workspace.
        path: String,
        /// The content.
        text: String,
    },
    /// The file contains the text.
    FileContains {
        /// The path in the workspace.
        path: String,
        /// The text.
        text: String,
    },
    /// No file that matches changed.
    Unchanged(GlobSet),
    /// No file changed except those that match.
    OnlyChanged(GlobSet),
    /// The command succeeds in the workspace.
    Command {
        /// The command line.
        line: String,
        /// The time that it may take.
        timeout: Duration,
    },
    /// The agent called the tool, by the agent's own name or the canonical one.
    ToolUsed(String),
    /// The run ended with one of these verdicts.
    Verdict(Vec<Verdict>),
    /// The run cost at most this amount in US dollars.
    MaxCost(f64),
    /// The run used at most this number of tokens.
    MaxTokens(u64),
    /// The run took at most this number of turns.
    MaxTurns(u32),
    /// The run took at most this time.
    MaxTime(Duration),
    /// An agent judges the result.
    Judge(JudgeSpec),
}

/// A judge: which agent, and what it decides.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct JudgeSpec {
    /// What a good result is.
    pub rubric: String,
    /// The settings of the judge's run.
    pub settings: Map<String, Value>,
}

impl JudgeSpec {
    /// Returns a digest of the rubric and the settings.
    pub(crate) fn digest(&self) -> String {
        let spec = serde_json::json!([self.rubric, self.settings]).to_string();
        hex(&Sha256::digest(spec))[..24].to_owned()
    }
}

impl Condition {
    /// Returns whether the files of the workspace decide about the condition.
    pub(crate) fn reads_files(&self) -> bool {
        matches!(
            self,
            Self::FileExists(_) | Self::FileEquals { .. } | Self::FileContains { .. } | Self::Command { .. }
        )
    }
}

impl Check {
    /// Returns whether the check demands a verdict, so that it can pass although the agent did not finish.
    #[must_use]
    pub fn is_verdict(&self) -> bool {
        matches!(self.condition, Condition::Verdict(_)) && !self.is_negated
    }
}
