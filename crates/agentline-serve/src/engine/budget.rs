//! What the runs of a token may cost in a day.

use super::ServeEngine;
use crate::{clock::now_ms, http_error::ApiError, token_use::StartTurn, tokens::AccessToken};

const DAY_MS: u64 = 24 * 60 * 60 * 1_000;

impl ServeEngine {
    /// Admits a run that may cost this much, unless the daily budget of its token is used up. The run must be among those in
    /// progress before the turn ends.
    ///
    /// What ended runs have cost counts, and for each run in progress the larger of its cost so far and its limit.
    pub(crate) async fn admit(
        &self,
        token: &AccessToken,
        max_cost: Option<f64>,
    ) -> Result<Option<StartTurn>, ApiError> {
        let Some(budget) = token.policy.daily_cost_usd else { return Ok(None) };
        let turn = token.in_use.start_turn().await;
        // A run that ends between the two steps counts twice instead of not at all.
        let running: f64 = self.of_token(&token.name).map(|run| run.committed_cost()).sum();
        let ended = self.store.spent(&token.name, now_ms().saturating_sub(DAY_MS)).await?;
        let left = budget - running - ended;
        if left <= 0.0 {
            return Err(ApiError::rate_limited("the daily budget of this token is used up")
                .hint("wait until earlier runs have ended or are older than a day"));
        }
        if max_cost.is_some_and(|cost| cost > left) {
            let message =
                format!("`max_cost` is more than the {left:.4} US dollars left of the daily budget");
            return Err(ApiError::rate_limited(&message).hint("lower `max_cost`, or wait"));
        }
        Ok(Some(turn))
    }
}
