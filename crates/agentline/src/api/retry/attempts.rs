//! Joins the outcomes of all attempts: what earlier attempts used and changed belongs to the run.

use agentline_core::{Limits, Millis, Notice, Outcome, Tokens, Usage, UsageTotals, round_usd};

/// The attempts before the current one.
#[derive(Default)]
pub(super) struct EarlierAttempts {
    /// The outcome of the last of them, which includes those before it.
    last: Option<Outcome>,
    count: u32,
}

impl EarlierAttempts {
    /// Adds the joined outcome of an attempt.
    pub(super) fn add(&mut self, outcome: Outcome) {
        self.last = Some(outcome);
        self.count += 1;
    }

    /// Turns the outcome of an attempt that started at this time into the outcome of the run.
    pub(super) fn join(&self, outcome: &mut Outcome, run_id: &str, start: Millis) {
        run_id.clone_into(&mut outcome.run_id);
        let Some(earlier) = &self.last else { return };
        outcome.attempts = Some(self.count + 1);
        outcome.duration_ms += start;
        outcome.first_event_ms =
            earlier.first_event_ms.or_else(|| outcome.first_event_ms.map(|first| first + start));
        let mut totals = UsageTotals::default();
        totals.add(earlier);
        totals.add(outcome);
        outcome.cost_usd = totals.cost_usd.map(round_usd);
        outcome.cost_source = outcome.cost_source.or(earlier.cost_source);
        add_usage(&earlier.usage, &mut outcome.usage);
        outcome.turns += earlier.turns;
        outcome.tool_calls += earlier.tool_calls;
        outcome.unreadable_lines += earlier.unreadable_lines;
        let known = |path: &str| outcome.files.iter().any(|row| row.path == path);
        let mut files: Vec<_> = earlier.files.iter().filter(|row| !known(&row.path)).cloned().collect();
        files.append(&mut outcome.files);
        outcome.files = files;
        let is_new = |warning: &&Notice| !outcome.warnings.contains(warning);
        let mut warnings: Vec<_> = earlier.warnings.iter().filter(is_new).cloned().collect();
        warnings.append(&mut outcome.warnings);
        outcome.warnings = warnings;
    }

    /// Adds what these attempts used to the counts of the current one.
    pub(super) fn add_to(&self, usage: &mut Usage) {
        if let Some(earlier) = &self.last {
            add_usage(&earlier.usage, usage);
        }
    }

    /// Returns the limits of the next attempt, or `None` if the attempts so far have used one of them up. `limits` are
    /// those of the last attempt, and `joined` is its outcome.
    pub(super) fn remaining(&self, limits: &Limits, joined: &Outcome) -> Option<Limits> {
        let before = self.last.as_ref();
        let used =
            joined.usage.tokens.minus(before.map_or(Tokens::default(), |earlier| earlier.usage.tokens));
        let mut left = *limits;
        lower(&mut left.max_turns, joined.turns - before.map_or(0, |earlier| earlier.turns))?;
        lower(&mut left.max_tool_calls, joined.tool_calls - before.map_or(0, |earlier| earlier.tool_calls))?;
        lower(&mut left.max_tokens, used.sum())?;
        lower(&mut left.max_output_tokens, used.produced())?;
        let cost = |outcome: &Outcome| outcome.cost_usd.unwrap_or(0.0);
        lower(&mut left.max_cost, (cost(joined) - before.map_or(0.0, cost)).max(0.0))?;
        Some(left)
    }

    /// Returns the outcome of the last attempt with this warning, for a run that could not be retried.
    pub(super) fn into_last(self, notice: Notice) -> Option<Outcome> {
        let mut outcome = self.last?;
        outcome.warnings.push(notice);
        Some(outcome)
    }
}

/// Lowers a limit by what was used. Returns `None` if nothing is left of it.
fn lower<N: Copy + PartialOrd + std::ops::Sub<Output = N>>(limit: &mut Option<N>, used: N) -> Option<()> {
    if let Some(limit) = limit {
        if *limit <= used {
            return None;
        }
        *limit = *limit - used;
    }
    Some(())
}

