//! The result of a run, as it is stored and reported.

use crate::check::{CheckResultRow, ToolCount};
use crate::class::Class;
use agentline::{FailureKind, Verdict};
use serde::{Deserialize, Serialize};

/// The file with the messages of a run, in the run's directory.
pub(crate) const MESSAGES: &str = "messages.jsonl";
/// The tape of a run, in the run's directory. Only a run with an agent of its own has one.
pub(crate) const TAPE: &str = "tape.jsonl";
/// The file with the changes of a run, in the run's directory.
pub(crate) const CHANGES: &str = "changes.jsonl";
/// The file with the names of changed files that Git ignores, in the run's directory; absent if there are none.
pub(crate) const IGNORED: &str = "ignored.json";
/// The file with the changes of a run as a patch, in the run's directory.
pub(crate) const PATCH: &str = "patch.diff";

/// Returns the directory of all tries of a run, relative to the experiment.
pub(crate) fn run_dir(run: &str) -> String {
    format!("runs/{}/{run}", run.get(..2).unwrap_or("00"))
}

/// Returns the directory of a try, relative to the experiment.
#[must_use]
pub fn try_dir(run: &str, number: u32) -> String {
    format!("{}/{number}", run_dir(run))
}

/// The result of one run of an experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RunResult {
    /// The key of the run.
    pub key: String,
    /// The id of the case.
    pub case: String,
    /// The id of the variant.
    pub variant: String,
    /// The attempt, from 0.
    pub attempt: u32,
    /// The number of the try that was committed, from 1.
    pub tries: u32,
    /// The class.
    pub class: Class,
    /// The verdict of the agent's run.
    pub verdict: Verdict,
    /// The kind of the failure, if the run failed.
    pub kind: Option<FailureKind>,
    /// Why the run failed, in one line.
    pub message: Option<String>,
    /// The results of the checks.
    pub checks: Vec<CheckResultRow>,
    /// The agent.
    pub agent: String,
    /// The version of the agent.
    pub agent_version: Option<String>,
    /// The model that ran.
    pub model: Option<String>,
    /// The cost of the run in US dollars, if it is known.
    pub cost_usd: Option<f64>,
    /// The cost of its judges in US dollars.
    pub judge_cost_usd: Option<f64>,
    /// The tokens of the run, if they are known.
    pub tokens: Option<u64>,
    /// The number of model turns.
    pub turns: u32,
    /// The number of tool calls.
    pub tool_calls: u32,
    /// The duration of the agent's run in milliseconds.
    pub duration_ms: u64,
    /// The tools that the agent called.
    pub tools: Vec<ToolCount>,
    /// The number of files that changed.
    pub files: u32,
    /// How the workspace was isolated.
    pub isolation: String,
    /// Whether the source of the hidden files was out of the agent's reach; absent without hidden files.
    pub hidden_covered: Option<bool>,
    /// When the run ended, in milliseconds since 1970.
    pub finished_ms: u64,
    /// The directory of the try, relative to the experiment.
    pub dir: String,
    /// Why the final workspace is not stored, or not all of it, so that new checks cannot look at it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_stored: Option<String>,
    /// Whether the outcome comes from the cache, so that the run cost nothing now.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_cached: bool,
}

impl RunResult {
    /// Returns whether the run says something about the agent.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.class != Class::Infrastructure
    }

    /// Returns what the run and its judges cost now, if it is known. A result from the cache costs nothing.
    pub(crate) fn cost_now(&self) -> Option<f64> {
        let agent = if self.is_cached { Some(0.0) } else { self.cost_usd };
        agent.map(|agent| agent + self.judge_cost_usd.unwrap_or(0.0))
    }

    /// Returns whether a run without a known cost surely cost nothing: its agent did not start, or the service refused its
    /// requests. An agent without a turn may have waited for the answer to its first request.
    pub(crate) fn is_free(&self) -> bool {
        let was_started = !self.agent.is_empty();
        let is_refused = matches!(
            self.verdict,
            Verdict::NotInstalled | Verdict::NotAuthenticated | Verdict::RateLimited | Verdict::Untrusted
        ) || matches!(
            self.kind,
            Some(
                FailureKind::Spawn
                    | FailureKind::Settings
                    | FailureKind::Policy
                    | FailureKind::UnknownModel
                    | FailureKind::SessionNotFound
            )
        );
        !was_started || (is_refused && self.turns == 0)
    }

    /// Creates the result of a run that could not be carried out.
    pub(crate) fn broken(key: &str, number: u32, message: String) -> Self {
        Self {
            key: key.to_owned(),
            case: String::new(),
            variant: String::new(),
            attempt: 0,
            tries: number,
            class: Class::Infrastructure,
            verdict: Verdict::Failed,
            kind: None,
            message: Some(message),
            checks: Vec::new(),
            agent: String::new(),
            agent_version: None,
            model: None,
            cost_usd: None,
            judge_cost_usd: None,
            tokens: None,
            turns: 0,
            tool_calls: 0,
            duration_ms: 0,
            tools: Vec::new(),
            files: 0,
            isolation: "none".into(),
            hidden_covered: None,
            finished_ms: 0,
            dir: try_dir(key, number),
            not_stored: None,
            is_cached: false,
        }
    }

    /// Replaces a result that is too large to be stored: says why, and leaves out what can be long.
    pub(crate) fn reduce(&mut self, message: String) {
        self.class = Class::Infrastructure;
        self.message = Some(message);
        self.checks.clear();
        self.tools.clear();
    }

    /// Returns why the run did not pass: the first check that failed, or else its message or verdict.
    pub(crate) fn reason(&self) -> String {
        let failed = self.checks.iter().find(|check| !check.passed);
        failed
            .map(|check| format!("{}: {}", check.check, check.detail))
            .or_else(|| self.message.clone())
            .unwrap_or_else(|| self.verdict.name().to_owned())
    }

    /// Creates a result for tests.
    #[cfg(test)]
    pub(crate) fn example(key: &str, case: &str, variant: &str, class: &str) -> Self {
        serde_json::from_value(serde_json::json!({
            "key": key, "case": case, "variant": variant, "attempt": 0, "tries": 1, "class": class,
            "verdict": "done", "kind": null, "message": null, "checks": [], "agent": "x", "agent_version": null,
            "model": null, "cost_usd": null, "judge_cost_usd": null, "tokens": null, "turns": 1, "tool_calls": 0,
            "duration_ms": 1, "tools": [], "files": 0, "isolation": "none", "hidden_covered": null,
            "finished_ms": 0, "dir": format!("runs/{}/{key}/1", &key[..2]),
        }))
        .expect("a result")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_without_a_turn_is_free_only_if_no_request_was_answered() {
        let mut result = RunResult::broken("00", 1, "the workspace cannot be prepared".into());
        assert!(result.is_free());
        result.agent = "gemini".into();
        for (verdict, kind, expected) in [
            (Verdict::TimedOut, FailureKind::TimeoutRun, false),
            (Verdict::Failed, FailureKind::Crashed, false),
            (Verdict::Failed, FailureKind::Spawn, true),
            (Verdict::NotInstalled, FailureKind::NotInstalled, true),
            (Verdict::RateLimited, FailureKind::RateLimited, true),
        ] {
            (result.verdict, result.kind) = (verdict, Some(kind));
            assert_eq!(result.is_free(), expected, "{kind:?}");
        }
        result.turns = 1;
        assert!(!result.is_free());
    }
}
