//! The budget of a server, and the part of it that each run may spend together with the runs that its agent starts.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The part of the remaining budget that a run gets if its caller does not name an amount.
const DEFAULT_SHARE: f64 = 0.5;
/// Amounts below this are not worth a run.
const SMALLEST: f64 = 0.0001;

/// A budget in US dollars. Cloning is cheap and shares it.
#[derive(Clone, Debug)]
pub(crate) struct NestedBudget(Arc<Mutex<BudgetState>>);

#[derive(Debug)]
struct BudgetState {
    limit: Option<f64>,
    /// What the agent that has this budget has cost so far; `None` if that is not known.
    own: Option<f64>,
    /// What the runs that were started from this budget have cost.
    spent: f64,
    /// What runs in progress may still cost.
    reserved: f64,
    /// The budget that pays for the runs in progress when the run that has this budget is over.
    parent: Option<NestedBudget>,
}

/// The part of a budget that is reserved for one run.
///
/// Dropping it without [`settle`](Self::settle) charges all of it, because the cost of the run is not known.
#[derive(Debug)]
pub(crate) struct ReservedCost {
    from: NestedBudget,
    part: NestedBudget,
    amount: Option<f64>,
    is_settled: bool,
}

impl NestedBudget {
    /// Creates a budget; `None` is unlimited.
    pub(crate) fn new(limit: Option<f64>) -> Self {
        let state = BudgetState { limit, own: Some(0.0), spent: 0.0, reserved: 0.0, parent: None };
        Self(Arc::new(Mutex::new(state)))
    }

    /// Reserves the amount for a run, or half of what remains if the caller names none, but never more than `most`.
    ///
    /// # Errors
    /// Returns a message if less than the amount remains.
    pub(crate) fn reserve(&self, wanted: Option<f64>, most: Option<f64>) -> Result<ReservedCost, String> {
        let mut state = self.lock();
        if state.parent.is_some() {
            return Err("the run of the agent that calls is over".into());
        }
        let half = state.rest()?.map(|rest| rest * DEFAULT_SHARE);
        let amount = [wanted.or(half), most].into_iter().flatten().reduce(f64::min);
        if let (Some(rest), Some(amount)) = (state.rest()?, amount)
            && (rest < SMALLEST || amount > rest)
        {
            return Err(state.exhausted(rest, amount));
        }
        state.reserved += amount.unwrap_or(0.0);
        Ok(ReservedCost { from: self.clone(), part: Self::new(amount), amount, is_settled: false })
    }

    /// Returns what is neither spent nor reserved; `None` without a limit.
    pub(crate) fn remaining(&self) -> Option<f64> {
        let state = self.lock();
        state.rest().unwrap_or(Some(0.0)).map(|rest| rest.max(0.0))
    }

    /// Returns what the runs have cost so far, as far as it is known.
    pub(crate) fn spent(&self) -> f64 {
        self.lock().spent
    }

    /// Sets what the agent that has this budget has cost so far; `None` if that is not known. Returns whether it has
    /// spent what the runs that it started may need.
    pub(crate) fn set_own_cost(&self, cost: Option<f64>) -> bool {
        let mut state = self.lock();
        state.own = cost;
        let runs = state.spent + state.reserved;
        // Without such runs, the limit of its own run is enough.
        runs > 0.0 && state.limit.is_some_and(|limit| cost.is_some_and(|own| own + runs > limit + SMALLEST))
    }

    /// Returns a message if the agent that has this budget, at this cost, and its runs have cost more than its limit.
    pub(crate) fn excess(&self, own: f64) -> Option<String> {
        let state = self.lock();
        let limit = state.limit.filter(|limit| own + state.spent > limit + SMALLEST)?;
        Some(format!(
            "cost limit of ${limit:.4} reached: ${own:.4} used by this agent and ${:.4} by the agents that it started",
            state.spent
        ))
    }

    /// Adds a cost, and changes what is reserved. A budget whose run is over passes both on.
    fn book(&self, cost: f64, reserved: f64) {
        let mut state = self.lock();
        state.spent += cost;
        state.reserved += reserved;
        let parent = state.parent.clone();
        drop(state);
        if let Some(parent) = parent {
            parent.book(cost, reserved);
        }
    }

    /// Refuses further runs. Returns what the runs have cost and what those in progress have reserved, for which
    /// `parent` pays from now on.
    fn close(&self, parent: &Self) -> (f64, f64) {
        let mut state = self.lock();
        state.parent = Some(parent.clone());
        (state.spent, state.reserved)
    }

    fn lock(&self) -> MutexGuard<'_, BudgetState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl BudgetState {
    /// Returns what remains; `None` without a limit.
    fn rest(&self) -> Result<Option<f64>, String> {
        let Some(limit) = self.limit else { return Ok(None) };
        let own = self.own.ok_or_else(|| {
            format!(
                "what this agent has cost so far is not known, because its model has no price; it can start others \
                 only without its limit of ${limit:.4}"
            )
        })?;
        Ok(Some(limit - own - self.spent - self.reserved))
    }

    fn exhausted(&self, rest: f64, amount: f64) -> String {
        format!(
            "${:.4} of the budget of ${:.4} remains (${:.4} spent, ${:.4} reserved for agents in progress), and this \
             run would need ${:.4}",
            rest.max(0.0),
            self.limit.unwrap_or_default(),
            self.own.unwrap_or_default() + self.spent,
            self.reserved.max(0.0),
            amount.max(0.0)
        )
    }
}

impl ReservedCost {
    /// Returns the reserved amount, which the run must not exceed.
    pub(crate) fn amount(&self) -> Option<f64> {
        self.amount
    }

