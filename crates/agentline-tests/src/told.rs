//! All that a run told: its events, and what the stories ask about them.

use crate::shown;
use agentline::{Event, Outcome, Record, Run, ToolStatus, ToolUse};

/// All that a run told.
#[derive(Debug)]
pub struct RunRecord {
    /// Its events, without the outcome.
    pub records: Vec<Record>,
    /// What it came to.
    pub outcome: Outcome,
}

impl RunRecord {
    /// Reads a run to its end.
    ///
    /// # Panics
    /// Never: the last event is the outcome.
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

    /// Every decision, in order: tool, decision, who decided, why, by which rule.
    #[must_use]
    pub fn decisions(&self) -> Vec<String> {
        let word = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".into());
        let decisions = self.records.iter().filter_map(|record| match &record.event {
            Event::Permission { tool, decision, by, reason, rule, .. } => {
                Some(format!("{tool} {decision} {by} {} {}", word(reason), word(rule)))
            }
            _ => None,
        });
        decisions.collect()
    }

    /// Every refusal of the outcome: tool, why, by which rule.
    #[must_use]
    pub fn denied(&self) -> Vec<String> {
        let rule = |rule: &Option<String>| rule.clone().unwrap_or_else(|| "-".into());
        self.outcome.denied.iter().map(|d| format!("{} {} {}", d.tool, d.reason, rule(&d.rule))).collect()
    }

    /// The calls, in order.
    #[must_use]
    pub fn tools(&self) -> Vec<&ToolUse> {
        let tools = self.records.iter().filter_map(|record| match &record.event {
            Event::ToolUse(tool) => Some(&**tool),
            _ => None,
        });
        tools.collect()
    }

    /// How the calls ended, in order.
    #[must_use]
    pub fn ends(&self) -> Vec<ToolStatus> {
        let ends = self.records.iter().filter_map(|record| match &record.event {
            Event::ToolResult { status, .. } => Some(*status),
            _ => None,
        });
        ends.collect()
    }

    /// What the calls gave back, in order.
    #[must_use]
    pub fn results(&self) -> Vec<&str> {
        let results = self.records.iter().filter_map(|record| match &record.event {
            Event::ToolResult { content, .. } => Some(content.as_deref().unwrap_or_default()),
            _ => None,
        });
        results.collect()
    }

    /// The codes of the warnings.
    #[must_use]
    pub fn warnings(&self) -> Vec<&str> {
        self.outcome.warnings.iter().map(|warning| warning.code.as_str()).collect()
    }

    /// Everything, for a failed assertion.
    #[must_use]
    pub fn shown(&self) -> String {
        let records: Vec<String> =
            self.records.iter().map(|r| serde_json::to_string(r).unwrap_or_default()).collect();
        format!("{}\n{}", records.join("\n"), shown(&self.outcome))
    }
}
