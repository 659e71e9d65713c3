//! The class of a run: passed, failed, or a failure of the infrastructure that says nothing about the agent.

use agentline::{FailureKind, Outcome, Verdict};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What a finished run counts as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// The agent solved the case.
    Passed,
    /// The agent did not solve the case.
    Failed,
    /// The run says nothing about the agent.
    Infrastructure,
}

impl Class {
    /// Returns the name used in suites and output.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Failed => "failed",
            Self::Infrastructure => "infrastructure",
        }
    }

    /// Returns the class with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        [Self::Passed, Self::Failed, Self::Infrastructure].into_iter().find(|class| class.name() == name)
    }
}

/// How an outcome is classified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Classification {
    /// The checks decide.
    ByChecks,
    /// It failed, unless a `verdict` check expects it.
    FailedUnlessExpected,
    /// The run is of this class, whatever the checks say.
    Fixed(Class),
    /// The run is not a result, and is executed again when the batch is resumed.
    NotCommitted,
}

/// The rows that a suite overrides: verdicts or kinds of failures, and the class of each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClassTable(pub BTreeMap<String, Class>);

impl ClassTable {
    /// Returns the class of a run that was interrupted and must not be executed again.
    #[must_use]
    pub(crate) fn of_interrupted(&self) -> Class {
        let row = name_of(FailureKind::Interrupted).and_then(|name| self.0.get(&name).copied());
        row.unwrap_or(Class::Infrastructure)
    }

    /// Returns how an outcome is classified. A row for the kind of a failure takes precedence over one for the verdict.
    #[must_use]
    pub fn classify(&self, outcome: &Outcome) -> Classification {
        let kind = outcome.error.as_ref().map(|error| error.kind);
        if outcome.verdict == Verdict::Cancelled {
            return Classification::NotCommitted;
        }
        let kind_name = kind.and_then(name_of);
        let row = kind_name.and_then(|name| self.0.get(&name)).or_else(|| self.0.get(outcome.verdict.name()));
        row.map_or_else(|| default_class(outcome.verdict, kind), |class| Classification::Fixed(*class))
    }
}

/// The rows of the table in the documentation.
fn default_class(verdict: Verdict, kind: Option<FailureKind>) -> Classification {
    match verdict {
        Verdict::Done | Verdict::DoneWithDenials => Classification::ByChecks,
        Verdict::Cancelled => Classification::NotCommitted,
        Verdict::Empty | Verdict::InvalidOutput | Verdict::LimitReached => {
            Classification::FailedUnlessExpected
        }
        Verdict::TimedOut if kind != Some(FailureKind::TimeoutStartup) => {
            Classification::FailedUnlessExpected
        }
        Verdict::Failed
            if matches!(
                kind,
                Some(
                    FailureKind::Loop
                        | FailureKind::ContextOverflow
                        | FailureKind::Crashed
                        | FailureKind::NoResult
                )
            ) =>
        {
            Classification::FailedUnlessExpected
        }
        _ => Classification::Fixed(Class::Infrastructure),
    }
}

/// Returns the name of a verdict or kind, as output has it.
fn name_of(value: impl Serialize) -> Option<String> {
    serde_json::to_value(value).ok()?.as_str().map(str::to_owned)
}

/// Returns whether a name is that of a verdict or of a kind of failure.
pub(crate) fn is_outcome_name(name: &str) -> bool {
    let value = serde_json::Value::from(name);
    serde_json::from_value::<Verdict>(value.clone()).is_ok()
        || serde_json::from_value::<FailureKind>(value).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn outcome(verdict: &str, kind: Option<&str>) -> Outcome {
        let error = kind.map(|kind| {
            json!({"kind": kind, "phase": "response", "message": "m", "hint": null, "stderr_tail": "", "retryable": false})
        });
        let value = json!({
            "run_id": "r", "agent": "fake", "agent_version": null, "surface": null, "model": null, "session_id": null,
            "cwd": "/", "name": null, "verdict": verdict, "error": error, "text": "", "output": null, "files": [],
            "denied": [], "usage": {"requests": null, "by_model": {}, "sources": []}, "cost_usd": null, "turns": 0,
            "tool_calls": 0, "stop_reason": null, "duration_ms": 0, "first_event_ms": null, "warnings": [],
            "unreadable_lines": 0, "agent_exit_code": null, "stderr_tail": "", "tape": null,
        });
        serde_json::from_value(value).expect("an outcome")
    }

    #[test]
    fn classes_follow_the_table() {
        let fixed = Classification::Fixed(Class::Infrastructure);
        let table = ClassTable::default();
        for (verdict, kind, expected) in [
            ("done", None, Classification::ByChecks),
            ("done_with_denials", None, Classification::ByChecks),
            ("empty", Some("empty"), Classification::FailedUnlessExpected),
            ("invalid_output", None, Classification::FailedUnlessExpected),
            ("limit_reached", Some("max_turns"), Classification::FailedUnlessExpected),
            ("timed_out", Some("timeout_run"), Classification::FailedUnlessExpected),
            ("timed_out", Some("timeout_idle"), Classification::FailedUnlessExpected),
            ("timed_out", Some("timeout_startup"), fixed),
            ("failed", Some("loop"), Classification::FailedUnlessExpected),
            ("failed", Some("context_overflow"), Classification::FailedUnlessExpected),
            ("failed", Some("crashed"), Classification::FailedUnlessExpected),
            ("failed", Some("no_result"), Classification::FailedUnlessExpected),
            ("failed", Some("api_error"), fixed),
            ("failed", Some("network"), fixed),
            ("failed", Some("spawn"), fixed),
            ("rate_limited", Some("rate_limited"), fixed),
            ("not_authenticated", Some("not_authenticated"), fixed),
            ("not_installed", Some("not_installed"), fixed),
            ("untrusted", Some("untrusted"), fixed),
            ("cancelled", None, Classification::NotCommitted),
        ] {
            assert_eq!(table.classify(&outcome(verdict, kind)), expected, "{verdict} {kind:?}");
        }
        let own =
            ClassTable([("empty".into(), Class::Infrastructure), ("crashed".into(), Class::Passed)].into());
        assert_eq!(own.classify(&outcome("empty", None)), fixed);
        assert_eq!(own.classify(&outcome("failed", Some("crashed"))), Classification::Fixed(Class::Passed));
        assert_eq!(own.classify(&outcome("cancelled", None)), Classification::NotCommitted);
    }
}