    /// Returns the reserved amount as the budget of the agent of the run, for the runs that it starts.
    pub(crate) fn part(&self) -> &NestedBudget {
        &self.part
    }

    /// Replaces the reservation with the cost of the run and of those that its agent started. An unknown cost counts as
    /// what those left of the reservation.
    pub(crate) fn settle(mut self, cost: Option<f64>) {
        self.charge(cost);
    }

    fn charge(&mut self, cost: Option<f64>) {
        if std::mem::replace(&mut self.is_settled, true) {
            return;
        }
        let amount = self.amount.unwrap_or(0.0);
        let (spent, still_reserved) = self.part.close(&self.from);
        let known = cost.filter(|cost| cost.is_finite() && *cost >= 0.0);
        let own = known.unwrap_or_else(|| (amount - spent).max(0.0));
        self.from.book(own + spent, still_reserved - amount);
    }
}

impl Drop for ReservedCost {
    fn drop(&mut self) {
        self.charge(None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reserve(budget: &NestedBudget, wanted: impl Into<Option<f64>>) -> Result<ReservedCost, String> {
        budget.reserve(wanted.into(), None)
    }

    #[test]
    fn runs_cannot_reserve_more_than_the_budget() {
        let budget = NestedBudget::new(Some(1.0));
        let first = reserve(&budget, 0.75).unwrap();
        let refused = reserve(&budget, 0.5).unwrap_err();
        assert!(refused.contains("$0.2500 of the budget of $1.0000 remains"), "{refused}");
        let second = reserve(&budget, None).unwrap();
        assert_eq!(second.amount(), Some(0.125));
        first.settle(Some(0.25));
        assert_eq!(budget.remaining(), Some(0.625));
    }

    #[test]
    fn run_never_gets_more_than_its_own_limit() {
        for budget in [NestedBudget::new(None), NestedBudget::new(Some(8.0))] {
            for wanted in [None, Some(3.0)] {
                assert_eq!(budget.reserve(wanted, Some(0.5)).unwrap().amount(), Some(0.5));
            }
        }
    }

    #[test]
    fn unknown_cost_is_charged_in_full() {
        let budget = NestedBudget::new(Some(1.0));
        reserve(&budget, 0.5).unwrap().settle(None);
        drop(reserve(&budget, 0.25).unwrap());
        assert_eq!((budget.spent(), budget.remaining()), (0.75, Some(0.25)));
        reserve(&budget, None).unwrap().settle(Some(9.0));
        assert!(reserve(&budget, None).is_err(), "the budget is used up");
    }

    #[test]
    fn unlimited_budget_reserves_only_what_is_asked_for() {
        let budget = NestedBudget::new(None);
        assert_eq!(reserve(&budget, None).unwrap().amount(), None);
        assert_eq!(reserve(&budget, 2.0).unwrap().amount(), Some(2.0));
        assert_eq!(budget.remaining(), None);
    }

    #[test]
    fn runs_of_an_agent_spend_from_its_part_and_from_the_whole() {
        let server = NestedBudget::new(Some(16.0));
        let outer = reserve(&server, 1.0).unwrap();
        let part = outer.part().clone();
        assert!(reserve(&part, 2.0).unwrap_err().contains("$1.0000 of the budget of $1.0000 remains"));
        reserve(&part, 0.5).unwrap().settle(Some(0.25));
        assert!(!part.set_own_cost(Some(0.5)));
        assert_eq!((part.remaining(), server.remaining()), (Some(0.25), Some(15.0)));
        assert!(reserve(&part, 0.5).is_err());
        let deepest = reserve(&part, 0.25).unwrap();
        assert!(reserve(deepest.part(), 0.5).unwrap_err().contains("of the budget of $0.2500"));
        deepest.settle(Some(0.125));
        outer.settle(Some(0.5));
        assert_eq!((server.spent(), server.remaining()), (0.875, Some(15.125)));
    }

    #[test]
    fn agent_must_not_spend_what_its_runs_may_need() {
        let server = NestedBudget::new(None);
        let outer = reserve(&server, 1.0).unwrap();
        assert!(!outer.part().set_own_cost(Some(2.0)), "its own limit stops it");
        outer.part().set_own_cost(Some(0.0));
        let inner = reserve(outer.part(), 0.75).unwrap();
        assert!(!outer.part().set_own_cost(Some(0.25)));
        assert!(outer.part().set_own_cost(Some(0.5)));
        inner.settle(Some(0.75));
        assert_eq!(outer.part().excess(0.25), None);
        assert_eq!(
            outer.part().excess(0.5).unwrap(),
            "cost limit of $1.0000 reached: $0.5000 used by this agent and $0.7500 by the agents that it started"
        );
    }

    #[test]
    fn agent_of_unknown_cost_starts_no_others_within_a_limit() {
        for (limit, is_refused) in [(Some(1.0), true), (None, false)] {
            let part = NestedBudget::new(limit);
            part.set_own_cost(None);
            assert_eq!(reserve(&part, 0.5).is_err(), is_refused, "{limit:?}");
        }
    }

    #[test]
    fn run_that_outlasts_its_parent_is_charged_to_the_whole() {
        let server = NestedBudget::new(Some(4.0));
        let outer = reserve(&server, 1.0).unwrap();
        let part = outer.part().clone();
        let inner = reserve(&part, 0.5).unwrap();
        outer.settle(None);
        assert!(reserve(&part, 0.125).unwrap_err().contains("is over"));
        assert_eq!((server.spent(), server.remaining()), (1.0, Some(2.5)));
        inner.settle(Some(0.25));
        assert_eq!((server.spent(), server.remaining()), (1.25, Some(2.75)));
    }
}
