//! Asks an agent to judge the outcome of a run.

use super::Attempt;
use crate::check::{JUDGE_SCHEMA, JudgeSpec, Judgement, judge_prompt};
use crate::execute::checking::Judging;
use crate::execute::lane::Lane;
use agentline::{Outcome, RunOptions, Schema};
use agentline_core::error_chain;

impl Attempt {
    /// Asks an agent to judge the outcome.
    async fn judge(
        &self,
        lane: &Lane<'_>,
        judge: &JudgeSpec,
        outcome: &Outcome,
        cost_usd: &mut Option<f64>,
    ) -> Result<Judgement, String> {
        let (agentline, request) = self
            .requests
            .get(&judge.settings)
            .ok_or_else(|| "the settings of the judge are missing".to_owned())?;
        let mut request = request.clone();
        let mark = format!("=== {} ===", uuid::Uuid::new_v4());
        request.prompt = judge_prompt(judge, &self.case().prompts[self.run.variant], outcome, &mark);
        request.working_dir = Some(lane.for_judge().map_err(|error| error.to_string())?);
        let schema = serde_json::from_str(JUDGE_SCHEMA).map_err(|error| error.to_string())?;
        let schema = Schema::from_value(schema).map_err(|problems| problems.to_string())?;
        let options = RunOptions::default().schema(schema);
        let run = self.shared.pool.run_as(agentline, request, options).await;
        let judged = run.map_err(|error| error_chain(&error))?.outcome().await;
        if let Some(cost) = judged.cost_usd {
            *cost_usd.get_or_insert(0.0) += cost;
        }
        let answer = judged.output.as_ref().filter(|_| judged.is_done());
        answer.and_then(|output| serde_json::from_str(output.get()).ok()).ok_or_else(|| {
            judged.error.map_or_else(|| judged.verdict.name().to_owned(), |error| error.message)
        })
    }
}

/// Judges the outcome of a run with an agent, and adds up the cost.
pub(super) struct Judged<'a> {
    pub(super) attempt: &'a Attempt,
    pub(super) lane: &'a Lane<'a>,
    pub(super) outcome: &'a Outcome,
    pub(super) cost_usd: Option<f64>,
}

impl Judging for Judged<'_> {
    async fn judge(&mut self, judge: &JudgeSpec, _label: &str) -> Result<Judgement, String> {
        self.attempt.judge(self.lane, judge, self.outcome, &mut self.cost_usd).await
    }
}
