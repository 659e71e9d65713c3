//! The result of a run before its checks.

use super::Attempt;
use crate::class::Class;
use crate::execute::now_ms;
use crate::result::RunResult;
use crate::store::{InterruptedTry, try_dir};
use agentline::{FailureKind, Outcome, Verdict};

/// The name of the kind of an interrupted run, as `classes` has it.
const INTERRUPTED: &str = "interrupted";

/// Why an interrupted run has no other result.
const INTERRUPTED_MESSAGE: &str = "the run was interrupted, and its suite says that it is not repeatable; \
                                   `--rerun infra` executes it again";

impl Attempt {
    /// Returns the row of a run whose agent ended.
    pub(super) fn row(&self, number: u32, outcome: &Outcome) -> RunResult {
        let error = outcome.error.as_ref();
        RunResult {
            class: Class::Failed,
            verdict: outcome.verdict,
            kind: error.map(|error| error.kind),
            message: error.map(|error| error.message.clone()),
            agent: outcome.agent.to_string(),
            agent_version: outcome.agent_version.clone(),
            model: outcome.model.clone(),
            cost_usd: outcome.cost_usd,
            tokens: outcome.usage.tokens.total,
            turns: outcome.turns,
            tool_calls: outcome.tool_calls,
            duration_ms: outcome.duration_ms,
            files: u32::try_from(outcome.files.len()).unwrap_or(u32::MAX),
            is_cached: outcome.cache.as_ref().is_some_and(|cache| cache.hit),
            ..self.empty_row(number)
        }
    }

    /// Returns the row of a run that could not be carried out.
    pub(in super::super) fn broken(&self, number: u32, message: String) -> RunResult {
        RunResult { message: Some(message), finished_ms: now_ms(), ..self.empty_row(number) }
    }

    /// Returns the row of a run that was interrupted and must not be executed again.
    pub(in super::super) fn interrupted(&self, last: InterruptedTry) -> RunResult {
        let class = self.suite.classes.0.get(INTERRUPTED).copied().unwrap_or(Class::Infrastructure);
        RunResult {
            class,
            kind: Some(FailureKind::Interrupted),
            cost_usd: last.cost.agent_usd,
            judge_cost_usd: last.cost.judge_usd,
            ..self.broken(last.number, INTERRUPTED_MESSAGE.to_owned())
        }
    }

    fn empty_row(&self, number: u32) -> RunResult {
        RunResult {
            key: self.key.clone(),
            case: self.case().id.clone(),
            variant: self.suite.variants[self.run.variant].id.clone(),
            attempt: self.run.attempt,
            tries: number,
            class: Class::Infrastructure,
            verdict: Verdict::Failed,
            kind: None,
            message: None,
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
            dir: try_dir(&self.key, number),
            not_stored: None,
            is_cached: false,
        }
    }
}
