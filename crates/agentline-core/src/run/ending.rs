//! The end of a run: warnings about its numbers, and the outcome.

use super::RunState;
use crate::{
    Charge, CostSource, FailureKind, Millis, Notice, OUTCOME_SCHEMA, Outcome, RunError, Tokens, Verdict,
    verdict,
};

/// The number of lines of each output that the message of an unexplained failure quotes.
const QUOTED_LINES: usize = 3;
/// The maximum length of a quoted line in characters.
const QUOTED_CHARS: usize = 300;

impl RunState {
    /// Returns warnings about the output, usage and cost of the run, once everything was read.
    pub(crate) fn doubts(&self) -> Vec<Notice> {
        let found = self.usage.disagreements();
        let mut doubts = Vec::new();
        if !self.unreadable_samples.is_empty() {
            let text = format!(
                "Malformed JSON lines: {} in total, first: {:?}",
                self.unreadable, self.unreadable_samples
            );
            doubts.push(Notice::new("malformed_lines", text));
        }
        if !found.is_empty() {
            doubts.push(Notice::new("usage_disagrees", found.join("; ")));
        }
        doubts.extend(self.unenforced_budgets());
        if self.bill().is_some_and(|(charge, _)| charge.estimated) {
            let text =
                "`cost_usd` is an estimate: long prompts cost more, and the length of each prompt is unknown";
            doubts.push(Notice::new("cost_estimated", text));
        }
        doubts
    }

    /// Returns a warning about limits that could not be enforced, because the agent did not report what they limit.
    fn unenforced_budgets(&self) -> Option<Notice> {
        let limits = &self.spec.limits;
        let no_tokens = self.usage.total() == Tokens::default();
        let unenforced = [
            ("max_tokens", limits.max_tokens.is_some() && no_tokens),
            ("max_output_tokens", limits.max_output_tokens.is_some() && no_tokens),
            ("max_cost", limits.max_cost.is_some() && self.cost().is_none()),
        ];
        let keys: Vec<String> =
            unenforced.into_iter().filter(|(_, is)| *is).map(|(key, _)| format!("`{key}`")).collect();
        if keys.is_empty() || self.turns() == 0 {
            return None;
        }
        let why =
            if no_tokens { "the agent reported no usage" } else { "the price of its model is not known" };
        Some(Notice::new("limit_not_enforced", format!("{} could not be enforced: {why}", keys.join(", "))))
    }

    /// Returns the cost so far in US dollars, if it is known.
    pub(super) fn cost(&self) -> Option<f64> {
        self.bill().map(|(charge, _)| charge.usd)
    }

    /// Returns the cost and its source.
    ///
    /// The user's own prices take precedence. Next is the cost that the agent reports, which includes its helper models
    /// and contract terms, and then the price table. An agent that reports a cost of zero for tokens does not know
    /// their price.
    fn bill(&self) -> Option<(Charge, CostSource)> {
        let prices = &self.spec.prices;
        let model = self.model.as_ref().or(self.spec.info.model.as_ref());
        let listed = self.usage.charge(prices, model.map(String::as_str));
        let listed = listed.map(|charge| (charge, CostSource::Prices));
        let mut models: Vec<String> = self.usage.by_model().into_keys().collect();
        if models.is_empty() {
            models.extend(model.cloned());
        }
        let yours = !models.is_empty() && models.iter().all(|model| prices.is_yours(model));
        match Some(self.charged.unwrap_or(0.0).max(self.recorded_cost)).filter(|usd| *usd > 0.0) {
            Some(usd) if listed.is_none() || !yours => Some((Charge::of(usd), CostSource::Agent)),
            _ => listed,
        }
    }

    /// Redacts secrets in the kept output of the agent.
    pub(crate) fn redact_output(&mut self, redactor: &crate::Redactor) {
        redactor.own(&mut self.stderr);
        redactor.own(&mut self.stdout);
    }

