//! The events of a run, and queries on them.

use crate::shown;
use agentline::{Event, Outcome, PermissionEvent, Record, Run, ToolStatus, ToolUse};

/// All events of a run and its outcome.
#[derive(Debug)]
pub struct RunRecord {
    /// The events, without the outcome.
    pub records: Vec<Record>,
    /// The outcome.
    pub outcome: Outcome,
}

impl RunRecord {
    /// Reads a run to its end.
    ///
    /// # Panics
    /// Never panics, because the last event is the outcome.
    pub async fn of(mut run: Run) -> Self {
        let mut records = Vec::new();
        while let Some(record) = run.next().await {
            if let Event::Outcome { outcome } = record.event {
                return Self { records, outcome: *outcome };
            }
            records.push(record);
        }
        unreachable!("the last event is the outcome");
    }

    /// Returns every decision in order: tool, decision, decider, reason, rule.
    #[must_use]
    pub fn decisions(&self) -> Vec<String> {
        let word = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".into());
        let decisions = self.records.iter().filter_map(|record| match &record.event {
            Event::Permission(PermissionEvent { tool, decision, by, reason, rule, .. }) => {
                Some(format!("{tool} {decision} {by} {} {}", word(reason), word(rule)))
            }
            _ => None,
        });
        decisions.collect()
    }

    /// Returns every denial of the outcome: tool, reason, rule.
    #[must_use]
    pub fn denied(&self) -> Vec<String> {
        let rule = |rule: &Option<String>| rule.clone().unwrap_or_else(|| "-".into());
        self.outcome.denied.iter().map(|d| format!("{} {} {}", d.tool, d.reason, rule(&d.rule))).collect()
    }

    /// Returns the calls in order.
    #[must_use]
    pub fn tools(&self) -> Vec<&ToolUse> {
        let tools = self.records.iter().filter_map(|record| match &record.event {
            Event::ToolUse(tool) => Some(tool),
            _ => None,
        });
        tools.collect()
    }

    /// Returns the statuses of the calls in order.
    #[must_use]
    pub fn ends(&self) -> Vec<ToolStatus> {
        let ends = self.records.iter().filter_map(|record| match &record.event {
            Event::ToolResult(result) => Some(result.status),
            _ => None,
        });
        ends.collect()
    }

    /// Returns the results of the calls in order.
    #[must_use]
    pub fn results(&self) -> Vec<&str> {
        let results = self.records.iter().filter_map(|record| match &record.event {
            Event::ToolResult(result) => Some(result.content.as_deref().unwrap_or_default()),
            _ => None,
        });
        results.collect()
    }

    /// Returns the codes of the warnings.
    #[must_use]
    pub fn warnings(&self) -> Vec<&str> {
        self.outcome.warnings.iter().map(|warning| warning.code.as_str()).collect()
    }

    /// Formats everything for a failed assertion.
    #[must_use]
    pub fn shown(&self) -> String {
        let records: Vec<String> =
            self.records.iter().map(|r| serde_json::to_string(r).unwrap_or_default()).collect();
        format!("{}\n{}", records.join("\n"), shown(&self.outcome))
    }
}
