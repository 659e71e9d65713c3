//! The budget that all runs of a server share. Each run reserves a part before it starts.

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
    spent: f64,
    reserved: f64,
}

/// The part of a budget that is reserved for one run.
///
/// Dropping it without [`settle`](Self::settle) charges all of it, because the cost of the run is not known.
#[derive(Debug)]
pub(crate) struct ReservedCost {
    budget: NestedBudget,
    amount: Option<f64>,
    is_settled: bool,
}

impl NestedBudget {
    /// Creates a budget; `None` is unlimited.
    pub(crate) fn new(limit: Option<f64>) -> Self {
        Self(Arc::new(Mutex::new(BudgetState { limit, spent: 0.0, reserved: 0.0 })))
    }

    /// Reserves the amount for a run, or half of what remains if the caller names none.
    ///
    /// # Errors
    /// Returns a message if less than the amount remains.
    pub(crate) fn reserve(&self, wanted: Option<f64>) -> Result<ReservedCost, String> {
        let mut state = self.lock();
        let amount = match (state.limit, wanted) {
            (None, wanted) => wanted,
            (Some(limit), wanted) => {
                let rest = limit - state.spent - state.reserved;
                let amount = wanted.unwrap_or(rest * DEFAULT_SHARE);
                if rest < SMALLEST || amount > rest {
                    return Err(format!(
                        "${:.4} of the budget of ${limit:.4} remains (${:.4} spent, ${:.4} reserved for agents in \
                         progress), and this run would need ${amount:.4}",
                        rest.max(0.0),
                        state.spent,
                        state.reserved
                    ));
                }
                Some(amount)
            }
        };
        state.reserved += amount.unwrap_or(0.0);
        Ok(ReservedCost { budget: self.clone(), amount, is_settled: false })
    }

    /// Returns what is neither spent nor reserved; `None` without a limit.
    pub(crate) fn remaining(&self) -> Option<f64> {
        let state = self.lock();
        state.limit.map(|limit| (limit - state.spent - state.reserved).max(0.0))
    }

    /// Returns what the runs have cost so far, as far as it is known.
    pub(crate) fn spent(&self) -> f64 {
        self.lock().spent
    }

    fn lock(&self) -> MutexGuard<'_, BudgetState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ReservedCost {
    /// Returns the reserved amount, which the run must not exceed.
    pub(crate) fn amount(&self) -> Option<f64> {
        self.amount
    }

    /// Replaces the reservation with the cost of the run. An unknown cost counts as the whole reservation.
    pub(crate) fn settle(mut self, cost: Option<f64>) {
        self.charge(cost);
    }

    fn charge(&mut self, cost: Option<f64>) {
        if std::mem::replace(&mut self.is_settled, true) {
            return;
        }
        let reserved = self.amount.unwrap_or(0.0);
        let mut state = self.budget.lock();
        state.reserved = (state.reserved - reserved).max(0.0);
        state.spent += cost.filter(|cost| cost.is_finite() && *cost >= 0.0).unwrap_or(reserved);
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

    #[test]
    fn runs_cannot_reserve_more_than_the_budget() {
        let budget = NestedBudget::new(Some(1.0));
        let first = budget.reserve(Some(0.75)).unwrap();
        assert!(budget.reserve(Some(0.5)).unwrap_err().contains("$0.2500 of the budget of $1.0000 remains"));
        let second = budget.reserve(None).unwrap();
        assert_eq!(second.amount(), Some(0.125));
        first.settle(Some(0.25));
        assert_eq!(budget.remaining(), Some(0.625));
    }

    #[test]
    fn unknown_cost_is_charged_in_full() {
        let budget = NestedBudget::new(Some(1.0));
        budget.reserve(Some(0.5)).unwrap().settle(None);
        drop(budget.reserve(Some(0.25)).unwrap());
        assert_eq!((budget.spent(), budget.remaining()), (0.75, Some(0.25)));
        budget.reserve(None).unwrap().settle(Some(9.0));
        assert!(budget.reserve(None).is_err(), "the budget is used up");
    }

    #[test]
    fn unlimited_budget_reserves_only_what_is_asked_for() {
        let budget = NestedBudget::new(None);
        assert_eq!(budget.reserve(None).unwrap().amount(), None);
        assert_eq!(budget.reserve(Some(2.0)).unwrap().amount(), Some(2.0));
        assert_eq!(budget.remaining(), None);
    }
}
