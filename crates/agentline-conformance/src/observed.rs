//! What was observed in a scenario: the events and outcome of its last run, and the requests to its model.

use agentline::events::Record;
use agentline::{Event, Outcome, Run, ToolStatus};
use agentline_mock::agents::ServedRequest;
use std::time::Duration;

/// What was observed in a scenario.
#[derive(Debug)]
pub(crate) struct Observed {
    pub(crate) records: Vec<Record>,
    pub(crate) outcome: Outcome,
    /// The requests of the last run, including those that the agent makes for its own purposes.
    pub(crate) log: Vec<ServedRequest>,
    /// The time from the first request to the outcome.
    pub(crate) after_request: Option<Duration>,
}

/// The events and outcome of a run.
#[derive(Debug)]
pub(crate) struct Collected {
    pub(crate) records: Vec<Record>,
    pub(crate) outcome: Outcome,
}

/// Reads a run to its end.
pub(crate) async fn collect(mut run: Run) -> Collected {
    let mut records = Vec::new();
    while let Some(record) = run.next().await {
        if let Event::Outcome { outcome } = record.event {
            return Collected { records, outcome: *outcome };
        }
        records.push(record);
    }
    Collected { records, outcome: run.outcome().await }
}

impl Observed {
    /// Returns the canonical names of the called tools with their statuses, in the order of the calls.
    pub(crate) fn tools(&self) -> Vec<(String, Option<ToolStatus>)> {
        let status_of = |id: &str| {
            self.records.iter().find_map(|record| match &record.event {
                Event::ToolResult(result) if result.tool_use_id == *id => Some(result.status),
                _ => None,
            })
        };
        let uses = self.records.iter().filter_map(|record| match &record.event {
            Event::ToolUse(tool) => Some((tool.name.clone(), status_of(&tool.id))),
            _ => None,
        });
        uses.collect()
    }

    /// Returns the results of the tool calls.
    pub(crate) fn tool_results(&self) -> Vec<&str> {
        let results = self.records.iter().filter_map(|record| match &record.event {
            Event::ToolResult(result) => Some(result.content.as_deref().unwrap_or("no content")),
            _ => None,
        });
        results.collect()
    }

    /// Returns the joined reasoning.
    pub(crate) fn thinking(&self) -> String {
        let pieces = self.records.iter().filter_map(|record| match &record.event {
            Event::Thinking { text } => Some(text.as_str()),
            _ => None,
        });
        pieces.collect()
    }

    /// Returns the joined text of all turns.
    pub(crate) fn streamed_text(&self) -> String {
        let pieces = self.records.iter().filter_map(|record| match &record.event {
            Event::Text { text } => Some(text.as_str()),
            _ => None,
        });
        pieces.collect()
    }

    /// Returns the turns of the log.
    pub(crate) fn turns(&self) -> impl Iterator<Item = &ServedRequest> {
        self.log.iter().filter(|request| request.is_turn)
    }
}
