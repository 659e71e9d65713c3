//! The budget of a connection: the limits of its request, shared by all of its prompts.

use agentline::{Limits, Outcome};
use std::{
    ops::Sub,
    sync::{Arc, Mutex, PoisonError},
};

/// The use of the limits by the prompts of a connection. Concurrent prompts each get the remaining limits at their start.
#[derive(Clone, Debug, Default)]
pub(crate) struct SharedBudget(Arc<Mutex<Used>>);

#[derive(Clone, Copy, Debug, Default)]
struct Used {
    turns: u32,
    tool_calls: u32,
    tokens: u64,
    output_tokens: u64,
    cost: f64,
}

impl SharedBudget {
    /// Returns the remaining limits, or the name of one that is used up.
    pub(crate) fn remaining(&self, limits: &Limits) -> Result<Limits, &'static str> {
        let used = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut left = *limits;
        left.max_turns = rest(limits.max_turns, used.turns).ok_or("max_turns")?;
        left.max_tool_calls = rest(limits.max_tool_calls, used.tool_calls).ok_or("max_tool_calls")?;
        left.max_tokens = rest(limits.max_tokens, used.tokens).ok_or("max_tokens")?;
        left.max_output_tokens =
            rest(limits.max_output_tokens, used.output_tokens).ok_or("max_output_tokens")?;
        left.max_cost = rest(limits.max_cost, used.cost).ok_or("max_cost")?;
        Ok(left)
    }

    /// Adds the use of a prompt.
    pub(crate) fn add(&self, outcome: &Outcome) {
        let mut used = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        used.turns += outcome.turns;
        used.tool_calls += outcome.tool_calls;
        used.tokens += outcome.usage.tokens.sum();
        used.output_tokens += outcome.usage.tokens.produced();
        used.cost += outcome.cost_usd.unwrap_or(0.0);
    }
}

/// Returns the rest of a limit, or `None` if nothing is left of it.
#[expect(clippy::option_option, reason = "the outer one says whether anything is left")]
fn rest<N: Copy + PartialOrd + Sub<Output = N>>(limit: Option<N>, used: N) -> Option<Option<N>> {
    match limit {
        Some(limit) if limit <= used => None,
        limit => Some(limit.map(|limit| limit - used)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_shared_by_all_prompts() {
        let budget = SharedBudget::default();
        let mut limits = Limits::default();
        (limits.max_turns, limits.max_cost) = (Some(3), Some(0.5));
        assert_eq!(budget.remaining(&limits), Ok(limits));
        budget.0.lock().unwrap().turns = 2;
        assert_eq!(budget.remaining(&limits).unwrap().max_turns, Some(1));
        budget.0.lock().unwrap().turns = 3;
        assert_eq!(budget.remaining(&limits), Err("max_turns"));
        budget.0.lock().unwrap().turns = 0;
        budget.0.lock().unwrap().cost = 0.6;
        assert_eq!(budget.remaining(&limits), Err("max_cost"));
        assert_eq!(budget.remaining(&Limits::default()), Ok(Limits::default()));
    }
}