    /// Builds the outcome of the run. Called once.
    pub(crate) fn outcome(&mut self, at: Millis) -> Outcome {
        if self.facts.stop.is_none() {
            // A limit that the last turn exceeds takes effect after it.
            self.facts.stop = self.over_limit();
        }
        let holds_no_value = self.spec.extract_json && self.value.is_none() && !self.find_value();
        if holds_no_value && self.facts.answer {
            self.facts.fits_schema = Some(false);
        }
        let (verdict, mut failure) = verdict(&self.facts);
        if let Some(failure) =
            failure.as_mut().filter(|f| holds_no_value && f.kind == FailureKind::InvalidOutput)
        {
            failure.message = "the answer contains no JSON value".into();
            failure.hint = Some("check `text`, and ask for JSON only".into());
        }
        if let (Some(failure), Some(most)) = (&mut failure, self.spec.limits.max_turns)
            && failure.kind == crate::FailureKind::AgentTurns
            && self.turns() >= most
        {
            // The agent received our limit and enforced it.
            *failure = crate::Failure::new(
                crate::FailureKind::MaxTurns,
                format!("turn limit of {most} reached: the agent stopped after turn {}", self.turns()),
            );
        }
        let tail = self.stderr.trim_end().to_owned();
        let info = &self.spec.info;
        let error =
            failure.filter(|_| !matches!(verdict, Verdict::Done | Verdict::DoneWithDenials)).map(|mut f| {
                f.hint = f.hint.or_else(|| crate::hint::hint(f.kind, info.sign_in_hint.as_deref()));
                // The missing result may have been in an unreadable line.
                if self.unreadable > 0 && matches!(f.kind, FailureKind::Empty | FailureKind::NoResult) {
                    f.message.push_str(&format!("; unreadable lines: {}", self.unreadable));
                }
                if f.is_unexplained
                    && let Some(quote) = self.last_output()
                {
                    f.message.push_str(&format!("; last output: {quote}"));
                }
                let error = RunError::new(f, tail.clone());
                RunError { stdout_tail: self.stdout.trim_end().to_owned(), ..error }
            });
        Outcome {
            schema: OUTCOME_SCHEMA,
            run_id: info.run_id.clone(),
            agent: info.agent.clone(),
            agent_version: info.agent_version.clone(),
            surface: info.surface,
            model: self.model.clone().or_else(|| info.model.clone()),
            session_id: self.session.clone(),
            cwd: info.cwd.clone(),
            name: info.name.clone(),
            verdict,
            error,
            text: std::mem::take(&mut self.text),
            output: self.value.take(),
            files: self.changes.rows(&info.cwd, self.disk.as_ref()),
            denied: std::mem::take(&mut self.denied),
            usage: self.usage.usage(),
            cost_usd: self.cost().map(crate::usage::round_usd),
            cost_source: self.bill().map(|(_, source)| source),
            turns: self.turns(),
            tool_calls: self.tool_calls,
            stop_reason: self.facts.end.as_ref().and_then(|e| e.stop.clone()),
            duration_ms: at.saturating_sub(self.started_at),
            first_event_ms: self.first,
            warnings: std::mem::take(&mut self.warnings),
            unreadable_lines: self.unreadable,
            agent_exit_code: self.facts.exit,
            stderr_tail: tail,
            tape: info.tape.clone(),
            cache: None,
            attempts: None,
        }
    }

    /// Returns the last lines of the agent's output that are not part of its protocol, on one line.
    fn last_output(&self) -> Option<String> {
        let last = |text: &str| {
            let lines = text.lines().rev().map(str::trim).filter(|line| !line.is_empty()).take(QUOTED_LINES);
            let lines: Vec<String> = lines.map(|line| line.chars().take(QUOTED_CHARS).collect()).collect();
            lines.into_iter().rev()
        };
        let lines: Vec<String> = last(&self.stdout).chain(last(&self.stderr)).collect();
        (!lines.is_empty()).then(|| lines.join(" / "))
    }
}
