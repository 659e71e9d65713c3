//! The result of a run before its checks.

use super::Attempt;
use crate::class::Class;
use crate::execute::now_ms;
use crate::result::RunResult;
use agentline::Outcome;

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
    pub(crate) fn broken(&self, number: u32, message: String) -> RunResult {
        RunResult { message: Some(message), finished_ms: now_ms(), ..self.empty_row(number) }
    }

    fn empty_row(&self, number: u32) -> RunResult {
        RunResult {
            case: self.case().id.clone(),
            variant: self.suite.variants[self.run.variant].id.clone(),
            attempt: self.run.attempt,
            message: None,
            ..RunResult::broken(&self.key, number, String::new())
        }
    }
}