/// Adds the counts of earlier attempts to those of the current one.
fn add_usage(earlier: &Usage, usage: &mut Usage) {
    usage.tokens = earlier.tokens.plus(usage.tokens);
    usage.requests = match (earlier.requests, usage.requests) {
        (Some(earlier), Some(requests)) => Some(earlier.saturating_add(requests)),
        (earlier, requests) => earlier.or(requests),
    };
    for (model, tokens) in &earlier.by_model {
        let sum = usage.by_model.entry(model.clone()).or_default();
        *sum = sum.plus(*tokens);
    }
    for source in &earlier.sources {
        if !usage.sources.contains(source) {
            usage.sources.push(*source);
        }
    }
    for (name, origin) in &earlier.origins {
        usage.origins.entry(name.clone()).or_insert(*origin);
    }
    let before = earlier.turns.last().map_or(0, |turn| turn.turn);
    usage.turns.iter_mut().for_each(|turn| turn.turn += before);
    usage.turns.splice(0..0, earlier.turns.iter().cloned());
}

#[cfg(test)]
mod tests {
    use super::*;
    use agentline_core::{Failure, FailureKind, RunInfo, Verdict};
    use serde_json::json;

    fn outcome(id: &str, input: u64, cost: Option<f64>, file: Option<&str>) -> Outcome {
        let failure = Failure::new(FailureKind::Crashed, "it crashed");
        let mut outcome = Outcome::not_started(&RunInfo::default(), Verdict::Failed, failure);
        outcome.run_id = id.to_owned();
        (outcome.turns, outcome.tool_calls, outcome.duration_ms, outcome.cost_usd) = (1, 2, 10, cost);
        outcome.usage.tokens = Tokens { input: Some(input), total: Some(input), ..Tokens::default() };
        outcome.usage.by_model.insert("m".into(), outcome.usage.tokens);
        outcome.usage.requests = Some(1);
        let row = |path: &str| {
            let row = json!({"path": path, "change": "created", "source": "tool", "verified": true});
            serde_json::from_value(row).unwrap()
        };
        outcome.files = file.into_iter().map(row).collect();
        outcome
    }

    #[test]
    fn the_outcome_covers_all_attempts() {
        let mut earlier = EarlierAttempts::default();
        let mut first = outcome("first", 100, Some(0.25), Some("a"));
        earlier.join(&mut first, "first", 0);
        assert_eq!((first.attempts, first.duration_ms), (None, 10));
        earlier.add(first);
        let mut second = outcome("second", 50, Some(0.5), Some("b"));
        earlier.join(&mut second, "first", 1000);
        assert_eq!((&*second.run_id, second.attempts, second.duration_ms), ("first", Some(2), 1010));
        assert_eq!((second.turns, second.tool_calls, second.cost_usd), (2, 4, Some(0.75)));
        assert_eq!((second.usage.tokens.input, second.usage.requests), (Some(150), Some(2)));
        assert_eq!(second.usage.by_model["m"].input, Some(150));
        assert_eq!(second.files.iter().map(|row| &*row.path).collect::<Vec<_>>(), ["a", "b"]);
        earlier.add(second);
        let mut third = outcome("third", 1, None, None);
        earlier.join(&mut third, "first", 2000);
        assert_eq!((third.attempts, third.turns, third.cost_usd), (Some(3), 3, None));
    }

    #[test]
    fn limits_hold_for_all_attempts_together() {
        let mut earlier = EarlierAttempts::default();
        let first = outcome("first", 100, Some(0.25), None);
        let mut limits = Limits::default();
        (limits.max_tokens, limits.max_turns, limits.max_cost) = (Some(150), Some(3), Some(1.0));
        let left = earlier.remaining(&limits, &first).unwrap();
        assert_eq!((left.max_tokens, left.max_turns, left.max_cost), (Some(50), Some(2), Some(0.75)));
        assert_eq!((left.max_tool_calls, left.max_output_tokens), (None, None));
        limits.max_tokens = Some(100);
        assert_eq!(earlier.remaining(&limits, &first), None);
        // The limits of the second attempt are lowered only by what that attempt used.
        earlier.add(first);
        let mut second = outcome("second", 20, Some(0.25), None);
        earlier.join(&mut second, "first", 0);
        let left = earlier.remaining(&left, &second).unwrap();
        assert_eq!((left.max_tokens, left.max_turns, left.max_cost), (Some(30), Some(1), Some(0.5)));
    }
}
